//! Removes objects from the cluster, and waits until they are gone.

use std::collections::HashSet;
use std::time::Duration;

use cluster::{Cluster, Delete, Deleted, Goal, ObjectId, Propagation};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use helm::kind_order::KindOrder;
use helm::resource_policy::{OnUninstall, RESOURCE_POLICY, is_kept_on_upgrade};

use super::objects::{AT_ONCE, Identity, Target};
use super::ownership::Owner;
use super::{Error, Progress, ResourceVersions, Tell};
use crate::json::{self, Meta};

/// What happened to the objects that had to be removed.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Deleted; for those with a UID, the removal may still be in progress.
    pub(super) deleted: Vec<ObjectId>,
    going: Vec<(ObjectId, String)>,
    /// Not deleted, because of their resource policy or because they do not belong to this release.
    pub(super) kept: Vec<ObjectId>,
}

/// How objects are removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) policy: Policy<'a>,
    pub(super) propagation: Propagation,
}

impl<'a> How<'a> {
    /// By this policy; what depends on the objects goes after them.
    pub(super) fn of(policy: Policy<'a>) -> Self {
        Self {
            policy,
            propagation: Propagation::Background,
        }
    }
}

/// Which resource policy applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy<'a> {
    /// That of the manifest, as when a release is uninstalled.
    OfManifest {
        /// Objects that are known, by a watch, to belong to this release at these resource versions; they are not
        /// read before they are deleted.
        known: Option<&'a ResourceVersions>,
    },
    /// That of the live object, as when an object is dropped from the manifest.
    OfLive,
}

/// The objects of earlier revisions that the wanted ones do not contain, each once.
pub(super) fn dropped(earlier: Vec<Target>, wanted: &[Target]) -> Vec<Target> {
    // An object that is in one of our records does not count as claimed by a foreign one.
    let (claimed, recorded): (Vec<_>, Vec<_>) = earlier.into_iter().partition(|target| target.is_claimed);
    let earlier: Vec<Target> = recorded.into_iter().chain(claimed).collect();
    // Revisions may name one object in several versions of its type.
    let mut known: HashSet<Identity<'_>> = wanted.iter().filter_map(Target::identity).collect();
    let is_dropped: Vec<bool> = earlier
        .iter()
        .map(|target| target.identity().is_some_and(|identity| known.insert(identity)))
        .collect();
    let earlier = earlier.into_iter().zip(is_dropped);
    let mut dropped: Vec<Target> = earlier
        .filter_map(|(target, is_dropped)| is_dropped.then_some(target))
        .collect();
    dropped.sort_by(|one, other| KindOrder::Uninstall.compare(one.kind(), other.kind()));
    dropped
}

/// Deletes objects, one kind after the other in order. A missing object is no error; objects that do not belong to
/// this release or have a resource policy are kept.
///
/// # Errors
/// [`Error::Objects`] for the first object that cannot be deleted.
pub(super) async fn remove(
    cluster: &Cluster,
    targets: &[Target],
    owner: &Owner,
    how: How<'_>,
    tell: &Tell<'_>,
) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    for batch in targets.chunk_by(|one, other| one.kind() == other.kind()) {
        let removals: Vec<_> = batch
            .iter()
            .map(|target| remove_one(cluster, target, owner, how).boxed())
            .collect();
        let outcomes: Vec<Outcome> = stream::iter(removals)
            .buffered(AT_ONCE)
            .try_collect()
            .await
            .map_err(Error::objects("delete"))?;
        for (target, outcome) in batch.iter().zip(outcomes) {
            let Some(id) = target.id().cloned() else { continue };
            match &outcome {
                Outcome::Kept => tell(&Progress::Kept { id: &id }),
                Outcome::Gone | Outcome::Going { .. } => tell(&Progress::Deleted { id: &id }),
                Outcome::Absent | Outcome::Ignored => {}
            }
            match outcome {
                Outcome::Kept => removed.kept.push(id),
                Outcome::Absent | Outcome::Ignored => {}
                Outcome::Gone => removed.deleted.push(id),
                Outcome::Going { uid } => {
                    removed.deleted.push(id.clone());
                    removed.going.push((id, uid));
                }
            }
        }
    }
    Ok(removed)
}

enum Outcome {
    Absent,
    Kept,
    Ignored,
    Gone,
    Going { uid: String },
}

impl From<Deleted> for Outcome {
    fn from(deleted: Deleted) -> Self {
        match deleted {
            Deleted::Gone => Self::Gone,
            Deleted::Going { uid } => Self::Going { uid },
        }
    }
}

async fn remove_one(
    cluster: &Cluster,
    target: &Target,
    owner: &Owner,
    How { policy, propagation }: How<'_>,
) -> Result<Outcome, cluster::Error> {
    let Some(id) = target.id() else {
        return Ok(Outcome::Ignored);
    };
    if let Policy::OfManifest { known } = policy {
        match OnUninstall::of(json::meta(&target.manifest, Meta::Annotations, RESOURCE_POLICY)) {
            OnUninstall::Delete => {}
            OnUninstall::Keep => return Ok(Outcome::Kept),
            OnUninstall::Ignore => return Ok(Outcome::Ignored),
        }
        let version = known.and_then(|known| known.get(id));
        if let Some(version) = version.filter(|_| !target.is_claimed) {
            let how = Delete::with(propagation).resource_version(version);
            match cluster.delete(id, &how).await {
                // The watch was late.
                Err(changed) if changed.is_conflict() => {}
                deleted => return deleted.map(Outcome::from),
            }
        }
    }
    let live = match cluster.get_metadata(id).await {
        // Nobody grants rights to arbitrary objects that a foreign record names.
        Err(refused) if target.is_claimed && refused.is_forbidden() => return Ok(Outcome::Kept),
        live => live?,
    };
    let Some(live) = live else {
        return Ok(Outcome::Absent);
    };
    let live = json::of(&live);
    let is_kept =
        policy == Policy::OfLive && is_kept_on_upgrade(json::meta(&live, Meta::Annotations, RESOURCE_POLICY));
    if is_kept {
        return Ok(Outcome::Kept);
    }
    if !owner.owns(&live) {
        tracing::warn!(object = %id, "left alone: the object is no longer of this release");
        return Ok(Outcome::Kept);
    }
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let how = Delete::with(propagation).uid(&uid);
    cluster.delete(id, &how).await.map(Outcome::from)
}

impl Removed {
    /// Waits until the deleted objects are gone, for at most `timeout` in total.
    ///
    /// # Errors
    /// [`Error::Objects`] names the first object that remains, and what blocks its removal.
    pub(super) async fn wait(&self, cluster: &Cluster, timeout: Duration) -> Result<(), Error> {
        let wait = |(id, uid): &(ObjectId, String)| {
            let (id, goal) = (id.clone(), Goal::GoneOf(uid.clone()));
            async move { cluster.wait_until(&id, goal, timeout, &mut |_| {}).await }.boxed()
        };
        let waits: Vec<_> = self.going.iter().map(wait).collect();
        stream::iter(waits)
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await
            .map(drop)
            .map_err(Error::objects("remove"))
    }
}
