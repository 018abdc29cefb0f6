//! `kco package`: the archives of `helm package` (Helm's `pkg/cmd/package.go`).

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use charts::source::package::{self, Options};
use clap::Args;

use crate::{args, dependency, report};

/// The flags of `helm package`.
#[derive(Debug, Args)]
pub(crate) struct Package {
    /// Folders of charts.
    #[arg(value_name = "CHART_PATH")]
    charts: Vec<PathBuf>,
    /// The chart's version, in place of that of Chart.yaml.
    #[arg(long)]
    version: Option<String>,
    /// The application's version, in place of that of Chart.yaml.
    #[arg(long)]
    app_version: Option<String>,
    /// The folder to write to.
    #[arg(short, long, default_value = ".")]
    destination: PathBuf,
    /// Fetch the charts that the chart needs first, as `kco dependency update` does.
    #[arg(short = 'u', long)]
    dependency_update: bool,
    /// Not supported: sign the archive's provenance with gpg.
    #[arg(long, hide = true)]
    sign: bool,
    #[command(flatten)]
    access: args::Access,
}

/// Packages charts.
pub(crate) fn run(args: &Package) -> Result<()> {
    if args.charts.is_empty() {
        bail!("need at least one argument, the path to the chart");
    }
    if args.sign {
        bail!("--sign is not supported: package without it, then sign as docs/charts.md says");
    }
    let options = Options {
        version: args.version.clone().filter(|version| !version.is_empty()),
        app_version: args.app_version.clone().filter(|version| !version.is_empty()),
        time: source_date_epoch()?,
    };
    for chart in &args.charts {
        fs::metadata(chart).with_context(|| format!("stat {}", chart.display()))?;
        if args.dependency_update {
            dependency::update(chart, &args.access)?;
        }
        let package = package::package(chart, &options)?;
        let folder = if args.destination.as_os_str() == "." {
            std::env::current_dir().context("the current folder is gone")?
        } else {
            args.destination.clone()
        };
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let file = folder.join(&package.file_name);
        fs::write(&file, &package.bytes)
            .with_context(|| format!("failed to save: could not write {}", file.display()))?;
        report::out(&format!(
            "Successfully packaged chart and saved it to: {}\n",
            file.display()
        ))?;
    }
    Ok(())
}

/// The timestamp of all files, for reproducible archives.
pub(crate) fn source_date_epoch() -> Result<Option<u64>> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) if !text.is_empty() => {
            let seconds = text.parse().context("invalid SOURCE_DATE_EPOCH")?;
            Ok(Some(seconds))
        }
        _ => Ok(None),
    }
}
