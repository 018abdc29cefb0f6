//! Reads everything about a composition, and writes nothing. Functions of the plan and of [`super::derive`] decide what
//! to read next, based on what was found so far.

use std::sync::Arc;

use api::Composition;
use api::inspection::Resource;
use chart_bound::{GroupResource, Outside};
use cluster::{Cluster, ObjectId};
use composition::permissions::{self, Grant};
use composition::plan::{self, Growth, Release, Rights};
use composition::{OfferedName, ReleaseName};
use helm_client::records;
use helm_client::release::{Releases, same_objects};
use helm_client::rendering::Leniency;
use inspection::{GrantsError, Judging, Renderer, Standing, Stored};
use runtime::queue::Queue;

use super::derive;
use super::error::Error;
use super::fetched::{CompositionState, Fetched, FoundRelease, Going};
use super::grants::{Known, Roles, reach};
use super::intention::{Intention, intention};
use super::objects::look;
use super::release::ReleaseOf;
use crate::composition::bound::{self, OwnBound};
use crate::composition::context::Context;
use crate::composition::held::Held;
use crate::composition::memory::Memory;
use crate::composition::packed::Packed;
use crate::composition::{going, naming};
use crate::compositions::Key;
use crate::metrics::Part;

/// Reads everything that the plan needs.
pub(super) async fn fetch(
    composition: &Composition,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Fetched, Error> {
    let namespace = ctx.namespace.as_deref();
    let offered = naming::offered(composition, &ctx.origin, &ctx.resource, namespace, &ctx.cluster).await?;
    let name = offered.name.as_deref();
    let release_name = ReleaseName::of(composition, name, ctx.safe_release_name)?;
    if plan::paused(composition).is_some() {
        return Ok(Fetched {
            release_name,
            releases: ctx.releases.clone(),
            state: CompositionState::Paused,
        });
    }
    let is_unique = ReleaseName::is_of_uid(composition, name, ctx.safe_release_name);
    let was_left = memory.left.take().is_some() && memory.records.is_some();
    let mut begun = Box::pin(begin(composition, &release_name, is_unique, memory, ctx)).await?;
    if was_left && begun.has_something_to_do() {
        // The records that the last turn left are too old to act on: read again.
        begun = Box::pin(begin(composition, &release_name, is_unique, memory, ctx)).await?;
    }
    let Begun { releases, progress } = begun;
    let state = match progress {
        Progress::Ended(state) => state,
        Progress::Release(reading) => {
            let release = ReleaseOf {
                composition,
                name: &release_name,
                releases: &releases,
            };
            let rest = Box::pin(finish(release, offered, *reading, memory, ctx));
            CompositionState::Release(Box::new(rest.await?))
        }
    };
    Ok(Fetched {
        release_name,
        releases,
        state,
    })
}

/// A composition, read until the state of its release is known.
struct Begun {
    releases: Releases,
    progress: Progress,
}

enum Progress {
    /// There is nothing more to read.
    Ended(CompositionState),
    Release(Box<Reading>),
}

/// A release that is being read.
struct Reading {
    held: Held,
    intention: Option<Intention>,
    /// The objects of its stored revisions.
    stored: Stored,
    roles: Roles,
    rights: Rights,
    standing: Standing,
}

impl Begun {
    /// A deleted composition whose objects are not ours to remove: another one has a release of this name.
    fn of_another(releases: Releases, foreign: &GrantsError) -> Self {
        Self {
            releases,
            progress: Progress::Ended(CompositionState::OfAnother(foreign.to_string())),
        }
    }

    fn has_something_to_do(&self) -> bool {
        match &self.progress {
            Progress::Ended(_) => false,
            Progress::Release(reading) => {
                !reading.rights.are_in_place() || reading.standing.release != Release::InSync
            }
        }
    }
}

/// Reads records, chart and permissions, and the state of the release. `is_unique` is true when no other composition's
/// release can have the same name.
async fn begin(
    composition: &Composition,
    name: &ReleaseName,
    is_unique: bool,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Begun, Error> {
    let mut releases = ctx.releases_of(composition, memory).await?;
    let roles = Roles::of(
        composition,
        name,
        &ctx.resource,
        &ctx.account,
        &ctx.krateo_namespace,
    );
    let is_new = derive::is_new(composition);
    let known = if is_new && is_unique {
        Known::nothing_granted()
    } else {
        match roles.known(memory, &ctx.cluster).await {
            Err(foreign @ GrantsError::Foreign { .. }) if composition.deleting => {
                return Ok(Begun::of_another(releases, &foreign));
            }
            known => known?,
        }
    };
    let mut held = Held::new(match memory.records.take() {
        Some(records) => Some(*records),
        // Nothing was granted for it yet, so nothing may be read. There is no release either, unless another one could
        // have its name. If one exists after all, creating the first record finds it.
        None if is_new => is_unique.then(records::Observed::default),
        // We may not read them yet, and the API server would look through all bindings of the namespace to tell us so.
        None if roles.are_bound_to_another_account(&known) => None,
        None => records(composition, name, &mut releases, memory, ctx).await?,
    });
    let release = ReleaseOf {
        composition,
        name,
        releases: &releases,
    };
    let bound = ctx.own_bound();
    let intention = Box::pin(intention(release, &mut held, memory, ctx)).await?;
    let stored = stored(release, held.records(), bound).await?;
    let touched: &[Resource] = match &intention {
        Some(intention) => &intention.touched,
        None => &[],
    };
    let (permissions, needed) = ctx.parts.timed(Part::RbacGeneration, || {
        let (stored, records) = (&stored.touched, held.records());
        let permissions =
            inspection::permissions(composition, name, touched, stored, records, ctx.max_history);
        let needed = roles.grants(&permissions);
        (permissions, needed)
    });
    let granted = roles.all(known, composition, &permissions, bound, &ctx.cluster);
    let granted = match granted.await {
        Err(Error::Granted(foreign @ GrantsError::Foreign { .. })) if composition.deleting => {
            return Ok(Begun::of_another(releases, &foreign));
        }
        granted => granted?,
    };
    memory.granted = Packed::of(&granted);
    let rights = Rights { needed, granted };
    if let Some(lookup) = derive::unread(intention.as_ref(), &rights) {
        return Err(Error::Unread(lookup));
    }
    if derive::may_go_with_namespace(composition, &rights, held.records(), stored.has_hooks)
        && going::is_going(&composition.namespace, roles.name(), &ctx.cluster).await?
    {
        let (objects, granted) = (stored.objects, rights.granted);
        let going = outside_namespace(composition, roles, objects, granted, memory, bound, &ctx.cluster);
        let progress = Progress::Ended(CompositionState::Going(Box::new(going.await?)));
        return Ok(Begun { releases, progress });
    }
    let standing = standing(release, &stored.touched, intention.as_ref(), &mut held, ctx);
    let standing = Box::pin(standing).await?;
    let reading = Reading {
        held,
        intention,
        stored,
        roles,
        rights,
        standing,
    };
    Ok(Begun {
        releases,
        progress: Progress::Release(Box::new(reading)),
    })
}

/// Reads the rest of what the plan needs for a release in this state.
async fn finish(
    release: ReleaseOf<'_>,
    offered: OfferedName,
    reading: Reading,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<FoundRelease, Error> {
    let Reading {
        mut held,
        intention,
        stored,
        roles,
        rights,
        mut standing,
    } = reading;
    let Stored {
        objects,
        touched,
        has_hooks: _,
    } = stored;
    let composition = release.composition;
    let judged = intention.as_ref().map(|intention| {
        judged(
            composition,
            intention,
            &touched,
            &objects,
            held.records(),
            &rights,
        )
    });
    let (objects, drifted) = if derive::looks_at_objects(composition, &rights, &standing.release) {
        ctx.watches
            .follow(&Key::of_composition(composition), objects.iter());
        let (looks, records) = (&mut memory.objects, held.records());
        let look = look(release, records, objects, looks, &ctx.watches, &ctx.cluster);
        Box::pin(look).await?
    } else {
        (Vec::new(), Vec::new())
    };
    let outside = match judged {
        Some(judged) if !judged.is_empty() => {
            outside(composition, &judged, &mut held, ctx.own_bound(), &ctx.queue).await?
        }
        Some(_) | None => None,
    };
    let growth = if rights.are_in_place() {
        Growth::Granted
    } else {
        ctx.growth_of(composition)
    };
    held.read_again(release.releases).await?;
    if !drifted.is_empty() {
        let desired = intention
            .as_ref()
            .and_then(|intention| intention.desired.as_ref());
        let drifted = release.standing(&touched, held.records(), desired, &drifted);
        standing = drifted.await?;
    }
    let in_roles = if derive::asks_roles(composition, &standing.release) {
        going::objects_in_grants(&rights.granted, &ctx.cluster).await?
    } else {
        Vec::new()
    };
    Ok(FoundRelease {
        offered,
        intention,
        roles,
        rights,
        growth,
        standing,
        records: held.into_records(),
        objects,
        drifted,
        outside,
        in_roles,
    })
}

/// The records of the release; `None` while its Role does not let us read them. A record that the key does not
/// authenticate may be signed with a newer key, so that is tried.
async fn records(
    composition: &Composition,
    release: &ReleaseName,
    releases: &mut Releases,
    memory: &Memory,
    ctx: &Context,
) -> Result<Option<records::Observed>, Error> {
    let mut observed = near_hints(composition, release, releases).await;
    let newest = observed
        .as_ref()
        .ok()
        .and_then(|observed| observed.newest.as_ref());
    if newest.is_some_and(|newest| !newest.is_authentic())
        && let Some((key, used)) = ctx.release_key.as_ref().zip(releases.keys())
        && let Some(newer) = key.newer(&used).await?
    {
        *releases = ctx.releases_by(Some(newer), composition, memory);
        observed = near_hints(composition, release, releases).await;
    }
    match observed {
        Ok(records) => Ok(Some(records)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(Error::Release(error)),
    }
}

/// The records of the release near the revisions that the composition names, tried in order until records are found.
async fn near_hints(
    composition: &Composition,
    release: &ReleaseName,
    releases: &Releases,
) -> Result<records::Observed, helm_client::release::Error> {
    let (namespace, name) = (&composition.namespace, release.as_str());
    let hints = composition.revision_hints();
    let (last, others) = hints.split_last().unwrap_or((&0, &[]));
    for hint in others {
        let observed = releases.observe(namespace, name, *hint).await?;
        if observed.newest.is_some() {
            return Ok(observed);
        }
    }
    releases.observe(namespace, name, *last).await
}

/// The objects of the stored revisions. For a revision that is not authentic, objects outside the bound are left out:
/// nothing is granted for them, and they stay.
async fn stored(
    release: ReleaseOf<'_>,
    records: Option<&records::Observed>,
    bound: OwnBound<'_>,
) -> Result<Stored, Error> {
    let mut stored = inspection::stored(release.releases, records)
        .await
        .map_err(Error::Release)?;
    let newest = records.and_then(|records| records.newest.as_ref());
    if newest.is_some_and(|newest| !newest.is_authentic()) {
        let home = &release.composition.namespace;
        stored.touched = bound.within(home, stored.touched).await?;
    }
    Ok(stored)
}

/// The state of the release. If somebody else deployed it and an upgrade might generate new passwords, the chart is
/// rendered a second time to find out.
async fn standing(
    release: ReleaseOf<'_>,
    granted: &[Resource],
    intention: Option<&Intention>,
    held: &mut Held,
    ctx: &Context,
) -> Result<Standing, Error> {
    let desired = intention.and_then(|intention| intention.desired.as_ref());
    let standing = release.standing(granted, held.records(), desired, &[]).await?;
    let (Some(intention), Some(desired), Some(_)) = (intention, desired, &standing.differs) else {
        return Ok(standing);
    };
    let subject = release.subject(&intention.chart, &ctx.schemas, &ctx.krateo_namespace);
    let bounds = bound::Written::new(ctx.own_bound());
    let judging = Judging::new(release.composition, &bounds, Renderer::Controller);
    let upon = held.outline().cloned();
    let another = subject.render(&ctx.cluster, upon.as_ref(), Leniency::default(), &judging);
    let key = Key::of_composition(release.composition);
    let another = held.waiting(&key, another, &ctx.queue).await?;
    held.read_again(release.releases).await?;
    standing
        .after_another_render(desired, &another.desired)
        .await
        .map_err(Error::Release)
}

/// What has to be within the bound. Permissions that are granted already are; but the object that they were granted for may
/// have been the chart's own, and now be one that values chose. A release keeps what it has, also if it would need
/// consent today. `stored` are the objects of the stored revisions, and `objects` those of the deployed one.
fn judged(
    composition: &Composition,
    intention: &Intention,
    stored: &[Resource],
    objects: &[ObjectId],
    records: Option<&records::Observed>,
    rights: &Rights,
) -> Vec<Resource> {
    let is_chosen = |needed: &Resource| needed.from_values && needed.namespace != composition.namespace;
    let deployed = records.and_then(records::Observed::deployed);
    let same = match (&intention.desired, deployed) {
        (Some(desired), Some(deployed)) if intention.touched.iter().any(is_chosen) => {
            same_objects(desired, deployed, objects)
        }
        _ => Vec::new(),
    };
    let is_same = |needed: &Resource| {
        same.iter().any(|id| {
            let kind = id.resource();
            needed.is(&kind.group, &kind.plural, id.namespace(), id.name())
        })
    };
    let all = intention.touched.iter().chain(stored).filter_map(|needed| {
        let from_values = is_chosen(needed) && !is_same(needed);
        let is_in_place = || rights.are_in_place() || is_kept(needed, &rights.granted);
        (from_values || !is_in_place()).then(|| Resource {
            from_values,
            ..needed.clone()
        })
    });
    all.collect()
}

/// True for an object of a kind that needs consent, which the release was granted before. Roles and bindings of the chart
/// are judged by the API server when they are written.
fn is_kept(needed: &Resource, granted: &[Grant]) -> bool {
    needed.group != "rbac.authorization.k8s.io"
        && chart_bound::is_ruling(&GroupResource::new(&needed.group, &needed.resource))
        && permissions::is_granted(granted, needed)
}

/// What is needed beyond the bound: for the objects that the chart touches, and to remove those that a former version
/// of it left, which may be of kinds that this version does not know.
async fn outside(
    composition: &Composition,
    touched: &[Resource],
    held: &mut Held,
    bound: OwnBound<'_>,
    queue: &Arc<Queue<Key>>,
) -> Result<Option<Outside>, Error> {
    // This waits for a namespace that is about to be opened.
    let outside = bound.outside(&composition.namespace, touched);
    let key = Key::of_composition(composition);
    Ok(held.waiting(&key, outside, queue).await?)
}

/// Reads a composition that is deleted with its namespace: only the objects of its release outside of it have to be
/// removed.
async fn outside_namespace(
    composition: &Composition,
    roles: Roles,
    objects: Vec<ObjectId>,
    mut granted: Vec<Grant>,
    memory: &mut Memory,
    bound: OwnBound<'_>,
    cluster: &Cluster,
) -> Result<Going, Error> {
    // Objects of a release that was cut off before the status listed them are known only from its roles.
    let mut unknown = reach(bound).await?;
    unknown.retain(|namespace| !granted.iter().any(|grant| grant.namespace() == namespace));
    let unknown = unknown.iter().map(String::as_str).collect();
    granted.extend(roles.read(unknown, cluster).await?);
    memory.granted = Packed::of(&granted);
    let elsewhere: Vec<Grant> = derive::elsewhere(&granted, composition).cloned().collect();
    let outlying = if roles.given_to_us(&elsewhere) == elsewhere {
        let outlying = going::outlying(composition, objects, &granted, roles.name(), cluster);
        Some(outlying.await?)
    } else {
        // They are bound to the controller before us.
        None
    };
    Ok(Going {
        roles,
        granted,
        outlying,
    })
}

#[cfg(test)]
pub(super) mod tests;
