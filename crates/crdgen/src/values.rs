//! What an API server does to values by a schema: it fills defaults, drops unknown fields, and rejects.
//!
//! The dynamic controller does the same to objects that it reads, because an API server fills the defaults of a
//! version only on writes through that version, and never when it reads an object that was stored earlier.

use gostd::regexp::Regexp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::JSONSchemaProps;

/// Fills defaults like an API server on a write, in place: first nulls that the schema does not allow are removed,
/// then every missing property with a default gets it, at every depth.
///
/// Applying it twice makes no further changes.
pub fn fill_defaults(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| {
                let known = child(schema, key);
                !(inner.is_null()
                    && known.is_some_and(|known| refuses_null(known) && known.default.is_none()))
            });
            for (key, property) in schema.properties.iter().flatten() {
                let Some(JSON(default)) = &property.default else {
                    continue;
                };
                map.entry(key.clone()).or_insert_with(|| default.clone());
            }
            for (key, inner) in map {
                if let Some(known) = child(schema, key) {
                    replace_null(known, inner);
                    fill_defaults(known, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(known) = items(schema) {
                for inner in list {
                    replace_null(known, inner);
                    fill_defaults(known, inner);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces a null that the schema does not allow by the default.
fn replace_null(schema: &JSONSchemaProps, value: &mut Value) {
    if let Some(JSON(default)) = &schema.default
        && value.is_null()
        && refuses_null(schema)
    {
        *value = default.clone();
    }
}

/// Converts a text to the boolean or number it represents if the schema accepts nothing else: generators that read
/// comments write `"default": "true"` for a boolean, and the reference accepts that.
pub(crate) fn read_text(schema: &JSONSchemaProps, value: &mut Value) {
    let (Value::String(text), Some(wanted)) = (&*value, &schema.type_) else {
        return;
    };
    let is_plain = matches!(wanted.as_str(), "boolean" | "integer" | "number");
    if is_plain
        && let Ok(meant) = serde_json::from_str::<Value>(text)
        && has_type(&meant, wanted)
    {
        *value = meant;
    }
}

/// Drops the fields that the schema neither defines nor preserves, in place, like an API server.
///
/// With a version's own schema ([`crate::own_schema`]), this drops the fields that only other versions have.
pub fn drop_strangers(schema: &JSONSchemaProps, value: &mut Value) {
    prune(Some(schema), value, false);
}

/// `pruning/algorithm.go` of apiextensions-apiserver: its `prune` and, with `keep`, its `skipPrune`. Fields preserved
/// by a schema are also kept in lists below it, and the fields it defines are still pruned. An object in place of
/// another type loses everything.
fn prune(schema: Option<&JSONSchemaProps>, value: &mut Value, keep: bool) {
    let keep = keep || schema.is_some_and(|schema| schema.x_kubernetes_preserve_unknown_fields == Some(true));
    match value {
        Value::Object(map) => {
            let known = |key: &str| schema.and_then(|schema| child(schema, key));
            if !keep {
                map.retain(|key, _| known(key).is_some());
            }
            for (key, inner) in map {
                if let Some(known) = known(key) {
                    prune(Some(known), inner, false);
                }
            }
        }
        Value::Array(list) => {
            for inner in list {
                prune(schema.and_then(items), inner, keep);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Why an API server would reject a value, with the path below `path`; none if it would accept it. What the value is does not
/// become part of the reason: others read it than those who may read the value.
///
/// CEL rules are not evaluated, and formats only as far as [`crate::structural()`] writes them: a text that clearly
/// does not match its format is rejected.
pub fn refusal(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|JSON(allowed)| equal(allowed, value))
    {
        return Some(format!("{path}: the value is none of the allowed values"));
    }
    if value.is_null() {
        return (refuses_null(schema) && schema.type_.is_some())
            .then(|| format!("{path}: null is not allowed"));
    }
    if let Some(wanted) = &schema.type_
        && !has_type(value, wanted)
    {
        return Some(format!("{path}: the value is not of type {wanted}"));
    }
    if schema.x_kubernetes_int_or_string == Some(true) && !has_type(value, "integer") && !value.is_string() {
        return Some(format!("{path}: the value is neither an integer nor a string"));
    }
    let inside = match value {
        Value::Object(map) => object_refusal(schema, map, path),
        Value::Array(list) => array_refusal(schema, list, path),
        Value::String(text) => string_refusal(schema, text, path),
        Value::Number(number) => number_refusal(schema, number.as_f64().unwrap_or_default(), path),
        Value::Null | Value::Bool(_) => None,
    };
    inside.or_else(|| junctor_refusal(schema, value, path))
}

/// Whether a JSON value is of that JSON Schema type; `1.0` is an integer.
fn has_type(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Null => wanted == "null",
        Value::Bool(_) => wanted == "boolean",
        Value::Number(number) => {
            wanted == "number"
                || (wanted == "integer" && number.as_f64().is_some_and(|number| number.fract() == 0.0))
        }
        Value::String(_) => wanted == "string",
        Value::Array(_) => wanted == "array",
        Value::Object(_) => wanted == "object",
    }
}

/// JSON equality, where `1` equals `1.0`.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|other| equal(one, other)))
        }
        _ => one == other,
    }
}

fn object_refusal(
    schema: &JSONSchemaProps,
    map: &serde_json::Map<String, Value>,
    path: &str,
) -> Option<String> {
    let missing = schema
        .required
        .iter()
        .flatten()
        .find(|key| !map.contains_key(*key));
    if let Some(key) = missing {
        return Some(format!("{path}: {key} is required"));
    }
    let count = map.len() as i64;
    if schema.min_properties.is_some_and(|least| count < least)
        || schema.max_properties.is_some_and(|most| count > most)
    {
        return Some(format!("{path}: the properties are too few or too many"));
    }
    map.iter()
        .find_map(|(key, inner)| refusal(child(schema, key)?, inner, &format!("{path}.{key}")))
}

fn array_refusal(schema: &JSONSchemaProps, list: &[Value], path: &str) -> Option<String> {
    let count = list.len() as i64;
    if schema.min_items.is_some_and(|least| count < least)
        || schema.max_items.is_some_and(|most| count > most)
    {
        return Some(format!("{path}: the items are too few or too many"));
    }
    let is_set = schema.x_kubernetes_list_type.as_deref() == Some("set");
    if is_set
        && list
            .iter()
            .enumerate()
            .any(|(at, one)| list[..at].iter().any(|other| equal(one, other)))
    {
        return Some(format!("{path}: an item occurs twice"));
    }
    let known = items(schema)?;
    list.iter()
        .enumerate()
        .find_map(|(at, inner)| refusal(known, inner, &format!("{path}[{at}]")))
}

fn string_refusal(schema: &JSONSchemaProps, text: &str, path: &str) -> Option<String> {
    let length = text.chars().count() as i64;
    if schema.min_length.is_some_and(|least| length < least)
        || schema.max_length.is_some_and(|most| length > most)
    {
        return Some(format!("{path}: the value is too short or too long"));
    }
    if let Some(format) = schema.format.as_deref().filter(|format| !resembles(text, format)) {
        return Some(format!("{path}: the value is no {format}"));
    }
    let pattern = schema.pattern.as_deref()?;
    let matches = Regexp::compile(pattern.as_bytes()).map_or(true, |regex| regex.is_match(text.as_bytes()));
    (!matches).then(|| format!("{path}: the value does not match {pattern}"))
}

/// Whether a text roughly matches its format.
fn resembles(text: &str, format: &str) -> bool {
    let is_date = |text: &str| {
        let parts = text.split('-').map(str::len).collect::<Vec<_>>();
        parts == [4, 2, 2] && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    match format {
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "date" => is_date(text),
        "date-time" => text.get(..10).is_some_and(is_date),
        "email" => text
            .split_once('@')
            .is_some_and(|(local, host)| !local.is_empty() && !host.is_empty()),
        "uri" => text.contains(':') || text.starts_with('/'),
        "uuid" => text.bytes().filter(u8::is_ascii_hexdigit).count() == 32,
        _ => true,
    }
}

fn number_refusal(schema: &JSONSchemaProps, number: f64, path: &str) -> Option<String> {
    let strictly_more = schema.exclusive_minimum == Some(true);
    let strictly_less = schema.exclusive_maximum == Some(true);
    let too_small = |least: f64| {
        if strictly_more {
            number <= least
        } else {
            number < least
        }
    };
    let too_big = |most: f64| {
        if strictly_less {
            number >= most
        } else {
            number > most
        }
    };
    if schema.minimum.is_some_and(too_small) || schema.maximum.is_some_and(too_big) {
        return Some(format!("{path}: the value is too small or too big"));
    }
    let factor = schema.multiple_of?;
    ((number / factor).fract() != 0.0).then(|| format!("{path}: the value is no multiple of {factor}"))
}

fn junctor_refusal(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    let fits = |inner: &JSONSchemaProps| refusal(inner, value, path).is_none();
    if let Some(refusal) = schema
        .all_of
        .iter()
        .flatten()
        .find_map(|inner| refusal(inner, value, path))
    {
        return Some(refusal);
    }
    if schema
        .any_of
        .as_ref()
        .is_some_and(|branches| !branches.iter().any(fits))
    {
        return Some(format!("{path}: the value fits none of anyOf"));
    }
    if schema
        .one_of
        .as_ref()
        .is_some_and(|branches| branches.iter().filter(|inner| fits(inner)).count() != 1)
    {
        return Some(format!("{path}: the value does not fit exactly one of oneOf"));
    }
    let refused = schema.not.as_deref().is_some_and(fits);
    refused.then(|| format!("{path}: the value is what `not` forbids"))
}

/// The schema of the property `key`: its own, or that of additional properties.
pub(crate) fn child<'s>(schema: &'s JSONSchemaProps, key: &str) -> Option<&'s JSONSchemaProps> {
    let own = schema
        .properties
        .as_ref()
        .and_then(|properties| properties.get(key));
    own.or_else(|| additional(schema))
}

/// The schema of additional properties.
pub(crate) fn additional(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(inner),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
    }
}

/// The schema of an array's items.
pub(crate) fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(inner)) => Some(inner),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
    }
}

