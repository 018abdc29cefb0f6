//! What there is of a composition: `fetch` reads it, `derive` makes the facts for the plan of it.

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

use super::Context;
use super::memory::{self, Memory};
pub(super) use derive::Observed;
pub(crate) use error::Error;

/// A digest of what a pass over the composition is made from.
pub(super) fn inputs(composition: &Composition, told: u64, ctx: &Context) -> u64 {
    memory::inputs(composition, told, ctx.origin.of(composition).ok().as_ref())
}

/// Looks at everything a plan is made from; never writes.
pub(super) async fn observe(
    composition: &Composition,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Observed, Error> {
    let fetched = fetch::fetch(composition, memory, ctx).await?;
    Ok(derive::derive(composition, fetched, ctx.growth))
}
