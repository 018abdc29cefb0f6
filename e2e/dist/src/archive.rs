//! Reproducible archives: files belong to root, in a fixed order, with a fixed time.

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// The mode of a program.
pub(crate) const PROGRAM: u32 = 0o755;
/// The mode of any other file.
pub(crate) const FILE: u32 = 0o644;

/// A tar archive under construction.
pub(crate) struct Archive {
    tar: tar::Builder<Vec<u8>>,
    time: u64,
}

impl Archive {
    /// An empty archive, whose files all get the time `time`, in seconds since 1970.
    pub(crate) fn new(time: u64) -> Self {
        Self {
            tar: tar::Builder::new(Vec::new()),
            time,
        }
    }

    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str) -> Result<()> {
        let mut header = self.header(0, 0o755);
        header.set_entry_type(tar::EntryType::Directory);
        self.tar.append_data(&mut header, path, &[][..])?;
        Ok(())
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = self.header(content.len() as u64, mode);
        self.tar.append_data(&mut header, path, content)?;
        Ok(())
    }

    /// The bytes of the archive.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        Ok(self.tar.into_inner()?)
    }

    fn header(&self, size: u64, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header
    }
}

/// Compressed, with neither a name nor a time in the header.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    use std::io::Write as _;

    // 255 means: unknown operating system.
    let mut gzip = GzBuilder::new()
        .operating_system(255)
        .write(Vec::new(), Compression::default());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_depends_on_its_files_and_the_given_time_only() {
        let make = |time| {
            let mut archive = Archive::new(time);
            archive.folder("etc/").unwrap();
            archive.file("etc/motd", FILE, b"hello").unwrap();
            gzip(&archive.finish().unwrap()).unwrap()
        };
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }
}
