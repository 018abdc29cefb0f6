//! Turns a chart's schemas and default values into the schema of a composition's spec, and reads a spec by it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crdgen::conversion::{self, Changes};
use crdgen::{BadDefaults, Degraded, JSONSchemaProps, Structural};
use helm::chart::{Chart, Dependency};
use helm::engine::{self, Engine};
use serde_json::{Map, Value};

/// A chart's schema cannot be turned into the schema of a spec.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A schema document is not JSON.
    #[error("values.schema.json of chart {chart} is not valid JSON")]
    Syntax {
        /// The chart, or a subchart.
        chart: String,
        /// Where the syntax error is.
        source: serde_json::Error,
    },
    /// The chart's default values cannot be merged with those of its dependencies.
    #[error("the chart's default values cannot be merged")]
    Defaults(#[source] Box<engine::Error>),
    /// The document is not a schema that a custom resource can have.
    #[error("the chart's values.schema.json cannot become a type")]
    Structural(#[from] crdgen::structural::Error),
}

/// The structural schema of a chart's values, with the schemas of its dependencies; `None` for a chart without a
/// `values.schema.json`.
///
/// Helm checks a dependency's values only while the dependency is enabled. One that a condition or a tag can disable
/// is left out of the structural schema and listed as degraded.
///
/// # Errors
/// When a document is not a schema, or bad defaults are refused and there is one.
pub fn structural(engine: &Engine, bad_defaults: BadDefaults) -> Result<Option<Structural>, Error> {
    let chart = engine.chart();
    if chart.schema().is_none() {
        return Ok(None);
    }
    let mut optional = Vec::new();
    let Some(schema) = document(chart, "spec", &mut optional)? else {
        return Ok(None);
    };
    let defaults = engine
        .coalesced(&Map::new())
        .map_err(|error| Error::Defaults(Box::new(error)))?;
    let mut structural = crdgen::structural_with(&schema, &Value::Object(defaults), bad_defaults)?;
    structural.degraded.extend(optional);
    Ok(Some(structural))
}

/// The file in which a chart lists changes of its values, each with its version.
pub const CONVERSION_FILE: &str = "conversion.yaml";

/// The changes of its values that a chart lists; none when it has no [`CONVERSION_FILE`].
///
/// # Errors
/// When the file is not a list of changes.
pub fn changes(chart: &Chart) -> Result<Changes, conversion::Error> {
    let Some(file) = chart.files().iter().find(|file| file.name == CONVERSION_FILE) else {
        return Ok(Changes::default());
    };
    let document = helm::yaml::parse(file.data.as_bytes()).map_err(|error| conversion::Error::Syntax {
        why: error.to_string(),
    })?;
    Changes::read(&document)
}

/// The schema document of a chart with those of its dependencies; `None` when there is none at all.
fn document(chart: &Chart, path: &str, optional: &mut Vec<Degraded>) -> Result<Option<Value>, Error> {
    let own = chart
        .schema()
        .map(serde_json::from_slice::<Value>)
        .transpose()
        .map_err(|source| Error::Syntax {
            chart: chart.name().to_owned(),
            source,
        })?;
    let mut dependencies = BTreeMap::new();
    for (key, subchart, declared) in subcharts(chart) {
        let place = format!("{path}.{key}");
        let Some(schema) = document(subchart, &place, optional)? else {
            continue;
        };
        if declared.is_some_and(|declared| !declared.condition.is_empty() || !declared.tags.is_empty()) {
            optional.push(Degraded {
                path: place,
                keyword: "$schema".to_owned(),
                why: "the dependency's own schema counts only while it is enabled".to_owned(),
            });
            continue;
        }
        dependencies.insert(key, schema);
    }
    if dependencies.is_empty() {
        return Ok(own);
    }
    let own = own.unwrap_or_else(|| Value::Object(Map::new()));
    Ok(Some(crdgen::with_dependencies(&own, &dependencies)))
}

/// The subcharts by their keys in the values, with their declarations.
fn subcharts(chart: &Chart) -> Vec<(String, &Chart, Option<&Dependency>)> {
    let declared = chart.metadata().dependencies.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    for subchart in chart.dependencies() {
        let declarations: Vec<_> = declared
            .iter()
            .filter(|declaration| declaration.name == subchart.name())
            .collect();
        if declarations.is_empty() {
            found.push((subchart.name().to_owned(), subchart, None));
        }
        for declaration in declarations {
            found.push((
                declaration.effective_name().to_owned(),
                subchart,
                Some(declaration),
            ));
        }
    }
    found
}

/// A spec as its own version reads it: without fields that only other versions have, and with the defaults that an
/// API server fills in only on writes through this version.
pub fn read_by(own: &JSONSchemaProps, spec: &Value) -> Value {
    let mut spec = spec.clone();
    read_in_place(own, &mut spec);
    spec
}

/// Like [`read_by`], in place.
pub fn read_in_place(own: &JSONSchemaProps, spec: &mut Value) {
    crdgen::drop_strangers(own, spec);
    crdgen::fill_defaults(own, spec);
}

/// Paths of spec keys that neither the schema nor the chart's default values know: probably misspelt.
///
/// Inside maps, lists and parts that the schema leaves open, any key is accepted.
pub fn unknown_keys(own: &JSONSchemaProps, defaults: &Map<String, Value>, spec: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    collect_unknown(own, Some(defaults), spec, "spec", &mut unknown);
    unknown
}

fn collect_unknown(
    own: &JSONSchemaProps,
    defaults: Option<&Map<String, Value>>,
    value: &Value,
    path: &str,
    unknown: &mut Vec<String>,
) {
    let (Some(properties), Value::Object(fields)) = (&own.properties, value) else {
        return;
    };
    if own.additional_properties.is_some() || properties.is_empty() {
        return;
    }
    for (key, value) in fields {
        let default = defaults.and_then(|defaults| defaults.get(key));
        let path = format!("{path}.{key}");
        match properties.get(key) {
            Some(property) => {
                let defaults = default.and_then(Value::as_object);
                collect_unknown(property, defaults, value, &path, unknown);
            }
            None if default.is_none() && path != "spec.global" => unknown.push(path),
            None => {}
        }
    }
}

/// How many schemas are kept. The next one clears the cache.
const KEPT: usize = 64;

/// The schemas of charts by the digests of their archives, each computed once.
#[derive(Debug, Default)]
pub struct Schemas {
    kept: Mutex<HashMap<String, Option<Arc<JSONSchemaProps>>>>,
}

impl Schemas {
    /// The schema by which compositions of this chart are read; `None` when the chart has none.
    ///
    /// # Errors
    /// Those of [`structural`], except for bad defaults.
    pub fn of(&self, digest: &str, engine: &Engine) -> Result<Option<Arc<JSONSchemaProps>>, Error> {
        if let Some(known) = self.kept().get(digest) {
            return Ok(known.clone());
        }
        let own = structural(engine, BadDefaults::Drop)?.map(|structural| Arc::new(structural.spec));
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(digest.to_owned(), own.clone());
        Ok(own)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<Arc<JSONSchemaProps>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use helm::chart::{File, Limits};
    use serde_json::json;

    use super::*;

    fn engine(files: &[(&str, &str)]) -> Engine {
        let files = files.iter().map(|(name, text)| File::new(*name, text)).collect();
        Engine::new(Chart::from_files(files, &Limits::default()).unwrap())
    }

    fn parent(dependency: &str) -> Engine {
        let chart = format!("apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{dependency}]\n");
        engine(&[
            ("Chart.yaml", &chart),
            (
                "values.schema.json",
                r#"{"type":"object","properties":{"a":{"type":"string","default":"x"}}}"#,
            ),
            (
                "charts/db/Chart.yaml",
                "apiVersion: v2\nname: db\nversion: 1.0.0\n",
            ),
            ("charts/db/values.yaml", "size: 1\n"),
            (
                "charts/db/values.schema.json",
                r#"{"type":"object","required":["size"],"properties":{"size":{"type":"integer"}}}"#,
            ),
        ])
    }

    #[test]
    fn a_dependencys_schema_stands_under_its_key_and_its_values_supply_what_it_requires() {
        let structural = structural(
            &parent("{name: db, version: 1.0.0, alias: store}"),
            BadDefaults::Refuse,
        )
        .unwrap()
        .unwrap();
        let store = &structural.spec.properties.as_ref().unwrap()["store"];
        assert_eq!(
            store.properties.as_ref().unwrap()["size"].type_.as_deref(),
            Some("integer")
        );
        assert_eq!(store.required, None);
        assert_eq!(structural.degraded, []);
    }

    #[test]
    fn a_dependency_that_can_be_disabled_is_left_to_the_full_schema() {
        let structural = structural(
            &parent("{name: db, version: 1.0.0, condition: db.enabled}"),
            BadDefaults::Refuse,
        )
        .unwrap()
        .unwrap();
        assert_eq!(structural.degraded[0].path, "spec.db");
        assert!(!structural.spec.properties.unwrap().contains_key("db"));
    }

    #[test]
    fn a_spec_is_read_without_strangers_and_with_defaults() {
        let own: JSONSchemaProps = serde_json::from_value(json!({
            "type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "string"}},
        }))
        .unwrap();
        assert_eq!(
            read_by(&own, &json!({"b": "y", "other": 1})),
            json!({"a": "x", "b": "y"})
        );
    }

    #[test]
    fn keys_that_nobody_knows_are_named() {
        let own: JSONSchemaProps = serde_json::from_value(json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "image": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                          "properties": {"tag": {"type": "string"}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }))
        .unwrap();
        let defaults = json!({"replicas": 1, "image": {"repository": "r"}});
        let spec = json!({
            "replicas": 2, "replcas": 3, "global": {"a": 1}, "labels": {"any": "x"}, "anything": {"b": 1},
            "image": {"tag": "t", "repository": "q", "tga": "u"},
        });
        assert_eq!(
            unknown_keys(&own, defaults.as_object().unwrap(), &spec),
            ["spec.image.tga", "spec.replcas"]
        );
    }
}
