//! Writes values of templates and JSON as YAML, like sigs.k8s.io/yaml's `Marshal`: through the text of JSON.

use std::borrow::Cow;

use gotemplate::{
    json::{self, Layout, Numbers},
    types,
    value::{TooDeep, Value},
};

use super::{
    Error, MAX_DEPTH, Problem,
    emit::{Detour, Dialect, Emitter},
    order, parse_json,
};
use crate::{times, utf8::utf8_or_replacement};

/// Writes a document as `toYaml` does: without the line break at the end.
pub fn to_string(value: &serde_json::Value) -> Result<String, Error> {
    let mut emitter = Emitter::new(Dialect::V2);
    match write_json(value, &mut emitter, 0) {
        Ok(()) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Detour) => to_string_by_detour(&json::from_json(value.clone(), Numbers::Int64)),
    }
}

/// Writes a template's value as `toYaml` does: without the line break at the end.
pub fn to_yaml(value: &Value) -> Result<String, Error> {
    let mut emitter = Emitter::new(Dialect::V2);
    match write_value(value, &mut emitter, 0) {
        Ok(()) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Detour) => to_string_by_detour(value),
    }
}

/// Writes a template's value as `toYamlPretty` does: with go-yaml v3, and without the line break at the end.
pub fn to_yaml_pretty(value: &Value) -> Result<String, Error> {
    let mut emitter = Emitter::new(Dialect::V3);
    match write_pretty(value, &mut emitter, 0) {
        Ok(()) | Err(Failure::Detour) => Ok(without_last_break(emitter)),
        Err(Failure::Error(error)) => Err(error),
    }
}

/// Does what Helm always does: writes JSON and reads it as YAML.
fn to_string_by_detour(value: &Value) -> Result<String, Error> {
    let text = json::marshal(value, Layout::default()).map_err(|error| Error::marshal(&error))?;
    let read = parse_json(&text)?;
    let mut emitter = Emitter::new(Dialect::V2);
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
            for (key, value) in order::sort(map.iter().collect(), Dialect::V2, |(key, _)| key.as_str()) {
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
            for (key, value) in order::sort(entries, Dialect::V2, |(key, _)| key) {
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

fn write_pretty(value: &Value, emitter: &mut Emitter, depth: usize) -> Result<(), Failure> {
    if depth > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    match value {
        Value::Nil => emitter.null(),
        Value::Bool(value) => emitter.bool(*value),
        Value::Float64(value) => emitter.float_as_it_is(*value, false),
        Value::Float32(value) => emitter.float_as_it_is((*value).into(), true),
        Value::String(text) => match std::str::from_utf8(text) {
            Ok(text) => emitter.string(text)?,
            Err(_) => emitter.binary(text)?,
        },
        Value::Bytes(bytes) => write_list(bytes.iter(), emitter, |byte, emitter| {
            emitter.uint((*byte).into());
            Ok(())
        })?,
        Value::List(list) => write_list(list.iter(), emitter, |item, emitter| {
            write_pretty(item, emitter, depth + 1)
        })?,
        Value::Map(map) if map.is_empty() => emitter.empty_mapping(),
        Value::Map(map) => {
            emitter.begin_mapping();
            let entries = map.borrow();
            let entries: Vec<(Cow<'_, str>, &Value)> = entries
                .iter()
                .map(|(key, value)| (utf8_or_replacement(key), value))
                .collect();
            for (key, value) in order::sort(entries, Dialect::V3, |(key, _)| key) {
                emitter.key(&key)?;
                write_pretty(value, emitter, depth + 1)?;
            }
            emitter.end();
        }
        Value::Object(object) => {
            if let Some(timestamp) = times::yaml_timestamp(value) {
                emitter.timestamp(&timestamp);
                return Ok(());
            }
            if let Some(duration) = times::duration_text(value) {
                emitter.string(&duration)?;
                return Ok(());
            }
            let fields = object.fields();
            if let Some(value) = object.underlying() {
                return write_pretty(&value, emitter, depth + 1);
            }
            if fields.is_empty() {
                return write_pretty(&object.json(), emitter, depth + 1);
            }
            emitter.begin_mapping();
            for (name, value) in fields {
                emitter.key(&name.to_lowercase())?;
                write_pretty(&value, emitter, depth + 1)?;
            }
            emitter.end();
        }
        Value::Complex(..) | Value::Func(_) => {
            // go-yaml panics, and its own recovery does not catch this.
            let problem = format!("cannot marshal type: {}", value.type_name());
            return Err(Failure::Error(Error::bare(&Problem::text(problem))));
        }
        integer => match (integer.as_i64(), integer.as_u64()) {
            (Some(value), _) => emitter.int(value),
            (None, value) => emitter.uint(value.unwrap_or_default()),
        },
    }
    Ok(())
}

fn write_list<T>(
    items: impl ExactSizeIterator<Item = T>,
    emitter: &mut Emitter,
    mut write: impl FnMut(T, &mut Emitter) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if items.len() == 0 {
        emitter.empty_sequence();
        return Ok(());
    }
    emitter.begin_sequence();
    for item in items {
        emitter.item();
        write(item, emitter)?;
    }
    emitter.end();
    Ok(())
}
