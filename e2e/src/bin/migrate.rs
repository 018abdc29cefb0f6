//! `make migrate`: migrates a cluster from Krateo's real programs, back, and again.
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::trials::migration::{self, Leg};

/// Migrates from Krateo's real programs.
#[derive(Debug, Parser)]
struct Args {
    /// Folder with Krateo's programs, built, and their chart: core-provider, composition-dynamic-controller,
    /// chart-inspector, chart.
    folder: PathBuf,
    /// Only these legs, in this order.
    #[arg(long, value_delimiter = ',', default_values_t = [Leg::Run, Leg::Undo, Leg::Kills, Leg::After], value_enum)]
    legs: Vec<Leg>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let outcome = migration::run(&args.folder, &args.legs)?;
    println!("{outcome}");
    Ok(if outcome.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
