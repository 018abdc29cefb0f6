//! Documents into JSON by way of libyaml's events.

use std::collections::HashMap;

use libyaml_safer::{EventData, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// A text is not YAML.
#[derive(Debug, thiserror::Error)]
#[error("yaml: {0}")]
pub struct Error(String);

type Anchors = HashMap<String, Value>;

/// The first document of a text; null where there is none.
pub(crate) fn document(text: &[u8]) -> Result<Value, Error> {
    let mut input = text;
    let mut parser = Parser::new();
    parser.set_input_string(&mut input);
    loop {
        match next(&mut parser)? {
            EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
            EventData::StreamEnd => return Ok(Value::Null),
            event => return node(event, &mut parser, &mut Anchors::new()),
        }
    }
}

fn next(parser: &mut Parser<&mut &[u8]>) -> Result<EventData, Error> {
    parser
        .parse()
        .map(|event| event.data)
        .map_err(|error| Error(error.to_string()))
}

fn node(event: EventData, parser: &mut Parser<&mut &[u8]>, anchors: &mut Anchors) -> Result<Value, Error> {
    let (anchor, value) = match event {
        EventData::Scalar {
            value, style, anchor, ..
        } if style == ScalarStyle::Plain => (anchor, plain(&value)),
        EventData::Scalar { value, anchor, .. } => (anchor, Value::String(value)),
        EventData::Alias { anchor } => {
            return anchors
                .get(&anchor)
                .cloned()
                .ok_or_else(|| Error(format!("unknown anchor '{anchor}' referenced")));
        }
        EventData::SequenceStart { anchor, .. } => (anchor, sequence(parser, anchors)?),
        EventData::MappingStart { anchor, .. } => (anchor, mapping(parser, anchors)?),
        other => return Err(Error(format!("unexpected {other:?}"))),
    };
    if let Some(anchor) = anchor {
        anchors.insert(anchor, value.clone());
    }
    Ok(value)
}

fn sequence(parser: &mut Parser<&mut &[u8]>, anchors: &mut Anchors) -> Result<Value, Error> {
    let mut items = Vec::new();
    loop {
        match next(parser)? {
            EventData::SequenceEnd => return Ok(Value::Array(items)),
            event => items.push(node(event, parser, anchors)?),
        }
    }
}

fn mapping(parser: &mut Parser<&mut &[u8]>, anchors: &mut Anchors) -> Result<Value, Error> {
    let mut fields = Map::new();
    loop {
        let key = match next(parser)? {
            EventData::MappingEnd => return Ok(Value::Object(fields)),
            event => node(event, parser, anchors)?,
        };
        let event = next(parser)?;
        match (key, node(event, parser, anchors)?) {
            (Value::String(key), Value::Object(merged)) if key == "<<" => fields.extend(merged),
            (Value::String(key), value) => drop(fields.insert(key, value)),
            (key, value) => drop(fields.insert(key.to_string(), value)),
        }
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "yes" | "on" | "y" => return Value::Bool(true),
        "false" | "False" | "no" | "off" | "n" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(integer) = text.parse::<i64>() {
        return Value::from(integer);
    }
    match text.parse::<f64>() {
        Ok(float) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.') => {
            Value::from(float)
        }
        _ => Value::from(text),
    }
}
