//! A controller that runs elsewhere than it should: what has to be done before it may run here.
//!
//! The Leases by which controllers tell each other apart lie in their namespaces, so two in different namespaces would act
//! at once. The former one goes first, with its pods: a Deployment that is deleted in the foreground is gone once they are.
//! Then its account loses what it was given, before the policies are written for the new one: they hold one account. The
//! role that marks the controller says where it is and is written last of all that concerns the former place, so that
//! whoever comes after an interruption finds the same to do.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, ObjectId};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::observe::Error;
use crate::bundle::{Installation, Target};

/// How long the former pods may take to go. What runs on a node that does not answer is not waited for: its account is
/// gone, and so is what that was given.
const GONE_WITHIN: Duration = Duration::from_mins(2);

/// What is left of a controller at its former place.
pub(crate) struct Relocation {
    /// Its Deployment, until that is gone with its pods.
    pub(crate) running: Option<Running>,
    /// Bindings of its bundle that name its former account. They are written anew.
    pub(crate) withdrawn: Vec<ObjectId>,
    /// Bindings of releases that name its former account, and how they come to name the new one.
    pub(crate) rebound: Vec<(ObjectId, Value)>,
    /// What else lies there, in the order in which it goes.
    pub(crate) left: Vec<ObjectId>,
}

/// A Deployment that has not gone.
pub(crate) struct Running {
    pub(crate) id: ObjectId,
    /// True when it was told to.
    pub(crate) is_going: bool,
}

/// Since when Deployments are waited for.
#[derive(Default)]
pub(crate) struct Waits {
    begun: Mutex<HashMap<ObjectId, Instant>>,
}

impl Waits {
    /// True when it was waited for long enough.
    fn are_over(&self, id: &ObjectId) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.entry(id.clone()).or_insert_with(Instant::now).elapsed() > GONE_WITHIN
    }

    fn forget(&self, id: &ObjectId) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.remove(id);
    }
}

/// What has to be done before the controller that runs in namespace `from` may run where `target` says.
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

/// The Deployment of a controller, as long as it is there.
pub(super) async fn running(target: &Target, cluster: &Cluster) -> Result<Option<Running>, cluster::Error> {
    let id = ObjectId::of::<Deployment>(Some(&target.namespace), &target.deployment_name())?;
    let live = cluster.get_metadata(&id).await?;
    Ok(live.map(|live| Running {
        is_going: live.metadata.deletion_timestamp.is_some(),
        id,
    }))
}

/// The bindings of the bundle that give the controller's account anything.
async fn withdrawn(
    target: &Target,
    installation: Installation<'_>,
    cluster: &Cluster,
) -> Result<Vec<ObjectId>, Error> {
    let mut bindings = Vec::new();
    for object in installation.bundle(target)? {
        let subjects = object["subjects"].as_array();
        let gives = subjects
            .into_iter()
            .flatten()
            .any(|subject| subject["name"] == target.base_name() && subject["namespace"] == target.namespace);
        if gives {
            bindings.push(cluster.locate(&object, Some(&target.namespace)).await?);
        }
    }
    Ok(bindings)
}

/// The bindings of releases that give something to the account of that name in `from`.
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

/// True of the binding of a release that names the controller's account in `from` and nobody else.
fn is_former(metadata: &ObjectMeta, subjects: Option<&[Subject]>, target: &Target, from: &str) -> bool {
    let name = metadata.name.as_deref().unwrap_or_default();
    let Some([subject]) = subjects else { return false };
    name.starts_with(&format!("composition:{}:", target.resource))
        && subject.kind == "ServiceAccount"
        && subject.name == target.base_name()
        && subject.namespace.as_deref() == Some(from)
}

/// The binding for the account of the new place.
fn renamed(metadata: &ObjectMeta, target: &Target) -> Value {
    json!({
        "metadata": {"resourceVersion": metadata.resource_version},
        "subjects": [{"kind": "ServiceAccount", "name": target.base_name(), "namespace": target.namespace}],
    })
}

/// What lies in `from` and not where it belongs now, the first to go first.
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
        ids.push(cluster.locate(&object, Some(&target.namespace)).await?);
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
    fn a_deployment_is_waited_for_from_when_it_is_first_seen() {
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
