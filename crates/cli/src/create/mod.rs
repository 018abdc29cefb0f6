//! `kco create`: a new chart (Helm's `pkg/cmd/create.go` and `pkg/chart/v2/util/create.go`).
//!
//! The files in `starter` are those of Helm 4.3.1, by the Helm authors, under the Apache License 2.0.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use charts::source::{folder, package};
use clap::Args;
use serde_json::json;

use crate::{environment, report};

/// The placeholder for the chart's name in the files.
const NAME: &str = "<CHARTNAME>";

/// The files, in Helm's order.
const FILES: [(&str, &str); 12] = [
    ("Chart.yaml", include_str!("starter/Chart.yaml")),
    ("values.yaml", include_str!("starter/values.yaml")),
    (".helmignore", include_str!("starter/helmignore")),
    (
        "templates/ingress.yaml",
        include_str!("starter/templates/ingress.yaml"),
    ),
    (
        "templates/httproute.yaml",
        include_str!("starter/templates/httproute.yaml"),
    ),
    (
        "templates/deployment.yaml",
        include_str!("starter/templates/deployment.yaml"),
    ),
    (
        "templates/service.yaml",
        include_str!("starter/templates/service.yaml"),
    ),
    (
        "templates/serviceaccount.yaml",
        include_str!("starter/templates/serviceaccount.yaml"),
    ),
    ("templates/hpa.yaml", include_str!("starter/templates/hpa.yaml")),
    ("templates/NOTES.txt", include_str!("starter/templates/NOTES.txt")),
    (
        "templates/_helpers.tpl",
        include_str!("starter/templates/_helpers.tpl"),
    ),
    (
        "templates/tests/test-connection.yaml",
        include_str!("starter/templates/tests/test-connection.yaml"),
    ),
];

/// The flags of `helm create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The chart's folder. Its last part is the chart's name.
    name: PathBuf,
    /// Another chart to begin with: its folder, or its name in the folder of Helm's starters.
    #[arg(short = 'p', long)]
    starter: Option<PathBuf>,
}

/// Creates a chart.
pub(crate) fn run(args: &Create) -> Result<()> {
    report::out(&format!("Creating {}\n", args.name.display()))?;
    let name = args.name.file_name().unwrap_or_default().to_string_lossy();
    ensure!(
        (1..=250).contains(&name.len()),
        "chart name must be between 1 and 250 characters"
    );
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    ensure!(
        name.chars().all(is_allowed),
        "chart name must match the regular expression \"^[a-zA-Z0-9._-]+$\""
    );
    let parent = args.name.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = std::path::absolute(parent.unwrap_or(Path::new(".")))?;
    let folder = parent.join(&*name);
    ensure!(
        folder.is_dir() || !folder.exists(),
        "file {} already exists and is not a directory",
        folder.display()
    );
    if let Some(starter) = &args.starter {
        return from_starter(&folder, &name, starter);
    }
    fs::metadata(&parent).with_context(|| format!("stat {}", parent.display()))?;
    ensure!(parent.is_dir(), "no such directory {}", parent.display());
    usual(&folder, &name)
}

/// The chart that Helm creates by default.
fn usual(folder: &Path, name: &str) -> Result<()> {
    for (path, content) in FILES {
        let path = folder.join(path);
        if path.exists() {
            let shown = path.display().to_string();
            report::out(&format!("WARNING: File {shown:?} already exists. Overwriting.\n"))?;
        }
        write(&path, content.replace(NAME, name).as_bytes())?;
    }
    let charts = folder.join("charts");
    fs::create_dir_all(&charts).with_context(|| format!("could not create {}", charts.display()))
}

/// Copies another chart under this name.
fn from_starter(folder: &Path, name: &str, starter: &Path) -> Result<()> {
    // Joining an absolute path yields that path.
    let starter = environment::path("HELM_DATA_HOME").join("starters").join(starter);
    let could_not = || format!("could not load {}", starter.display());
    let files = folder::files(&starter).with_context(could_not)?;
    folder::load(&starter).with_context(could_not)?;
    let definition = json!({
        "apiVersion": "v2",
        "appVersion": "0.1.0",
        "description": "A Helm chart for Kubernetes",
        "name": name,
        "type": "application",
        "version": "0.1.0",
    });
    let definition = helm::yaml::to_string(&definition).context("could not write YAML")?;
    write(
        &folder.join("Chart.yaml"),
        format!("{}\n", definition.trim_end_matches('\n')).as_bytes(),
    )?;
    for file in files.iter().filter(|file| file.name != "Chart.yaml") {
        if let Some(below) = file.name.strip_prefix("charts/")
            && below.contains('/')
        {
            continue;
        }
        let is_filled = file.name.starts_with("templates/") || file.name == "values.yaml";
        match std::str::from_utf8(&file.data) {
            Ok(text) if is_filled => write(&folder.join(&file.name), text.replace(NAME, name).as_bytes())?,
            _ => write(&folder.join(&file.name), &file.data)?,
        }
    }
    let charts = starter.join("charts");
    for entry in fs::read_dir(&charts).into_iter().flatten().flatten() {
        if entry.path().join("Chart.yaml").is_file() {
            let packed = package::package(&entry.path(), &package::Options::default())
                .with_context(|| format!("saving {}", entry.path().display()))?;
            write(&folder.join("charts").join(packed.file_name), &packed.bytes)?;
        }
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, content));
    written.with_context(|| format!("could not write {}", path.display()))
}
