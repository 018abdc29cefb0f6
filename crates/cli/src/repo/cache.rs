//! The indexes of repositories as they were when they were fetched, in Helm's cache: `<name>-index.yaml`, and the names of
//! the charts in it beside that, for completions (Helm's `pkg/repo/v1/chartrepo.go`).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use charts::source::Index;
use tempfile::NamedTempFile;

use crate::environment;

/// What is kept of one repository.
#[derive(Debug)]
pub(crate) struct Cache {
    index: PathBuf,
    charts: PathBuf,
}

impl Cache {
    /// The files of the repository of this name, which is a part of theirs.
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

    /// Keeps an index that can be read.
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

    /// What the index lists.
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

/// Writes a file that everybody may read, whole at every moment.
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
