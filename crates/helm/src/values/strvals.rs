//! The grammar of `--set` and its relatives (Helm's `pkg/strvals`).
//!
//! `a.b=v`, `a[0].b=v`, `a={x,y}`, assignments separated by commas, `\` as escape character. Each assignment is
//! applied to the result of the earlier ones.

use serde_json::{Map, Value};

/// Maximum nesting of a name.
pub const MAX_NESTING: usize = 30;

/// The largest index into a list.
pub const MAX_INDEX: i64 = 65536;

/// Why an assignment was refused, in Helm's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// `--set`: booleans, `null` and decimal integers are recognised, everything else is a string.
///
/// # Errors
/// When the text is not an assignment or does not fit the existing values.
pub fn set(text: &str, into: &mut Map<String, Value>) -> Result<(), Error> {
    Parser::new(text, Mode::Typed).run(into)
}

/// `--set-string`: every value is a string.
///
/// # Errors
/// As for [`set`].
pub fn set_string(text: &str, into: &mut Map<String, Value>) -> Result<(), Error> {
    Parser::new(text, Mode::Text).run(into)
}

/// `--set-json` in its form `key=json,key=json`; numbers become floats, an empty value is null.
///
/// # Errors
/// As for [`set`], and when a value is not JSON.
pub fn set_json(text: &str, into: &mut Map<String, Value>) -> Result<(), Error> {
    Parser::new(text, Mode::Json).run(into)
}

/// `--set-file`: every value is a path, and is replaced by what `read` returns for it.
///
/// # Errors
/// As for [`set`], and when `read` fails.
pub fn set_file(
    text: &str,
    into: &mut Map<String, Value>,
    mut read: impl FnMut(&str) -> Result<String, String>,
) -> Result<(), Error> {
    Parser::new(text, Mode::File(&mut read)).run(into)
}

/// `--set-literal`: one assignment whose value is the rest of the text, unchanged.
///
/// # Errors
/// As for [`set`].
pub fn set_literal(text: &str, into: &mut Map<String, Value>) -> Result<(), Error> {
    Parser::new(text, Mode::Literal).run(into)
}

enum Mode<'r> {
    Typed,
    Text,
    Json,
    File(&'r mut dyn FnMut(&str) -> Result<String, String>),
    Literal,
}

/// Why parsing stopped. The end of the text is an error that the outermost loop ignores, wherever it occurred: so
/// `a[0` is accepted and sets nothing.
enum Stop {
    End,
    Failed(String),
}

impl Stop {
    fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

struct Parser<'t, 'r> {
    rest: &'t str,
    mode: Mode<'r>,
}

impl<'t, 'r> Parser<'t, 'r> {
    fn new(text: &'t str, mode: Mode<'r>) -> Self {
        Self { rest: text, mode }
    }

    fn run(mut self, into: &mut Map<String, Value>) -> Result<(), Error> {
        loop {
            match self.key(into, 0) {
                Ok(()) => {}
                Err(Stop::End) => return Ok(()),
                Err(Stop::Failed(why)) => return Err(Error(why)),
            }
        }
    }

