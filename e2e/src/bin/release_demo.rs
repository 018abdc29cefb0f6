//! `make release-demo`: a release, installed on a cluster with the README's commands.
#![allow(clippy::print_stdout, reason = "showing is what a demo is for")]

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Publishes a release in the registry of a cluster of its own and follows the README.
#[derive(Debug, Parser)]
struct Args {
    /// The output of `make release`.
    release: PathBuf,
    /// Keep the cluster, whose name is release-demo, on success: `local-cluster down --name release-demo` removes it.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let line = e2e::trials::released::run(&args.release, args.keep, &|text| println!("{text}"))?;
    println!("{line}");
    Ok(())
}
