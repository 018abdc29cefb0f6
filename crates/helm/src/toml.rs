//! Writes TOML in the layout of `BurntSushi/toml` 1.6 (`encode.go`), and parses TOML into values.
//!
//! The error messages of the parser are not those of Go.

use gostd::number;
use gotemplate::{
    string::Str,
    types,
    value::{List, MAX_DEPTH, Map, TooDeep, Value},
};
pub use toml::value::Datetime;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::times;

/// The value cannot be written as TOML. The wording is that of `BurntSushi/toml`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A null in a list.
    #[error("toml: cannot encode array with nil element")]
    NilElement,
    /// A list of maps without a key.
    #[error("toml: top-level values must be Go maps or structs")]
    NoKey,
    /// A function or a complex number.
    #[error("unsupported type: {0}")]
    Unsupported(&'static str),
    /// Go's library panics on a nil where a value is required, which ends the template.
    #[error("reflect: call of reflect.Value.Type on zero Value")]
    Nil,
    /// A cycle, most likely.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
}

impl Error {
    /// Whether `toToml` fails on this error instead of returning its text.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Nil | Self::TooDeep(_))
    }
}

/// Writes a document as `toToml` does.
pub fn to_toml(value: &Value) -> Result<Vec<u8>, Error> {
    if matches!(value, Value::Nil) {
        return Err(Error::Nil);
    }
    let mut writer = Writer {
        out: Vec::with_capacity(256),
    };
    writer.entry(&mut Vec::new(), value)?;
    Ok(writer.out)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Written in the table of its key.
    Direct,
    Table,
    Tables,
}

/// Whether TOML writes a value inline, as a table or as a list of tables.
///
/// # Errors
/// If a list in it contains null.
fn shape(value: &Value, depth: usize) -> Result<Shape, Error> {
    if depth > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    Ok(match value {
        Value::Map(map) if !map.is_nil() => Shape::Table,
        Value::Object(object) => match object.json() {
            Value::Map(_) => Shape::Table,
            other => shape(&other, depth + 1)?,
        },
        Value::List(list) => {
            let mut tables = !list.is_empty();
            for item in list.iter() {
                if is_nil(item) {
                    return Err(Error::NilElement);
                }
                tables &= shape(item, depth + 1)? == Shape::Table;
            }
            if tables { Shape::Tables } else { Shape::Direct }
        }
        Value::Func(_) | Value::Complex(..) => return Err(Error::Unsupported(value.kind().name())),
        _ => Shape::Direct,
    })
}

/// Times and durations have a notation of their own.
fn is_time(value: &Value) -> bool {
    times::toml_date(value).is_some() || times::duration_text(value).is_some()
}

