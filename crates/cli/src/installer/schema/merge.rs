//! Makes the schema of a chart's values fit into another document: it must not refer to anything outside itself, and
//! must not require anything, because the chart has defaults for what a user omits.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

/// The most schemas that one may consist of after its references are resolved.
const MOST_PARTS: usize = 50_000;

/// The deepest nesting of schemas.
const DEEPEST: usize = 200;

/// Keywords that only make sense at the top of a document.
const OF_DOCUMENTS: [&str; 5] = ["$schema", "$id", "id", "title", "$comment"];

/// Keywords that contain schemas to refer to.
const STORES: [&str; 2] = ["$defs", "definitions"];

/// Keywords without an effect on validation.
const REMARKS: [&str; 7] = [
    "title",
    "description",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
];

/// A schema that fits into another document.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) schema: Value,
    /// What could not be translated, one sentence each.
    pub(super) remarks: Vec<String>,
}

/// Makes the schema of a chart fit below `componentValues`.
///
/// Drops `$schema` and `title` at the top, replaces local references by their targets, and removes every `required`
/// keyword (but not a property of that name). Constructs that only make sense with `required` are removed as well: a
/// `not` or `if` over requirements, and the "exactly one" of a `oneOf` over requirements.
///
/// Every `default` is removed, too: it would be written into each Installer, and pin a component to the defaults of an
/// older version of its chart.
///
/// A recursive reference becomes a schema that accepts anything.
///
/// # Errors
/// If the schema is invalid or too large.
pub(super) fn component(document: &Value, chart: &str, version: &str) -> Result<Merged> {
    let Some(top) = document.as_object() else {
        bail!("it is {document}, not an object");
    };
    let mut merger = Merger {
        document,
        ref_stands_alone: ref_stands_alone(top),
        entered: vec![String::new()],
        parts: 0,
        depth: 0,
        removed: 0,
        remarks: Vec::new(),
    };
    let mut schema = merger.schema(document)?;
    if let Some(fields) = schema.as_object_mut() {
        for keyword in OF_DOCUMENTS {
            fields.remove(keyword);
        }
        let description = format!("Values of chart {chart} {version}.");
        fields.insert("description".to_owned(), description.into());
    }
    let mut remarks = merger.remarks;
    remarks.dedup();
    Ok(Merged { schema, remarks })
}

/// True for drafts that ignore everything next to a `$ref`. Helm treats an unknown `$schema` as 2020-12.
fn ref_stands_alone(top: &Map<String, Value>) -> bool {
    let named = top.get("$schema").and_then(Value::as_str).unwrap_or_default();
    ["draft-04/schema", "draft-06/schema", "draft-07/schema"]
        .iter()
        .any(|draft| named.trim_end_matches('#').ends_with(draft))
}

struct Merger<'a> {
    document: &'a Value,
    ref_stands_alone: bool,
    /// The references that are being resolved, as JSON pointers.
    entered: Vec<String>,
    parts: usize,
    depth: usize,
    /// How many requirements were removed so far.
    removed: usize,
    remarks: Vec<String>,
}

