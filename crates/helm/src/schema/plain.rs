//! A fast check of values against simple schemas, without the validator.
//!
//! Before the validator can be used, it parses the metaschemas of all drafts, checks the chart's schema against one of them and
//! compiles it. In a process that renders one chart this takes longer than rendering, and nearly always the values are valid. This
//! check interprets the schema directly. It only ever confirms that values are valid: in all other cases, and for schemas with
//! keywords that it does not know, the validator decides.

use std::collections::HashSet;

use gotemplate::frozen::{Frozen, FrozenMap};
use serde_json::{Map, Value};

use super::formats;

/// Maximum number of schema and value pairs that are checked.
const MOST_STEPS: u32 = 200_000;
/// Maximum nesting depth of schemas and values, references included.
const MOST_DEPTH: u32 = 100;
/// Whole numbers below this have an exact representation as float.
const MOST_EXACT: u64 = 1 << 53;

/// A schema with known keywords only.
#[derive(Debug)]
pub(super) struct Plain {
    document: Value,
    draft: Draft,
}

/// The supported drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draft {
    /// Draft 7, which ignores all keywords next to `$ref`.
    Seven,
    /// 2019-09 and 2020-12.
    Newer,
}

/// The validator must decide.
struct Uncertain;

type Certain<T> = Result<T, Uncertain>;

impl Plain {
    /// The schema, if it is valid and has only known keywords.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(text).ok()?;
        let draft = match document.get("$schema") {
            None => Draft::Newer,
            Some(address) => match address.as_str()?.trim_end_matches('#') {
                "http://json-schema.org/draft-07/schema" | "https://json-schema.org/draft-07/schema" => {
                    Draft::Seven
                }
                "http://json-schema.org/schema"
                | "https://json-schema.org/schema"
                | "https://json-schema.org/draft/2019-09/schema"
                | "https://json-schema.org/draft/2020-12/schema" => Draft::Newer,
                _ => return None,
            },
        };
        let mut grammar = Grammar::default();
        let is_plain = grammar.is_plain(&document, 0)
            && grammar.references.iter().all(|reference| {
                let target = target(&document, reference);
                target.is_some_and(|target| grammar.schemas.contains(&std::ptr::from_ref(target)))
            });
        is_plain.then_some(Self { document, draft })
    }

    /// True if the values are valid; false if they may be invalid.
    pub(super) fn is_fit(&self, values: &FrozenMap) -> bool {
        let mut comparison = Comparison {
            schema: self,
            steps: MOST_STEPS,
        };
        let fits = comparison.fits(&self.document, &Frozen::Map(values.clone()), 0);
        fits.unwrap_or_default()
    }
}

/// The target of a reference within the document.
fn target<'s>(document: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.contains('%') {
        return None;
    }
    document.pointer(pointer)
}

/// Checks that a document is a valid schema with known keywords only.
#[derive(Default)]
struct Grammar<'s> {
    /// The addresses of all schemas in the document.
    schemas: HashSet<*const Value>,
    references: Vec<&'s str>,
}

impl<'s> Grammar<'s> {
    fn is_plain(&mut self, schema: &'s Value, depth: u32) -> bool {
        self.schemas.insert(std::ptr::from_ref(schema));
        match schema {
            Value::Bool(_) => true,
            Value::Object(rules) if depth < MOST_DEPTH => rules
                .iter()
                .all(|(keyword, rule)| self.is_plain_keyword(keyword, rule, depth)),
            _ => false,
        }
    }

    fn is_plain_keyword(&mut self, keyword: &str, rule: &'s Value, depth: u32) -> bool {
        match keyword {
            "$schema" => depth == 0,
            "$id" => depth == 0 && rule.as_str().is_some_and(is_address),
            "title" | "description" | "$comment" | "format" => rule.is_string(),
            "default" | "const" => true,
            "examples" => rule.is_array(),
            "enum" => rule.as_array().is_some_and(|values| !values.is_empty()),
            "readOnly" | "writeOnly" | "deprecated" | "uniqueItems" => rule.is_boolean(),
            "type" => match rule {
                Value::Array(names) => !names.is_empty() && are_distinct(names) && names.iter().all(is_type),
                name => is_type(name),
            },
            "required" => rule
                .as_array()
                .is_some_and(|names| names.iter().all(Value::is_string) && are_distinct(names)),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => rule.is_number(),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                rule.is_u64()
            }
            "properties" | "definitions" | "$defs" => rule
                .as_object()
                .is_some_and(|schemas| schemas.values().all(|schema| self.is_plain(schema, depth + 1))),
            "additionalProperties" | "items" | "not" | "if" | "then" | "else" => {
                self.is_plain(rule, depth + 1)
            }
            "allOf" | "anyOf" | "oneOf" => rule.as_array().is_some_and(|schemas| {
                !schemas.is_empty() && schemas.iter().all(|schema| self.is_plain(schema, depth + 1))
            }),
            "$ref" => {
                self.references.extend(rule.as_str());
                rule.is_string()
            }
            _ => !UNUSUAL.contains(&keyword),
        }
    }
}

