//! `Tenant` and `KryptonDeployment`: one chart, released on many clusters.

pub mod annotations;
pub mod conditions;
mod deployment;
pub mod events;
mod tenant;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResourceExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use deployment::{
    Account, KryptonDeployment, KryptonDeploymentSpec, KryptonDeploymentStatus, Kubeconfig, Region,
    SecretReference,
};
pub use tenant::{ClusterRef, Tenant, TenantSpec, TenantStatus};

/// API group of both types.
pub const GROUP: &str = "mesh.openkcm.io";

/// On a [`Tenant`]: its releases are removed before it is.
pub const TENANT_FINALIZER: &str = "mesh.openkcm.io/cleanup";

/// On a [`KryptonDeployment`]: its release is removed before it is.
pub const DEPLOYMENT_FINALIZER: &str = "mesh.openkcm.io/kryptondeployment-finalizer";

/// On every object of a release, and on the namespace that was created for it: UID of the [`Tenant`] or
/// [`KryptonDeployment`] that it belongs to.
pub const OWNER_UID: &str = "mesh.openkcm.io/owner-uid";

/// On a Secret in the discovery namespace, with the value `true`: it contains the kubeconfig of a cluster.
pub const KUBECONFIG_LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// The CRDs of both types.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [Tenant::crd(), KryptonDeployment::crd()]
}

/// Overall state.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Not deployed yet.
    #[default]
    Pending,
    /// Deployed and up.
    Ready,
    /// Something failed.
    Error,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Ready, Self::Error];
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Error => "Error",
        })
    }
}

/// A condition about one cluster. Its type is `ClusterReady/<cluster>`, which the pattern of usual conditions does
/// not allow: they require a DNS name before the slash.
#[derive(JsonSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCondition {
    /// What it is about: a kind of condition and a cluster.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(schema_with = "condition_status")]
    pub status: String,
    /// The reason, for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// The reason, for people.
    #[serde(default)]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// The generation of the object that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A release on a cluster.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// Name of the cluster, which is that of the Secret with its kubeconfig.
    pub cluster: String,
    /// Namespace of that Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_namespace: Option<String>,
    /// Namespace of the release on that cluster.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
    /// Its newest revision.
    pub revision: i64,
    /// Its chart, `<repository>/<name>:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
}

fn condition_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["True", "False", "Unknown"]})
}

/// Values of a chart: an object that the API server keeps as it is.
fn values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The values of [`KryptonDeployment`], with one replica by default.
fn deployment_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "default": {"replicaCount": 1},
    })
}
