//! Observes a composition: `fetch` reads, and `derive` turns what was read into the facts for the plan.

mod derive;
mod error;
mod fetch;
mod fetched;
mod grants;
mod intention;
mod objects;
mod release;
mod touched;

use api::Composition;
pub(super) use inspection::told;

use super::context::Context;
use super::memory::{self, Memory};
pub(super) use derive::Observed;
pub(crate) use error::Error;

/// A digest of the inputs of a pass over the composition.
pub(super) fn inputs(composition: &Composition, told: u64, ctx: &Context) -> u64 {
    memory::inputs(composition, told, ctx.origin.of(composition).ok().as_ref())
}

/// Reads everything that the plan needs; never writes.
pub(super) async fn observe(
    composition: &Composition,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Observed, Error> {
    let fetched = fetch::fetch(composition, memory, ctx).await?;
    Ok(derive::derive(composition, fetched))
}
