//! Files that only their owner can read, that are never overwritten, and never partly written.

use std::io;
use std::path::{Path, PathBuf};

use attested_tls::private_file;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {source}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Creates a file that only its owner can read, and its folder if it does not exist. The file must not exist yet.
pub fn create_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    private_file::create(path, content).map_err(|source| Error {
        action: "create",
        path: path.to_owned(),
        source,
    })
}

/// Removes a file, or a folder with everything in it. It need not exist.
pub fn remove(path: &Path) -> Result<(), Error> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error {
            action: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_never_written_over_and_removed_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pki/ca.key");
        create_private(&path, b"one").unwrap();
        let again = create_private(&path, b"two").unwrap_err();
        assert!(again.to_string().contains("could not create"), "{again}");
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        remove(&folder.path().join("pki")).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