impl Merger<'_> {
    fn schema(&mut self, schema: &Value) -> Result<Value> {
        let Some(fields) = schema.as_object() else {
            return Ok(schema.clone());
        };
        self.parts += 1;
        if self.parts > MOST_PARTS {
            bail!("it has more than {MOST_PARTS} parts once its references are followed");
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            bail!("it is deeper than {DEEPEST} schemas once its references are followed");
        }
        let made = match fields.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.referred(reference, fields),
            None => self.fields(fields),
        };
        self.depth -= 1;
        made
    }

    /// The target of a reference, combined with the keywords next to it.
    fn referred(&mut self, reference: &str, fields: &Map<String, Value>) -> Result<Value> {
        let target = self.target(reference)?;
        let beside = fields.iter().filter(|(keyword, _)| *keyword != "$ref");
        let beside: Map<String, Value> = beside
            .filter(|(keyword, _)| !STORES.contains(&keyword.as_str()))
            .map(|(keyword, value)| (keyword.clone(), value.clone()))
            .collect();
        if self.ref_stands_alone || beside.is_empty() {
            return Ok(target);
        }
        let Value::Object(mut beside) = self.fields(&beside)? else {
            return Ok(target);
        };
        match target {
            Value::Object(mut target) if beside.keys().all(|keyword| REMARKS.contains(&keyword.as_str())) => {
                target.extend(beside);
                Ok(Value::Object(target))
            }
            target => {
                let all = beside.entry("allOf").or_insert_with(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.push(target);
                }
                Ok(Value::Object(beside))
            }
        }
    }

    fn target(&mut self, reference: &str) -> Result<Value> {
        let document = self.document;
        let found = reference.strip_prefix('#').and_then(|pointer| {
            let pointer = decoded(pointer);
            Some((document.pointer(&pointer)?, pointer))
        });
        let Some((target, pointer)) = found else {
            self.remarks.push(format!(
                "reference {reference} points outside its values.schema.json; its target is not checked"
            ));
            return Ok(anything());
        };
        if self.entered.contains(&pointer) {
            self.remarks.push(format!(
                "reference {reference} is recursive; what is below it is not checked"
            ));
            return Ok(anything());
        }
        self.entered.push(pointer);
        let made = self.schema(target);
        self.entered.pop();
        made
    }

    fn fields(&mut self, fields: &Map<String, Value>) -> Result<Value> {
        let mut made = Map::new();
        for (keyword, value) in fields {
            let before = self.removed;
            let value = match keyword.as_str() {
                "required" | "dependentRequired"
                    if value.is_array() || value.is_object() || value.is_boolean() =>
                {
                    self.removed += 1;
                    continue;
                }
                "default" => continue,
                "$dynamicRef" | "$recursiveRef" => {
                    self.remarks.push(format!(
                        "{keyword} is not supported, and its target is not checked"
                    ));
                    continue;
                }
                keyword if STORES.contains(&keyword) => continue,
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies" => {
                    self.table(value)?
                }
                "not" | "if" => {
                    let inner = self.schema(value)?;
                    if self.removed > before {
                        continue;
                    }
                    inner
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.list(value)?,
                "items" if value.is_array() => self.list(value)?,
                "items"
                | "additionalItems"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "then"
                | "else"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.schema(value)?,
                _ => value.clone(),
            };
            let is_other = self.removed > before;
            alternatives(&mut made, keyword, value, is_other);
        }
        if fields.contains_key("if") && !made.contains_key("if") {
            made.remove("then");
            made.remove("else");
        }
        Ok(Value::Object(made))
    }

    fn table(&mut self, value: &Value) -> Result<Value> {
        let Some(table) = value.as_object() else {
            return Ok(value.clone());
        };
        let mut made = Map::new();
        for (name, schema) in table {
            // In `dependencies`, a list contains required properties.
            if schema.is_array() {
                self.removed += 1;
                continue;
            }
            made.insert(name.clone(), self.schema(schema)?);
        }
        Ok(Value::Object(made))
    }

    fn list(&mut self, value: &Value) -> Result<Value> {
        let Some(list) = value.as_array() else {
            return Ok(value.clone());
        };
        let made: Result<Vec<Value>> = list.iter().map(|schema| self.schema(schema)).collect();
        Ok(Value::Array(made?))
    }
}

/// Adds a keyword to a schema. After requirements were removed, several alternatives may match, or be empty.
fn alternatives(made: &mut Map<String, Value>, keyword: &str, value: Value, is_other: bool) {
    if !is_other || !matches!(keyword, "anyOf" | "oneOf") {
        if keyword == "allOf"
            && let (Some(Value::Array(all)), Value::Array(more)) = (made.get_mut("allOf"), &value)
        {
            all.extend(more.iter().cloned());
            return;
        }
        made.insert(keyword.to_owned(), value);
        return;
    }
    let takes_all = |schema: &Value| *schema == json!({}) || *schema == json!(true);
    if value.as_array().into_iter().flatten().any(takes_all) {
        return;
    }
    if keyword == "anyOf" {
        made.insert(keyword.to_owned(), value);
        return;
    }
    let all = made.entry("allOf").or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.push(json!({"anyOf": value}));
    }
}

/// A schema that accepts anything.
fn anything() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

