//! Watches on the objects of this type's releases. Events put their compositions into the queue.

use std::sync::Arc;

use api::labels;
use cluster::{Cluster, ResourceId};
use helm_client::release::Sightings;
use kube::ResourceExt as _;
use runtime::Watches;
use runtime::queue::{Priority, Queue};
use runtime::watches::Metadata;

use crate::compositions::Key;

/// Watches objects of the type's releases. When one changes, its composition is added to `queue`.
pub(crate) fn watches(cluster: Cluster, served: &ResourceId, queue: Arc<Queue<Key>>) -> Watches<Key> {
    let selector = format!(
        "{}={},{}={}",
        labels::COMPOSITION_GROUP,
        served.group,
        labels::COMPOSITION_RESOURCE,
        served.plural
    );
    let watches = Watches::new(cluster, selector, owner, move |key| {
        queue.add(key, Priority::Normal);
    });
    watches.remembering(labels::COMPOSITION_ID)
}

/// Which objects the watches have seen with the label of a composition.
pub(crate) fn sightings(watches: &Arc<Watches<Key>>) -> Sightings {
    let watches = watches.clone();
    Arc::new(move |id, parent| {
        // The watches remember this label alone.
        let is_composition = parent.label == labels::COMPOSITION_ID;
        let seen = || watches.version_with_label(id, &parent.uid);
        is_composition.then(seen).flatten()
    })
}

/// The composition that an object's labels name.
fn owner(object: &Metadata) -> Option<Key> {
    let label = |name: &str| object.labels().get(name).cloned();
    let owner = label(labels::COMPOSITION_NAMESPACE).zip(label(labels::COMPOSITION_NAME));
    owner.map(|(namespace, name)| Key { namespace, name })
}
