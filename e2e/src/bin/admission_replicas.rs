//! Two replicas validating writes: `make admission-replicas`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let outcome = e2e::trials::admission::replicas::run()?;
    for event in &outcome.events {
        println!(
            "{}: {}; {} calls of the webhook failed",
            event.what, event.counts, event.failed_calls
        );
    }
    for broken in &outcome.broken {
        println!("without replicas: {broken}");
    }
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
