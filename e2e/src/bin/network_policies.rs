//! The chart's `NetworkPolicies`, enforced: `make network-policies`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use e2e::trials::network_policies::{self, Attempt};

fn main() -> Result<ExitCode> {
    let outcome = network_policies::run()?;
    let with = [
        ("with policies", &outcome.with),
        (
            "with another machine as networkPolicy.apiServers",
            &outcome.misnamed,
        ),
        ("with cdc.namespace: definition", &outcome.moved),
    ];
    for (when, attempts) in with {
        for attempt in attempts {
            println!("{when}: {attempt}");
        }
    }
    let is_open = |attempt: &&Attempt| attempt.is_as_expected();
    for attempt in outcome.without.iter().filter(|attempt| !is_open(attempt)) {
        println!("without policies: {attempt}");
    }
    println!(
        "without policies: {} of {} connections are open",
        outcome.without.iter().filter(is_open).count(),
        outcome.without.len(),
    );
    println!("{outcome}");
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