/// Decodes a JSON pointer from the fragment of a URL.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        let hex = (byte == b'%')
            .then(|| more.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(hex.unwrap_or(byte));
        rest = if hex.is_some() { &more[2..] } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &Value, expected: &Value) -> Vec<String> {
        let merged = component(schema, "web", "1.2.3").unwrap();
        let mut expected = expected.clone();
        expected["description"] = "Values of chart web 1.2.3.".into();
        assert_eq!(merged.schema, expected, "{schema}");
        merged.remarks
    }

    #[test]
    fn every_requirement_and_default_goes_and_a_property_of_that_name_stays() {
        check(
            &json!({
                "$schema": "http://json-schema.org/draft-07/schema#", "title": "Web", "type": "object", "required": ["a"],
                "properties": {
                    "required": {"type": "boolean"},
                    "a": {"title": "A", "type": "object", "required": ["b"], "properties": {"b": {"enum": [{"required": ["x"]}]}}},
                    "l": {"items": {"required": ["n"]}, "examples": [{"required": 1}], "default": []},
                    "default": {"type": "string", "default": "x"},
                },
                "dependentRequired": {"a": ["b"]}, "dependencies": {"a": ["b"], "c": {"required": ["d"], "minProperties": 1}},
            }),
            &json!({
                "type": "object",
                "properties": {
                    "required": {"type": "boolean"},
                    "a": {"title": "A", "type": "object", "properties": {"b": {"enum": [{"required": ["x"]}]}}},
                    "l": {"items": {}, "examples": [{"required": 1}]},
                    "default": {"type": "string"},
                },
                "dependencies": {"c": {"minProperties": 1}},
            }),
        );
    }

    #[test]
    fn logic_over_requirements_goes_with_them() {
        check(
            &json!({
                "not": {"required": ["a", "b"]},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                "properties": {
                    "c": {"oneOf": [{"required": ["x"], "minProperties": 1}, {"type": "string"}], "allOf": [{"type": ["string", "object"]}]},
                    "d": {"if": {"required": ["x"]}, "then": {"type": "object"}, "else": {"type": "null"}},
                    "e": {"not": {"type": "string"}, "oneOf": [{"type": "object"}, {"type": "array"}]},
                    "f": {"anyOf": [{"required": ["x"]}, {"type": "string"}]},
                },
            }),
            &json!({
                "properties": {
                    "c": {"allOf": [{"type": ["string", "object"]}, {"anyOf": [{"minProperties": 1}, {"type": "string"}]}]},
                    "d": {},
                    "e": {"not": {"type": "string"}, "oneOf": [{"type": "object"}, {"type": "array"}]},
                    "f": {},
                },
            }),
        );
    }

    #[test]
    fn references_within_the_document_are_followed() {
        let draft_7 = "http://json-schema.org/draft-07/schema#";
        let definitions =
            json!({"port": {"type": "integer", "required": ["x"]}, "a/b c": {"$ref": "#/definitions/port"}});
        check(
            &json!({
                "$schema": draft_7, "definitions": definitions,
                "properties": {
                    "p": {"$ref": "#/definitions/port", "maximum": 1},
                    "q": {"$ref": "#/definitions/a~1b%20c"},
                    "r": {"$ref": "#/properties/p"},
                },
            }),
            &json!({"properties": {"p": {"type": "integer"}, "q": {"type": "integer"}, "r": {"type": "integer"}}}),
        );
        check(
            &json!({
                "$defs": {"port": {"type": "integer"}},
                "properties": {
                    "p": {"$ref": "#/$defs/port", "maximum": 1},
                    "q": {"$ref": "#/$defs/port", "description": "Q"},
                },
            }),
            &json!({"properties": {
                "p": {"maximum": 1, "allOf": [{"type": "integer"}]},
                "q": {"type": "integer", "description": "Q"},
            }}),
        );
    }

    #[test]
    fn a_recursive_or_external_reference_accepts_anything() {
        let open = anything();
        let remarks = check(
            &json!({
                "$defs": {"tree": {"properties": {"left": {"$ref": "#/$defs/tree"}}}},
                "properties": {
                    "t": {"$ref": "#/$defs/tree"}, "all": {"$ref": "#"}, "far": {"$ref": "https://schemas.example/x.json"},
                    "gone": {"$ref": "#/$defs/gone"},
                },
            }),
            &json!({"properties": {"t": {"properties": {"left": open}}, "all": open, "far": open, "gone": open}}),
        );
        assert_eq!(remarks.len(), 4, "{remarks:?}");
    }

    #[test]
    fn a_schema_that_grows_beyond_measure_is_refused() {
        let mut definitions = Map::new();
        for level in 0..30 {
            let below = json!({"$ref": format!("#/$defs/{}", level + 1)});
            definitions.insert(level.to_string(), json!({"properties": {"a": below, "b": below}}));
        }
        definitions.insert("30".to_owned(), json!({}));
        let schema = json!({"$defs": definitions, "$ref": "#/$defs/0"});
        let error = component(&schema, "web", "1.2.3").unwrap_err();
        assert!(error.to_string().contains("more than 50000 parts"), "{error}");
        assert!(component(&json!(true), "web", "1.2.3").is_err());
    }
}
