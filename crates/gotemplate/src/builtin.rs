//! The functions of the language itself: Go's `text/template/funcs.go`.

use std::cmp::Ordering;

use crate::{
    format,
    function::Error,
    number,
    reflect::Reflect,
    rune,
    string::Str,
    types::{self, Kind, Type},
    unicode,
    value::{List, Object, Value},
};

/// A function of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is Go's function of the same name")]
pub enum Builtin {
    And,
    Call,
    Eq,
    Ge,
    Gt,
    Html,
    Index,
    Js,
    Le,
    Len,
    Lt,
    Ne,
    Not,
    Or,
    Print,
    Printf,
    Println,
    Slice,
    UrlQuery,
}

type Result<T = Reflect, E = Error> = std::result::Result<T, E>;

impl Builtin {
    /// The function of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"and" => Self::And,
            b"call" => Self::Call,
            b"eq" => Self::Eq,
            b"ge" => Self::Ge,
            b"gt" => Self::Gt,
            b"html" => Self::Html,
            b"index" => Self::Index,
            b"js" => Self::Js,
            b"le" => Self::Le,
            b"len" => Self::Len,
            b"lt" => Self::Lt,
            b"ne" => Self::Ne,
            b"not" => Self::Not,
            b"or" => Self::Or,
            b"print" => Self::Print,
            b"printf" => Self::Printf,
            b"println" => Self::Println,
            b"slice" => Self::Slice,
            b"urlquery" => Self::UrlQuery,
            _ => return None,
        })
    }

    /// The types of the parameters, and whether the last one takes any number of values.
    pub(crate) fn signature(self) -> (&'static [&'static Type], bool) {
        static VALUES: [&Type; 2] = [&types::REFLECT_VALUE, &types::REFLECT_VALUE];
        static PRINTF: [&Type; 2] = [&types::STRING, &types::INTERFACE];
        match self {
            Self::Len | Self::Not => (&VALUES[..1], false),
            Self::Ge | Self::Gt | Self::Le | Self::Lt | Self::Ne => (&VALUES, false),
            Self::And | Self::Call | Self::Eq | Self::Index | Self::Or | Self::Slice => (&VALUES, true),
            Self::Html | Self::Js | Self::Print | Self::Println | Self::UrlQuery => (&PRINTF[1..], true),
            Self::Printf => (&PRINTF, true),
        }
    }

    /// How many times longer than its arguments the result can be; 0 if the limit on printed text bounds it already.
    pub(crate) fn expansion(self) -> usize {
        match self {
            // Up to `\u0000` for each byte.
            Self::Html | Self::Js | Self::Printf | Self::UrlQuery => 6,
            Self::And
            | Self::Call
            | Self::Eq
            | Self::Ge
            | Self::Gt
            | Self::Index
            | Self::Le
            | Self::Len
            | Self::Lt
            | Self::Ne
            | Self::Not
            | Self::Or
            | Self::Print
            | Self::Println
            | Self::Slice => 0,
        }
    }

    /// Calls the function with arguments whose number and types have been checked. The evaluator implements `and`,
    /// `or` and `call` itself.
    pub(crate) fn call(self, arguments: &mut Vec<Reflect>) -> Result {
        let boolean = |b: bool| Ok(Reflect::concrete(Value::Bool(b)));
        let text = |text: Vec<u8>| Ok(Reflect::concrete(Value::String(text.into())));
        match self {
            Self::Eq => boolean(eq(arguments)?),
            Self::Ne => boolean(!eq(arguments)?),
            Self::Lt => boolean(lt(arguments)?),
            Self::Le => boolean(le(arguments)?),
            Self::Gt => boolean(!le(arguments)?),
            Self::Ge => boolean(!lt(arguments)?),
            Self::Not => boolean(!arguments[0].value.truth()),
            Self::Len => len(&arguments[0]).map(|len| Reflect::concrete(Value::Int(len as i64))),
            Self::Index => {
                let indexes = arguments.split_off(1);
                index(arguments.pop().unwrap_or_default(), &indexes)
            }
            Self::Slice => slice(&arguments[0].value, &arguments[1..]),
            Self::Print => text(format::sprint(&values(arguments))?),
            Self::Println => text(format::sprintln(&values(arguments))?),
            Self::Printf => {
                let arguments = values(arguments);
                let format = arguments[0].as_str().cloned().unwrap_or_default();
                text(format::sprintf(&format, &arguments[1..])?)
            }
            Self::Html => text(html(&plain_text(arguments)?)),
            Self::Js => text(js(&plain_text(arguments)?)),
            Self::UrlQuery => text(url_query(&plain_text(arguments)?)),
            Self::And | Self::Or | Self::Call => Ok(arguments.pop().unwrap_or_default()),
        }
    }
}

