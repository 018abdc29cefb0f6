//! What Helm says of values: `helm template --values`, on a copy of the chart without templates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::charts::Subject;
use crate::shown;

/// A chart as Helm gets it.
pub(crate) struct HelmSide {
    chart: TempDir,
    helm: PathBuf,
}

/// Helm's words for values that do not fit.
const REFUSED: &str = "values don't meet the specifications of the schema(s)";

impl HelmSide {
    pub(crate) fn of(subject: &Subject, helm: &Path) -> Result<Self> {
        let chart = tempfile::tempdir()?;
        copy(&subject.folder, chart.path())?;
        Ok(Self {
            chart,
            helm: helm.to_owned(),
        })
    }

    /// Why Helm cannot use the chart at all, whatever the values.
    pub(crate) fn fault(&self) -> Result<Option<String>> {
        let refused = self.run(&Value::Object(serde_json::Map::new()))?.err();
        Ok(refused.filter(|said| !said.contains(REFUSED)))
    }

    /// Helm's answer, and its words when it refuses.
    pub(crate) fn judge(&self, values: &Value) -> Result<std::result::Result<(), String>> {
        Ok(self.run(values)?.map_err(|said| {
            // Values that are no table where a dependency's are fail before, while they are merged.
            let told = said.split_once(REFUSED).map_or(said.as_str(), |(_, told)| told);
            told.split_whitespace().collect::<Vec<_>>().join(" ")
        }))
    }

    /// Runs Helm; what it said when it failed.
    fn run(&self, values: &Value) -> Result<std::result::Result<(), String>> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), values.to_string())?;
        let output = Command::new(&self.helm)
            .args([
                "template",
                "parity",
                &shown(self.chart.path()),
                "--values",
                &shown(file.path()),
            ])
            .output()
            .context("could not run helm")?;
        Ok(if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        })
    }
}

/// Copies a chart, leaving templates out, which take time and may fail by themselves.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let is_template = matches!(entry.file_name().to_str(), Some("templates" | "ci" | "crds"));
        if path.is_dir() && !is_template {
            fs::create_dir_all(&target)?;
            copy(&path, &target)?;
        } else if path.is_file() {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
