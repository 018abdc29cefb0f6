//! A composition: one object of a type that was generated from a chart.
//!
//! Its type exists only at run time, so it is read as a [`DynamicObject`]; [`Composition`] is that object parsed
//! once, with the fields that every step needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{ApiResource, DynamicObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{annotations, finalizers, labels};

/// One object of a generated type.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// Its type, as the API server serves it.
    pub resource: ApiResource,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// True once its deletion was requested.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec`: the values of the chart.
    pub spec: Spec,
    /// `status`.
    pub status: CompositionStatus,
}

/// The spec of a composition, as text: passes keep it while they wait, and parsed it takes ten times the memory or
/// more. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec(Arc<str>);

impl Spec {
    /// Its values, parsed on each call.
    pub fn values(&self) -> Value {
        // The text was serialised from a value, so parsing cannot fail.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Its JSON text, which is equal for equal values.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Value> for Spec {
    fn from(values: Value) -> Self {
        Self(values.to_string().into())
    }
}

/// A composition's object lacks a field that the API server always sets, or its status is not ours.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// A field of the metadata is missing.
    #[error("the object has no metadata.{0}")]
    Missing(&'static str),
    /// Fields of the status have other types than ours.
    #[error("the status cannot be read")]
    Status(#[source] serde_json::Error),
}

/// No release has more revisions; a hint may be any number that somebody wrote.
const MOST_REVISIONS: i64 = 1_000_000_000;

impl Composition {
    /// Revisions near which the records of its release are searched: first that of the status, as a controller of
    /// ours wrote it; empty if none was ever given. They are only hints: anybody who may write the composition may
    /// write both.
    pub fn revision_hints(&self) -> Vec<i64> {
        let told = self
            .told_revision()
            .filter(|told| (1..=MOST_REVISIONS).contains(told));
        let mut hints: Vec<i64> = self.status.release_revision.into_iter().chain(told).collect();
        hints.dedup();
        hints
    }

    /// True when the status lists objects of a release but no controller of ours has seen a record of it: it is
    /// Krateo's, whose status has no revision. If no record is found, an admin has to confirm that there is no such
    /// release.
    pub fn has_unseen_release(&self) -> bool {
        let is_denied = self.told_revision() == Some(0);
        !is_denied && self.status.release_revision.is_none() && !self.status.managed.is_empty()
    }

    fn told_revision(&self) -> Option<i64> {
        let told = self.annotations.get(annotations::RELEASE_REVISION)?;
        told.parse().ok()
    }

    /// Reads an object of type `resource`.
    ///
    /// # Errors
    /// When it did not come from an API server (no name, namespace or UID), or has a foreign status.
    pub fn read(mut object: DynamicObject, resource: &ApiResource) -> Result<Self, Malformed> {
        let mut taken = |field: &str| object.data.get_mut(field).map(Value::take);
        let status = match taken("status") {
            None | Some(Value::Null) => CompositionStatus::default(),
            Some(status) => serde_json::from_value(status).map_err(Malformed::Status)?,
        };
        let spec = taken("spec").unwrap_or(Value::Object(serde_json::Map::new()));
        let meta = object.metadata;
        Ok(Self {
            resource: resource.clone(),
            name: meta.name.ok_or(Malformed::Missing("name"))?,
            namespace: meta.namespace.ok_or(Malformed::Missing("namespace"))?,
            uid: meta.uid.ok_or(Malformed::Missing("uid"))?,
            resource_version: meta.resource_version,
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            spec: spec.into(),
            status,
        })
    }

    /// True when the annotation asks for an immediate pause.
    pub fn is_paused(&self) -> bool {
        annotations::is_true(&self.annotations, annotations::PAUSED)
    }

    /// True when the annotation asks for a pause after the chart has been told.
    pub fn is_gracefully_paused(&self) -> bool {
        annotations::is_true(&self.annotations, annotations::GRACEFULLY_PAUSED)
    }

    /// Since when it is gracefully paused, according to our annotation.
    pub fn paused_since(&self) -> Option<&str> {
        let since = self.annotations.get(annotations::GRACEFULLY_PAUSED_TIME)?;
        Some(since.as_str())
    }

    /// True when the chart has been told about the graceful pause, so nothing more has to be done.
    pub fn pause_has_taken_effect(&self) -> bool {
        self.is_gracefully_paused() && self.paused_since().is_some()
    }

    /// True when the object has our finalizer.
    pub fn is_held(&self) -> bool {
        self.finalizers
            .iter()
            .any(|finalizer| finalizer == finalizers::COMPOSITION)
    }

    /// The definition that its labels name, as (namespace, name).
    pub fn definition(&self) -> Option<(&str, &str)> {
        let namespace = self.labels.get(labels::DEFINITION_NAMESPACE)?;
        let name = self.labels.get(labels::DEFINITION_NAME)?;
        Some((namespace, name))
    }
}

/// `status` of a composition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompositionStatus {
    /// Ready, Synced and Released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the chart of the release came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_chart_url: Option<String>,
    /// Version of the chart of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_chart_version: Option<String>,
    /// Hash of the manifest that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The hash before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_digest: Option<String>,
    /// The objects of the release, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed: Vec<Managed>,
    /// Name of the release, once chosen: it never changes afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Revision of the release that was deployed last: where the search for its records starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_revision: Option<i64>,
}

/// One object of a release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Managed {
    /// Group and version.
    pub api_version: String,
    /// Plural resource name.
    pub resource: String,
    /// Name.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// Its URL path at the API server.
    pub path: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn composition(told: Option<&str>, status: &Value) -> Composition {
        let annotations = told.map(|told| json!({annotations::RELEASE_REVISION: told}));
        let object = json!({
            "metadata": {"name": "web", "namespace": "team", "uid": "42", "annotations": annotations},
            "status": status,
        });
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk("composition.krateo.io", "v1-0-0", "Web"),
            "webs",
        );
        Composition::read(serde_json::from_value(object).unwrap(), &resource).unwrap()
    }

    #[test]
    fn records_are_looked_for_where_the_status_and_the_annotation_say() {
        let check = |told: Option<&str>, status: Option<i64>, expected: &[i64]| {
            let composition = composition(told, &json!({"releaseRevision": status}));
            assert_eq!(composition.revision_hints(), expected, "{told:?} {status:?}");
        };
        check(None, None, &[]);
        check(Some("7"), None, &[7]);
        check(Some("7"), Some(9), &[9, 7]);
        check(Some("900"), Some(9), &[9, 900]);
        check(Some("9"), Some(9), &[9]);
        for nonsense in ["0", "-1", "x", "9000000000"] {
            check(Some(nonsense), None, &[]);
        }
    }

    #[test]
    fn a_release_of_krateo_is_unseen_until_a_record_was_read_or_the_annotation_denies_it() {
        let managed = json!([{"apiVersion": "v1", "resource": "configmaps", "name": "a", "path": "/"}]);
        let of_krateo = json!({"managed": managed});
        for told in [None, Some("7"), Some("x")] {
            assert!(composition(told, &of_krateo).has_unseen_release(), "{told:?}");
        }
        assert!(!composition(Some("0"), &of_krateo).has_unseen_release());
        let seen = json!({"managed": managed, "releaseRevision": 7});
        assert!(!composition(None, &seen).has_unseen_release());
        assert!(!composition(None, &json!({})).has_unseen_release());
    }
}
