//! `local-cluster`: a real Kubernetes on this machine, from the command line.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use local_cluster::{packages, parts};

/// A real Kubernetes on this machine: up, down, and everything between.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build every part that is missing from the cache; print versions and paths.
    Parts,
    /// Print the path of a part (helm, helm3, kubectl, …), built first when it is missing.
    Which { part: String },
    /// Say which Debian packages are missing.
    Packages {
        /// Install them; needs root.
        #[arg(long)]
        install: bool,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "local-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Parts => {
            for (part, path) in parts::Cache::of_user()?.all()? {
                writeln!(out, "{:<24} {:<10} {}", part.name, part.version(), path.display())?;
            }
        }
        Command::Which { part } => {
            let part = parts::Part::named(&part).with_context(|| {
                let names: Vec<&str> = parts::ALL.iter().map(|part| part.name).collect();
                format!("no part is called {part}; there are {}", names.join(", "))
            })?;
            writeln!(out, "{}", parts::Cache::of_user()?.path(part)?.display())?;
        }
        Command::Packages { install: true } => packages::install()?,
        Command::Packages { install: false } => packages::require()?,
    }
    Ok(())
}
