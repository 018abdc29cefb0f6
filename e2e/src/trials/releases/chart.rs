//! The charts for trials of releases: one text file each, in `e2e/charts/releases`.
//!
//! A file contains the files of a chart, each below a line `-- <path> --`; the lines before the first one say what the
//! chart is for. `upgrade.yaml` has the values of the second revision. `Chart.yaml` is generated.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::image;

/// The annotations of a definition by which an admin consents to everything that trial charts contain: roles, and kinds whose
/// objects rule over others.
pub const CONSENT: [(&str, &str); 2] = [
    ("krateo.io/allow-chart-rbac", "true"),
    (
        "krateo.io/allowed-kinds",
        "namespaces,apiextensions.k8s.io/customresourcedefinitions,scheduling.k8s.io/priorityclasses,\
         admissionregistration.k8s.io/validatingwebhookconfigurations",
    ),
];

/// A chart on disk, and the values of its second revision.
pub struct TrialChart {
    /// Its name.
    pub name: String,
    /// What it tests.
    pub purpose: String,
    folder: TempDir,
}

/// The name of the file that is not part of the chart.
const UPGRADE: &str = "upgrade.yaml";

impl TrialChart {
    /// All of them, by name.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn all() -> Result<Vec<Self>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder())? {
            let path = entry?.path();
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
        names.sort();
        names.iter().map(|name| Self::named(name)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn named(name: &str) -> Result<Self> {
        let path = folder().join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let (purpose, files) = files(&text);
        ensure!(!files.is_empty(), "{} holds no files", path.display());
        let chart = Self {
            name: name.to_owned(),
            purpose: purpose.trim().to_owned(),
            folder: tempfile::tempdir()?,
        };
        let metadata = format!(
            "apiVersion: v2\nname: {name}\nversion: 1.0.0\nappVersion: \"1.0\"\ndescription: A trial.\n"
        );
        chart.write("chart/Chart.yaml", &metadata)?;
        for (path, text) in files {
            let path = if path == UPGRADE {
                path.to_owned()
            } else {
                format!("chart/{path}")
            };
            chart.write(&path, &text)?;
        }
        Ok(chart)
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.folder.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(fs::write(path, text)?)
    }

    /// The folder of the chart.
    pub fn path(&self) -> String {
        self.folder.path().join("chart").to_string_lossy().into_owned()
    }

    /// The file with the values of the second revision, if the chart has one.
    pub fn upgrade(&self) -> Option<String> {
        let path = self.folder.path().join(UPGRADE);
        path.is_file().then(|| path.to_string_lossy().into_owned())
    }
}

fn folder() -> PathBuf {
    image::root().join("e2e/charts/releases")
}

/// The text before the first file, and the files.
fn files(text: &str) -> (String, Vec<(&str, String)>) {
    let mut purpose = String::new();
    let mut files: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        let path = line.strip_prefix("-- ").and_then(|line| line.strip_suffix(" --"));
        match (path, files.last_mut()) {
            (Some(path), _) => files.push((path, String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {
                purpose.push_str(line);
                purpose.push(' ');
            }
        }
    }
    (purpose, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_apart_into_files() {
        let (purpose, files) = files("Why.\n-- values.yaml --\na: 1\n-- templates/a.yaml --\n---\nkind: A\n");
        assert_eq!(purpose.trim(), "Why.");
        assert_eq!(
            files,
            [
                ("values.yaml", "a: 1\n".to_owned()),
                ("templates/a.yaml", "---\nkind: A\n".to_owned())
            ]
        );
    }
}
