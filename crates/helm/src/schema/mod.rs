//! Validates values against the schemas of a chart and its subcharts (Helm's `jsonschema.go`), with the messages of
//! the validator that Helm uses (github.com/santhosh-tekuri/jsonschema v6).
//!
//! Nothing is fetched: a reference to a file or to the web is an error; an unresolved `urn:` accepts everything, as
//! in Helm. Patterns are matched in linear time and have no look-around, as in Go.

use std::{fmt::Write, sync::OnceLock};

use gostd::quote;
use gotemplate::{string::Str, value::Map};
use jsonschema::{
    Draft, JsonType, PatternOptions, Retrieve, Uri, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

mod effort;
mod formats;
mod plain;
mod tree;

use self::plain::Plain;
pub use self::tree::{Error, Violation};
pub(crate) use self::tree::{validate, violations};

/// A chart's `values.schema.json`, compiled on first use.
#[derive(Debug)]
pub(crate) struct Schema {
    text: Str,
    plain: OnceLock<Option<Plain>>,
    compiled: OnceLock<Result<Validator, String>>,
}

impl Schema {
    pub(crate) fn new(text: Str) -> Self {
        Self {
            text,
            plain: OnceLock::new(),
            compiled: OnceLock::new(),
        }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// True if the values are valid as far as the fast check can tell; otherwise the validator must decide.
    fn quickly_accepts(&self, values: &Map) -> bool {
        let plain = self.plain.get_or_init(|| Plain::of(&self.text));
        plain.as_ref().is_some_and(|plain| plain.is_fit(&values.freeze()))
    }

    /// The violations found before `is_over`, which is checked between two violations.
    ///
    /// # Errors
    /// When the schema is invalid, or takes too much work; the text says which.
    fn errors<'v>(&'v self, values: &'v Value, is_over: &dyn Fn() -> bool) -> Outcome<'v> {
        let validator = self
            .compiled
            .get_or_init(|| compile(&self.text))
            .as_ref()
            .map_err(Clone::clone)?;
        let errors = || validator.iter_errors(values).take_while(|_| !is_over()).collect();
        effort::limited(errors).map_err(|exceeded| format!("{exceeded}\n"))
    }
}

impl Clone for Schema {
    fn clone(&self) -> Self {
        Self::new(self.text.clone())
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The result for one chart: its violations, or why it could not be validated.
type Outcome<'v> = Result<Vec<ValidationError<'v>>, String>;

const LOCATION: &str = "file:///values.schema.json";

fn compile(text: &[u8]) -> Result<Validator, String> {
    let mut schema: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut options = jsonschema::options()
        .with_retriever(NoRetrieval)
        .with_base_uri(LOCATION);
    options = effort::known(options).with_pattern_options(PatternOptions::regex());
    for (name, check) in formats::ALL {
        options = options.with_format(name, move |text| check(text).is_ok());
    }
    if names_newest_draft(&schema) {
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
        }
        options = options.with_draft(Draft::Draft202012);
    }
    effort::counted(&mut schema, Draft::default());
    options.build(&schema).map_err(|error| {
        format!(
            "'{LOCATION}#' is not valid against metaschema: jsonschema validation failed with '{}'{}",
            schema
                .get("$schema")
                .and_then(Value::as_str)
                .unwrap_or("https://json-schema.org/draft/2020-12/schema"),
            lines_of(&[error], 1)
        )
    })
}

/// Whether there is no `$schema`, or it is the address that always means the newest draft.
fn names_newest_draft(schema: &Value) -> bool {
    let Some(address) = schema.get("$schema").and_then(Value::as_str) else {
        return true;
    };
    let address = address.trim_end_matches('#');
    matches!(
        address,
        "http://json-schema.org/schema" | "https://json-schema.org/schema"
    )
}

/// Rejects every reference that leaves the schema.
struct NoRetrieval;

impl Retrieve for NoRetrieval {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        if uri.scheme().as_str() == "urn" {
            return Ok(Value::Bool(true));
        }
        Err(format!("{uri} is not fetched while a chart is rendered").into())
    }
}

fn messages(errors: &[ValidationError<'_>], indent: usize) -> String {
    let lines = lines_of(errors, indent);
    let lines = lines.strip_prefix('\n').unwrap_or(&lines);
    format!("{lines}\n")
}

/// Each message on its own line, preceded by a line break.
fn lines_of(errors: &[ValidationError<'_>], indent: usize) -> String {
    let mut lines = String::new();
    let mut rest = errors;
    while let Some(error) = rest.first() {
        // Missing properties of one object are reported one by one here, but on one line in Helm.
        let together = rest
            .iter()
            .take_while(|other| {
                missing(error).is_some() && missing(other).is_some() && at(other) == at(error)
            })
            .count();
        let (group, remaining) = rest.split_at(together.max(1));
        rest = remaining;
        let _ = write!(
            lines,
            "\n{}- at {}: {}",
            "  ".repeat(indent),
            quoted(&at(error)),
            message(group)
        );
        for cause in causes(error) {
            lines.push_str(&lines_of(cause, indent + 1));
        }
    }
    lines
}

fn at(error: &ValidationError<'_>) -> String {
    error.instance_path().to_string()
}

fn missing<'e>(error: &'e ValidationError<'_>) -> Option<&'e str> {
    match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        _ => None,
    }
}

fn causes<'e>(error: &'e ValidationError<'_>) -> impl Iterator<Item = &'e [ValidationError<'static>]> {
    let context = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            &context[..]
        }
        _ => &[],
    };
    context.iter().map(Vec::as_slice)
}

fn message(group: &[ValidationError<'_>]) -> String {
    let [error, ..] = group else { return String::new() };
    let instance = error.instance();
    let count = match &**instance {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => text.chars().count(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    match error.kind() {
        ValidationErrorKind::Required { .. } => match group {
            [_] => format!("missing property {}", quoted(missing(error).unwrap_or_default())),
            _ => format!(
                "missing properties {}",
                all_quoted(group.iter().filter_map(missing))
            ),
        },
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!(
                "additional properties {} not allowed",
                all_quoted(unexpected.iter().map(String::as_str))
            )
        }
        ValidationErrorKind::AdditionalItems { limit } => {
            format!(
                "last {} additionalItem(s) not allowed",
                count.saturating_sub(*limit)
            )
        }
        ValidationErrorKind::AnyOf { .. } => "'anyOf' failed".to_owned(),
        ValidationErrorKind::OneOfNotValid { .. } => "'oneOf' failed, none matched".to_owned(),
        ValidationErrorKind::OneOfMultipleValid { context } => {
            let matched: Vec<String> = context
                .iter()
                .enumerate()
                .filter(|(_, errors)| errors.is_empty())
                .take(2)
                .map(|(i, _)| i.to_string())
                .collect();
            format!("'oneOf' failed, subschemas {} matched", matched.join(", "))
        }
        ValidationErrorKind::Not { .. } => "'not' failed".to_owned(),
        ValidationErrorKind::FalseSchema => "false schema".to_owned(),
        ValidationErrorKind::Type { kind } => {
            format!(
                "got {}, want {}",
                JsonType::from(&**instance)
                    .to_string()
                    .replace("integer", "number"),
                wanted(kind)
            )
        }
        ValidationErrorKind::Enum { options } => one_of(options.as_array().map_or(&[], Vec::as_slice)),
        ValidationErrorKind::Constant { expected_value } => match &**expected_value {
            Value::Array(_) | Value::Object(_) => "'const' failed".to_owned(),
            value => format!("value must be {}", shown(value)),
        },
        ValidationErrorKind::Format { format } => {
            let check = formats::ALL.iter().find(|(name, _)| name == format);
            let why = check
                .and_then(|(_, check)| check(instance.as_str()?).err())
                .unwrap_or_default();
            format!("{} is not valid {format}: {why}", shown(instance))
        }
        ValidationErrorKind::MinProperties { limit } => format!("minProperties: got {count}, want {limit}"),
        ValidationErrorKind::MaxProperties { limit } => format!("maxProperties: got {count}, want {limit}"),
        ValidationErrorKind::MinItems { limit } => format!("minItems: got {count}, want {limit}"),
        ValidationErrorKind::MaxItems { limit } => format!("maxItems: got {count}, want {limit}"),
        ValidationErrorKind::MinLength { limit } => format!("minLength: got {count}, want {limit}"),
        ValidationErrorKind::MaxLength { limit } => format!("maxLength: got {count}, want {limit}"),
        ValidationErrorKind::Minimum { limit } => bound("minimum", instance, limit),
        ValidationErrorKind::Maximum { limit } => bound("maximum", instance, limit),
        ValidationErrorKind::ExclusiveMinimum { limit } => bound("exclusiveMinimum", instance, limit),
        ValidationErrorKind::ExclusiveMaximum { limit } => bound("exclusiveMaximum", instance, limit),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            bound("multipleOf", instance, &Value::from(*multiple_of))
        }
        ValidationErrorKind::Pattern { pattern } => {
            format!("{} does not match pattern {}", shown(instance), quoted(pattern))
        }
        ValidationErrorKind::Contains => "no items match contains schema".to_owned(),
        ValidationErrorKind::PropertyNames { error } => {
            format!(
                "invalid propertyName {}",
                error.instance().as_str().map(quoted).unwrap_or_default()
            )
        }
        // The remaining errors have no counterpart in Helm's validator, or one whose details are not available here.
        _ => error.to_string(),
    }
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => kinds
            .iter()
            .map(|kind| kind.to_string())
            .collect::<Vec<_>>()
            .join(" or "),
    }
}

fn one_of(options: &[Value]) -> String {
    match options {
        options
            if options
                .iter()
                .any(|option| option.is_array() || option.is_object()) =>
        {
            "'enum' failed".to_owned()
        }
        [only] => format!("value must be {}", shown(only)),
        options => format!(
            "value must be one of {}",
            options.iter().map(shown).collect::<Vec<_>>().join(", ")
        ),
    }
}

fn bound(keyword: &str, found: &Value, limit: &Value) -> String {
    format!("{keyword}: got {}, want {}", shown(found), shown(limit))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => "value".to_owned(),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
    }
}

/// Go's `%q` between single quotes.
fn quoted(text: &str) -> String {
    let quoted = String::from_utf8_lossy(&quote::quote(text.as_bytes())).into_owned();
    let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    format!("'{}'", inner.replace("\\\"", "\"").replace('\'', "\\'"))
}

fn all_quoted<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    texts.map(quoted).collect::<Vec<_>>().join(", ")
}
