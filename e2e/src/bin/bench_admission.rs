//! Many writes that core-provider's webhook validates: `make bench-admission`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

/// Five hundred writes a second, as dry runs, each validated by core-provider's webhook.
#[derive(Debug, Parser)]
struct Args {
    /// How long.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
}

fn main() -> Result<ExitCode> {
    let load = e2e::trials::admission::load::run(Duration::from_secs(Args::parse().minutes * 60))?;
    println!("{load}");
    Ok(if load.is_right() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
