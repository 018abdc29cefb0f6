//! Packages `charts/installer`: `make installer-package VERSION=…`.
#![expect(clippy::print_stdout, reason = "the archive's path is the result")]

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use e2e::installer::{Package, Subcharts};

/// Sets versions, vendors subcharts, packages and lints the chart of the installer.
#[derive(Debug, Parser)]
struct Args {
    /// The version of the chart, of our subchart and of the programs in both.
    #[arg(long)]
    version: String,
    /// A folder that has each foreign subchart under its name; without one they are fetched.
    #[arg(long, value_name = "FOLDER", conflicts_with = "without_subcharts")]
    subcharts: Option<PathBuf>,
    /// Leave foreign subcharts out.
    #[arg(long)]
    without_subcharts: bool,
    /// The folder to write the archive to.
    #[arg(long, default_value = "target/installer")]
    destination: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let subcharts = match &args.subcharts {
        Some(folder) => Subcharts::From(folder),
        None if args.without_subcharts => Subcharts::LeaveOut,
        None => Subcharts::Fetch,
    };
    let package = Package {
        version: &args.version,
        subcharts,
    };
    let archive = package.make(&e2e::site::helm()?, &args.destination)?;
    println!("{}", archive.display());
    Ok(())
}
