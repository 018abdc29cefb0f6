//! Moves a controller to another namespace: what has to be done before it may run there.
//!
//! Controllers coordinate by Leases in their own namespace, so two of them in different namespaces would act at the
//! same time. Therefore the former one is removed first, including its pods: a Deployment that is deleted in the
//! foreground exists until they are gone. Then its account loses its permissions, before the policies are changed to
//! the new account, since they restrict only one. The mark, which records the namespace, is updated after everything in
//! the former namespace, so that a pass after an interruption finds the same work.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, ObjectId};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::observe::error::Error;
use crate::bundle::{Installation, Target};

/// How long to wait for the former pods to end. A pod on a node that does not respond is not waited for longer: its
/// account and permissions are removed.
const GONE_WITHIN: Duration = Duration::from_mins(2);

/// What is left of a controller in its former namespace.
pub(crate) struct Relocation {
    /// Its Deployment, until it is gone together with its pods.
    pub(crate) running: Option<Running>,
    /// Bindings of its bundle that name its former account, to be deleted and created again.
    pub(crate) withdrawn: Vec<ObjectId>,
    /// Bindings of releases that name its former account, each with a patch to the new account.
    pub(crate) rebound: Vec<(ObjectId, Value)>,
    /// Its other objects there, in the order of their removal.
    pub(crate) left: Vec<ObjectId>,
}

/// A Deployment that still exists.
pub(crate) struct Running {
    pub(crate) id: ObjectId,
    /// True when it is being deleted.
    pub(crate) is_going: bool,
}

/// Since when passes have been waiting for Deployments.
#[derive(Default)]
pub(crate) struct Waits {
    begun: Mutex<HashMap<ObjectId, Instant>>,
}

impl Waits {
    /// True when the wait has lasted long enough.
    fn are_over(&self, id: &ObjectId) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.entry(id.clone()).or_insert_with(Instant::now).elapsed() > GONE_WITHIN
    }

    fn forget(&self, id: &ObjectId) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.remove(id);
    }
}

/// What has to be done before the controller in namespace `from` may run in the namespace of `target`.
pub(super) async fn relocation(
    target: &Target,
    from: &str,
    installation: Installation<'_>,
    waits: &Waits,
    cluster: &Cluster,
) -> Result<Relocation, Error> {
    let mut relocation = Relocation {
        running: running(&target.at(from), cluster).await?,
        withdrawn: Vec::new(),
        rebound: Vec::new(),
        left: Vec::new(),
    };
    if let Some(running) = &relocation.running {
        if !waits.are_over(&running.id) {
            return Ok(relocation);
        }
        tracing::warn!(
            deployment = %running.id,
            "still there after {GONE_WITHIN:?}: the controller starts in {} without waiting for its pods",
            target.namespace
        );
        waits.forget(&running.id);
        relocation.running = None;
    }
    relocation.withdrawn = withdrawn(target, installation, cluster).await?;
    relocation.rebound = rebound(target, from, cluster).await?;
    relocation.left = left(target, from, installation, cluster).await?;
    Ok(relocation)
}

/// The Deployment of a controller, as long as it exists.
pub(super) async fn running(target: &Target, cluster: &Cluster) -> Result<Option<Running>, cluster::Error> {
    let id = ObjectId::of::<Deployment>(Some(&target.namespace), &target.deployment_name())?;
    let live = cluster.get_metadata(&id).await?;
    Ok(live.map(|live| Running {
        is_going: live.metadata.deletion_timestamp.is_some(),
        id,
    }))
}

