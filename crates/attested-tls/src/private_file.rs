//! Files that only their owner can read, and that are there whole or not at all: also after a crash in the middle.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// Makes a file, which must not be there, in a folder that is made when it is missing. Returns when both are on the disk.
///
/// # Errors
/// Nothing was left under this name: the file was there ([`io::ErrorKind::AlreadyExists`]), or could not be written.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = written(folder, content)?;
    file.persist_noclobber(path)?;
    sync(folder)
}

/// Takes the place of a file, or makes one. Returns when it is on the disk.
///
/// # Errors
/// It could not be written. What was there is there still.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    written(folder, content)?.persist(path)?;
    sync(folder)
}

/// A file beside the one it becomes, as names are changed within one file system only. It is readable by its owner alone.
fn written(folder: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes sure that a new name is still in its folder after a crash.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pki/etcd/ca.key");
        create(&path, b"one").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = create(&path, b"two").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        replace(&path, b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
