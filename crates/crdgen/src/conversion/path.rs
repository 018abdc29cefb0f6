//! Paths in values: `image.tag`, `hosts[].name`, `sites.*.host`.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::JSONSchemaProps;
use crate::structural::anything;
use crate::values::additional;

/// A path in values. `[]` after a key means every item of a list, `*` every key of a map; a backslash before a dot
/// makes the dot part of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Key(String),
    /// Every item of a list.
    Items,
    /// Every value of a map.
    Fields,
}

impl Path {
    /// The part up to the last `[]` or `*`, and the keys after it.
    pub(super) fn parted(&self) -> (Self, Vec<&str>) {
        let is_key = |segment: &Segment| matches!(segment, Segment::Key(_));
        let at = self.0.iter().rposition(|segment| !is_key(segment));
        let (within, keys) = self.0.split_at(at.map_or(0, |at| at + 1));
        let keys = keys.iter().filter_map(|segment| match segment {
            Segment::Key(key) => Some(key.as_str()),
            Segment::Items | Segment::Fields => None,
        });
        (Self(within.to_vec()), keys.collect())
    }

    /// Calls `visit` for every value at the path.
    pub(super) fn each(&self, value: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
        each(&self.0, value, visit);
    }

    /// The schema at the path; `None` if the schema does not define it.
    pub(super) fn schema<'s>(&self, schema: &'s mut JSONSchemaProps) -> Option<&'s mut JSONSchemaProps> {
        self.0
            .iter()
            .try_fold(schema, |schema, segment| segment.inside(schema))
    }

    /// Whether the schema defines the path, or preserves unknown fields there.
    pub(super) fn is_known_to(&self, schema: &JSONSchemaProps) -> bool {
        let mut schema = schema.clone();
        let mut at = &mut schema;
        for segment in &self.0 {
            if at.type_.is_none() {
                return true;
            }
            let is_open = at.x_kubernetes_preserve_unknown_fields == Some(true);
            match segment.inside(at) {
                Some(inside) => at = inside,
                None => return is_open,
            }
        }
        true
    }
}

impl Segment {
    fn inside<'s>(&self, schema: &'s mut JSONSchemaProps) -> Option<&'s mut JSONSchemaProps> {
        let JSONSchemaProps {
            properties,
            additional_properties,
            items,
            ..
        } = schema;
        let values = match additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(&mut **inner),
            Some(JSONSchemaPropsOrBool::Bool(_)) | None => None,
        };
        match self {
            Self::Key(key) => properties
                .as_mut()
                .and_then(|properties| properties.get_mut(key))
                .or(values),
            Self::Fields => values,
            Self::Items => match items {
                Some(JSONSchemaPropsOrArray::Schema(inner)) => Some(&mut **inner),
                Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
            },
        }
    }
}

fn each(segments: &[Segment], value: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = segments.split_first() else {
        return visit(value);
    };
    match (first, value) {
        (Segment::Key(key), Value::Object(map)) => {
            if let Some(inner) = map.get_mut(key) {
                each(rest, inner, visit);
            }
        }
        (Segment::Fields, Value::Object(map)) => {
            for inner in map.values_mut() {
                each(rest, inner, visit);
            }
        }
        (Segment::Items, Value::Array(list)) => {
            for inner in list {
                each(rest, inner, visit);
            }
        }
        _ => {}
    }
}

/// Removes the value at a path of keys, and maps that become empty.
pub(super) fn take(map: &mut Map<String, Value>, keys: &[&str]) -> Option<Value> {
    let (first, rest) = keys.split_first()?;
    if rest.is_empty() {
        return map.remove(*first);
    }
    let inner = map.get_mut(*first)?.as_object_mut()?;
    let taken = take(inner, rest)?;
    if inner.is_empty() {
        map.remove(*first);
    }
    Some(taken)
}

