//! Takes charts from clones of their repositories, at a tag.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::ChartFolder;

/// Clones of the repositories that have the charts, bare or not.
pub(super) struct Clones(Vec<PathBuf>);

/// Where a chart is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChartSource {
    name: &'static str,
    version: String,
    /// The tag of its release.
    tag: String,
    /// The folder that it has in its repository.
    folder: &'static str,
    /// The charts that it depends upon.
    needs: Vec<ChartSource>,
}

/// fireworks-app, whose tags are its versions. Its portal widgets are a chart of their own; each of these versions uses
/// the version of that chart with the same last digits.
pub(super) fn fireworks(patch: &str) -> ChartSource {
    let portal = format!("0.2.{patch}");
    ChartSource {
        name: "fireworks-app",
        version: format!("1.1.{patch}"),
        tag: format!("1.1.{patch}"),
        folder: "chart",
        needs: vec![ChartSource {
            name: "composition-portal-basic",
            tag: portal.clone(),
            version: portal,
            folder: "chart",
            needs: Vec::new(),
        }],
    }
}

/// bitnami's postgresql, with the library in its `Chart.lock`.
pub(super) fn postgresql() -> ChartSource {
    ChartSource {
        name: "postgresql",
        version: "12.8.3".to_owned(),
        tag: "postgresql/12.8.3".to_owned(),
        folder: "bitnami/postgresql",
        needs: vec![ChartSource {
            name: "common",
            version: "2.8.0".to_owned(),
            tag: "common/2.8.0".to_owned(),
            folder: "bitnami/common",
            needs: Vec::new(),
        }],
    }
}

impl Clones {
    pub(super) fn new(folders: Vec<PathBuf>) -> Self {
        Self(folders)
    }

    /// Looks for all charts before anything is started.
    ///
    /// # Errors
    /// Names the first one that is missing.
    pub(super) fn check(&self) -> Result<()> {
        for chart in ["5", "6", "7"].map(fireworks).iter().chain([&postgresql()]) {
            self.find(chart)?;
            for needed in &chart.needs {
                self.find(needed)?;
            }
        }
        Ok(())
    }

    /// The chart with its dependencies, ready to be packaged.
    ///
    /// # Errors
    /// When no clone has it.
    pub(super) fn chart(&self, source: &ChartSource) -> Result<ChartFolder> {
        self.chart_as(source, &source.version)
    }

    /// The same under another version.
    ///
    /// # Errors
    /// As [`Clones::chart`].
    pub(super) fn chart_as(&self, source: &ChartSource, version: &str) -> Result<ChartFolder> {
        let folder = tempfile::tempdir()?;
        self.lay_out(source, version, folder.path())?;
        for needed in &source.needs {
            let into = folder.path().join("charts").join(needed.name);
            fs::create_dir_all(&into)?;
            self.lay_out(needed, &needed.version, &into)?;
        }
        ChartFolder::copy_of(folder.path(), source.name, version)
    }

    /// Its release replaces a placeholder by the version.
    fn lay_out(&self, source: &ChartSource, version: &str, into: &Path) -> Result<()> {
        let clone = self.find(source)?;
        let archive = git(clone, &["archive", "--format=tar", &tree(source)])?;
        tar::Archive::new(Cursor::new(archive)).unpack(into)?;
        let file = into.join("Chart.yaml");
        let text = fs::read_to_string(&file)?;
        Ok(fs::write(file, text.replace("CHART_VERSION", version))?)
    }

    fn find(&self, source: &ChartSource) -> Result<&Path> {
        let metadata = format!("{}/Chart.yaml", tree(source));
        let named = format!("name: {}", source.name);
        for clone in &self.0 {
            // A clone without the tag is not the right one.
            let Ok(text) = git(clone, &["show", &metadata]) else {
                continue;
            };
            if String::from_utf8_lossy(&text).lines().any(|line| line == named) {
                return Ok(clone);
            }
        }
        bail!(
            "no folder has the chart {} at the tag {}: clone its repository with all tags, and name the folder in CHARTS",
            source.name,
            source.tag
        )
    }
}

fn tree(source: &ChartSource) -> String {
    format!("{}:{}", source.tag, source.folder)
}

fn git(clone: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    let output = command.arg("-C").arg(clone).args(arguments).output()?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}