    fn read(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    /// Reads up to one of the stops, which is consumed; the second value is `None` at the end of the text.
    fn read_until(&mut self, stops: &[char]) -> (String, Option<char>) {
        let mut text = String::new();
        while let Some(next) = self.read() {
            if stops.contains(&next) {
                return (text, Some(next));
            }
            if next == '\\' && !matches!(self.mode, Mode::Literal) {
                match self.read() {
                    Some(escaped) => text.push(escaped),
                    None => break,
                }
            } else {
                text.push(next);
            }
        }
        (text, None)
    }

    fn key(&mut self, data: &mut Map<String, Value>, nesting: usize) -> Result<(), Stop> {
        let stops: &[char] = match self.mode {
            Mode::Literal => &['=', '[', '.'],
            _ => &['=', '[', ',', '.'],
        };
        let (key, last) = self.read_until(stops);
        match last {
            None if key.is_empty() => Err(Stop::End),
            None => Err(Stop::failed(format!("key {key:?} has no value"))),
            Some('[') => self.indexed_key(data, &key, nesting),
            Some('=') => self.assign(data, &key),
            Some(',') => {
                insert(data, &key, Value::from(""));
                Err(Stop::failed(format!(
                    "key {key:?} has no value (cannot end with ,)"
                )))
            }
            Some(_) => self.nested_key(data, key, nesting + 1),
        }
    }

    fn indexed_key(&mut self, data: &mut Map<String, Value>, key: &str, nesting: usize) -> Result<(), Stop> {
        let index = self.index()?;
        let mut list = match data.get_mut(key) {
            None => Vec::new(),
            Some(Value::Array(list)) => std::mem::take(list),
            Some(other) => return Err(not_a("[]interface {}", other)),
        };
        let outcome = self.list_item(&mut list, index, nesting);
        insert(data, key, Value::Array(list));
        outcome
    }

    fn nested_key(&mut self, data: &mut Map<String, Value>, key: String, nesting: usize) -> Result<(), Stop> {
        if nesting > MAX_NESTING {
            return Err(Stop::failed(format!(
                "value name nested level is greater than maximum supported nested level of {MAX_NESTING}"
            )));
        }
        let (mut inner, was_there) = match data.get_mut(&key) {
            None => (Map::new(), false),
            Some(Value::Object(inner)) => (std::mem::take(inner), true),
            Some(other) => return Err(not_a("map[string]interface {}", other)),
        };
        let outcome = self.key(&mut inner, nesting);
        if outcome.is_ok() && inner.is_empty() {
            return Err(Stop::failed(format!("key map {key:?} has no value")));
        }
        if was_there {
            data.insert(key, Value::Object(inner));
        } else if !inner.is_empty() {
            insert(data, &key, Value::Object(inner));
        }
        outcome
    }

    fn assign(&mut self, data: &mut Map<String, Value>, key: &str) -> Result<(), Stop> {
        match self.mode {
            Mode::Json => {
                let value = self.json_value()?;
                insert(data, key, value.unwrap_or_default());
                Ok(())
            }
            Mode::Literal => {
                let (value, _) = self.read_until(&[]);
                insert(data, key, Value::from(value));
                Ok(())
            }
            Mode::Typed | Mode::Text | Mode::File(_) => match self.value() {
                Ok(value) => {
                    insert(data, key, value);
                    Ok(())
                }
                Err(Stop::End) => {
                    insert(data, key, Value::from(""));
                    Err(Stop::End)
                }
                Err(failed) => Err(failed),
            },
        }
    }

    fn index(&mut self) -> Result<i64, Stop> {
        let (text, last) = self.read_until(&[']']);
        if last.is_none() {
            return Err(Stop::End);
        }
        let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(Stop::failed(format!(
                "error parsing index: strconv.Atoi: parsing {text:?}: invalid syntax"
            )));
        }
        text.parse().map_err(|_| {
            Stop::failed(format!(
                "error parsing index: strconv.Atoi: parsing {text:?}: value out of range"
            ))
        })
    }

    /// Reads what follows an index and writes it into the list.
    fn list_item(&mut self, list: &mut Vec<Value>, index: i64, nesting: usize) -> Result<(), Stop> {
        if index < 0 {
            return Err(Stop::failed(format!("negative {index} index not allowed")));
        }
        let (surplus, stop) = self.read_until(&['[', '.', '=']);
        if !surplus.is_empty() {
            return Err(Stop::failed(format!(
                "unexpected data at end of array index: {}",
                quoted_runes(&surplus)
            )));
        }
        match stop {
            None => Err(Stop::End),
            Some('=') => self.assign_item(list, index),
            Some('[') => self.nested_list(list, index, nesting),
            Some(_) => self.nested_object(list, index, nesting),
        }
    }

    fn assign_item(&mut self, list: &mut Vec<Value>, index: i64) -> Result<(), Stop> {
        let value = match self.mode {
            Mode::Json => self.json_value()?.unwrap_or_default(),
            Mode::Literal => Value::from(self.read_until(&[]).0),
            Mode::Typed | Mode::Text | Mode::File(_) => match self.value() {
                Err(Stop::End) => Value::from(""),
                value => value?,
            },
        };
        set_index(list, index, value)
    }

