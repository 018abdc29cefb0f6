//! Values: parsing, merging a user's values, and conversions between the two representations.
//!
//! At rest values are JSON ([`serde_json::Map`]), which can be stored and sent; while a chart is rendered they are
//! [`gotemplate`]'s maps, which templates share and change. Both keep the Go types of numbers: those read from a file
//! or from JSON are floats, those written by `--set` are integers.

use std::borrow::Cow;

use gotemplate::{
    frozen::{Frozen, FrozenMap},
    string::Str,
    value::{self, Value as GoValue},
};
use memchr::memmem;
use serde_json::{Map, Value};

use crate::{line::HelmLine, yaml};

pub(crate) mod coalesce;
pub mod strvals;

pub use self::coalesce::Error as CoalesceError;

/// Why a text could not be read as values.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line that starts a document has other text after the dashes.
    #[error("error reading yaml document: invalid Yaml document separator: {0}")]
    Separator(String),
    /// A document is not YAML.
    #[error("cannot unmarshal yaml document")]
    Yaml(#[source] yaml::Error),
    /// A document is a list or a scalar.
    #[error(
        "cannot unmarshal yaml document: error unmarshaling JSON: while decoding JSON: \
         json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )]
    NotATable {
        /// Its type.
        found: &'static str,
    },
    /// The only document that is read is not YAML.
    #[error(transparent)]
    OnlyYaml(yaml::Error),
    /// The only document that is read is a list or a scalar.
    #[error(
        "error unmarshaling JSON: while decoding JSON: \
         json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )]
    OnlyNotATable {
        /// Its type.
        found: &'static str,
    },
}

/// Parses a values file: all its documents, later ones merged over earlier ones, all numbers as floats.
///
/// # Errors
/// When a document is not YAML or not a table.
pub fn read(text: &[u8]) -> Result<Map<String, Value>, ReadError> {
    let mut values = Map::new();
    for document in documents(text)? {
        let document = yaml::parse(&document).map_err(ReadError::Yaml)?;
        merge(
            &mut values,
            into_table(document).map_err(|found| ReadError::NotATable { found })?,
        );
    }
    Ok(values)
}

/// Parses a values file as Helm 3 does: only its first document, all numbers as floats.
///
/// # Errors
/// When that document is not YAML or not a table.
pub fn read_first(text: &[u8]) -> Result<Map<String, Value>, ReadError> {
    let document = yaml::parse(text).map_err(ReadError::OnlyYaml)?;
    into_table(document).map_err(|found| ReadError::OnlyNotATable { found })
}

/// Parses a values file as a line of Helm does: [`read`] or [`read_first`].
///
/// # Errors
/// The errors of those functions.
pub fn read_as(helm: HelmLine, text: &[u8]) -> Result<Map<String, Value>, ReadError> {
    match helm {
        HelmLine::Three => read_first(text),
        HelmLine::Four => read(text),
    }
}

/// Parses a values file like [`read_as`], directly into the representation that renders copy from.
///
/// # Errors
/// Those of [`read_as`].
pub(crate) fn read_frozen(helm: HelmLine, text: &[u8]) -> Result<FrozenMap, ReadError> {
    let table = |document: Frozen| match document {
        Frozen::Nil => Ok(FrozenMap::default()),
        Frozen::Map(table) => Ok(table),
        Frozen::List(_) => Err("array"),
        Frozen::String(_) => Err("string"),
        Frozen::Bool(_) => Err("bool"),
        Frozen::Int64(_) | Frozen::Uint64(_) | Frozen::Float64(_) => Err("number"),
    };
    let parse = |text: &[u8]| yaml::parse_with(text, &yaml::FrozenFloats);
    match helm {
        HelmLine::Three => {
            let document = parse(text).map_err(ReadError::OnlyYaml)?;
            table(document).map_err(|found| ReadError::OnlyNotATable { found })
        }
        HelmLine::Four => match &documents(text)?[..] {
            [document] => {
                let document = parse(document).map_err(ReadError::Yaml)?;
                table(document).map_err(|found| ReadError::NotATable { found })
            }
            _ => Ok(freeze(&read(text)?)),
        },
    }
}

/// The document as a table, empty if the document is; otherwise Go's name of its type.
fn into_table(document: Value) -> Result<Map<String, Value>, &'static str> {
    match document {
        Value::Null => Ok(Map::new()),
        Value::Object(table) => Ok(table),
        Value::Array(_) => Err("array"),
        Value::String(_) => Err("string"),
        Value::Number(_) => Err("number"),
        Value::Bool(_) => Err("bool"),
    }
}

/// Splits at lines that start with `---`, like the reader of `k8s.io/apimachinery/pkg/util/yaml`.
fn documents(text: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, ReadError> {
    // The usual case: one document with plain line breaks, which needs no copy.
    let is_one = text.ends_with(b"\n")
        && !text.starts_with(b"---")
        && memmem::find(text, b"\n---").is_none()
        && memchr::memchr(b'\r', text).is_none();
    if is_one {
        return Ok(vec![text.into()]);
    }
    let mut documents = Vec::new();
    let mut document = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = line
            .strip_suffix(b"\n")
            .map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = String::from_utf8_lossy(rest);
            let rest = rest.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(ReadError::Separator(rest.to_owned()));
            }
            if !document.is_empty() {
                documents.push(std::mem::take(&mut document).into());
                continue;
            }
        }
        document.extend_from_slice(line);
        document.push(b'\n');
    }
    if !document.is_empty() {
        documents.push(document.into());
    }
    Ok(documents)
}

