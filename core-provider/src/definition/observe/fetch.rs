//! Reads everything about a definition, and writes nothing: its chart, its type, the controllers and the compositions.

mod elsewhere;
mod leaving;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::{CompositionDefinition, conditions, labels};
use charts::Charts;
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use composition::serves;
use crdgen::{CustomResourceDefinition, Names};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::derive::source;
use super::error::Error;
use super::observed::{Barred, Located, Locked, Neighbours, Opened, Source};
use super::read::{Read, ReadController, ReadType};
use crate::bound::Scans;
use crate::bundle::{Installation, Object, Platform, Stage, Target};
use crate::definition::admission::Probe;
use crate::definition::carried::{Bounds, bound};
use crate::definition::context::Context;
use crate::definition::controllers::{self, Controller, Owner};
use crate::definition::desired::{self, target};
use crate::definition::instances::{self, served_resource, type_id};
use crate::definition::members::{Member, keyed, members};
use crate::definition::relocation::{Relocation, relocation};
use crate::definition::resolution::resolve;
use crate::definition::{Looks, Placed, Waits};
use crate::grants::{accesses, grants};
use crate::webhook::Registration;

pub(super) use leaving::leaving;

/// What reading a definition needs, including what is remembered between passes.
#[derive(Clone, Copy)]
pub(super) struct Reader<'r> {
    pub(super) cluster: &'r Cluster,
    pub(super) charts: &'r Charts,
    pub(super) scans: &'r Scans,
    pub(super) webhooks: &'r Registration,
    pub(super) installation: Installation<'r>,
    pub(super) placed: &'r Placed,
    pub(super) waits: &'r Waits,
    pub(super) looks: &'r Looks,
    pub(super) poll_interval: Duration,
}

impl<'r> Reader<'r> {
    /// The reader of this process.
    pub(super) fn of(ctx: &'r Context) -> Self {
        Self {
            cluster: &ctx.cluster,
            charts: &ctx.charts,
            scans: &ctx.scans,
            webhooks: &ctx.webhooks,
            installation: Installation {
                platform: &ctx.platform,
                templates: &ctx.templates,
            },
            placed: &ctx.placed,
            waits: &ctx.waits,
            looks: &ctx.looks,
            poll_interval: ctx.poll_interval,
        }
    }

    /// What computing the bounds of charts needs.
    fn bounds(&self) -> Bounds<'r> {
        Bounds {
            cluster: self.cluster,
            charts: self.charts,
            scans: self.scans,
            platform: self.installation.platform,
        }
    }
}

/// Fetches the chart of a definition, once its Secrets may be read.
pub(super) async fn open(definition: &CompositionDefinition, from: Reader<'_>) -> Result<Opened, Error> {
    let locked = locked(definition, from).await?;
    if !is_open(&locked, from.cluster).await? {
        return Ok(Opened::Locked(locked));
    }
    let resolution = resolve(definition, from.charts, from.looks, from.poll_interval).await;
    let source = resolution
        .map_err(Error::Chart)
        .and_then(|found| source(definition, found));
    match source {
        Ok(source) => Ok(Opened::Source(locked, Box::new(source))),
        Err(why) if why.is_without_consent() => {
            let barred = barred(definition, why, &locked, from.cluster).await?;
            Ok(Opened::Barred(barred))
        }
        Err(error) => Err(error),
    }
}

/// The grants for the Secrets that fetching the chart needs, and the access that they should give.
async fn locked(definition: &CompositionDefinition, from: Reader<'_>) -> Result<Locked, Error> {
    Ok(Locked {
        grants: members(
            grants(definition, from.installation.platform)
                .into_iter()
                .map(|body| Object {
                    stage: Stage::Own,
                    body,
                })
                .collect(),
            definition.metadata.namespace.as_deref(),
            from.cluster,
            from.placed,
        )
        .await?,
        needed: accesses(definition),
    })
}

