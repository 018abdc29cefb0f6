//! An API server in trouble: `make api-faults`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// An API server that fails, answers with conflicts, loses resource versions, and ends watches, while users keep
/// working.
#[derive(Debug, Parser)]
struct Args {
    /// How many compositions are created, and as many changed, during each kind of trouble.
    #[arg(long, default_value_t = 10)]
    compositions: usize,
}

fn main() -> Result<ExitCode> {
    let outcome = e2e::trials::api_faults::run(Args::parse().compositions)?;
    println!("{outcome}");
    Ok(if outcome.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
