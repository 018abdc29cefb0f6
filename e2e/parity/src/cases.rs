//! Which charts are rendered, and with which values.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::shown;

/// One chart with one set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// The chart's path and the values file's name, for people.
    pub(crate) name: String,
    chart: PathBuf,
    values: Option<PathBuf>,
}

impl Case {
    /// The arguments that both programs get.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "template".to_owned(),
            "parity".to_owned(),
            shown(&self.chart),
            "--include-crds".to_owned(),
        ];
        if let Some(values) = &self.values {
            arguments.extend(["--values".to_owned(), shown(values)]);
        }
        arguments
    }
}

/// The cases of all charts below a folder, unpacked and packed ones, subcharts aside.
pub(crate) fn below(folder: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    collect(folder, &mut cases)?;
    Ok(cases)
}

fn collect(folder: &Path, cases: &mut Vec<Case>) -> Result<()> {
    if folder.join("Chart.yaml").is_file() {
        return add(folder, cases);
    }
    for entry in entries(folder)? {
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if entry.is_dir() && !entry.is_symlink() && !is_hidden {
            collect(&entry, cases)?;
        } else if entry.extension().is_some_and(|extension| extension == "tgz") {
            cases.push(Case {
                name: shown(&entry),
                chart: entry,
                values: None,
            });
        }
    }
    Ok(())
}

fn add(chart: &Path, cases: &mut Vec<Case>) -> Result<()> {
    cases.push(Case {
        name: shown(chart),
        chart: chart.to_owned(),
        values: None,
    });
    let folder = chart.join("ci");
    if !folder.is_dir() {
        return Ok(());
    }
    for values in entries(&folder)? {
        let name = values
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.ends_with("values.yaml") || name.ends_with("values.yml") {
            cases.push(Case {
                name: format!("{} with ci/{name}", shown(chart)),
                chart: chart.to_owned(),
                values: Some(values),
            });
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut entries = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}
