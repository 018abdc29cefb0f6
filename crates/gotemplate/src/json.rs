//! Converts values to and from JSON by the rules of Go's `encoding/json`.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    number,
    string::Str,
    types,
    value::{List, Map, TooDeep, Value, Walk},
};

/// Why a value cannot be written as JSON. The wording is that of `encoding/json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// JSON has no NaN and no infinity.
    #[error("json: unsupported value: {0}")]
    UnsupportedValue(String),
    /// Functions and complex numbers.
    #[error("json: unsupported type: {0}")]
    UnsupportedType(&'static str),
    /// A cycle, most likely.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
}

/// The Go type that numbers of a JSON text get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// `float64`, the default of Go's decoder and the type of numbers in Helm's values.
    Float64,
    /// `int64` if it is written as an integer that fits, otherwise `float64`.
    Int64,
}

/// The value of a JSON document. Objects become `map[string]interface {}`, arrays `[]interface {}`.
pub fn from_json(json: serde_json::Value, numbers: Numbers) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(b) => Value::Bool(b),
        serde_json::Value::Number(number) => match (numbers, number.as_i64()) {
            (Numbers::Int64, Some(n)) => Value::Int64(n),
            _ => Value::Float64(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => text.into(),
        serde_json::Value::Array(items) => {
            Value::list(items.into_iter().map(|item| from_json(item, numbers)))
        }
        serde_json::Value::Object(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, item)| (key, from_json(item, numbers)))
                .collect::<Map>(),
        ),
    }
}

/// The JSON document of a value, as `json.Marshal` writes it: bytes as base64, nil lists and maps as null, invalid
/// UTF-8 as U+FFFD. Floats without a fraction become integers where `i64` or `u64` can hold them, so that printing
/// the document gives Go's digits.
pub fn to_json(value: &Value) -> Result<serde_json::Value, Error> {
    to_json_at(value, &mut Walk::new(), 0)
}

fn to_json_at(value: &Value, walk: &mut Walk, depth: usize) -> Result<serde_json::Value, Error> {
    walk.visit(depth)?;
    Ok(match value {
        Value::Nil => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Float32(f) => float(f64::from(*f))?,
        Value::Float64(f) => float(*f)?,
        Value::String(text) => text.lossy().into(),
        Value::Bytes(bytes) => BASE64_STANDARD.encode(bytes.as_bytes()).into(),
        Value::List(list) if list.is_nil() => serde_json::Value::Null,
        Value::List(list) => {
            let mut items = Vec::with_capacity(list.len());
            for item in list.iter() {
                items.push(to_json_at(item, walk, depth + 1)?);
            }
            items.into()
        }
        Value::Map(map) if map.is_nil() => serde_json::Value::Null,
        Value::Map(map) => {
            let mut entries = serde_json::Map::new();
            for (key, item) in map.borrow().iter() {
                entries.insert(key.lossy().into_owned(), to_json_at(item, walk, depth + 1)?);
            }
            entries.into()
        }
        Value::Object(object) => to_json_at(&object.json(), walk, depth + 1)?,
        Value::Complex(..) | Value::Func(_) => return Err(Error::UnsupportedType(value.type_name())),
        integer => match (integer.as_i64(), integer.as_u64()) {
            (Some(n), _) => n.into(),
            (None, Some(n)) => n.into(),
            (None, None) => return Err(Error::UnsupportedType(value.type_name())),
        },
    })
}

fn float(f: f64) -> Result<serde_json::Value, Error> {
    if !f.is_finite() {
        return Err(unsupported(f));
    }
    // 2^53: integers up to here are exact, and serde_json would print `1.0`.
    if f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0 && !(f == 0.0 && f.is_sign_negative()) {
        return Ok((f as i64).into());
    }
    Ok(f.into())
}

fn unsupported(f: f64) -> Error {
    Error::UnsupportedValue(
        if f.is_nan() {
            "NaN"
        } else if f > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        }
        .into(),
    )
}

/// How JSON text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether `<`, `>` and `&` are written as `\u003c`, `\u003e` and `\u0026` (Go's default).
    pub escape_html: bool,
    /// The indentation of one level; `None` for everything on one line.
    pub indent: Option<&'static str>,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            escape_html: true,
            indent: None,
        }
    }
}

