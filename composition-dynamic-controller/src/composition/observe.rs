//! What there is of a composition: its definition and chart, what that renders to and needs, the permissions
//! that are granted, the release and its objects.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::inspection::{Query, Resource};
use api::{Composition, CompositionDefinition, DEFINITION_GROUP};
use charts::LoadedChart;
use cluster::{Health, ObjectId, ResourceId};
use composition::Bound;
use composition::bound::{GroupResource, Outside};
use composition::permissions::{Grant, role_name};
use composition::plan::{self, Home, Release};
use composition::release_name::InvalidReleaseName;
use composition::{Given, Permissions, ReleaseName, Ungoverned, rendering};
use helm_client::records;
use helm_client::release::drift::{DriftedObject, InvalidPolicy};
use helm_client::release::{self, Desired, Releases, UnservedType};
use helm_client::rendering::{self as render, Leniency, Lookup, Rendering};
pub(super) use inspection::told;
use inspection::{Bounds as _, Judging, Renderer, Standing, Stored, Subject, drift_policy, looked_up};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use runtime::telemetry;
use serde_json::Value;

use super::held::{self, Held};
use super::memory::{self, Memory};
use super::{Context, bound, going, naming};
use crate::compositions::Key;
use crate::figures::Part;
use crate::inspector;
use crate::lookups::Moment;
use crate::release_key;

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

/// What the pass wants, as it is worked out from definition, chart and render.
struct Intention {
    /// None of a fixed chart.
    definition: Option<(String, String)>,
    chart: Arc<LoadedChart>,
    /// None while the chart fails for want of what it may not read yet.
    desired: Option<Desired>,
    looks_up: Answers,
    /// Something that it looks up and that may not be read, though it is not there to refuse: until that is granted.
    unread: Option<String>,
    touched: Vec<Resource>,
}

/// What became of what a chart looked up.
#[derive(Default)]
struct Answers {
    /// When it was answered; none when nothing of it is watched.
    since: Option<Moment>,
    /// True when all of it is watched, Secrets aside.
    are_followed: bool,
    /// Secrets, which nobody watches.
    secrets: Vec<Lookup>,
}

impl Answers {
    /// Watches what a chart looked up, answered after `since`.
    async fn follow(lookups: &[Lookup], since: Moment, key: &Key, ctx: &Context) -> Self {
        let (secrets, others): (Vec<_>, Vec<_>) = lookups
            .iter()
            .cloned()
            .partition(|lookup| lookup.resource.is_secret());
        let are_followed = ctx.lookups.follow(key, &others, since).await;
        Self {
            since: (!others.is_empty()).then_some(since),
            are_followed,
            secrets,
        }
    }

    /// True when nothing of it can move unnoticed: of the Secrets, those of the release are compared with the others of its
    /// objects.
    fn are_known(&self, objects: &[(ObjectId, Health)]) -> bool {
        let is_own = |secret: &Lookup| {
            objects.iter().any(|(object, _)| {
                object.resource().is_secret()
                    && object.namespace() == Some(&secret.namespace)
                    && object.name() == secret.name
            })
        };
        self.are_followed && self.secrets.iter().all(is_own)
    }
}

