//! Files that nothing may read but their owner, and that are never written over.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {source}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Makes a file that only its owner can read, in a folder that is made when it is missing. It must not be there.
pub fn create_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    let error = |action| {
        let path = path.to_owned();
        move |source| Error { action, path, source }
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(error("make the folder of"))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(error("create"))?;
    file.write_all(content).map_err(error("write"))?;
    file.sync_all().map_err(error("sync"))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(error("sync the folder of"))
}

/// Removes a file, or a folder with all that is in it. One that is not there is fine.
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pki/etcd/ca.key");
        create_private(&path, b"one").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = create_private(&path, b"two").unwrap_err();
        assert!(again.to_string().contains("could not create"), "{again}");
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        remove(&folder.path().join("pki")).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
