//! What the status of a definition records about its versions.

use api::CompositionDefinition;
use crdgen::{Names, ServedVersion};

/// The resource and version that the definition last served, according to its status.
pub(super) fn served(definition: &CompositionDefinition) -> Option<(String, String)> {
    let status = definition.status.as_ref()?;
    let version = version_of(status.api_version.as_deref()?);
    Some((status.resource.clone()?, version.to_owned()))
}

/// The version that the definition ran before this one, if it was of the same kind.
pub(super) fn previous(
    definition: &CompositionDefinition,
    names: &Names,
    version: &ServedVersion,
) -> Option<String> {
    let status = definition.status.as_ref()?;
    if status.kind.as_deref() != Some(&names.kind) {
        return None;
    }
    match status.api_version.as_deref().map(version_of) {
        Some(run) if run != version.as_str() => Some(run.to_owned()),
        _ => status.previous_version.clone(),
    }
}

/// Versions that the definition served, according to its status.
pub(super) fn served_before(definition: &CompositionDefinition) -> impl Iterator<Item = String> + '_ {
    let managed = definition
        .status
        .as_ref()
        .and_then(|status| status.managed.as_ref());
    managed
        .into_iter()
        .flat_map(|managed| &managed.version_info)
        .filter(|info| info.chart.is_some())
        .map(|info| info.version.clone())
}

/// The type that a deletion has to lock.
pub(crate) fn former_type(definition: &CompositionDefinition) -> String {
    let status = definition.status.as_ref();
    status
        .and_then(|status| status.resource.clone())
        .unwrap_or_default()
}

/// The part of an `apiVersion` after the group.
pub(super) fn version_of(api_version: &str) -> &str {
    api_version
        .rsplit_once('/')
        .map_or(api_version, |(_, version)| version)
}
