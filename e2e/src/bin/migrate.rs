//! `make migrate`: a cluster that runs Krateo's real programs goes over, back, and over again.
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::migration;

/// Goes over from Krateo's real programs.
#[derive(Debug, Parser)]
struct Args {
    /// Krateo's programs, built, and its chart: core-provider, composition-dynamic-controller, chart-inspector, chart.
    folder: PathBuf,
}

fn main() -> Result<ExitCode> {
    let outcome = migration::run(&Args::parse().folder)?;
    println!("{outcome}");
    Ok(if outcome.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
