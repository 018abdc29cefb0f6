//! A controller killed at every write of a composition's life: `make composition-kills`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// A composition-dynamic-controller killed before and after every write of create, upgrade and delete, then started again.
#[derive(Debug, Parser)]
struct Args {
    /// Only every so manieth write.
    #[arg(long, default_value_t = 1)]
    step: usize,
}

fn main() -> Result<ExitCode> {
    let outcome = e2e::composition_kills::run(Args::parse().step)?;
    println!("{outcome}");
    Ok(
        if outcome.kills == outcome.converged && outcome.faults.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}
