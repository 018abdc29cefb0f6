//! Tests real charts' schemas with the programs in `tests/oracle`; see the README there.
//!
//! `CRDGEN_CORPUS` names a folder with one folder per chart, which contains `schema.json` and `values.json`.
#![expect(
    clippy::disallowed_methods,
    reason = "charts are files, and their time is measured"
)]
#![expect(clippy::panic, reason = "a corpus that cannot be read ends the run")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use crdgen::{BadDefaults, JSONSchemaProps, Names, ServedVersion};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value, json};

/// Prints one line per chart: its CRD, its schema and values, and specs that mutate its values.
#[test]
#[ignore = "needs a corpus, and prints the input of the programs in tests/oracle"]
fn print_questions_about_real_charts() {
    for folder in charts() {
        let (schema, values) = (
            read(&folder.join("schema.json")),
            read(&folder.join("values.json")),
        );
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let start = Instant::now();
        let structural = match crdgen::structural_with(&schema, &values, BadDefaults::Drop) {
            Ok(structural) => structural,
            Err(error) => {
                eprintln!("{name}: {error}");
                continue;
            }
        };
        let took = start.elapsed();
        eprintln!("{name}: {took:?}, {} degraded", structural.degraded.len());
        for degraded in &structural.degraded {
            eprintln!("    {} {}: {}", degraded.path, degraded.keyword, degraded.why);
        }
        let names = Names::of_chart(&name).expect("a chart name");
        let version = ServedVersion::of_chart("1.0.0").expect("a version");
        let crd = crdgen::crd(&names, &version, &structural.spec);
        let specs = specs(&structural.spec, &values);
        let objects = specs.iter().map(|spec| object(&names, spec)).collect::<Vec<_>>();
        println!(
            "{}",
            json!({
                "name": name, "crd": crd, "version": version.as_str(), "objects": objects, "specs": specs,
                "schema": schema, "values": values, "degraded": structural.degraded.len(),
            })
        );
    }
}

fn charts() -> Vec<PathBuf> {
    let folder = std::env::var_os("CRDGEN_CORPUS").expect("CRDGEN_CORPUS names a folder");
    let entries = std::fs::read_dir(folder).expect("the corpus");
    let mut charts = entries
        .map(|entry| entry.expect("an entry").path())
        .collect::<Vec<_>>();
    charts.sort();
    charts
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn object(names: &Names, spec: &Value) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": names.kind,
        "metadata": { "name": "one", "namespace": "default" }, "spec": spec,
    })
}

/// The chart's own values, no values, and each path with values of every kind.
fn specs(schema: &JSONSchemaProps, values: &Value) -> Vec<Value> {
    let mut specs = vec![json!({}), values.clone()];
    for path in places(schema, Some(values), 4) {
        let own = path.iter().try_fold(values, |inner, key| inner.get(key));
        let tried = [
            json!(null),
            json!(true),
            json!(5),
            json!(5.5),
            json!(-1),
            json!(3_000_000_000_i64),
            json!(""),
            json!("abc"),
            json!("1"),
            json!([]),
            json!(["x"]),
            json!(["x", "x"]),
            json!([{ "name": "x" }]),
            json!({}),
            json!({ "unknownKey": 1 }),
            json!({ "unknownKey": "x" }),
        ];
        for value in tried.iter().chain(own) {
            specs.push(
                path.iter()
                    .rev()
                    .fold(value.clone(), |inner, key| json!({ key: inner })),
            );
        }
    }
    // Sampling evenly limits the work of the programs.
    let step = specs.len().div_ceil(MOST_SPECS);
    specs
        .into_iter()
        .enumerate()
        .filter(|(at, _)| *at < 2 || at % step == 0)
        .map(|(_, spec)| spec)
        .collect()
}

/// Maximum number of specs per chart.
const MOST_SPECS: usize = 700;

/// The paths of fields in the schema and in the values.
fn places(schema: &JSONSchemaProps, values: Option<&Value>, depth: usize) -> Vec<Vec<String>> {
    if depth == 0 {
        return Vec::new();
    }
    let nothing = Map::new();
    let values = values.and_then(Value::as_object).unwrap_or(&nothing);
    let known = schema.properties.iter().flatten().map(|(key, _)| key);
    let mut keys = known.chain(values.keys()).cloned().collect::<Vec<_>>();
    keys.sort();
    keys.dedup();
    if schema.additional_properties.is_some() {
        keys.push("anyKey".to_owned());
    }
    let mut places = Vec::new();
    for key in keys {
        let inner = schema
            .properties
            .as_ref()
            .and_then(|properties| properties.get(&key));
        let inner = inner.or(match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(&**inner),
            Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
        });
        places.push(vec![key.clone()]);
        let inside = match inner {
            Some(inner) => places_inside(inner, values.get(&key), depth - 1),
            None => Vec::new(),
        };
        places.extend(inside.into_iter().map(|mut path| {
            path.insert(0, key.clone());
            path
        }));
    }
    places
}

fn places_inside(schema: &JSONSchemaProps, values: Option<&Value>, depth: usize) -> Vec<Vec<String>> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(_) | JSONSchemaPropsOrArray::Schemas(_)) => Vec::new(),
        None => places(schema, values, depth),
    }
}
