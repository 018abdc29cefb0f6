//! The umbrella on a cluster of its own: `make installer`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use e2e::installer::{Profile, run};

/// Installs the platform with trial components, checks the order in which they come up and go, and what is left.
#[derive(Debug, Parser)]
struct Args {
    /// Five components in place of eighteen.
    #[arg(long)]
    small: bool,
    /// How often they are installed and removed.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// How long to listen to what is asked while nothing changes, in seconds.
    #[arg(long, default_value_t = 60)]
    idle: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let profile = if args.small {
        Profile::small()
    } else {
        Profile::platform()
    };
    let outcome = run::run(profile, args.rounds, Duration::from_secs(args.idle))?;
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
