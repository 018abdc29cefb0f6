//! Validates the values of a chart and of its subcharts, each against its own schema.

use std::fmt::Write;

use gotemplate::{json, value::Map, value::Value as GoValue};

use super::{Outcome, at, message, messages};
use crate::{chart::ResolvedChart, values::as_table};

/// The violations of all charts: each chart's name followed by its messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// One place where values violate the schema of a chart or subchart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the chart whose schema it is.
    pub chart: String,
    /// The position in the values of the outermost chart, as a JSON pointer.
    pub path: String,
    /// The reason, in the words of Helm's validator.
    pub reason: String,
    /// The reason without anything of the value, for people who may not read it.
    pub masked: String,
}

/// Validates the values of a chart, then those of its subcharts, each against its own schema.
///
/// # Errors
/// When values violate a schema, or a schema is invalid.
pub(crate) fn validate(chart: &ResolvedChart<'_>, values: &Map) -> Result<(), Error> {
    let mut text = String::new();
    visit(chart, values, "", &|| false, &mut |chart, _, outcome| {
        let messages = match outcome {
            Ok(errors) if errors.is_empty() => return,
            Ok(errors) => messages(&errors, 0),
            Err(why) => why,
        };
        let _ = write!(text, "{chart}:\n{messages}");
    });
    if text.is_empty() { Ok(()) } else { Err(Error(text)) }
}

/// All violations, in the order of [`validate`]; none if the time is over before all are found.
pub(crate) fn violations(
    chart: &ResolvedChart<'_>,
    values: &Map,
    is_over: &dyn Fn() -> bool,
) -> Option<Vec<Violation>> {
    let mut violations = Vec::new();
    visit(
        chart,
        values,
        "",
        is_over,
        &mut |chart, path, outcome| match outcome {
            Ok(errors) => violations.extend(errors.iter().map(|error| Violation {
                chart: chart.to_owned(),
                path: format!("{path}{}", at(error)),
                reason: message(std::slice::from_ref(error)),
                masked: error.masked_with("the value").to_string(),
            })),
            Err(why) => violations.push(Violation {
                chart: chart.to_owned(),
                path: path.to_owned(),
                reason: why.trim_end().to_owned(),
                masked: "the values cannot be checked".to_owned(),
            }),
        },
    );
    (!is_over()).then_some(violations)
}

/// Calls `seen` for each chart that has a schema, until the time is over, with its name, the position of its values,
/// and the result.
fn visit(
    chart: &ResolvedChart<'_>,
    values: &Map,
    path: &str,
    is_over: &dyn Fn() -> bool,
    seen: &mut dyn FnMut(&str, &str, Outcome<'_>),
) {
    if is_over() {
        return;
    }
    if let Some(schema) = chart.chart.schema_check() {
        if schema.quickly_accepts(values) {
            seen(chart.name(), path, Ok(Vec::new()));
        } else {
            // Whole floats become integers here, as the validator treats them.
            match json::to_json(&GoValue::Map(values.clone())) {
                Ok(values) => seen(chart.name(), path, schema.errors(&values, is_over)),
                Err(error) => seen(chart.name(), path, Err(error.to_string())),
            }
        }
    }
    for subchart in &chart.dependencies {
        let name = subchart.name();
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        match values.get(name) {
            None | Some(GoValue::Nil) => {}
            Some(given) => {
                if let Some(table) = as_table(&given) {
                    visit(subchart, table, &path, is_over, seen);
                } else {
                    let found = given.type_name();
                    let why = format!("invalid type for values: expected object (map), got {found}\n");
                    seen(name, &path, Err(why));
                }
            }
        }
    }
}
