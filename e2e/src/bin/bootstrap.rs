//! Makes a cluster of three bare machines by the real kubeadm: `make bootstrap` and `make demo-bootstrap`.
#![allow(clippy::print_stdout, reason = "the outcome is what it is run for")]

use anyhow::Result;
use clap::{Parser, Subcommand};
use e2e::trials::bootstrap;

/// Makes a cluster of three bare machines.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Test their whole life, and print the seconds of each stage. Nothing is left afterwards.
    Trial,
    /// Show how they become a cluster with the platform, which stays until `make demo-down`.
    Demo,
}

fn main() -> Result<()> {
    let outcome = match Args::parse().what {
        What::Trial => bootstrap::run()?,
        What::Demo => bootstrap::demo()?,
    };
    println!("{outcome}");
    Ok(())
}
