//! chart-inspector: which objects would this composition's chart touch?

mod args;
mod callers;
mod definitions;
mod document;
mod http;
mod inspector;
mod run;

use anyhow::Context as _;

/// Runs the program, with the arguments and the variables of the process.
///
/// # Errors
/// When it cannot start, or ends because of an error.
pub fn main() -> anyhow::Result<()> {
    let workers = tokio::runtime::Runtime::new().context("could not start")?;
    workers.block_on(runtime::args::parse::<args::Args>().run())
}
