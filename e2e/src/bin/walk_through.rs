//! `make walk-through`: the walk-throughs of Krateo's documentation, command by command, on a real cluster.
#![allow(clippy::print_stdout, reason = "the report is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::trials::walk_through;

/// Runs the walk-throughs of Krateo's documentation.
#[derive(Debug, Parser)]
struct Args {
    /// Clones, with their tags, of the repositories of the charts: fireworks-app, composition-portal-basic, bitnami's.
    #[arg(required = true)]
    clones: Vec<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let report = walk_through::run(Args::parse().clones)?;
    println!("{report}");
    Ok(if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
