//! What there is of a definition: its chart, the type in the API server, the objects of the bundle.

use std::sync::Arc;

use api::definition::ResolvedChart;
use api::{COMPOSITION_GROUP, CompositionDefinition, annotations, conditions, labels};
use cluster::{Access, Apply, Cluster, ObjectId, ResourceId, Selector};
use composition::serves;
use crdgen::{CustomResourceDefinition, Names, ServedVersion};
use helm_client::charts::{self, LoadedChart};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::resolution::{Resolution, resolve};
use super::{Context, FIELD_MANAGER};
use crate::bundle::{self, Target, bundle};
use crate::grants::{accesses, grants, secrets};

/// The name that core-provider's own Role allows a dry run under.
const DRY_RUN: &str = "core-provider-dry-run";

/// What a pass saw.
pub(crate) enum Observed {
    /// The user asked to stop: nothing was looked at.
    Paused,
    /// The Secrets that fetching the chart takes may not be read yet.
    Locked(Locked),
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

/// A definition that is to be carried out.
pub(crate) struct Wanted {
    pub(crate) chart: Arc<LoadedChart>,
    /// What the spec stands for.
    pub(crate) resolved: ResolvedChart,
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    /// The type as it is in the API server.
    pub(crate) live: Option<CustomResourceDefinition>,
    /// The type with this version in it; equal to `live` when nothing is to be done.
    pub(crate) next: CustomResourceDefinition,
    /// The definition that already serves this very type, when there is an older one.
    pub(crate) taken_by: Option<String>,
    pub(crate) bundle: Vec<Member>,
    /// Roles for Secrets, and their bindings, that the definition needed before.
    pub(crate) stale: Vec<ObjectId>,
    /// True when the controller's Deployment says it is available and the API server takes objects of the type.
    pub(crate) usable: bool,
}

/// One object of the bundle.
pub(crate) struct Member {
    pub(crate) id: ObjectId,
    pub(crate) wanted: Value,
    /// True when applying it would change nothing.
    pub(crate) in_place: bool,
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
    /// Compositions of its version that are still there.
    pub(crate) compositions: Vec<ObjectId>,
    /// The type, when no other definition shares it.
    pub(crate) own_type: Option<ObjectId>,
    /// The bundle, unless another definition runs the same one.
    pub(crate) bundle: Vec<ObjectId>,
}

/// A definition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error("the chart cannot become a type")]
    Names(#[from] crdgen::names::Error),
    #[error("the chart's version cannot become an API version")]
    Version(#[from] crdgen::version::Error),
    #[error("chart {chart} has no values.schema.json: add one to the chart, the type is generated from it")]
    NoSchema { chart: String },
    #[error("the chart's values.schema.json is not valid JSON")]
    SchemaSyntax(#[source] serde_json::Error),
    #[error("the chart's values.schema.json cannot become a type")]
    Schema(#[source] crdgen::structural::Error),
    #[error("the type cannot get another version")]
    AnotherVersion(#[from] crdgen::crd::Error),
    #[error("could not make the controller's objects")]
    Bundle(#[from] bundle::Error),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Chart(error) => error.is_transient(),
            Self::Cluster(error) => error.is_transient(),
            Self::Names(_)
            | Self::Version(_)
            | Self::NoSchema { .. }
            | Self::SchemaSyntax(_)
            | Self::Schema(_)
            | Self::AnotherVersion(_)
            | Self::Bundle(_) => false,
        }
    }
}

/// Looks at everything a plan is made from; never writes.
pub(crate) async fn observe(definition: &CompositionDefinition, ctx: &Context) -> Result<Observed, Error> {
    if annotations::is_true(definition.annotations(), annotations::PAUSED) {
        return Ok(Observed::Paused);
    }
    if definition.metadata.deletion_timestamp.is_some() {
        return leaving(definition, ctx).await.map(Observed::Leaving);
    }
    let locked = locked(definition, ctx).await?;
    if locked.is_open(&ctx.cluster).await? {
        wanted(definition, locked, ctx)
            .await
            .map(|wanted| Observed::Wanted(Box::new(wanted)))
    } else {
        Ok(Observed::Locked(locked))
    }
}

async fn locked(definition: &CompositionDefinition, ctx: &Context) -> Result<Locked, Error> {
    Ok(Locked {
        grants: members(grants(definition, &ctx.platform), definition, ctx).await?,
        needed: accesses(definition),
    })
}

impl Locked {
    /// True when everything is granted and in force.
    async fn is_open(&self, cluster: &Cluster) -> Result<bool, Error> {
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

async fn wanted(definition: &CompositionDefinition, open: Locked, ctx: &Context) -> Result<Wanted, Error> {
    let Resolution { chart, resolved } = resolve(definition, ctx).await.map_err(Error::Chart)?;
    let metadata = chart.chart().metadata();
    let names = Names::of_chart(&metadata.name)?;
    let version = ServedVersion::of_chart(&metadata.version)?;
    let schema = chart.chart().schema().ok_or_else(|| Error::NoSchema {
        chart: metadata.name.clone(),
    })?;

    let live: Option<CustomResourceDefinition> = ctx.cluster.get(&type_id(&names.plural)?).await?;
    let next = type_with(live.as_ref(), &names, &version, schema, chart.chart().values())?;
    let taken_by = taken_by(definition, &names, &version, &ctx.cluster).await?;
    let target = target(definition, &names.plural, version.as_str(), schema);
    let objects = bundle(&target, &ctx.platform, &ctx.templates)?;
    let members = members(objects, definition, ctx).await?;
    let kept = || open.grants.iter().chain(&members).map(|member| &member.id);
    let mut stale = granted(definition, &ctx.cluster).await?;
    stale.retain(|id| !kept().any(|kept| kept == id));
    let usable = is_available(&target, &ctx.cluster).await?
        && takes_objects(definition, &names, &target, &ctx.cluster).await?;
    Ok(Wanted {
        names,
        version,
        live,
        next,
        taken_by,
        bundle: members,
        stale,
        usable,
        chart,
        resolved,
    })
}

fn type_with(
    live: Option<&CustomResourceDefinition>,
    names: &Names,
    version: &ServedVersion,
    schema: &[u8],
    values: &serde_json::Map<String, Value>,
) -> Result<CustomResourceDefinition, Error> {
    let schema = serde_json::from_slice(schema).map_err(Error::SchemaSyntax)?;
    let structural = crdgen::structural(&schema, &Value::Object(values.clone())).map_err(Error::Schema)?;
    match live {
        None => Ok(crdgen::crd(names, version, &structural.spec)),
        Some(live) => Ok(crdgen::with_version(live.clone(), version, &structural.spec)?),
    }
}

/// The oldest other definition that serves the same version of the same kind: it was here first.
async fn taken_by(
    definition: &CompositionDefinition,
    names: &Names,
    version: &ServedVersion,
    cluster: &Cluster,
) -> Result<Option<String>, Error> {
    let api_version = format!("{COMPOSITION_GROUP}/{version}");
    Ok(others(definition, cluster)
        .await?
        .into_iter()
        .filter(|other| serves(other, &api_version, &names.kind))
        .find(|other| other.metadata.creation_timestamp <= definition.metadata.creation_timestamp)
        .map(|other| format!("{}/{}", other.namespace().unwrap_or_default(), other.name_any())))
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

async fn members(
    objects: Vec<Value>,
    definition: &CompositionDefinition,
    ctx: &Context,
) -> Result<Vec<Member>, Error> {
    let mut members = Vec::new();
    for wanted in objects {
        let id = ctx
            .cluster
            .locate(&wanted, definition.metadata.namespace.as_deref())
            .await?;
        let in_place = is_in_place(&id, &wanted, &ctx.cluster).await?;
        members.push(Member { id, wanted, in_place });
    }
    Ok(members)
}

/// True when applying `wanted` would leave the object as it is: the server itself says so, in a dry run,
/// which settles defaults and spellings.
async fn is_in_place(id: &ObjectId, wanted: &Value, cluster: &Cluster) -> Result<bool, cluster::Error> {
    let Some(live) = cluster.get::<Value>(id).await? else {
        return Ok(false);
    };
    let would_be = cluster
        .apply(id, wanted, &Apply::by(FIELD_MANAGER).force().dry_run())
        .await?;
    Ok(without_bookkeeping(live) == without_bookkeeping(would_be.object))
}

/// Server-side bookkeeping says when and by whom, not what.
fn without_bookkeeping(mut object: Value) -> Value {
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

/// True when an object of the type passes admission, whatever the schema says to it.
///
/// A type is served seconds before admission policies know it; until then every write to it is refused with a
/// 503, and users would meet it. Once seen, it stays so.
async fn takes_objects(
    definition: &CompositionDefinition,
    names: &Names,
    target: &Target,
    cluster: &Cluster,
) -> Result<bool, Error> {
    let status = definition.status.as_ref();
    if status.is_some_and(|status| conditions::holds(&status.conditions, conditions::READY)) {
        return Ok(true);
    }
    let resource = composition_resource(&target.resource, &names.kind, &target.version);
    let probe = serde_json::json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": DRY_RUN},
    });
    let id = ObjectId::new(resource, Some(&target.namespace), DRY_RUN)?;
    match cluster
        .apply(&id, &probe, &Apply::by(FIELD_MANAGER).dry_run())
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.is_invalid() => Ok(true),
        // Not known to admission, or its Role not in force, or not served yet: a matter of seconds.
        Err(error) if error.is_transient() || error.is_forbidden() || error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
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
        let found: Vec<PartialObjectMeta> = cluster.list(&kind, selector).await?;
        for object in found {
            let namespace = object.metadata.namespace.as_deref();
            granted.push(ObjectId::new(kind.clone(), namespace, &object.name_any())?);
        }
    }
    Ok(granted)
}

async fn leaving(definition: &CompositionDefinition, ctx: &Context) -> Result<Leaving, Error> {
    Ok(Leaving {
        grants: granted(definition, &ctx.cluster).await?,
        made: made(definition, ctx).await?,
    })
}

async fn made(definition: &CompositionDefinition, ctx: &Context) -> Result<Option<Made>, Error> {
    let Some(status) = &definition.status else {
        return Ok(None);
    };
    let (Some(api_version), Some(kind), Some(plural)) = (&status.api_version, &status.kind, &status.resource)
    else {
        return Ok(None);
    };
    let version = api_version
        .rsplit_once('/')
        .map_or(api_version.as_str(), |(_, version)| version);
    let others = others(definition, &ctx.cluster).await?;
    let is_shared = others.iter().any(|other| serves(other, api_version, kind));
    let shares_kind = others
        .iter()
        .filter_map(|other| other.status.as_ref())
        .any(|status| status.kind.as_deref() == Some(kind));
    let mut made = Made {
        compositions: Vec::new(),
        own_type: None,
        bundle: Vec::new(),
    };
    if !is_shared {
        made.compositions = compositions(plural, kind, version, &ctx.cluster).await?;
        made.bundle = bundle_ids(&target(definition, plural, version, b""), ctx).await?;
    }
    if !shares_kind {
        made.own_type = Some(type_id(plural)?);
    }
    Ok(Some(made))
}

/// Compositions that the controller of `version` governs.
async fn compositions(
    plural: &str,
    kind: &str,
    version: &str,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, Error> {
    let resource = composition_resource(plural, kind, version);
    let governed = format!("{}={version}", labels::COMPOSITION_VERSION);
    let selector = Selector {
        namespace: None,
        labels: Some(&governed),
    };
    let found: Vec<PartialObjectMeta> = match cluster.list(&resource, selector).await {
        // Without the type there are no objects of it.
        Err(error) if error.is_not_found() => Vec::new(),
        found => found?,
    };
    found
        .into_iter()
        .map(|object| {
            ObjectId::new(
                resource.clone(),
                object.metadata.namespace.as_deref(),
                &object.name_any(),
            )
        })
        .collect::<Result<_, _>>()
        .map_err(Error::from)
}

fn composition_resource(plural: &str, kind: &str, version: &str) -> ResourceId {
    ResourceId {
        group: COMPOSITION_GROUP.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
    }
}

async fn bundle_ids(target: &Target, ctx: &Context) -> Result<Vec<ObjectId>, Error> {
    let mut ids = Vec::new();
    for object in bundle(target, &ctx.platform, &ctx.templates)? {
        ids.push(ctx.cluster.locate(&object, Some(&target.namespace)).await?);
    }
    Ok(ids)
}

fn target(definition: &CompositionDefinition, plural: &str, version: &str, schema: &[u8]) -> Target {
    Target {
        namespace: definition.namespace().unwrap_or_default(),
        group: COMPOSITION_GROUP.to_owned(),
        version: version.to_owned(),
        resource: plural.to_owned(),
        schema: String::from_utf8_lossy(schema).into_owned(),
        secrets: secrets(definition),
        definition_id: definition.uid().unwrap_or_default(),
    }
}

fn type_id(plural: &str) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<CustomResourceDefinition>(None, &format!("{plural}.{COMPOSITION_GROUP}"))
}