    fn nested_list(&mut self, list: &mut Vec<Value>, index: i64, nesting: usize) -> Result<(), Stop> {
        let next = self.index()?;
        let mut inner = match at(list, index) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(inner)) => std::mem::take(inner),
            Some(other) => return Err(not_a("[]interface {}", other)),
        };
        self.list_item(&mut inner, next, nesting)?;
        set_index(list, index, Value::Array(inner))
    }

    fn nested_object(&mut self, list: &mut Vec<Value>, index: i64, nesting: usize) -> Result<(), Stop> {
        // A value that is not a table is replaced by one. An existing table is changed in place, so it is kept when
        // the text ends here; a new table is lost then, as in Helm.
        if let Some(present) = at(list, index) {
            if !present.is_object() {
                *present = Value::Object(Map::new());
            }
            let Value::Object(inner) = present else {
                return Ok(());
            };
            return self.key(inner, nesting);
        }
        let mut inner = Map::new();
        self.key(&mut inner, nesting)?;
        set_index(list, index, Value::Object(inner))
    }

    /// Reads a list in braces or a single value; `Stop::End` if nothing is left.
    fn value(&mut self) -> Result<Value, Stop> {
        match self.rest.chars().next() {
            None => Err(Stop::End),
            Some('{') => {
                self.read();
                self.list()
            }
            Some(_) => {
                let (text, _) = self.read_until(&[',']);
                self.convert(&text)
            }
        }
    }

    fn list(&mut self) -> Result<Value, Stop> {
        let mut items = Vec::new();
        loop {
            let (text, stop) = self.read_until(&[',', '}']);
            match stop {
                None => return Err(Stop::failed("list must terminate with '}'")),
                Some('}') => {
                    self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                    items.push(self.convert(&text)?);
                    return Ok(Value::Array(items));
                }
                Some(_) => items.push(self.convert(&text)?),
            }
        }
    }

    fn convert(&mut self, text: &str) -> Result<Value, Stop> {
        match &mut self.mode {
            Mode::Typed => Ok(typed(text)),
            Mode::File(read) => read(text).map(Value::from).map_err(Stop::Failed),
            Mode::Text | Mode::Json | Mode::Literal => Ok(Value::from(text)),
        }
    }

    /// Reads one JSON value and the comma after it; `None` if there is none.
    fn json_value(&mut self) -> Result<Option<Value>, Stop> {
        if self.skip_blank() {
            return Ok(None);
        }
        let failed = |error: serde_json::Error| Stop::failed(error.to_string());
        let scalar = json_scalar(self.rest);
        let value: Value = if scalar > 0 {
            let value = serde_json::from_str(&self.rest[..scalar]).map_err(failed)?;
            self.rest = &self.rest[scalar..];
            value
        } else {
            let mut values = serde_json::Deserializer::from_str(self.rest).into_iter();
            let value = values.next().transpose().map_err(failed)?.unwrap_or_default();
            self.rest = &self.rest[values.byte_offset()..];
            value
        };
        self.skip_blank();
        Ok(Some(super::with_floats(value)))
    }

    /// Skips spaces up to and including a comma; returns whether there was nothing else.
    fn skip_blank(&mut self) -> bool {
        loop {
            match self.rest.chars().next() {
                None => return true,
                Some(',') => {
                    self.read();
                    return true;
                }
                Some(c) if c.is_whitespace() => {
                    self.read();
                }
                Some(_) => return false,
            }
        }
    }
}

