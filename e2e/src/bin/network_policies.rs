//! The chart's `NetworkPolicies`, enforced: `make network-policies`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let outcome = e2e::network_policies::run()?;
    for attempt in &outcome.with {
        println!("with policies: {attempt}");
    }
    for attempt in &outcome.misnamed {
        println!("with another address in networkPolicy.apiServers: {attempt}");
    }
    let (open, all) = (&outcome.without, outcome.without.len());
    for attempt in open.iter().filter(|attempt| !attempt.is_as_expected()) {
        println!("without policies: {attempt}");
    }
    println!(
        "without policies {} of {all} connections are open",
        open.iter().filter(|attempt| attempt.is_as_expected()).count()
    );
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
