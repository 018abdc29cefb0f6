//! A chart's folder or archive, as the rules read it.

use std::fs;
use std::path::Path;

use charts::source::folder;
use helm::chart::{self, Chart, Limits};

use super::{chain, is_archive};

/// The input of the rules.
pub(super) struct Source {
    /// `Chart.yaml`, as it was written.
    pub(super) definition: Vec<u8>,
    /// `values.yaml`.
    pub(super) values: Option<Vec<u8>>,
    pub(super) templates: Entry,
    pub(super) crds: Entry,
    /// The chart, or why it cannot be loaded.
    pub(super) chart: Result<Chart, String>,
    /// Its path, for messages.
    pub(super) root: String,
}

/// The type of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Absent,
    File,
    Folder,
}

impl Source {
    /// Reads a chart; an error if there is none.
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        if is_archive(&path.to_string_lossy()) {
            return Self::of_archive(path);
        }
        let definition = path.join("Chart.yaml");
        let text = fs::read(&definition).map_err(|error| {
            let said = match error.kind() {
                std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
                _ => error.to_string(),
            };
            format!(
                "unable to check Chart.yaml file in chart: stat {}: {said}",
                definition.display()
            )
        })?;
        let entry = |name: &str| match fs::metadata(path.join(name)) {
            Err(_) => Entry::Absent,
            Ok(found) if found.is_dir() => Entry::Folder,
            Ok(_) => Entry::File,
        };
        Ok(Self {
            definition: text,
            values: fs::read(path.join("values.yaml")).ok(),
            templates: entry("templates"),
            crds: entry("crds"),
            chart: folder::load(path).map_err(|error| match error {
                folder::Error::Load { source, .. } => chain(source),
                error => chain(error),
            }),
            root: std::path::absolute(path)
                .unwrap_or(path.to_owned())
                .display()
                .to_string(),
        })
    }

    fn of_archive(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| format!("unable to open tarball: {error}"))?;
        let files = chart::unpack(&bytes, &Limits::default());
        let files = files.map_err(|error| format!("unable to extract tarball: {}", chain(error)))?;
        let content = |name: &str| {
            files
                .iter()
                .find(|file| file.name == name)
                .map(|file| file.data.to_vec())
        };
        let entry = |name: &str| {
            if files
                .iter()
                .any(|file| file.name.starts_with(&format!("{name}/")))
            {
                Entry::Folder
            } else if files.iter().any(|file| file.name == name) {
                Entry::File
            } else {
                Entry::Absent
            }
        };
        Ok(Self {
            definition: content("Chart.yaml")
                .ok_or("unable to check Chart.yaml file in chart: it is not in the archive")?,
            values: content("values.yaml"),
            templates: entry("templates"),
            crds: entry("crds"),
            chart: Chart::from_files(files.clone(), &Limits::default()).map_err(chain),
            root: path.display().to_string(),
        })
    }
}
