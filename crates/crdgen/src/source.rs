//! The chart's schema document: its drafts, and the targets of its references.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A version of the JSON Schema language, which determines the meaning of keywords.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Draft {
    V4,
    V6,
    V7,
    V2019,
    V2020,
}

impl Draft {
    /// The draft named by a `$schema`. Helm treats unknown values as 2020-12, including the
    /// `http://json-schema.org/schema#` of most charts.
    fn named(schema: &str) -> Self {
        let url = schema.trim_end_matches('#');
        let address = url.split_once("://").map_or(url, |(_, address)| address);
        match address.strip_prefix("json-schema.org/") {
            Some("draft-04/schema") => Self::V4,
            Some("draft-06/schema") => Self::V6,
            Some("draft-07/schema") => Self::V7,
            Some("draft/2019-09/schema") => Self::V2019,
            _ => Self::V2020,
        }
    }

    /// Whether `format` is enforced; later drafts treat it as an annotation.
    pub(crate) fn asserts_format(self) -> bool {
        self < Self::V2019
    }

    /// Whether keywords beside a `$ref` are ignored.
    pub(crate) fn ref_stands_alone(self) -> bool {
        self < Self::V2019
    }

    /// Whether this draft has the keyword; Helm ignores those of other drafts.
    pub(crate) fn knows(self, keyword: &str) -> bool {
        match keyword {
            "const" | "contains" | "propertyNames" => self >= Self::V6,
            "if" | "then" | "else" => self >= Self::V7,
            "dependentRequired"
            | "dependentSchemas"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "minContains"
            | "maxContains"
            | "$recursiveRef" => self >= Self::V2019,
            "prefixItems" | "$dynamicRef" => self >= Self::V2020,
            _ => true,
        }
    }
}

/// Maximum number of schemas on the path to a schema.
pub(crate) const MAX_DEPTH: usize = 100;

/// One schema of the document, and the path to it.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) schema: &'a Value,
    pub(crate) draft: Draft,
    /// The targets of the references on the path, by address; reaching one again is a recursion.
    entered: Vec<*const Value>,
    /// The number of schemas on the path, by nesting and by references.
    depth: usize,
}

impl<'a> Part<'a> {
    /// A schema inside this one.
    pub(crate) fn inner(&self, schema: &'a Value) -> Self {
        Self {
            schema,
            draft: draft_of(schema, self.draft),
            entered: self.entered.clone(),
            depth: self.depth + 1,
        }
    }

    /// Whether it is too deep to be processed: a thread's stack is limited, and no API server accepts a type of that
    /// depth.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.depth > MAX_DEPTH
    }
}

/// The target of a `$ref`.
pub(crate) enum Target<'a> {
    Schema(Part<'a>),
    /// A schema that contains this reference.
    Recursion(&'a Value),
    /// Another document.
    Remote,
    /// Nothing in this document.
    Missing,
}

/// A whole schema document with its named schemas.
pub(crate) struct Document<'a> {
    root: &'a Value,
    /// All schemas in it by `$id`, `id` and `$anchor` (as `#name`).
    named: BTreeMap<String, &'a Value>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        let mut named = BTreeMap::new();
        collect_names(root, &mut named);
        Self { root, named }
    }

    pub(crate) fn root(&self) -> Part<'a> {
        Part {
            schema: self.root,
            draft: draft_of(self.root, Draft::V2020),
            entered: Vec::new(),
            depth: 0,
        }
    }

    /// Follows a `$ref` found in `from`.
    pub(crate) fn follow(&self, reference: &str, from: &Part<'a>) -> Target<'a> {
        let Some(schema) = self.find(reference) else {
            return if reference.starts_with('#') {
                Target::Missing
            } else {
                Target::Remote
            };
        };
        let address = std::ptr::from_ref(schema);
        if from.entered.contains(&address) || std::ptr::eq(schema, self.root) {
            return Target::Recursion(schema);
        }
        let mut part = from.inner(schema);
        part.entered.push(address);
        Target::Schema(part)
    }

    fn find(&self, reference: &str) -> Option<&'a Value> {
        if let Some(schema) = self.named.get(reference) {
            return Some(schema);
        }
        let (url, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if url.is_empty() {
            self.root
        } else {
            self.named.get(url).copied()?
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return base.pointer(&percent_decode(fragment)?);
        }
        None
    }
}

/// The draft of a schema: from its own `$schema`, otherwise that of the enclosing schema.
fn draft_of(schema: &Value, around: Draft) -> Draft {
    schema
        .get("$schema")
        .and_then(Value::as_str)
        .map_or(around, Draft::named)
}

