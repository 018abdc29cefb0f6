//! Parses JSON like Go's `encoding/json`, with its error messages. (`gotemplate::json` writes JSON.)

use std::borrow::Cow;

use gostd::strconv;
use gotemplate::{
    types,
    value::{List, Map, Value},
};

use crate::utf8::utf8_or_replacement;
use crate::yaml::{Build, Key, Template};

/// Maximum nesting. (Go allows 10 000, on a stack that grows.)
const MAX_DEPTH: usize = 1000;

/// A text that is not JSON, or not of the wanted type, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text ends too early.
    #[error("unexpected end of JSON input")]
    UnexpectedEnd,
    /// An unexpected character.
    #[error("invalid character {character} {context}")]
    InvalidCharacter {
        /// The character in quotes.
        character: String,
        /// Where it was found.
        context: &'static str,
    },
    /// Nested too deeply for this parser.
    #[error("exceeded max depth")]
    TooDeep,
    /// A value of another type.
    #[error("json: cannot unmarshal {found} into Go value of type {wanted}")]
    Mismatch {
        /// The type in JSON; for a number that is too large, with its digits.
        found: String,
        /// The type in Go.
        wanted: &'static str,
    },
}

/// The parsed value, and the error, if any: Go continues after a number that no float can hold, and reports it at the
/// end.
#[derive(Debug)]
pub struct Decoded<T> {
    /// The parsed value, with null for numbers that are too large.
    pub value: T,
    /// The first number that is too large.
    pub error: Option<Error>,
}

impl<T> Decoded<T> {
    /// The value, unless there was an error.
    pub fn into_result(self) -> Result<T, Error> {
        self.error.map_or(Ok(self.value), Err)
    }
}

/// Parses any JSON (`json.Unmarshal` into an `interface {}`): all numbers become floats.
pub fn decode<'v, B: Build<'v>>(input: &'v [u8], build: &'v B) -> Result<Decoded<B::Value>, Error> {
    let mut reader = Reader {
        input,
        at: 0,
        depth: 0,
        build,
        error: None,
    };
    reader.skip_space();
    let value = reader.value()?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(Decoded {
            value,
            error: reader.error,
        }),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

/// Parses any JSON into a template's value (`mustFromJson`).
pub fn parse(input: &[u8]) -> Result<Value, Error> {
    decode(input, &Template)?.into_result()
}

/// Parses an object into a template's map (`fromJson`); `null` gives the nil map.
pub fn parse_map(input: &[u8]) -> Result<Decoded<Map>, Error> {
    let Decoded { value, error } = decode(input, &Template)?;
    match value {
        Value::Map(value) => Ok(Decoded { value, error }),
        Value::Nil if error.is_none() => Ok(Decoded {
            value: Map::nil(&types::MAP),
            error,
        }),
        other => Err(mismatch(&other, types::MAP.name())),
    }
}

/// Parses an array into a template's list (`fromJsonArray`); `null` gives the nil list.
pub fn parse_list(input: &[u8]) -> Result<Decoded<List>, Error> {
    let Decoded { value, error } = decode(input, &Template)?;
    match value {
        Value::List(value) => Ok(Decoded { value, error }),
        Value::Nil if error.is_none() => Ok(Decoded {
            value: List::nil(&types::LIST),
            error,
        }),
        other => Err(mismatch(&other, types::LIST.name())),
    }
}

fn mismatch(found: &Value, wanted: &'static str) -> Error {
    let found = match found {
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
        _ => "number",
    };
    Error::Mismatch {
        found: found.to_owned(),
        wanted,
    }
}

struct Reader<'a, B> {
    input: &'a [u8],
    at: usize,
    depth: usize,
    build: &'a B,
    error: Option<Error>,
}

