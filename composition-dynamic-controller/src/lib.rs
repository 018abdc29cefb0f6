//! composition-dynamic-controller: objects of one generated type become Helm releases.

mod args;
mod backlog;
mod composition;
mod compositions;
mod controller;
mod definitions;
mod inspector;
mod lookups;
mod metrics;
mod release_key;
mod run;
mod shards;
mod types;
mod watches;

use anyhow::Context as _;

/// Runs the program, with the arguments and the variables of the process.
///
/// # Errors
/// When it cannot start, or ends because of an error.
pub fn main() -> anyhow::Result<()> {
    let workers = tokio::runtime::Runtime::new().context("could not start")?;
    workers.block_on(runtime::args::parse::<args::Args>().run())
}
