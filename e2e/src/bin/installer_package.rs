//! Packages `charts/installer`: `make installer-package VERSION=…`.
#![expect(clippy::print_stdout, reason = "the archive's path is the result")]

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use e2e::trials::installer::{Package, Schema, Subcharts};

/// Sets versions, vendors subcharts, packages and lints the chart of the installer.
#[derive(Debug, Parser)]
struct Args {
    /// The version of the chart, of our subchart and of the programs in both.
    #[arg(long)]
    version: String,
    /// A folder with each third-party subchart under its name; without it they are fetched.
    #[arg(long, value_name = "FOLDER", conflicts_with = "without_subcharts")]
    subcharts: Option<PathBuf>,
    /// Leave third-party subcharts out.
    #[arg(long)]
    without_subcharts: bool,
    /// The kco that adds the values schemas of components' charts to the schema; without it any values are accepted for
    /// components.
    #[arg(long, value_name = "PROGRAM")]
    schema_by: Option<PathBuf>,
    /// Values that say which charts components have, and where these are.
    #[arg(long, value_name = "FILE", requires = "schema_by")]
    values: Option<PathBuf>,
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
    let schema = args.schema_by.as_deref().map(|kco| Schema {
        kco,
        values: args.values.as_deref(),
    });
    let archive = package.make(&e2e::site::helm()?, schema.as_ref(), &args.destination)?;
    println!("{}", archive.display());
    Ok(())
}
