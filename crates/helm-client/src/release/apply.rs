//! Writes objects to the cluster, in install order, by server-side apply as Helm's field manager.

use std::collections::HashMap;

use cluster::{Applied, Apply, Cluster, ObjectId};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::objects::{AT_ONCE, Identity, ObjectRef, Target};
use super::obstacle::Obstacles;
use super::ownership::{self, Checked, Owner};
use super::{Error, Live, Progress, Tell, conflict};
use crate::json;
use crate::records::MANAGER;

/// What has been written so far, so that it can be undone.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) objects: Vec<Live>,
    /// Those that are as they should be, and were not read.
    pub(super) unread: Vec<ObjectId>,
    /// True once a request was sent, whose outcome may be unknown.
    pub(super) begun: bool,
    /// Those objects that did not exist before, as targets for their removal.
    pub(super) made: Vec<Target>,
}

/// Which fields may be forced from other managers.
pub(super) enum Force<'a> {
    /// Those that the deployed manifest sets: they were ours before somebody else set them.
    Set(HashMap<Identity<'a>, &'a Value>),
    /// All.
    All,
}

impl<'a> Force<'a> {
    /// Fields that these objects of the deployed revision set.
    pub(super) fn set_in(deployed: &'a [Target]) -> Self {
        let entry = |target: &'a Target| Some((target.identity()?, &target.manifest));
        Self::Set(deployed.iter().filter_map(entry).collect())
    }

    /// True for objects of the deployed revision, or when all may be forced.
    fn is_ours(&self, target: &Target) -> bool {
        match self {
            Self::All => true,
            Self::Set(deployed) => target
                .identity()
                .is_some_and(|identity| deployed.contains_key(&identity)),
        }
    }

    pub(super) fn allows(&self, target: &Target, conflict: &cluster::Error) -> bool {
        match self {
            Self::All => true,
            Self::Set(deployed) => {
                let before = target.identity().and_then(|identity| deployed.get(&identity));
                let causes = conflict.causes();
                before.is_some_and(|before| {
                    !causes.is_empty() && causes.iter().all(|cause| conflict::sets(before, &cause.field))
                })
            }
        }
    }
}

/// Checks that the objects that exist belong to this release, and returns those.
///
/// # Errors
/// Those of [`find`].
pub(super) async fn check_ownership(
    cluster: &Cluster,
    targets: impl Iterator<Item = &Target>,
    owner: &Owner,
    action: &'static str,
) -> Result<Checked, Error> {
    let found = find(cluster, targets, |_| false, owner, action).await?;
    Ok(ownership::checked(&found))
}

/// Finds the objects that exist, and checks that they belong to this release. Only their metadata is read, except for
/// those that are wanted whole.
///
/// # Errors
/// [`Error::NotOurs`] for the first that does not belong to it, in Helm's words.
pub(super) async fn find(
    cluster: &Cluster,
    targets: impl Iterator<Item = &Target>,
    is_whole: impl Fn(&ObjectId) -> bool,
    owner: &Owner,
    action: &'static str,
) -> Result<Vec<Live>, Error> {
    let found = look_for(cluster, targets, is_whole).await?;
    check_all(&found, owner, action)?;
    Ok(found)
}

/// Checks that objects belong to this release.
///
/// # Errors
/// [`Error::NotOurs`] for the first that does not belong to it, in Helm's words.
pub(super) fn check_all(found: &[Live], owner: &Owner, action: &'static str) -> Result<(), Error> {
    for live in found {
        owner
            .check(&live.object)
            .map_err(|reason| not_ours(&live.id, action, reason))?;
    }
    Ok(())
}

/// Finds the objects that exist, whoever they belong to.
pub(super) async fn look_for(
    cluster: &Cluster,
    targets: impl Iterator<Item = &Target>,
    is_whole: impl Fn(&ObjectId) -> bool,
) -> Result<Vec<Live>, Error> {
    let look = |target: &Target| {
        let id = target.id()?.clone();
        let whole = is_whole(&id);
        let look = async move {
            let object = if whole {
                cluster.get(&id).await?
            } else {
                cluster.get_metadata(&id).await?.map(|live| json::of(&live))
            };
            Ok(object.map(|object| Live { id, object }))
        };
        Some(look.boxed())
    };
    let looks: Vec<_> = targets.filter_map(look).collect();
    let looks = stream::iter(looks).buffered(AT_ONCE);
    let found: Vec<Option<Live>> = looks.try_collect().await.map_err(Error::objects("look for"))?;
    Ok(found.into_iter().flatten().collect())
}

