//! `KryptonDeployment`: the operator's chart on the cluster of a region, said at home.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Phase, ReleaseStatus};

/// Whose it is, where it runs, and with which values.
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
    /// Whose it is.
    pub account: Account,
    /// Where it runs.
    pub region: Region,
    /// Values of the chart.
    #[serde(default = "one_replica")]
    #[schemars(schema_with = "super::deployment_values")]
    pub values: Map<String, Value>,
}

/// Whose a deployment is.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub display_name: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub owner: Option<String>,
}

/// Where a deployment runs.
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

/// Where a kubeconfig is.
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
    /// Its namespace; without one, that in which the operator looks for clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// What became of a deployment.
#[derive(JsonSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KryptonDeploymentStatus {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last thing to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// The chart that was installed last, `<repository>/<name>:<version>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_chart: Option<String>,
    /// What runs where. It stays on that cluster, whatever else the spec may lead to later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseStatus>,
}

fn one_replica() -> Map<String, Value> {
    Map::from_iter([("replicaCount".to_owned(), 1.into())])
}
