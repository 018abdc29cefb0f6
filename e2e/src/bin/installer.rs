//! The umbrella on a cluster of its own: `make installer`, `make installer-removals` and `make installer-kills`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use e2e::trials::installer::run::{self, Course};
use e2e::trials::installer::{Profile, kills, removal};

/// The platform with trial components on a cluster of its own.
#[derive(Debug, Parser)]
struct Args {
    /// Five components instead of eighteen.
    #[arg(long, global = true)]
    small: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Install and remove it, and check the order in which components come up and go, and what is left.
    Rounds {
        /// How often.
        #[arg(long, default_value_t = 1)]
        rounds: usize,
        /// How long to count requests while nothing changes, in seconds.
        #[arg(long, default_value_t = 60)]
        idle: u64,
        /// Change features, exposure and versions in the first round.
        #[arg(long)]
        changes: bool,
    },
    /// Remove it with obstacles.
    Removals,
    /// Kill core-provider and the Installer's controller while five components are installed and removed.
    Kills {
        /// At every Nth write.
        #[arg(long, default_value_t = 5)]
        step: usize,
        /// Skip writes before this one.
        #[arg(long, default_value_t = 1)]
        from: usize,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let profile = if args.small {
        Profile::small()
    } else {
        Profile::platform()
    };
    let outcome = match args.what {
        What::Rounds {
            rounds,
            idle,
            changes,
        } => run::run(&Course {
            profile,
            rounds,
            idle: Duration::from_secs(idle),
            changes,
        })?,
        What::Removals => removal::run(&profile)?,
        What::Kills { step, from } => {
            let outcome = kills::run(step, from)?;
            println!("{outcome}");
            return Ok(ended(
                outcome.kills == outcome.converged && outcome.faults.is_empty(),
            ));
        }
    };
    println!("{outcome}");
    Ok(ended(outcome.is_good()))
}

fn ended(well: bool) -> ExitCode {
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
