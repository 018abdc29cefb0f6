//! Reads the permissions of a release: its roles and bindings in the cluster.

use std::collections::{BTreeMap, BTreeSet};

use api::labels;
use cluster::{Cluster, ObjectId};
use composition::permissions::Grant;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

/// The permissions of a release could not be read, or belong to another composition.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A role or binding could not be read.
    #[error("could not read the permissions of the release")]
    Read(#[from] cluster::Error),
    /// Another composition has a release of that name, and its permissions must not be replaced.
    #[error(
        "role {role:?} in {place} belongs to the release of another composition (UID {owner}): choose another release \
         name with the label {}, or remove that composition",
        labels::RELEASE_NAME
    )]
    Foreign {
        /// The name of the role.
        role: String,
        /// The role's namespace, or the cluster.
        place: String,
        /// The UID of the composition that the role belongs to.
        owner: String,
    },
}

impl Error {
    /// True when the same attempt can succeed later although nobody changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Read(error) => error.is_transient(),
            Self::Foreign { .. } => false,
        }
    }
}

/// The existing roles and bindings with the release's role name in these namespaces; the empty one is the cluster.
/// `labels` are those that they should have.
///
/// # Errors
/// When one cannot be read, or names a composition other than the one in `labels`.
pub async fn granted(
    cluster: &Cluster,
    namespaces: BTreeSet<&str>,
    role: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Vec<Grant>, Error> {
    let mut granted = Vec::new();
    for namespace in namespaces {
        let Some(grant) = grant(cluster, namespace, role).await? else {
            continue;
        };
        let owner = grant.labels().and_then(|found| found.get(labels::COMPOSITION_ID));
        if let Some(owner) = owner.filter(|owner| Some(*owner) != labels.get(labels::COMPOSITION_ID)) {
            return Err(Error::Foreign {
                role: role.to_owned(),
                place: if namespace.is_empty() {
                    "the cluster".to_owned()
                } else {
                    format!("namespace {namespace}")
                },
                owner: owner.clone(),
            });
        }
        granted.push(grant.as_written(labels));
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
