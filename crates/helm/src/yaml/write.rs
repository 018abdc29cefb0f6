//! Values of templates and of JSON into YAML, as sigs.k8s.io/yaml's `Marshal` does: through the text of JSON.

use std::borrow::Cow;

use gotemplate::{
    json::{self, Layout, Numbers},
    types,
    value::{TooDeep, Value},
};

use super::{
    Error, MAX_DEPTH,
    emit::{Detour, Emitter},
    order, parse_json,
};
use crate::json::utf8_or_replacement;

/// Writes a document as `toYaml` does: without the line break at the end.
pub fn to_string(value: &serde_json::Value) -> Result<String, Error> {
    let mut emitter = Emitter::new();
    match write_json(value, &mut emitter, 0) {
        Ok(()) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Detour) => to_string_by_detour(&json::from_json(value.clone(), Numbers::Int64)),
    }
}

/// Writes a template's value as `toYaml` does: without the line break at the end.
pub fn to_yaml(value: &Value) -> Result<String, Error> {
    let mut emitter = Emitter::new();
    match write_value(value, &mut emitter, 0) {
        Ok(()) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Detour) => to_string_by_detour(value),
    }
}

/// Takes the way that Helm takes always: writes JSON and reads that as YAML.
fn to_string_by_detour(value: &Value) -> Result<String, Error> {
    let text = json::marshal(value, Layout::default()).map_err(|error| Error::marshal(&error))?;
    let read = parse_json(&text)?;
    let mut emitter = Emitter::new();
    match write_json(&read, &mut emitter, 0) {
        Ok(()) | Err(Failure::Detour) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
    }
}

enum Failure {
    Detour,
    Error(Error),
}

impl From<Detour> for Failure {
    fn from(_: Detour) -> Self {
        Self::Detour
    }
}

impl From<TooDeep> for Failure {
    fn from(error: TooDeep) -> Self {
        Self::Error(Error::marshal(&error))
    }
}

fn without_last_break(emitter: Emitter) -> String {
    let mut text = emitter.finish();
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

fn write_json(value: &serde_json::Value, emitter: &mut Emitter, depth: usize) -> Result<(), Failure> {
    if depth > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    match value {
        serde_json::Value::Null => emitter.null(),
        serde_json::Value::Bool(value) => emitter.bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => emitter.int(value),
            (None, Some(value)) => emitter.uint(value),
            (None, None) => emitter.float(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => emitter.string(text)?,
        serde_json::Value::Array(items) if items.is_empty() => emitter.empty_sequence(),
        serde_json::Value::Array(items) => {
            emitter.begin_sequence();
            for item in items {
                emitter.item();
                write_json(item, emitter, depth + 1)?;
            }
            emitter.end();
        }
        serde_json::Value::Object(map) if map.is_empty() => emitter.empty_mapping(),
        serde_json::Value::Object(map) => {
            emitter.begin_mapping();
            for (key, value) in order::sort(map.iter().collect(), |(key, _)| key.as_str()) {
                emitter.key(key)?;
                write_json(value, emitter, depth + 1)?;
            }
            emitter.end();
        }
    }
    Ok(())
}

fn write_value(value: &Value, emitter: &mut Emitter, depth: usize) -> Result<(), Failure> {
    if depth > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    match value {
        Value::Nil => emitter.null(),
        Value::Bool(value) => emitter.bool(*value),
        Value::Float64(value) if value.is_finite() => emitter.float(*value),
        Value::String(text) => emitter.string(&utf8_or_replacement(text))?,
        Value::List(list) if !list.is_nil() && !list.ty().element().is(&types::UINT8) => {
            if list.is_empty() {
                emitter.empty_sequence();
                return Ok(());
            }
            emitter.begin_sequence();
            for item in list.iter() {
                emitter.item();
                write_value(item, emitter, depth + 1)?;
            }
            emitter.end();
        }
        Value::Map(map) if !map.is_nil() => {
            if map.is_empty() {
                emitter.empty_mapping();
                return Ok(());
            }
            emitter.begin_mapping();
            let entries = map.borrow();
            let entries: Vec<(Cow<'_, str>, &Value)> = entries
                .iter()
                .map(|(key, value)| (utf8_or_replacement(key), value))
                .collect();
            for (key, value) in order::sort(entries, |(key, _)| key) {
                emitter.key(&key)?;
                write_value(value, emitter, depth + 1)?;
            }
            emitter.end();
        }
        Value::Object(object) => write_value(&object.json(), emitter, depth + 1)?,
        other => {
            let json = json::to_json(other).map_err(|error| Failure::Error(Error::marshal(&error)))?;
            write_json(&json, emitter, depth)?;
        }
    }
    Ok(())
}