/// The error, in Helm's words, for an object that does not belong to the release.
pub(super) fn not_ours(id: &ObjectId, action: &'static str, reason: String) -> Error {
    Error::NotOurs {
        action,
        object: format!(
            "{} {:?} in namespace {:?}",
            id.resource().kind,
            id.name(),
            id.namespace().unwrap_or_default()
        ),
        reason,
    }
}

/// How objects are written.
pub(super) struct Writing<'a> {
    pub(super) owner: &'a Owner,
    pub(super) force: &'a Force<'a>,
    /// Those of the objects that existed and were found to belong to the release: they are written as long as they
    /// have this UID or resource version.
    pub(super) checked: &'a Checked,
}

/// Objects that an apply would not change; `None` for those that were not read.
pub(super) type Untouched = HashMap<ObjectId, Option<Live>>;

/// Applies the objects: one kind after the other, the objects of one kind in parallel. Those in `untouched`, which an
/// apply would not change, are not written. `written` says what was done, even when one of them fails.
///
/// # Errors
/// [`Error::Objects`] for the first object that the server refuses.
pub(super) async fn write(
    cluster: &Cluster,
    targets: &[Target],
    how: &Writing<'_>,
    mut untouched: Untouched,
    written: &mut Written,
    tell: &Tell<'_>,
) -> Result<(), Error> {
    for batch in targets.chunk_by(|one, other| one.kind() == other.kind()) {
        written.begun = true;
        let mut put_unless_untouched = |target| {
            let left = Target::id(target).and_then(|id| untouched.remove(id));
            let put = async move {
                match left {
                    Some(left) => Ok(Put::Left(left)),
                    None => put(cluster, target, how)
                        .await
                        .map(|(live, created)| Put::Written { live, created }),
                }
            };
            put.boxed()
        };
        let puts: Vec<_> = batch.iter().map(&mut put_unless_untouched).collect();
        let puts: Vec<_> = stream::iter(puts).buffered(AT_ONCE).collect().await;
        let mut outcome = Ok(());
        for (target, put) in batch.iter().zip(puts) {
            match put {
                Ok(Put::Left(Some(live))) => written.objects.push(live),
                Ok(Put::Left(None)) => written.unread.extend(target.id().cloned()),
                Ok(Put::Written { live, created }) => {
                    tell(&Progress::Applied {
                        id: &live.id,
                        created,
                    });
                    if created {
                        let reference = ObjectRef::Named(live.id.clone());
                        written.made.push(Target {
                            reference,
                            ..target.clone()
                        });
                    }
                    written.objects.push(live);
                }
                Err(source) if outcome.is_ok() => outcome = Err(source),
                Err(_) => {}
            }
        }
        outcome?;
    }
    Ok(())
}

/// What became of a target.
enum Put {
    /// It was as it should be.
    Left(Option<Live>),
    /// It was created or applied.
    Written { live: Live, created: bool },
}

