//! The indexes of repositories as of their last fetch, in Helm's cache: `<name>-index.yaml`, and beside it the names of
//! the charts in it, for completions (Helm's `pkg/repo/v1/chartrepo.go`).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use charts::source::Index;
use tempfile::NamedTempFile;

use crate::environment;

/// The cached files of one repository.
#[derive(Debug)]
pub(crate) struct Cache {
    index: PathBuf,
    charts: PathBuf,
}

impl Cache {
    /// The files of the repository of this name, which is part of their names.
    pub(crate) fn of(name: &str) -> Result<Self> {
        ensure!(
            !name.contains(['/', '\\', '\0']),
            "repository name ({name}) contains a separator of paths: correct it in {}",
            environment::path("HELM_REPOSITORY_CONFIG").display()
        );
        let folder = environment::path("HELM_REPOSITORY_CACHE");
        let prefix = if name.is_empty() {
            String::new()
        } else {
            format!("{name}-")
        };
        Ok(Self {
            index: folder.join(format!("{prefix}index.yaml")),
            charts: folder.join(format!("{prefix}charts.txt")),
        })
    }

    /// Stores an index, if it can be parsed.
    pub(crate) fn keep(&self, index: &[u8]) -> Result<()> {
        let parsed = Index::parse(index)?;
        let mut names = String::new();
        for name in parsed.charts.keys() {
            names.push_str(name);
            names.push('\n');
        }
        write(&self.charts, names.as_bytes())?;
        write(&self.index, index)
    }

    /// The index as it was fetched.
    pub(crate) fn text(&self) -> Result<Vec<u8>> {
        fs::read(&self.index).with_context(|| format!("could not read {}", self.index.display()))
    }

    /// The parsed index.
    pub(crate) fn load(&self) -> Result<Index> {
        Index::parse(&self.text()?).with_context(|| format!("error loading {}", self.index.display()))
    }

    /// Removes both files.
    pub(crate) fn forget(&self) -> Result<()> {
        for path in [&self.charts, &self.index] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("can't remove index file {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes a file that everybody may read, and never partly.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let written = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))?;
        file.persist(path)?;
        Ok::<_, std::io::Error>(())
    };
    written().with_context(|| format!("could not write {}", path.display()))
}