/// Merges values over others: tables are merged key by key, everything else is replaced, also by nulls.
pub fn merge(under: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(under)), Value::Object(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Turns every number into a float, as Go's JSON decoder does.
pub fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => Value::Array(items.into_iter().map(with_floats).collect()),
        Value::Object(table) => Value::Object(floats(table)),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

/// [`with_floats`] for a whole table, for values that come as JSON.
pub fn floats(table: Map<String, Value>) -> Map<String, Value> {
    table
        .into_iter()
        .map(|(key, value)| (key, with_floats(value)))
        .collect()
}

/// Values at rest as templates see them.
pub(crate) fn to_map(values: &Map<String, Value>) -> value::Map {
    values
        .iter()
        .map(|(key, value)| (key.as_str(), to_value(value)))
        .collect()
}

/// A value at rest as templates see it: integers are `int64`, other numbers `float64`.
pub(crate) fn to_value(value: &Value) -> GoValue {
    match value {
        Value::Null => GoValue::Nil,
        Value::Bool(value) => GoValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => GoValue::Int64(integer),
            None => GoValue::Float64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => GoValue::from(text),
        Value::Array(items) => GoValue::list(items.iter().map(to_value)),
        Value::Object(table) => GoValue::Map(to_map(table)),
    }
}

/// Values at rest in the frozen form that renderings copy from.
pub(crate) fn freeze(values: &Map<String, Value>) -> FrozenMap {
    FrozenMap::new(
        values
            .iter()
            .map(|(key, value)| (Str::from(key), freeze_value(value))),
    )
}

fn freeze_value(value: &Value) -> Frozen {
    match value {
        Value::Null => Frozen::Nil,
        Value::Bool(value) => Frozen::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Frozen::Int64(integer),
            None => Frozen::Float64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Frozen::String(text.into()),
        Value::Array(items) => Frozen::List(items.iter().map(freeze_value).collect()),
        Value::Object(table) => Frozen::Map(freeze(table)),
    }
}

/// Frozen values as JSON.
pub(crate) fn json_map(map: &FrozenMap) -> Map<String, Value> {
    let entries = map.entries().iter();
    entries
        .map(|(key, value)| (key.lossy().into_owned(), json(value)))
        .collect()
}

fn json(value: &Frozen) -> Value {
    match value {
        Frozen::Nil => Value::Null,
        Frozen::Bool(value) => Value::Bool(*value),
        Frozen::Int64(number) => Value::from(*number),
        Frozen::Uint64(number) => Value::from(*number),
        Frozen::Float64(number) => Value::from(*number),
        Frozen::String(text) => Value::from(text.lossy()),
        Frozen::List(items) => Value::Array(items.iter().map(json).collect()),
        Frozen::Map(map) => Value::Object(json_map(map)),
    }
}

/// A table of plain values; defined types such as `.Values` itself do not count, as in Go's type assertion.
pub(crate) fn as_table(value: &GoValue) -> Option<&value::Map> {
    value.as_map().filter(|map| map.ty().is(&gotemplate::types::MAP))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn merging_replaces_lists_and_keeps_nulls() {
        let mut under = table(json!({"a": {"b": 1, "c": [1, 2]}, "d": {"e": 1}, "f": 1}));
        merge(
            &mut under,
            table(json!({"a": {"c": [3], "x": null}, "d": null, "f": {"g": 1}})),
        );
        assert_eq!(
            under,
            table(json!({"a": {"b": 1, "c": [3], "x": null}, "d": null, "f": {"g": 1}}))
        );
    }

    #[test]
    fn a_values_file_may_hold_several_documents() {
        let values = read(b"---\na: 1\nb: {c: 2}\n--- # more\nb: {d: 3}\n---\n").unwrap();
        assert_eq!(values, table(json!({"a": 1.0, "b": {"c": 2.0, "d": 3.0}})));
        assert_eq!(read(b"").unwrap(), Map::new());
        assert_eq!(read(b"# nothing\n").unwrap(), Map::new());
        let values = read_first(b"---\na: 1\n---\nb: [\n").unwrap();
        assert_eq!(values, table(json!({"a": 1.0})));
    }

    #[test]
    fn what_holds_no_table_is_refused() {
        assert!(matches!(
            read(b"[1]"),
            Err(ReadError::NotATable { found: "array" })
        ));
        assert!(matches!(read(b"--- a: 1\n"), Err(ReadError::Separator(rest)) if rest == "a: 1"));
        assert!(matches!(read(b"a: [\n"), Err(ReadError::Yaml(_))));
    }

    #[test]
    fn numbers_keep_their_go_types_on_the_way_there_and_back() {
        let values = json!({"file": 1.0, "set": 1, "big": 1e300, "list": [null, true, "x"]});
        let map = to_map(&table(values.clone()));
        assert!(matches!(map.get("file"), Some(GoValue::Float64(_))));
        assert!(matches!(map.get("set"), Some(GoValue::Int64(1))));
        assert_eq!(Value::Object(json_map(&map.freeze())), values);
    }
}
