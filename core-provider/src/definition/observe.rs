//! Observes a definition: its chart, its type in the API server, the controllers and the compositions.

mod derive;
pub(super) mod error;
mod fetch;
pub(super) mod observed;
mod read;

use api::CompositionDefinition;

use super::context::Context;
pub(crate) use error::Error;
use fetch::Reader;
pub(crate) use observed::{
    Active, Barred, Former, FormerType, Holder, Leaving, Located, Locked, Observed, Opened, Source, StandIn,
};

/// Fetches the chart of a definition, once its Secrets may be read.
pub(crate) async fn open(definition: &CompositionDefinition, ctx: &Context) -> Result<Opened, Error> {
    fetch::open(definition, Reader::of(ctx)).await
}

/// Reads everything that the plan for this source needs. The caller holds the lock of the type.
pub(crate) async fn active(
    definition: &CompositionDefinition,
    source: Source,
    open: &Locked,
    ctx: &Context,
) -> Result<Active, Error> {
    let read = fetch::active(definition, &source, Reader::of(ctx)).await?;
    derive::active(definition, source, open, &ctx.webhooks, read)
}

/// Reads what a definition created. That needs neither the chart nor its registry.
pub(crate) async fn leaving(definition: &CompositionDefinition, ctx: &Context) -> Result<Leaving, Error> {
    fetch::leaving(definition, Reader::of(ctx)).await
}
