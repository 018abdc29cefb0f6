//! `kco dependency`: lists the dependencies of a chart, and fetches them into its `charts/` (Helm's
//! `pkg/action/dependency.go`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use charts::source::dependencies::{self, Built};
use charts::source::{Access, Limits, folder};
use clap::{Args, Subcommand};
use helm::chart::{self, Chart};
use helm::semver;

use crate::access::{access, access_by};
use crate::clock::source_date_epoch;
use crate::wait::wait_for;
use crate::{args, repo, report};

/// What is done with a chart's dependencies.
#[derive(Debug, Args)]
pub(crate) struct Dependency {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch them into charts/, in the versions of Chart.lock; without one it is written.
    Build(Fetch),
    /// List them, and what is in charts/ of each.
    #[command(visible_alias = "ls")]
    List(List),
    /// Fetch them into charts/ in the newest versions that fit, and write Chart.lock.
    #[command(visible_alias = "up")]
    Update(Fetch),
}

#[derive(Debug, Args)]
struct Fetch {
    /// The chart's folder.
    #[arg(default_value = ".")]
    chart: PathBuf,
    /// Accepted without effect: no lists of repositories are kept.
    #[arg(long)]
    skip_refresh: bool,
    #[command(flatten)]
    access: args::Access,
}

#[derive(Debug, Args)]
struct List {
    /// The chart: a folder or an archive.
    #[arg(default_value = ".")]
    chart: PathBuf,
    /// The most characters of a column.
    #[arg(long, default_value_t = 80)]
    max_col_width: usize,
}

/// Lists or fetches the dependencies of a chart.
pub(crate) fn run(args: &Dependency) -> Result<()> {
    match &args.command {
        Command::Build(Fetch { chart, access, .. }) => {
            let options = options(access)?;
            said(&wait_for(dependencies::build(chart, &options))??)
        }
        Command::Update(Fetch { chart, access, .. }) => {
            let options = options(access)?;
            said(&wait_for(dependencies::update(chart, &options))??)
        }
        Command::List(args) => list(args),
    }
}

/// Fetches the newest versions that fit, for one who asks for no signature.
pub(crate) fn update(chart: &Path, remote: &args::Remote) -> Result<Vec<Built>> {
    let options = options_by(access_by(remote)?, remote)?;
    Ok(wait_for(dependencies::update(chart, &options))??)
}

fn options(args: &args::Access) -> Result<dependencies::Options> {
    options_by(access(args)?, &args.remote)
}

fn options_by(access: Access, remote: &args::Remote) -> Result<dependencies::Options> {
    Ok(dependencies::Options {
        access,
        plain_http: remote.plain_http,
        insecure_skip_verify: remote.insecure_skip_tls_verify,
        limits: Limits::default(),
        time: source_date_epoch()?,
        repositories: repo::all()?,
    })
}

fn said(built: &[Built]) -> Result<()> {
    for dependency in built.iter().filter(|built| !built.repository.is_empty()) {
        let (name, repository) = (&dependency.name, &dependency.repository);
        report::out(&format!(
            "Downloaded {name} {} from {repository}\n",
            dependency.version
        ))?;
    }
    Ok(())
}

fn list(args: &List) -> Result<()> {
    let chart = match folder::load(&args.chart) {
        Err(folder::Error::Load { source, .. }) => return Err(source.into()),
        loaded => loaded?,
    };
    let charts = args.chart.join("charts");
    let Some(declared) = &chart.metadata().dependencies else {
        let charts = charts.display().to_string();
        let charts = charts.strip_prefix("./").unwrap_or(&charts);
        return report::out(&format!("WARNING: no dependencies at {charts}\n"));
    };
    let mut rows = vec![["NAME", "VERSION", "REPOSITORY", "STATUS"].map(str::to_owned)];
    for dependency in declared {
        rows.push([
            dependency.name.clone(),
            dependency.version.clone(),
            dependency.repository.clone(),
            status(&charts, dependency, &chart).to_owned(),
        ]);
    }
    report::out(&format!("{}\n\n", table(&rows, args.max_col_width)))?;
    for path in entries(&charts) {
        let is_archive = path.extension().is_some_and(|extension| extension == "tgz");
        if !path.is_dir() && !is_archive {
            continue;
        }
        let shown = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        match folder::load(&path) {
            Err(_) => report::out(&format!("WARNING: {shown:?} is not a chart.\n"))?,
            Ok(found) if declared.iter().all(|dependency| dependency.name != found.name()) => {
                report::out(&format!("WARNING: {shown:?} is not in Chart.yaml.\n"))?;
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The entries of a folder, sorted by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found
        .map(|entry| entry.path())
        .filter(|path| {
            !path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'))
        })
        .collect();
    paths.sort();
    paths
}

/// The state of a dependency in `charts/`, in Helm's words.
fn status(charts: &Path, dependency: &chart::Dependency, parent: &Chart) -> &'static str {
    let prefix = format!("{}-", dependency.name);
    let mut archives: Vec<(PathBuf, String)> = entries(charts)
        .into_iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let version = name.strip_prefix(&prefix)?.strip_suffix(".tgz")?.to_owned();
            Some((path, version))
        })
        .collect();
    if archives.len() > 1 {
        // The name of another chart may begin with this one's.
        archives.retain(|(_, version)| semver::Version::parse_strict(version).is_ok());
        if archives.len() > 1 {
            return "too many matches";
        }
    }
    if let Some((archive, _)) = archives.first() {
        return match folder::load(archive) {
            Err(_) => "corrupt",
            Ok(found) if found.name() != dependency.name => "misnamed",
            Ok(found) => fit(dependency, &found).unwrap_or("ok"),
        };
    }
    let found = parent
        .dependencies()
        .iter()
        .rfind(|chart| chart.name() == dependency.name);
    match found {
        None => "missing",
        Some(found) => fit(dependency, found).unwrap_or("unpacked"),
    }
}

/// Whether the version of an existing chart is wrong.
fn fit(dependency: &chart::Dependency, found: &Chart) -> Option<&'static str> {
    let version = &found.metadata().version;
    if *version == dependency.version {
        return None;
    }
    match semver::satisfies(&dependency.version, version) {
        Ok(true) => None,
        Ok(false) => Some("wrong version"),
        Err(_) => Some("invalid version"),
    }
}

/// Columns as wide as their widest cell, separated by tabs.
fn table(rows: &[[String; 4]], most: usize) -> String {
    let cut = |cell: &String| -> String {
        if cell.chars().count() <= most {
            return cell.clone();
        }
        let kept: String = cell.chars().take(most.saturating_sub(3)).collect();
        format!("{kept}...")
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cut).collect()).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..4).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("\t")
    });
    lines.collect::<Vec<_>>().join("\n")
}
