//! Limits on the work of validating values against a schema.
//!
//! A schema can refer to itself so that validation never ends, or so deeply that it overflows the stack, and the
//! validator cannot be interrupted. All of that needs references, so each reference is routed through a custom
//! keyword, which counts and, past a limit, unwinds out of the validator.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::paths::Location;
use jsonschema::{Draft, Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value, json};

/// How many references a validation may follow. A hundred thousand values, each with a few references, take a quarter
/// of that.
const STEPS: u32 = 2_000_000;

/// How much of the stack a validation may use, in bytes: half of what a thread has by default.
const STACK: usize = 1 << 20;

/// Name of the keyword. No draft defines it.
const STEP: &str = "$step";

/// Where the definitions for routed references are put, in each schema with its own address. Each draft resolves
/// references from other documents in one of the two.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Exceeded {
    #[error(
        "the schema follows more than {STEPS} references to check these values: use fewer recursive references"
    )]
    Steps,
    #[error("the schema nests references too deeply to check these values: use fewer recursive references")]
    Depth,
}

/// What remains for a validation.
#[derive(Clone, Copy)]
struct Left {
    steps: u32,
    /// An address in the stack frame where the validation began.
    bottom: usize,
}

thread_local! {
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

/// Runs a validation on this thread within the limits.
///
/// # Errors
/// The limit that was exceeded.
pub(super) fn limited<T>(check: impl FnOnce() -> T) -> Result<T, Exceeded> {
    let begun = Left {
        steps: STEPS,
        bottom: here(),
    };
    let before = LEFT.replace(Some(begun));
    // The validator keeps no state between validations that could be left inconsistent.
    let checked = catch_unwind(AssertUnwindSafe(check));
    LEFT.set(before);
    checked.or_else(|cause| match cause.downcast::<Exceeded>() {
        Ok(exceeded) => Err(*exceeded),
        Err(panic) => resume_unwind(panic),
    })
}

/// Registers the keyword.
pub(super) fn known(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options.with_keyword(STEP, |_: &Map<String, Value>, _: &Value, _: Location| {
        Ok(Box::new(Step) as Box<dyn for<'i> Keyword<'i>>)
    })
}

struct Step;

impl<'i> Keyword<'i> for Step {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        step();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        step();
        true
    }
}

fn step() {
    let Some(mut left) = LEFT.get() else { return };
    let exceeded = match left.steps.checked_sub(1) {
        None => Exceeded::Steps,
        Some(_) if left.bottom.abs_diff(here()) > STACK => Exceeded::Depth,
        Some(steps) => {
            left.steps = steps;
            LEFT.set(Some(left));
            return;
        }
    };
    resume_unwind(Box::new(exceeded))
}

/// An address in the stack frame of the caller.
#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    std::ptr::from_ref(&local).addr()
}

/// Keywords whose values are not schemas, whatever they look like.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Keywords whose values map user-chosen names to schemas.
const NAMED: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Keywords that refer to a schema, in the drafts that define them.
const REFERENCES: [&str; 3] = ["$ref", "$recursiveRef", "$dynamicRef"];

/// Routes all references of a document of the draft through the keyword.
pub(super) fn counted(document: &mut Value, draft: Draft) {
    let draft = draft.detect(document);
    let mut leading = Leading::default();
    leading.schema(document, draft);
    leading.keep(document);
}

/// The definitions for the references of the enclosing schema with an address, as references are relative to that
/// address.
#[derive(Default)]
struct Leading {
    steps: Map<String, Value>,
    /// Number of definitions in the whole document. Their names are unique, so one that is looked up in the wrong
    /// schema is not found: a schema with such a reference is rejected, and never validated against another
    /// definition.
    count: usize,
}

