//! The platform upgraded and rolled back under writes: `make platform-upgrade`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let outcome = e2e::trials::admission::upgrade::run()?;
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