/// True when everything is granted and in force.
async fn is_open(locked: &Locked, cluster: &Cluster) -> Result<bool, Error> {
    if locked.grants.iter().any(|grant| !grant.in_place) {
        return Ok(false);
    }
    for access in &locked.needed {
        if !cluster.is_allowed(access).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Finds the grants by which controllers of a definition may read Secrets of other namespaces, after a Secret's consent
/// is gone. core-provider's own grants stay, because it has to notice when consent is given again.
async fn barred(
    definition: &CompositionDefinition,
    why: Error,
    open: &Locked,
    cluster: &Cluster,
) -> Result<Barred, Error> {
    let mut grants = granted(definition, cluster).await?;
    let own = definition.namespace();
    grants.retain(|id| id.namespace() != own.as_deref() && !open.grants.iter().any(|grant| grant.id == *id));
    Ok(Barred { grants, why })
}

/// Reads everything that the plan for this source needs.
pub(super) async fn active(
    definition: &CompositionDefinition,
    source: &Source,
    from: Reader<'_>,
) -> Result<Read, Error> {
    let Reader {
        cluster,
        webhooks,
        installation,
        ..
    } = from;
    let names = &source.names;
    let live: Option<CustomResourceDefinition> = cluster.get(&type_id(&names.plural)?).await?;
    let desired = desired::crd(live.as_ref(), source, webhooks)?;
    let neighbours = neighbours(definition, cluster).await?;
    // On the heap, because it holds what an admin says and what a scan finds at the same time.
    let bound = Box::pin(bound(definition, source, &neighbours, from.bounds())).await?;
    let target = desired::controller(
        definition,
        source,
        bound.resolved,
        webhooks,
        installation.platform,
    )?;
    let controllers = &neighbours.controllers;
    let (bundle, relocation) = controller(definition, &target, controllers, from).await?;
    let granted = granted(definition, cluster).await?;
    let is_available = is_available(&target, cluster).await?;
    let unadmitted = unadmitted(definition, names, &target, cluster).await?;
    let elsewhere = elsewhere::elsewhere(live.as_ref(), &desired, source, cluster).await?;
    let former = if elsewhere.is_some() {
        former(definition, source, controllers, installation, cluster).await?
    } else {
        Vec::new()
    };
    Ok(Read {
        live,
        desired,
        neighbours,
        bundle,
        target,
        bound: bound.status,
        relocation,
        granted,
        is_available,
        unadmitted,
        elsewhere,
        former,
    })
}

/// The objects of a controller compared with the cluster, and what is left of it where it ran before.
async fn controller(
    definition: &CompositionDefinition,
    target: &Target,
    controllers: &[Controller],
    from: Reader<'_>,
) -> Result<(Vec<Member>, Option<Relocation>), Error> {
    let Reader {
        cluster,
        installation,
        placed,
        waits,
        ..
    } = from;
    let objects = installation.bundle(target)?;
    let members = members(objects, Some(&target.namespace), cluster, placed).await?;
    let members = keyed(members, definition, cluster).await?;
    let relocation = relocated(definition, target, controllers, installation, waits, cluster).await?;
    Ok((members, relocation))
}

/// The controllers of other versions and types that the definition had before, and what is left of those types.
async fn former(
    definition: &CompositionDefinition,
    source: &Source,
    controllers: &[Controller],
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<ReadController>, Error> {
    let (plural, version) = (&source.names.plural, source.version.as_str());
    let owner = Owner::of(definition);
    let is_former =
        |controller: &&Controller| controller.owner == owner && !controller.serves(plural, version);
    let mut former = Vec::new();
    for controller in controllers.iter().filter(is_former) {
        let of_type = if controller.resource == *plural {
            None
        } else {
            Some(former_type(controller, cluster).await?)
        };
        let platform = installation.platform;
        let target = target(definition, &controller.resource, &controller.version, platform);
        let places = places(definition, Some(controller), platform);
        former.push(ReadController {
            controller: controller.clone(),
            objects: removal(&target, &places, installation, cluster).await?,
            of_type,
        });
    }
    Ok(former)
}

/// The type of a controller, and the number of its compositions.
async fn former_type(controller: &Controller, cluster: &Cluster) -> Result<ReadType, Error> {
    let id = type_id(&controller.resource)?;
    let live: Option<CustomResourceDefinition> = cluster.get(&id).await?;
    let Some(through) = live.as_ref().and_then(|live| served_resource(live, None)) else {
        return Ok(ReadType {
            id,
            kind: None,
            compositions: 0,
        });
    };
    let governed = format!("{}={}", labels::COMPOSITION_VERSION, controller.version);
    let left = instances::list(&through, Some(&governed), cluster).await?;
    Ok(ReadType {
        id,
        kind: Some(through.kind),
        compositions: left.unwrap_or_default().len(),
    })
}

/// The other definitions, and all controllers.
async fn neighbours(
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<Neighbours, cluster::Error> {
    Ok(Neighbours {
        others: others(definition, cluster).await?,
        controllers: controllers::all(cluster).await?,
    })
}

async fn others(
    definition: &CompositionDefinition,
    cluster: &Cluster,
) -> Result<Vec<CompositionDefinition>, cluster::Error> {
    let mut others: Vec<CompositionDefinition> = cluster
        .list(&ResourceId::of::<CompositionDefinition>(), Selector::default())
        .await?;
    others.retain(|other| other.metadata.uid != definition.metadata.uid);
    Ok(others)
}

async fn is_available(target: &Target, cluster: &Cluster) -> Result<bool, Error> {
    let id = ObjectId::of::<k8s_openapi::api::apps::v1::Deployment>(
        Some(&target.namespace),
        &target.deployment_name(),
    )?;
    let live = cluster.get::<Value>(&id).await?;
    Ok(live.is_some_and(|deployment| cluster::health(&deployment).is_current()))
}

/// A probe for whether objects of the type pass admission; none once they do, which then stays so.
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

/// The existing Roles for Secrets of the definition and their bindings, in all namespaces.
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

/// The namespaces that objects of a controller may be in. Usually the one that its mark names; but earlier releases did
/// not record it, and somebody may have removed the mark.
fn places(definition: &CompositionDefinition, mark: Option<&Controller>, platform: &Platform) -> Vec<String> {
    if let Some(place) = mark.and_then(|mark| mark.namespace.clone()) {
        return vec![place];
    }
    let (own, platform) = (
        definition.namespace().unwrap_or_default(),
        platform.krateo_namespace.clone(),
    );
    let mut places = vec![own, platform];
    places.dedup();
    places
}

/// What has to be done before the definition's controller may run in its namespace; none when it does not run
/// elsewhere.
async fn relocated(
    definition: &CompositionDefinition,
    target: &Target,
    controllers: &[Controller],
    installation: Installation<'_>,
    waits: &Waits,
    cluster: &Cluster,
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
    relocation(target, from, installation, waits, cluster)
        .await
        .map(Some)
}

/// The objects of a bundle in the order of their removal, which is the reverse of the order of application. So the
/// mark, by which all others are found, comes last. Namespaced objects are looked for in each of `places`.
async fn removal(
    target: &Target,
    places: &[String],
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<Located>, Error> {
    let mut all: Vec<Located> = Vec::new();
    for place in places {
        // It is not known whether there was a webhook, or whether the chart was allowed to bring roles, so assume both.
        let mut target = Target {
            judged_at: Some(Value::Null),
            ..target.at(place)
        };
        target.bound.bound.chart_rbac = true;
        let mut here = Vec::new();
        for object in installation.bundle(&target)?.iter().rev() {
            here.push(Located {
                id: cluster.locate(&object.body, Some(place)).await?,
                stage: object.stage,
            });
        }
        // The objects in each namespace go before the shared ones that bound the controller.
        here.retain(|object| all.iter().all(|known| known.id != object.id));
        all.splice(0..0, here);
    }
    Ok(all)
}
