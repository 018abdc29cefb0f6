//! Values as Go's `%#v` prints them in error messages, and the check that they can be converted to JSON.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use super::{
    Problem,
    build::{Build, Key},
    resolve::Resolved,
};
use gostd::strconv;

/// A YAML value: its keys may be of any scalar type.
#[derive(Clone, Debug)]
pub(super) enum Shown {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    String(String),
    List(Vec<Shown>),
    /// By the key as printed.
    Map(BTreeMap<String, (Resolved, Shown)>),
}

pub(super) struct Shower;

impl<'v> Build<'v> for Shower {
    type Value = Shown;
    type Map = BTreeMap<String, (Resolved, Shown)>;

    fn null(&self) -> Shown {
        Shown::Null
    }

    fn bool(&self, value: bool) -> Shown {
        Shown::Bool(value)
    }

    fn int(&self, value: i64) -> Shown {
        Shown::Int(value)
    }

    fn uint(&self, value: u64) -> Shown {
        Shown::Uint(value)
    }

    fn float(&self, value: f64) -> Shown {
        Shown::Float(value)
    }

    fn string(&self, value: Cow<'v, str>) -> Shown {
        Shown::String(value.into_owned())
    }

    fn list(&self, items: Vec<Shown>) -> Shown {
        Shown::List(items)
    }

    fn map(&self, map: Self::Map) -> Shown {
        Shown::Map(map)
    }

    fn insert(&self, map: &mut Self::Map, name: Key<'v>, value: Shown) {
        map.insert(key(&name), (name.resolved, value));
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        match self {
            Self::Null => return f.write_str("interface {}(nil)"),
            Self::Bool(value) => return write!(f, "{value}"),
            Self::Int(value) => return write!(f, "{value}"),
            Self::Uint(value) => return write!(f, "{value:#x}"),
            Self::Float(value) => strconv::format_float(*value, &mut text),
            Self::String(value) => strconv::quote(value, &mut text),
            Self::List(items) => {
                f.write_str("[]interface {}{")?;
                for (nth, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if nth > 0 { ", " } else { "" })?;
                }
                return f.write_str("}");
            }
            Self::Map(map) => {
                f.write_str("map[interface {}]interface {}{")?;
                for (nth, (key, (_, value))) in map.iter().enumerate() {
                    write!(f, "{}{key}:{value}", if nth > 0 { ", " } else { "" })?;
                }
                return f.write_str("}");
            }
        }
        f.write_str(&text)
    }
}

/// A key as `%#v` prints it.
pub(super) fn key(key: &Key<'_>) -> String {
    let mut text = String::new();
    match key.resolved {
        Resolved::Null => return "interface {}(nil)".to_owned(),
        Resolved::Bool(value) => return value.to_string(),
        Resolved::Int(value) => return value.to_string(),
        Resolved::Uint(value) => return format!("{value:#x}"),
        Resolved::Float(value) => strconv::format_float(value, &mut text),
        Resolved::Timestamp | Resolved::Str => strconv::quote(&key.text, &mut text),
    }
    text
}

/// A float as a key in JSON.
pub(super) fn float_key(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    let mut text = String::new();
    strconv::format_float32(value, &mut text);
    match text.as_str() {
        "+Inf" => ".inf".to_owned(),
        "-Inf" => "-.inf".to_owned(),
        _ => text,
    }
}

/// Rejects what JSON cannot represent: first keys, then numbers.
pub(super) fn check_json(value: &Shown) -> Result<(), Problem> {
    check_keys(value)?;
    check_numbers(value)
}

fn check_keys(value: &Shown) -> Result<(), Problem> {
    match value {
        Shown::List(items) => items.iter().try_for_each(check_keys),
        Shown::Map(map) => map.iter().try_for_each(|(key, (resolved, value))| {
            let (ty, key) = match resolved {
                Resolved::Null => ("%!s(<nil>)", "<nil>"),
                Resolved::Uint(_) => ("uint64", key.as_str()),
                _ => return check_keys(value),
            };
            let value = if matches!(value, Shown::Null) {
                "<nil>".to_owned()
            } else {
                value.to_string()
            };
            Err(Problem::text(format!(
                "unsupported map key of type: {ty}, key: {key}, value: {value}"
            )))
        }),
        _ => Ok(()),
    }
}

fn check_numbers(value: &Shown) -> Result<(), Problem> {
    match value {
        Shown::List(items) => items.iter().try_for_each(check_numbers),
        Shown::Map(map) => map.values().try_for_each(|(_, value)| check_numbers(value)),
        Shown::Float(number) if !number.is_finite() => {
            let mut text = String::new();
            strconv::format_float(*number, &mut text);
            Err(Problem::text(format!("json: unsupported value: {text}")))
        }
        _ => Ok(()),
    }
}
