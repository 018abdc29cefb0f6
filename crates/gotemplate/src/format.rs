//! Formats values as text: Go's `fmt`, with all its verbs and flags.

use crate::{
    number, quote, rune,
    string::Str,
    types::Kind,
    unicode,
    value::{List, MAX_DEPTH, Map, Object, TooDeep, Value},
};

/// Maximum length of a text printed in one call. Go accepts widths like `%1000000d` any number of times.
const MAX_LENGTH: usize = 16 << 20;

/// Why a value could not be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A cycle, most likely.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// More than 16 MiB.
    #[error("text is too long to be printed")]
    TooLong,
}

impl From<Error> for crate::function::Error {
    fn from(error: Error) -> Self {
        Self::from_error(error)
    }
}

type Result<T = (), E = Error> = std::result::Result<T, E>;

/// `fmt.Sprintf("%v", value)`: what `toString`, `quote` and `join` start from.
pub fn to_string(value: &Value) -> Result<Str> {
    if let Value::String(text) = value {
        return Ok(text.clone());
    }
    let mut out = Vec::new();
    append(&mut out, value)?;
    Ok(out.into())
}

/// Appends `%v`.
pub fn append(out: &mut Vec<u8>, value: &Value) -> Result {
    Printer::new(out).argument(value, 'v')
}

/// `fmt.Sprintf`.
pub fn sprintf(format: &[u8], arguments: &[Value]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(format.len() + 16);
    Printer::new(&mut out).printf(format, arguments)?;
    Ok(out)
}

/// `fmt.Sprint`: a space between two operands when neither is a string.
pub fn sprint(arguments: &[Value]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out);
    let mut after_string = false;
    for (i, argument) in arguments.iter().enumerate() {
        let is_string = argument.kind() == Kind::String;
        if i > 0 && !is_string && !after_string {
            printer.out.push(b' ');
        }
        printer.argument(argument, 'v')?;
        after_string = is_string;
    }
    Ok(out)
}

/// `fmt.Sprintln`.
pub fn sprintln(arguments: &[Value]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out);
    for (i, argument) in arguments.iter().enumerate() {
        if i > 0 {
            printer.out.push(b' ');
        }
        printer.argument(argument, 'v')?;
    }
    out.push(b'\n');
    Ok(out)
}

/// Appends what `{{ value }}` prints: like [`append`], but `<no value>` for nil, and pointers are followed.
pub(crate) fn append_printed(out: &mut Vec<u8>, value: &Value) -> Result {
    match value {
        Value::Nil => out.extend_from_slice(b"<no value>"),
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Object(object) => match object.printed() {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => Printer::new(out).object(&**object, 'v', 0, true)?,
        },
        other => append(out, other)?,
    }
    Ok(())
}

/// Appends `%v` of what a pointer points to.
pub(crate) fn append_followed(out: &mut Vec<u8>, value: &Value) -> Result {
    match value {
        Value::Object(object) if object.ty().kind() == Kind::Pointer => {
            Printer::new(out).object(&**object, 'v', 0, true)
        }
        other => append(out, other),
    }
}

#[expect(clippy::struct_excessive_bools, reason = "these are Go's flags")]
#[derive(Clone, Copy, Default)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    /// `%+v`.
    plus_v: bool,
    /// `%#v`.
    sharp_v: bool,
}

struct Printer<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    flags: Flags,
    /// No methods of the value are called while a mismatch is reported.
    erroring: bool,
    /// The name of the defined type whose underlying value is being printed.
    defined: Option<&'static str>,
}

impl<'o> Printer<'o> {
    fn new(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        Self {
            out,
            start,
            flags: Flags::default(),
            erroring: false,
            defined: None,
        }
    }

    fn printf(&mut self, format: &[u8], arguments: &[Value]) -> Result {
        let mut cursor = Cursor {
            format,
            at: 0,
            argument: 0,
            reordered: false,
            good_index: true,
        };
        while let Some(percent) = format[cursor.at..].iter().position(|byte| *byte == b'%') {
            self.out
                .extend_from_slice(&format[cursor.at..cursor.at + percent]);
            cursor.at += percent + 1;
            self.directive(&mut cursor, arguments)?;
        }
        self.out.extend_from_slice(&format[cursor.at..]);
        if !cursor.reordered && cursor.argument < arguments.len() {
            self.extra(&arguments[cursor.argument..])?;
        }
        Ok(())
    }

