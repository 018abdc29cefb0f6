//! What we create on a joined cluster: an account, its permissions, and its namespace.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use cluster::{Apply, Cluster, Delete, ObjectId, Propagation, ResourceId, Selector};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::MANAGER;

/// Label of every object, and of the namespace if we created it.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Label of every object: the name of the cluster.
const CLUSTER: &str = "mesh.openkcm.io/joined-cluster";

/// Label of every object: the home that the cluster was joined to.
const HOME: &str = "mesh.openkcm.io/joined-to";

/// Names of what is created on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// Name of the cluster.
    cluster: String,
    /// Identifies home: a few characters of a hash of the UID of the operator's namespace.
    home: String,
    /// Namespace of the `ServiceAccount`.
    pub(super) namespace: String,
    /// Name of the `ServiceAccount`. Several homes may join the same target under the same cluster name.
    pub(super) name: String,
}

impl Account {
    /// The account for a cluster of this name; the UID is that of the operator's namespace at home.
    pub(super) fn new(cluster: &str, home_uid: &str, namespace: &str) -> Self {
        let digest = Sha256::digest(home_uid.as_bytes());
        let home = digest.iter().take(4).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self {
            cluster: cluster.to_owned(),
            name: format!("{cluster}-{home}"),
            namespace: namespace.to_owned(),
            home,
        }
    }

    /// Name of the `ClusterRole` and its bindings.
    fn role(&self) -> String {
        format!("multicluster-operator:{}", self.name)
    }

    fn labels(&self) -> Value {
        json!({
            MANAGED_BY: MANAGER,
            "app.kubernetes.io/part-of": "multicluster-operator",
            CLUSTER: self.cluster,
            HOME: self.home,
        })
    }

    fn subjects(&self) -> Value {
        json!([{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}])
    }

    /// The objects of the account in the order in which they are created, without the namespace. They are removed in
    /// reverse order.
    pub(super) fn objects(&self, rules: &[Value], cluster_roles: &[String]) -> Vec<Value> {
        let rbac = |kind: &str, name: &str, namespace: Option<&str>| {
            let mut object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": name, "labels": self.labels()},
            });
            if let Some(namespace) = namespace {
                object["metadata"]["namespace"] = json!(namespace);
            }
            object
        };
        let role_ref = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let bound = |mut binding: Value, role: Value| {
            binding["roleRef"] = role;
            binding["subjects"] = self.subjects();
            binding
        };
        let mut cluster_role = rbac("ClusterRole", &self.role(), None);
        cluster_role["rules"] = json!(rules);
        // It may renew its own token, and no other account's.
        let mut own_token = rbac("Role", &self.name, Some(&self.namespace));
        own_token["rules"] = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [self.name], "verbs": ["create"],
        }]);
        let mut objects = vec![
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
                "metadata": {"name": self.name, "namespace": self.namespace, "labels": self.labels()},
            }),
            own_token,
            bound(
                rbac("RoleBinding", &self.name, Some(&self.namespace)),
                role_ref("Role", &self.name),
            ),
            cluster_role,
            bound(
                rbac("ClusterRoleBinding", &self.role(), None),
                role_ref("ClusterRole", &self.role()),
            ),
        ];
        for given in cluster_roles {
            let binding = rbac("ClusterRoleBinding", &format!("{}:{given}", self.role()), None);
            objects.push(bound(binding, role_ref("ClusterRole", given)));
        }
        objects
    }

    /// Writes the objects, and creates the namespace if it does not exist.
    pub(super) async fn make(&self, target: &Cluster, objects: &[Value]) -> Result<()> {
        let namespace = ObjectId::of::<Namespace>(None, &self.namespace)?;
        if target.get_metadata(&namespace).await?.is_none() {
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": self.namespace, "labels": {MANAGED_BY: MANAGER}},
            });
            match target.create(&namespace, &object, MANAGER).await {
                Err(error) if !error.is_already_exists() => return Err(error.into()),
                _ => {}
            }
        }
        self.remove_surplus(target, objects).await?;
        for object in objects {
            let id = target.locate(object, None).await?;
            target.apply(&id, object, &Apply::by(MANAGER).force()).await?;
        }
        Ok(())
    }

    /// Removes bindings of an earlier join that are no longer wanted.
    async fn remove_surplus(&self, target: &Cluster, objects: &[Value]) -> Result<()> {
        for id in self.found(target, "ClusterRoleBinding").await? {
            if !objects
                .iter()
                .any(|object| object["metadata"]["name"] == id.name())
            {
                target.delete(&id, &Delete::with(Propagation::Background)).await?;
            }
        }
        Ok(())
    }

    /// Removes all of them in any namespace, and the namespace if we created it and it contains no other account.
    /// Returns what was removed.
    pub(super) async fn remove(&self, target: &Cluster) -> Result<Vec<ObjectId>> {
        let mut removed = Vec::new();
        for kind in [
            "ClusterRoleBinding",
            "ClusterRole",
            "RoleBinding",
            "Role",
            "ServiceAccount",
        ] {
            for id in self.found(target, kind).await? {
                target.delete(&id, &Delete::with(Propagation::Background)).await?;
                removed.push(id);
            }
        }
        let namespaces: BTreeSet<&str> = removed.iter().filter_map(ObjectId::namespace).collect();
        for namespace in namespaces {
            remove_namespace(target, namespace)
                .await
                .context("the account is removed, its namespace is not")?;
        }
        Ok(removed)
    }

    /// Objects of a kind with our labels.
    async fn found(&self, target: &Cluster, kind: &str) -> Result<Vec<ObjectId>> {
        let resource = match kind {
            "ServiceAccount" => ResourceId::of::<ServiceAccount>(),
            "Role" => ResourceId::of::<Role>(),
            "RoleBinding" => ResourceId::of::<RoleBinding>(),
            "ClusterRole" => ResourceId::of::<ClusterRole>(),
            _ => ResourceId::of::<ClusterRoleBinding>(),
        };
        let labels = format!("{CLUSTER}={},{HOME}={}", self.cluster, self.home);
        let selector = Selector {
            namespace: None,
            labels: Some(&labels),
        };
        let found = target.list_metadata(&resource, selector).await?;
        let ids = found.iter().map(|one| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            ObjectId::new(resource.clone(), one.metadata.namespace.as_deref(), name)
        });
        Ok(ids.collect::<Result<_, _>>()?)
    }
}

