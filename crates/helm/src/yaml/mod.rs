//! YAML as Helm reads and writes it: sigs.k8s.io/yaml over go-yaml v2, that is mostly YAML 1.1.
//!
//! Reading goes bytes → [`reader`] → [`scanner`] → [`parser`] → [`document`] → [`decode`]; error messages are Helm's.

mod build;
mod decode;
mod document;
mod emit;
mod glance;
mod order;
mod outline;
mod parser;
mod reader;
mod resolve;
mod scanner;
mod shown;
mod write;

use std::{borrow::Cow, collections::BTreeMap, fmt};

pub use build::{Build, Key};
pub(crate) use glance::Glance;
use gotemplate::{
    frozen::{Frozen, FrozenMap},
    string::Str,
    types, value,
};
use serde_json::{Map, Number, Value};
pub use write::{to_string, to_yaml, to_yaml_pretty};

/// Maximum nesting of a document. (Helm allows 10 000, on a stack that grows.)
pub const MAX_DEPTH: usize = 1000;

/// The document cannot be read; the text is Helm's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    text: String,
}

impl Error {
    fn convert(problem: &Problem) -> Self {
        Self {
            text: format!("error converting YAML to JSON: {problem}"),
        }
    }

    fn marshal(problem: &dyn fmt::Display) -> Self {
        Self {
            text: format!("error marshaling into JSON: {problem}"),
        }
    }

    /// An error of the conversion from JSON to YAML, which adds no words.
    fn bare(problem: &Problem) -> Self {
        Self {
            text: problem.to_string(),
        }
    }

    fn mismatch(found: &Value, wanted: &str) -> Self {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self {
            text: format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type {wanted}"
            ),
        }
    }
}

/// A problem with a document, in go-yaml's words.
#[derive(Debug)]
struct Problem {
    /// The line, for errors of the scanner and the parser.
    line: Option<usize>,
    text: Cow<'static, str>,
    bare: bool,
}

impl Problem {
    /// go-yaml counts lines from 1 in the scanner, from 0 in the parser, and does not mention line 0.
    fn scanner(line: usize, problem: impl Into<Cow<'static, str>>) -> Self {
        Self {
            line: (line > 0).then_some(line + 1),
            text: problem.into(),
            bare: false,
        }
    }

    fn parser(line: usize, problem: impl Into<Cow<'static, str>>) -> Self {
        Self {
            line: (line > 0).then_some(line),
            text: problem.into(),
            bare: false,
        }
    }

    fn plain(problem: impl Into<Cow<'static, str>>) -> Self {
        Self {
            line: None,
            text: problem.into(),
            bare: false,
        }
    }

    /// A message that does not come from go-yaml.
    fn text(text: String) -> Self {
        Self {
            line: None,
            text: text.into(),
            bare: true,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.bare {
            f.write_str("yaml: ")?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.text)
    }
}

/// Parses the first document like Helm parses values: all numbers become floats.
pub fn parse(input: &[u8]) -> Result<Value, Error> {
    parse_with(input, &Floats)
}

/// Parses the first document, which must be a mapping; an empty text gives an empty one.
pub fn parse_map(input: &[u8]) -> Result<Map<String, Value>, Error> {
    match parse(input)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(Error::mismatch(&other, types::MAP.name())),
    }
}

/// Parses the first document, which must be a sequence; an empty text gives an empty one.
pub fn parse_list(input: &[u8]) -> Result<Vec<Value>, Error> {
    match parse(input)? {
        Value::Array(list) => Ok(list),
        Value::Null => Ok(Vec::new()),
        other => Err(Error::mismatch(&other, types::LIST.name())),
    }
}

/// Parses the first document into a template's map (`fromYaml`); an empty text gives an empty one.
pub fn template_map(input: &[u8]) -> Result<value::Map, Error> {
    match parse_with(input, &Template)? {
        value::Value::Map(map) => Ok(map),
        value::Value::Nil => Ok(value::Map::new()),
        other => Err(Error::mismatch(&json_of(&other), types::MAP.name())),
    }
}

/// Parses the first document into a template's list (`fromYamlArray`); an empty text gives an empty one.
pub fn template_list(input: &[u8]) -> Result<value::List, Error> {
    match parse_with(input, &Template)? {
        value::Value::List(list) => Ok(list),
        value::Value::Nil => Ok(value::List::from(Vec::new())),
        other => Err(Error::mismatch(&json_of(&other), types::LIST.name())),
    }
}

fn json_of(value: &value::Value) -> Value {
    gotemplate::json::to_json(value).unwrap_or_default()
}

/// Parses the first document, keeping integers (`YAMLToJSON`). Used to decode the fields of structs.
pub fn parse_typed(input: &[u8]) -> Result<Value, Error> {
    parse_with(input, &Numbers)
}