    /// One directive, starting after the percent sign.
    fn directive(&mut self, cursor: &mut Cursor<'_>, arguments: &[Value]) -> Result {
        self.flags = Flags::default();
        cursor.good_index = true;
        while let Some(flag) = cursor.peek() {
            match flag {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            cursor.at += 1;
        }
        let mut after_index = cursor.index(arguments.len());
        self.width(cursor, arguments, &mut after_index);
        self.precision(cursor, arguments, &mut after_index);
        if !after_index {
            cursor.index(arguments.len());
        }
        let Some((verb, len)) = rune::decode(&cursor.format[cursor.at..]) else {
            self.out.extend_from_slice(b"%!(NOVERB)");
            return Ok(());
        };
        cursor.at += len;
        match verb {
            '%' => self.out.push(b'%'),
            _ if !cursor.good_index => self.complain(verb, "(BADINDEX)"),
            _ => match arguments.get(cursor.argument) {
                None => self.complain(verb, "(MISSING)"),
                Some(argument) => {
                    if verb == 'v' {
                        self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
                        self.flags.plus_v = std::mem::take(&mut self.flags.plus);
                    }
                    cursor.argument += 1;
                    self.argument(argument, verb)?;
                }
            },
        }
        Ok(())
    }

    fn width(&mut self, cursor: &mut Cursor<'_>, arguments: &[Value], after_index: &mut bool) {
        if cursor.accept(b'*') {
            match cursor.star(arguments) {
                Some(width) => {
                    self.flags.width = Some(width.unsigned_abs() as usize);
                    if width < 0 {
                        self.flags.minus = true;
                        self.flags.zero = false;
                    }
                }
                None => self.out.extend_from_slice(b"%!(BADWIDTH)"),
            }
            *after_index = false;
        } else {
            self.flags.width = cursor.number();
            if *after_index && self.flags.width.is_some() {
                cursor.good_index = false;
            }
        }
    }

    fn precision(&mut self, cursor: &mut Cursor<'_>, arguments: &[Value], after_index: &mut bool) {
        // A point at the end of the format is the verb.
        if cursor.at + 1 >= cursor.format.len() || !cursor.accept(b'.') {
            return;
        }
        if *after_index {
            cursor.good_index = false;
        }
        *after_index = cursor.index(arguments.len());
        if cursor.accept(b'*') {
            let precision = cursor
                .star(arguments)
                .and_then(|precision| usize::try_from(precision).ok());
            self.flags.precision = precision;
            if precision.is_none() {
                self.out.extend_from_slice(b"%!(BADPREC)");
            }
            *after_index = false;
        } else {
            self.flags.precision = Some(cursor.number().unwrap_or(0));
        }
    }

    fn complain(&mut self, verb: char, what: &str) {
        self.out.extend_from_slice(b"%!");
        self.char(verb);
        self.out.extend_from_slice(what.as_bytes());
    }

    fn extra(&mut self, arguments: &[Value]) -> Result {
        self.flags = Flags::default();
        self.out.extend_from_slice(b"%!(EXTRA ");
        for (i, argument) in arguments.iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.out.extend_from_slice(argument.type_name().as_bytes());
            if !argument.is_untyped_nil() {
                self.out.push(b'=');
                self.argument(argument, 'v')?;
            }
        }
        self.out.push(b')');
        Ok(())
    }

    /// Go's `printArg`.
    fn argument(&mut self, value: &Value, verb: char) -> Result {
        match (verb, value) {
            ('T' | 'v', Value::Nil) => self.pad(b"<nil>"),
            ('T', _) => self.text(value.type_name().as_bytes()),
            // Go's `%w` wraps errors only in `Errorf`.
            (_, Value::Nil) | ('w', Value::List(_) | Value::Map(_) | Value::Object(_)) => {
                self.bad_verb(value, verb, 0)?;
            }
            ('p', _) => self.pointer(value, 'p', 0)?,
            _ => self.value(value, verb, 0)?,
        }
        Ok(())
    }