/// Creates or applies the object of a target; true if it did not exist.
async fn put(cluster: &Cluster, target: &Target, how: &Writing<'_>) -> Result<(Live, bool), Error> {
    let mut object = target.manifest.clone();
    how.owner.claim(&mut object);
    let mut checked = target
        .id()
        .and_then(|id| Some((id, how.checked.get(id)?.clone())));
    if let (None, Some(id), Some(_)) = (&checked, target.id(), &how.owner.parent) {
        // It did not exist when the action was planned. Anybody who has created one since may use the same field
        // manager.
        let made = make(cluster, id, &object).await;
        if let Some(made) = made.map_err(Error::objects("write"))? {
            return Ok((made, true));
        }
        let found = check_ownership(cluster, [target].into_iter(), how.owner, "update").await?;
        checked = found.get(id).map(|found| (id, found.clone()));
    }
    let Some((id, precondition)) = checked else {
        let put = put_as_is(cluster, target, &object, how.force).await;
        return put.map_err(Error::objects("write"));
    };
    precondition.put_into(&mut object);
    match put_as_is(cluster, target, &object, how.force).await {
        // A hook of the chart may have replaced the object, or the watch has not reported a change yet.
        Err(refused) if fails_precondition(&refused) => {
            let again = [target.clone()];
            let live = check_ownership(cluster, again.iter(), how.owner, "update").await?;
            if let Some(precondition) = live.get(id) {
                precondition.put_into(&mut object);
                put_as_is(cluster, target, &object, how.force).await
            } else {
                json::remove_preconditions(&mut object);
                let made = make(cluster, id, &object).await;
                // If somebody has created one since, the next attempt checks whose it is.
                made.and_then(|made| made.map(|made| (made, true)).ok_or(refused))
            }
        }
        settled => settled,
    }
    .map_err(Error::objects("write"))
}

/// True when the server refused the apply because the object that was checked is gone or has changed, or another one
/// has its name.
fn fails_precondition(refused: &cluster::Error) -> bool {
    let causes = refused.causes();
    let names_uid = || causes.iter().any(|cause| cause.field == "metadata.uid");
    refused.is_conflict() && causes.is_empty() || refused.is_invalid() && names_uid()
}

/// An apply with this resource version only creates and never updates: the store counts from 1 before its first
/// object, so no existing object has it. A plain create cannot be authorised by name.
const NEW: &str = "1";

/// Creates an object by server-side apply; `None` if there is one already, which is not changed.
///
/// # Errors
/// When the server refuses the object.
pub(super) async fn make(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
) -> Result<Option<Live>, cluster::Error> {
    let mut new = object.clone();
    new["metadata"]["resourceVersion"] = NEW.into();
    match cluster.apply(id, &new, &Apply::by(MANAGER)).await {
        Ok(made) => Ok(Some(Live {
            id: id.clone(),
            object: made.object,
        })),
        Err(taken) if taken.is_conflict() => Ok(None),
        Err(refused) => Err(refused),
    }
}

/// Applies an object without marking it as part of the release, which is how hooks are created.
///
/// Fields that others put into an object of ours, and that the server refuses together with ours, are taken over and
/// dropped.
pub(super) async fn put_as_is(
    cluster: &Cluster,
    target: &Target,
    object: &Value,
    force: &Force<'_>,
) -> Result<(Live, bool), cluster::Error> {
    let id = match &target.reference {
        ObjectRef::Named(id) => id.clone(),
        ObjectRef::Unnamed { resource, namespace } => {
            let made = cluster
                .create_named_by_server(resource, namespace.as_deref(), object, MANAGER)
                .await?;
            let id = ObjectId::in_manifest(resource.clone(), &made, None)?;
            return Ok((Live { id, object: made }, true));
        }
    };
    let applied = match apply(cluster, &id, target, object, force).await {
        Err(refused) if names_fields(&refused) && force.is_ours(target) => {
            let live = cluster.get(&id).await?.unwrap_or_default();
            let obstacles = Obstacles::of(&refused, object, &live);
            if obstacles.paths.is_empty() {
                return Err(refused);
            }
            obstacles.take_over(cluster, &id, &live).await?;
            apply(cluster, &id, target, object, force).await?
        }
        settled => settled?,
    };
    Ok((
        Live {
            id,
            object: applied.object,
        },
        applied.created,
    ))
}

/// True when the server refused the values of fields.
fn names_fields(refused: &cluster::Error) -> bool {
    refused.is_invalid() && !refused.causes().is_empty()
}

async fn apply(
    cluster: &Cluster,
    id: &ObjectId,
    target: &Target,
    object: &Value,
    force: &Force<'_>,
) -> Result<Applied, cluster::Error> {
    match cluster.apply(id, object, &Apply::by(MANAGER)).await {
        Err(conflict) if conflict.is_conflict() && force.allows(target, &conflict) => {
            cluster.apply(id, object, &Apply::by(MANAGER).force()).await
        }
        settled => settled,
    }
}
