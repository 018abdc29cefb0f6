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

/// The name, the namespace and the labels of a release's Roles, and the account they are bound to.
pub(super) struct Roles {
    name: String,
    home: String,
    labels: BTreeMap<String, String>,
    account: Account,
}

/// The existing grants of a release, as far as they are known.
pub(super) enum Known {
    All(Vec<Grant>),
    /// Only what is granted in the composition's namespace: one grant at most.
    AtHome(Vec<Grant>),
}

impl Known {
    pub(super) fn nothing_granted() -> Self {
        Self::All(Vec::new())
    }
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
            home: composition.namespace.clone(),
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

    /// The remembered grants; if there are none, those in the composition's namespace are read.
    ///
    /// # Errors
    /// Those of [`Roles::read`].
    pub(super) async fn known(&self, memory: &Memory, cluster: &Cluster) -> Result<Known, GrantsError> {
        if let Some(granted) = self.remembered(memory) {
            return Ok(Known::All(granted));
        }
        let home = BTreeSet::from([self.home.as_str()]);
        Ok(Known::AtHome(self.read(home, cluster).await?))
    }

    /// The remembered grants; none if they have another name, since the release name of a composition can change.
    fn remembered(&self, memory: &Memory) -> Option<Vec<Grant>> {
        let granted = memory.granted.as_ref()?.unpack()?;
        let are_ours = granted.iter().all(|grant| grant.name() == self.name);
        are_ours.then_some(granted)
    }

    /// True if the Role in the composition's namespace was just read, and is not bound to our account: after a move to
    /// another version it is bound to that of the former controller. A remembered binding can have changed since.
    pub(super) fn are_bound_to_another_account(&self, known: &Known) -> bool {
        match known {
            Known::AtHome(granted) => granted.iter().any(|grant| !grant.is_given_to(&self.account)),
            Known::All(_) => false,
        }
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

    /// All existing grants, given those that are `known`: they are looked for where permissions are needed, and where
    /// the release had objects when it was last observed.
    ///
    /// # Errors
    /// Those of [`Roles::read`], and when the bound cannot be read.
    pub(super) async fn all(
        &self,
        known: Known,
        composition: &Composition,
        needed: &Permissions,
        bound: OwnBound<'_>,
        cluster: &Cluster,
    ) -> Result<Vec<Grant>, Error> {
        let at_home = match known {
            Known::All(granted) => return Ok(granted),
            Known::AtHome(granted) => granted,
        };
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
        let elsewhere = namespaces.filter(|namespace| *namespace != self.home).collect();
        let mut granted = self.read(elsewhere, cluster).await?;
        granted.extend(at_home);
        granted.sort_by(|one, other| one.namespace().cmp(other.namespace()));
        Ok(granted)
    }
}

/// The namespaces besides the composition's own in which a release of this type can have roles; the empty one is the
/// cluster.
pub(super) async fn reach(bound: OwnBound<'_>) -> Result<BTreeSet<String>, cluster::Error> {
    let mut namespaces = bound.written().await?.reach();
    namespaces.insert(String::new());
    Ok(namespaces)
}
