//! `JoiningNode`: a node that has a ticket but has not joined yet.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use serde::{Deserialize, Serialize};

/// API group of the type.
pub const GROUP: &str = "update.edgeless.systems";

/// Name of the only object for control planes, which join one after the other.
pub const CONTROL_PLANE: &str = "control-plane";

/// The joining node, and until when its ticket is valid.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "update.edgeless.systems",
    version = "v1alpha1",
    kind = "JoiningNode",
    plural = "joiningnodes",
    printcolumn = r#"{"name":"NODE","type":"string","jsonPath":".spec.name"}"#,
    printcolumn = r#"{"name":"CONTROL-PLANE","type":"boolean","jsonPath":".spec.isControlPlane"}"#,
    printcolumn = r#"{"name":"DEADLINE","type":"string","jsonPath":".spec.deadline"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct JoiningNodeSpec {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of the `ConfigMap` with the components it installs.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub components_reference: String,
    /// True when it will run an API server.
    #[serde(default)]
    pub is_control_plane: bool,
    /// SHA-256 of the attestation key that was given the ticket, in hexadecimal.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub attestation_key: String,
    /// Until when others wait for it.
    pub deadline: Time,
}

/// The definition of the type.
pub fn crd() -> CustomResourceDefinition {
    JoiningNode::crd()
}
