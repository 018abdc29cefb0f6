//! Replicas of a controller killed under load: `make composition-replicas`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Two replicas of a composition-dynamic-controller under load; one of them is killed every 20 seconds, the last one is
/// frozen for longer than its Leases last.
#[derive(Debug, Parser)]
struct Args {
    /// How often.
    #[arg(long, default_value_t = 9)]
    kills: usize,
}

fn main() -> Result<ExitCode> {
    let outcome = e2e::trials::composition_replicas::run(Args::parse().kills)?;
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
