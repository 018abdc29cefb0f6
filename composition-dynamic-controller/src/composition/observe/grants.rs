//! The Roles of a release and their bindings: those that it needs, and those that are there.

use std::collections::{BTreeMap, BTreeSet};

use api::Composition;
use cluster::{Cluster, ResourceId};
use composition::permissions::{Grant, role_name};
use composition::{Account, Permissions, ReleaseName, rendering};
use inspection::GrantsError;

use super::error::Error;
use crate::composition::bound::OwnBound;
use crate::composition::memory::Memory;

/// How the Roles of a release are named and labelled, and whom they are bound to.
pub(super) struct Roles {
    name: String,
    labels: BTreeMap<String, String>,
    account: Account,
}

impl Roles {
    /// Those of a release of the type that is `served`, bound to the account of its controller.
    pub(super) fn of(
        composition: &Composition,
        release: &ReleaseName,
        served: &ResourceId,
        account: &Account,
        krateo_namespace: &str,
    ) -> Self {
        Self {
            name: role_name(&served.plural, &composition.namespace, release),
            labels: rendering::object_labels(composition, krateo_namespace),
            account: account.clone(),
        }
    }

    /// What they are all named.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Those that give these permissions.
    pub(super) fn grants(&self, permissions: &Permissions) -> Vec<Grant> {
        permissions.grants(&self.name, &self.account, &self.labels)
    }

    /// The same Roles, bound to our account alone.
    pub(super) fn given_to_us(&self, grants: &[Grant]) -> Vec<Grant> {
        let grants = grants.iter().cloned();
        grants.map(|grant| grant.given_to(&self.account)).collect()
    }

    /// Those that are remembered, unless they are of another name: a composition can be given another release name.
    pub(super) fn remembered(&self, memory: &Memory) -> Option<Vec<Grant>> {
        let granted = memory.granted.as_ref()?;
        granted
            .iter()
            .all(|grant| grant.name() == self.name)
            .then(|| granted.clone())
    }

    /// Those that are there in these namespaces; the empty one is the cluster.
    ///
    /// # Errors
    /// When one of them cannot be read, or is of another composition.
    pub(super) async fn read(
        &self,
        namespaces: BTreeSet<&str>,
        cluster: &Cluster,
    ) -> Result<Vec<Grant>, GrantsError> {
        inspection::granted(cluster, namespaces, &self.name, &self.labels).await
    }

    /// Those that are there where they are needed, and where the release had objects when it was looked at last.
    pub(super) async fn granted_so_far(
        &self,
        composition: &Composition,
        needed: &Permissions,
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
        Ok(self.read(namespaces.collect(), cluster).await?)
    }
}

/// Where a release of this type can have roles besides the composition's namespace; the empty one is the cluster.
pub(super) async fn reach(bound: OwnBound<'_>) -> Result<BTreeSet<String>, cluster::Error> {
    let mut namespaces = bound.written().await?.namespaces;
    namespaces.insert(String::new());
    Ok(namespaces)
}
