//! Loads a chart from disk, a folder or an archive (Helm's `pkg/chart/v2/loader/directory.go`).

use std::fs::{self, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use helm::chart::ignore::{self, Rules};
use helm::chart::{self, Chart, ChartOptions, File};
use helm::line::HelmLine;

/// Largest file of a chart folder in Helm 3; Helm 4 only limits the total size.
const MAX_FILE_HELM_3: u64 = 5 * 1024 * 1024;

/// A chart on disk that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A device, a socket or the like.
    #[error("cannot load irregular file {}: a chart holds files, folders and links to them", path.display())]
    Irregular {
        /// The file.
        path: PathBuf,
    },
    /// A link that leads back to one of its parent folders.
    #[error("the link {} leads back to a folder that contains it", path.display())]
    Loop {
        /// The link.
        path: PathBuf,
    },
    /// A file that is too large for Helm 3.
    #[error(
        "chart file {name:?} is larger than the maximum file size {MAX_FILE_HELM_3}: take it out of the chart, or name it in .helmignore"
    )]
    FileTooLarge {
        /// Its path in the chart.
        name: String,
    },
    /// The total size is too large.
    #[error(
        "chart exceeds maximum decompressed size of {limit} bytes at {name:?}: remove what does not belong to it, or name it in .helmignore"
    )]
    TooLarge {
        /// The file that exceeded the limit.
        name: String,
        /// The limit.
        limit: u64,
    },
    /// The `.helmignore` is invalid.
    #[error("could not use {}", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ignore::Error,
    },
    /// What was read is not a chart.
    #[error("{} is not a usable chart", path.display())]
    Load {
        /// The folder or archive.
        path: PathBuf,
        /// Why.
        source: chart::Error,
    },
}

/// Loads a chart from a folder, or from an archive when `path` is a file.
///
/// # Errors
/// [`Error`] names the file.
pub fn load(path: &Path) -> Result<Chart, Error> {
    load_as(path, ChartOptions::default())
}

/// [`load`] with other limits, or as in another major version of Helm.
///
/// # Errors
/// [`Error`] names the file.
pub fn load_as(path: &Path, options: ChartOptions) -> Result<Chart, Error> {
    let failed = |source| Error::Load {
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        return Chart::from_files(files_as(path, options)?, options).map_err(failed);
    }
    let archive = fs::read(path).map_err(|source| unread(path, source))?;
    Chart::from_archive(&archive, options).map_err(failed)
}

/// The files of a chart folder that its `.helmignore` does not exclude, by name within each folder.
///
/// Links are followed, even out of the folder, as in Helm: this is for the user's own charts. Charts of others are
/// archives, which cannot contain links.
///
/// # Errors
/// [`Error`] names the file.
pub fn files(folder: &Path) -> Result<Vec<File>, Error> {
    files_as(folder, ChartOptions::default())
}

/// [`files`] with other limits, or as in another major version of Helm.
///
/// # Errors
/// [`Error`] names the file.
pub fn files_as(folder: &Path, options: ChartOptions) -> Result<Vec<File>, Error> {
    let mut walk = Walk {
        rules: rules(folder)?,
        options,
        size: 0,
        above: Vec::new(),
        files: Vec::new(),
        buffer: Vec::new(),
    };
    walk.enter(folder, "")?;
    Ok(walk.files)
}

fn rules(folder: &Path) -> Result<Rules, Error> {
    let path = folder.join(ignore::FILE_NAME);
    match fs::read(&path) {
        Ok(text) => {
            Rules::parse(&String::from_utf8_lossy(&text)).map_err(|source| Error::Ignore { path, source })
        }
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Ok(Rules::implicit()),
        Err(source) => Err(unread(&path, source)),
    }
}

struct Walk {
    rules: Rules,
    options: ChartOptions,
    /// Total size of the files read so far.
    size: u64,
    /// The folders from the chart's root to the present one, by device and inode.
    above: Vec<(u64, u64)>,
    files: Vec<File>,
    /// Where files are read, one after the other.
    buffer: Vec<u8>,
}

impl Walk {
    fn enter(&mut self, folder: &Path, name: &str) -> Result<(), Error> {
        let meta = fs::metadata(folder).map_err(|source| unread(folder, source))?;
        let real = (meta.dev(), meta.ino());
        if self.above.contains(&real) {
            return Err(Error::Loop {
                path: folder.to_owned(),
            });
        }
        self.above.push(real);
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries: Vec<_> = entries
            .map_err(|source| unread(folder, source))?
            .into_iter()
            .map(|entry| (entry.file_name(), entry.file_type().ok()))
            .collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (entry, file_type) in entries {
            let inner = entry.to_string_lossy();
            let inner = if name.is_empty() {
                inner.into_owned()
            } else {
                format!("{name}/{inner}")
            };
            self.visit(&folder.join(&entry), file_type, inner)?;
        }
        self.above.pop();
        Ok(())
    }