    /// Go's `printValue`; nil is a nil interface inside a container.
    fn value(&mut self, value: &Value, verb: char, depth: usize) -> Result {
        if depth > MAX_DEPTH {
            return Err(TooDeep.into());
        }
        if self.out.len() - self.start > MAX_LENGTH {
            return Err(Error::TooLong);
        }
        match value {
            Value::Nil if self.flags.sharp_v => self.out.extend_from_slice(b"interface {}(nil)"),
            Value::Nil => self.out.extend_from_slice(b"<nil>"),
            Value::Bool(b) => match verb {
                't' | 'v' => self.pad(if *b { b"true" } else { b"false" }),
                _ => self.bad_verb(value, verb, depth)?,
            },
            Value::Float32(f) => self.float_verb(value, f64::from(*f), true, verb, depth)?,
            Value::Float64(f) => self.float_verb(value, *f, false, verb, depth)?,
            Value::Complex(re, im) => self.complex(value, *re, *im, verb, depth)?,
            Value::String(text) => self.string_verb(value, text, verb, depth)?,
            Value::Bytes(bytes) => self.bytes(value, bytes, verb, depth)?,
            Value::List(list) => self.list(list, verb, depth)?,
            Value::Map(map) => self.map(map, verb, depth)?,
            Value::Object(object)
                if object.ty().kind() == Kind::Pointer && depth > 0 && !self.has_text(&**object, verb) =>
            {
                self.pointer(value, verb, depth)?;
            }
            Value::Object(object) => self.object(&**object, verb, depth, false)?,
            Value::Func(_) => self.pointer(value, verb, depth)?,
            _ => match (value.as_i64(), value.as_u64()) {
                (Some(n), _) => self.integer_verb(value, n.unsigned_abs(), n < 0, true, verb, depth)?,
                (None, Some(n)) => self.integer_verb(value, n, false, false, verb, depth)?,
                (None, None) => {}
            },
        }
        Ok(())
    }

    fn bad_verb(&mut self, value: &Value, verb: char, depth: usize) -> Result {
        let erroring = std::mem::replace(&mut self.erroring, true);
        self.complain(verb, "(");
        let name = self.defined.take().unwrap_or(value.type_name());
        self.out.extend_from_slice(name.as_bytes());
        if !value.is_untyped_nil() {
            self.out.push(b'=');
            self.value(value, 'v', depth + 1)?;
        }
        self.out.push(b')');
        self.erroring = erroring;
        Ok(())
    }

    fn list(&mut self, list: &List, verb: char, depth: usize) -> Result {
        if list.ty().element().kind() == Kind::Uint8 && matches!(verb, 's' | 'q' | 'x' | 'X') {
            let bytes: Vec<u8> = list
                .iter()
                .filter_map(|item| item.as_u64().map(|n| n as u8))
                .collect();
            return self.bytes(&Value::Nil, &bytes.into(), verb, depth);
        }
        if self.flags.sharp_v {
            self.out.extend_from_slice(list.ty().name().as_bytes());
            if list.is_nil() {
                self.out.extend_from_slice(b"(nil)");
                return Ok(());
            }
        }
        let (open, separator, close) = self.brackets();
        self.out.push(open);
        for (i, item) in list.iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(separator);
            }
            self.value(item, verb, depth + 1)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn map(&mut self, map: &Map, verb: char, depth: usize) -> Result {
        if self.flags.sharp_v {
            self.out.extend_from_slice(map.ty().name().as_bytes());
            if map.is_nil() {
                self.out.extend_from_slice(b"(nil)");
                return Ok(());
            }
        } else {
            self.out.extend_from_slice(b"map");
        }
        let (open, separator, close) = self.brackets();
        self.out.push(open);
        for (i, (key, item)) in map.borrow().iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(separator);
            }
            self.value(&Value::String(key.clone()), verb, depth + 1)?;
            self.out.push(b':');
            self.value(item, verb, depth + 1)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn brackets(&self) -> (u8, &'static [u8], u8) {
        if self.flags.sharp_v {
            (b'{', b", ", b'}')
        } else {
            (b'[', b" ", b']')
        }
    }

    /// Whether the verb prints the text of the object's own `String` or `Error` method.
    fn has_text(&self, object: &dyn Object, verb: char) -> bool {
        let wants_text = matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') && !self.flags.sharp_v && !self.erroring;
        wants_text && object.text().is_some()
    }

