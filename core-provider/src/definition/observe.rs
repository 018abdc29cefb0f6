//! What there is of a definition: its chart, the type in the API server, the controllers, the compositions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::definition::{BoundStatus, Breaker, ResolvedChart};
use api::{COMPOSITION_GROUP, CompositionDefinition, annotations, conditions, labels};
use charts::LoadedChart;
use cluster::{Access, Apply, Cluster, ObjectId, ResourceId, Selector};
use composition::bound::{Bound, Resolved};
use composition::serves;
use crdgen::conversion::{self, Changes, Conversion};
use crdgen::{BadDefaults, CustomResourceDefinition, JSONSchemaProps, Names, ServedVersion, Structural};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use helm::context::Deadline;
use helm::engine::Engine;
use helm_client::rendering::{Busy, PLACE_TIMEOUT, Pool, RENDER_TIMEOUT};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::admission::Probe;
use super::carried::carry;
use super::controllers::{self, Controller, Owner};
use super::gate::Gate;
use super::instances::{self, Claim, Instance, Page};
use super::relocation::{Relocation, relocation, running};
use super::resolution::{Resolution, resolve};
use super::{Context, FIELD_MANAGER, release_key};
use crate::bound;
use crate::bundle::{self, Stage, Target, bundle};
use crate::grants::{accesses, grants, secrets};
use crate::webhook::{Registration, Shares, conversion_path};

/// How many objects of a bundle are looked at at once.
const LOOKED_AT_AT_ONCE: usize = 8;

/// What a pass saw.
pub(crate) enum Observed {
    /// The user asked to stop: nothing was looked at.
    Paused,
    /// The Secrets that fetching the chart takes may not be read yet.
    Locked(Locked),
    /// A Secret of another namespace may not be used, or not any more.
    Barred(Barred),
    /// The definition is to be carried out.
    Wanted(Box<Wanted>),
    /// The definition is being deleted. The chart is not needed for that, nor its registry.
    Leaving(Leaving),
}

/// A definition whose Secrets may not be read yet.
pub(crate) struct Locked {
    /// The Roles that let us read them.
    pub(crate) grants: Vec<Member>,
    /// What those allow.
    pub(crate) needed: Vec<Access>,
}

/// A definition whose chart takes a Secret that does not allow it.
pub(crate) struct Barred {
    /// What lets the controllers read Secrets of other namespaces.
    pub(crate) grants: Vec<ObjectId>,
    pub(crate) why: Error,
}

/// The chart of a definition, and the type that it gives.
pub(crate) struct Source {
    pub(crate) chart: Arc<LoadedChart>,
    /// What the spec stands for.
    pub(crate) resolved: ResolvedChart,
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    pub(crate) structural: Structural,
    /// What changed in the chart's values since which version.
    pub(crate) changes: Changes,
}

/// A definition that is to be carried out.
pub(crate) struct Wanted {
    pub(crate) source: Source,
    /// The type as it is in the API server.
    pub(crate) live: Option<CustomResourceDefinition>,
    /// The type with this version in it; equal to `live` when nothing is to be done.
    pub(crate) next: CustomResourceDefinition,
    /// True when the type has this version already, made from another schema.
    pub(crate) is_republished: bool,
    /// The definition that already serves this very type.
    pub(crate) taken_by: Option<String>,
    pub(crate) bundle: Vec<Member>,
    /// The controller that the bundle runs.
    pub(crate) target: Target,
    /// The most that it may be given, as the status says it.
    pub(crate) bound: BoundStatus,
    /// The controller runs in another namespace than it should.
    pub(crate) relocation: Option<Relocation>,
    /// Roles for Secrets, and their bindings, that the definition needed before.
    pub(crate) stale: Vec<ObjectId>,
    /// True when the controller's Deployment says it is available.
    pub(crate) is_available: bool,
    /// What tells when the API server takes objects of the type, while it does not.
    pub(crate) unadmitted: Option<Probe>,
    /// The version that the definition ran before this one.
    pub(crate) previous: Option<String>,
    /// What of its former versions is left.
    pub(crate) former: Former,
    /// A version that no definition and no composition needs any more.
    pub(crate) unused: Option<Unused>,
}

/// What is left of a definition's former versions.
#[derive(Default)]
pub(crate) struct Former {
    /// False while we may not read compositions, so that not all of it is known.
    pub(crate) known: bool,
    /// The objects of their controllers, in the order in which they are removed.
    pub(crate) bundles: Vec<ObjectId>,
    /// Former types, of charts of another name, that nothing needs any more.
    pub(crate) types: Vec<ObjectId>,
    /// Compositions of former types, which cannot become compositions of this one: kind and how many.
    pub(crate) stranded: Option<(String, usize)>,
    /// Compositions to move to this version, addressed through it.
    pub(crate) moves: Vec<ObjectId>,
    /// Compositions of other versions that this one refuses.
    pub(crate) breakers: Vec<Breaker>,
    /// How many of those are held up: they are to move, and still have the controller of their version.
    pub(crate) held_up: usize,
}

/// A version of the type that nothing needs any more.
pub(crate) struct Unused {
    pub(crate) version: String,
    /// The type without it.
    pub(crate) without: CustomResourceDefinition,
    /// Any version through which compositions can be addressed.
    pub(crate) through: ResourceId,
}

/// One object of the bundle.
pub(crate) struct Member {
    pub(crate) id: ObjectId,
    pub(crate) wanted: Value,
    /// True when applying it would change nothing.
    pub(crate) in_place: bool,
    /// When it is applied.
    pub(crate) stage: Stage,
}

/// A definition that is being deleted.
pub(crate) struct Leaving {
    /// The Roles for Secrets and their bindings.
    pub(crate) grants: Vec<ObjectId>,
    /// The type that it had made; `None` when it never came so far.
    pub(crate) made: Option<Made>,
}

