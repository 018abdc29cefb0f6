//! Decodes `Chart.yaml`, `requirements.yaml` and the lock files, as leniently as Helm: field names match in any case,
//! unknown fields are skipped, numbers and booleans are accepted where text is expected (sigs.k8s.io/yaml over Go's
//! `encoding/json`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::metadata::{Dependency, Invalid, Maintainer, Metadata};
use gostd::strconv;

/// A value has another type than its field, in the words of Go's JSON decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go {place} of type {wanted}"
)]
pub struct Mismatch {
    found: &'static str,
    place: String,
    wanted: &'static str,
}

/// Why a document is not a `Chart.yaml` or lock file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value of the wrong type.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A null in a list, which Helm reports as a failed validation.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

fn null_in(list: &str) -> Invalid {
    Invalid::new(format!("{list} must not contain empty or null nodes"))
}

/// Decodes a document on top of existing values: fields missing in it keep their values.
pub(crate) fn metadata(document: &Value, onto: &mut Metadata) -> Result<(), Error> {
    let Some(fields) = fields(document, "Metadata", "v2.Metadata")? else {
        return Ok(());
    };
    for (key, value) in fields {
        let path = |field: &str| format!("struct field Metadata.{field}");
        match key.to_lowercase().as_str() {
            "name" => text(value, path("name"), &mut onto.name)?,
            "home" => text(value, path("home"), &mut onto.home)?,
            "sources" => texts(value, &path("sources"), &mut onto.sources)?,
            "version" => text(value, path("version"), &mut onto.version)?,
            "description" => text(value, path("description"), &mut onto.description)?,
            "keywords" => texts(value, &path("keywords"), &mut onto.keywords)?,
            "maintainers" => maintainers(value, onto)?,
            "icon" => text(value, path("icon"), &mut onto.icon)?,
            "apiversion" => text(value, path("apiVersion"), &mut onto.api_version)?,
            "condition" => text(value, path("condition"), &mut onto.condition)?,
            "tags" => text(value, path("tags"), &mut onto.tags)?,
            "appversion" => text(value, path("appVersion"), &mut onto.app_version)?,
            "deprecated" => boolean(value, path("deprecated"), &mut onto.deprecated)?,
            "annotations" => onto.annotations = annotations(value, &path("annotations"), &onto.annotations)?,
            "kubeversion" => text(value, path("kubeVersion"), &mut onto.kube_version)?,
            "dependencies" => dependencies(value, &mut onto.dependencies)?,
            "type" => text(value, path("type"), &mut onto.chart_type)?,
            _ => {}
        }
    }
    Ok(())
}

/// Decodes a lock file into the JSON that Helm stores in release records.
pub(crate) fn lock(document: &Value) -> Result<Value, Error> {
    let mut generated = String::new();
    let mut digest = String::new();
    let mut locked = None;
    for (key, value) in fields(document, "Lock", "v2.Lock")?.into_iter().flatten() {
        match key.to_lowercase().as_str() {
            "generated" => text(value, "struct field Lock.generated".to_owned(), &mut generated)?,
            "digest" => text(value, "struct field Lock.digest".to_owned(), &mut digest)?,
            "dependencies" => dependencies(value, &mut locked)?,
            _ => {}
        }
    }
    if generated.is_empty() {
        "0001-01-01T00:00:00Z".clone_into(&mut generated);
    }
    let locked = serde_json::to_value(locked).unwrap_or_default();
    Ok(serde_json::json!({ "generated": generated, "digest": digest, "dependencies": locked }))
}

fn fields<'v>(
    document: &'v Value,
    place: &str,
    wanted: &'static str,
) -> Result<Option<&'v Map<String, Value>>, Mismatch> {
    match document {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        other => {
            let place = if place.contains('.') {
                format!("struct field {place}")
            } else {
                "value".to_owned()
            };
            Err(mismatch(other, place, wanted))
        }
    }
}

