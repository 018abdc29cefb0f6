//! The platform upgraded and rolled back under writes, or upgraded from an earlier commit: `make platform-upgrade`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::trials::{admission::upgrade, compositions::former};

/// The platform upgraded, on a cluster of its own.
#[derive(Debug, Parser)]
struct Args {
    /// The checkout of an earlier commit, of which the installation is to be.
    #[arg(long, requires = "programs")]
    from: Option<PathBuf>,
    /// The folder with the programs of that commit.
    #[arg(long)]
    programs: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let Args { from, programs } = Args::parse();
    let is_good = if let Some((checkout, programs)) = from.zip(programs) {
        let outcome = former::run(&checkout, &programs)?;
        println!("{outcome}");
        outcome.is_good()
    } else {
        let outcome = upgrade::run()?;
        println!("{outcome}");
        outcome.is_good()
    };
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
