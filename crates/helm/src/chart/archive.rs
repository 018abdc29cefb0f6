//! Unpacks a packaged chart, `.tgz`, into its files (Helm's `pkg/chart/loader/archive`).

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use tar::EntryType;

use super::{ChartOptions, File};
use crate::line::HelmLine;

/// Limits on unpacking, so that a hostile archive ends in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Total size of all files in bytes, decompressed, including those of archives inside archives.
    pub total_size: u64,
    /// Number of files, including those of archives inside archives.
    pub files: usize,
    /// How deeply charts may be packed inside one another.
    pub nesting: usize,
}

impl Default for Limits {
    /// Helm's 100 MiB; Helm has no other limits, and the two defined here are far above what real charts need.
    fn default() -> Self {
        Self {
            total_size: 100 * 1024 * 1024,
            files: 100_000,
            nesting: 32,
        }
    }
}

/// What remains of the [`Limits`] while a chart is loaded.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    helm: HelmLine,
    size: u64,
    files: usize,
}

/// The largest file that Helm 3 reads; Helm 4 only limits the total.
const MAX_FILE_HELM_3: u64 = 5 * 1024 * 1024;

impl Budget {
    pub(crate) fn new(options: ChartOptions) -> Self {
        let ChartOptions { limits, helm } = options;
        Self {
            limits,
            helm,
            size: limits.total_size,
            files: limits.files,
        }
    }

    pub(crate) fn helm(&self) -> HelmLine {
        self.helm
    }

    pub(crate) fn max_nesting(&self) -> usize {
        self.limits.nesting
    }

    fn too_large(&self) -> Error {
        Error::TooLarge {
            limit: self.limits.total_size,
        }
    }

    /// Takes a file: its size, and its name, which can be the larger part.
    pub(crate) fn take(&mut self, name: &str, size: u64) -> Result<(), Error> {
        if self.helm == HelmLine::Three && size > MAX_FILE_HELM_3 {
            return Err(Error::FileTooLarge {
                name: name.to_owned(),
            });
        }
        self.files = self.files.checked_sub(1).ok_or(Error::TooManyFiles {
            limit: self.limits.files,
        })?;
        let size = size.saturating_add(name.len() as u64);
        self.size = self.size.checked_sub(size).ok_or_else(|| self.too_large())?;
        Ok(())
    }
}

/// Why an archive was refused, in Helm's words where Helm refuses it too.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not gzip or not tar, or they are truncated.
    #[error("could not read the chart archive")]
    Read(#[source] io::Error),
    /// The headers of a file are larger than allowed.
    #[error(
        "the headers of a file in the chart archive, with its name, are longer than {MAX_HEADERS} bytes: give it a shorter name, or package the chart again with helm package or kco package"
    )]
    LongHeaders,
    /// A path is absolute.
    #[error("chart illegally contains absolute paths")]
    AbsolutePath,
    /// A path names the root itself.
    #[error("chart illegally contains content outside the base directory: {0:?}")]
    OutsideBase(String),
    /// A path leaves the chart.
    #[error("chart illegally references parent directory")]
    ParentDirectory,
    /// A path starts with a drive letter.
    #[error("chart contains illegally named files")]
    IllegalName,
    /// `Chart.yaml` is not inside a folder.
    #[error("chart yaml not in base directory")]
    NotInBaseDirectory,
    /// The files are larger than allowed.
    #[error("decompressed chart is larger than the maximum size {limit}")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is larger than Helm 3 accepts.
    #[error("decompressed chart file {name:?} is larger than the maximum file size {MAX_FILE_HELM_3}")]
    FileTooLarge {
        /// Its path.
        name: String,
    },
    /// There are more files than allowed.
    #[error("chart contains more than {limit} files")]
    TooManyFiles {
        /// The limit.
        limit: usize,
    },
    /// The archive contains no files.
    #[error("no files in chart archive")]
    Empty,
    /// There are files outside the chart's own folder.
    #[error("chart archive has two folders at its top, {first} and {second}: a chart has one")]
    TwoRoots {
        /// The first one.
        first: String,
        /// Another one.
        second: String,
    },
    /// The archive contains a link, a device or another special file.
    #[error(
        "chart archive contains {path}, which is a link or a device: a chart consists of files and folders only"
    )]
    NotAFile {
        /// Its path.
        path: String,
    },
}

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Whether the bytes start like a gzip stream.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP_MAGIC)
}

/// The most bytes in front of a file's content: its header, with a long name or extended headers. Go reads 1 MiB of each;
/// names that a file system can hold are far shorter.
const MAX_HEADERS: u64 = 64 * 1024;

/// Which archives are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Those that Helm accepts.
    Any,
    /// Only those that `helm package` can produce: everything is in one folder, and there are no links.
    Packaged,
}

