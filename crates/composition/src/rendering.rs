//! What a composition adds to its chart: keys under `global` in the values, and labels on the objects.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::composition::Spec;
use api::{Composition, labels};
use crdgen::JSONSchemaProps;
use serde_json::{Map, Value, json};

use crate::schema;

/// The values the chart is rendered with: the composition's spec and, under `global`, keys that identify the
/// composition.
///
/// Where the chart has a schema, the spec is read by `own`, the schema of the composition's version. The user's other
/// `global` keys stay; where both set a key, ours wins. A `global` that is not an object is replaced, because the
/// chart could not read our keys otherwise.
pub fn values(
    composition: &Composition,
    own: Option<Arc<JSONSchemaProps>>,
    krateo_namespace: &str,
) -> Values {
    Values {
        spec: composition.spec.clone(),
        own,
        globals: globals(composition, krateo_namespace),
    }
}

/// The inputs of the values. They are kept instead of the values, which take much more memory and are not needed
/// while waiting for a place to render.
#[derive(Debug, Clone)]
pub struct Values {
    spec: Spec,
    own: Option<Arc<JSONSchemaProps>>,
    globals: Map<String, Value>,
}

impl Values {
    /// Builds the values.
    pub fn make(&self) -> Map<String, Value> {
        let mut spec = self.spec.values();
        if let Some(own) = &self.own {
            schema::read_in_place(own, &mut spec);
        }
        let mut values = match spec {
            Value::Object(spec) => spec,
            _ => Map::new(),
        };
        let global = values
            .entry("global")
            .or_insert_with(|| Value::Object(Map::new()));
        if !global.is_object() {
            *global = Value::Object(Map::new());
        }
        if let Value::Object(global) = global {
            global.extend(self.globals.clone());
        }
        values
    }
}

/// Equal values hash equally, as long as they are read by the same schema.
impl Hash for Values {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            spec,
            own: _,
            globals,
        } = self;
        spec.as_str().hash(state);
        json!(globals).to_string().hash(state);
    }
}

fn globals(composition: &Composition, krateo_namespace: &str) -> Map<String, Value> {
    let resource = &composition.resource;
    [
        ("compositionId", json!(composition.uid)),
        ("compositionName", json!(composition.name)),
        ("compositionNamespace", json!(composition.namespace)),
        ("compositionInstalledVersion", json!(resource.version)),
        ("compositionApiVersion", json!(resource.api_version)),
        ("compositionGroup", json!(resource.group)),
        ("compositionResource", json!(resource.plural)),
        ("compositionKind", json!(resource.kind)),
        ("krateoNamespace", json!(krateo_namespace)),
        // A boolean: charts test it for truth or as text, and a boolean works for both.
        ("gracefullyPaused", json!(composition.is_gracefully_paused())),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// The labels that every object of the release carries, hooks included; they are not added to selectors or pod
/// templates.
pub fn object_labels(composition: &Composition, krateo_namespace: &str) -> BTreeMap<String, String> {
    let resource = &composition.resource;
    [
        (labels::COMPOSITION_ID, composition.uid.as_str()),
        (labels::COMPOSITION_NAME, &composition.name),
        (labels::COMPOSITION_NAMESPACE, &composition.namespace),
        (labels::COMPOSITION_INSTALLED_VERSION, &resource.version),
        (labels::COMPOSITION_GROUP, &resource.group),
        (labels::COMPOSITION_RESOURCE, &resource.plural),
        (labels::COMPOSITION_KIND, &resource.kind),
        (labels::KRATEO_NAMESPACE, krateo_namespace),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), labels::value(value)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::composition;

    #[test]
    fn a_users_global_keys_survive_and_ours_win() {
        let mut composition = composition();
        composition.spec =
            json!({"a": 1, "global": {"imageRegistry": "r", "compositionId": "forged"}}).into();
        let values = values(&composition, None, "krateo-system").make();
        assert_eq!(values["a"], 1);
        assert_eq!(values["global"]["imageRegistry"], "r");
        assert_eq!(
            values["global"]["compositionId"],
            "8f4f3c1e-0000-0000-0000-000000000000"
        );
        assert_eq!(
            values["global"]["compositionApiVersion"],
            "composition.krateo.io/v1-0-0"
        );
        assert_eq!(values["global"]["gracefullyPaused"], false);
        assert_eq!(values["global"].as_object().unwrap().len(), 11);
    }

    #[test]
    fn a_composition_without_a_spec_still_says_who_it_is() {
        let mut composition = composition();
        composition.spec = Value::Null.into();
        assert_eq!(
            values(&composition, None, "k").make()["global"]["compositionName"],
            "web"
        );
    }

    #[test]
    fn names_that_are_no_label_values_still_become_labels() {
        let mut composition = composition();
        composition.name = "x".repeat(100);
        let labels = object_labels(&composition, "krateo-system");
        assert_eq!(labels.len(), 8);
        assert!(
            labels
                .values()
                .all(|value| value.len() <= labels::MAX_VALUE_LENGTH)
        );
    }
}