/// Sets the value at a path of keys, replacing an existing one.
pub(super) fn put(map: &mut Map<String, Value>, keys: &[&str], value: Value) {
    let Some((first, rest)) = keys.split_first() else {
        return;
    };
    if rest.is_empty() {
        map.insert((*first).to_owned(), value);
        return;
    }
    let inner = map.entry((*first).to_owned()).or_insert(Value::Null);
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}

/// [`take`] for the schema of a map; a field that a schema preserves without defining it may be anything. Maps that
/// become empty are kept, because values may have them.
pub(super) fn take_schema(schema: &mut JSONSchemaProps, keys: &[&str]) -> Option<JSONSchemaProps> {
    let (first, rest) = keys.split_first()?;
    let unknown = if keeps_all(schema) {
        Some(anything())
    } else {
        additional(schema).and_then(|inner| take_schema_of(inner.clone(), rest))
    };
    let Some(properties) = &mut schema.properties else {
        return unknown;
    };
    if rest.is_empty() {
        return properties.remove(*first).or(unknown);
    }
    match properties.get_mut(*first) {
        Some(inner) => take_schema(inner, rest),
        None => unknown,
    }
}

fn take_schema_of(mut schema: JSONSchemaProps, keys: &[&str]) -> Option<JSONSchemaProps> {
    if keys.is_empty() {
        return Some(schema);
    }
    take_schema(&mut schema, keys)
}

/// [`put`] for the schema of a map.
pub(super) fn put_schema(schema: &mut JSONSchemaProps, keys: &[&str], inner: JSONSchemaProps) {
    let Some((first, rest)) = keys.split_first() else {
        return;
    };
    if schema.type_.is_none() && keeps_all(schema) {
        return;
    }
    if schema.type_.as_deref() != Some("object") || schema.additional_properties.is_some() {
        // A map cannot also have named properties.
        let is_map = schema.additional_properties.is_some();
        *schema = JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: is_map.then_some(true),
            ..JSONSchemaProps::default()
        };
    }
    let properties = schema.properties.get_or_insert_default();
    if rest.is_empty() {
        properties.insert((*first).to_owned(), inner);
    } else {
        put_schema(properties.entry((*first).to_owned()).or_default(), rest, inner);
    }
}

fn keeps_all(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_preserve_unknown_fields == Some(true)
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut segments = Vec::new();
        for part in parts(&text) {
            let key = part.trim_end_matches("[]");
            match key {
                "" => return Err(format!("{text:?} is not a path: a key is empty")),
                "*" => segments.push(Segment::Fields),
                key => segments.push(Segment::Key(key.to_owned())),
            }
            let lists = (part.len() - key.len()) / 2;
            segments.extend(std::iter::repeat_n(Segment::Items, lists));
        }
        match segments.first() {
            Some(Segment::Key(_)) => Ok(Self(segments)),
            Some(Segment::Items | Segment::Fields) | None => {
                Err(format!("{text:?} is not a path: it does not start with a key"))
            }
        }
    }
}

/// The text between dots; a dot after a backslash does not separate.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '.' => parts.push(String::new()),
            letter => {
                let letter = if letter == '\\' {
                    letters.next()
                } else {
                    Some(letter)
                };
                if let Some(last) = parts.last_mut() {
                    last.extend(letter);
                }
            }
        }
    }
    parts
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            match segment {
                Segment::Key(key) => {
                    let key = key.replace('\\', "\\\\").replace('.', "\\.");
                    write!(out, "{dot}{key}")?;
                }
                Segment::Items => out.write_str("[]")?,
                Segment::Fields => write!(out, "{dot}*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_printed_as_it_was_written() {
        for text in [
            "image.tag",
            "hosts[].name",
            "sites.*.host",
            r"labels.app\.io",
            "a[][].b",
        ] {
            assert_eq!(Path::try_from(text.to_owned()).expect(text).to_string(), text);
        }
        for text in ["", ".a", "a..b", "[]", "*.a"] {
            let refused = Path::try_from(text.to_owned()).expect_err(text);
            assert!(refused.contains("is not a path"), "{refused}");
        }
    }
}
