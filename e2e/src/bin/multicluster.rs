//! `make multicluster` and `make rotations`: how clusters affect each other, and what a rotation costs.
#![allow(clippy::print_stdout, reason = "figures are what it is run for")]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use e2e::trials::multicluster::{latency, names, rotations};

/// Measures the multicluster operator on control planes of its own.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Passes on live clusters, alone and beside one whose packets are lost.
    Latency {
        /// Tenants on each cluster.
        #[arg(long, default_value_t = 50)]
        tenants: usize,
    },
    /// Few API servers behind many kubeconfigs, while nothing changes.
    Names {
        /// How long requests are counted.
        #[arg(long, default_value_t = 3)]
        minutes: u32,
    },
    /// A kubeconfig rotated while its tenants are changed.
    Rotations {
        /// How often.
        #[arg(long, default_value_t = 20)]
        rotations: usize,
        /// Tenants that are changed.
        #[arg(long, default_value_t = 5)]
        tenants: usize,
    },
}

fn main() -> Result<ExitCode> {
    match Args::parse().what {
        What::Latency { tenants } => println!("{}", latency::run(tenants)?),
        What::Names { minutes } => println!("{}", names::run(minutes)?),
        What::Rotations { rotations, tenants } => {
            let figures = rotations::run(rotations, tenants)?;
            println!("{figures}");
            if !figures.is_good() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