    /// `followed` means that a pointer has been followed already and that the methods of the value are not called.
    fn object(&mut self, object: &dyn Object, verb: char, depth: usize, followed: bool) -> Result {
        if !followed && self.has_text(object, verb) {
            let text = object.text().unwrap_or_default();
            return self.string_verb(&Value::Nil, &text.into(), verb, depth);
        }
        if let Some(value) = object.underlying() {
            self.defined = Some(object.ty().name());
            let result = self.value(&value, verb, depth + 1);
            self.defined = None;
            return result;
        }
        let mut name = object.ty().name();
        if object.ty().kind() == Kind::Pointer && !followed {
            self.out.push(b'&');
            name = name.trim_start_matches('*');
        }
        if self.flags.sharp_v {
            self.out.extend_from_slice(name.as_bytes());
        }
        self.out.push(b'{');
        for (i, (field, value)) in object.fields().iter().enumerate() {
            if i > 0 {
                self.out
                    .extend_from_slice(if self.flags.sharp_v { b", " } else { b" " });
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.out.extend_from_slice(field.as_bytes());
                self.out.push(b':');
            }
            self.value(value, verb, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Addresses differ from run to run in Go; here they are all the same.
    fn pointer(&mut self, value: &Value, verb: char, depth: usize) -> Result {
        let has_address = match value {
            Value::Func(_) | Value::Map(_) | Value::List(_) | Value::Bytes(_) => true,
            Value::Object(object) => object.ty().kind() == Kind::Pointer,
            _ => false,
        };
        if !has_address {
            return self.bad_verb(value, verb, depth);
        }
        let address = if value.is_nil() { 0 } else { 0xc0_0000_0000 };
        match verb {
            'v' if self.flags.sharp_v => {
                self.out
                    .extend_from_slice(format!("({})(", value.type_name()).as_bytes());
                self.hex_integer(address, true);
                self.out.push(b')');
            }
            'v' | 'p' => self.hex_integer(address, !self.flags.sharp),
            'b' | 'o' | 'd' | 'x' | 'X' => self.integer_verb(value, address, false, false, verb, depth)?,
            _ => self.bad_verb(value, verb, depth)?,
        }
        Ok(())
    }

    fn string_verb(&mut self, value: &Value, text: &Str, verb: char, depth: usize) -> Result {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.text(text),
            'x' => self.hex_bytes(text, b"0123456789abcdefx"),
            'X' => self.hex_bytes(text, b"0123456789ABCDEFX"),
            'q' => self.quoted(text),
            _ => self.bad_verb(value, verb, depth)?,
        }
        Ok(())
    }

    fn bytes(&mut self, value: &Value, bytes: &Str, verb: char, depth: usize) -> Result {
        match verb {
            'v' if self.flags.sharp_v => {
                self.out
                    .extend_from_slice(if depth == 0 { b"[]byte{" } else { b"[]uint8{" });
                for (i, byte) in bytes.iter().enumerate() {
                    if i > 0 {
                        self.out.extend_from_slice(b", ");
                    }
                    self.hex_integer(u64::from(*byte), true);
                }
                self.out.push(b'}');
            }
            's' => self.text(bytes),
            'x' => self.hex_bytes(bytes, b"0123456789abcdefx"),
            'X' => self.hex_bytes(bytes, b"0123456789ABCDEFX"),
            'q' => self.quoted(bytes),
            'p' => self.pointer(value, verb, depth)?,
            _ => {
                self.out.push(b'[');
                for (i, byte) in bytes.iter().enumerate() {
                    if i > 0 {
                        self.out.push(b' ');
                    }
                    let verb = if verb == 'v' { 'd' } else { verb };
                    self.value(&Value::Uint8(*byte), verb, depth + 1)?;
                }
                self.out.push(b']');
            }
        }
        Ok(())
    }

    /// With or without a leading `0x`, regardless of the flags.
    fn hex_integer(&mut self, n: u64, prefix: bool) {
        let sharp = std::mem::replace(&mut self.flags.sharp, prefix);
        self.integer(n, false, 16, 'v', b"0123456789abcdefx");
        self.flags.sharp = sharp;
    }

    fn integer_verb(
        &mut self,
        value: &Value,
        n: u64,
        negative: bool,
        signed: bool,
        verb: char,
        depth: usize,
    ) -> Result {
        // The verbs for characters use the bits, not the number.
        let bits = if negative { n.wrapping_neg() } else { n };
        match verb {
            'v' if self.flags.sharp_v && !signed => self.hex_integer(n, true),
            'v' | 'd' => self.integer(n, negative, 10, verb, b"0123456789abcdefx"),
            'b' => self.integer(n, negative, 2, verb, b"0123456789abcdefx"),
            'o' | 'O' => self.integer(n, negative, 8, verb, b"0123456789abcdefx"),
            'x' => self.integer(n, negative, 16, verb, b"0123456789abcdefx"),
            'X' => self.integer(n, negative, 16, verb, b"0123456789ABCDEFX"),
            'c' => {
                let c = character(bits);
                self.pad(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            'q' => {
                let mut text = Vec::new();
                quote::append_quoted_rune(&mut text, character(bits), self.flags.plus);
                self.pad(&text);
            }
            'U' => self.code_point(bits),
            _ => self.bad_verb(value, verb, depth)?,
        }
        Ok(())
    }

    fn integer(&mut self, mut n: u64, negative: bool, base: u64, verb: char, digits: &[u8; 17]) {
        let signed = negative || self.flags.plus || self.flags.space;
        let mut precision = 0;
        if let Some(wanted) = self.flags.precision {
            precision = wanted;
            // A precision and a value of zero print nothing but padding.
            if wanted == 0 && n == 0 {
                let width = self.flags.width.unwrap_or(0);
                self.out.resize(self.out.len() + width, b' ');
                return;
            }
        } else if let (true, false, Some(width)) = (self.flags.zero, self.flags.minus, self.flags.width) {
            precision = width.saturating_sub(usize::from(signed));
        }
        // Built from right to left.
        let mut text = Vec::with_capacity(precision + 24);
        loop {
            text.push(digits[(n % base) as usize]);
            n /= base;
            if n == 0 {
                break;
            }
        }
        if text.len() < precision {
            text.resize(precision, b'0');
        }
        if self.flags.sharp {
            match base {
                2 => text.extend_from_slice(b"b0"),
                8 if text.last() != Some(&b'0') => text.push(b'0'),
                16 => text.extend_from_slice(&[digits[16], b'0']),
                _ => {}
            }
        }
        if verb == 'O' {
            text.extend_from_slice(b"o0");
        }
        if negative {
            text.push(b'-');
        } else if self.flags.plus {
            text.push(b'+');
        } else if self.flags.space {
            text.push(b' ');
        }
        text.reverse();
        self.pad_with_spaces(&text);
    }

    /// `%U`.
    fn code_point(&mut self, bits: u64) {
        let precision = self.flags.precision.unwrap_or(4).max(4);
        let mut text = format!("U+{bits:0precision$X}").into_bytes();
        let shown = u32::try_from(bits)
            .ok()
            .and_then(char::from_u32)
            .filter(|c| unicode::is_print(*c));
        if let (true, Some(c)) = (self.flags.sharp, shown) {
            text.extend_from_slice(format!(" '{c}'").as_bytes());
        }
        self.pad_with_spaces(&text);
    }

    fn float_verb(&mut self, value: &Value, f: f64, single: bool, verb: char, depth: usize) -> Result {
        match verb {
            'v' => self.float(f, b'g', None, single),
            'b' | 'g' | 'G' | 'x' | 'X' => self.float(f, verb as u8, None, single),
            'f' | 'e' | 'E' => self.float(f, verb as u8, Some(6), single),
            'F' => self.float(f, b'f', Some(6), single),
            _ => self.bad_verb(value, verb, depth)?,
        }
        Ok(())
    }

    fn complex(&mut self, value: &Value, re: f64, im: f64, verb: char, depth: usize) -> Result {
        if !matches!(verb, 'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E') {
            return self.bad_verb(value, verb, depth);
        }
        self.out.push(b'(');
        self.float_verb(value, re, false, verb, depth)?;
        let plus = std::mem::replace(&mut self.flags.plus, true);
        self.float_verb(value, im, false, verb, depth)?;
        self.out.extend_from_slice(b"i)");
        self.flags.plus = plus;
        Ok(())
    }

    fn float(&mut self, f: f64, format: u8, precision: Option<usize>, single: bool) {
        let precision = self.flags.precision.or(precision);
        let mut text = vec![b'+'];
        number::append_float(&mut text, f, format, precision, single);
        if matches!(text[1], b'-' | b'+') {
            text.remove(0);
        }
        if self.flags.space && text[0] == b'+' && !self.flags.plus {
            text[0] = b' ';
        }
        if !f.is_finite() {
            if f.is_nan() && !self.flags.space && !self.flags.plus {
                text.remove(0);
            }
            self.pad_with_spaces(&text);
            return;
        }
        if self.flags.sharp && format != b'b' {
            keep_point_and_zeros(&mut text, format, precision);
        }
        if !self.flags.plus && text[0] == b'+' {
            self.pad(&text[1..]);
            return;
        }
        match self.flags.width {
            // The sign precedes the zeros.
            Some(width) if self.flags.zero && !self.flags.minus && width > text.len() => {
                self.out.push(text[0]);
                self.out.resize(self.out.len() + width - text.len(), b'0');
                self.out.extend_from_slice(&text[1..]);
            }
            _ => self.pad(&text),
        }
    }

    fn text(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        self.pad(text);
    }

    fn truncated<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        match self.flags.precision {
            Some(precision) => {
                let len = rune::runes(text).take(precision).map(|(_, len)| len).sum();
                &text[..len]
            }
            None => text,
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        let mut quoted = Vec::with_capacity(text.len() + 2);
        if self.flags.sharp && quote::can_backquote(text) {
            quoted.push(b'`');
            quoted.extend_from_slice(text);
            quoted.push(b'`');
        } else {
            quote::append_quoted(&mut quoted, text, self.flags.plus);
        }
        self.pad(&quoted);
    }

    fn hex_bytes(&mut self, bytes: &[u8], digits: &[u8; 17]) {
        let bytes = &bytes[..bytes.len().min(self.flags.precision.unwrap_or(usize::MAX))];
        let mut text = Vec::with_capacity(2 * bytes.len());
        for (i, byte) in bytes.iter().enumerate() {
            if self.flags.space && i > 0 {
                text.push(b' ');
            }
            if self.flags.sharp && (self.flags.space || i == 0) {
                text.extend_from_slice(&[b'0', digits[16]]);
            }
            text.extend_from_slice(&[digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
        self.pad(&text);
    }

    /// Pads, with zeros if the flag is set.
    fn pad(&mut self, text: &[u8]) {
        let zero = self.flags.zero && !self.flags.minus;
        self.pad_with(text, if zero { b'0' } else { b' ' });
    }

    fn pad_with_spaces(&mut self, text: &[u8]) {
        self.pad_with(text, b' ');
    }

    fn pad_with(&mut self, text: &[u8], padding: u8) {
        let missing = match self.flags.width {
            Some(width) if width > 0 => width.saturating_sub(rune::count(text)),
            _ => 0,
        };
        if self.flags.minus {
            self.out.extend_from_slice(text);
            self.out.resize(self.out.len() + missing, padding);
        } else {
            self.out.resize(self.out.len() + missing, padding);
            self.out.extend_from_slice(text);
        }
    }

    fn char(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// U+FFFD if the number is not a character.
fn character(bits: u64) -> char {
    u32::try_from(bits)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The sharp flag: always a decimal point, and `%g` keeps its trailing zeros. The text starts with a sign.
fn keep_point_and_zeros(text: &mut Vec<u8>, format: u8, precision: Option<usize>) {
    let mut digits = match format {
        b'g' | b'G' | b'x' => precision.map_or(6, |precision| precision as i64),
        _ => 0,
    };
    let mut tail = Vec::new();
    let (mut has_point, mut significant) = (false, false);
    let mut i = 1;
    while i < text.len() {
        match text[i] {
            b'.' => has_point = true,
            b'p' | b'P' => tail = text.split_off(i),
            b'e' | b'E' if format != b'x' && format != b'X' => tail = text.split_off(i),
            byte => {
                significant |= byte != b'0';
                digits -= i64::from(significant);
            }
        }
        i += 1;
    }
    if !has_point {
        // A leading zero counts as one digit.
        if text.len() == 2 && text[1] == b'0' {
            digits -= 1;
        }
        text.push(b'.');
    }
    text.resize(text.len() + usize::try_from(digits).unwrap_or(0), b'0');
    text.append(&mut tail);
}

/// The current position of `printf` in its format and its arguments.
struct Cursor<'f> {
    format: &'f [u8],
    at: usize,
    argument: usize,
    reordered: bool,
    good_index: bool,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Digits. If the number is too large, returns none and consumes the rest of the format.
    fn number(&mut self) -> Option<usize> {
        let (number, at) = parse_number(self.format, self.at, self.format.len());
        self.at = at;
        number
    }

    /// The integer argument of a `*`.
    fn star(&mut self, arguments: &[Value]) -> Option<i64> {
        let value = arguments.get(self.argument)?;
        self.argument += 1;
        let number = value
            .as_i64()
            .or_else(|| value.as_u64().and_then(|n| i64::try_from(n).ok()))?;
        (-TOO_LARGE..=TOO_LARGE).contains(&number).then_some(number)
    }

    /// An explicit argument index like `[3]`. Returns whether there was one.
    fn index(&mut self, arguments: usize) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        self.reordered = true;
        let rest = &self.format[self.at..];
        let Some(close) = rest
            .iter()
            .position(|byte| *byte == b']')
            .filter(|_| rest.len() >= 3)
        else {
            self.good_index = false;
            self.at += 1;
            return false;
        };
        let number = match parse_number(rest, 1, close) {
            (Some(number), end) if end == close => Some(number),
            _ => None,
        };
        self.at += close + 1;
        match number {
            Some(number @ 1..) if number <= arguments => self.argument = number - 1,
            _ => self.good_index = false,
        }
        number.is_some()
    }
}

/// Widths, precisions and indexes beyond this are refused.
const TOO_LARGE: i64 = 1_000_000;

/// Go's `parsenum`: the number and its end.
fn parse_number(text: &[u8], start: usize, end: usize) -> (Option<usize>, usize) {
    let mut number = None;
    let mut at = start;
    while at < end && text[at].is_ascii_digit() {
        let so_far = number.unwrap_or(0);
        if so_far > TOO_LARGE as usize {
            return (None, end);
        }
        number = Some(so_far * 10 + usize::from(text[at] - b'0'));
        at += 1;
    }
    (number, at)
}

/// Prints like `%v`, cut short where the value contains itself.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = Vec::new();
        if append(&mut out, self).is_err() {
            out.truncate(1000);
            out.extend_from_slice("…".as_bytes());
        }
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// Prints the type, and the value like `%v`.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({self})", self.type_name())
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", Value::List(self.clone()))
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", Value::Map(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, arguments: &[Value], expected: &str) {
        let text = sprintf(format.as_bytes(), arguments).unwrap();
        assert_eq!(String::from_utf8_lossy(&text), expected, "{format}");
    }

    #[test]
    fn mismatches_are_reported_in_the_text() {
        check("%d", &["x".into()], "%!d(string=x)");
        check("%s", &[Value::Int(5)], "%!s(int=5)");
        check("%s", &[Value::Nil], "%!s(<nil>)");
        check("%d", &[], "%!d(MISSING)");
        check("%", &[], "%!(NOVERB)");
        check("%[3]d", &[1i64.into()], "%!d(BADINDEX)");
        check(
            "x",
            &[1i64.into(), Value::Nil, "a".into()],
            "x%!(EXTRA int=1, <nil>, string=a)",
        );
        check(
            "%d",
            &[Value::list(["a".into(), Value::Nil])],
            "[%!d(string=a) <nil>]",
        );
    }

    #[test]
    fn a_map_that_contains_itself_is_an_error() {
        let _guard = crate::value::CycleGuard::new();
        let map = Map::new();
        map.insert("self", map.clone());
        assert_eq!(sprint(&[map.into()]), Err(Error::TooDeep(TooDeep)));
    }

    #[test]
    fn many_wide_columns_are_an_error() {
        let format = b"%1000000d".repeat(100);
        let arguments = vec![Value::Int(1); 100];
        assert_eq!(sprintf(&format, &arguments), Err(Error::TooLong));
    }

    #[test]
    fn types_have_names() {
        check("%T", &[Value::list([])], "[]interface {}");
        check("%T", &[Value::bytes(Str::EMPTY)], "[]uint8");
    }
}
