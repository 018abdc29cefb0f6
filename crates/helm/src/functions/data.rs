//! Values as JSON, YAML and TOML and back: Helm's `funcs.go` and what is left of sprig's `defaults.go`.

use gotemplate::function::Error;
use gotemplate::json::{self, Layout, Numbers};
use gotemplate::string::Str;
use gotemplate::value::{Map, Value};

use crate::yaml;

fn encoded(value: &Value, layout: Layout) -> Result<Str, Error> {
    Ok(json::marshal(value, layout).map_err(Error::from_error)?.into())
}

/// "" for what JSON cannot hold.
pub(super) fn to_json(value: Value) -> Str {
    must_to_json(value).unwrap_or_default()
}

pub(super) fn must_to_json(value: Value) -> Result<Str, Error> {
    encoded(
        &value,
        Layout {
            escape_html: true,
            indent: None,
        },
    )
}

/// "" for what JSON cannot hold.
pub(super) fn to_pretty_json(value: Value) -> Str {
    must_to_pretty_json(value).unwrap_or_default()
}

pub(super) fn must_to_pretty_json(value: Value) -> Result<Str, Error> {
    encoded(
        &value,
        Layout {
            escape_html: true,
            indent: Some("  "),
        },
    )
}

/// With `<`, `>` and `&` as they are.
pub(super) fn to_raw_json(value: Value) -> Result<Str, Error> {
    encoded(
        &value,
        Layout {
            escape_html: false,
            indent: None,
        },
    )
}

/// "" for what YAML cannot hold.
pub(super) fn to_yaml(value: Value) -> String {
    yaml::to_yaml(&value).unwrap_or_default()
}

pub(super) fn must_to_yaml(value: Value) -> Result<String, Error> {
    yaml::to_yaml(&value).map_err(Error::from_error)
}

/// What cannot be read becomes a map whose `Error` says why.
fn or_error(read: Result<Map, impl ToString>) -> Map {
    read.unwrap_or_else(|error| [("Error", error.to_string())].into_iter().collect())
}

/// What cannot be read becomes a list of one text that says why.
fn or_error_item(read: Result<Vec<Value>, impl ToString>) -> Value {
    Value::list(read.unwrap_or_else(|error| vec![error.to_string().into()]))
}

pub(super) fn from_yaml(text: Str) -> Map {
    or_error(yaml::parse_map(&text).map(|entries| {
        entries
            .into_iter()
            .map(|(key, value)| (key, from_json_value(value)))
            .collect()
    }))
}

pub(super) fn from_yaml_array(text: Str) -> Value {
    or_error_item(yaml::parse_list(&text).map(|items| items.into_iter().map(from_json_value).collect()))
}

fn from_json_value(value: serde_json::Value) -> Value {
    json::from_json(value, Numbers::Float64)
}
