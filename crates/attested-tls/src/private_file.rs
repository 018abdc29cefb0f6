//! Files that only their owner can read, and that are written completely or not at all, even if the machine crashes.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

/// Creates a file, which must not exist yet, and its folder if it does not exist. Returns once both are on disk.
///
/// # Errors
/// If the file exists ([`io::ErrorKind::AlreadyExists`]) or could not be written; then no new file has this name.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = written(folder, content)?;
    file.persist_noclobber(path)?;
    sync(folder)
}

/// Replaces or creates a file. Returns once it is on disk.
///
/// # Errors
/// If it could not be written. The previous content is then still there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    written(folder, content)?.persist(path)?;
    sync(folder)
}

/// A temporary file next to the final one, because files can only be renamed within a file system. Only its owner can
/// read it.
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

/// Makes sure that a new name persists in its folder after a crash.
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
