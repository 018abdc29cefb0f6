//! The release name that a definition gives the only composition that it governs.

use api::{Composition, labels};
use cluster::Selector;
use composition::{Given, Offer, ReleaseName, offer};

use super::Context;
use super::observe::Error;

/// Asks the definition of a new composition that says no name itself.
///
/// The API server is asked how many there are: what the watch knows may be the first of many.
pub(super) async fn given(composition: &Composition, ctx: &Context) -> Result<Given, Error> {
    if !ReleaseName::is_open(composition) {
        return Ok(Given::default());
    }
    // Whoever has no definition is told so later.
    let source = ctx.origin.of(composition).ok();
    let definition = source.and_then(|source| source.definition);
    let offer = definition
        .as_deref()
        .and_then(|definition| Offer::of(composition, definition));
    let Some(offer) = offer else {
        return Ok(Given::default());
    };
    let version = format!("{}={}", labels::COMPOSITION_VERSION, ctx.resource.version);
    let all = Selector {
        namespace: ctx.namespace.as_deref(),
        labels: Some(&version),
    };
    // All of them are in memory at once, and others may have written much into each.
    let all = ctx.cluster.map_metadata(&ctx.resource, all, offer::told).await?;
    Ok(offer.answered(&all))
}
