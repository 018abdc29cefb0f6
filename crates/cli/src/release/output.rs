//! Prints records and lists in Helm's three formats.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use helm::release::{self, Release};
use serde::Serialize;
use serde_json::Value;

use super::args::Format;
use crate::report::out;

/// Prints `value` as JSON or YAML, or the text for people.
pub(crate) fn print(format: Format, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    match format {
        Format::Table => out(&text()),
        Format::Json => out(&json(
            &serde_json::to_string(value).context("could not write the result")?,
        )),
        Format::Yaml => yaml(&serde_json::to_value(value).context("could not write the result")?),
    }
}

/// Prints a record as JSON or YAML, or the text for people.
pub(crate) fn print_release(format: Format, release: &Release, text: impl FnOnce() -> String) -> Result<()> {
    let record = || release::to_json(release).context("could not write the record");
    match format {
        Format::Table => out(&text()),
        Format::Json => out(&json(&String::from_utf8_lossy(&record()?))),
        Format::Yaml => yaml(&serde_json::from_slice(&record()?).context("could not write the record")?),
    }
}

/// Prints values. All numbers in them are floats.
pub(crate) fn print_values(format: Format, title: &str, values: &Value) -> Result<()> {
    let whole = whole_numbers(values.clone());
    match format {
        Format::Table => {
            out(&format!("{title}\n"))?;
            yaml(&whole)
        }
        Format::Json => out(&json(&whole.to_string())),
        Format::Yaml => yaml(&whole),
    }
}

/// Values as YAML text.
pub(crate) fn values_text(values: &Value) -> Result<String> {
    yaml_text(&whole_numbers(values.clone()))
}

fn yaml(value: &Value) -> Result<()> {
    out(&yaml_text(value)?)
}

fn yaml_text(value: &Value) -> Result<String> {
    let text = helm::yaml::to_string(value).context("could not write YAML")?;
    Ok(format!("{}\n", text.trim_end_matches('\n')))
}

/// JSON the way Go's encoder prints it: in one line, escaped for HTML.
fn json(text: &str) -> String {
    escaped(text) + "\n"
}

/// JSON the way Go writes it, with the characters escaped that are special in HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c {
            // These occur only in strings, never in the syntax.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(safe, "\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Floats without a fraction become integers, which is how Go prints them.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(ref number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => Value::from(float as i64),
            _ => value,
        },
        Value::Array(items) => Value::Array(items.into_iter().map(whole_numbers).collect()),
        Value::Object(table) => {
            let entries = table.into_iter().map(|(key, value)| (key, whole_numbers(value)));
            Value::Object(entries.collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_as_go_prints_it() {
        let text = json!({"a": "<b> & c"}).to_string();
        assert_eq!(json(&text), "{\"a\":\"\\u003cb\\u003e \\u0026 c\"}\n");
    }

    #[test]
    fn whole_floats_are_printed_as_integers() {
        let values = json!({"a": 2.0, "b": [0.5, 3.0]});
        assert_eq!(whole_numbers(values), json!({"a": 2, "b": [0.5, 3]}));
    }
}
