//! What there is of a composition: its definition and chart, what that renders to and needs, the permissions
//! that are granted, the release and its objects.

mod grants;
mod intention;
mod objects;
mod touched;

use std::sync::Arc;
use std::time::Duration;

use api::Composition;
use api::inspection::Resource;
use charts::LoadedChart;
use cluster::{Health, ObjectId, ResourceId};
use composition::bound::Outside;
use composition::permissions::{Grant, role_name};
use composition::plan::{self, Home, Release, Rights};
use composition::release_name::InvalidReleaseName;
use composition::{Given, Permissions, ReleaseName, Ungoverned, rendering};
use helm_client::records;
use helm_client::release::drift::{DriftedObject, InvalidPolicy};
use helm_client::release::{self, Desired, Releases, UnservedType};
use helm_client::rendering::Leniency;
pub(super) use inspection::told;
use inspection::{Judging, Renderer, Standing, Stored};
use k8s_openapi::api::core::v1::Namespace;
use runtime::queue::Queue;

use super::bound::{self, OwnBound};
use super::held::{self, Held};
use super::memory::{self, Memory};
use super::{Context, going, naming};
use crate::compositions::Key;
use crate::figures::Part;
use crate::inspector;
use crate::lookups::Moment;
use crate::release_key;
use grants::{granted_so_far, known_grants, reach};
use intention::{Intention, intention, subject};
use objects::look;

/// What a pass saw.
pub(super) struct Observed {
    /// What the plan is made from.
    pub(super) facts: plan::Observed,
    pub(super) release_name: ReleaseName,
    /// The releases, as they are acted on for this composition.
    pub(super) releases: Releases,
    /// What the release should be; `None` while deleting.
    pub(super) wanted: Option<Wanted>,
    /// Its records; `None` when they may not be read yet.
    pub(super) records: Option<records::Observed>,
    /// The objects of the deployed revision, and how they are.
    pub(super) objects: Vec<(ObjectId, Health)>,
    /// Those of them that are not as they were applied.
    pub(super) drifted: Vec<DriftedObject>,
    /// When a failed action is tried again, if it is by itself.
    pub(super) retry_in: Option<Duration>,
    /// Objects that may be of the composition and that no record of its own names: those outside its namespace, when that
    /// goes, and those that its permissions name, when its record was replaced.
    pub(super) outlying: Vec<ObjectId>,
    /// Why the release has not the name that the definition says.
    pub(super) ignored_name: Option<String>,
}

/// What the release should be.
pub(super) struct Wanted {
    pub(super) chart: Arc<LoadedChart>,
    pub(super) desired: Desired,
    /// True when what the chart looks up is watched, or compared with the objects of the release.
    pub(super) is_followed: bool,
    /// When it was answered; none when nothing of it is watched.
    pub(super) answered: Option<Moment>,
}