fn is_nil(value: &Value) -> bool {
    value.is_nil()
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// Writes the value of a key; for the empty key, the document.
    fn entry(&mut self, key: &mut Vec<Str>, value: &Value) -> Result<(), Error> {
        if key.len() > MAX_DEPTH {
            return Err(TooDeep.into());
        }
        if let Value::Object(object) = value {
            return match object.json() {
                Value::Map(_) => self.table(key, &object.fields()),
                _ if is_time(value) => self.key_value(key, value, false),
                other => self.entry(key, &other),
            };
        }
        match value {
            Value::Nil => Ok(()),
            Value::Map(map) if map.is_nil() => Ok(()),
            Value::Map(map) => {
                let entries: Vec<(Str, Value)> = map
                    .borrow()
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                self.table(key, &entries)
            }
            Value::List(list) if shape(value, 0)? == Shape::Tables => self.tables(key, list),
            _ => {
                shape(value, 0)?;
                self.key_value(key, value, false)
            }
        }
    }

    fn tables(&mut self, key: &mut Vec<Str>, tables: &List) -> Result<(), Error> {
        if key.is_empty() {
            return Err(Error::NoKey);
        }
        for table in tables.iter() {
            self.new_line();
            self.header(key, "[[", "]]");
            self.entries(key, &entries_of(table), false)?;
        }
        Ok(())
    }

    fn table(&mut self, key: &mut Vec<Str>, entries: &[(impl Name, Value)]) -> Result<(), Error> {
        if key.len() == 1 {
            self.new_line();
        }
        if !key.is_empty() {
            self.header(key, "[", "]");
        }
        self.entries(key, entries, false)
    }

    fn header(&mut self, key: &[Str], open: &str, close: &str) {
        self.indent(key);
        self.out.extend_from_slice(open.as_bytes());
        for (nth, part) in key.iter().enumerate() {
            if nth > 0 {
                self.out.push(b'.');
            }
            self.key_part(part);
        }
        self.out.extend_from_slice(close.as_bytes());
        self.new_line();
    }

    /// Writes the entries of a table: first those that fit on one line.
    fn entries(
        &mut self,
        key: &mut Vec<Str>,
        entries: &[(impl Name, Value)],
        inline: bool,
    ) -> Result<(), Error> {
        let mut direct = Vec::new();
        let mut below = Vec::new();
        for (name, value) in entries {
            match shape(value, 0)? {
                Shape::Direct => direct.push((name, value)),
                Shape::Table | Shape::Tables => below.push((name, value)),
            }
        }
        for (group, more) in [(&direct, !below.is_empty()), (&below, false)] {
            for (nth, (name, value)) in group.iter().enumerate() {
                if is_nil(value) {
                    continue;
                }
                key.push(name.name());
                if inline {
                    let last = key.len() - 1;
                    self.key_value(&key[last..], value, true)?;
                    // A null at the end leaves a trailing comma, as in Go.
                    if more || nth + 1 < group.len() {
                        self.out.extend_from_slice(b", ");
                    }
                } else {
                    self.entry(key, value)?;
                }
                key.pop();
            }
        }
        Ok(())
    }

    fn key_value(&mut self, key: &[Str], value: &Value, inline: bool) -> Result<(), Error> {
        let Some(last) = key.last() else {
            return self.element(value, 0);
        };
        self.indent(key);
        self.key_part(last);
        self.out.extend_from_slice(b" = ");
        self.element(value, 0)?;
        if !inline {
            self.new_line();
        }
        Ok(())
    }

    /// Writes a value after a `=` or in a list.
    fn element(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(TooDeep.into());
        }
        match value {
            Value::Bool(value) => self
                .out
                .extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Float64(value) => self.float(*value, false),
            Value::Float32(value) => self.float((*value).into(), true),
            Value::String(text) => self.quoted(text),
            Value::Bytes(bytes) => self.list(bytes.iter().map(|byte| Value::Uint8(*byte)), depth)?,
            Value::List(list) => self.list(list.iter().cloned(), depth)?,
            Value::Map(_) => self.inline_table(&entries_of(value))?,
            Value::Object(object) => match (object.json(), times::toml_date(value)) {
                (_, Some(date)) => self.out.extend_from_slice(&date),
                _ if is_time(value) => {
                    self.quoted(&times::duration_text(value).unwrap_or_default().into());
                }
                (Value::Map(_), None) => self.inline_table(&object.fields())?,
                (other, None) => self.element(&other, depth + 1)?,
            },
            Value::Nil => return Err(Error::Nil),
            Value::Func(_) | Value::Complex(..) => return Err(Error::Unsupported(value.kind().name())),
            integer => {
                let text = match (integer.as_i64(), integer.as_u64()) {
                    (Some(value), _) => value.to_string(),
                    (None, value) => value.unwrap_or_default().to_string(),
                };
                self.out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }

    fn list(&mut self, items: impl Iterator<Item = Value>, depth: usize) -> Result<(), Error> {
        self.out.push(b'[');
        for (nth, item) in items.enumerate() {
            if nth > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.element(&item, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn inline_table(&mut self, entries: &[(impl Name, Value)]) -> Result<(), Error> {
        self.out.push(b'{');
        self.entries(&mut Vec::new(), entries, true)?;
        self.out.push(b'}');
        Ok(())
    }

    fn float(&mut self, value: f64, single: bool) {
        if value.is_finite() {
            let start = self.out.len();
            number::append_float(&mut self.out, value, b'g', None, single);
            if !self.out[start..].iter().any(|byte| matches!(byte, b'e' | b'.')) {
                self.out.extend_from_slice(b".0");
            }
            return;
        }
        if value.is_sign_negative() {
            self.out.push(b'-');
        }
        self.out
            .extend_from_slice(if value.is_nan() { b"nan" } else { b"inf" });
    }

    /// Starts a new line, except at the start of the document.
    fn new_line(&mut self) {
        if !self.out.is_empty() {
            self.out.push(b'\n');
        }
    }

    fn indent(&mut self, key: &[Str]) {
        for _ in 1..key.len() {
            self.out.extend_from_slice(b"  ");
        }
    }

    fn key_part(&mut self, part: &Str) {
        let bare = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !part.is_empty() && part.iter().all(bare) {
            self.out.extend_from_slice(part);
        } else {
            self.quoted(part);
        }
    }

    fn quoted(&mut self, text: &Str) {
        self.out.push(b'"');
        for byte in text.iter() {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'\x08' => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\x0c' => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                byte => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
    }
}

/// The name of an entry of a map or of a field of a struct.
trait Name {
    fn name(&self) -> Str;
}

impl Name for Str {
    fn name(&self) -> Str {
        self.clone()
    }
}

impl Name for &'static str {
    fn name(&self) -> Str {
        (*self).into()
    }
}

fn entries_of(table: &Value) -> Vec<(Str, Value)> {
    match table {
        Value::Map(map) => map
            .borrow()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        Value::Object(object) => object
            .fields()
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect(),
        _ => Vec::new(),
    }
}

/// The text is not TOML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("toml: line {line}: {message}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

/// Parses a document (`fromToml`): integers become `int64`; `time` converts dates and times.
pub fn parse(input: &[u8], time: &dyn Fn(&Datetime) -> Value) -> Result<Map, ParseError> {
    let text = std::str::from_utf8(input).map_err(|error| {
        let line = line_of(input, error.valid_up_to());
        let byte = input[error.valid_up_to()];
        ParseError {
            line,
            message: format!("invalid UTF-8 byte: 0x{byte:02x}"),
        }
    })?;
    let document = DeTable::parse(text).map_err(|error| {
        let line = line_of(input, error.span().map_or(0, |span| span.start));
        ParseError {
            line,
            message: error.message().to_owned(),
        }
    })?;
    let reader = Reader { input, time };
    reader.table(document.get_ref())
}

fn line_of(input: &[u8], at: usize) -> usize {
    input[..at.min(input.len())].split(|byte| *byte == b'\n').count()
}

struct Reader<'a> {
    input: &'a [u8],
    time: &'a dyn Fn(&Datetime) -> Value,
}

impl Reader<'_> {
    fn table(&self, table: &DeTable<'_>) -> Result<Map, ParseError> {
        let map = Map::new();
        for (key, value) in table {
            map.insert(key.get_ref().as_ref(), self.value(value)?);
        }
        Ok(map)
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, ParseError> {
        let out_of_range = |digits: &str, ty: &str| ParseError {
            line: line_of(self.input, value.span().start),
            message: format!("{digits} is out of range for {ty}"),
        };
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.as_ref().into()),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                Value::Int64(parsed.map_err(|_| out_of_range(integer.as_str(), "int64"))?)
            }
            DeValue::Float(float) => {
                let parsed: f64 = float.as_str().parse().unwrap_or(f64::NAN);
                if parsed.is_infinite() && !float.as_str().ends_with("inf") {
                    return Err(out_of_range(float.as_str(), "float64"));
                }
                Value::Float64(parsed)
            }
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(datetime) => (self.time)(datetime),
            DeValue::Array(array) => {
                // The first table of a `[[x]]` begins where the array does; in a list, it begins after the bracket.
                let tables = array
                    .iter()
                    .next()
                    .is_some_and(|first| first.span().start == value.span().start);
                let items = array
                    .iter()
                    .map(|item| self.value(item))
                    .collect::<Result<Vec<_>, _>>()?;
                Value::List(List::with_type(
                    if tables { &types::MAPS } else { &types::LIST },
                    items,
                ))
            }
            DeValue::Table(table) => Value::Map(self.table(table)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use gotemplate::json::{Numbers, from_json};

    use super::*;

    fn writes(json: &str, toml: &str) {
        let value = from_json(serde_json::from_str(json).unwrap(), Numbers::Int64);
        assert_eq!(
            String::from_utf8(to_toml(&value).unwrap()).unwrap(),
            toml,
            "{json}"
        );
    }

    #[test]
    fn documents_are_laid_out_as_in_go() {
        writes(
            r#"{"b": {"c": "x"}, "a": 1, "f": 1000000.0, "g": 1.5}"#,
            "a = 1\nf = 1e+06\ng = 1.5\n\n[b]\n  c = \"x\"\n",
        );
        writes(
            r#"{"a": {"b": {"c": [1, "x"]}}}"#,
            "[a]\n  [a.b]\n    c = [1, \"x\"]\n",
        );
        writes(
            r#"{"a": [{"b": 1}, {"b": 2}]}"#,
            "[[a]]\n  b = 1\n\n[[a]]\n  b = 2\n",
        );
        writes(
            r#"{"a": [1, {"b": null, "c": {"d": 1}}]}"#,
            "a = [1, {c = {d = 1}}]\n",
        );
        writes(
            r#"{"x y": "\u0001\t\"", "": null}"#,
            "\"x y\" = \"\\u0001\\t\\\"\"\n",
        );
        writes(r#""text""#, "\"text\"");
    }

    #[test]
    fn what_has_no_toml_is_an_error() {
        let error = |json: &str| {
            to_toml(&from_json(serde_json::from_str(json).unwrap(), Numbers::Int64)).unwrap_err()
        };
        assert_eq!(error(r#"{"a": [null]}"#), Error::NilElement);
        assert_eq!(error(r#"[{"a": 1}]"#), Error::NoKey);
        assert!(error("null").is_panic());
    }

    #[test]
    fn documents_are_read_with_gos_types() {
        let read = parse(
            b"a = 1\nb = 1.5\nc = [{d = 'x'}]\n[[e]]\nf = 1979-05-27\n",
            &|time| time.to_string().into(),
        )
        .unwrap();
        assert!(matches!(read.get("a"), Some(Value::Int64(1))));
        assert!(matches!(read.get("b"), Some(Value::Float64(_))));
        assert_eq!(read.get("c").map(|list| list.type_name()), Some("[]interface {}"));
        assert_eq!(
            read.get("e").map(|list| list.type_name()),
            Some("[]map[string]interface {}")
        );
        assert_eq!(parse(b"a = 1\nb =\n", &|_| Value::Nil).unwrap_err().line, 2);
    }
}
