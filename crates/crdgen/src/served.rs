//! Which versions of a CRD users work with, and the one in which objects are stored.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;

use crate::CustomResourceDefinition;

/// The version in which objects are stored once there are several. It is never served and preserves all fields, so
/// stored objects do not depend on the schemas of versions that are added or removed.
pub const STORAGE_VERSION: &str = "vacuum";

/// The names of the versions that users work with, in the CRD's order.
pub fn served_versions(crd: &CustomResourceDefinition) -> impl Iterator<Item = &str> {
    real(crd).map(|version| version.name.as_str())
}

pub(crate) fn real(crd: &CustomResourceDefinition) -> impl Iterator<Item = &CustomResourceDefinitionVersion> {
    crd.spec
        .versions
        .iter()
        .filter(|version| version.name != STORAGE_VERSION)
}

pub(crate) fn name(crd: &CustomResourceDefinition) -> String {
    crd.metadata.name.clone().unwrap_or_default()
}
