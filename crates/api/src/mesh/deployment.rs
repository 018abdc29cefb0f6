//! `KryptonDeployment`: the operator's chart on the cluster of a region; the object itself is on the home cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Phase, ReleaseStatus};

/// Account, region and values.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "mesh.openkcm.io",
    version = "v1alpha1",
    kind = "KryptonDeployment",
    plural = "kryptondeployments",
    shortname = "kd",
    namespaced,
    status = "KryptonDeploymentStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"PHASE","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"REGION","type":"string","jsonPath":".spec.region.name"}"#,
    printcolumn = r#"{"name":"CHART","type":"string","jsonPath":".status.lastAppliedChart"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"RELEASE","type":"string","jsonPath":".status.release.name"}"#,
    printcolumn = r#"{"name":"CLUSTER","type":"string","jsonPath":".status.release.cluster","priority":1}"#,
    printcolumn = r#"{"name":"REVISION","type":"integer","jsonPath":".status.release.revision","priority":1}"#,
    printcolumn = r#"{"name":"REASON","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason","priority":1}"#,
    printcolumn = r#"{"name":"MESSAGE","type":"string","jsonPath":".status.lastMessage","priority":10}"#
)]
#[serde(rename_all = "camelCase")]
pub struct KryptonDeploymentSpec {
    /// The account that it belongs to.
    pub account: Account,
    /// The region where it runs.
    pub region: Region,
    /// Values of the chart.
    #[serde(default = "one_replica")]
    #[schemars(schema_with = "super::deployment_values")]
    pub values: Map<String, Value>,
}

/// The account that a deployment belongs to.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub display_name: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub owner: Option<String>,
}

/// The region where a deployment runs.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    /// Its name. Without a kubeconfig, that of the Secret is `<name>-kubeconfig`.
    #[schemars(length(min = 1, max = 242))]
    pub name: String,
    /// The kubeconfig of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<Kubeconfig>,
    /// Deprecated: the same as `kubeconfig.secret.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub kubeconfig_secret_name: Option<String>,
}

/// Location of a kubeconfig.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubeconfig {
    /// The Secret. One of another namespace than the deployment's has to allow it, by the annotation
    /// `krateo.io/allow-from-namespaces`.
    pub secret: SecretReference,
}

/// A Secret.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretReference {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its namespace; by default the one that the operator searches for clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// State of a deployment.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KryptonDeploymentStatus {
    /// Overall state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The latest message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// The chart that was installed last, `<repository>/<name>:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_chart: Option<String>,
    /// The release. It stays on that cluster, even if the spec selects another one later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseStatus>,
}

fn one_replica() -> Map<String, Value> {
    Map::from_iter([("replicaCount".to_owned(), 1.into())])
}
