//! `Tenant`: a namespace with the operator's chart in it, on the cluster of the object itself.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ClusterCondition, Phase, ReleaseStatus};

/// Which cluster serves the tenant, and with which values.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "mesh.openkcm.io",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    shortname = "tenant",
    namespaced,
    status = "TenantStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"PHASE","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"CHART","type":"string","jsonPath":".status.lastAppliedChart"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"RELEASE","type":"string","jsonPath":".status.releaseNames"}"#,
    printcolumn = r#"{"name":"CLUSTER","type":"string","jsonPath":".status.clusterNames","priority":1}"#,
    printcolumn = r#"{"name":"MESSAGE","type":"string","jsonPath":".status.lastMessage","priority":10}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// The cluster that serves the tenant, if its API server is known under several names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// Values of the chart.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "super::values")]
    pub values: Map<String, Value>,
}

/// A cluster, by the Secret with its kubeconfig.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub secret_name: String,
    /// Namespace of the Secret; if set, it must be the one that the operator searches for clusters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub secret_namespace: String,
}

/// State of a tenant.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Error when it failed on a cluster; otherwise Ready when it is deployed on one; otherwise Pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Conditions for each cluster: `ClusterReady/<cluster>`, `ClusterError/<cluster>`, `ClusterProgress/<cluster>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ClusterCondition>,
    /// The latest message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// The chart that was installed last, `<repository>/<name>:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_chart: Option<String>,
    /// The releases of the tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<ReleaseStatus>,
    /// The names of its releases, separated by commas, because `kubectl get` prints only the first entry of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_names: Option<String>,
    /// The clusters with its releases, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_names: Option<String>,
}
