//! The charts below folders that have a schema.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use composition::schema;
use crdgen::{BadDefaults, Names, ServedVersion, Structural};
use helm::engine::Engine;
use serde_json::Value;

/// A chart with a schema.
pub(crate) struct Subject {
    pub(crate) folder: PathBuf,
    pub(crate) engine: Engine,
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    /// The chart's own values.
    pub(crate) defaults: Value,
}

impl Subject {
    /// `None` for a chart without a schema, or with a name that no type can have.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let chart = charts::source::folder::load(folder).ok()?;
        let metadata = chart.metadata();
        let (names, version) = (
            Names::of_chart(&metadata.name),
            ServedVersion::of_chart(&metadata.version),
        );
        let (true, Ok(names), Ok(version)) = (chart.schema().is_some(), names, version) else {
            return None;
        };
        let defaults = Value::Object(chart.values());
        Some(Self {
            folder: folder.to_owned(),
            engine: Engine::new(chart),
            names,
            version,
            defaults,
        })
    }

    /// Under a name that no other chart has.
    pub(crate) fn numbered(mut self, number: usize) -> Self {
        let Names {
            kind,
            list_kind,
            plural,
            singular,
        } = &mut self.names;
        *kind = format!("{kind}{number}");
        *list_kind = format!("{kind}List");
        *plural = format!("{plural}{number}");
        *singular = format!("{singular}{number}");
        self
    }

    /// The schema of its type. Bad defaults are left out, as with the annotation.
    pub(crate) fn structural(&self) -> Result<Structural> {
        schema::structural(&self.engine, BadDefaults::Drop)?.context("no schema")
    }
}

/// The folders of charts below folders, subcharts aside.
pub(crate) fn below(folders: &[PathBuf], only: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        collect(folder, &mut found)?;
    }
    found.retain(|folder| folder.to_string_lossy().contains(only));
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join("Chart.yaml").is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, found)?;
        }
    }
    Ok(())
}