fn maintainers(value: &Value, onto: &mut Metadata) -> Result<(), Error> {
    let Some(items) = items(value, "struct field Metadata.maintainers", "[]*v2.Maintainer")? else {
        onto.maintainers.clear();
        return Ok(());
    };
    onto.maintainers.resize_with(items.len(), Maintainer::default);
    for (item, onto) in items.iter().zip(&mut onto.maintainers) {
        let fields =
            fields(item, "Metadata.maintainers", "v2.Maintainer")?.ok_or_else(|| null_in("maintainers"))?;
        for (key, value) in fields {
            let path = |field: &str| format!("struct field Maintainer.maintainers.{field}");
            match key.to_lowercase().as_str() {
                "name" => text(value, path("name"), &mut onto.name)?,
                "email" => text(value, path("email"), &mut onto.email)?,
                "url" => text(value, path("url"), &mut onto.url)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Null or an absent key means no list, which differs from an empty list.
fn dependencies(value: &Value, onto: &mut Option<Vec<Dependency>>) -> Result<(), Error> {
    let Some(items) = items(value, "struct field Metadata.dependencies", "[]*v2.Dependency")? else {
        *onto = None;
        return Ok(());
    };
    // Go decodes into existing elements, so `requirements.yaml` overlays `Chart.yaml`.
    let list = onto.get_or_insert_default();
    list.resize_with(items.len(), Dependency::default);
    for (item, onto) in items.iter().zip(list) {
        let fields =
            fields(item, "Metadata.dependencies", "v2.Dependency")?.ok_or_else(|| null_in("dependencies"))?;
        for (key, value) in fields {
            dependency_field(key, value, onto)?;
        }
    }
    Ok(())
}

fn dependency_field(key: &str, value: &Value, onto: &mut Dependency) -> Result<(), Mismatch> {
    let path = |field: &str| format!("struct field Dependency.dependencies.{field}");
    match key.to_lowercase().as_str() {
        "name" => text(value, path("name"), &mut onto.name),
        "version" => text(value, path("version"), &mut onto.version),
        "repository" => text(value, path("repository"), &mut onto.repository),
        "condition" => text(value, path("condition"), &mut onto.condition),
        "tags" => texts(value, &path("tags"), &mut onto.tags),
        "enabled" => boolean(value, path("enabled"), &mut onto.enabled),
        "import-values" => {
            let items = items(value, &path("import-values"), "[]interface {}")?;
            onto.import_values = items
                .cloned()
                .unwrap_or_default()
                .into_iter()
                .map(crate::values::with_floats)
                .collect();
            Ok(())
        }
        "alias" => text(value, path("alias"), &mut onto.alias),
        _ => Ok(()),
    }
}

fn items<'v>(
    value: &'v Value,
    place: &str,
    wanted: &'static str,
) -> Result<Option<&'v Vec<Value>>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Array(items) => Ok(Some(items)),
        other => Err(mismatch(other, place.to_owned(), wanted)),
    }
}

fn texts(value: &Value, place: &str, onto: &mut Vec<String>) -> Result<(), Mismatch> {
    let items = items(value, place, "[]string")?;
    onto.resize_with(items.map_or(0, Vec::len), String::new);
    for (item, onto) in items.into_iter().flatten().zip(onto) {
        text(item, place.to_owned(), onto)?;
    }
    Ok(())
}

fn annotations(
    value: &Value,
    place: &str,
    onto: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Mismatch> {
    let entries = match value {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(entries) => entries,
        other => return Err(mismatch(other, place.to_owned(), "map[string]string")),
    };
    let mut all = onto.clone();
    for (key, value) in entries {
        let mut annotation = String::new();
        text(value, place.to_owned(), &mut annotation)?;
        all.insert(key.clone(), annotation);
    }
    Ok(all)
}

fn boolean(value: &Value, place: String, onto: &mut bool) -> Result<(), Mismatch> {
    match value {
        Value::Null => {}
        Value::Bool(value) => *onto = *value,
        other => return Err(mismatch(other, place, "bool")),
    }
    Ok(())
}

fn text(value: &Value, place: String, onto: &mut String) -> Result<(), Mismatch> {
    match scalar_text(value) {
        Some(text) => *onto = text,
        None if value.is_null() => {}
        None => return Err(mismatch(value, place, "string")),
    }
    Ok(())
}

/// A scalar as Helm reads it where text is expected; `None` for null, lists and tables.
///
/// Floats are rounded to 32 bits: `1.10` becomes `1.1` and `20240101.0` becomes `2.02401e+07`.
pub(crate) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() => short_float_text(float),
            _ => number.to_string(),
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Go's `strconv.FormatFloat(f, 'g', -1, 32)`: the shortest digits that identify the 32-bit float, with an exponent
/// below -4 and from 6 upwards.
fn short_float_text(float: f64) -> String {
    let mut text = String::new();
    strconv::format_float32(float, &mut text);
    text
}

fn mismatch(found: &Value, place: String, wanted: &'static str) -> Mismatch {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Mismatch { found, place, wanted }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_become_text_as_go_formats_them() {
        for (value, expected) in [
            (json!(1.1), "1.1"),
            (json!(1000.0), "1000"),
            (json!(20_240_101), "20240101"),
            (json!(20_240_101.0), "2.02401e+07"),
            (json!(20_240_101.5), "2.0240102e+07"),
            (json!(1e21), "1e+21"),
            (json!(1e6), "1e+06"),
            (json!(123_456_789.0), "1.2345679e+08"),
            (json!(0.0001), "0.0001"),
            (json!(0.00001), "1e-05"),
            (json!(true), "true"),
            (json!("x"), "x"),
        ] {
            assert_eq!(scalar_text(&value).unwrap(), expected);
        }
        assert_eq!(scalar_text(&json!(null)), None);
    }

    #[test]
    fn field_names_are_found_in_any_case_and_unknown_ones_skipped() {
        let mut found = Metadata::default();
        let document = json!({"NAME": "c", "appversion": 1.5, "Other": [], "annotations": {"a": 1, "b": null}, "type": null});
        metadata(&document, &mut found).unwrap();
        assert_eq!((found.name.as_str(), found.app_version.as_str()), ("c", "1.5"));
        assert_eq!(found.annotations["a"], "1");
        assert_eq!(found.annotations["b"], "");
        assert_eq!(found.dependencies, None);
    }

    #[test]
    fn a_second_document_overlays_the_first() {
        let mut found = Metadata::default();
        metadata(
            &json!({"name": "c", "dependencies": [{"name": "a", "version": "1"}]}),
            &mut found,
        )
        .unwrap();
        metadata(
            &json!({"dependencies": [{"alias": "x"}, {"name": "b"}]}),
            &mut found,
        )
        .unwrap();
        let names: Vec<_> = found
            .dependencies
            .unwrap()
            .iter()
            .map(|d| format!("{} {} {}", d.name, d.version, d.alias))
            .collect();
        assert_eq!(names, ["a 1 x", "b  "]);
    }

    #[test]
    fn an_empty_list_of_dependencies_is_not_the_same_as_none() {
        let read = |document: Value| {
            let mut found = Metadata::default();
            metadata(&document, &mut found).unwrap();
            found.dependencies
        };
        assert_eq!(read(json!({"dependencies": []})), Some(vec![]));
        assert_eq!(read(json!({"dependencies": null})), None);
    }

    #[test]
    fn values_of_the_wrong_type_are_named() {
        let error = |document: Value| {
            metadata(&document, &mut Metadata::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(json!({"name": {}})),
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go struct field Metadata.name of type string"
        );
        assert_eq!(
            error(json!([])),
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type v2.Metadata"
        );
        assert_eq!(
            error(json!({"maintainers": [null]})),
            "validation: maintainers must not contain empty or null nodes"
        );
    }
}
