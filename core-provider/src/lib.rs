//! core-provider: a chart that a CompositionDefinition points at becomes a type and a controller.

mod args;
mod backlog;
mod bound;
mod bundle;
mod chart_grants;
mod definition;
mod definition_type;
mod grants;
mod labelling;
mod namespaces;
mod run;
mod templates;
mod webhook;

use anyhow::Context as _;

/// Runs the program, with the arguments and the variables of the process.
///
/// # Errors
/// When it cannot start, or ends because of an error.
pub fn main() -> anyhow::Result<()> {
    let workers = tokio::runtime::Runtime::new().context("could not start")?;
    workers.block_on(runtime::args::parse::<args::Args>().run())
}