/// Like [`parse_typed`], but duplicate keys are errors (`YAMLToJSONStrict`).
pub fn parse_strict(input: &[u8]) -> Result<Value, Error> {
    first(input, &Numbers, true)
}

/// Parses the first document with any builder.
pub fn parse_with<V>(input: &[u8], build: &impl for<'v> Build<'v, Value = V>) -> Result<V, Error> {
    first(input, build, false)
}

/// Parses the first document like [`parse_typed`], to look at its fields and its `metadata` without copying their texts. Deeper
/// mappings may appear empty.
pub(crate) fn glance<R>(input: &[u8], look: impl FnOnce(&Glance<'_>) -> R) -> Result<R, Error> {
    let source = reader::read(input);
    if source.refusal.is_none()
        && let Some(seen) = outline::outline(&source.text)
    {
        return Ok(look(&seen));
    }
    parsed_glance(&source, look)
}

/// The same by the parser alone.
fn parsed_glance<R>(source: &reader::Source<'_>, look: impl FnOnce(&Glance<'_>) -> R) -> Result<R, Error> {
    let looked = match Stream::new(source).next() {
        Ok(Some(document)) => decode::decode(&document, &glance::Glancer, false).map(|seen| look(&seen)),
        Ok(None) => Ok(look(&Glance::Null)),
        Err(problem) => Err(problem),
    };
    looked.map_err(|problem| Error::convert(&problem))
}

/// Whether the first document contains an alias. A text that is no YAML does not.
pub(crate) fn has_alias(input: &[u8]) -> bool {
    let source = reader::read(input);
    let is_alias = |node: &document::Node<'_>| matches!(node.kind, document::Kind::Alias { .. });
    matches!(Stream::new(&source).next(), Ok(Some(document)) if document.nodes.iter().any(is_alias))
}

/// Parses JSON as YAML; errors get no additional words.
fn parse_json(input: &[u8]) -> Result<Value, Error> {
    let source = reader::read(input);
    let decoded = Stream::new(&source).next().and_then(|document| match document {
        Some(document) => decode::decode(&document, &Numbers, false),
        None => Ok(Value::Null),
    });
    decoded.map_err(|problem| Error::bare(&problem))
}

/// Parses all documents of a stream, each like [`parse`]. Stops at the first error.
pub fn parse_all(input: &[u8]) -> Result<Vec<Value>, Error> {
    let source = reader::read(input);
    let mut stream = Stream::new(&source);
    let mut values = Vec::new();
    while let Some(document) = stream.next().map_err(|problem| Error::convert(&problem))? {
        values.push(decode::decode(&document, &Floats, false).map_err(|problem| Error::convert(&problem))?);
    }
    Ok(values)
}

fn first<V>(input: &[u8], build: &impl for<'v> Build<'v, Value = V>, strict: bool) -> Result<V, Error> {
    let source = reader::read(input);
    let decoded = match Stream::new(&source).next() {
        Ok(Some(document)) => decode::decode(&document, build, strict),
        Ok(None) => Ok(null(build)),
        Err(problem) => Err(problem),
    };
    decoded.map_err(|problem| Error::convert(&problem))
}

fn null<'v, B: Build<'v>>(build: &B) -> B::Value {
    build.null()
}

/// The documents of a text, up to the first invalid character.
struct Stream<'s> {
    documents: document::Reader<'s>,
    refusal: Option<reader::Refusal>,
}

impl<'s> Stream<'s> {
    fn new(source: &'s reader::Source<'_>) -> Self {
        Self {
            documents: document::Reader::new(&source.text),
            refusal: source.refusal,
        }
    }

    fn next(&mut self) -> Result<Option<document::Document<'s>>, Problem> {
        let next = self.documents.next();
        match self.refusal {
            // go-yaml would have seen that character before it got here.
            Some(refusal) if self.documents.position() >= refusal.noticed_from => {
                Err(Problem::plain(refusal.problem))
            }
            _ => next,
        }
    }
}

/// Builds values for templates, with all numbers as `float64`.
#[derive(Clone, Copy, Debug)]
pub struct Template;

impl<'v> Build<'v> for Template {
    type Value = value::Value;
    type Map = BTreeMap<Str, value::Value>;

    fn null(&self) -> value::Value {
        value::Value::Nil
    }

    fn bool(&self, value: bool) -> value::Value {
        value::Value::Bool(value)
    }

    fn int(&self, value: i64) -> value::Value {
        value::Value::Float64(value as f64)
    }

    fn uint(&self, value: u64) -> value::Value {
        value::Value::Float64(value as f64)
    }

    fn float(&self, value: f64) -> value::Value {
        value::Value::Float64(value)
    }

    fn string(&self, value: Cow<'v, str>) -> value::Value {
        value::Value::String(value.into())
    }

