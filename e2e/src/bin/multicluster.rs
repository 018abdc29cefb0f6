//! What a dead cluster costs the live ones.
#![allow(clippy::print_stdout, reason = "figures are what it is run for")]

use anyhow::Result;
use clap::Parser;

/// Measures passes on live clusters, alone and beside one whose packets are lost.
#[derive(Debug, Parser)]
struct Args {
    /// Tenants on each cluster.
    #[arg(long, default_value_t = 50)]
    tenants: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    println!("{}", e2e::multicluster::latency::run(args.tenants)?);
    Ok(())
}
