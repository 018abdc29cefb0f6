//! Compositions whose namespace is being deleted: finds and removes the objects of their release outside that
//! namespace.
//!
//! Records and roles in the namespace may be gone before the composition is reconciled, and neither can be created
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::{Composition, labels};
use cluster::{Apply, Cluster, Delete, ObjectId, Propagation, ResourceId, Selector, Served};
use composition::permissions::Grant;
use helm::resource_policy::{RESOURCE_POLICY, is_kept_on_upgrade};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::ResourceExt as _;
use kube::core::{GroupVersionResource, PartialObjectMeta};
use serde_json::json;

use super::context::FIELD_MANAGER;

/// How old the discovery result may be: the objects were written long before.
const SERVED_AGE: Duration = Duration::from_mins(1);

/// True when the namespace is being deleted, or is gone. Found out by a dry run that creates a role of an unused name
/// in it.
pub(super) async fn is_going(namespace: &str, role: &str, cluster: &Cluster) -> Result<bool, cluster::Error> {
    let name = format!("{role}.dry-run");
    let id = ObjectId::of::<Role>(Some(namespace), &name)?;
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
    });
    let how = Apply::by(FIELD_MANAGER).dry_run();
    match cluster.apply(&id, &object, &how).await {
        Err(error) if error.is_namespace_going() || error.is_not_found() => Ok(true),
        // Refused by a policy, which means that the namespace is not being deleted.
        Err(error) if error.is_forbidden() => Ok(false),
        asked => asked.map(|_| false),
    }
}

/// The objects that the release has, or may have, outside the composition's namespace: those in its record, in the
/// composition's status, and those named by its roles. Objects in another namespace that is being deleted are left out.
pub(super) async fn outlying(
    composition: &Composition,
    recorded: Vec<ObjectId>,
    granted: &[Grant],
    role: &str,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, cluster::Error> {
    let served = cluster.discovery().served(SERVED_AGE).await?;
    let managed = composition.status.managed.iter().filter_map(|managed| {
        let (group, version) = managed
            .api_version
            .split_once('/')
            .unwrap_or(("", &managed.api_version));
        let kind = served.plural(&GroupVersionResource::gvr(group, version, &managed.resource))?;
        ObjectId::new(kind.id.clone(), Some(&managed.namespace), &managed.name).ok()
    });
    let mut all: BTreeSet<ObjectId> = recorded.into_iter().chain(managed).collect();
    for grant in granted
        .iter()
        .filter(|grant| grant.namespace() != composition.namespace)
    {
        all.extend(objects_in(grant, composition, &served, cluster).await?);
    }
    let mut going = BTreeMap::from([(composition.namespace.clone(), true)]);
    let mut outlying = Vec::new();
    for object in all {
        if let Some(namespace) = object.namespace() {
            if !going.contains_key(namespace) {
                going.insert(namespace.to_owned(), is_going(namespace, role, cluster).await?);
            }
            if going[namespace] {
                continue;
            }
        }
        outlying.push(object);
    }
    Ok(outlying)
}

/// The objects that a grant leads to: those it names and, for kinds that it allows to list, those with the
/// composition's label.
async fn objects_in(
    grant: &Grant,
    composition: &Composition,
    served: &Served,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, cluster::Error> {
    let namespace = Some(grant.namespace()).filter(|namespace| !namespace.is_empty());
    let label = format!("{}={}", labels::COMPOSITION_ID, composition.uid);
    let selector = Selector {
        namespace,
        labels: Some(&label),
    };
    let mut objects = removable(grant, served);
    for (rule, kind) in grant.rules().iter().flat_map(|rule| kinds(rule, served)) {
        if allows(rule, "list") && !allows(rule, "delete") {
            let name = |found: PartialObjectMeta| found.name_any();
            let names = cluster.map_metadata(&kind, selector, name).await?;
            let ids = names
                .iter()
                .map(|name| ObjectId::new(kind.clone(), namespace, name));
            objects.extend(ids.filter_map(Result::ok));
        }
    }
    Ok(objects)
}

/// The objects that a grant names and allows to delete.
fn removable(grant: &Grant, served: &Served) -> Vec<ObjectId> {
    let namespace = Some(grant.namespace()).filter(|namespace| !namespace.is_empty());
    let rules = grant.rules().iter().flat_map(|rule| kinds(rule, served));
    // A kind that may be listed has a separate rule that names the objects that may be deleted.
    let removable = rules.filter(|(rule, _)| allows(rule, "delete"));
    removable
        .flat_map(|(rule, kind)| {
            let names = rule.resource_names.iter().flatten();
            names.filter_map(move |name| ObjectId::new(kind.clone(), namespace, name).ok())
        })
        .collect()
}

fn allows(rule: &PolicyRule, verb: &str) -> bool {
    rule.verbs.iter().any(|allowed| allowed == verb)
}

/// The objects that the release had when its permissions were granted. Needed when the record was replaced by one that
/// is not this composition's.
pub(super) async fn objects_in_grants(
    granted: &[Grant],
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, cluster::Error> {
    let served = cluster.discovery().served(SERVED_AGE).await?;
    let all: BTreeSet<ObjectId> = granted
        .iter()
        .flat_map(|grant| removable(grant, &served))
        .collect();
    Ok(all.into_iter().collect())
}

/// The kinds of a rule that are served. A kind that is not served has no objects left.
fn kinds<'r>(rule: &'r PolicyRule, served: &Served) -> Vec<(&'r PolicyRule, ResourceId)> {
    let mut kinds = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let mut of_group = served.resources().filter(|served| served.id.group == *group);
            let kind = of_group.find(|served| served.id.plural == *resource);
            kinds.extend(kind.map(|kind| (rule, kind.id.clone())));
        }
    }
    kinds
}

/// Deletes an object of the release, unless its resource policy keeps it or it belongs to another composition.
pub(super) async fn clear(
    object: &ObjectId,
    composition: &Composition,
    cluster: &Cluster,
) -> Result<(), cluster::Error> {
    let Some(live) = cluster.get_metadata(object).await? else {
        return Ok(());
    };
    let is_ours = live.labels().get(labels::COMPOSITION_ID) == Some(&composition.uid);
    let policy = live.annotations().get(RESOURCE_POLICY).map(String::as_str);
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    if !is_ours || is_kept_on_upgrade(policy) {
        tracing::info!(composition = %composition.name, object = %object, "left alone");
        return Ok(());
    }
    let uid = live.uid().unwrap_or_default();
    let how = Delete::with(Propagation::Background).uid(&uid);
    cluster.delete(object, &how).await.map(drop)
}
