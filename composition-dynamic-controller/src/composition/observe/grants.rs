//! The permissions that a release has so far.

use std::collections::{BTreeMap, BTreeSet};

use api::Composition;
use cluster::Cluster;
use composition::Permissions;
use composition::permissions::Grant;

use super::Error;
use crate::composition::bound::OwnBound;
use crate::composition::memory::Memory;

/// The grants that are remembered, unless they are of another role name: a composition can be given another release name.
pub(super) fn known_grants(memory: &Memory, role: &str) -> Option<Vec<Grant>> {
    let granted = memory.granted.as_ref()?;
    granted
        .iter()
        .all(|grant| grant.name() == role)
        .then(|| granted.clone())
}

/// The Roles and bindings that are there under the release's role name: where they are needed, and where the
/// release had objects when it was looked at last.
pub(super) async fn granted_so_far(
    composition: &Composition,
    role: &str,
    needed: &Permissions,
    labels: &BTreeMap<String, String>,
    bound: OwnBound<'_>,
    cluster: &Cluster,
) -> Result<Vec<Grant>, Error> {
    // What was cut off before the status knew of it is to be found all the same when it goes.
    let reach = if composition.deleting && composition.status.managed.is_empty() {
        reach(bound).await?
    } else {
        BTreeSet::new()
    };
    let had = composition.status.managed.iter();
    let had = had.map(|object| object.namespace.as_str());
    let namespaces = needed
        .namespaces()
        .chain(had)
        .chain(reach.iter().map(String::as_str));
    Ok(inspection::granted(cluster, namespaces.collect(), role, labels).await?)
}

/// Where a release of this type can have roles besides the composition's namespace; the empty one is the cluster.
pub(super) async fn reach(bound: OwnBound<'_>) -> Result<BTreeSet<String>, cluster::Error> {
    let mut namespaces = bound.written().await?.namespaces;
    namespaces.insert(String::new());
    Ok(namespaces)
}