fn values(arguments: &mut Vec<Reflect>) -> Vec<Value> {
    arguments.drain(..).map(|argument| argument.value).collect()
}

/// Go's `evalArgs`, used by the escaping functions: `print`, with each argument formatted as an action would print
/// it.
fn plain_text(arguments: &[Reflect]) -> Result<Str> {
    if let [
        Reflect {
            value: Value::String(text),
            ..
        },
    ] = arguments
    {
        return Ok(text.clone());
    }
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|argument| match &argument.value {
            Value::Nil => Ok("<no value>".into()),
            // Go finds methods with a pointer receiver only on values behind a pointer.
            Value::Object(object) if object.ty().kind() == Kind::Pointer => {
                let mut text = Vec::new();
                format::append_printed(&mut text, &argument.value)?;
                Ok(Value::object(Printed(text.into())))
            }
            value => Ok(value.clone()),
        })
        .collect::<Result<_>>()?;
    Ok(format::sprint(&arguments)?.into())
}

/// The text of a struct as operand of `print`: not a string, so it is separated by spaces.
struct Printed(Str);

impl Object for Printed {
    fn ty(&self) -> &'static Type {
        static PRINTED: Type = Type::structure("text");
        &PRINTED
    }

    fn text(&self) -> Option<String> {
        Some(self.0.lossy().into_owned())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// The kinds that can be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basic {
    Bool,
    Complex,
    Int,
    Float,
    String,
    Uint,
}

fn basic(value: &Value) -> Option<Basic> {
    match value.kind() {
        Kind::Bool => Some(Basic::Bool),
        Kind::Complex128 => Some(Basic::Complex),
        Kind::Float32 | Kind::Float64 => Some(Basic::Float),
        Kind::String => Some(Basic::String),
        kind if kind.is_signed() => Some(Basic::Int),
        kind if kind.is_unsigned() => Some(Basic::Uint),
        _ => None,
    }
}

/// The underlying value of a defined basic type.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(object) => object.underlying().unwrap_or_else(|| value.clone()),
        value => value.clone(),
    }
}

fn incompatible(a: &Value, b: &Value) -> Error {
    Error::new(format!(
        "incompatible types for comparison: {} and {}",
        a.type_name(),
        b.type_name()
    ))
}