impl Leading {
    /// Visits a value where a schema may be.
    fn schema(&mut self, value: &mut Value, draft: Draft) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.schema(item, draft)),
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    match value {
                        _ if DATA.contains(&name.as_str()) => {}
                        Value::Object(named) if NAMED.contains(&name.as_str()) => {
                            named.values_mut().for_each(|value| self.inner(value, draft));
                        }
                        Value::Array(items) => items.iter_mut().for_each(|item| self.inner(item, draft)),
                        value => self.inner(value, draft),
                    }
                }
                self.lead(fields, draft);
            }
            _ => {}
        }
    }

    /// Visits a nested schema, which may declare its own draft and address.
    fn inner(&mut self, value: &mut Value, draft: Draft) {
        let draft = draft.detect(value);
        let resource = draft.create_resource_ref(value);
        if resource.id().is_none_or(|address| address.starts_with('#')) {
            return self.schema(value, draft);
        }
        let around = std::mem::take(&mut self.steps);
        self.schema(value, draft);
        self.keep(value);
        self.steps = around;
    }

    /// Puts the definitions where the references to them are resolved.
    fn keep(&mut self, document: &mut Value) {
        let Value::Object(fields) = document else { return };
        if self.steps.is_empty() {
            return;
        }
        for place in DEFINITIONS {
            let definitions = fields.entry(place).or_insert_with(|| json!({}));
            if let Value::Object(definitions) = definitions {
                definitions.extend(self.steps.clone());
            }
        }
    }

    /// Routes the references of one schema through the keyword.
    fn lead(&mut self, fields: &mut Map<String, Value>, draft: Draft) {
        let known = REFERENCES.into_iter().filter(|name| draft.is_known_keyword(name));
        let references: Vec<Value> = known
            .filter_map(|name| {
                let is_text = fields.get(name).is_some_and(Value::is_string);
                let to = is_text.then(|| fields.remove(name)).flatten()?;
                Some(json!({name: to}))
            })
            .collect();
        if references.is_empty() {
            return;
        }
        let name = format!("{STEP}-{}", self.count);
        self.count += 1;
        fields.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
        let all = [vec![json!({STEP: true})], references].concat();
        self.steps.insert(name, json!({"allOf": all}));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;

    fn outcome(schema: &Value) -> Result<usize, String> {
        let schema = Schema::new(schema.to_string().into());
        let values = json!({});
        let outcome = schema.errors(&values, &|| false);
        outcome
            .map(|errors| errors.len())
            .map_err(|why| why.trim_end().to_owned())
    }

    /// A chain of `length` definitions, each of which refers to the next one `times` times.
    fn chain(length: usize, times: usize, place: &str) -> Value {
        let mut definitions = Map::new();
        for number in 0..length {
            let next = json!({"$ref": format!("#/{place}/a{}", number + 1)});
            definitions.insert(format!("a{number}"), json!({"anyOf": vec![next; times]}));
        }
        definitions.insert(format!("a{length}"), json!(false));
        json!({"$ref": format!("#/{place}/a0"), place: definitions})
    }

    #[test]
    fn a_check_that_takes_for_ever_ends() {
        assert_eq!(outcome(&chain(10, 2, "definitions")), Ok(1));
        let exceeded = Err(Exceeded::Steps.to_string());
        assert_eq!(outcome(&chain(60, 2, "definitions")), exceeded);
        assert_eq!(
            outcome(&chain(60, 2, "x-elsewhere")),
            exceeded,
            "where no schema is looked for"
        );
    }

    #[test]
    fn a_check_that_would_fill_the_stack_ends() {
        assert_eq!(
            outcome(&chain(5_000, 1, "definitions")),
            Err(Exceeded::Depth.to_string())
        );
    }

    #[test]
    fn references_that_lead_back_are_followed_once() {
        assert_eq!(outcome(&json!({"$ref": "#"})), Ok(0));
        assert_eq!(outcome(&json!({"allOf": [{"$ref": "#"}]})), Ok(0));
    }

    #[test]
    fn a_field_that_only_looks_like_a_reference_is_unchanged() {
        let mut data = json!({
            "const": {"$ref": "#"},
            "properties": {"$ref": {"type": "string"}, "const": {"$ref": "#/x"}},
            "$defs": {"a": {"$id": "https://example.org/a", "$ref": "b"}},
        });
        counted(&mut data, Draft::default());
        let step = |to: &str| json!({"allOf": [{"$step": true}, {"$ref": to}]});
        assert_eq!(
            data,
            json!({
                "const": {"$ref": "#"},
                "properties": {"$ref": {"type": "string"}, "const": {"$ref": "#/$defs/$step-1"}},
                "$defs": {
                    "a": {
                        "$id": "https://example.org/a", "$ref": "#/$defs/$step-0",
                        "$defs": {"$step-0": step("b")}, "definitions": {"$step-0": step("b")},
                    },
                    "$step-1": step("#/x"),
                },
                "definitions": {"$step-1": step("#/x")},
            })
        );
    }

    /// A keyword that a draft does not define is an ordinary field: not an address, and not a reference.
    #[test]
    fn each_draft_has_its_own_address_and_references() {
        let schema = |draft: &str, id: &str| {
            json!({
                "$schema": format!("http://json-schema.org/{draft}/schema#"),
                "definitions": {"text": {"type": "string"}, "number": {"type": "number"}},
                "properties": {
                    "text": {id: "https://example.org/text", "allOf": [{"$ref": "#/definitions/text"}]},
                    "number": {"$ref": "#/definitions/number"},
                    "last": {"$recursiveRef": "#", "type": "string"},
                },
            })
        };
        let wrong = |schema: &Value| {
            let schema = Schema::new(schema.to_string().into());
            let values = json!({"text": 1, "number": "one", "last": 1});
            let paths = |errors: Vec<ValidationError<'_>>| {
                let paths = errors.iter().map(|error| error.instance_path().to_string());
                let mut paths: Vec<_> = paths.collect();
                paths.sort();
                paths.join(" ")
            };
            schema.errors(&values, &|| false).map(paths)
        };
        for (draft, other) in [("draft-04", "$id"), ("draft-06", "id"), ("draft-07", "id")] {
            let all = Ok("/last /number /text".to_owned());
            assert_eq!(wrong(&schema(draft, other)), all, "{draft}");
            let own = if other == "id" { "$id" } else { "id" };
            let why = wrong(&schema(draft, own)).unwrap_err();
            assert!(why.contains("/definitions/text"), "{draft}: {why}");
        }
    }

    #[test]
    fn a_panic_of_a_check_is_no_limit() {
        let panicked = catch_unwind(|| limited(|| resume_unwind(Box::new("other"))).map(|(): ()| ()));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"other"));
    }
}