    fn list(&self, items: Vec<value::Value>) -> value::Value {
        value::Value::List(items.into())
    }

    fn map(&self, map: Self::Map) -> value::Value {
        value::Value::Map(value::Map::from_entries(&types::MAP, map))
    }

    fn insert(&self, map: &mut Self::Map, key: Key<'v>, value: value::Value) {
        map.insert(key.into_text().into(), value);
    }
}

/// Builds frozen values with all numbers as floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrozenFloats;

impl<'v> Build<'v> for FrozenFloats {
    type Value = Frozen;
    type Map = Vec<(Str, Frozen)>;

    fn null(&self) -> Frozen {
        Frozen::Nil
    }

    fn bool(&self, value: bool) -> Frozen {
        Frozen::Bool(value)
    }

    fn int(&self, value: i64) -> Frozen {
        Frozen::Float64(value as f64)
    }

    fn uint(&self, value: u64) -> Frozen {
        Frozen::Float64(value as f64)
    }

    fn float(&self, value: f64) -> Frozen {
        Frozen::Float64(value)
    }

    fn string(&self, value: Cow<'v, str>) -> Frozen {
        Frozen::String(value.into())
    }

    fn list(&self, items: Vec<Frozen>) -> Frozen {
        Frozen::List(items.into())
    }

    fn map(&self, map: Self::Map) -> Frozen {
        Frozen::Map(FrozenMap::new(map))
    }

    fn insert(&self, map: &mut Self::Map, key: Key<'v>, value: Frozen) {
        map.push((key.into_text().into(), value));
    }
}

/// Builds JSON values with all numbers as floats, as Go decodes JSON into an `interface {}`.
#[derive(Clone, Copy, Debug)]
pub struct Floats;

/// Builds JSON values that keep integers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers;

macro_rules! build_json {
    ($builder:ident, $value:ident => $int:expr, $uint:expr) => {
        impl<'v> Build<'v> for $builder {
            type Value = Value;
            type Map = Map<String, Value>;

            fn null(&self) -> Value {
                Value::Null
            }

            fn bool(&self, value: bool) -> Value {
                Value::Bool(value)
            }

            fn int(&self, $value: i64) -> Value {
                $int
            }

            fn uint(&self, $value: u64) -> Value {
                $uint
            }

            fn float(&self, value: f64) -> Value {
                Number::from_f64(value).map_or(Value::Null, Value::Number)
            }

            fn string(&self, value: Cow<'v, str>) -> Value {
                Value::String(value.into_owned())
            }

            fn list(&self, items: Vec<Value>) -> Value {
                Value::Array(items)
            }

            fn map(&self, map: Self::Map) -> Value {
                Value::Object(map)
            }

            fn insert(&self, map: &mut Self::Map, key: Key<'v>, value: Value) {
                map.insert(key.into_text().into_owned(), value);
            }
        }
    };
}

