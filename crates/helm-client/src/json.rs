//! Objects as JSON: reads and sets labels and annotations of any kind of object.

use serde_json::{Map, Value};

/// One of the two string maps in the metadata of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meta {
    Labels,
    Annotations,
}

impl Meta {
    fn key(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
        }
    }
}

/// A typed part of an object as JSON.
pub(crate) fn of(part: &impl serde::Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

/// The value of a label or annotation.
pub(crate) fn meta<'a>(object: &'a Value, meta: Meta, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(meta.key())?.get(key)?.as_str()
}

/// Sets a label or annotation. Where charts have `null`, or something that is not a map, it is replaced by a map.
pub(crate) fn set_meta(object: &mut Value, meta: Meta, key: &str, value: &str) {
    let map = map_at(map_at(object, "metadata"), meta.key());
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    map[key] = Value::from(value);
}

/// The resource version of an object; empty if it has none.
pub(crate) fn resource_version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// Removes the UID and the resource version from an object, so that it refers to any object of that name.
pub(crate) fn remove_preconditions(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
}

/// The value below `key`, in an object that is created if there is none.
fn map_at<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    &mut value[key]
}

/// Whether two values are equal after a round trip through Go's JSON, which knows one kind of number.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => same_map(one, other),
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => one == other,
    }
}

/// [`same`] for the contents of objects.
pub(crate) fn same_map(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_the_same_however_they_are_written() {
        assert!(same(
            &json!({"a": [80, 0.5], "b": null}),
            &json!({"a": [80.0, 5e-1], "b": null})
        ));
        for other in [
            json!({"a": [80]}),
            json!({"a": [80, "0.5"], "b": null}),
            json!([]),
            json!(null),
        ] {
            assert!(!same(&json!({"a": [80, 0.5], "b": null}), &other), "{other}");
        }
        // Integers too large for floats differ even if their floats are equal.
        assert!(same(
            &json!(9_007_199_254_740_993_i64),
            &json!(9_007_199_254_740_993_i64)
        ));
    }
}
