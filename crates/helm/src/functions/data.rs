//! Converts values to and from JSON, YAML and TOML: Helm's `funcs.go` and the rest of sprig's `defaults.go`.

use gotemplate::function::{Call, Error};
use gotemplate::json::{Layout, marshal};
use gotemplate::string::Str;
use gotemplate::value::{List, Map, Value};

use super::budget::{MEMORY_OF_A_READ_BYTE, READ_IN_A_STEP};
use crate::json::{self, Decoded};
use crate::{times, toml, yaml};

const COMPACT: Layout = Layout {
    escape_html: true,
    indent: None,
};
const PRETTY: Layout = Layout {
    escape_html: true,
    indent: Some("  "),
};
const RAW: Layout = Layout {
    escape_html: false,
    indent: None,
};

fn marshalled(call: &mut Call, value: &Value, layout: Layout) -> Result<Result<Str, Error>, Error> {
    call.weigh(value)?;
    Ok(marshal(value, layout).map(Str::from).map_err(Error::from_error))
}

/// "" if the value cannot be written as JSON.
pub(super) fn to_json(call: &mut Call, value: Value) -> Result<Str, Error> {
    Ok(marshalled(call, &value, COMPACT)?.unwrap_or_default())
}

pub(super) fn must_to_json(call: &mut Call, value: Value) -> Result<Str, Error> {
    marshalled(call, &value, COMPACT)?
}

/// "" if the value cannot be written as JSON.
pub(super) fn to_pretty_json(call: &mut Call, value: Value) -> Result<Str, Error> {
    Ok(marshalled(call, &value, PRETTY)?.unwrap_or_default())
}

pub(super) fn must_to_pretty_json(call: &mut Call, value: Value) -> Result<Str, Error> {
    marshalled(call, &value, PRETTY)?
}

/// With `<`, `>` and `&` not escaped.
pub(super) fn to_raw_json(call: &mut Call, value: Value) -> Result<Str, Error> {
    marshalled(call, &value, RAW)?
}

/// "" if the value cannot be written as YAML.
pub(super) fn to_yaml(call: &mut Call, value: Value) -> Result<String, Error> {
    call.weigh(&value)?;
    Ok(yaml::to_yaml(&value).unwrap_or_default())
}

pub(super) fn must_to_yaml(call: &mut Call, value: Value) -> Result<String, Error> {
    call.weigh(&value)?;
    yaml::to_yaml(&value).map_err(Error::from_error)
}

/// As YAML with lists indented under their keys; "" if the value cannot be written as YAML.
pub(super) fn to_yaml_pretty(call: &mut Call, value: Value) -> Result<String, Error> {
    call.weigh(&value)?;
    Ok(yaml::to_yaml_pretty(&value).unwrap_or_default())
}

/// The text of the error if the value cannot be written as TOML.
pub(super) fn to_toml(call: &mut Call, value: Value) -> Result<Str, Error> {
    call.weigh(&value)?;
    match toml::to_toml(&value) {
        Ok(text) => Ok(text.into()),
        Err(error) if error.is_panic() => Err(Error::from_error(error)),
        Err(error) => Ok(error.to_string().into()),
    }
}

pub(super) fn must_to_toml(call: &mut Call, value: Value) -> Result<Str, Error> {
    call.weigh(&value)?;
    toml::to_toml(&value).map(Str::from).map_err(Error::from_error)
}

/// Parses a text, and takes steps for that and memory for the value.
fn read<V: Clone + Into<Value>>(
    call: &mut Call,
    text: &Str,
    read: impl FnOnce(&[u8]) -> V,
) -> Result<V, Error> {
    call.check_memory(text.len().saturating_mul(MEMORY_OF_A_READ_BYTE))?;
    call.take_steps((text.len() / READ_IN_A_STEP) as u64)?;
    let value = read(text);
    call.take_memory_of(&value.clone().into())?;
    Ok(value)
}

/// Stores why a text could not be parsed.
fn error_entry(map: &Map, error: &dyn std::error::Error) {
    map.insert("Error", error.to_string());
}

fn error_map(error: &dyn std::error::Error) -> Map {
    [("Error", error.to_string())].into_iter().collect()
}

fn error_list(error: &dyn std::error::Error) -> List {
    vec![Value::from(error.to_string())].into()
}

/// A text that cannot be parsed becomes a map whose `Error` says why.
pub(super) fn from_yaml(call: &mut Call, text: Str) -> Result<Map, Error> {
    read(call, &text, |text| {
        yaml::template_map(text).unwrap_or_else(|error| error_map(&error))
    })
}

/// A text that cannot be parsed becomes a list with the error as its only item.
pub(super) fn from_yaml_array(call: &mut Call, text: Str) -> Result<List, Error> {
    read(call, &text, |text| {
        yaml::template_list(text).unwrap_or_else(|error| error_list(&error))
    })
}

/// Like [`from_yaml`]. If a number is too large, the rest is kept.
pub(super) fn from_json(call: &mut Call, text: Str) -> Result<Map, Error> {
    read(call, &text, |text| match json::parse_map(text) {
        Ok(Decoded { value, error }) => {
            if let Some(error) = error {
                error_entry(&value, &error);
            }
            value
        }
        Err(error) => error_map(&error),
    })
}

/// Like [`from_yaml_array`].
pub(super) fn from_json_array(call: &mut Call, text: Str) -> Result<List, Error> {
    read(call, &text, |text| {
        json::parse_list(text)
            .and_then(Decoded::into_result)
            .unwrap_or_else(|error| error_list(&error))
    })
}

/// Any JSON.
pub(super) fn must_from_json(call: &mut Call, text: Str) -> Result<Value, Error> {
    let mut failure = None;
    let value = read(call, &text, |text| {
        json::parse(text).unwrap_or_else(|error| {
            failure = Some(error);
            Value::Nil
        })
    })?;
    failure.map_or(Ok(value), |error| Err(Error::from_error(error)))
}

/// Like [`from_yaml`].
pub(super) fn from_toml(call: &mut Call, text: Str) -> Result<Map, Error> {
    read(call, &text, |text| {
        toml::parse(text, &|datetime| Value::object(times::of_toml(datetime)))
            .unwrap_or_else(|error| error_map(&error))
    })
}
