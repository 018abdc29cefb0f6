//! Reads the cluster's keys: the master secret, and kubeadm's files.

use std::io;
use std::path::{Path, PathBuf};

use attest::{Bytes, ClusterId, MasterSecret, Salt, Secret};
use bootstrap_proto::CONTROL_PLANE_FILES;
use bootstrap_proto::kubelet_certificate::{Authority, AuthorityError};
use bootstrap_proto::proto::ControlPlaneFile;
use zeroize::Zeroizing;

/// Why the keys could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} does not hold 32 bytes", .0.display())]
    Length(PathBuf),
    #[error("could not use the cluster's authority in {}", path.display())]
    Authority { path: PathBuf, source: AuthorityError },
}

/// The master secret, and what is derived from it once.
pub(crate) struct MasterKeys {
    master: MasterSecret,
    pub(crate) measurement_salt: Salt,
    pub(crate) measurement_secret: Secret,
    pub(crate) cluster_id: ClusterId,
}

impl MasterKeys {
    /// Reads the mounted files of the Secret.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let bytes = |name: &str| {
            let path = folder.join(name);
            let read = read(&path)?;
            <[u8; 32]>::try_from(read.as_slice()).map_err(|_| Error::Length(path))
        };
        let master = MasterSecret::new(Secret::new(bytes("key")?), Bytes(bytes("salt")?));
        let measurement_salt = Bytes(bytes("measurementSalt")?);
        let measurement_secret = master.measurement_secret();
        Ok(Self {
            cluster_id: ClusterId::derive(&measurement_secret, measurement_salt),
            master,
            measurement_salt,
            measurement_secret,
        })
    }

    /// The key of a state disk.
    pub(crate) fn disk_key(&self, disk: uuid::Uuid) -> Secret {
        self.master.disk_key(disk)
    }
}

/// The cluster's CA, read anew.
pub(crate) fn authority(pki: &Path) -> Result<Authority, Error> {
    let (certificate, key) = (read(&pki.join("ca.crt"))?, read(&pki.join("ca.key"))?);
    Authority::read(&certificate, &key).map_err(|source| Error::Authority {
        path: pki.to_owned(),
        source,
    })
}

/// The files that a control plane gets.
pub(crate) fn shared(pki: &Path) -> Result<Vec<ControlPlaneFile>, Error> {
    let file = |name: &&str| {
        let data = read(&pki.join(name))?.to_vec();
        let name = (*name).to_owned();
        Ok(ControlPlaneFile { name, data })
    };
    CONTROL_PLANE_FILES.iter().map(file).collect()
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let read = std::fs::read(path).map(Zeroizing::new);
    read.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}
