//! Reads what is left of the objects that a deleted definition created.

use std::collections::{BTreeMap, BTreeSet};

use api::{CompositionDefinition, labels};
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use crdgen::CustomResourceDefinition;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

use super::{Reader, controller, granted, others, own_mark, places, removal};
use crate::bundle::Target;
use crate::definition::carried::noted_bound;
use crate::definition::controllers::{self, Controller, Owner};
use crate::definition::desired::target;
use crate::definition::history::served;
use crate::definition::instances::{self, served_resource, type_id};
use crate::definition::observe::derive::{abandoned, run_by_others};
use crate::definition::observe::error::Error;
use crate::definition::observe::observed::{
    Leaving, MadeController, MadeType, Neighbours, Remaining, StandIn,
};
use crate::definition::relocation::running;

/// Reads everything that a definition created.
pub(in crate::definition::observe) async fn leaving(
    definition: &CompositionDefinition,
    from: Reader<'_>,
) -> Result<Leaving, Error> {
    let mut leaving = Leaving {
        grants: granted(definition, from.cluster).await?,
        types: Vec::new(),
        stand_ins: Vec::new(),
        platform_namespace: from.installation.platform.krateo_namespace.clone(),
    };
    let owner = Owner::of(definition);
    let controllers = controllers::all(from.cluster).await?;
    let outside = left_outside(&owner, from.cluster).await?;
    let own = controllers.iter().filter(|controller| controller.owner == owner);
    let marked = own.map(|controller| (controller.resource.clone(), controller.version.clone()));
    // The status may name a controller whose mark was removed by hand.
    let known = marked.chain(served(definition)).chain(outside);
    let mut made: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (resource, version) in known {
        made.entry(resource).or_default().insert(version);
    }
    if made.is_empty() {
        return Ok(leaving);
    }
    let neighbours = Neighbours {
        others: others(definition, from.cluster).await?,
        controllers,
    };
    for (resource, versions) in made {
        let of_type = made_type(definition, &resource, versions, &neighbours, from).await?;
        for version in abandoned(&of_type) {
            let controllers = &neighbours.controllers;
            let stand_in = stand_in(definition, &resource, version, controllers, from).await?;
            leaving.stand_ins.push(stand_in);
        }
        leaving.types.push(of_type);
    }
    Ok(leaving)
}

/// The resources and versions of controllers that have cluster-scoped roles, which finds them even if somebody removed
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

/// Reads a type that the definition had controllers of.
async fn made_type(
    definition: &CompositionDefinition,
    resource: &str,
    versions: BTreeSet<String>,
    neighbours: &Neighbours,
    from: Reader<'_>,
) -> Result<MadeType, Error> {
    let (cluster, installation) = (from.cluster, from.installation);
    let owner = Owner::of(definition);
    let id = type_id(resource)?;
    let live: Option<CustomResourceDefinition> = cluster.get(&id).await?;
    let run_by_others = run_by_others(resource, &owner, neighbours);
    let mut controllers = Vec::new();
    for version in versions {
        let target = target(definition, resource, &version, installation.platform);
        let mark = own_mark(&neighbours.controllers, &owner, resource, &version);
        let places = places(definition, mark, installation.platform);
        let objects = removal(&target, &places, installation, cluster).await?;
        let is_shared = run_by_others.contains(version.as_str());
        controllers.push(MadeController {
            is_running: !is_shared && runs(&target, &places, cluster).await?,
            version,
            objects,
            is_shared,
        });
    }
    let compositions = match live.as_ref().and_then(|live| served_resource(live, None)) {
        Some(through) => remaining(&through, cluster).await?,
        None => Vec::new(),
    };
    Ok(MadeType {
        id,
        is_live: live.is_some(),
        is_shared: !run_by_others.is_empty(),
        controllers,
        compositions,
    })
}

/// The compositions of a type; an empty list when we may not read them.
async fn remaining(through: &ResourceId, cluster: &Cluster) -> Result<Vec<Remaining>, Error> {
    let instances = instances::list(through, None, cluster).await?;
    let mut remaining = Vec::new();
    for instance in instances.unwrap_or_default() {
        remaining.push(Remaining {
            id: instance.id(through)?,
            is_held: instance.held,
            version: instance.version,
        });
    }
    Ok(remaining)
}

/// A controller of a version in the platform's own namespace, only to clean up. It needs neither the chart nor the
/// Secrets for fetching it.
async fn stand_in(
    definition: &CompositionDefinition,
    resource: &str,
    version: &str,
    controllers: &[Controller],
    from: Reader<'_>,
) -> Result<StandIn, Error> {
    let platform = from.installation.platform;
    let mut target = Target {
        namespace: platform.krateo_namespace.clone(),
        secrets: BTreeMap::new(),
        ..target(definition, resource, version, platform)
    };
    target.bound.bound = noted_bound(&target, from.cluster).await?;
    let (bundle, relocation) = controller(definition, &target, controllers, from).await?;
    Ok(StandIn {
        target,
        bundle,
        relocation,
    })
}

/// True while a controller runs in one of these namespaces, and has its permissions: the first one of a version is applied
/// before them.
async fn runs(target: &Target, places: &[String], cluster: &Cluster) -> Result<bool, cluster::Error> {
    for place in places {
        let target = target.at(place);
        let running = running(&target, cluster).await?;
        if running.is_some_and(|running| !running.is_going) && has_permissions(&target, cluster).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True when the last of a controller's permissions is granted.
async fn has_permissions(target: &Target, cluster: &Cluster) -> Result<bool, cluster::Error> {
    let id = ObjectId::of::<RoleBinding>(Some(&target.namespace), &target.base_name())?;
    Ok(cluster.get_metadata(&id).await?.is_some())
}
