//! A program killed at every write of a life: `make definition-kills` and `make composition-kills`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use e2e::{composition_kills, definition_kills};

/// A program killed before and after every write of create, upgrade and delete, then started again.
#[derive(Debug, Parser)]
struct Args {
    /// Whose life it is.
    of: Life,
    /// Only every so manieth write.
    #[arg(long, default_value_t = 1)]
    step: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Life {
    /// Of a definition: core-provider is killed.
    Definition,
    /// Of a composition: its controller is killed.
    Composition,
}

fn main() -> Result<ExitCode> {
    let Args { of, step } = Args::parse();
    let outcome = match of {
        Life::Definition => definition_kills::run(step)?,
        Life::Composition => composition_kills::run(step)?,
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