/// The bindings of the bundle that name the controller's account.
async fn withdrawn(
    target: &Target,
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, Error> {
    let mut bindings = Vec::new();
    for object in installation.bundle(target)? {
        let subjects = object.body["subjects"].as_array();
        let gives = subjects
            .into_iter()
            .flatten()
            .any(|subject| subject["name"] == target.base_name() && subject["namespace"] == target.namespace);
        if gives {
            bindings.push(cluster.locate(&object.body, Some(&target.namespace)).await?);
        }
    }
    Ok(bindings)
}

/// The bindings of releases that name the controller's account in `from`.
async fn rebound(target: &Target, from: &str, cluster: &Cluster) -> Result<Vec<(ObjectId, Value)>, Error> {
    let cluster_wide: Vec<ClusterRoleBinding> = cluster
        .list(
            &cluster::ResourceId::of::<ClusterRoleBinding>(),
            cluster::Selector::default(),
        )
        .await?;
    let namespaced: Vec<RoleBinding> = cluster
        .list(
            &cluster::ResourceId::of::<RoleBinding>(),
            cluster::Selector::default(),
        )
        .await?;
    let mut bindings = Vec::new();
    for binding in &cluster_wide {
        if is_former(&binding.metadata, binding.subjects.as_deref(), target, from) {
            let id = ObjectId::of::<ClusterRoleBinding>(None, &binding.name_any())?;
            bindings.push((id, renamed(&binding.metadata, target)));
        }
    }
    for binding in &namespaced {
        if is_former(&binding.metadata, binding.subjects.as_deref(), target, from) {
            let id = ObjectId::of::<RoleBinding>(binding.metadata.namespace.as_deref(), &binding.name_any())?;
            bindings.push((id, renamed(&binding.metadata, target)));
        }
    }
    Ok(bindings)
}

/// True for the binding of a release that names only the controller's account in `from`.
fn is_former(metadata: &ObjectMeta, subjects: Option<&[Subject]>, target: &Target, from: &str) -> bool {
    let name = metadata.name.as_deref().unwrap_or_default();
    let Some([subject]) = subjects else { return false };
    name.starts_with(&format!("composition:{}:", target.resource))
        && subject.kind == "ServiceAccount"
        && subject.name == target.base_name()
        && subject.namespace.as_deref() == Some(from)
}

/// A patch of the binding to the account in the new namespace.
fn renamed(metadata: &ObjectMeta, target: &Target) -> Value {
    json!({
        "metadata": {"resourceVersion": metadata.resource_version},
        "subjects": [{"kind": "ServiceAccount", "name": target.base_name(), "namespace": target.namespace}],
    })
}

/// The objects that remain in `from`, in the order of their removal.
async fn left(
    target: &Target,
    from: &str,
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, Error> {
    let here: HashSet<ObjectId> = located(target, installation, cluster)
        .await?
        .into_iter()
        .collect();
    let mut left = located(&target.at(from), installation, cluster).await?;
    left.retain(|id| id.namespace() == Some(from) && !here.contains(id));
    left.reverse();
    Ok(left)
}

async fn located(
    target: &Target,
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, Error> {
    let mut ids = Vec::new();
    for object in installation.bundle(target)? {
        ids.push(cluster.locate(&object.body, Some(&target.namespace)).await?);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::tests::target;

    #[test]
    fn bindings_of_the_types_releases_are_found_by_the_account_they_name() {
        let account = |name: &str, namespace: &str| Subject {
            kind: "ServiceAccount".into(),
            name: name.into(),
            namespace: Some(namespace.into()),
            ..Subject::default()
        };
        let check = |name: &str, subjects: &[Subject], expected: bool| {
            let metadata = ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            };
            assert_eq!(is_former(&metadata, Some(subjects), &target(), "team"), expected);
        };
        let own = account("fireworksapps-v1-1-6", "team");
        let release = "composition:fireworksapps:shop:web";
        check(release, std::slice::from_ref(&own), true);
        check("composition:others:shop:web", std::slice::from_ref(&own), false);
        check("fireworksapps-v1-1-6", std::slice::from_ref(&own), false);
        check(
            release,
            &[account("fireworksapps-v1-1-6", "krateo-system")],
            false,
        );
        check(release, &[account("fireworksapps-v2-0-0", "team")], false);
        check(release, &[own.clone(), account("default", "team")], false);
        check(release, &[], false);
    }

    #[test]
    fn the_wait_for_a_deployment_starts_when_it_is_first_seen() {
        let id = ObjectId::of::<Deployment>(Some("team"), "web").unwrap();
        let waits = Waits::default();
        assert!(!waits.are_over(&id));
        let long_ago = Instant::now().checked_sub(GONE_WITHIN * 2).unwrap();
        waits.begun.lock().unwrap().insert(id.clone(), long_ago);
        assert!(waits.are_over(&id));
        waits.forget(&id);
        assert!(!waits.are_over(&id));
    }
}