build_json!(Floats, value => Value::from(value as f64), Value::from(value as f64));
build_json!(Numbers, value => Value::from(value), Value::from(value));

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(input: &str, json: &str) {
        let expected: Value = serde_json::from_str(json).unwrap();
        assert_eq!(parse_typed(input.as_bytes()).unwrap(), expected, "{input}");
    }

    fn refuses(input: &str, error: &str) {
        assert_eq!(parse(input.as_bytes()).unwrap_err().to_string(), error, "{input}");
    }

    fn writes(json: &str, yaml: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(to_string(&value).unwrap(), yaml, "{json}");
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        reads(
            "[y, No, on, OFF, True, ~, null, '']",
            r#"[true, false, true, false, true, null, null, ""]"#,
        );
        reads(
            "[0755, 0o17, 0x1F, 0b101, 1_000, 08, +12]",
            "[493, 15, 31, 5, 1000, 8.0, 12]",
        );
        reads(
            "[1.50, 1e3, .5, 1:30, 2001-01-01, 0o8, _1]",
            r#"[1.5, 1000.0, 0.5, "1:30", "2001-01-01", "0o8", "_1"]"#,
        );
        reads(
            "[!!str 1, !!float 1, !!binary aGk=, ! 1]",
            r#"["1", 1.0, "hi", "1"]"#,
        );
    }

    #[test]
    fn values_files_have_floats_only() {
        assert_eq!(
            parse(b"a: 9007199254740993").unwrap()["a"],
            Value::from(9_007_199_254_740_992.0)
        );
    }

    #[test]
    fn keys_become_strings() {
        reads(
            "{5: a, 1.5: b, yes: c, n: d}",
            r#"{"5": "a", "1.5": "b", "true": "c", "false": "d"}"#,
        );
        refuses(
            "null: [1]",
            "error converting YAML to JSON: unsupported map key of type: %!s(<nil>), key: <nil>, value: []interface {}{1}",
        );
        refuses(
            "a: {{x}}",
            r#"error converting YAML to JSON: yaml: invalid map key: map[interface {}]interface {}{"x":interface {}(nil)}"#,
        );
    }

    #[test]
    fn merges_are_applied_where_they_stand() {
        reads("{q: 2, <<: {q: 1}}", r#"{"q": 1}"#);
        reads("{<<: {q: 1}, q: 2}", r#"{"q": 2}"#);
        reads("{<<: [{q: 1}, {q: 2, r: 3}]}", r#"{"q": 1, "r": 3}"#);
    }

    #[test]
    fn the_first_document_is_read_and_no_more() {
        reads("a: 1\n---\n]", r#"{"a": 1}"#);
        reads("", "null");
        assert_eq!(
            parse_all(b"a\n---\nb\n...\n---\n").unwrap(),
            ["a".into(), "b".into(), Value::Null]
        );
    }

    #[test]
    fn later_keys_win_unless_reading_is_strict() {
        reads("{a: 1, a: 2}", r#"{"a": 2}"#);
        assert_eq!(
            parse_strict(b"a: 1\nb: 2\na: 3").unwrap_err().to_string(),
            "error converting YAML to JSON: yaml: unmarshal errors:\n  line 3: key \"a\" already set in map"
        );
    }

    #[test]
    fn errors_are_worded_as_in_go() {
        let prefix = "error converting YAML to JSON: yaml: ";
        refuses(
            "a: b: c",
            &format!("{prefix}mapping values are not allowed in this context"),
        );
        refuses(
            "a:\n  - b\n c: d",
            &format!("{prefix}line 2: did not find expected key"),
        );
        refuses(
            "a:\n\tb: c",
            &format!("{prefix}line 2: found character that cannot start any token"),
        );
        refuses("a: \x01", &format!("{prefix}control characters are not allowed"));
        refuses("a: *b", &format!("{prefix}unknown anchor 'b' referenced"));
        refuses("a: &a [*a]", &format!("{prefix}anchor 'a' value contains itself"));
        refuses(
            "a: .inf",
            "error converting YAML to JSON: json: unsupported value: +Inf",
        );
    }

    #[test]
    fn bombs_are_refused() {
        let lines = (1..20).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(",")));
        let bomb = format!("a0: &a0 [x]\n{}", lines.collect::<String>());
        refuses(
            &bomb,
            "error converting YAML to JSON: yaml: document contains excessive aliasing",
        );
        refuses(
            &"[".repeat(5000),
            "error converting YAML to JSON: yaml: exceeded max depth of 1000",
        );
    }

    #[test]
    fn keys_are_written_in_natural_order() {
        writes(
            r#"{"a10": 1, "a9": [], "B": {}, "_": null, "1.5": true}"#,
            "_: null\n\"1.5\": true\nB: {}\na9: []\na10: 1",
        );
    }

    #[test]
    fn scalars_are_quoted_where_they_must() {
        writes(
            r#"["yes", "0123", "", "a: b", "- a", "it's", "'x'", "a\tb", "1:30", "1:60", "😀", "x "]"#,
            "- \"yes\"\n- \"0123\"\n- \"\"\n- 'a: b'\n- '- a'\n- it's\n- '''x'''\n- \"a\\tb\"\n- \"1:30\"\n- 1:60\n- \"\\U0001F600\"\n- 'x '",
        );
    }

    #[test]
    fn texts_of_several_lines_are_blocks() {
        writes(
            r#"{"a": "x\ny\n", "b": ["x\ny", "\nx\n\n"], "c": "x \ny"}"#,
            "a: |\n  x\n  y\nb:\n- |-\n  x\n  y\n- |2+\n\n  x\n\nc: \"x \\ny\"",
        );
    }

    #[test]
    fn long_texts_are_folded() {
        let long = "word ".repeat(20);
        writes(
            &format!(r#"{{"a": "{}"}}"#, long.trim_end()),
            "a: word word word word word word word word word word word word word word word word\n  word word word word",
        );
    }

    #[test]
    fn numbers_are_written_as_after_a_conversion_to_json() {
        writes(
            "[1000000.0, 1e20, 1e21, 1234567.5, 1e-7, -0.0, 12345678901234567890]",
            "- 1000000\n- 1e+20\n- 1e+21\n- 1.2345675e+06\n- 1e-07\n- 0\n- 12345678901234567890",
        );
    }

    #[test]
    fn values_that_json_cannot_hold_are_errors_or_change() {
        assert_eq!(
            to_string(&"\x7f".into()).unwrap_err().to_string(),
            "yaml: control characters are not allowed"
        );
        writes("\"a\u{85}b\"", "a b");
    }
}