/// The value of `--set`: text, unless it looks like a boolean, null or a decimal integer without leading zero.
fn typed(text: &str) -> Value {
    if text.eq_ignore_ascii_case("true") {
        return Value::Bool(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Value::Bool(false);
    }
    if text.eq_ignore_ascii_case("null") {
        return Value::Null;
    }
    if text == "0" {
        return Value::from(0_i64);
    }
    match text.parse::<i64>() {
        Ok(number) if !text.starts_with('0') => Value::from(number),
        _ => Value::from(text),
    }
}

/// The length of the JSON number or word at the start of a text, 0 if there is none.
///
/// Go's decoder ends it as soon as possible, so that in `a=1b=2` the second key starts right after the number.
fn json_scalar(text: &str) -> usize {
    if let Some(word) = ["true", "false", "null"]
        .into_iter()
        .find(|word| text.starts_with(word))
    {
        return word.len();
    }
    let bytes = text.as_bytes();
    let digits_from = |start: usize| {
        bytes[start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let sign = usize::from(text.starts_with('-'));
    let mut end = sign
        + match digits_from(sign) {
            0 => return 0,
            _ if bytes[sign] == b'0' => 1,
            digits => digits,
        };
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits_from(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        end += 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end += digits_from(end);
    }
    end
}

/// An empty key is accepted and sets nothing.
fn insert(data: &mut Map<String, Value>, key: &str, value: Value) {
    if !key.is_empty() {
        data.insert(key.to_owned(), value);
    }
}

fn at(list: &mut [Value], index: i64) -> Option<&mut Value> {
    list.get_mut(usize::try_from(index).ok()?)
}

/// Sets an item, filling the gap before it with nulls.
fn set_index(list: &mut Vec<Value>, index: i64, value: Value) -> Result<(), Stop> {
    if index > MAX_INDEX {
        return Err(Stop::failed(format!(
            "index of {index} is greater than maximum supported index of {MAX_INDEX}"
        )));
    }
    let index =
        usize::try_from(index).map_err(|_| Stop::failed(format!("negative {index} index not allowed")))?;
    if list.len() <= index {
        list.resize(index + 1, Value::Null);
    }
    list[index] = value;
    Ok(())
}

fn not_a(wanted: &str, found: &Value) -> Stop {
    let found = match found {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    Stop::failed(format!(
        "unable to parse key: interface conversion: interface {{}} is {found}, not {wanted}"
    ))
}

/// Go's `%q` of a slice of runes.
fn quoted_runes(text: &str) -> String {
    let runes: Vec<String> = text.chars().map(|rune| format!("{rune:?}")).collect();
    format!("[{}]", runes.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: &str, assignments: &[String]) -> Result<Map<String, Value>, String> {
        let mut values = Map::new();
        for text in assignments {
            let outcome = match kind {
                "set" => set(text, &mut values),
                "string" => set_string(text, &mut values),
                "json" => set_json(text, &mut values),
                "literal" => set_literal(text, &mut values),
                "file" => set_file(text, &mut values, |path| match path {
                    "missing" => Err("open missing: no such file".to_owned()),
                    path => Ok(format!("<{path}>")),
                }),
                other => panic!("unknown kind {other}"),
            };
            outcome.map_err(|error| error.to_string())?;
        }
        Ok(values)
    }

    #[test]
    fn assignments_do_what_helm_does() {
        let golden = include_str!("../../tests/goldens/strvals/golden.jsonl");
        let mut rows = 0;
        for line in golden.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let assignments: Vec<String> = serde_json::from_value(row["in"].clone()).unwrap();
            let kind = row["kind"].as_str().unwrap();
            let found = outcome(kind, &assignments);
            match (&row["error"], found) {
                // Helm never shows why a value is not JSON.
                (Value::String(_), Err(_)) if kind == "json" => {}
                (Value::String(error), Err(found)) => assert_eq!(found, *error, "{kind} {assignments:?}"),
                (Value::Null, Ok(found)) => {
                    let expected = crate::values::with_floats(row["out"].clone());
                    assert_eq!(
                        Value::Object(crate::values::floats(found)),
                        expected,
                        "{kind} {assignments:?}"
                    );
                }
                (_, found) => panic!("{kind} {assignments:?}: {found:?} instead of {row}"),
            }
            rows += 1;
        }
        assert!(rows > 600, "only {rows} rows");
    }

    #[test]
    fn only_set_makes_integers() {
        let mut values = Map::new();
        set("a=5", &mut values).unwrap();
        set_json("b=5", &mut values).unwrap();
        set_string("c=5", &mut values).unwrap();
        assert_eq!(
            Value::Object(values),
            serde_json::json!({"a": 5, "b": 5.0, "c": "5"})
        );
    }
}