/// Unpacks an archive: returns its files in their order, without the first part of their paths.
///
/// # Errors
/// When it is damaged or unsafe, when it exceeds the budget or is of another shape.
pub(crate) fn files(archive: &[u8], shape: Shape, budget: &mut Budget) -> Result<Vec<File>, Error> {
    let allowance = Rc::new(Cell::new(0));
    let unpacked = Metered {
        // Headers are limited too: in an archive of empty files they are the larger part.
        inner: MultiGzDecoder::new(archive).take(budget.limits.total_size.saturating_mul(2)),
        allowance: allowance.clone(),
    };
    let mut tar = tar::Archive::new(unpacked);
    let mut entries = tar.entries().map_err(unread)?;
    let mut root = None;
    let mut files = Vec::new();
    loop {
        // The tar reader keeps long names and extended headers in memory before it returns the file that they describe.
        allowance.set(MAX_HEADERS);
        let Some(entry) = entries.next() else { break };
        allowance.set(u64::MAX);
        let mut entry = entry.map_err(unread)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        let is_extension = matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader);
        if shape == Shape::Packaged && !is_extension {
            check_shape(kind, &path, &mut root)?;
        }
        // What a sparse file has in memory is unlimited before the budget knows it.
        let is_folder = kind.is_dir() || (path.ends_with('/') && !kind.is_gnu_sparse());
        if is_folder || is_extension {
            // Otherwise it would be skipped together with the next headers, and count as theirs.
            io::copy(&mut entry, &mut io::sink()).map_err(unread)?;
            continue;
        }
        let name = name_in_chart(&path)?;
        budget.take(&path, entry.size())?;
        let mut data = Vec::new();
        entry.read_to_end(&mut data).map_err(unread)?;
        files.push(File::new(name, data));
    }
    if files.is_empty() {
        return Err(Error::Empty);
    }
    Ok(files)
}

/// Checks what Helm accepts although `helm package` never produces it.
fn check_shape(kind: EntryType, path: &str, root: &mut Option<String>) -> Result<(), Error> {
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::GNUSparse => {}
        _ => {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
    }
    let own = path.split(['/', '\\']).next().unwrap_or_default();
    match root {
        Some(root) if root != own => Err(Error::TwoRoots {
            first: root.clone(),
            second: own.to_owned(),
        }),
        Some(_) => Ok(()),
        None => {
            *root = Some(own.to_owned());
            Ok(())
        }
    }
}

/// A reader that fails once more is read than whoever reads may have at this point.
struct Metered<R> {
    inner: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let rest = self.allowance.get().checked_sub(read as u64);
        self.allowance
            .set(rest.ok_or_else(|| io::Error::other(Exceeded))?);
        Ok(read)
    }
}

/// The allowance of [`Metered`] is used up.
#[derive(Debug, thiserror::Error)]
#[error("its headers are too long")]
struct Exceeded;

fn unread(error: io::Error) -> Error {
    match error.downcast::<Exceeded>() {
        Ok(Exceeded) => Error::LongHeaders,
        Err(error) => Error::Read(error),
    }
}

/// Removes the first part of an entry's path and checks the rest.
fn name_in_chart(path: &str) -> Result<String, Error> {
    // Archives packed on Windows may contain backslashes; a path with a backslash is split there and not at slashes.
    let delimiter = if path.contains('\\') { '\\' } else { '/' };
    let (first, rest) = path.split_once(delimiter).unwrap_or((path, ""));
    let rest = rest.replace(delimiter, "/");
    if rest.starts_with('/') {
        return Err(Error::AbsolutePath);
    }
    let name = clean(&rest);
    if name == "." {
        return Err(Error::OutsideBase(path.to_owned()));
    }
    if name.starts_with("..") {
        return Err(Error::ParentDirectory);
    }
    if matches!(name.as_bytes(), [drive, b':', b'/', ..] if drive.is_ascii_alphabetic()) {
        return Err(Error::IllegalName);
    }
    if first == "Chart.yaml" {
        return Err(Error::NotInBaseDirectory);
    }
    Ok(name)
}

