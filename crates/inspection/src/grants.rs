//! The permissions that a release has: its roles and bindings as they are in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Cluster, ObjectId};
use composition::permissions::Grant;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

/// The roles and bindings that are there under the release's role name in these namespaces; the empty one is the
/// cluster.
///
/// # Errors
/// When one of them cannot be read.
pub async fn granted(
    cluster: &Cluster,
    namespaces: BTreeSet<&str>,
    role: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Vec<Grant>, cluster::Error> {
    let mut granted = Vec::new();
    for namespace in namespaces {
        let found = grant(cluster, namespace, role).await?;
        granted.extend(found.map(|grant| grant.as_written(labels)));
    }
    Ok(granted)
}

async fn grant(cluster: &Cluster, namespace: &str, name: &str) -> Result<Option<Grant>, cluster::Error> {
    if namespace.is_empty() {
        let id = ObjectId::of::<ClusterRole>(None, name)?;
        let role: Option<ClusterRole> = cluster.get(&id).await?;
        let Some(role) = role else { return Ok(None) };
        let id = ObjectId::of::<ClusterRoleBinding>(None, name)?;
        let binding: Option<ClusterRoleBinding> = cluster.get(&id).await?;
        return Ok(Some(Grant::Cluster(role, binding.unwrap_or_default())));
    }
    let id = ObjectId::of::<Role>(Some(namespace), name)?;
    let role: Option<Role> = cluster.get(&id).await?;
    let Some(role) = role else { return Ok(None) };
    let id = ObjectId::of::<RoleBinding>(Some(namespace), name)?;
    let binding: Option<RoleBinding> = cluster.get(&id).await?;
    Ok(Some(Grant::Namespaced(role, binding.unwrap_or_default())))
}