impl Intention {
    /// What the release should be; `objects` are those that it has.
    fn wanted(self, objects: &[(ObjectId, Health)]) -> Option<Wanted> {
        Some(Wanted {
            chart: self.chart,
            desired: self.desired?,
            is_followed: self.looks_up.are_known(objects),
            answered: self.looks_up.since,
        })
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
    let given = naming::given(composition, ctx).await?;
    let release_name = ReleaseName::of(composition, given.name.as_deref(), ctx.safe_release_name)?;
    if composition.is_paused() || (composition.pause_has_taken_effect() && !composition.deleting) {
        return Ok(Observed::nothing(release_name, ctx.releases.clone()));
    }
    let mut releases = ctx.releases_of(composition).await?;
    let was_left = memory.left.take().is_some() && memory.records.is_some();
    let mut held = Held::new(match memory.records.take() {
        Some(records) => Some(records),
        None if is_new(composition) => first_records(composition, &given, ctx),
        None => records(composition, &release_name, &mut releases, ctx).await?,
    });
    let release = ReleaseOf {
        composition,
        name: &release_name,
        releases: &releases,
        granted: &[],
    };
    let intention = Box::pin(intention(release, &mut held, memory, ctx)).await?;
    let stored = stored(composition, &releases, held.records(), ctx).await?;
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
    let is_unnamed = is_new(composition) && is_of_uid(composition, &given, ctx);
    let granted = match known_grants(memory, &role).or(is_unnamed.then(Vec::new)) {
        Some(granted) => Ok(granted),
        None => granted_so_far(composition, &role, &permissions, &labels, ctx).await,
    };
    let granted = match granted {
        // What another composition has under the name is not ours to remove.
        Err(Error::Granted(foreign @ inspection::GrantsError::Foreign { .. })) if composition.deleting => {
            return Ok(Observed::of_another(foreign.to_string(), release_name, releases));
        }
        granted => memory.granted.insert(granted?).clone(),
    };
    if let Some(lookup) = unread(intention.as_ref(), needed == granted) {
        return Err(Error::Unread(lookup));
    }
    if composition.deleting
        && composition.is_held()
        && going::may_be(needed == granted, held.records(), stored.has_hooks)
        && going::is_going(&composition.namespace, &role, ctx).await?
    {
        let goes = Observed::nothing(release_name, releases);
        return leaving(composition, goes, stored.objects, granted, memory, ctx).await;
    }
    let mut standing = Box::pin(standing(release, &mut held, intention.as_ref(), ctx)).await?;
    if was_left && !(needed == granted && standing.release == Release::InSync) {
        // Nothing is done on what was read a while ago.
        return Box::pin(observe(composition, memory, ctx)).await;
    }
    // Where there is more to do than correct objects, they are looked at once that is done.
    let is_looked_at = needed == granted && (composition.deleting || !is_acted_upon(&standing.release));
    let (objects, drifted) = if is_looked_at {
        ctx.watches
            .follow(&Key::of_composition(composition), stored.objects.iter());
        Box::pin(look(release, held.records(), stored.objects, memory, ctx)).await?
    } else {
        (Vec::new(), Vec::new())
    };
    // Rights that are there already lie within the bound.
    let grows = intention.as_ref().filter(|_| needed != granted);
    let outside = outside(composition, grows, &stored.touched, &mut held, ctx).await?;
    held.read_again(&releases).await?;
    if !drifted.is_empty() {
        let drifted = release.standing(held.records(), intention.as_ref(), &drifted);
        standing = drifted.await?;
    }
    let (outlying, needed) = unrecorded(composition, &standing.release, &granted, needed, ctx).await?;
    Ok(Observed {
        facts: plan::Observed {
            definition: intention.as_ref().and_then(|it| it.definition.clone()),
            named: given.name,
            needed,
            granted,
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
    granted: &[Grant],
    needed: Vec<Grant>,
    ctx: &Context,
) -> Result<(Vec<ObjectId>, Vec<Grant>), Error> {
    let is_leaving = composition.deleting && composition.is_held();
    if !is_leaving || !matches!(release, Release::Absent | Release::Foreign(_)) {
        return Ok((Vec::new(), needed));
    }
    let mut outlying = going::told_by_grants(granted, ctx).await?;
    if *release == Release::Absent {
        let resource = ResourceId::of::<Namespace>();
        outlying.retain(|object| *object.resource() == resource);
    }
    if outlying.is_empty() {
        return Ok((outlying, needed));
    }
    let granted = granted.iter().cloned();
    let own = granted.map(|grant| grant.given_to(&ctx.account)).collect();
    Ok((outlying, own))
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
    let mut unknown = reach(ctx).await?;
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
        let outlying = going::outlying(composition, objects, &granted, &role, ctx).await?;
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
            needed,
            granted,
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
            needed: Vec::new(),
            granted: Vec::new(),
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
fn first_records(composition: &Composition, given: &Given, ctx: &Context) -> Option<records::Observed> {
    is_of_uid(composition, given, ctx).then(records::Observed::default)
}

/// True when the release's name has the composition's UID in it, so that no other composition has it.
fn is_of_uid(composition: &Composition, given: &Given, ctx: &Context) -> bool {
    ReleaseName::is_of_uid(composition, given.name.as_deref(), ctx.safe_release_name)
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

/// What the pass wants; nothing of a composition that goes.
async fn intention(
    release: ReleaseOf<'_>,
    held: &mut Held,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Option<Intention>, Error> {
    let ReleaseOf {
        composition,
        name: release,
        releases,
        granted: _,
    } = release;
    let key = Key::of_composition(composition);
    if composition.deleting {
        ctx.lookups.leave(&key);
        return Ok(None);
    }
    let source = ctx.origin.of(composition)?;
    let fetching = Box::pin(ctx.charts.get(&source.chart));
    let fetching = ctx.telemetry.time(telemetry::Part::Connect, fetching);
    // The source may be slow, and so may templates and the inspector.
    let chart = held.waiting(&key, fetching, &ctx.queue).await;
    let chart = chart.map_err(Error::Chart)?;
    let definition = source.definition();
    let question = source
        .definition
        .as_ref()
        .map(|definition| question(composition, release, definition, &chart, ctx));
    let is_news = memory.inspected.as_ref().map(|(question, _)| *question) != question;
    // Until what the chart looks up is granted, asking is no offence.
    let leniency = Leniency {
        ask_first: is_news || memory.granted.is_none(),
        ..Leniency::default()
    };
    let subject = subject(composition, release, &chart, ctx);
    let bounds = bound::Written::new(ctx);
    let judging = Judging::new(composition, &bounds, Renderer::Controller);
    // Before chart-inspector is asked: what the composition is held for is said by its own controller.
    let upon = held.outline().cloned();
    let since = ctx.lookups.now();
    let rendering = subject.render(&ctx.cluster, upon.as_ref(), leniency, &judging);
    let (rendering, lookups) = match held.waiting(&key, rendering, &ctx.queue).await {
        Ok(mut rendering) => {
            let lookups = std::mem::take(&mut rendering.lookups);
            (Some(rendering), lookups)
        }
        // What it looks up is granted first.
        Err(inspection::Error::Render(render::Error::Unanswered(unanswered))) => (None, unanswered.lookups),
        Err(error) => {
            // It may fail for what it was answered.
            Answers::follow(&judging.answered(), since, &key, ctx).await;
            let types = judging.unserved();
            return Err(if types.is_empty() {
                error.into()
            } else {
                Error::LookedUpUnserved { types, source: error }
            });
        }
    };
    let looks_up = Answers::follow(&lookups, since, &key, ctx).await;
    // Before anybody is asked about it: what an object of a type needs is not known before the type is.
    let own = match &rendering {
        Some(rendering) if is_news || !lookups.is_empty() => {
            Some(own_touched(&subject, rendering, &bounds, ctx).await?)
        }
        Some(_) | None => None,
    };
    let mut touched = match (&source.definition, question) {
        (Some(definition), Some(question)) => {
            inspected(composition, release, definition, question, held, memory, ctx).await?
        }
        // chart-inspector renders charts of definitions and no others.
        _ => Vec::new(),
    };
    // Our own render may go beyond the answer: the inspector reads less than we do.
    if touched.is_empty() || !lookups.is_empty() {
        let own = match (own, &rendering) {
            (None, Some(rendering)) => own_touched(&subject, rendering, &bounds, ctx).await?,
            (own, _) => own.unwrap_or_default(),
        };
        touched.extend(own);
    }
    touched.extend(lookups.iter().map(looked_up));
    let unread = lookups.iter().find(|lookup| lookup.denied);
    let unread = unread.map(|lookup| lookup.resource.to_string());
    held.read_again(releases).await?;
    Ok(Some(Intention {
        definition,
        chart,
        desired: rendering.map(|rendering| rendering.desired),
        looks_up,
        unread,
        touched,
    }))
}

/// What the composition's own render touches.
async fn own_touched(
    subject: &Subject<'_>,
    rendering: &Rendering,
    bounds: &bound::Written<'_>,
    ctx: &Context,
) -> Result<Vec<Resource>, Error> {
    match subject.touched(&ctx.cluster, rendering).await {
        Ok(touched) => Ok(touched),
        Err(error) => Err(unplaced(error, bounds).await?),
    }
}

/// Why the objects of a render have no place. Of types that are not served, those may be told that are the chart's own
/// words: where their names may be made of what it looked up, those that the bound has.
async fn unplaced(error: inspection::Error, bounds: &bound::Written<'_>) -> Result<Error, Error> {
    let Some(types) = error.unserved() else {
        return Ok(error.into());
    };
    let types = types.to_vec();
    let is_withheld = matches!(error, inspection::Error::UnservedWithheld(_));
    let bound = if is_withheld { bounds.bound().await? } else { None };
    let told =
        |missing: &UnservedType| !is_withheld || bound.as_ref().is_none_or(|bound| has_type(bound, missing));
    let (told, withheld): (Vec<_>, Vec<_>) = types.iter().partition(|missing| told(missing));
    let mut told: Vec<String> = told.iter().map(ToString::to_string).collect();
    if !withheld.is_empty() {
        told.push(format!(
            "{} types whose names are withheld, because the chart was answered what it looked up",
            withheld.len()
        ));
    }
    let told = told.join(", ");
    Ok(Error::Unserved { told, types })
}

/// True for a type that the bound has, in a version that looks like one.
fn has_type(bound: &Bound, missing: &UnservedType) -> bool {
    let version = missing.api_version.rsplit('/').next().unwrap_or_default();
    let Ok(names) = crdgen::Names::of_chart(&missing.kind) else {
        return false;
    };
    let kind = GroupResource::new(missing.group(), &names.plural);
    names.kind == missing.kind
        && is_version(version)
        && (bound.namespaced.contains(&kind) || bound.cluster.contains(&kind))
}

/// True for `v1`, `v1beta2` and `v1-20-3`.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => is_number(major) && is_number(minor),
        None => is_number(rest),
    }
}

/// A digest of what chart-inspector is asked.
fn question(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    chart: &LoadedChart,
    ctx: &Context,
) -> u64 {
    // The schema by which they are read comes with the chart, for which its digest stands.
    let values = rendering::values(composition, None, &ctx.krateo_namespace);
    let mut hasher = DefaultHasher::new();
    (
        &chart.digest,
        release.as_str(),
        (definition.namespace(), definition.name_any()),
        values,
    )
        .hash(&mut hasher);
    hasher.finish()
}

/// What chart-inspector says the chart would touch. The same question is asked once.
async fn inspected(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    question: u64,
    held: &mut Held,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Vec<Resource>, Error> {
    if let Some((asked, answer)) = &memory.inspected
        && *asked == question
    {
        return Ok(answer.clone());
    }
    let query = query(composition, release, definition, &ctx.resource);
    let asking = ctx.inspector.resources(&query);
    let asking = ctx.parts.time(Part::ChartInspector, asking);
    let key = Key::of_composition(composition);
    let answer = held.waiting(&key, asking, &ctx.queue).await;
    let answer = answer.map_err(Error::Inspect)?;
    memory.inspected = Some((question, answer.clone()));
    Ok(answer)
}

fn query(
    composition: &Composition,
    release: &ReleaseName,
    definition: &CompositionDefinition,
    resource: &ResourceId,
) -> Query {
    Query {
        composition_name: composition.name.clone(),
        composition_namespace: composition.namespace.clone(),
        composition_version: resource.version.clone(),
        composition_resource: resource.plural.clone(),
        release_name: Some(release.to_string()),
        composition_group: resource.group.clone(),
        composition_definition_namespace: definition.namespace().unwrap_or_default(),
        composition_definition_name: definition.name_any(),
        composition_definition_resource_version: definition.resource_version(),
        composition_definition_group: DEFINITION_GROUP.to_owned(),
        composition_definition_version: "v1alpha1".to_owned(),
        composition_definition_resource: "compositiondefinitions".to_owned(),
    }
}

/// What is needed beyond the bound: for what the chart touches, and for what a former version of it left, which has to be
/// removed and may be of kinds that this one knows nothing of. Nothing without an intention.
async fn outside(
    composition: &Composition,
    intention: Option<&Intention>,
    stored: &[Resource],
    held: &mut Held,
    ctx: &Context,
) -> Result<Option<Outside>, Error> {
    let Some(intention) = intention else {
        return Ok(None);
    };
    let all = [&intention.touched[..], stored].concat();
    // A namespace that is about to be opened is waited for.
    let outside = bound::outside(&composition.namespace, &all, ctx);
    let key = Key::of_composition(composition);
    Ok(held.waiting(&key, outside, &ctx.queue).await?)
}

/// The grants that are remembered, unless they are of another role name: a composition can be given another release name.
fn known_grants(memory: &Memory, role: &str) -> Option<Vec<Grant>> {
    let granted = memory.granted.as_ref()?;
    granted
        .iter()
        .all(|grant| grant.name() == role)
        .then(|| granted.clone())
}

/// The Roles and bindings that are there under the release's role name: where they are needed, and where the
/// release had objects when it was looked at last.
async fn granted_so_far(
    composition: &Composition,
    role: &str,
    needed: &Permissions,
    labels: &BTreeMap<String, String>,
    ctx: &Context,
) -> Result<Vec<Grant>, Error> {
    // What was cut off before the status knew of it is to be found all the same when it goes.
    let reach = if composition.deleting && composition.status.managed.is_empty() {
        reach(ctx).await?
    } else {
        BTreeSet::new()
    };
    let had = composition.status.managed.iter();
    let had = had.map(|object| object.namespace.as_str());
    let namespaces = needed
        .namespaces()
        .chain(had)
        .chain(reach.iter().map(String::as_str));
    Ok(inspection::granted(&ctx.cluster, namespaces.collect(), role, labels).await?)
}

/// Where a release of this type can have roles besides the composition's namespace; the empty one is the cluster.
async fn reach(ctx: &Context) -> Result<BTreeSet<String>, cluster::Error> {
    let mut namespaces = bound::written(ctx).await?.namespaces;
    namespaces.insert(String::new());
    Ok(namespaces)
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
    let subject = subject(release.composition, release.name, &intention.chart, ctx);
    let bounds = bound::Written::new(ctx);
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

fn subject<'a>(
    composition: &'a Composition,
    release: &'a ReleaseName,
    chart: &'a LoadedChart,
    ctx: &'a Context,
) -> Subject<'a> {
    Subject {
        composition,
        chart,
        release,
        schemas: &ctx.schemas,
        krateo_namespace: &ctx.krateo_namespace,
    }
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
    ctx: &Context,
) -> Result<Stored, Error> {
    let mut stored = inspection::stored(releases, records)
        .await
        .map_err(Error::Release)?;
    let newest = records.and_then(|records| records.newest.as_ref());
    if newest.is_some_and(|newest| !newest.is_authentic()) {
        stored.touched = bound::within(&composition.namespace, stored.touched, ctx).await?;
    }
    Ok(stored)
}

/// True when the release is about to be written, whatever its objects are like.
fn is_acted_upon(release: &Release) -> bool {
    match release {
        Release::Absent
        | Release::OutOfSync(_)
        | Release::Unsigned
        | Release::WouldDrawAnew { .. }
        | Release::Failed(_)
        | Release::Interrupted(_) => true,
        Release::Unreadable
        | Release::Foreign(_)
        | Release::InSync
        | Release::Drifted(_)
        | Release::Locked(_)
        | Release::Resting(_) => false,
    }
}

/// How the objects are, and, while the newest revision is deployed, which of them are not as they were applied. What has
/// not moved since it was looked at last is not looked at again.
async fn look(
    release: ReleaseOf<'_>,
    records: Option<&records::Observed>,
    objects: Vec<ObjectId>,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<(Vec<(ObjectId, Health)>, Vec<DriftedObject>), Error> {
    let ReleaseOf {
        composition,
        releases,
        name: _,
        granted: _,
    } = release;
    let compared = records.and_then(|records| inspection::compared(composition, records));
    let Some(record) = compared.filter(|_| !composition.deleting) else {
        return Ok((health(objects, memory, ctx).await?, Vec::new()));
    };
    let policy = drift_policy(composition).map_err(Error::DriftPolicy)?;
    memory.objects.keep(&objects);
    let unmoved: HashSet<ObjectId> = objects
        .iter()
        .filter(|id| {
            memory
                .objects
                .unmoved(id, &ctx.watches)
                .is_some_and(|looked| !looked.drifted)
        })
        .cloned()
        .collect();
    let look = releases
        .look_but_at(&unmoved, record, &policy)
        .await
        .map_err(Error::Release)?;
    let mut missing = BTreeMap::new();
    for looked in look.objects {
        if let Some(live) = &looked.live {
            memory.objects.look(looked.id, live, looked.health);
        } else {
            memory.objects.forget(&looked.id);
            missing.insert(looked.id, looked.health);
        }
    }
    for drifted in &look.drifted {
        memory.objects.note_drift(&drifted.object);
    }
    let health = |id: &ObjectId| match (memory.objects.get(id), missing.get(id)) {
        (Some(looked), _) => looked.health.clone(),
        (None, Some(health)) => health.clone(),
        (None, None) => Health::NotFound,
    };
    let found = objects.into_iter().map(|id| {
        let health = health(&id);
        (id, health)
    });
    Ok((found.collect(), look.drifted))
}

/// How the objects are. What has not moved since it was looked at last is not looked at again.
async fn health(
    objects: Vec<ObjectId>,
    memory: &mut Memory,
    ctx: &Context,
) -> Result<Vec<(ObjectId, Health)>, Error> {
    memory.objects.keep(&objects);
    let mut found = Vec::with_capacity(objects.len());
    for id in objects {
        let health = if let Some(looked) = memory.objects.unmoved(&id, &ctx.watches) {
            looked.health.clone()
        } else if let Some(live) = ctx.cluster.get::<Value>(&id).await? {
            let health = cluster::health(&live);
            memory.objects.look(id.clone(), &live, health.clone());
            health
        } else {
            memory.objects.forget(&id);
            Health::NotFound
        };
        found.push((id, health));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_may_be_made_of_an_answer_is_told_where_the_bound_has_it() {
        let mut bound = Bound::default();
        for kind in ["composition.krateo.io/frontends", "example.org/shops"] {
            bound.namespaced.insert(kind.parse().unwrap());
        }
        for (api_version, kind, is_told) in [
            ("composition.krateo.io/v1-0-12", "Frontend", true),
            ("example.org/v1", "Shop", true),
            ("example.org/v1beta2", "Shop", true),
            ("example.org/hunter2", "Shop", false),
            ("example.org/v", "Shop", false),
            ("example.org/v1hunter2", "Shop", false),
            ("example.org/v1", "Hunter2", false),
            ("example.org/v1", "sHOP", false),
            ("hunter2.org/v1", "Shop", false),
        ] {
            let missing = UnservedType {
                api_version: api_version.into(),
                kind: kind.into(),
            };
            assert_eq!(has_type(&bound, &missing), is_told, "{missing}");
        }
    }
}