/// What a definition had made.
pub(crate) struct Made {
    /// Compositions whose controller is gone: they have to move to one that is there, to be cleaned up.
    pub(crate) moves: Vec<(ObjectId, String)>,
    /// Compositions that are still there.
    pub(crate) compositions: Vec<ObjectId>,
    /// The types, when no other definition shares them.
    pub(crate) own_types: Vec<ObjectId>,
    /// The objects of the controllers, in the order in which they are removed.
    pub(crate) bundles: Vec<ObjectId>,
    /// Controllers that clean up in place of those that are gone.
    pub(crate) stand_ins: Vec<StandIn>,
}

/// A controller in the platform's own namespace for compositions whose own is gone, as with the definition's namespace.
pub(crate) struct StandIn {
    pub(crate) target: Target,
    pub(crate) bundle: Vec<Member>,
    /// What is left of it in the definition's namespace.
    pub(crate) relocation: Option<Relocation>,
}

/// A definition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there was no place to hold compositions against the chart's schema")]
    Busy(#[source] Busy),
    #[error(
        "a page of compositions could not be held against the chart's schema within {}s: make the schema simpler",
        LOOK_TIMEOUT.as_secs()
    )]
    TooLong,
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error("the chart cannot become a type")]
    Names(#[from] crdgen::names::Error),
    #[error("the chart's version cannot become an API version")]
    Version(#[from] crdgen::version::Error),
    #[error("chart {chart} has no values.schema.json: add one to the chart, the type is generated from it")]
    NoSchema { chart: String },
    #[error("the type cannot be made from the chart")]
    Schema(#[from] composition::schema::Error),
    #[error("the type cannot get another version")]
    AnotherVersion(#[from] crdgen::crd::Error),
    #[error("the chart's values cannot be converted between its versions")]
    Conversion(#[from] conversion::Error),
    #[error(
        "objects of the type have to be converted, and the API server cannot reach us for that: give core-provider a \
         CORE_PROVIDER_WEBHOOK_PORT"
    )]
    NoWebhook,
    #[error(
        "annotation {} of the definition says {said:?}: write a number of replicas from 1 to {}",
        annotations::CONTROLLER_REPLICAS,
        api::MOST_SHARDS
    )]
    Replicas { said: String },
    #[error("could not make the controller's objects")]
    Bundle(#[from] bundle::Error),
    #[error("could not find out the most that the controller may be given")]
    Bound(#[from] bound::Error),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Chart(error) => error.is_transient(),
            Self::Bound(error) => error.is_transient(),
            Self::Cluster(error) => error.is_transient(),
            Self::Busy(_) | Self::TooLong => true,
            Self::Names(_)
            | Self::Version(_)
            | Self::NoSchema { .. }
            | Self::Schema(_)
            | Self::AnotherVersion(_)
            | Self::Conversion(_)
            | Self::NoWebhook
            | Self::Replicas { .. }
            | Self::Bundle(_) => false,
        }
    }

    /// True when a Secret of another namespace does not allow its use.
    pub(crate) fn is_without_consent(&self) -> bool {
        matches!(self, Self::Chart(error) if error.is_without_consent())
    }
}

/// The Secrets that fetching the chart takes, and whether they may be read.
pub(crate) async fn locked(definition: &CompositionDefinition, ctx: &Context) -> Result<Locked, Error> {
    Ok(Locked {
        grants: members(
            grants(definition, &ctx.platform),
            definition.metadata.namespace.as_deref(),
            ctx,
        )
        .await?,
        needed: accesses(definition),
    })
}

impl Wanted {
    /// True when the controller runs and the API server takes objects of the type.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_available && self.unadmitted.is_none()
    }
}

