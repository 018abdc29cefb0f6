//! Values to check: the chart's own, none, and each field of schema and values with values of every kind.

use crdgen::JSONSchemaProps;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrBool;
use serde_json::{Map, Value, json};

/// The depth up to which fields are looked for.
const DEPTH: usize = 5;

/// At most `most` values for a chart, evenly spread, always the same ones.
pub(crate) fn of(schema: &JSONSchemaProps, defaults: &Value, most: usize) -> Vec<Value> {
    let mut made = vec![json!({}), defaults.clone()];
    for field in fields(schema, Some(defaults), DEPTH) {
        let at = field.schema;
        let mut tried = everything();
        tried.extend(
            field
                .path
                .iter()
                .try_fold(defaults, |inner, key| inner.get(key))
                .cloned(),
        );
        tried.extend(at.into_iter().flat_map(near));
        for value in tried {
            let nested = |inner: Value, key: &String| json!({ key.as_str(): inner });
            made.push(field.path.iter().rev().fold(value, nested));
        }
    }
    let step = made.len().div_ceil(most.max(1)).max(1);
    made.into_iter().step_by(step).collect()
}

/// A value of every kind.
fn everything() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(5),
        json!(5.5),
        json!(-1),
        json!(3_000_000_000_i64),
        json!(""),
        json!("abc"),
        json!([]),
        json!(["x"]),
        json!(["x", "x"]),
        json!([{"name": "x"}]),
        json!({}),
        json!({"unknownKey": 1}),
        json!({"unknownKey": "x"}),
    ]
}

/// Values on both sides of a limit in a schema.
fn near(schema: &JSONSchemaProps) -> Vec<Value> {
    let mut values: Vec<Value> = schema
        .enum_
        .iter()
        .flatten()
        .map(|allowed| allowed.0.clone())
        .collect();
    for bound in [schema.minimum, schema.maximum].into_iter().flatten() {
        values.extend([-1.0, 0.0, 1.0].map(|by| number(bound + by)));
    }
    for length in [schema.min_length, schema.max_length].into_iter().flatten() {
        let lengths = [length - 1, length, length + 1];
        let in_reason = lengths.into_iter().filter(|length| (0..5_000).contains(length));
        values.extend(in_reason.map(|length| json!("a".repeat(usize::try_from(length).unwrap_or_default()))));
    }
    values
}

/// A whole number stays a whole number.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// A field of the schema or of the values.
struct Field<'s> {
    path: Vec<String>,
    schema: Option<&'s JSONSchemaProps>,
}

fn fields<'s>(schema: &'s JSONSchemaProps, values: Option<&Value>, depth: usize) -> Vec<Field<'s>> {
    if depth == 0 {
        return Vec::new();
    }
    let nothing = Map::new();
    let values = values.and_then(Value::as_object).unwrap_or(&nothing);
    let known = schema.properties.iter().flatten().map(|(key, _)| key);
    let mut keys: Vec<_> = known.chain(values.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    if schema.additional_properties.is_some() {
        keys.push("anyKey".to_owned());
    }
    let mut fields = Vec::new();
    for key in keys {
        let own = schema
            .properties
            .as_ref()
            .and_then(|properties| properties.get(&key));
        let inner = own.or(match &schema.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(&**inner),
            Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
        });
        let path = vec![key.clone()];
        fields.push(Field { path, schema: inner });
        for mut field in inner
            .map(|inner| self::fields(inner, values.get(&key), depth - 1))
            .unwrap_or_default()
        {
            field.path.insert(0, key.clone());
            fields.push(field);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_tried_with_every_kind_and_on_both_sides_of_its_bounds() {
        let schema: JSONSchemaProps = serde_json::from_value(json!({
            "type": "object",
            "properties": {"a": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}},
        }))
        .expect("a schema");
        let values = of(&schema, &json!({"b": "x"}), 1000);
        for wanted in [
            json!({}),
            json!({"b": "x"}),
            json!({"a": {"n": 4}}),
            json!({"a": {"n": null}}),
            json!({"b": true}),
        ] {
            assert!(values.contains(&wanted), "{wanted}");
        }
        assert!(of(&schema, &json!({}), 10).len() <= 10);
    }
}