/// The text of `json.Marshal` (or `json.MarshalIndent`), without a newline at the end.
pub fn marshal(value: &Value, layout: Layout) -> Result<Vec<u8>, Error> {
    let mut writer = Writer {
        out: Vec::new(),
        layout,
        walk: Walk::new(),
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer {
    out: Vec<u8>,
    layout: Layout,
    walk: Walk,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.walk.visit(depth)?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::Bool(b) => self.out.extend_from_slice(if *b { b"true" } else { b"false" }),
            Value::Float32(f) => self.float(f64::from(*f), true)?,
            Value::Float64(f) => self.float(*f, false)?,
            Value::String(text) => self.text(text),
            Value::Bytes(bytes) => {
                let encoded = BASE64_STANDARD.encode(bytes.as_bytes());
                self.out.push(b'"');
                self.out.extend_from_slice(encoded.as_bytes());
                self.out.push(b'"');
            }
            Value::List(list) => self.list(list, depth)?,
            Value::Map(map) => self.map(map, depth)?,
            Value::Object(object) => match object.json_fields() {
                Some(fields) => self.structure(&fields, depth + 1)?,
                None => self.value(&object.json(), depth + 1)?,
            },
            Value::Complex(..) | Value::Func(_) => return Err(Error::UnsupportedType(value.type_name())),
            integer => match (integer.as_i64(), integer.as_u64()) {
                (Some(n), _) => self.out.extend_from_slice(n.to_string().as_bytes()),
                (None, Some(n)) => self.out.extend_from_slice(n.to_string().as_bytes()),
                (None, None) => return Err(Error::UnsupportedType(value.type_name())),
            },
        }
        Ok(())
    }

    fn list(&mut self, list: &List, depth: usize) -> Result<(), Error> {
        if list.is_nil() {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        // A defined type over `[]uint8` is written as base64 too.
        if list.ty().element().is(&types::UINT8) {
            let bytes: Vec<u8> = list
                .iter()
                .filter_map(|item| item.as_u64().map(|n| n as u8))
                .collect();
            return self.value(&Value::bytes(bytes), depth);
        }
        self.out.push(b'[');
        for (i, item) in list.iter().enumerate() {
            self.separate(i, depth + 1);
            self.value(item, depth + 1)?;
        }
        self.close(list.len(), depth, b']');
        Ok(())
    }

    fn map(&mut self, map: &Map, depth: usize) -> Result<(), Error> {
        if map.is_nil() {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        self.out.push(b'{');
        for (i, (key, item)) in map.borrow().iter().enumerate() {
            self.entry(i, key, item, depth)?;
        }
        self.close(map.len(), depth, b'}');
        Ok(())
    }

    /// Fields keep the order of their declaration, keys of maps are sorted.
    fn structure(&mut self, fields: &[(&'static str, Value)], depth: usize) -> Result<(), Error> {
        self.out.push(b'{');
        for (i, (key, item)) in fields.iter().enumerate() {
            self.entry(i, &(*key).into(), item, depth)?;
        }
        self.close(fields.len(), depth, b'}');
        Ok(())
    }

    fn entry(&mut self, index: usize, key: &Str, item: &Value, depth: usize) -> Result<(), Error> {
        self.separate(index, depth + 1);
        self.text(key);
        self.out.push(b':');
        if self.layout.indent.is_some() {
            self.out.push(b' ');
        }
        self.value(item, depth + 1)
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push(b',');
        }
        self.new_line(depth);
    }

    fn close(&mut self, items: usize, depth: usize, bracket: u8) {
        if items > 0 {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.layout.indent {
            self.out.push(b'\n');
            for _ in 0..depth {
                self.out.extend_from_slice(indent.as_bytes());
            }
        }
    }

    /// Plain digits unless below 1e-6 or from 1e21 upwards; `scientific` is Rust's shortest `d.ddde-7`.
    fn float(&mut self, f: f64, single: bool) -> Result<(), Error> {
        if !f.is_finite() {
            return Err(unsupported(f));
        }
        number::append_json_float(&mut self.out, f, single);
        Ok(())
    }

    fn text(&mut self, text: &Str) {
        self.out.push(b'"');
        for chunk in text.as_bytes().utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some(at) = rest.bytes().position(may_need_escape) {
                let (plain, odd) = rest.split_at(at);
                self.out.extend_from_slice(plain.as_bytes());
                let mut chars = odd.chars();
                if let Some(c) = chars.next() {
                    self.char(c);
                }
                rest = chars.as_str();
            }
            self.out.extend_from_slice(rest.as_bytes());
            // One replacement for each byte, as Go decodes invalid text.
            for _ in chunk.invalid() {
                self.out.extend_from_slice(b"\\ufffd");
            }
        }
        self.out.push(b'"');
    }

    fn char(&mut self, c: char) {
        match c {
            '"' => self.out.extend_from_slice(b"\\\""),
            '\\' => self.out.extend_from_slice(b"\\\\"),
            '\n' => self.out.extend_from_slice(b"\\n"),
            '\r' => self.out.extend_from_slice(b"\\r"),
            '\t' => self.out.extend_from_slice(b"\\t"),
            '\u{8}' => self.out.extend_from_slice(b"\\b"),
            '\u{c}' => self.out.extend_from_slice(b"\\f"),
            '<' | '>' | '&' if self.layout.escape_html => self.escape(c),
            '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => self.escape(c),
            c => self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    fn escape(&mut self, c: char) {
        self.out
            .extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
    }
}

/// Whether a character that begins with this byte may have to be escaped.
fn may_need_escape(byte: u8) -> bool {
    const BEGIN_OF_LINE_SEPARATORS: u8 = 0xe2;
    matches!(
        byte,
        0..0x20 | b'"' | b'\\' | b'<' | b'>' | b'&' | BEGIN_OF_LINE_SEPARATORS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: impl Into<Value>, expected: &str) {
        let text = marshal(&value.into(), Layout::default()).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn numbers_are_written_as_encoding_json_does() {
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.5, "1.5");
        check(1_234_567.0, "1234567");
        check(1_234_567.5, "1234567.5");
        check(1e20, "100000000000000000000");
        check(1e21, "1e+21");
        check(1e-6, "0.000001");
        check(1e-7, "1e-7");
        check(1.25e-9, "1.25e-9");
        check(12_345_678_901_234_567_890.0, "12345678901234567000");
        check(Value::Float32(0.1), "0.1");
        check(Value::Uint64(u64::MAX), "18446744073709551615");
    }

    #[test]
    fn text_is_escaped_as_encoding_json_does() {
        check(
            "a\"\\\n\t\u{1}<&>\u{2028}…é\u{7f}",
            "\"a\\\"\\\\\\n\\t\\u0001\\u003c\\u0026\\u003e\\u2028…é\u{7f}\"",
        );
        check(Str::from(&b"a\xff\xfeb"[..]), "\"a\\ufffd\\ufffdb\"");
        check(Value::bytes("hi"), "\"aGk=\"");
    }

    #[test]
    fn containers_are_laid_out_as_encoding_json_does() {
        check(List::nil(&types::LIST), "null");
        check(Map::nil(&types::MAP), "null");
        check(Value::list([]), "[]");
        let map: Map = [("b", Value::list([1.0.into(), Value::Nil])), ("a", Value::map())]
            .into_iter()
            .collect();
        check(map.clone(), r#"{"a":{},"b":[1,null]}"#);
        let pretty = marshal(
            &map.into(),
            Layout {
                escape_html: true,
                indent: Some("  "),
            },
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(pretty).unwrap(),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    null\n  ]\n}"
        );
    }

    #[test]
    fn a_cycle_is_an_error() {
        let _guard = crate::value::CycleGuard::new();
        let map = Map::new();
        map.insert("self", map.clone());
        assert_eq!(
            marshal(&map.clone().into(), Layout::default()),
            Err(Error::TooDeep(TooDeep))
        );
        assert_eq!(to_json(&map.into()), Err(Error::TooDeep(TooDeep)));
    }

    #[test]
    fn nan_is_refused() {
        assert_eq!(
            marshal(&f64::NAN.into(), Layout::default())
                .unwrap_err()
                .to_string(),
            "json: unsupported value: NaN"
        );
    }
}