fn collect_names<'a>(schema: &'a Value, named: &mut BTreeMap<String, &'a Value>) {
    match schema {
        Value::Object(map) => {
            for (key, inner) in map {
                match (key.as_str(), inner) {
                    ("$id" | "id", Value::String(id)) => {
                        named.entry(id.trim_end_matches('#').to_owned()).or_insert(schema);
                    }
                    ("$anchor", Value::String(anchor)) => {
                        named.entry(format!("#{anchor}")).or_insert(schema);
                    }
                    _ => {}
                }
            }
            map.values().for_each(|inner| collect_names(inner, named));
        }
        Value::Array(items) => items.iter().for_each(|inner| collect_names(inner, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Decodes `%25` and similar escapes in the fragment of a reference; none if they are malformed.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Combines the schema of a chart with those of its dependencies under their keys (name or alias), as Helm validates
/// them: the parent's schema applies to all values, each dependency's own schema to its key.
///
/// References resolve within the schema they were written in. Dependencies without a schema need not be listed.
pub fn with_dependencies(schema: &Value, dependencies: &BTreeMap<String, Value>) -> Value {
    let mut whole = schema.clone();
    let Value::Object(root) = &mut whole else {
        return whole;
    };
    for (key, dependency) in dependencies {
        let definition = format!("dependency {key}");
        let mut moved = dependency.clone();
        let place = format!("#/$defs/{}", definition.replace('~', "~0").replace('/', "~1"));
        move_references(&mut moved, &place);
        // Without a `$schema` of its own it is 2020-12, whatever the parent's draft.
        if let Value::Object(map) = &mut moved {
            let latest = Value::from("https://json-schema.org/draft/2020-12/schema");
            map.entry("$schema").or_insert(latest);
        }
        entry_object(root, "$defs").insert(definition, moved);
        let reference = serde_json::json!({ "$ref": place });
        let properties = entry_object(root, "properties");
        let both = match properties.remove(key) {
            Some(own) => serde_json::json!({ "allOf": [own, reference] }),
            None => reference,
        };
        properties.insert(key.clone(), both);
    }
    whole
}

/// The object under `key`, created if necessary.
fn entry_object<'m>(map: &'m mut Map<String, Value>, key: &str) -> &'m mut Map<String, Value> {
    let entry = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    match entry {
        Value::Object(inner) => inner,
        _ => unreachable!("made an object above"),
    }
}

fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                match (key.as_str(), &*inner) {
                    ("$ref", Value::String(reference)) if reference == "#" || reference.starts_with("#/") => {
                        *inner = Value::from(format!("{place}{}", &reference[1..]));
                    }
                    ("enum" | "const" | "default" | "examples", _) => {}
                    _ => move_references(inner, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| move_references(inner, place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_url_names_its_draft() {
        for (url, draft) in [
            ("http://json-schema.org/draft-04/schema#", Draft::V4),
            ("https://json-schema.org/draft-07/schema#", Draft::V7),
            ("http://json-schema.org/draft-06/schema", Draft::V6),
            ("https://json-schema.org/draft/2019-09/schema", Draft::V2019),
            ("https://json-schema.org/draft/2020-12/schema", Draft::V2020),
            ("http://json-schema.org/schema#", Draft::V2020),
            ("something else", Draft::V2020),
        ] {
            assert_eq!(Draft::named(url), draft, "{url}");
        }
    }

    #[test]
    fn references_lead_by_pointer_anchor_and_id() {
        let schema = json!({
            "$defs": { "a b": { "const": 1 }, "b": { "$anchor": "here", "const": 2 }, "c": { "$id": "other.json", "const": 3, "d": { "const": 4 } } }
        });
        let document = Document::new(&schema);
        let found = |reference: &str| match document.follow(reference, &document.root()) {
            Target::Schema(part) => part.schema.get("const").and_then(Value::as_i64),
            Target::Recursion(_) => Some(-1),
            Target::Remote => Some(-2),
            Target::Missing => None,
        };
        assert_eq!(found("#/$defs/a%20b"), Some(1));
        assert_eq!(found("#here"), Some(2));
        assert_eq!(found("other.json"), Some(3));
        assert_eq!(found("other.json#/d"), Some(4));
        assert_eq!(found("#"), Some(-1));
        assert_eq!(found("https://example.com/schema.json"), Some(-2));
        assert_eq!(found("#/$defs/none"), None);
    }
}