impl Locked {
    /// True when everything is granted and in force.
    pub(crate) async fn is_open(&self, cluster: &Cluster) -> Result<bool, Error> {
        if self.grants.iter().any(|grant| !grant.in_place) {
            return Ok(false);
        }
        for access in &self.needed {
            if !cluster.is_allowed(access).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Looks at what the controllers of a definition may read although a Secret does not allow it. What core-provider reads
/// itself stays: it has to see when there is consent again.
pub(crate) async fn barred(
    definition: &CompositionDefinition,
    why: Error,
    open: &Locked,
    ctx: &Context,
) -> Result<Barred, Error> {
    let mut grants = granted(definition, &ctx.cluster).await?;
    let own = definition.namespace();
    grants.retain(|id| id.namespace() != own.as_deref() && !open.grants.iter().any(|grant| grant.id == *id));
    Ok(Barred { grants, why })
}

/// Fetches the chart and works out the type that it gives.
pub(crate) async fn source(definition: &CompositionDefinition, ctx: &Context) -> Result<Source, Error> {
    let Resolution { chart, resolved } = resolve(definition, ctx).await.map_err(Error::Chart)?;
    let metadata = chart.chart().metadata();
    let names = Names::of_chart(&metadata.name)?;
    let version = ServedVersion::of_chart(&metadata.version)?;
    let bad_defaults = if annotations::is_true(definition.annotations(), annotations::DROP_BAD_DEFAULTS) {
        BadDefaults::Drop
    } else {
        BadDefaults::Refuse
    };
    let structural =
        composition::schema::structural(&chart.engine, bad_defaults)?.ok_or_else(|| Error::NoSchema {
            chart: metadata.name.clone(),
        })?;
    let changes = composition::schema::changes(chart.chart())?;
    Ok(Source {
        chart,
        resolved,
        names,
        version,
        structural,
        changes,
    })
}

/// Looks at everything that a plan for this source is made from; never writes.
pub(crate) async fn wanted(
    definition: &CompositionDefinition,
    source: Source,
    open: &Locked,
    ctx: &Context,
) -> Result<Wanted, Error> {
    let Source {
        names,
        version,
        structural,
        resolved: _,
        chart,
        changes: _,
    } = &source;
    let live: Option<CustomResourceDefinition> = ctx.cluster.get(&type_id(&names.plural)?).await?;
    let next = converted(type_with(live.as_ref(), &source)?, &ctx.webhooks)?;
    let others = others(definition, &ctx.cluster).await?;
    let controllers = controllers::all(&ctx.cluster).await?;
    let taken_by = taken_by(definition, names, version, &others, &controllers);
    let schema = chart.chart().schema().unwrap_or_default();
    let mut bound = ctx
        .scans
        .bound(chart, definition.annotations(), &ctx.platform, &ctx.cluster)
        .await?;
    carry(&mut bound, definition, &source, &others, &controllers, ctx).await?;
    let mut target = Target {
        bound: bound.resolved,
        replicas: replicas(definition)?,
        ..target(definition, &names.plural, version.as_str(), schema, ctx)
    };
    if !structural.degraded.is_empty() {
        target.judged_at = ctx.webhooks.client_config("/validate");
    }
    let objects = bundle(&target, &ctx.platform, &ctx.templates)?;
    let members = keyed(
        members(objects, Some(&target.namespace), ctx).await?,
        definition,
        ctx,
    )
    .await?;
    let relocation = relocated(definition, &target, &controllers, ctx).await?;
    let kept = || open.grants.iter().chain(&members).map(|member| &member.id);
    let mut stale = granted(definition, &ctx.cluster).await?;
    stale.retain(|id| !kept().any(|kept| kept == id));
    let is_available = is_available(&target, &ctx.cluster).await?;
    let unadmitted = unadmitted(definition, names, &target, &ctx.cluster).await?;
    let previous = previous(definition, names, version);
    let of_this_type = Siblings::of(names, &others, &controllers, &Owner::of(definition));
    let elsewhere = elsewhere(live.as_ref(), &next, &source, &ctx.cluster).await?;
    let unused = match &elsewhere {
        Some((elsewhere, _)) if !keeps_versions(definition, &others, &names.kind) => unused(
            &ctx.webhooks,
            live.as_ref(),
            &source,
            previous.as_deref(),
            &of_this_type,
            elsewhere,
        )?,
        Some(_) | None => None,
    };
    let former = former(definition, &source, &of_this_type, elsewhere, &controllers, ctx).await?;
    // What former controllers read the chart with goes with them.
    stale.retain(|id| !former.bundles.contains(id));
    let is_republished = is_republished(live.as_ref(), version, structural)?;
    Ok(Wanted {
        live,
        next,
        is_republished,
        taken_by,
        bundle: members,
        target,
        bound: bound.status,
        relocation,
        stale,
        is_available,
        unadmitted,
        previous,
        former,
        unused,
        source,
    })
}

fn type_with(
    live: Option<&CustomResourceDefinition>,
    source: &Source,
) -> Result<CustomResourceDefinition, Error> {
    let Source {
        names,
        version,
        structural,
        resolved: _,
        chart,
        changes,
    } = source;
    let of_chart = &chart.chart().metadata().version;
    let is_there = |live: &CustomResourceDefinition| {
        crdgen::served_versions(live).any(|served| served == version.as_str())
    };
    let mut next = match live {
        None => {
            let first = crdgen::crd(names, version, &structural.spec);
            conversion::remember(first, version, of_chart, changes)?
        }
        Some(live) if is_there(live) => crdgen::with_version(live.clone(), version, &structural.spec)?,
        Some(live) => {
            let live = conversion::remember(live.clone(), version, of_chart, changes)?;
            crdgen::with_version(live, version, &structural.spec)?
        }
    };
    if !live.is_some_and(is_there) {
        conversion::check_own(changes, &structural.spec, version.as_str())?;
        conversion::check(&next, version.as_str())?;
    }
    next.metadata
        .annotations
        .get_or_insert_default()
        .entry(annotations::CHART_NAME.to_owned())
        .or_insert_with(|| chart.chart().name().to_owned());
    let own = next.metadata.labels.get_or_insert_default();
    own.insert(
        labels::COMPOSITION_TYPE.to_owned(),
        next.spec.names.plural.clone(),
    );
    Ok(next)
}

/// The type with the webhook that converts its objects, where copying is not enough.
fn converted(
    mut crd: CustomResourceDefinition,
    webhooks: &Registration,
) -> Result<CustomResourceDefinition, Error> {
    let Some(changes) = conversion::needed(&crd)? else {
        return Ok(crd);
    };
    let path = conversion_path(&crd.spec.names.plural, changes);
    let config = webhooks.client_config(&path).ok_or(Error::NoWebhook)?;
    let webhook = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    });
    // What we write ourselves has the form that it is read in.
    crd.spec.conversion = serde_json::from_value(webhook).ok();
    Ok(crd)
}

/// True when the version is there already and was made from another schema: it is left as it was.
fn is_republished(
    live: Option<&CustomResourceDefinition>,
    version: &ServedVersion,
    structural: &Structural,
) -> Result<bool, Error> {
    let Some(live) = live else { return Ok(false) };
    let Some(own) = crdgen::own_schema(live, version.as_str())? else {
        return Ok(false);
    };
    let names = live_names(live);
    let made_now = crdgen::own_schema(&crdgen::crd(&names, version, &structural.spec), version.as_str())?;
    Ok(made_now.is_some_and(|made_now| made_now != own))
}

fn live_names(live: &CustomResourceDefinition) -> Names {
    let names = &live.spec.names;
    Names {
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone().unwrap_or_default(),
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_default(),
    }
}

/// The other definition that serves the same version of the same kind: whoever came first has it.
fn taken_by(
    definition: &CompositionDefinition,
    names: &Names,
    version: &ServedVersion,
    others: &[CompositionDefinition],
    controllers: &[Controller],
) -> Option<String> {
    let api_version = format!("{COMPOSITION_GROUP}/{version}");
    let runs = |some: &CompositionDefinition| {
        let owner = Owner::of(some);
        serves(some, &api_version, &names.kind)
            || controllers.iter().any(|controller| {
                controller.owner == owner
                    && controller.resource == names.plural
                    && controller.version == version.as_str()
            })
    };
    let age = |some: &CompositionDefinition| {
        let created = some.metadata.creation_timestamp.clone();
        (created, some.namespace(), some.name_any())
    };
    let mut holders: Vec<_> = others.iter().filter(|other| runs(other)).collect();
    if runs(definition) {
        holders.retain(|other| age(other) < age(definition));
    }
    holders
        .first()
        .map(|other| format!("{}/{}", other.namespace().unwrap_or_default(), other.name_any()))
}

/// The version that the definition ran before this one, as far as it is of the same kind.
pub(super) fn previous(
    definition: &CompositionDefinition,
    names: &Names,
    version: &ServedVersion,
) -> Option<String> {
    let status = definition.status.as_ref()?;
    if status.kind.as_deref() != Some(&names.kind) {
        return None;
    }
    match status.api_version.as_deref().map(version_of) {
        Some(run) if run != version.as_str() => Some(run.to_owned()),
        _ => status.previous_version.clone(),
    }
}

/// What other definitions have of this type.
struct Siblings {
    /// Versions that they run.
    run: BTreeSet<String>,
    /// Those, and the ones that they ran before.
    needed: BTreeSet<String>,
}

impl Siblings {
    fn of(names: &Names, others: &[CompositionDefinition], controllers: &[Controller], own: &Owner) -> Self {
        let statuses = others
            .iter()
            .filter_map(|other| other.status.as_ref())
            .filter(|status| status.kind.as_deref() == Some(&names.kind));
        let mut run: BTreeSet<String> = controllers
            .iter()
            .filter(|controller| controller.resource == names.plural && controller.owner != *own)
            .map(|controller| controller.version.clone())
            .collect();
        let mut before = BTreeSet::new();
        for status in statuses {
            run.extend(status.api_version.as_deref().map(version_of).map(str::to_owned));
            before.extend(status.previous_version.clone());
        }
        Self {
            needed: run.union(&before).cloned().collect(),
            run,
        }
    }
}

/// Compositions of the type that are of another version, and those of them that this version refuses; `None` while we
/// may not read them.
async fn elsewhere(
    live: Option<&CustomResourceDefinition>,
    next: &CustomResourceDefinition,
    source: &Source,
    cluster: &Cluster,
) -> Result<Option<(Vec<Instance>, Vec<Breaker>)>, Error> {
    let Source {
        names,
        version,
        structural,
        resolved: _,
        chart,
        changes: _,
    } = source;
    let Some(live) = live else {
        return Ok(Some(Default::default()));
    };
    let through = served_resource(live, None).filter(|through| through.kind == names.kind);
    let Some(through) = through else {
        return Ok(Some(Default::default()));
    };
    let conversion = Conversion::of(next)?;
    let checks = Arc::new(Checks {
        engine: chart.engine.clone(),
        own: structural.spec.clone(),
        version: version.to_string(),
        conversion,
        live: live.clone(),
    });
    let look = async |page: Page| {
        let checks = checks.clone();
        let looked = async move {
            // A type has one place less than there are, whatever namespaces its compositions lie in: it is its schema that
            // may take long.
            let share = Shares::of_process().of(&names.kind).acquire_owned().await;
            let work = move |deadline: Deadline| {
                let looked = checks.look(page, &deadline);
                drop(share);
                looked
            };
            // No namespace is called like that.
            let turns_of = format!("type {}", names.plural);
            let looked = Pool::of_process().run(&turns_of, RENDER_TIMEOUT, work).await;
            looked.map_err(Error::Busy)?.ok_or(Error::TooLong)
        };
        // The pass goes on where the work does not end: a keyword of a schema cannot be interrupted.
        let looked = tokio::time::timeout(LOOK_TIMEOUT, looked).await;
        looked.unwrap_or(Err(Error::TooLong))
    };
    let others = format!("{}!={version}", api::labels::COMPOSITION_VERSION);
    let found = instances::list_looking(&through, Some(&others), cluster, look).await?;
    Ok(found.map(|found| {
        let (instances, breakers): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let mut breakers: Vec<Breaker> = breakers.into_iter().flatten().collect();
        breakers.sort();
        (instances.into_iter().flatten().collect(), breakers)
    }))
}

/// How long a page of compositions may take: until there is a place, and until all of it is looked at.
const LOOK_TIMEOUT: Duration = Duration::from_secs(PLACE_TIMEOUT.as_secs() + RENDER_TIMEOUT.as_secs());

/// What compositions are held against, on a thread of the pool.
struct Checks {
    engine: Arc<Engine>,
    own: JSONSchemaProps,
    version: String,
    conversion: Option<Conversion>,
    live: CustomResourceDefinition,
}

impl Checks {
    /// The compositions of a page, and those that the version refuses; nothing when time is over before all are looked at.
    fn look(&self, page: Page, deadline: &Deadline) -> Option<(Vec<Instance>, Vec<Breaker>)> {
        let gate = Gate {
            engine: &self.engine,
            own: &self.own,
            version: &self.version,
            conversion: self.conversion.as_ref(),
        };
        let own_schema = |version: &str| crdgen::own_schema(&self.live, version).ok().flatten();
        let (mut instances, mut breakers) = (Vec::new(), Vec::new());
        for (instance, spec) in page {
            breakers.extend(gate.breaker(&instance, spec, own_schema, deadline));
            if deadline.is_over() {
                return None;
            }
            instances.push(instance);
        }
        Some((instances, breakers))
    }
}

/// The type in one version that is served, not in `except`.
fn served_resource(live: &CustomResourceDefinition, except: Option<&str>) -> Option<ResourceId> {
    let names = &live.spec.names;
    crdgen::served_versions(live)
        .find(|version| Some(*version) != except)
        .map(|version| instances::resource(&names.plural, &names.kind, version))
}

/// What is left of versions that the definition ran before.
async fn former(
    definition: &CompositionDefinition,
    source: &Source,
    siblings: &Siblings,
    elsewhere: Option<(Vec<Instance>, Vec<Breaker>)>,
    controllers: &[Controller],
    ctx: &Context,
) -> Result<Former, Error> {
    let Some((elsewhere, breakers)) = elsewhere else {
        return Ok(Former::default());
    };
    let Source { names, version, .. } = source;
    let owner = Owner::of(definition);
    let own: Vec<_> = controllers
        .iter()
        .filter(|controller| controller.owner == owner)
        .filter(|controller| {
            (controller.resource.as_str(), controller.version.as_str()) != (&names.plural, version.as_str())
        })
        .collect();
    let mut former = Former {
        known: true,
        breakers,
        ..Former::default()
    };
    let (mut running, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for controller in own {
        let target = target(definition, &controller.resource, &controller.version, b"", ctx);
        let key = if controller.resource == names.plural {
            running.insert(controller.version.clone());
            TypeKey::Stays
        } else {
            match stranded(controller, controllers, &mut former, &ctx.cluster).await? {
                TypeKey::Goes if keys.insert(controller.resource.clone()) => TypeKey::Goes,
                TypeKey::Goes | TypeKey::Stays => TypeKey::Stays,
            }
        };
        let places = places(definition, Some(controller), ctx);
        let ids = removal(&target, &places, key, ctx).await?;
        former.bundles.extend(ids);
    }
    let claim = Claim {
        definition: (definition.namespace().unwrap_or_default(), definition.name_any()),
        former: served_before(definition).chain(running.iter().cloned()).collect(),
        foreign: siblings.run.clone(),
    };
    let breaks = |instance: &Instance| {
        former
            .breakers
            .iter()
            .any(|breaker| breaker.namespace == instance.namespace && breaker.name == instance.name)
    };
    let waived = annotations::is_true(definition.annotations(), annotations::ACCEPT_BREAKING);
    let through = instances::resource(&names.plural, &names.kind, version.as_str());
    for instance in elsewhere.iter().filter(|instance| claim.takes(instance)) {
        if waived || !breaks(instance) {
            former.moves.push(instance.id(&through)?);
        } else if instance
            .version
            .as_ref()
            .is_some_and(|version| running.contains(version))
        {
            former.held_up += 1;
        }
    }
    Ok(former)
}

/// Notes what is left of a former type: its compositions, or the type itself when there are none. Says what becomes of
/// its key.
async fn stranded(
    controller: &Controller,
    controllers: &[Controller],
    former: &mut Former,
    cluster: &Cluster,
) -> Result<TypeKey, Error> {
    let id = type_id(&controller.resource)?;
    let live: Option<CustomResourceDefinition> = cluster.get(&id).await?;
    let shared = controllers
        .iter()
        .any(|other| other.resource == controller.resource && other.owner != controller.owner);
    let key = if shared { TypeKey::Stays } else { TypeKey::Goes };
    let Some(through) = live.as_ref().and_then(|live| served_resource(live, None)) else {
        return Ok(key);
    };
    let governed = format!("{}={}", api::labels::COMPOSITION_VERSION, controller.version);
    let left = instances::list(&through, Some(&governed), cluster)
        .await?
        .unwrap_or_default();
    if !left.is_empty() {
        former.stranded = Some((through.kind, left.len()));
    } else if !shared {
        former.types.push(id);
    }
    Ok(key)
}

/// Versions that the definition served, as its status remembers.
fn served_before(definition: &CompositionDefinition) -> impl Iterator<Item = String> + '_ {
    let managed = definition
        .status
        .as_ref()
        .and_then(|status| status.managed.as_ref());
    managed
        .into_iter()
        .flat_map(|managed| &managed.version_info)
        .filter(|info| info.chart.is_some())
        .map(|info| info.version.clone())
}

/// True when one of the definitions of the type keeps its versions.
fn keeps_versions(definition: &CompositionDefinition, others: &[CompositionDefinition], kind: &str) -> bool {
    let is_of_type = |other: &&CompositionDefinition| {
        let status = other.status.as_ref();
        status.is_some_and(|status| status.kind.as_deref() == Some(kind))
    };
    let mut all = others.iter().filter(is_of_type).chain([definition]);
    all.any(|one| annotations::is_true(one.annotations(), annotations::KEEP_VERSIONS))
}

/// A version that neither a definition runs, or ran last, nor a composition is of.
fn unused(
    webhooks: &Registration,
    live: Option<&CustomResourceDefinition>,
    source: &Source,
    previous: Option<&str>,
    siblings: &Siblings,
    elsewhere: &[Instance],
) -> Result<Option<Unused>, Error> {
    let Some(live) = live else { return Ok(None) };
    let is_needed = |version: &str| {
        version == source.version.as_str()
            || Some(version) == previous
            || siblings.needed.contains(version)
            || elsewhere
                .iter()
                .any(|instance| instance.version.as_deref() == Some(version))
    };
    let Some(version) = crdgen::served_versions(live).find(|version| !is_needed(version)) else {
        return Ok(None);
    };
    let Some(through) = served_resource(live, Some(version)) else {
        return Ok(None);
    };
    Ok(Some(Unused {
        version: version.to_owned(),
        without: converted(crdgen::without_version(live.clone(), version)?, webhooks)?,
        through,
    }))
}

/// The part of an `apiVersion` after the group.
fn version_of(api_version: &str) -> &str {
    api_version
        .rsplit_once('/')
        .map_or(api_version, |(_, version)| version)
}

async fn others(
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<Vec<CompositionDefinition>, cluster::Error> {
    let all: Vec<CompositionDefinition> = cluster
        .list(&ResourceId::of::<CompositionDefinition>(), Selector::default())
        .await?;
    Ok(all
        .into_iter()
        .filter(|other| other.metadata.uid != definition.metadata.uid)
        .collect())
}

async fn members(objects: Vec<Value>, namespace: Option<&str>, ctx: &Context) -> Result<Vec<Member>, Error> {
    let members: Vec<_> = objects
        .into_iter()
        .map(|wanted| member(wanted, namespace, ctx).boxed())
        .collect();
    stream::iter(members)
        .buffered(LOOKED_AT_AT_ONCE)
        .try_collect()
        .await
}

async fn member(wanted: Value, namespace: Option<&str>, ctx: &Context) -> Result<Member, Error> {
    let id = ctx.cluster.locate(&wanted, namespace).await?;
    let stage = bundle::stage(&wanted);
    let in_place = match is_in_place(&id, &wanted, ctx).await {
        // The roles that let us read and write policies and the key by name are part of the bundle.
        Err(error) if error.is_forbidden() && matches!(stage, Stage::Key | Stage::Bounding) => false,
        in_place => in_place?,
    };
    Ok(Member {
        id,
        wanted,
        in_place,
        stage,
    })
}

/// A Secret for the key is in place once it has the key that is wanted.
async fn keyed(
    mut members: Vec<Member>,
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Vec<Member>, Error> {
    let keys = members
        .iter_mut()
        .filter(|member| member.stage == Stage::Key && member.in_place);
    for key in keys {
        key.in_place = !release_key::is_due(&key.id, definition, &ctx.cluster).await?;
    }
    Ok(members)
}

/// True when applying `wanted` would leave the object as it is: the server itself says so, in a dry run,
/// which settles defaults and spellings.
async fn is_in_place(id: &ObjectId, wanted: &Value, ctx: &Context) -> Result<bool, cluster::Error> {
    let Some(live) = ctx.cluster.get::<Value>(id).await? else {
        return Ok(false);
    };
    if ctx.placed.holds(id, wanted, &live) {
        return Ok(true);
    }
    let how = Apply::by(FIELD_MANAGER).force().dry_run();
    let would_be = ctx.cluster.apply(id, wanted, &how).await?.object;
    let in_place = without_bookkeeping(&live) == without_bookkeeping(&would_be);
    if in_place {
        ctx.placed.note(id, wanted, &live);
    }
    Ok(in_place)
}

/// Server-side bookkeeping says when and by whom, not what.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

async fn is_available(target: &Target, cluster: &Cluster) -> Result<bool, Error> {
    let id = ObjectId::of::<k8s_openapi::api::apps::v1::Deployment>(
        Some(&target.namespace),
        &target.deployment_name(),
    )?;
    let live = cluster.get::<Value>(&id).await?;
    Ok(live.is_some_and(|deployment| cluster::health(&deployment).is_current()))
}

/// What tells when objects of the type pass admission, while they do not. Once seen, it stays so.
async fn unadmitted(
    definition: &CompositionDefinition,
    names: &Names,
    target: &Target,
    cluster: &Cluster,
) -> Result<Option<Probe>, Error> {
    let resource = instances::resource(&target.resource, &names.kind, &target.version);
    if serves(definition, &resource.api_version(), &names.kind)
        && let Some(status) = &definition.status
        && conditions::holds(&status.conditions, conditions::READY)
    {
        return Ok(None);
    }
    let probe = Probe {
        resource,
        namespace: target.namespace.clone(),
    };
    let passes = probe.passes(cluster).await?;
    Ok((!passes).then_some(probe))
}

/// The Roles for Secrets that are there for the definition, and their bindings, wherever they are.
async fn granted(definition: &CompositionDefinition, cluster: &Cluster) -> Result<Vec<ObjectId>, Error> {
    let labels = format!(
        "{}={}",
        labels::DEFINITION_ID,
        definition.uid().unwrap_or_default()
    );
    let selector = Selector {
        namespace: None,
        labels: Some(&labels),
    };
    let mut granted = Vec::new();
    for kind in [ResourceId::of::<RoleBinding>(), ResourceId::of::<Role>()] {
        let place = |object: PartialObjectMeta| (object.namespace(), object.name_any());
        for (namespace, name) in cluster.map_metadata(&kind, selector, place).await? {
            granted.push(ObjectId::new(kind.clone(), namespace.as_deref(), &name)?);
        }
    }
    Ok(granted)
}

/// The type whose turn a deletion takes.
pub(crate) fn former_type(definition: &CompositionDefinition) -> String {
    let status = definition.status.as_ref();
    status
        .and_then(|status| status.resource.clone())
        .unwrap_or_default()
}

/// Looks at what a definition had made; the chart is not needed for that, nor its registry.
pub(crate) async fn leaving(definition: &CompositionDefinition, ctx: &Context) -> Result<Leaving, Error> {
    Ok(Leaving {
        grants: granted(definition, &ctx.cluster).await?,
        made: made(definition, ctx).await?,
    })
}

async fn made(definition: &CompositionDefinition, ctx: &Context) -> Result<Option<Made>, Error> {
    let owner = Owner::of(definition);
    let controllers = controllers::all(&ctx.cluster).await?;
    let mut made: BTreeSet<(String, String)> = controllers
        .iter()
        .filter(|controller| controller.owner == owner)
        .map(|controller| (controller.resource.clone(), controller.version.clone()))
        .collect();
    // The status may know of a controller that was removed by hand.
    made.extend(served(definition));
    made.extend(left_outside(&owner, &ctx.cluster).await?);
    if made.is_empty() {
        return Ok(None);
    }
    let others = others(definition, &ctx.cluster).await?;
    let mut left = Made {
        moves: Vec::new(),
        compositions: Vec::new(),
        own_types: Vec::new(),
        bundles: Vec::new(),
        stand_ins: Vec::new(),
    };
    let resources: BTreeSet<&String> = made.iter().map(|(resource, _)| resource).collect();
    for resource in resources {
        let versions: BTreeSet<&str> = made
            .iter()
            .filter(|(of, _)| of == resource)
            .map(|(_, version)| version.as_str())
            .collect();
        leave(
            definition,
            resource,
            &versions,
            &others,
            &controllers,
            &mut left,
            ctx,
        )
        .await?;
    }
    Ok(Some(left))
}

/// The resource and version that the definition served last, as its status says.
pub(super) fn served(definition: &CompositionDefinition) -> Option<(String, String)> {
    let status = definition.status.as_ref()?;
    let version = version_of(status.api_version.as_deref()?);
    Some((status.resource.clone()?, version.to_owned()))
}

/// The resources and versions of controllers of which something lies outside of namespaces, also where somebody removed
/// the mark.
async fn left_outside(owner: &Owner, cluster: &Cluster) -> Result<Vec<(String, String)>, cluster::Error> {
    let own = [
        (labels::DEFINITION_NAME, &owner.name),
        (labels::DEFINITION_NAMESPACE, &owner.namespace),
    ];
    let own = own.map(|(label, value)| format!("{label}={value}")).join(",");
    let selector = Selector {
        namespace: None,
        labels: Some(&own),
    };
    let roles = cluster
        .list_metadata(&ResourceId::of::<ClusterRole>(), selector)
        .await?;
    let controller = |role: &PartialObjectMeta| {
        let label = |name: &str| role.labels().get(name).cloned();
        label(labels::CONTROLLER_RESOURCE).zip(label(labels::CONTROLLER_VERSION))
    };
    Ok(roles.iter().filter_map(controller).collect())
}

/// Notes what the definition leaves behind of one type.
async fn leave(
    definition: &CompositionDefinition,
    resource: &str,
    versions: &BTreeSet<&str>,
    others: &[CompositionDefinition],
    controllers: &[Controller],
    left: &mut Made,
    ctx: &Context,
) -> Result<(), Error> {
    let owner = Owner::of(definition);
    let id = type_id(resource)?;
    let live: Option<CustomResourceDefinition> = ctx.cluster.get(&id).await?;
    let others_run: BTreeSet<&str> = controllers
        .iter()
        .filter(|controller| controller.resource == resource && controller.owner != owner)
        .map(|controller| controller.version.as_str())
        .chain(
            others
                .iter()
                .filter_map(|other| other.status.as_ref())
                .filter(|status| status.resource.as_deref() == Some(resource))
                .filter_map(|status| status.api_version.as_deref().map(version_of)),
        )
        .collect();
    let own: BTreeSet<&str> = versions.difference(&others_run).copied().collect();
    let is_last = others_run.is_empty();
    // Versions whose controller is gone.
    let mut orphaned: BTreeSet<&str> = BTreeSet::new();
    for version in versions {
        // A second definition of the same version never had more than its own namespaced objects.
        let target = target(definition, resource, version, b"", ctx);
        let mark = own_mark(controllers, &owner, resource, version);
        let places = places(definition, mark, ctx);
        // Once, and first: what lets us remove it goes with any of the bundles.
        let key = if is_last && Some(version) == versions.first() {
            TypeKey::Goes
        } else {
            TypeKey::Stays
        };
        let ids = removal(&target, &places, key, ctx).await?;
        // What another definition has of this version goes by the same names.
        let is_shared = |id: &ObjectId| {
            let is_ours_alone = |namespace: &str| {
                namespace != ctx.platform.krateo_namespace && namespace == target.definition_namespace
            };
            others_run.contains(version) && !id.namespace().is_some_and(is_ours_alone)
        };
        left.bundles.extend(ids.into_iter().filter(|id| !is_shared(id)));
        if own.contains(version) && !runs(&target, &places, &ctx.cluster).await? {
            orphaned.insert(*version);
        }
    }
    if is_last && live.is_some() {
        left.own_types.push(id);
    }
    let Some(through) = live.as_ref().and_then(|live| served_resource(live, None)) else {
        return Ok(());
    };
    for instance in instances::list(&through, None, &ctx.cluster)
        .await?
        .unwrap_or_default()
    {
        let version = instance.version.as_deref().unwrap_or_default();
        let governed = own.contains(version);
        // With the type everything goes, also what no controller has any more.
        if !governed && !is_last {
            continue;
        }
        let id = instance.id(&through)?;
        let mut controlled_by = own.get(version).copied();
        if !governed
            && instance.held
            && let Some(alive) = own.first()
        {
            left.moves.push((id.clone(), (*alive).to_owned()));
            controlled_by = Some(*alive);
        }
        if let Some(version) = controlled_by.filter(|version| instance.held && orphaned.remove(version)) {
            left.stand_ins
                .push(stand_in(definition, resource, version, controllers, ctx).await?);
        }
        left.compositions.push(id);
    }
    Ok(())
}

/// The controller of a version, as it is run in the platform's own namespace: only to clean up, so that it needs
/// neither the chart nor the Secrets that fetching it takes.
async fn stand_in(
    definition: &CompositionDefinition,
    resource: &str,
    version: &str,
    controllers: &[Controller],
    ctx: &Context,
) -> Result<StandIn, Error> {
    let mut target = Target {
        namespace: ctx.platform.krateo_namespace.clone(),
        secrets: BTreeMap::new(),
        ..target(definition, resource, version, b"", ctx)
    };
    target.bound.bound = noted_bound(&target, &ctx.cluster).await?;
    let objects = bundle(&target, &ctx.platform, &ctx.templates)?;
    let bundle = members(objects, Some(&target.namespace), ctx).await?;
    let bundle = keyed(bundle, definition, ctx).await?;
    let relocation = relocated(definition, &target, controllers, ctx).await?;
    Ok(StandIn {
        target,
        bundle,
        relocation,
    })
}

/// The bound that a controller has now; nothing is allowed where its policy is not there.
pub(super) async fn noted_bound(target: &Target, cluster: &Cluster) -> Result<Bound, cluster::Error> {
    let policy = ObjectId::of::<ValidatingAdmissionPolicy>(None, &target.policy_name())?;
    let policy: Option<Value> = cluster.get(&policy).await?;
    Ok(bundle::noted_bound(&policy.unwrap_or_default()))
}

/// What becomes of a type's key when one of its controllers goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeKey {
    /// The type stays.
    Stays,
    /// The type goes, and nobody has records to read any more.
    Goes,
}

/// The mark of a controller of this definition.
fn own_mark<'c>(
    controllers: &'c [Controller],
    owner: &Owner,
    resource: &str,
    version: &str,
) -> Option<&'c Controller> {
    let mut own = controllers.iter().filter(|controller| controller.owner == *owner);
    own.find(|controller| controller.serves(resource, version))
}