fn eq(arguments: &[Reflect]) -> Result<bool> {
    let (first, others) = arguments
        .split_first()
        .ok_or_else(|| Error::new("missing argument for comparison"))?;
    if others.is_empty() {
        return Err(Error::new("missing argument for comparison"));
    }
    for other in others {
        if eq_pair(&first.value, &other.value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn eq_pair(a: &Value, b: &Value) -> Result<bool> {
    if let (Value::String(a), Value::String(b)) = (a, b) {
        return Ok(a == b);
    }
    match (basic(a), basic(b)) {
        (Some(Basic::Int), Some(Basic::Uint)) | (Some(Basic::Uint), Some(Basic::Int)) => {
            Ok(compare_integers(a, b) == Some(Ordering::Equal))
        }
        (x, y) if x != y => {
            if a.is_untyped_nil() || b.is_untyped_nil() {
                Ok(false)
            } else {
                Err(incompatible(a, b))
            }
        }
        (None, _) => eq_other(a, b),
        (Some(Basic::Float), _) => Ok(a.as_f64() == b.as_f64()),
        (Some(Basic::Int), _) => Ok(a.as_i64() == b.as_i64()),
        (Some(Basic::Uint), _) => Ok(a.as_u64() == b.as_u64()),
        (Some(Basic::Bool | Basic::Complex | Basic::String), _) => Ok(plain(a).deep_equal(&plain(b))?),
    }
}

/// Equality of values without an order: they can be compared with nil only, except where Go can compare them.
fn eq_other(a: &Value, b: &Value) -> Result<bool> {
    let either_is_untyped = a.is_untyped_nil() || b.is_untyped_nil();
    if a.kind() != b.kind() && !either_is_untyped {
        let text = format::sprintf(
            b"non-comparable types %s: %s, %s: %v",
            &[a.clone(), a.type_name().into(), b.type_name().into(), b.clone()],
        )?;
        return Err(Error::new(String::from_utf8_lossy(&text)));
    }
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() == b.is_nil());
    }
    if let (Value::Object(x), Value::Object(y)) = (a, b) {
        return if x.ty().kind() == Kind::Pointer {
            Ok(std::rc::Rc::ptr_eq(x, y))
        } else {
            Ok(a.deep_equal(b)?)
        };
    }
    let text = format::sprintf(b"non-comparable type %s: %s", &[b.clone(), b.type_name().into()])?;
    Err(Error::new(String::from_utf8_lossy(&text)))
}

fn compare_integers(a: &Value, b: &Value) -> Option<Ordering> {
    let wide = |value: &Value| {
        value
            .as_i64()
            .map(i128::from)
            .or_else(|| value.as_u64().map(i128::from))
    };
    Some(wide(a)?.cmp(&wide(b)?))
}

fn lt(arguments: &[Reflect]) -> Result<bool> {
    let (a, b) = (&arguments[0].value, &arguments[1].value);
    let (Some(x), Some(y)) = (basic(a), basic(b)) else {
        return Err(Error::new("invalid type for comparison"));
    };
    match (x, y) {
        (Basic::Int | Basic::Uint, Basic::Int | Basic::Uint) => {
            Ok(compare_integers(a, b) == Some(Ordering::Less))
        }
        (x, y) if x != y => Err(incompatible(a, b)),
        (Basic::Float, _) => Ok(a.as_f64() < b.as_f64()),
        (Basic::String, _) => Ok(plain(a).as_str() < plain(b).as_str()),
        (Basic::Bool | Basic::Complex | Basic::Int | Basic::Uint, _) => {
            Err(Error::new("invalid type for comparison"))
        }
    }
}

fn le(arguments: &[Reflect]) -> Result<bool> {
    Ok(lt(arguments)? || eq(arguments)?)
}

/// The panic of Go's reflection when `Type` is called on an invalid value.
const TYPE_OF_NOTHING: &str = "reflect: call of reflect.Value.Type on zero Value";

fn len(item: &Reflect) -> Result<usize> {
    match &item.value {
        _ if item.is_nil_interface() => Err(Error::new("len of nil pointer")),
        Value::Nil => Err(Error::new(TYPE_OF_NOTHING)),
        Value::String(text) => Ok(text.len()),
        Value::Bytes(text) => Ok(text.len()),
        Value::List(list) => Ok(list.len()),
        Value::Map(map) => Ok(map.len()),
        value => match plain(value) {
            Value::String(text) => Ok(text.len()),
            _ => Err(Error::new(format!(
                "len of type {}",
                pointed_to(value.type_name())
            ))),
        },
    }
}

/// The name of the type that a pointer type points to.
fn pointed_to(name: &str) -> &str {
    name.strip_prefix('*').unwrap_or(name)
}

fn index(item: Reflect, indexes: &[Reflect]) -> Result {
    let mut item = item.unwrapped();
    if !item.is_valid() {
        return Err(Error::new("index of untyped nil"));
    }
    for index in indexes {
        if item.value.is_untyped_nil() {
            return Err(Error::new("index of nil pointer"));
        }
        let index = &index.value;
        item = match &item.value {
            Value::String(text) => {
                let i = index_argument(index, text.len())?;
                let byte = text
                    .get(i)
                    .ok_or_else(|| Error::new("reflect: string index out of range"))?;
                Reflect::concrete(Value::Uint8(*byte))
            }
            Value::Bytes(bytes) => {
                let i = index_argument(index, bytes.len())?;
                let byte = bytes
                    .get(i)
                    .ok_or_else(|| Error::new("reflect: slice index out of range"))?;
                Reflect::concrete(Value::Uint8(*byte))
            }
            Value::List(list) => {
                let i = index_argument(index, list.len())?;
                let element = list
                    .get(i)
                    .ok_or_else(|| Error::new("reflect: slice index out of range"))?;
                Reflect::element(element.clone(), list.ty().element())
            }
            Value::Map(map) => {
                let key = match index {
                    Value::String(key) => key,
                    Value::Nil => return Err(Error::new("value is nil; should be of type string")),
                    other => {
                        return Err(Error::new(format!(
                            "value has type {}; should be string",
                            other.type_name()
                        )));
                    }
                };
                let element = map.ty().element();
                Reflect::element(map.get(key).unwrap_or_else(|| element.zero()), element)
            }
            other => {
                return Err(Error::new(format!(
                    "can't index item of type {}",
                    pointed_to(other.type_name())
                )));
            }
        };
    }
    Ok(item)
}

/// An index of at most `cap`.
fn index_argument(index: &Value, cap: usize) -> Result<usize> {
    let number = match (index.as_i64(), index.as_u64()) {
        (Some(n), _) => n,
        (None, Some(n)) => n as i64,
        (None, None) if index.is_untyped_nil() => {
            return Err(Error::new("cannot index slice/array with nil"));
        }
        (None, None) => {
            return Err(Error::new(format!(
                "cannot index slice/array with type {}",
                index.type_name()
            )));
        }
    };
    usize::try_from(number)
        .ok()
        .filter(|index| *index <= cap)
        .ok_or_else(|| Error::new(format!("index out of range: {number}")))
}

fn slice(item: &Value, indexes: &[Reflect]) -> Result {
    if item.is_untyped_nil() {
        return Err(Error::new("slice of untyped nil"));
    }
    if indexes.len() > 3 {
        return Err(Error::new(format!("too many slice indexes: {}", indexes.len())));
    }
    let cap = match item {
        Value::String(_) if indexes.len() == 3 => return Err(Error::new("cannot 3-index slice a string")),
        Value::String(text) => text.len(),
        Value::Bytes(text) => text.len(),
        Value::List(list) => list.len(),
        other => {
            return Err(Error::new(format!(
                "can't slice item of type {}",
                pointed_to(other.type_name())
            )));
        }
    };
    let mut bounds = [0, cap, cap];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        // Go does not unwrap the interface here.
        if index.interface {
            return Err(Error::new("cannot index slice/array with type interface {}"));
        }
        *bound = index_argument(&index.value, cap)?;
    }
    let [low, high, max] = bounds;
    if low > high {
        return Err(Error::new(format!("invalid slice index: {low} > {high}")));
    }
    if indexes.len() == 3 && high > max {
        return Err(Error::new(format!("invalid slice index: {high} > {max}")));
    }
    Ok(Reflect::concrete(match item {
        Value::String(text) => Value::String(text[low..high].into()),
        Value::Bytes(bytes) => Value::bytes(&bytes[low..high]),
        Value::List(list) => Value::List(List::with_type(list.ty(), list[low..high].to_vec())),
        other => other.clone(),
    }))
}