/// A composition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the composition's release has no usable name")]
    ReleaseName(#[from] InvalidReleaseName),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
    #[error(transparent)]
    Ungoverned(#[from] Ungoverned),
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error(transparent)]
    Render(#[from] inspection::Error),
    #[error("could not find out which objects the chart would touch")]
    Inspect(#[source] inspector::Error),
    #[error(
        "the chart looks up {0}, which may not be read although the release's role allows it: the release is left as it is \
         until that is in force"
    )]
    Unread(String),
    #[error(
        "waiting for {told}, not served by the API server: nothing of the release is written until it is"
    )]
    Unserved {
        /// The types, as they may be told.
        told: String,
        types: Vec<UnservedType>,
    },
    #[error("could not answer what the chart looks up")]
    LookedUpUnserved {
        /// The types that are not served.
        types: Vec<UnservedType>,
        source: inspection::Error,
    },
    #[error(transparent)]
    Held(#[from] held::Error),
    #[error("could not look at the release")]
    Release(#[source] release::Error),
    #[error("could not tell which records of the release are the controller's own")]
    ReleaseKey(#[from] release_key::Error),
    #[error(transparent)]
    Granted(#[from] inspection::GrantsError),
    #[error("annotation krateo.io/drift of the composition cannot be read")]
    DriftPolicy(#[source] InvalidPolicy),
}

impl Error {
    /// The types that are waited for.
    pub(crate) fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Unserved { types, .. } | Self::LookedUpUnserved { types, .. } => Some(types),
            _ => None,
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_transient(),
            Self::Chart(error) => error.is_transient(),
            Self::Render(error) | Self::LookedUpUnserved { source: error, .. } => error.is_transient(),
            Self::Inspect(error) => error.is_transient(),
            Self::Release(error) => error.is_transient(),
            Self::Held(error) => error.is_transient(),
            Self::ReleaseKey(error) => error.is_transient(),
            Self::Granted(error) => error.is_transient(),
            // The definition may be applied, or be ready, a moment later; a role may be put back.
            Self::Ungoverned(Ungoverned::ByNone { .. }) | Self::Unread(_) => true,
            // A watch tells when they come.
            Self::Unserved { .. }
            | Self::ReleaseName(_)
            | Self::DriftPolicy(_)
            | Self::Ungoverned(Ungoverned::BySeveral { .. } | Ungoverned::ByForeign { .. }) => false,
        }
    }
}

/// The release of a composition.
#[derive(Clone, Copy)]
struct ReleaseOf<'a> {
    composition: &'a Composition,
    name: &'a ReleaseName,
    releases: &'a Releases,
    /// What it will be granted, or is.
    granted: &'a [Resource],
}

impl<'a> ReleaseOf<'a> {
    fn granted(self, granted: &'a [Resource]) -> Self {
        Self { granted, ..self }
    }

    /// How it stands to what is wanted.
    async fn standing(
        &self,
        records: Option<&records::Observed>,
        intention: Option<&Intention>,
        drifted: &[DriftedObject],
    ) -> Result<Standing, Error> {
        let desired = intention.and_then(|intention| intention.desired.as_ref());
        let standing = inspection::standing(
            self.releases,
            self.composition,
            desired,
            records,
            Some(self.granted),
            drifted,
        );
        standing.await.map_err(Error::Release)
    }
}

/// A digest of what a pass over the composition is made from.
pub(super) fn inputs(composition: &Composition, told: u64, ctx: &Context) -> u64 {
    memory::inputs(composition, told, ctx.origin.of(composition).ok().as_ref())
}

/// Looks at everything a plan is made from; never writes.
pub(super) async fn observe(
    composition: &Composition,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Observed, Error> {
    let given = naming::given(
        composition,
        &ctx.origin,
        &ctx.resource,
        ctx.namespace.as_deref(),
        &ctx.cluster,
    )
    .await?;
    let release_name = ReleaseName::of(composition, given.name.as_deref(), ctx.safe_release_name)?;
    if plan::paused(composition).is_some() {
        return Ok(Observed::nothing(release_name, ctx.releases.clone()));
    }
    let mut releases = ctx.releases_of(composition).await?;
    let was_left = memory.left.take().is_some() && memory.records.is_some();
    let mut held = Held::new(match memory.records.take() {
        Some(records) => Some(records),
        None if is_new(composition) => first_records(composition, &given, ctx.safe_release_name),
        None => records(composition, &release_name, &mut releases, ctx).await?,
    });
    let release = ReleaseOf {
        composition,
        name: &release_name,
        releases: &releases,
        granted: &[],
    };
    let intention = Box::pin(intention(release, &mut held, memory, ctx)).await?;
    let stored = stored(composition, &releases, held.records(), OwnBound::of(ctx)).await?;
    let release = release.granted(&stored.touched);
    let role = role_name(&ctx.resource.plural, &composition.namespace, &release_name);
    let labels = rendering::object_labels(composition, &ctx.krateo_namespace);
    let (permissions, needed) = ctx.parts.timed(Part::RbacGeneration, || {
        let permissions = inspection::permissions(
            composition,
            &release_name,
            intention.as_ref().map_or(&[], |intention| &intention.touched),
            &stored.touched,
            held.records(),
            ctx.max_history,
        );
        let needed = permissions.grants(&role, &ctx.account, &labels);
        (permissions, needed)
    });
    let is_unnamed = is_new(composition) && is_of_uid(composition, &given, ctx.safe_release_name);
    let granted = match known_grants(memory, &role).or(is_unnamed.then(Vec::new)) {
        Some(granted) => Ok(granted),
        None => {
            granted_so_far(
                composition,
                &role,
                &permissions,
                &labels,
                OwnBound::of(ctx),
                &ctx.cluster,
            )
            .await
        }
    };
    let granted = match granted {
        // What another composition has under the name is not ours to remove.
        Err(Error::Granted(foreign @ inspection::GrantsError::Foreign { .. })) if composition.deleting => {
            return Ok(Observed::of_another(foreign.to_string(), release_name, releases));
        }
        granted => memory.granted.insert(granted?).clone(),
    };
    let rights = Rights { needed, granted };
    if let Some(lookup) = unread(intention.as_ref(), rights.are_in_place()) {
        return Err(Error::Unread(lookup));
    }
    if composition.deleting
        && composition.is_held()
        && going::may_be(rights.are_in_place(), held.records(), stored.has_hooks)
        && going::is_going(&composition.namespace, &role, &ctx.cluster).await?
    {
        let goes = Observed::nothing(release_name, releases);
        return leaving(composition, goes, stored.objects, rights.granted, memory, ctx).await;
    }
    let mut standing = Box::pin(standing(release, &mut held, intention.as_ref(), ctx)).await?;
    if was_left && !(rights.are_in_place() && standing.release == Release::InSync) {
        // Nothing is done on what was read a while ago.
        return Box::pin(observe(composition, memory, ctx)).await;
    }
    // Where there is more to do than correct objects, they are looked at once that is done.
    let is_looked_at = rights.are_in_place() && (composition.deleting || !standing.release.is_acted_upon());
    let (objects, drifted) = if is_looked_at {
        ctx.watches
            .follow(&Key::of_composition(composition), stored.objects.iter());
        Box::pin(look(
            release,
            held.records(),
            stored.objects,
            &mut memory.objects,
            &ctx.watches,
            &ctx.cluster,
        ))
        .await?
    } else {
        (Vec::new(), Vec::new())
    };
    // Rights that are there already lie within the bound.
    let grows = intention.as_ref().filter(|_| !rights.are_in_place());
    let outside = outside(
        composition,
        grows,
        &stored.touched,
        &mut held,
        OwnBound::of(ctx),
        &ctx.queue,
    )
    .await?;
    held.read_again(&releases).await?;
    if !drifted.is_empty() {
        let drifted = release.standing(held.records(), intention.as_ref(), &drifted);
        standing = drifted.await?;
    }
    let (outlying, rights) = unrecorded(composition, &standing.release, rights, ctx).await?;
    Ok(Observed {
        facts: plan::Observed {
            definition: intention.as_ref().and_then(|it| it.definition.clone()),
            named: given.name,
            rights,
            growth: ctx.growth,
            outside,
            release: standing.release,
            home: Home::Stays,
            unrecorded: outlying.iter().map(ToString::to_string).collect(),
        },
        outlying,
        retry_in: standing.retry_in,
        wanted: intention.and_then(|intention| intention.wanted(&objects)),
        records: held.into_records(),
        objects,
        drifted,
        ignored_name: given.ignored,
        ..Observed::nothing(release_name, releases)
    })
}

/// What roles alone tell of objects to remove, since there is no record of the release, or none of ours. Where there is none
/// those are namespaces that the chart brings, which are made before the first record; everything else that a release has
/// went before its last record, or stays as hooks do. With what they are removed by, which the controller before us may have
/// had; without any, what is `needed` stays.
async fn unrecorded(
    composition: &Composition,
    release: &Release,
    rights: Rights,
    ctx: &Context,
) -> Result<(Vec<ObjectId>, Rights), Error> {
    let is_leaving = composition.deleting && composition.is_held();
    if !is_leaving || !release.is_unrecorded() {
        return Ok((Vec::new(), rights));
    }
    let mut outlying = going::told_by_grants(&rights.granted, &ctx.cluster).await?;
    if *release == Release::Absent {
        let resource = ResourceId::of::<Namespace>();
        outlying.retain(|object| *object.resource() == resource);
    }
    if outlying.is_empty() {
        return Ok((outlying, rights));
    }
    let granted = rights.granted.iter().cloned();
    let needed = granted.map(|grant| grant.given_to(&ctx.account)).collect();
    Ok((outlying, Rights { needed, ..rights }))
}

/// A composition that is deleted with its namespace: what the release has outside of it is all there is to remove.
async fn leaving(
    composition: &Composition,
    goes: Observed,
    objects: Vec<ObjectId>,
    mut granted: Vec<Grant>,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Observed, Error> {
    let role = role_name(&ctx.resource.plural, &composition.namespace, &goes.release_name);
    let labels = rendering::object_labels(composition, &ctx.krateo_namespace);
    // What was cut off before the status knew of it is known from its roles alone.
    let mut unknown = reach(OwnBound::of(ctx)).await?;
    unknown.retain(|namespace| !granted.iter().any(|grant| grant.namespace() == namespace));
    let unknown = unknown.iter().map(String::as_str).collect();
    granted.extend(inspection::granted(&ctx.cluster, unknown, &role, &labels).await?);
    memory.granted = Some(granted.clone());
    let elsewhere = granted
        .iter()
        .filter(|grant| grant.namespace() != composition.namespace);
    let own: Vec<Grant> = elsewhere
        .clone()
        .map(|grant| grant.clone().given_to(&ctx.account))
        .collect();
    let (outlying, needed) = if elsewhere.eq(&own) {
        let outlying = going::outlying(composition, objects, &granted, &role, &ctx.cluster).await?;
        let removed: Vec<Resource> = outlying.iter().map(inspection::removed).collect();
        let needed = Permissions::of_resources(&removed).grants(&role, &ctx.account, &labels);
        (outlying, needed)
    } else {
        // The controller before us had them.
        (Vec::new(), own)
    };
    let told = outlying.iter().map(ToString::to_string).collect();
    Ok(Observed {
        facts: plan::Observed {
            rights: Rights { needed, granted },
            home: Home::Goes(told),
            ..Observed::facts_of_nothing()
        },
        outlying,
        ..goes
    })
}

impl Observed {
    /// A paused composition: nothing is looked at.
    fn nothing(release_name: ReleaseName, releases: Releases) -> Self {
        Self {
            facts: Self::facts_of_nothing(),
            release_name,
            releases,
            wanted: None,
            records: None,
            objects: Vec::new(),
            drifted: Vec::new(),
            retry_in: None,
            outlying: Vec::new(),
            ignored_name: None,
        }
    }

    /// A composition whose release's name is another's: there is nothing of its own.
    fn of_another(why: String, release_name: ReleaseName, releases: Releases) -> Self {
        let mut nothing = Self::nothing(release_name, releases);
        nothing.facts.release = Release::Foreign(why);
        nothing
    }

    fn facts_of_nothing() -> plan::Observed {
        plan::Observed {
            definition: None,
            named: None,
            rights: Rights::default(),
            growth: plan::Growth::default(),
            outside: None,
            release: Release::Unreadable,
            home: Home::Stays,
            unrecorded: Vec::new(),
        }
    }
}

/// True when no pass has ever acted for the composition: our finalizer comes before anything else.
fn is_new(composition: &Composition) -> bool {
    !composition.is_held() && composition.revision_hint().is_none()
}

/// Nothing was ever granted for it, so there is nothing that may be read; nor is there a release, unless its name could
/// be another's. One that is there all the same is met when the first record is made.
fn first_records(composition: &Composition, given: &Given, is_safe: bool) -> Option<records::Observed> {
    is_of_uid(composition, given, is_safe).then(records::Observed::default)
}

/// True when the release's name has the composition's UID in it, so that no other composition has it.
fn is_of_uid(composition: &Composition, given: &Given, is_safe: bool) -> bool {
    ReleaseName::is_of_uid(composition, given.name.as_deref(), is_safe)
}

/// The records of the release; `None` while its Role does not let us read them. One that the key does not authenticate may
/// be signed with a newer one.
async fn records(
    composition: &Composition,
    release: &ReleaseName,
    releases: &mut Releases,
    ctx: &Context,
) -> Result<Option<records::Observed>, Error> {
    let hint = composition.revision_hint().unwrap_or(0);
    let (namespace, name) = (&composition.namespace, release.as_str());
    let mut observed = releases.observe(namespace, name, hint).await;
    let newest = observed
        .as_ref()
        .ok()
        .and_then(|observed| observed.newest.as_ref());
    if newest.is_some_and(|newest| !newest.is_authentic())
        && let Some((key, used)) = ctx.release_key.as_ref().zip(releases.keys())
        && let Some(newer) = key.newer(&used).await?
    {
        *releases = ctx.releases_by(Some(newer), composition);
        observed = releases.observe(namespace, name, hint).await;
    }
    match observed {
        Ok(records) => Ok(Some(records)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(Error::Release(error)),
    }
}

/// What is needed beyond the bound: for what the chart touches, and for what a former version of it left, which has to be
/// removed and may be of kinds that this one knows nothing of. Nothing without an intention.
async fn outside(
    composition: &Composition,
    intention: Option<&Intention>,
    stored: &[Resource],
    held: &mut Held,
    bound: OwnBound<'_>,
    queue: &Arc<Queue<Key>>,
) -> Result<Option<Outside>, Error> {
    let Some(intention) = intention else {
        return Ok(None);
    };
    let all = [&intention.touched[..], stored].concat();
    // A namespace that is about to be opened is waited for.
    let outside = bound.outside(&composition.namespace, &all);
    let key = Key::of_composition(composition);
    Ok(held.waiting(&key, outside, queue).await?)
}

/// How the release stands. Where somebody else deployed it and an upgrade might draw passwords anew, the chart is rendered
/// once more to find out.
async fn standing(
    release: ReleaseOf<'_>,
    held: &mut Held,
    intention: Option<&Intention>,
    ctx: &Context,
) -> Result<Standing, Error> {
    let standing = release.standing(held.records(), intention, &[]).await?;
    let (Some(intention), Some(_)) = (intention, &standing.differs) else {
        return Ok(standing);
    };
    let Some(desired) = &intention.desired else {
        return Ok(standing);
    };
    let subject = subject(
        release.composition,
        release.name,
        &intention.chart,
        &ctx.schemas,
        &ctx.krateo_namespace,
    );
    let bounds = bound::Written::new(OwnBound::of(ctx));
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

/// A lookup that the render lacks the answer to although all is granted.
fn unread(intention: Option<&Intention>, is_granted: bool) -> Option<String> {
    intention
        .filter(|_| is_granted)
        .and_then(|intention| intention.unread.clone())
}

/// What the stored revision has. Of one that somebody else made, what lies beyond the bound is left out: nothing is granted
/// for it, and it stays where it is.
async fn stored(
    composition: &Composition,
    releases: &Releases,
    records: Option<&records::Observed>,
    bound: OwnBound<'_>,
) -> Result<Stored, Error> {
    let mut stored = inspection::stored(releases, records)
        .await
        .map_err(Error::Release)?;
    let newest = records.and_then(|records| records.newest.as_ref());
    if newest.is_some_and(|newest| !newest.is_authentic()) {
        stored.touched = bound.within(&composition.namespace, stored.touched).await?;
    }
    Ok(stored)
}