/// Removes a namespace that we created, unless it contains other accounts.
async fn remove_namespace(target: &Cluster, name: &str) -> Result<()> {
    let id = ObjectId::of::<Namespace>(None, name)?;
    let Some(found) = target.get_metadata(&id).await? else {
        return Ok(());
    };
    let labels = found.metadata.labels.unwrap_or_default();
    if labels.get(MANAGED_BY).is_none_or(|manager| manager != MANAGER) {
        return Ok(());
    }
    let selector = Selector {
        namespace: Some(name),
        labels: None,
    };
    let accounts = target
        .list_metadata(&ResourceId::of::<ServiceAccount>(), selector)
        .await?;
    // Every namespace has an account called default; ours is no longer in the list.
    let is_shared = accounts
        .iter()
        .any(|account| account.metadata.name.as_deref() != Some("default"));
    if !is_shared {
        let uid = found.metadata.uid.unwrap_or_default();
        let how = Delete::with(Propagation::Background).uid(&uid);
        target.delete(&id, &how).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_two_homes_have_names_of_their_own() {
        let one = Account::new("edge", "5f2c", "ops");
        let other = Account::new("edge", "5f2d", "ops");
        assert!(
            one.name.starts_with("edge-") && one.name.len() == "edge-".len() + 8,
            "{one:?}"
        );
        assert_ne!(one.name, other.name);
        assert_eq!(one, Account::new("edge", "5f2c", "ops"));
    }

    #[test]
    fn every_object_of_an_account_is_labelled_and_bound_to_it_alone() {
        let account = Account::new("edge", "5f2c", "ops");
        let objects = account.objects(&[json!({"verbs": ["get"]})], &["viewer".to_owned()]);
        let kinds: Vec<_> = objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            [
                "ServiceAccount",
                "Role",
                "RoleBinding",
                "ClusterRole",
                "ClusterRoleBinding",
                "ClusterRoleBinding"
            ]
        );
        for object in &objects {
            assert_eq!(object["metadata"]["labels"][CLUSTER], "edge", "{object}");
            if object["kind"].as_str().unwrap().ends_with("Binding") {
                assert_eq!(object["subjects"], account.subjects(), "{object}");
            }
        }
        assert_eq!(objects[1]["rules"][0]["resourceNames"], json!([account.name]));
        assert_eq!(objects[5]["roleRef"]["name"], "viewer");
        assert_ne!(objects[4]["metadata"]["name"], objects[5]["metadata"]["name"]);
    }
}
