//! What `kco init` leaves: the master secret before the call, the rest after it. Nothing is written over.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use attest::{Bytes, ClusterId, MasterSecret, Salt, Secret};
use attested_tls::private_file;
use serde::{Deserialize, Serialize};
use serde_json::json;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The folder of a cluster.
pub(crate) struct Folder(PathBuf);

/// What the cluster's keys come from.
pub(crate) struct Master {
    pub(crate) secret: Secret,
    pub(crate) salt: Salt,
    pub(crate) measurement_salt: Salt,
    /// It was there already, so that this is another attempt.
    pub(crate) is_old: bool,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MasterFile {
    key: String,
    salt: String,
    measurement_salt: String,
}

impl Master {
    fn new() -> Result<Self> {
        let bytes = || -> Result<[u8; 32]> {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).context("could not make a secret")?;
            Ok(bytes)
        };
        Ok(Self {
            secret: Secret::new(bytes()?),
            salt: Bytes(bytes()?),
            measurement_salt: Bytes(bytes()?),
            is_old: false,
        })
    }

    /// As the node takes it.
    pub(crate) fn kms_uri(&self) -> Zeroizing<String> {
        MasterSecret::new(self.secret.clone(), self.salt).to_kms_uri()
    }

    /// What the node must answer.
    pub(crate) fn cluster_id(&self) -> ClusterId {
        let master = MasterSecret::new(self.secret.clone(), self.salt);
        ClusterId::derive(&master.measurement_secret(), self.measurement_salt)
    }
}

impl Folder {
    /// A folder, which is made where it is missing. One of a cluster that was made is refused, before anything is asked of
    /// a node.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("could not make {}", path.display()))?;
        let this = Self(path.to_owned());
        for file in [this.kubeconfig(), this.cluster_id()] {
            ensure!(
                !file.exists(),
                "{} is there already: it is of a cluster that was made; say another folder with --output",
                file.display()
            );
        }
        Ok(this)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("admin.conf")
    }

    fn cluster_id(&self) -> PathBuf {
        self.0.join("cluster-id.json")
    }

    /// The master secret: that of an earlier attempt, or a new one, which is on the disk when this returns.
    pub(crate) fn master(&self) -> Result<Master> {
        let path = self.0.join("master-secret.json");
        match std::fs::read(&path).map(Zeroizing::new) {
            Ok(json) => read(&json).with_context(|| format!("{} is not a master secret", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let master = Master::new()?;
                let written = MasterFile {
                    key: Bytes(*master.secret.expose()).to_string(),
                    salt: master.salt.to_string(),
                    measurement_salt: master.measurement_salt.to_string(),
                };
                let json = serde_json::to_vec_pretty(&written).map(Zeroizing::new)?;
                create(&path, &json)?;
                Ok(master)
            }
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }

    /// Keeps what the node answered.
    pub(crate) fn keep(&self, kubeconfig: &[u8], id: ClusterId, name: &str, node: &str) -> Result<()> {
        // The kubeconfig is what cannot be had again.
        create(&self.kubeconfig(), kubeconfig)?;
        let about = json!({"clusterID": id.to_string(), "name": name, "node": node});
        create(&self.cluster_id(), format!("{about:#}\n").as_bytes())
    }

    /// Keeps the log of a failure, after what is there. Returns where.
    pub(crate) fn log(&self, log: &[u8]) -> Result<PathBuf> {
        let path = self.0.join("constellation-cluster.log");
        let opened = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path);
        let written = opened.and_then(|mut file| file.write_all(log));
        written.with_context(|| format!("could not write {}", path.display()))?;
        Ok(path)
    }
}

/// What is wrong with it is not said, as the text might have the secret.
fn read(json: &[u8]) -> Result<Master> {
    let Ok(file) = serde_json::from_slice::<MasterFile>(json) else {
        bail!("it has not the fields key, salt and measurementSalt");
    };
    let (Ok(key), Ok(salt), Ok(measurement_salt)) = (
        file.key.parse::<Bytes<32>>(),
        file.salt.parse(),
        file.measurement_salt.parse(),
    ) else {
        bail!("key, salt and measurementSalt are 32 bytes each, in hexadecimal");
    };
    Ok(Master {
        secret: Secret::new(key.0),
        salt,
        measurement_salt,
        is_old: true,
    })
}

/// A file that only its owner can read, and that must not be there. It is there whole, or not at all.
fn create(path: &Path, content: &[u8]) -> Result<()> {
    private_file::create(path, content).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_master_secret_is_private_and_that_of_the_first_attempt() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(&temporary.path().join("cluster")).unwrap();
        let first = folder.master().unwrap();
        let again = folder.master().unwrap();
        assert!(!first.is_old && again.is_old);
        assert_eq!(first.cluster_id(), again.cluster_id());
        assert_eq!(*first.kms_uri(), *again.kms_uri());
        let path = temporary.path().join("cluster/master-secret.json");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, r#"{"key": "5ec3e7"}"#).unwrap();
        let error = format!("{:#}", folder.master().err().unwrap());
        assert!(
            error.contains("is not a master secret") && !error.contains("5ec3e7"),
            "{error}"
        );
    }

    #[test]
    fn a_cluster_is_not_written_over() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        let id = folder.master().unwrap().cluster_id();
        folder.keep(b"kubeconfig", id, "test", "node").unwrap();
        assert!(folder.keep(b"another", id, "test", "node").is_err());
        assert_eq!(std::fs::read(folder.kubeconfig()).unwrap(), b"kubeconfig");
        let refused = Folder::open(temporary.path()).err().unwrap().to_string();
        assert!(refused.contains("--output"), "{refused}");
    }
}
