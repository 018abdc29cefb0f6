//! The release name that a definition gives to a composition, if it governs no other.

use api::{Composition, labels};
use cluster::{Cluster, ResourceId, Selector};
use composition::{Offer, OfferedName, ReleaseName, offer};

use super::origin::Origin;

/// The release name that the definition gives to a new composition without a release name of its own.
///
/// The number of compositions is asked from the API server, because the watch may have seen only the first of many.
///
/// It counts all compositions that the controller serves: those in `namespace`, or in all namespaces if it is none.
pub(super) async fn offered(
    composition: &Composition,
    origin: &Origin,
    served: &ResourceId,
    namespace: Option<&str>,
    cluster: &Cluster,
) -> Result<OfferedName, cluster::Error> {
    if !ReleaseName::is_open(composition) {
        return Ok(OfferedName::default());
    }
    // A missing definition is reported later.
    let source = origin.of(composition).ok();
    let definition = source.and_then(|source| source.definition);
    let offer = definition
        .as_deref()
        .and_then(|definition| Offer::of(composition, definition));
    let Some(offer) = offer else {
        return Ok(OfferedName::default());
    };
    let version = format!("{}={}", labels::COMPOSITION_VERSION, served.version);
    let all = Selector {
        namespace,
        labels: Some(&version),
    };
    // All of them are in memory at once, and users may have written much metadata into each.
    let all = cluster.map_metadata(served, all, offer::trimmed).await?;
    Ok(offer.answered(&all))
}
