//! How the two answers differ, and which differences are intended (`docs/parity.md`, Types).

use std::fmt;

use crdgen::{JSONSchemaProps, Structural};
use serde_json::Value;

use crate::helm_side::Answer;

/// Answers that differ.
pub(crate) enum Difference<'a> {
    /// The API server refuses it.
    OnlyHelmTakes { ours: &'a str },
    /// The API server accepts it, and Helm accepts the stored form.
    HelmTakesStored { theirs: &'a str, stored: &'a Value },
    /// The API server accepts it, but Helm refuses the stored form in the controller.
    OnlyHelmRefuses { theirs: &'a str, stored: &'a Value },
}

/// Why a difference is intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Explained {
    NullDropped,
    DefaultFilled,
    TypeAssumed,
    Int32,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NullDropped => "nulls that the API server drops",
            Self::DefaultFilled => "defaults that it fills in",
            Self::TypeAssumed => "values of another type where the schema says none",
            Self::Int32 => "numbers beyond int32",
        })
    }
}

impl<'a> Difference<'a> {
    /// Compares the answers to a value; `of_stored` is Helm's answer to the form that the API server stored.
    pub(crate) fn between(
        ours: &'a Result<Value, String>,
        theirs: &'a Answer,
        of_stored: Option<&'a Answer>,
    ) -> Option<Self> {
        match (ours, theirs, of_stored) {
            (Err(_), Err(_), _) | (Ok(_), Ok(()), Some(Ok(())) | None) => None,
            (Err(ours), Ok(()), _) => Some(Self::OnlyHelmTakes { ours }),
            (Ok(stored), Err(theirs), Some(Ok(()))) => Some(Self::HelmTakesStored { theirs, stored }),
            (Ok(stored), _, Some(Err(theirs))) | (Ok(stored), Err(theirs), None) => {
                Some(Self::OnlyHelmRefuses { theirs, stored })
            }
        }
    }

    /// The reason why it is intended, if it is.
    pub(crate) fn explained(&self, made: &Structural, value: &Value) -> Option<Explained> {
        match self {
            Self::HelmTakesStored { stored, .. } if has_lost_null(value, stored) => {
                Some(Explained::NullDropped)
            }
            Self::HelmTakesStored { .. } => Some(Explained::DefaultFilled),
            Self::OnlyHelmTakes { .. } if made.assumed.iter().any(|path| is_there(value, path)) => {
                Some(Explained::TypeAssumed)
            }
            Self::OnlyHelmTakes { .. } if is_beyond_int32(&made.spec, value) => Some(Explained::Int32),
            Self::OnlyHelmTakes { .. } | Self::OnlyHelmRefuses { .. } => None,
        }
    }

    /// The difference in words.
    pub(crate) fn told(&self, value: &Value) -> String {
        match self {
            Self::OnlyHelmTakes { ours } => format!("only Helm takes {value}: {ours}"),
            Self::HelmTakesStored { theirs, stored } => {
                format!("Helm refuses {value} and takes what is stored, {stored}: {theirs}")
            }
            Self::OnlyHelmRefuses { theirs, stored } => {
                format!("only Helm refuses {value}, stored as {stored}: {theirs}")
            }
        }
    }
}

/// True if a null of the value is missing in the stored form.
fn has_lost_null(value: &Value, stored: &Value) -> bool {
    match (value, stored) {
        (Value::Null, stored) => !stored.is_null(),
        (Value::Object(fields), stored) => fields.iter().any(|(key, inner)| match stored.get(key) {
            Some(stored) => has_lost_null(inner, stored),
            None => inner.is_null(),
        }),
        (Value::Array(items), Value::Array(stored)) => items
            .iter()
            .zip(stored)
            .any(|(inner, stored)| has_lost_null(inner, stored)),
        _ => false,
    }
}

/// True when a value has something at a path of the structural schema, `spec.a.b[].c`; `.*` is every key.
fn is_there(value: &Value, path: &str) -> bool {
    let path = path.strip_prefix("spec").unwrap_or(path);
    reaches(value, path)
}

fn reaches(value: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    if let Some(rest) = path.strip_prefix("[]") {
        return value
            .as_array()
            .is_some_and(|items| items.iter().any(|item| reaches(item, rest)));
    }
    let Some(fields) = value.as_object() else {
        return false;
    };
    if let Some(rest) = path.strip_prefix(".*") {
        return fields.values().any(|inner| reaches(inner, rest));
    }
    fields.iter().any(|(key, inner)| {
        let plain = path
            .strip_prefix('.')
            .and_then(|path| path.strip_prefix(key.as_str()));
        let quoted = || path.strip_prefix(&format!("[{key:?}]"));
        let rest = plain.or_else(quoted);
        rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with(['.', '['])) && reaches(inner, rest))
    })
}

/// True if a value has a number that is out of range for its format.
fn is_beyond_int32(schema: &JSONSchemaProps, value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let is_within = number
                .as_f64()
                .is_some_and(|number| number.abs() <= f64::from(i32::MAX));
            schema.format.as_deref() == Some("int32") && !is_within
        }
        Value::Object(fields) => fields.iter().any(|(key, inner)| {
            let property = schema
                .properties
                .as_ref()
                .and_then(|properties| properties.get(key));
            property.is_some_and(|property| is_beyond_int32(property, inner))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lost_null_is_found_at_every_depth() {
        assert!(has_lost_null(&json!({"a": {"b": null}}), &json!({"a": {}})));
        assert!(has_lost_null(
            &json!({"a": [{"b": null}]}),
            &json!({"a": [{"b": 1}]})
        ));
        assert!(!has_lost_null(
            &json!({"a": null, "c": 1}),
            &json!({"a": null, "c": 1, "d": 2})
        ));
    }

    #[test]
    fn a_path_leads_through_maps_and_lists() {
        let value = json!({"a": {"x.y": [{"c": 1}]}});
        for (path, expected) in [
            ("spec.a", true),
            ("spec.*[\"x.y\"]", true),
            ("spec.a[\"x.y\"][].c", true),
            ("spec.a.x", false),
            ("spec.a[\"x.y\"][].d", false),
        ] {
            assert_eq!(is_there(&value, path), expected, "{path}");
        }
    }
}
