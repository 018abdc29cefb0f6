//! The Roles of a release and their bindings: those that it needs, and those that exist.

use std::collections::{BTreeMap, BTreeSet};

use api::Composition;
use cluster::{Cluster, ResourceId};
use composition::permissions::{Grant, role_labels, role_name};
use composition::{Account, Permissions, ReleaseName};
use inspection::GrantsError;

use super::error::Error;
use crate::composition::bound::OwnBound;
use crate::composition::memory::Memory;

/// The name and labels of a release's Roles, and the account they are bound to.
pub(super) struct Roles {
    name: String,
    labels: BTreeMap<String, String>,
    account: Account,
}

impl Roles {
    /// The Roles of a release of the `served` type, bound to the account of its controller.
    pub(super) fn of(
        composition: &Composition,
        release: &ReleaseName,
        served: &ResourceId,
        account: &Account,
        krateo_namespace: &str,
    ) -> Self {
        Self {
            name: role_name(&served.plural, &composition.namespace, release),
            labels: role_labels(composition, krateo_namespace),
            account: account.clone(),
        }
    }

    /// The name that they all have.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The grants that give these permissions.
    pub(super) fn grants(&self, permissions: &Permissions) -> Vec<Grant> {
        permissions.grants(&self.name, &self.account, &self.labels)
    }

    /// The same grants, bound only to our account.
    pub(super) fn given_to_us(&self, grants: &[Grant]) -> Vec<Grant> {
        let grants = grants.iter().cloned();
        grants.map(|grant| grant.given_to(&self.account)).collect()
    }

    /// The remembered grants; none if they have another name, since the release name of a composition can change.
    pub(super) fn remembered(&self, memory: &Memory) -> Option<Vec<Grant>> {
        let granted = memory.granted.as_ref()?.unpack()?;
        let are_ours = granted.iter().all(|grant| grant.name() == self.name);
        are_ours.then_some(granted)
    }

    /// The existing grants in these namespaces; the empty one is the cluster.
    ///
    /// # Errors
    /// When one cannot be read, or belongs to another composition.
    pub(super) async fn read(
        &self,
        namespaces: BTreeSet<&str>,
        cluster: &Cluster,
    ) -> Result<Vec<Grant>, GrantsError> {
        inspection::granted(cluster, namespaces, &self.name, &self.labels).await
    }

    /// The existing grants in the namespaces where permissions are needed, and where the release had objects when it
    /// was last observed.
    pub(super) async fn granted_so_far(
        &self,
        composition: &Composition,
        needed: &Permissions,
        bound: OwnBound<'_>,
        cluster: &Cluster,
    ) -> Result<Vec<Grant>, Error> {
        // A release that was cut off before the status listed its objects has to be found all the same when it is
        // deleted.
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
        Ok(self.read(namespaces.collect(), cluster).await?)
    }
}

/// The namespaces besides the composition's own in which a release of this type can have roles; the empty one is the
/// cluster.
pub(super) async fn reach(bound: OwnBound<'_>) -> Result<BTreeSet<String>, cluster::Error> {
    let mut namespaces = bound.written().await?.namespaces;
    namespaces.insert(String::new());
    Ok(namespaces)
}
