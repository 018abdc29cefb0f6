//! Sets of JSON types that a schema allows.

use serde_json::Value;

use crate::JSONSchemaProps;

/// A set of JSON types. Numbers count as two types: integers and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const NULL: Self = Self(1);
    pub(crate) const BOOLEAN: Self = Self(1 << 1);
    pub(crate) const OBJECT: Self = Self(1 << 2);
    pub(crate) const ARRAY: Self = Self(1 << 3);
    pub(crate) const STRING: Self = Self(1 << 4);
    pub(crate) const INTEGER: Self = Self(1 << 5);
    pub(crate) const NUMBER: Self = Self(0b11 << 5);
    pub(crate) const INT_OR_STRING: Self = Self(Self::INTEGER.0 | Self::STRING.0);
    pub(crate) const ALL: Self = Self(0b111_1111);

    /// The type with that name in a schema.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "object" => Self::OBJECT,
            "array" => Self::ARRAY,
            "string" => Self::STRING,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            _ => return None,
        })
    }

    /// The type of a value; `1.0` is an integer.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Object(_) => Self::OBJECT,
            Value::Array(_) => Self::ARRAY,
            Value::String(_) => Self::STRING,
            Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
                Self::INTEGER
            }
            Value::Number(_) => Self(Self::NUMBER.0 & !Self::INTEGER.0),
        }
    }

    /// The types that a structural schema allows.
    pub(crate) fn allowed_by(schema: &JSONSchemaProps) -> Self {
        let typed = match &schema.type_ {
            Some(name) => Self::named(name).unwrap_or(Self::ALL),
            None if schema.x_kubernetes_int_or_string == Some(true) => Self::INT_OR_STRING,
            None => return Self::ALL,
        };
        if schema.nullable == Some(true) {
            typed.or(Self::NULL)
        } else {
            typed
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether it contains every type of `other`.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the two have a type in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
