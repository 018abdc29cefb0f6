//! `kco dependency build`: the charts that a chart needs, fetched into its `charts/`.

use std::path::PathBuf;

use anyhow::Result;
use charts::source::{Limits, dependencies};
use clap::{Args, Subcommand};

use crate::{args, fetch, report};

/// What is done with a chart's dependencies.
#[derive(Debug, Args)]
pub(crate) struct Dependency {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch them into charts/, in the versions of Chart.lock; without one it is written.
    Build(Build),
}

#[derive(Debug, Args)]
struct Build {
    /// The chart's folder.
    #[arg(default_value = ".")]
    chart: PathBuf,
    #[command(flatten)]
    access: args::Access,
}

/// Fetches the dependencies of a chart.
pub(crate) fn run(args: &Dependency) -> Result<()> {
    let Command::Build(Build { chart, access }) = &args.command;
    let options = dependencies::Options {
        access: fetch::access(access)?,
        plain_http: access.plain_http,
        insecure_skip_verify: access.insecure_skip_tls_verify,
        limits: Limits::default(),
    };
    let built = fetch::wait_for(dependencies::build(chart, &options))??;
    for dependency in built.iter().filter(|built| !built.repository.is_empty()) {
        let (name, repository) = (&dependency.name, &dependency.repository);
        report::out(&format!(
            "Downloaded {name} {} from {repository}\n",
            dependency.version
        ))?;
    }
    Ok(())
}