fn refuses_null(schema: &JSONSchemaProps) -> bool {
    schema.nullable != Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(text: Value) -> JSONSchemaProps {
        serde_json::from_value(text).expect("a schema")
    }

    #[test]
    fn defaults_are_filled_at_every_depth() {
        let schema = schema(json!({ "type": "object", "properties": {
            "image": { "type": "object", "default": {}, "properties": { "tag": { "type": "string", "default": "1" } } },
            "hosts": { "type": "array", "items": { "type": "object", "properties": { "port": { "type": "integer", "default": 80 } } } },
            "plain": { "type": "string" },
            "kept": { "type": "string", "nullable": true, "default": "x" },
        }}));
        let mut value = json!({ "hosts": [{}, { "port": 8080 }], "plain": null, "kept": null });
        fill_defaults(&schema, &mut value);
        let filled =
            json!({ "image": { "tag": "1" }, "hosts": [{ "port": 80 }, { "port": 8080 }], "kept": null });
        assert_eq!(value, filled);
        fill_defaults(&schema, &mut value);
        assert_eq!(value, filled);
    }

    #[test]
    fn unknown_fields_are_dropped_unless_preserved() {
        let schema = schema(json!({ "type": "object", "properties": {
            "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                      "properties": { "closed": { "type": "object", "properties": { "a": { "type": "string" } } } } },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "any": { "x-kubernetes-preserve-unknown-fields": true },
        }}));
        let mut value = json!({
            "open": { "x": 1, "closed": { "a": "1", "b": 2 } }, "labels": { "l": "1" }, "any": { "deep": [{ "x": 1 }] }, "gone": 1
        });
        drop_strangers(&schema, &mut value);
        let kept = json!({ "open": { "x": 1, "closed": { "a": "1" } }, "labels": { "l": "1" }, "any": { "deep": [{ "x": 1 }] } });
        assert_eq!(value, kept);
    }

    #[test]
    fn a_refusal_names_the_place() {
        for (text, value, why) in [
            (
                json!({ "type": "integer" }),
                json!("1"),
                Some("at: the value is not of type integer"),
            ),
            (json!({ "type": "integer" }), json!(1.0), None),
            (
                json!({ "type": "string", "pattern": r"^\d+$" }),
                json!("x"),
                Some("at: the value does not match ^\\d+$"),
            ),
            (
                json!({ "x-kubernetes-int-or-string": true }),
                json!(true),
                Some("at: the value is neither an integer nor a string"),
            ),
            (
                json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "string" } } } }),
                json!({ "a": ["x", 1] }),
                Some("at.a[1]: the value is not of type string"),
            ),
            (
                json!({ "type": "number", "minimum": 0, "exclusiveMinimum": true }),
                json!(0),
                Some("at: the value is too small or too big"),
            ),
            (
                json!({ "type": "object", "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
                json!({ "a": 1, "b": 1 }),
                Some("at: the value does not fit exactly one of oneOf"),
            ),
        ] {
            assert_eq!(refusal(&schema(text), &value, "at").as_deref(), why);
        }
    }
}