    /// Takes in what a folder lists; its type is given where the list has it.
    fn visit(&mut self, path: &Path, listed: Option<FileType>, name: String) -> Result<(), Error> {
        let is_link = listed.is_none_or(|listed| listed.is_symlink());
        let file_type = match listed {
            Some(listed) if !is_link => listed,
            _ => fs::metadata(path)
                .map_err(|source| unread(path, source))?
                .file_type(),
        };
        if self.rules.ignores(&name, file_type.is_dir()) {
            return Ok(());
        }
        if is_link && path.is_symlink() {
            tracing::info!(path = %path.display(), "the chart contains a symbolic link; its target is used");
        }
        if file_type.is_dir() {
            return self.enter(path, &name);
        }
        if !file_type.is_file() {
            return Err(Error::Irregular {
                path: path.to_owned(),
            });
        }
        self.read(path, &name)?;
        self.files.push(File::new(name, &self.buffer));
        Ok(())
    }

    /// Reads a file into the buffer, and no more than the limits allow, even if the file grows meanwhile.
    fn read(&mut self, path: &Path, name: &str) -> Result<(), Error> {
        let file = fs::File::open(path).map_err(|source| unread(path, source))?;
        let size = file.metadata().map_err(|source| unread(path, source))?.len();
        if self.options.helm == HelmLine::Three && size > MAX_FILE_HELM_3 {
            return Err(Error::FileTooLarge {
                name: name.to_owned(),
            });
        }
        let limit = self.options.limits.total_size;
        let too_large = || Error::TooLarge {
            name: name.to_owned(),
            limit,
        };
        let left = limit.saturating_sub(self.size);
        if size > left {
            return Err(too_large());
        }
        self.buffer.clear();
        self.buffer.reserve(size as usize + 1);
        let read = file.take(left + 1).read_to_end(&mut self.buffer);
        let read = read.map_err(|source| unread(path, source))? as u64;
        if read > left {
            return Err(too_large());
        }
        self.size += read;
        Ok(())
    }
}

fn unread(path: &Path, source: io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use helm::chart::Limits;

    use super::*;

    fn chart() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (name, text) in [
            ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
            (".helmignore", "ci/\n*.swp\n"),
            ("ci/huge.yaml", ""),
            ("templates/_helpers.tpl", ""),
            ("templates/NOTES.txt", ""),
            ("templates/.hidden", ""),
            ("templates/web.yaml.swp", ""),
            ("templates/web.yaml", "\u{feff}a: 1"),
        ] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        files(folder).unwrap().into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn a_folder_is_read_in_order_and_without_what_it_ignores() {
        let folder = chart();
        let names = names(folder.path());
        let expected = [
            ".helmignore",
            "Chart.yaml",
            "templates/NOTES.txt",
            "templates/_helpers.tpl",
            "templates/web.yaml",
        ];
        assert_eq!(names, expected);
        let chart = load(folder.path()).unwrap();
        assert_eq!(
            (chart.name(), chart.templates()[2].data.as_bytes()),
            ("web", b"a: 1".as_slice())
        );
    }

    #[test]
    fn links_are_followed_but_not_in_circles() {
        let folder = chart();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("shared.yaml"), "").unwrap();
        symlink(elsewhere.path(), folder.path().join("templates/shared")).unwrap();
        assert!(names(folder.path()).contains(&"templates/shared/shared.yaml".to_owned()));
        symlink(folder.path(), folder.path().join("templates/up")).unwrap();
        assert!(matches!(files(folder.path()), Err(Error::Loop { .. })));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = chart();
        let said = |folder: &Path| load(folder).unwrap_err().to_string();
        assert!(said(Path::new("/nowhere/web.tgz")).contains("/nowhere/web.tgz"));

        std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        assert!(said(folder.path()).starts_with("cannot load irregular file"));

        fs::write(folder.path().join(".helmignore"), "**\n").unwrap();
        assert!(said(folder.path()).ends_with(".helmignore"));
    }

    #[test]
    fn the_size_of_all_files_is_bounded_and_with_helm_3_that_of_each() {
        let folder = chart();
        let big = folder.path().join("big");
        fs::write(&big, vec![0; MAX_FILE_HELM_3 as usize + 1]).unwrap();
        assert_eq!(load(folder.path()).unwrap().files().len(), 2);

        let said = |options: ChartOptions| load_as(folder.path(), options).unwrap_err().to_string();
        assert!(said(HelmLine::Three.into()).starts_with("chart file \"big\" is larger"));
        let small = Limits {
            total_size: MAX_FILE_HELM_3,
            ..Limits::default()
        };
        assert!(
            said((&small).into())
                .starts_with("chart exceeds maximum decompressed size of 5242880 bytes at \"big\"")
        );
        fs::write(folder.path().join(".helmignore"), "big\n").unwrap();
        for options in [HelmLine::Three.into(), (&small).into()] {
            assert_eq!(load_as(folder.path(), options).unwrap().name(), "web");
        }
    }
}
