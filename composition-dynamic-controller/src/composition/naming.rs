//! The release name that a definition gives the only composition that it governs.

use api::{Composition, labels};
use cluster::{Cluster, ResourceId, Selector};
use composition::{Given, Offer, ReleaseName, offer};

use super::origin::Origin;

/// Asks the definition of a new composition that says no name itself.
///
/// The API server is asked how many there are: what the watch knows may be the first of many.
///
/// All compositions count that the controller serves: those in `namespace`, or everywhere without one.
pub(super) async fn given(
    composition: &Composition,
    origin: &Origin,
    served: &ResourceId,
    namespace: Option<&str>,
    cluster: &Cluster,
) -> Result<Given, cluster::Error> {
    if !ReleaseName::is_open(composition) {
        return Ok(Given::default());
    }
    // Whoever has no definition is told so later.
    let source = origin.of(composition).ok();
    let definition = source.and_then(|source| source.definition);
    let offer = definition
        .as_deref()
        .and_then(|definition| Offer::of(composition, definition));
    let Some(offer) = offer else {
        return Ok(Given::default());
    };
    let version = format!("{}={}", labels::COMPOSITION_VERSION, served.version);
    let all = Selector {
        namespace,
        labels: Some(&version),
    };
    // All of them are in memory at once, and others may have written much into each.
    let all = cluster.map_metadata(served, all, offer::trimmed).await?;
    Ok(offer.answered(&all))
}
