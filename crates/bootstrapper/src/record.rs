//! Records how far the node has come, in a file that survives a crash.

use std::io;
use std::path::{Path, PathBuf};

use attested_tls::private_file;
use serde::{Deserialize, Serialize};

use crate::stage::{Half, Role, Stage};

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state", deny_unknown_fields)]
pub enum Record {
    /// The node is locked or about to be locked, and this stage has begun.
    Locked {
        /// The half that locked it.
        half: Half,
        /// The role of the node.
        role: Role,
        /// The stage that has begun.
        stage: Stage,
    },
    /// The node is part of its cluster.
    Done,
    /// The bootstrapping failed, until the node is reset.
    Failed(Failure),
}

/// The failed stage, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("failed {stage}: {reason}; reset the node to try again")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// The cause. It contains no secrets.
    pub reason: String,
}

/// Why the record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} the node's record {}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The file of the record.
#[derive(Debug, Clone)]
pub struct RecordFile {
    path: PathBuf,
}

impl RecordFile {
    /// The record at this path. Its folder must exist.
    pub fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path }
    }

    /// The last record; `None` on a new node.
    pub fn read(&self) -> Result<Option<Record>, Error> {
        let json = match std::fs::read(&self.path) {
            Ok(json) => json,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.error("read", error)),
        };
        let record = serde_json::from_slice(&json).map_err(|error| self.error("read", error.into()))?;
        Ok(Some(record))
    }

    /// Replaces the previous record atomically, and returns once it is on disk.
    pub fn write(&self, record: &Record) -> Result<(), Error> {
        self.replace(record).map_err(|error| self.error("write", error))
    }

    fn replace(&self, record: &Record) -> io::Result<()> {
        private_file::replace(&self.path, &serde_json::to_vec(record)?)
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error {
            action,
            path: self.path.clone(),
            source,
        }
    }
}