/// Keywords of any draft that are not supported here. Keywords that no draft has are ignored, as by the validator.
const UNUSUAL: [&str; 27] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$step",
    "$vocabulary",
    "additionalItems",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "divisibleBy",
    "extends",
    "id",
    "maxContains",
    "minContains",
    "multipleOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Whether it is a plain URL, which does not change what references within the document lead to.
fn is_address(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/');
    let path = id.strip_prefix("https://").or_else(|| id.strip_prefix("http://"));
    path.is_some_and(|path| {
        path.starts_with(|c: char| c.is_ascii_alphanumeric()) && path.bytes().all(is_plain)
    })
}

fn is_type(name: &Value) -> bool {
    matches!(
        name.as_str(),
        Some("null" | "boolean" | "object" | "array" | "number" | "string" | "integer")
    )
}

fn are_distinct(texts: &[Value]) -> bool {
    let mut seen = HashSet::new();
    texts.iter().all(|text| seen.insert(text.as_str()))
}

/// A check of one set of values.
struct Comparison<'s> {
    schema: &'s Plain,
    steps: u32,
}

impl<'s> Comparison<'s> {
    fn fits(&mut self, schema: &'s Value, value: &Frozen, depth: u32) -> Certain<bool> {
        self.steps = self.steps.checked_sub(1).ok_or(Uncertain)?;
        if depth > MOST_DEPTH {
            return Err(Uncertain);
        }
        let rules = match schema {
            Value::Bool(always) => return Ok(*always),
            Value::Object(rules) => rules,
            _ => return Err(Uncertain),
        };
        if let Some(reference) = rules.get("$ref").and_then(Value::as_str) {
            let target = target(&self.schema.document, reference).ok_or(Uncertain)?;
            let fits = self.fits(target, value, depth + 1)?;
            if !fits || self.schema.draft == Draft::Seven {
                return Ok(fits);
            }
        }
        for (keyword, rule) in rules {
            if !self.fits_keyword(keyword, rule, rules, value, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn fits_keyword(
        &mut self,
        keyword: &str,
        rule: &'s Value,
        rules: &'s Map<String, Value>,
        value: &Frozen,
        depth: u32,
    ) -> Certain<bool> {
        match keyword {
            "type" => match rule {
                Value::Array(names) => any(names, |name| has_type(value, name)),
                name => has_type(value, name),
            },
            "enum" => any(rule.as_array().ok_or(Uncertain)?, |listed| equal(listed, value)),
            "const" => equal(rule, value),
            "allOf" => self
                .count(rule, value, depth)
                .map(|(fitting, all)| fitting == all),
            "anyOf" => self.count(rule, value, depth).map(|(fitting, _)| fitting > 0),
            "oneOf" => self.count(rule, value, depth).map(|(fitting, _)| fitting == 1),
            "not" => self.fits(rule, value, depth + 1).map(|fits| !fits),
            "if" => {
                let branch = if self.fits(rule, value, depth + 1)? {
                    "then"
                } else {
                    "else"
                };
                rules
                    .get(branch)
                    .map_or(Ok(true), |branch| self.fits(branch, value, depth + 1))
            }
            _ => match value {
                Frozen::Map(map) => self.fits_object(keyword, rule, rules, map, depth),
                Frozen::List(items) => self.fits_array(keyword, rule, items, depth),
                Frozen::String(text) => {
                    let text = text.to_str().ok_or(Uncertain)?;
                    fits_string(keyword, rule, text)
                }
                number => fits_number(keyword, rule, number),
            },
        }
    }

    /// How many of the schemas accept the value, and how many there are.
    fn count(&mut self, schemas: &'s Value, value: &Frozen, depth: u32) -> Certain<(usize, usize)> {
        let schemas = schemas.as_array().ok_or(Uncertain)?;
        let mut fitting = 0;
        for schema in schemas {
            fitting += usize::from(self.fits(schema, value, depth + 1)?);
        }
        Ok((fitting, schemas.len()))
    }

    fn fits_object(
        &mut self,
        keyword: &str,
        rule: &'s Value,
        rules: &'s Map<String, Value>,
        map: &FrozenMap,
        depth: u32,
    ) -> Certain<bool> {
        let mut all = |schema_of: &dyn Fn(&str) -> Option<&'s Value>| {
            for (key, value) in map.entries() {
                let key = key.to_str().ok_or(Uncertain)?;
                if let Some(schema) = schema_of(key)
                    && !self.fits(schema, value, depth + 1)?
                {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match keyword {
            "properties" => all(&|key| rule.get(key)),
            "additionalProperties" => {
                let properties = rules.get("properties");
                all(&|key| {
                    let is_named = properties.is_some_and(|properties| properties.get(key).is_some());
                    (!is_named).then_some(rule)
                })
            }
            "required" => {
                let mut names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                Ok(names.all(|name| map.get(name).is_some()))
            }
            "minProperties" => Ok(rule.as_u64() <= Some(map.entries().len() as u64)),
            "maxProperties" => Ok(rule.as_u64() >= Some(map.entries().len() as u64)),
            _ => Ok(true),
        }
    }

    fn fits_array(&mut self, keyword: &str, rule: &'s Value, items: &[Frozen], depth: u32) -> Certain<bool> {
        match keyword {
            "items" => {
                for item in items {
                    if !self.fits(rule, item, depth + 1)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            "minItems" => Ok(rule.as_u64() <= Some(items.len() as u64)),
            "maxItems" => Ok(rule.as_u64() >= Some(items.len() as u64)),
            "uniqueItems" if items.len() > 1 && rule.as_bool() == Some(true) => Err(Uncertain),
            _ => Ok(true),
        }
    }
}

fn fits_string(keyword: &str, rule: &Value, text: &str) -> Certain<bool> {
    let length = || Some(text.chars().count() as u64);
    match keyword {
        "minLength" => Ok(rule.as_u64() <= length()),
        "maxLength" => Ok(rule.as_u64() >= length()),
        "format" => {
            let format = formats::ALL.iter().find(|(name, _)| rule == name);
            // Whether a wrong format is an error depends on the draft.
            match format {
                Some((_, check)) => check(text).map(|()| true).map_err(|_| Uncertain),
                None => Err(Uncertain),
            }
        }
        _ => Ok(true),
    }
}

fn fits_number(keyword: &str, rule: &Value, number: &Frozen) -> Certain<bool> {
    let is_fit: fn(f64, f64) -> bool = match keyword {
        "minimum" => |limit, number| number >= limit,
        "maximum" => |limit, number| number <= limit,
        "exclusiveMinimum" => |limit, number| number > limit,
        "exclusiveMaximum" => |limit, number| number < limit,
        _ => return Ok(true),
    };
    match number {
        Frozen::Int64(_) | Frozen::Uint64(_) | Frozen::Float64(_) => {
            Ok(is_fit(exact(rule)?, exact_of(number)?))
        }
        _ => Ok(true),
    }
}

fn any<'v>(values: &'v [Value], mut fits: impl FnMut(&'v Value) -> Certain<bool>) -> Certain<bool> {
    for value in values {
        if fits(value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_type(value: &Frozen, name: &Value) -> Certain<bool> {
    let name = name.as_str().ok_or(Uncertain)?;
    Ok(match value {
        Frozen::Nil => name == "null",
        Frozen::Bool(_) => name == "boolean",
        Frozen::String(_) => name == "string",
        Frozen::List(_) => name == "array",
        Frozen::Map(_) => name == "object",
        Frozen::Int64(_) | Frozen::Uint64(_) | Frozen::Float64(_) => {
            name == "number" || (name == "integer" && exact_of(value)?.fract() == 0.0)
        }
    })
}

/// Equality of JSON, in which `1` is `1.0`.
fn equal(listed: &Value, value: &Frozen) -> Certain<bool> {
    Ok(match (listed, value) {
        (Value::Null, Frozen::Nil) => true,
        (Value::Bool(listed), Frozen::Bool(value)) => listed == value,
        (Value::String(listed), Frozen::String(value)) => *value == **listed,
        #[expect(clippy::float_cmp, reason = "both are exact")]
        (Value::Number(_), Frozen::Int64(_) | Frozen::Uint64(_) | Frozen::Float64(_)) => {
            exact(listed)? == exact_of(value)?
        }
        (Value::Array(_), Frozen::List(_)) | (Value::Object(_), Frozen::Map(_)) => return Err(Uncertain),
        _ => false,
    })
}

/// A number of the schema, if it can be compared exactly.
fn exact(number: &Value) -> Certain<f64> {
    number
        .as_f64()
        .filter(|number| is_exact(*number))
        .ok_or(Uncertain)
}

/// The same for a number of the values.
fn exact_of(value: &Frozen) -> Certain<f64> {
    let number = match value {
        Frozen::Int64(number) => *number as f64,
        Frozen::Uint64(number) => *number as f64,
        Frozen::Float64(number) => *number,
        _ => return Err(Uncertain),
    };
    if is_exact(number) {
        Ok(number)
    } else {
        Err(Uncertain)
    }
}

fn is_exact(number: f64) -> bool {
    number.abs() < MOST_EXACT as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::values;

    fn is_fit(schema: &Value, values: &Value) -> bool {
        let plain = Plain::of(schema.to_string().as_bytes());
        let values = values::freeze(values.as_object().unwrap());
        plain.is_some_and(|plain| plain.is_fit(&values))
    }

    #[test]
    fn valid_values_are_told_from_invalid_ones() {
        let schema = json!({
            "$schema": "http://json-schema.org/schema#",
            "title": "values", "form": true,
            "type": "object",
            "required": ["image"],
            "properties": {
                "image": { "type": "string", "minLength": 1, "format": "uri-reference" },
                "replicas": { "type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 10 },
                "kind": { "enum": ["a", 1, null] },
                "ports": { "type": "array", "items": { "$ref": "#/$defs/port" }, "maxItems": 2 },
                "size": { "oneOf": [{ "type": "number" }, { "const": "all" }] },
            },
            "additionalProperties": { "not": { "type": "boolean" } },
            "if": { "required": ["kind"] }, "then": { "required": ["replicas"] },
            "$defs": { "port": { "type": "object", "additionalProperties": false, "properties": { "port": { "type": "integer" } } } },
        });
        for values in [
            json!({"image": "x"}),
            json!({"image": "x", "replicas": 3.0, "kind": 1.0}),
            json!({"image": "x", "replicas": null, "kind": null, "other": "text"}),
            json!({"image": "x", "ports": [{"port": 80}, {}], "size": 1.5}),
            json!({"image": "x", "size": "all"}),
        ] {
            assert!(is_fit(&schema, &values), "{values}");
        }
        for values in [
            json!({}),
            json!({"image": ""}),
            json!({"image": 1}),
            json!({"image": ":"}),
            json!({"image": "x", "replicas": 1.5}),
            json!({"image": "x", "replicas": 10}),
            json!({"image": "x", "replicas": -1}),
            json!({"image": "x", "replicas": 1e17}),
            json!({"image": "x", "kind": "b"}),
            json!({"image": "x", "kind": "a"}),
            json!({"image": "x", "ports": [{"port": "80"}]}),
            json!({"image": "x", "ports": [{"other": 1}]}),
            json!({"image": "x", "ports": [{}, {}, {}]}),
            json!({"image": "x", "size": "some"}),
            json!({"image": "x", "other": true}),
        ] {
            assert!(!is_fit(&schema, &values), "{values}");
        }
    }

    #[test]
    fn draft_7_ignores_keywords_next_to_a_reference() {
        let schema = |address: &str| {
            json!({
                "$schema": address,
                "properties": { "a": { "$ref": "#/definitions/any", "type": "string" } },
                "definitions": { "any": {} },
            })
        };
        assert!(is_fit(
            &schema("http://json-schema.org/draft-07/schema#"),
            &json!({"a": 1})
        ));
        assert!(!is_fit(
            &schema("http://json-schema.org/schema#"),
            &json!({"a": 1})
        ));
    }

    #[test]
    fn invalid_and_unusual_schemas_are_left_to_the_validator() {
        for schema in [
            json!([]),
            json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
            json!({"$schema": 1}),
            json!({"properties": {"a": {"$schema": "http://json-schema.org/schema#"}}}),
            json!({"type": "text"}),
            json!({"type": []}),
            json!({"type": ["null", "null"]}),
            json!({"required": ["a", "a"]}),
            json!({"required": "a"}),
            json!({"properties": []}),
            json!({"properties": {"a": 1}}),
            json!({"items": [{}]}),
            json!({"minLength": -1}),
            json!({"minLength": 1.5}),
            json!({"anyOf": []}),
            json!({"enum": []}),
            json!({"title": 1}),
            json!({"pattern": "a"}),
            json!({"$id": "#schema"}),
            json!({"properties": {"a": {"$id": "https://example.com/schema"}}}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$ref": "#/x-other", "x-other": {"type": 1}}),
            json!({"$ref": "https://example.com/schema"}),
            json!({"exclusiveMinimum": true}),
        ] {
            assert!(!is_fit(&schema, &json!({})), "{schema}");
        }
    }

    #[test]
    fn endless_references_are_left_to_the_validator() {
        assert!(!is_fit(&json!({"$ref": "#"}), &json!({})));
        let tree = json!({"additionalProperties": {"$ref": "#"}});
        assert!(is_fit(&tree, &json!({"a": {"b": {"c": {}}}})));
    }
}
