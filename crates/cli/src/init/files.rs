//! The files that `kco init` writes: the master secret before the call, the rest after it. Nothing is overwritten.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use attest::{Bytes, ClusterId, MasterSecret, Salt, Secret};
use attested_tls::private_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The folder of a cluster.
pub(crate) struct Folder(PathBuf);

/// The secret that the cluster's keys are derived from.
pub(crate) struct Master {
    pub(crate) secret: Secret,
    pub(crate) salt: Salt,
    pub(crate) measurement_salt: Salt,
    /// True if it existed already, so this is a further attempt.
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

    /// In the format that the node expects.
    pub(crate) fn kms_uri(&self) -> Zeroizing<String> {
        MasterSecret::new(self.secret.clone(), self.salt).to_kms_uri()
    }

    /// The cluster id that the node must answer with.
    pub(crate) fn cluster_id(&self) -> ClusterId {
        let master = MasterSecret::new(self.secret.clone(), self.salt);
        ClusterId::derive(&master.measurement_secret(), self.measurement_salt)
    }
}

impl Folder {
    /// Opens a folder, and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("could not make {}", path.display()))?;
        let this = Self(path.to_owned());
        if !this.master_secret().exists() {
            for file in [this.kubeconfig(), this.cluster_id()] {
                ensure!(
                    !file.exists(),
                    "{} exists, but its master-secret.json does not: restore it, or pass another folder with --output",
                    file.display()
                );
            }
        }
        Ok(this)
    }

    /// The cluster that an earlier run created on this node, with this name and master secret. If the folder belongs to
    /// another cluster, that is an error before any node is called.
    pub(crate) fn made(&self, master: &Master, name: &str, node: &str) -> Result<Option<ClusterId>> {
        let (kubeconfig, path) = (self.kubeconfig(), self.cluster_id());
        let read = match std::fs::read(&path) {
            Ok(json) => Some(json),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("could not read {}", path.display())),
        };
        let id = master.cluster_id();
        match (kubeconfig.exists(), read) {
            (false, None) => Ok(None),
            (false, Some(_)) => bail!(
                "{} exists, but its admin.conf does not: pass another folder with --output",
                path.display()
            ),
            // An earlier run ended between the two writes.
            (true, None) => {
                self.keep_id(id, name, node)?;
                Ok(Some(id))
            }
            (true, Some(json)) => {
                let about: Option<Value> = serde_json::from_slice(&json).ok();
                ensure!(
                    about == Some(about_cluster(id, name, node)),
                    "{} is of another cluster, node or name: pass another folder with --output",
                    path.display()
                );
                Ok(Some(id))
            }
        }
    }

    fn master_secret(&self) -> PathBuf {
        self.0.join("master-secret.json")
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("admin.conf")
    }

    fn cluster_id(&self) -> PathBuf {
        self.0.join("cluster-id.json")
    }

    /// The master secret: the one of an earlier attempt, or a new one, which is synced to disk before this returns.
    pub(crate) fn master(&self) -> Result<Master> {
        let path = self.master_secret();
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

    /// Saves what the node answered.
    pub(crate) fn keep(&self, kubeconfig: &[u8], id: ClusterId, name: &str, node: &str) -> Result<()> {
        // The kubeconfig first: it cannot be obtained again.
        create(&self.kubeconfig(), kubeconfig)?;
        self.keep_id(id, name, node)
    }

    fn keep_id(&self, id: ClusterId, name: &str, node: &str) -> Result<()> {
        let about = about_cluster(id, name, node);
        create(&self.cluster_id(), format!("{about:#}\n").as_bytes())
    }

    /// Appends the log of a failure to the log file, and returns its path.
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

/// The content of `cluster-id.json`.
fn about_cluster(id: ClusterId, name: &str, node: &str) -> Value {
    json!({"clusterID": id.to_string(), "name": name, "node": node})
}

/// The error does not quote the text, which might contain the secret.
fn read(json: &[u8]) -> Result<Master> {
    let Ok(file) = serde_json::from_slice::<MasterFile>(json) else {
        bail!("it does not have the fields key, salt and measurementSalt");
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

/// Creates a file that only its owner can read. It must not exist yet, and it is written completely or not at all.
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
        let master = folder.master().unwrap();
        let id = master.cluster_id();
        assert_eq!(folder.made(&master, "test", "node").unwrap(), None);
        folder.keep(b"kubeconfig", id, "test", "node").unwrap();
        assert!(folder.keep(b"another", id, "test", "node").is_err());
        assert_eq!(std::fs::read(folder.kubeconfig()).unwrap(), b"kubeconfig");
        assert_eq!(folder.made(&master, "test", "node").unwrap(), Some(id));
        for (name, node) in [("other", "node"), ("test", "other")] {
            let refused = folder.made(&master, name, node).unwrap_err().to_string();
            assert!(refused.contains("--output"), "{refused}");
        }
        // Killed between writing the two files.
        std::fs::remove_file(folder.cluster_id()).unwrap();
        assert_eq!(folder.made(&master, "test", "node").unwrap(), Some(id));
        assert!(folder.cluster_id().exists());
        std::fs::remove_file(folder.kubeconfig()).unwrap();
        assert!(folder.made(&master, "test", "node").is_err());
        // Another secret would make another cluster.
        std::fs::remove_file(folder.master_secret()).unwrap();
        assert!(Folder::open(temporary.path()).is_err());
    }
}
