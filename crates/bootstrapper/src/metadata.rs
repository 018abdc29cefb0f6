//! The node's metadata: what it should become, and where the cluster is. A JSON file that whoever creates the machine
//! writes.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bootstrap_proto::kubelet_certificate::is_node_name;
use serde::Deserialize;

use crate::stage::Role;

/// The node's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The name of the node.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The address at which other nodes reach it.
    pub address: IpAddr,
    /// Addresses of nodes at which the join service may be reached; while there are control planes, theirs.
    #[serde(default)]
    pub control_planes: Vec<IpAddr>,
    /// The bcrypt hash of the init secret; empty on a node that must not be initialised.
    #[serde(default)]
    pub init_secret_hash: String,
}

/// Why there is no metadata. It may be there later.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist, or cannot be read.
    #[error("could not read the metadata {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not a valid [`Metadata`]. The text does not quote it, because it contains the hash.
    #[error("the metadata {} does not have the format in docs/bootstrap.md: line {line}, column {column}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The line of the error.
        line: usize,
        /// The column of the error.
        column: usize,
    },
    /// A name that no node can have.
    #[error("the metadata's name {0:?} cannot be the name of a node")]
    Name(String),
}

impl Metadata {
    /// Reads the file as it is now.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let json = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let metadata: Self = serde_json::from_slice(&json).map_err(|error| Error::Form {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
        })?;
        if is_node_name(&metadata.name) {
            Ok(metadata)
        } else {
            Err(Error::Name(metadata.name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_format_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metadata.json");
        let good = r#"{"name": "node-1", "role": "controlPlane", "address": "198.18.0.2",
            "controlPlanes": ["198.18.0.2"], "initSecretHash": "$2b$10$secret"}"#;
        assert!(matches!(Metadata::read(&path), Err(Error::Read { .. })));
        std::fs::write(&path, good).unwrap();
        let metadata = Metadata::read(&path).unwrap();
        assert_eq!(
            (metadata.name.as_str(), metadata.role),
            ("node-1", Role::ControlPlane)
        );
        for (bad, is_name) in [
            (good.replace("node-1", "Node 1"), true),
            (good.replace("node-1", ""), true),
            (good.replace("controlPlane\"", "boss\""), false),
            (good.replace("address", "addr"), false),
        ] {
            std::fs::write(&path, &bad).unwrap();
            let error = Metadata::read(&path).unwrap_err();
            assert_eq!(matches!(error, Error::Name(_)), is_name, "{bad}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
