//! Long trials of releases: `make interop`, `live-parity`, `crash-matrix`, `drift`, `idle-releases`, `bench-releases`.
#![allow(clippy::print_stdout, reason = "tables and figures are what it is run for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use e2e::trials::releases::{Rig, TrialChart, crashes, drift, figures, idle, interop, live, verbs};

/// Long trials of releases, each on an API server of its own.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// kco and the real Helm 3 and 4 operating each other's releases.
    Interop {
        /// The charts; without any, all of them.
        charts: Vec<String>,
    },
    /// Public charts operated by Helm and by kco, and their objects compared.
    Live {
        /// How many charts.
        #[arg(long, default_value_t = 60)]
        charts: usize,
        /// Folders of collections of charts.
        #[arg(required = true)]
        folders: Vec<PathBuf>,
    },
    /// kco killed before and after every write, then run again.
    CrashMatrix {
        /// Only every Nth write.
        #[arg(long, default_value_t = 1)]
        step: usize,
        /// The actions that are killed; all of them if none is given.
        #[arg(value_enum)]
        actions: Vec<crashes::Action>,
    },
    /// Objects changed by others.
    Drift,
    /// Releases that are reconciled again and again.
    Idle {
        /// How many.
        #[arg(long, default_value_t = 100)]
        releases: usize,
        /// How often.
        #[arg(long, default_value_t = 20)]
        passes: usize,
    },
    /// Requests and time.
    Bench {
        /// How many releases.
        #[arg(long, default_value_t = 200)]
        releases: usize,
        /// The driver to measure: built with optimisations.
        #[arg(long)]
        driver: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    let command = Args::parse().command;
    let rig = match command {
        Command::Live { .. } => live::rig()?,
        _ => Rig::start()?,
    };
    let is_well = match command {
        Command::Interop { charts } => interop(&rig, &charts)?,
        Command::Live { charts, folders } => {
            let table = live::run(&rig, &folders, charts)?;
            println!("{table}");
            live::is_equal(&table)?
        }
        Command::CrashMatrix { step, actions } => {
            let all = crashes::ACTIONS;
            let actions = if actions.is_empty() { &all[..] } else { &actions };
            let outcome = crashes::run(&rig, actions, step)?;
            println!("{outcome}");
            outcome.kills == outcome.converged
        }
        Command::Drift => {
            let table = drift::run(&rig)?;
            println!("{table}");
            table.rows.iter().all(|row| row.fault.is_none())
        }
        Command::Idle { releases, passes } => {
            let idle = idle::run(&rig, releases, passes)?;
            for write in &idle.writes {
                println!("{write}");
            }
            println!("{idle}");
            idle.writes.is_empty()
        }
        Command::Bench { releases, driver } => bench(&rig, &driver, releases)?,
    };
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn interop(rig: &Rig, charts: &[String]) -> Result<bool> {
    let charts: Vec<TrialChart> = if charts.is_empty() {
        TrialChart::all()?
    } else {
        charts
            .iter()
            .map(|name| TrialChart::named(name))
            .collect::<Result<_>>()?
    };
    let table = interop::run(rig, &charts)?;
    println!("{table}");
    let verbs = verbs::run()?;
    println!("{verbs}");
    let rows = table.rows.iter().map(|row| &row.fault);
    let verbs = verbs.rows.iter().map(|row| &row.fault);
    Ok(rows.chain(verbs).all(Option::is_none))
}

fn bench(rig: &Rig, driver: &Path, releases: usize) -> Result<bool> {
    for requests in figures::requests(rig, driver)? {
        println!("{requests}");
    }
    let times = figures::times(rig, driver, releases)?;
    let is_same = figures::is_same_work(rig)?;
    print!("{times}");
    Ok(is_same)
}
