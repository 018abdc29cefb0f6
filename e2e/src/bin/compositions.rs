//! `make namespaces`, `exactness`, `composition-drift`, `composition-idle`, `fairness`, `soak`, `large-compositions`:
//! compositions on an API server of their own. Each prints its result as the last line, and fails if it is not as
//! expected.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use e2e::trials::compositions::{Rig, drift, exactness, fairness, idle, large, namespaces, soak, take_over};

/// Trials of compositions.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Namespaces deleted with compositions in them.
    Namespaces {
        /// How many compositions in each.
        #[arg(long, default_value_t = 20)]
        compositions: usize,
    },
    /// Every rule of every role removed in turn.
    Exactness {
        /// Trial charts; all suitable ones if none is given.
        charts: Vec<String>,
    },
    /// Edits by others.
    Drift {
        /// How many.
        #[arg(long, default_value_t = 200)]
        edits: usize,
    },
    /// Records that the controller did not write.
    TakeOver,
    /// Compositions that use as much as they can, beside honest ones.
    Fairness {
        /// How many honest ones.
        #[arg(long, default_value_t = 50)]
        honest: usize,
        /// How many hostile ones of each kind.
        #[arg(long, default_value_t = 10)]
        hostile: usize,
    },
    /// Compositions of 1.4 MB.
    Large {
        /// How many.
        #[arg(long, default_value_t = 400)]
        compositions: usize,
    },
    /// Passes for a long time.
    Soak {
        /// How many compositions.
        #[arg(long, default_value_t = 100)]
        compositions: usize,
        /// How long.
        #[arg(long, default_value_t = 20)]
        minutes: u64,
    },
    /// Compositions that nobody touches.
    Idle {
        /// How many compositions.
        #[arg(long, default_value_t = 300)]
        compositions: usize,
        /// How long.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
    },
}

fn main() -> Result<ExitCode> {
    let command = Args::parse().command;
    let rig = Rig::start()?;
    let is_well = match run(&rig, command) {
        Ok(is_well) => is_well,
        Err(fault) => {
            let logs = rig.collect_logs()?;
            return Err(fault.context(format!("logs are in {}", logs.display())));
        }
    };
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run(rig: &Rig, command: Command) -> Result<bool> {
    Ok(match command {
        Command::Namespaces { compositions } => {
            let outcome = namespaces::run(rig, compositions)?;
            println!("{outcome}");
            outcome.left.is_empty()
        }
        Command::Exactness { charts } => {
            let named: Vec<&str> = charts.iter().map(String::as_str).collect();
            let charts = if named.is_empty() {
                &exactness::CHARTS[..]
            } else {
                &named
            };
            let table = exactness::run(rig, charts)?;
            println!("{table}");
            table.is_exact()
        }
        Command::Drift { edits } => {
            let times = drift::run(rig, edits)?;
            println!("{times}");
            times.faults.is_empty()
        }
        Command::Fairness { honest, hostile } => {
            let outcome = fairness::run(rig, honest, hostile)?;
            println!("{outcome}");
            outcome.is_well() && outcome.ratio() <= fairness::GOAL
        }
        Command::Large { compositions } => {
            let outcome = large::run(rig, compositions)?;
            println!("{outcome}");
            outcome.is_well()
        }
        Command::Soak {
            compositions,
            minutes,
        } => {
            let outcome = soak::run(rig, compositions, Duration::from_secs(minutes * 60))?;
            println!("{outcome}");
            outcome.is_flat()
        }
        Command::TakeOver => {
            let outcome = take_over::run(rig)?;
            println!("{outcome}");
            outcome.is_well()
        }
        Command::Idle {
            compositions,
            minutes,
        } => {
            let idle = idle::run(rig, compositions, Duration::from_secs(minutes * 60))?;
            for write in &idle.writes {
                println!("{write}");
            }
            println!("{idle}");
            idle.writes.is_empty()
        }
    })
}
