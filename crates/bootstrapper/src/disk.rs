//! The state disk, which contains the node's state, encrypted with a key that the cluster derives from the disk's UUID.
//!
//! This implementation is a file with the UUID and a verifier of the key. It encrypts nothing, but exercises the
//! protocol: a node can continue only with the key that was set.

use std::io;
use std::path::{Path, PathBuf};

use attest::{Bytes, Digest, Secret, sha256};
use attested_tls::private_file;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Header {
    uuid: Uuid,
    /// None until a key is set.
    slot: Option<Slot>,
}

/// The verifier of a key. Keys are 32 bytes of high entropy, so one round of hashing is enough.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Slot {
    salt: Bytes<32>,
    verifier: Digest,
}

/// Why the disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its file cannot be read or written.
    #[error("could not {action} the state disk {}: {source}", path.display())]
    #[expect(missing_docs, reason = "the message says what the fields are")]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// It cannot be created.
    #[error(transparent)]
    Create(#[from] files::Error),
    /// It has a key already, which cannot be replaced.
    #[error("the state disk already has a passphrase: reset the node")]
    HasKey,
    /// This is not the key that was set.
    #[error("the key does not fit the state disk")]
    WrongKey,
    /// The system gave no random bytes.
    #[error("could not generate a salt")]
    Random(#[source] getrandom::Error),
}

/// The state disk of this node.
#[derive(Debug, Clone)]
pub struct StateDisk {
    path: PathBuf,
}

impl StateDisk {
    /// Opens the disk at this path, and creates one if there is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let disk = Self {
            path: path.to_owned(),
        };
        if !path.exists() {
            let header = Header {
                uuid: Uuid::new_v4(),
                slot: None,
            };
            files::create_private(path, &disk.written(&header)?)?;
        }
        disk.header()?;
        Ok(disk)
    }

    /// The UUID that its key is derived from.
    pub fn uuid(&self) -> Result<Uuid, Error> {
        self.header().map(|header| header.uuid)
    }

    /// Sets the key of a disk that has none.
    pub fn set_key(&self, key: &Secret) -> Result<(), Error> {
        let mut header = self.header()?;
        if header.slot.is_some() {
            return Err(Error::HasKey);
        }
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(Error::Random)?;
        let verifier = sha256(&[&salt, key.expose()]);
        let salt = Bytes(salt);
        header.slot = Some(Slot { salt, verifier });
        private_file::replace(&self.path, &self.written(&header)?)
            .map_err(|source| self.error("write", source))
    }

    /// Unlocks the disk; fails unless the key is right.
    pub fn unlock(&self, key: &Secret) -> Result<(), Error> {
        let slot = self.header()?.slot.ok_or(Error::WrongKey)?;
        if sha256(&[&slot.salt.0, key.expose()]) == slot.verifier {
            Ok(())
        } else {
            Err(Error::WrongKey)
        }
    }

    fn header(&self) -> Result<Header, Error> {
        let json = std::fs::read(&self.path).map_err(|source| self.error("read", source))?;
        serde_json::from_slice(&json).map_err(|error| self.error("read", error.into()))
    }

    fn written(&self, header: &Header) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(header).map_err(|error| self.error("write", error.into()))
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::File {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_uuid_and_takes_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.json");
        let disk = StateDisk::open(&path).unwrap();
        let uuid = disk.uuid().unwrap();
        let (key, other) = (Secret::new([1; 32]), Secret::new([2; 32]));
        assert!(matches!(disk.unlock(&key), Err(Error::WrongKey)));
        disk.set_key(&key).unwrap();
        assert!(matches!(disk.set_key(&other), Err(Error::HasKey)));
        let again = StateDisk::open(&path).unwrap();
        assert_eq!(again.uuid().unwrap(), uuid);
        again.unlock(&key).unwrap();
        assert!(matches!(again.unlock(&other), Err(Error::WrongKey)));
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(
            StateDisk::open(&path),
            Err(Error::File { action: "read", .. })
        ));
    }
}
