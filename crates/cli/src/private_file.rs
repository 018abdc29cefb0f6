//! Files with credentials: readable only by their owner, and never partly written.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

/// Writes a file that only its owner can read, and creates its folder if it does not exist.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let written = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // This creates the file with mode 0600.
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.persist(path)?;
        Ok::<_, std::io::Error>(())
    };
    written().with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        for content in ["one", "two"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 1);
    }
}