impl<'a, B: Build<'a>> Reader<'a, B> {
    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The error for the byte at the current position.
    fn unexpected(&self, context: &'static str) -> Error {
        // Go appends a space to the input, and reports that one where a space is invalid.
        let space_is_wrong = (context.starts_with("in ") && context != "in string literal")
            || context == "after decimal point in numeric literal";
        let byte = match self.peek() {
            Some(byte) => byte,
            None if space_is_wrong => b' ',
            None => return Error::UnexpectedEnd,
        };
        // Go shows the byte as the character with that number.
        let character = match byte {
            b'\'' => r"'\''".to_owned(),
            b'"' => r#"'"'"#.to_owned(),
            byte => {
                let mut quoted = String::new();
                strconv::quote(char::from(byte).encode_utf8(&mut [0; 4]), &mut quoted);
                format!("'{}'", &quoted[1..quoted.len() - 1])
            }
        };
        Error::InvalidCharacter { character, context }
    }

    fn value(&mut self) -> Result<B::Value, Error> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(self.build.string(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => {
                const CONTEXTS: [&str; 3] = [
                    "in literal true (expecting 'r')",
                    "in literal true (expecting 'u')",
                    "in literal true (expecting 'e')",
                ];
                self.word(b"true", &CONTEXTS).map(|()| self.build.bool(true))
            }
            Some(b'f') => {
                const CONTEXTS: [&str; 4] = [
                    "in literal false (expecting 'a')",
                    "in literal false (expecting 'l')",
                    "in literal false (expecting 's')",
                    "in literal false (expecting 'e')",
                ];
                self.word(b"false", &CONTEXTS).map(|()| self.build.bool(false))
            }
            Some(b'n') => {
                const CONTEXTS: [&str; 3] = [
                    "in literal null (expecting 'u')",
                    "in literal null (expecting 'l')",
                    "in literal null (expecting 'l')",
                ];
                self.word(b"null", &CONTEXTS).map(|()| self.build.null())
            }
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<B::Value, Error>) -> Result<B::Value, Error> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.skip_space();
        let value = read(self)?;
        self.at += 1;
        self.depth -= 1;
        Ok(value)
    }

    /// Parses the contents of the braces.
    fn object(&mut self) -> Result<B::Value, Error> {
        let mut map = B::Map::default();
        if self.peek() == Some(b'}') {
            return Ok(self.build.map(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value()?;
            self.build.insert(&mut map, Key::new(key), value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return Ok(self.build.map(map)),
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_space();
        }
    }

    /// Parses the contents of the brackets.
    fn array(&mut self) -> Result<B::Value, Error> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            return Ok(self.build.list(items));
        }
        loop {
            items.push(self.value()?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => return Ok(self.build.list(items)),
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_space();
        }
    }

    fn word(&mut self, word: &[u8], contexts: &[&'static str]) -> Result<(), Error> {
        for (expected, context) in word.iter().zip(std::iter::once(&"").chain(contexts)) {
            if self.peek() != Some(*expected) {
                return Err(self.unexpected(context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<B::Value, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = String::from_utf8_lossy(&self.input[start..self.at]);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(self.build.float(number)),
            _ => {
                let found = format!("number {text}");
                self.error.get_or_insert(Error::Mismatch {
                    found,
                    wanted: types::FLOAT64.name(),
                });
                Ok(self.build.null())
            }
        }
    }

    fn digits(&mut self, context: &'static str) -> Result<(), Error> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected(context));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Error> {
        self.at += 1;
        let start = self.at;
        let mut escapes = false;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escapes = true;
                    self.at += 1;
                    self.skip_escape()?;
                }
                Some(0x20..) => self.at += 1,
                Some(_) | None => return Err(self.unexpected("in string literal")),
            }
        }
        let text = utf8_or_replacement(&self.input[start..self.at]);
        self.at += 1;
        Ok(if escapes {
            Cow::Owned(unescape(&text))
        } else {
            text
        })
    }

    fn skip_escape(&mut self) -> Result<(), Error> {
        match self.peek() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.unexpected("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.unexpected("in string escape code")),
        }
        Ok(())
    }
}

/// Resolves the escapes of a string, which have been checked. Unpaired surrogates become replacement characters.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut chars = escape.chars();
        match chars.next() {
            Some('b') => plain.push('\x08'),
            Some('f') => plain.push('\x0c'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('t') => plain.push('\t'),
            Some('u') => {
                rest = unescape_code(&escape[1..], &mut plain);
                continue;
            }
            other => plain.extend(other),
        }
        rest = chars.as_str();
    }
    plain.push_str(rest);
    plain
}

/// Appends the character of a `\u` escape, combined with a second escape if they form a surrogate pair; returns the
/// rest.
fn unescape_code<'a>(escape: &'a str, plain: &mut String) -> &'a str {
    let code = |text: &str| {
        text.get(..4)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
    };
    let (first, rest) = (code(escape).unwrap_or(0xfffd), &escape[4..]);
    if let (0xd800..=0xdbff, Some(second)) = (first, rest.strip_prefix("\\u").and_then(code))
        && (0xdc00..=0xdfff).contains(&second)
    {
        plain.extend(char::from_u32(
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
        ));
        return &rest[6..];
    }
    plain.push(char::from_u32(first).unwrap_or('\u{fffd}'));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(input: &str, error: &str) {
        assert_eq!(parse(input.as_bytes()).unwrap_err().to_string(), error, "{input}");
    }

    #[test]
    fn errors_are_worded_as_in_go() {
        refuses("", "unexpected end of JSON input");
        refuses("{", "unexpected end of JSON input");
        refuses(
            "{a",
            "invalid character 'a' looking for beginning of object key string",
        );
        refuses(r#"{"a" 1}"#, "invalid character '1' after object key");
        refuses(
            r#"{"a":1 2}"#,
            "invalid character '2' after object key:value pair",
        );
        refuses("[1 2]", "invalid character '2' after array element");
        refuses("[1,]", "invalid character ']' looking for beginning of value");
        refuses("1 2", "invalid character '2' after top-level value");
        refuses("trux", "invalid character 'x' in literal true (expecting 'e')");
        refuses("tr", "invalid character ' ' in literal true (expecting 'u')");
        refuses("'a'", r"invalid character '\'' looking for beginning of value");
        refuses("01", "invalid character '1' after top-level value");
        refuses(
            "1e400",
            "json: cannot unmarshal number 1e400 into Go value of type float64",
        );
    }

    #[test]
    fn values_of_another_type_are_refused() {
        let error = parse_map(b"[1]").unwrap_err();
        assert_eq!(
            error.to_string(),
            "json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
        assert!(parse_map(b"null").unwrap().value.is_nil());
        assert!(parse_list(b"null").unwrap().value.is_nil());
    }

    #[test]
    fn a_number_too_large_is_null_and_reported_at_the_end() {
        let decoded = parse_map(br#"{"a": 1e400, "b": 2}"#).unwrap();
        assert_eq!(decoded.value.get("b").and_then(|b| b.as_f64()), Some(2.0));
        assert!(decoded.error.is_some());
    }

    #[test]
    fn text_is_read_as_in_go() {
        let text = |json: &[u8]| parse(json).unwrap().as_str().unwrap().to_string();
        assert_eq!(text(br#""\u00e9\n\/\ud83d\ude00\ud800x""#), "é\n/😀\u{fffd}x");
        assert_eq!(text(b"\"a\xff\xfe\""), "a\u{fffd}\u{fffd}");
    }
}