/// Go's `path.Clean` for relative paths.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        ".".to_owned()
    } else {
        parts.join("/")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pack(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        for (path, data) in entries {
            let mut header = tar::Header::new_gnu();
            // `set_path` refuses the very paths that these tests are about.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(data.len() as u64);
            header.set_cksum();
            tar.append(&header, *data).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn unpack(entries: &[(&str, &[u8])]) -> Result<Vec<String>, Error> {
        let found = files(
            &pack(entries),
            Shape::Any,
            &mut Budget::new(ChartOptions::default()),
        )?;
        Ok(found.into_iter().map(|file| file.name).collect())
    }

    #[test]
    fn the_first_part_of_a_path_is_dropped_whatever_it_is() {
        let names = unpack(&[
            ("c/Chart.yaml", b""),
            ("other/./a//b", b""),
            ("c\\x\\y/z", b""),
            ("d/", b""),
        ])
        .unwrap();
        assert_eq!(names, ["Chart.yaml", "a/b", "x/y/z"]);
    }

    #[test]
    fn paths_that_leave_the_chart_are_refused() {
        let refused = |path: &str| unpack(&[(path, b"x")]).unwrap_err().to_string();
        assert_eq!(
            refused("c//etc/passwd"),
            "chart illegally contains absolute paths"
        );
        assert_eq!(
            refused("c/../../x"),
            "chart illegally references parent directory"
        );
        assert_eq!(refused("c/..x"), "chart illegally references parent directory");
        assert_eq!(
            refused("./."),
            "chart illegally contains content outside the base directory: \"./.\""
        );
        assert_eq!(
            refused("c"),
            "chart illegally contains content outside the base directory: \"c\""
        );
        assert_eq!(refused("c/c:/x"), "chart contains illegally named files");
        assert_eq!(refused("Chart.yaml/x"), "chart yaml not in base directory");
    }

    #[test]
    fn a_foreign_archive_has_one_folder_and_no_links() {
        let check = |archive: &[u8]| {
            let mut budget = Budget::new(ChartOptions::default());
            files(archive, Shape::Packaged, &mut budget).map_err(|refused| refused.to_string())
        };
        check(&pack(&[("c/Chart.yaml", b""), ("c/", b""), ("c\\x", b"")])).unwrap();
        let refused = check(&pack(&[("c/Chart.yaml", b""), ("d/x", b"")])).unwrap_err();
        assert_eq!(
            refused,
            "chart archive has two folders at its top, c and d: a chart has one"
        );
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Char,
            EntryType::Fifo,
        ] {
            let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
                Vec::new(),
                flate2::Compression::fast(),
            ));
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            tar.append_link(&mut header, "c/x", "/etc/passwd").unwrap();
            let refused = check(&tar.into_inner().unwrap().finish().unwrap()).unwrap_err();
            assert!(refused.starts_with("chart archive contains c/x"), "{refused}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file() {
        let found = files(
            &pack(&[("c/a", b"\xef\xbb\xbfx")]),
            Shape::Any,
            &mut Budget::new(ChartOptions::default()),
        )
        .unwrap();
        assert_eq!(found[0].data, "x");
    }

    #[test]
    fn more_than_allowed_is_refused() {
        let archive = pack(&[("c/a", &[0; 600]), ("c/b", &[0; 600])]);
        let limits = |total_size, files| {
            Budget::new(ChartOptions::from(&Limits {
                total_size,
                files,
                nesting: 1,
            }))
        };
        assert!(matches!(
            files(&archive, Shape::Any, &mut limits(10_000, 1)),
            Err(Error::TooManyFiles { limit: 1 })
        ));
        assert!(matches!(
            files(&archive, Shape::Any, &mut limits(1100, 9)),
            Err(Error::TooLarge { limit: 1100 })
        ));
        assert_eq!(
            files(&archive, Shape::Any, &mut limits(4096, 2)).unwrap().len(),
            2
        );
    }

    /// The entry of a long name or an extended header, and then a file.
    fn described(kind: EntryType, description: &[u8]) -> Vec<u8> {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::best(),
        ));
        // What a folder has is skipped, and counts as no header.
        let content = vec![7; 100_000];
        for (kind, name, data) in [
            (EntryType::Directory, "c/", content.as_slice()),
            (kind, "x", description),
            (EntryType::Regular, "c/a", &content),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_path(name).unwrap();
            header.set_size(data.len() as u64);
            header.set_cksum();
            tar.append(&header, data).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn long_names_and_extended_headers_are_limited_before_they_are_in_memory() {
        let read = |archive: &[u8]| {
            let found = files(archive, Shape::Any, &mut Budget::new(ChartOptions::default()));
            found.map(|found| found.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        let long = format!("c/{}", "n".repeat(1000));
        // The number is the length of the record.
        let pax = format!("1013 path={long}\n");
        for (kind, description) in [(EntryType::GNULongName, long.clone()), (EntryType::XHeader, pax)] {
            let found = read(&described(kind, description.as_bytes())).unwrap();
            assert_eq!(found, [&long["c/".len()..]], "{kind:?}");
        }
        let endless = vec![0xff; 1 << 20];
        for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
            let refused = read(&described(kind, &endless)).unwrap_err();
            assert!(matches!(refused, Error::LongHeaders), "{kind:?}: {refused}");
        }
        // One that describes no single file is skipped, and is never in memory.
        let found = read(&described(EntryType::XGlobalHeader, &endless)).unwrap();
        assert_eq!(found, ["a"]);
    }

    #[test]
    fn names_count_as_content() {
        let name = format!("c/{}", "n".repeat(90));
        let archive = pack(&[(&name, b""), (&name, b"")]);
        let read = |size| {
            let mut budget = Budget::new(ChartOptions::default());
            budget.size = size;
            files(&archive, Shape::Any, &mut budget)
        };
        assert!(matches!(read(183), Err(Error::TooLarge { .. })));
        assert_eq!(read(184).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let read = |bytes: &[u8]| files(bytes, Shape::Any, &mut Budget::new(ChartOptions::default()));
        assert!(matches!(read(b"name: c"), Err(Error::Read(_))));
        assert!(matches!(read(&pack(&[])), Err(Error::Empty)));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"no tar at all, but long enough").unwrap();
        assert!(read(&gzip.finish().unwrap()).is_err());
        assert!(is_gzip(&pack(&[])));
    }
}
