//! A program killed at every write of an object's life: `make definition-kills`, `make composition-kills` and `make
//! multicluster-kills`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use e2e::trials::multicluster::kills::{self as multicluster_kills, Kind};
use e2e::trials::{composition_kills, definition_kills};

/// A program killed before and after every write of create, upgrade and delete, then started again.
#[derive(Debug, Parser)]
struct Args {
    /// Whose life it is.
    of: Life,
    /// Only every Nth write.
    #[arg(long, default_value_t = 1)]
    step: usize,
    /// Begin at this write, for a tenant and a deployment.
    #[arg(long, default_value_t = 1)]
    from: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Life {
    /// Of a definition: core-provider is killed.
    Definition,
    /// Of a composition: its controller is killed.
    Composition,
    /// Of a tenant: the multicluster operator is killed.
    Tenant,
    /// Of a deployment: the multicluster operator is killed.
    Deployment,
}

fn main() -> Result<ExitCode> {
    let Args { of, step, from } = Args::parse();
    let outcome = match of {
        Life::Definition => definition_kills::run(step)?,
        Life::Composition => composition_kills::run(step)?,
        Life::Tenant => multicluster_kills::run(Kind::Tenant, from, step)?,
        Life::Deployment => multicluster_kills::run(Kind::Deployment, from, step)?,
    };
    println!("{outcome}");
    Ok(
        if outcome.kills == outcome.converged && outcome.faults.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}