/// The namespaces in which objects of a controller may lie. It is one, which its mark tells; earlier releases did not write
/// that, and somebody may have removed the mark.
fn places(definition: &CompositionDefinition, mark: Option<&Controller>, ctx: &Context) -> Vec<String> {
    if let Some(place) = mark.and_then(|mark| mark.namespace.clone()) {
        return vec![place];
    }
    let (own, platform) = (
        definition.namespace().unwrap_or_default(),
        ctx.platform.krateo_namespace.clone(),
    );
    let mut places = vec![own, platform];
    places.dedup();
    places
}

/// True while a controller runs in one of these namespaces.
async fn runs(target: &Target, places: &[String], cluster: &Cluster) -> Result<bool, cluster::Error> {
    for place in places {
        let running = running(&target.at(place), cluster).await?;
        if running.is_some_and(|running| !running.is_going) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What has to be done before the definition's controller may run where it should; nothing when it runs nowhere else.
async fn relocated(
    definition: &CompositionDefinition,
    target: &Target,
    controllers: &[Controller],
    ctx: &Context,
) -> Result<Option<Relocation>, Error> {
    let owner = Owner::of(definition);
    let Some(mark) = own_mark(controllers, &owner, &target.resource, &target.version) else {
        return Ok(None);
    };
    let own = definition.namespace().unwrap_or_default();
    let from = mark.namespace.as_deref().unwrap_or(&own);
    if from == target.namespace {
        return Ok(None);
    }
    relocation(target, from, ctx).await.map(Some)
}

/// The objects of a bundle in the order in which they are removed: the reverse of the one in which they are applied, and
/// so the mark by which all others are found at the very end. Those in namespaces are looked for in each of `places`.
async fn removal(
    target: &Target,
    places: &[String],
    key: TypeKey,
    ctx: &Context,
) -> Result<Vec<ObjectId>, Error> {
    let mut ids: Vec<ObjectId> = Vec::new();
    for place in places {
        // Whether there was a webhook is not known any more, nor whether the chart might bring roles.
        let mut target = Target {
            judged_at: Some(Value::Null),
            ..target.at(place)
        };
        target.bound.bound.chart_rbac = true;
        let objects = bundle(&target, &ctx.platform, &ctx.templates)?;
        let mut here = Vec::new();
        for object in objects.iter().rev() {
            if key == TypeKey::Stays && bundle::stage(object) == Stage::Key {
                continue;
            }
            here.push(ctx.cluster.locate(object, Some(place)).await?);
        }
        // What each place has of its own goes before what bounds them all.
        here.retain(|id| !ids.contains(id));
        ids.splice(0..0, here);
    }
    Ok(ids)
}

/// The controller of one version of a type, as far as the names of its objects say it.
pub(super) fn target(
    definition: &CompositionDefinition,
    plural: &str,
    version: &str,
    schema: &[u8],
    ctx: &Context,
) -> Target {
    let definition_namespace = definition.namespace().unwrap_or_default();
    Target {
        definition: definition.name_any(),
        namespace: ctx.platform.home(&definition_namespace).to_owned(),
        definition_namespace,
        group: COMPOSITION_GROUP.to_owned(),
        version: version.to_owned(),
        resource: plural.to_owned(),
        schema: String::from_utf8_lossy(schema).into_owned(),
        secrets: secrets(definition),
        definition_id: definition.uid().unwrap_or_default(),
        judged_at: None,
        replicas: None,
        bound: Resolved::default(),
    }
}

/// How many replicas the definition asks for.
fn replicas(definition: &CompositionDefinition) -> Result<Option<u16>, Error> {
    let Some(said) = definition.annotations().get(annotations::CONTROLLER_REPLICAS) else {
        return Ok(None);
    };
    let number = said.parse().ok();
    let number = number.filter(|number| (1..=api::MOST_SHARDS).contains(number));
    number
        .map(Some)
        .ok_or_else(|| Error::Replicas { said: said.clone() })
}

fn type_id(plural: &str) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<CustomResourceDefinition>(None, &format!("{plural}.{COMPOSITION_GROUP}"))
}

#[cfg(test)]
mod tests {
    use api::definition::ChartSource;
    use api::{CompositionDefinitionSpec, CompositionDefinitionStatus};

    use super::*;

    #[test]
    fn any_definition_of_a_type_can_keep_its_versions() {
        let definition = |kind: &str, keeps: &str| {
            let spec = CompositionDefinitionSpec {
                chart: ChartSource::default(),
            };
            let mut definition = CompositionDefinition::new("web", spec);
            definition.metadata.annotations =
                Some([(annotations::KEEP_VERSIONS.to_owned(), keeps.to_owned())].into());
            definition.status = Some(CompositionDefinitionStatus {
                kind: Some(kind.to_owned()),
                ..CompositionDefinitionStatus::default()
            });
            definition
        };
        let plain = definition("Web", "false");
        assert!(!keeps_versions(&plain, &[], "Web"));
        assert!(keeps_versions(&definition("Web", "true"), &[], "Web"));
        assert!(keeps_versions(&plain, &[definition("Web", "true")], "Web"));
        assert!(!keeps_versions(&plain, &[definition("Shop", "true")], "Web"));
    }
}