/// Go's `HTMLEscapeString`.
fn html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            _ => out.push(byte),
        }
    }
    out
}

/// Go's `JSEscapeString`.
fn js(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for (c, len) in rune::runes(text) {
        let bytes = &text[at..at + len];
        at += len;
        match c {
            '\\' => out.extend_from_slice(b"\\\\"),
            '\'' => out.extend_from_slice(b"\\'"),
            '"' => out.extend_from_slice(b"\\\""),
            '<' | '>' | '&' | '=' | '\0'..' ' => escape_js(&mut out, c),
            c if c.is_ascii() || unicode::is_print(c) => out.extend_from_slice(bytes),
            c => escape_js(&mut out, c),
        }
    }
    out
}

fn escape_js(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(format!("\\u{:04X}", u32::from(c)).as_bytes());
}

/// Go's `url.QueryEscape`.
fn url_query(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' ' => out.push(b'+'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte),
            _ => {
                out.push(b'%');
                out.extend_from_slice(format!("{byte:02X}").as_bytes());
            }
        }
    }
    out
}

/// Appends what an action prints for a value; strings and other simple values are appended directly.
pub(crate) fn append_printed(out: &mut Vec<u8>, value: &Value) -> Result<()> {
    match value {
        Value::String(text) => out.extend_from_slice(text),
        Value::Int(n) | Value::Int64(n) => {
            if *n < 0 {
                out.push(b'-');
            }
            number::append_int(out, n.unsigned_abs());
        }
        Value::Float64(f) => number::append_float(out, *f, b'g', None, false),
        Value::Bool(b) => out.extend_from_slice(if *b { b"true" } else { b"false" }),
        other => format::append_printed(out, other)?,
    }
    Ok(())
}
