//! Values as JSON, YAML and TOML and back: Helm's `funcs.go` and what is left of sprig's `defaults.go`.

use gotemplate::function::Error;
use gotemplate::json::{Layout, marshal};
use gotemplate::string::Str;
use gotemplate::value::{List, Map, Value};

use super::dates;
use crate::json::{self, Decoded};
use crate::{toml, yaml};

fn encoded(value: &Value, layout: Layout) -> Result<Str, Error> {
    Ok(marshal(value, layout).map_err(Error::from_error)?.into())
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

/// As YAML with lists indented under their keys; "" for what YAML cannot hold.
pub(super) fn to_yaml_pretty(value: Value) -> String {
    yaml::to_yaml_pretty(&value).unwrap_or_default()
}

/// The error's text for what TOML cannot hold.
pub(super) fn to_toml(value: Value) -> Result<Str, Error> {
    match toml::to_toml(&value) {
        Ok(text) => Ok(text.into()),
        Err(error) if error.is_panic() => Err(Error::from_error(error)),
        Err(error) => Ok(error.to_string().into()),
    }
}

pub(super) fn must_to_toml(value: Value) -> Result<Str, Error> {
    toml::to_toml(&value).map(Str::from).map_err(Error::from_error)
}

/// Why a text could not be read, in the place of what it says.
fn error_entry(map: &Map, error: &dyn std::error::Error) {
    map.insert("Error", error.to_string());
}

fn error_map(error: &dyn std::error::Error) -> Map {
    [("Error", error.to_string())].into_iter().collect()
}

fn error_list(error: &dyn std::error::Error) -> List {
    vec![Value::from(error.to_string())].into()
}

/// What cannot be read becomes a map whose `Error` says why.
pub(super) fn from_yaml(text: Str) -> Map {
    yaml::template_map(&text).unwrap_or_else(|error| error_map(&error))
}

/// What cannot be read becomes a list of one text that says why.
pub(super) fn from_yaml_array(text: Str) -> List {
    yaml::template_list(&text).unwrap_or_else(|error| error_list(&error))
}

/// As [`from_yaml`]. What stands beside a number too large is kept.
pub(super) fn from_json(text: Str) -> Map {
    match json::parse_map(&text) {
        Ok(Decoded { value, error }) => {
            if let Some(error) = error {
                error_entry(&value, &error);
            }
            value
        }
        Err(error) => error_map(&error),
    }
}

/// As [`from_yaml_array`].
pub(super) fn from_json_array(text: Str) -> List {
    json::parse_list(&text)
        .and_then(Decoded::into_result)
        .unwrap_or_else(|error| error_list(&error))
}

/// Any JSON.
pub(super) fn must_from_json(text: Str) -> Result<Value, Error> {
    json::parse(&text).map_err(Error::from_error)
}

/// As [`from_yaml`].
pub(super) fn from_toml(text: Str) -> Map {
    toml::parse(&text, &|datetime| Value::object(dates::of_toml(datetime)))
        .unwrap_or_else(|error| error_map(&error))
}
