//! Texts: the functions of sprig's `strings.go` and of its libraries.
//!
//! Strings are bytes: lengths and positions count bytes and may split a character, as in Go.

use gostd::quote::append_quoted;
use gostd::rune::runes;
use gotemplate::format;
use gotemplate::function::{Call, Error, Rest};
use gotemplate::string::Str;
use gotemplate::types;
use gotemplate::value::{List, Map, Value};

use super::MAX_TEXT;
use super::budget::{MEMORY_OF_A_PART, MEMORY_OF_A_SLICE};
use crate::context::Context;
use gostd::unicode;

/// The text of a value as in sprig: strings and bytes unchanged, everything else printed.
pub(super) fn text_of(value: &Value) -> Result<Str, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bytes(text) => Ok(Str::clone(text)),
        other => Ok(format::to_string(other)?),
    }
}

pub(super) fn to_string(value: Value) -> Result<Str, Error> {
    text_of(&value)
}

pub(super) fn trim(text: Str) -> Str {
    unicode::trim(&text, unicode::is_space).into()
}

pub(super) fn trim_all(call: &mut Call, cut: Str, text: Str) -> Result<Str, Error> {
    // At worst each character of one text is compared with each character of the other.
    call.take_steps((cut.len() as u64).saturating_mul(text.len() as u64) / 64)?;
    Ok(unicode::trim(&text, |c| runes(&cut).any(|(candidate, _)| candidate == c)).into())
}

pub(super) fn trim_suffix(suffix: Str, text: Str) -> Str {
    match text.strip_suffix(suffix.as_bytes()) {
        Some(rest) => rest.into(),
        None => text,
    }
}

pub(super) fn trim_prefix(prefix: Str, text: Str) -> Str {
    match text.strip_prefix(prefix.as_bytes()) {
        Some(rest) => rest.into(),
        None => text,
    }
}

pub(super) fn upper(text: Str) -> Str {
    unicode::map_runes(&text, unicode::to_upper).into()
}

pub(super) fn lower(text: Str) -> Str {
    unicode::map_runes(&text, unicode::to_lower).into()
}

/// Capitalizes every letter after a separator: an ASCII character that is not a letter, digit or underscore, or a
/// Unicode space.
pub(super) fn title(text: Str) -> Str {
    let mut previous = ' ';
    unicode::map_runes(&text, |c| {
        let starts = is_title_separator(std::mem::replace(&mut previous, c));
        if starts { unicode::to_title(c) } else { c }
    })
    .into()
}

fn is_title_separator(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_alphanumeric() && c != '_';
    }
    !gostd::unicode::is_letter(c) && !gostd::unicode::is_digit(c) && unicode::is_space(c)
}

/// Lowercases the first letter of every word.
pub(super) fn untitle(text: Str) -> Str {
    let mut starts = true;
    unicode::map_runes(&text, |c| {
        if unicode::is_space(c) {
            starts = true;
            return c;
        }
        if std::mem::take(&mut starts) {
            unicode::to_lower(c)
        } else {
            c
        }
    })
    .into()
}

pub(super) fn swapcase(text: Str) -> Str {
    let mut starts = true;
    unicode::map_runes(&text, |c| {
        if unicode::is_upper(c) || unicode::is_title(c) {
            starts = false;
            unicode::to_lower(c)
        } else if unicode::is_lower(c) {
            if std::mem::take(&mut starts) {
                unicode::to_title(c)
            } else {
                unicode::to_upper(c)
            }
        } else {
            starts = unicode::is_space(c);
            c
        }
    })
    .into()
}

pub(super) fn repeat(call: &mut Call, count: i64, text: Str) -> Result<Str, Error> {
    let count = repetitions(&text, count)?;
    call.check_memory(text.len() * count)?;
    Ok(text.repeat(count).into())
}

/// The number of spaces before a line.
fn padding(spaces: i64) -> Result<usize, Error> {
    repetitions(b" ", spaces)
}

fn repetitions(text: &[u8], count: i64) -> Result<usize, Error> {
    let count = usize::try_from(count).map_err(|_| Error::new("strings: negative Repeat count"))?;
    // Go is only limited by memory; one call of a template must not take all of it.
    match text
        .len()
        .checked_mul(count)
        .filter(|length| i64::try_from(*length).is_ok())
    {
        Some(length) if length <= MAX_TEXT => Ok(count),
        Some(_) => Err(Error::new("runtime error: makeslice: len out of range")),
        None => Err(Error::new("strings: Repeat output length overflow")),
    }
}

pub(super) fn substr(start: i64, end: i64, text: Str) -> Result<Str, Error> {
    let length = text.len() as i64;
    let out_of_range =
        |bounds: String| Error::new(format!("runtime error: slice bounds out of range {bounds}"));
    let (from, to) = match (start, end) {
        (..0, ..0) => return Err(out_of_range(format!("[:{end}]"))),
        (..0, _) if end > length => return Err(out_of_range(format!("[:{end}] with length {length}"))),
        (..0, _) => (0, end),
        _ if end < 0 || end > length => (start, length),
        _ => (start, end),
    };
    if from > to {
        return Err(out_of_range(format!("[{from}:{to}]")));
    }
    Ok(text[from as usize..to as usize].into())
}

pub(super) fn trunc(count: i64, text: Str) -> Str {
    let length = text.len() as i64;
    if count < 0 && length + count > 0 {
        return text[(length + count) as usize..].into();
    }
    if count >= 0 && length > count {
        return text[..count as usize].into();
    }
    text
}

/// Inspects bytes where it means characters: if there is a space to remove, other non-ASCII text is garbled, as in
/// Go.
pub(super) fn nospace(call: &mut Call, text: Str) -> Result<Str, Error> {
    call.check_memory(text.len() * size_of::<char>())?;
    let kept: Vec<char> = latin1(&text).filter(|c| !unicode::is_space(*c)).collect();
    Ok(if kept.len() == text.len() {
        text
    } else {
        kept.into_iter().collect::<String>().into()
    })
}

/// The first byte of every word, as a character.
pub(super) fn initials(text: Str) -> Str {
    let mut starts = true;
    latin1(&text)
        .filter(|c| {
            if unicode::is_space(*c) {
                starts = true;
                return false;
            }
            std::mem::take(&mut starts)
        })
        .collect::<String>()
        .into()
}

/// Go's `rune(s[i])`.
fn latin1(text: &[u8]) -> impl Iterator<Item = char> {
    text.iter().map(|byte| char::from(*byte))
}

pub(super) fn abbrev(width: i64, text: Str) -> Str {
    if width < 4 {
        text
    } else {
        abbreviated(&text, 0, width).into()
    }
}

pub(super) fn abbrevboth(left: i64, right: i64, text: Str) -> Str {
    if right < 4 || (left > 0 && right < 7) {
        text
    } else {
        abbreviated(&text, left, right).into()
    }
}

/// goutils' `AbbreviateFull`: at most `width` bytes around `offset`, with dots for omitted text. Empty where goutils
/// returns an error, which sprig ignores.
fn abbreviated(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    let length = text.len() as i64;
    if text.is_empty() || width < 4 {
        return Vec::new();
    }
    if length <= width {
        return text.to_vec();
    }
    let room = width - 3;
    let offset = offset.min(length);
    let offset = if length - offset < room {
        length - room
    } else {
        offset
    };
    if offset <= 4 {
        return [&text[..room as usize], b"..."].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + room < length {
        return [b"...".as_slice(), &abbreviated(&text[offset as usize..], 0, room)].concat();
    }
    [b"...", &text[(length - room) as usize..]].concat()
}

pub(super) fn contains(part: Str, text: Str) -> bool {
    find(&text, &part).is_some()
}

pub(super) fn has_prefix(prefix: Str, text: Str) -> bool {
    text.starts_with(&prefix)
}

pub(super) fn has_suffix(suffix: Str, text: Str) -> bool {
    text.ends_with(&suffix)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, part)
}

pub(super) fn replace(call: &mut Call, old: Str, new: Str, text: Str) -> Result<Str, Error> {
    let most = most_parts(&text, &old) + 2;
    let length = new.len().saturating_mul(most).saturating_add(text.len());
    call.check_memory(length.saturating_add(most * MEMORY_OF_A_SLICE))?;
    let parts = if old.is_empty() {
        around_every_rune(&text)
    } else {
        split_bytes(&text, &old, None)
    };
    let length = new.len().saturating_mul(parts.len()).saturating_add(text.len());
    if length > MAX_TEXT {
        return Err(Error::new("text is too long"));
    }
    Ok(parts.join(new.as_bytes()).into())
}

/// An empty old text matches before, between and after all characters.
fn around_every_rune(text: &[u8]) -> Vec<&[u8]> {
    let mut parts = vec![b"".as_slice()];
    parts.extend(explode(text, None));
    parts.push(b"");
    parts
}

/// Upper limit on the number of parts of a split text.
fn most_parts(text: &[u8], separator: &[u8]) -> usize {
    if separator.is_empty() {
        return text.len();
    }
    memchr::memmem::find_iter(text, separator).count() + 1
}

/// Checks that there is memory for the parts of a text, and takes the memory for their own texts.
fn take_parts(call: &mut Call, text: &[u8], separator: &[u8], limit: Option<usize>) -> Result<(), Error> {
    let parts = most_parts(text, separator).min(limit.unwrap_or(usize::MAX));
    call.check_memory(parts.saturating_mul(MEMORY_OF_A_SLICE + MEMORY_OF_A_PART))?;
    call.take_memory(text.len())
}

/// Go's `strings.SplitN`; without a limit, `Split`.
fn split_bytes<'t>(text: &'t [u8], separator: &[u8], limit: Option<usize>) -> Vec<&'t [u8]> {
    if limit == Some(0) {
        return Vec::new();
    }
    if separator.is_empty() {
        return explode(text, limit);
    }
    let most = limit.map_or(usize::MAX, |limit| limit - 1);
    let mut parts = Vec::new();
    let mut start = 0;
    for at in memchr::memmem::find_iter(text, separator).take(most) {
        parts.push(&text[start..at]);
        start = at + separator.len();
    }
    parts.push(&text[start..]);
    parts
}

/// The characters; the last part holds the rest.
fn explode(text: &[u8], limit: Option<usize>) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((_, width)) = gostd::rune::decode(rest) {
        if limit.is_some_and(|limit| parts.len() + 1 == limit) {
            parts.push(rest);
            break;
        }
        parts.push(&rest[..width]);
        rest = &rest[width..];
    }
    parts
}

pub(super) fn plural(one: Str, many: Str, count: i64) -> Str {
    if count == 1 { one } else { many }
}

pub(super) fn wrap(call: &mut Call, width: i64, text: Str) -> Result<Str, Error> {
    wrapped(call, &text, width, b"\n", false).map(Str::from)
}

pub(super) fn wrap_with(call: &mut Call, width: i64, separator: Str, text: Str) -> Result<Str, Error> {
    let separator: &[u8] = if separator.is_empty() { b"\n" } else { &separator };
    wrapped(call, &text, width, separator, true).map(Str::from)
}

/// goutils' `WrapCustom`: lines of at most `width` bytes, broken at spaces; longer words are broken too if
/// `cut_words`.
fn wrapped(
    call: &mut Call,
    text: &[u8],
    width: i64,
    separator: &[u8],
    cut_words: bool,
) -> Result<Vec<u8>, Error> {
    let width = usize::try_from(width).unwrap_or(0).max(1);
    // A line can be as short as one character, if a space follows it.
    call.check_memory(
        (text.len() / 2)
            .saturating_mul(separator.len())
            .saturating_add(text.len()),
    )?;
    let lines = text.len() / width;
    let mut out = Vec::with_capacity(lines.saturating_mul(separator.len()).saturating_add(text.len()));
    let mut rest = text;
    while rest.len() > width {
        if rest[0] == b' ' {
            rest = &rest[1..];
            continue;
        }
        let space_within = rest[..=width].iter().rposition(|byte| *byte == b' ');
        let space = || {
            rest[width..]
                .iter()
                .position(|byte| *byte == b' ')
                .map(|at| width + at)
        };
        let (line, behind) = match space_within {
            Some(space) => (space, space + 1),
            None if cut_words => (width, width),
            None => match space() {
                Some(space) => (space, space + 1),
                None => break,
            },
        };
        out.extend_from_slice(&rest[..line]);
        out.extend_from_slice(separator);
        rest = &rest[behind..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

pub(super) fn indent(call: &mut Call, spaces: i64, text: Str) -> Result<Str, Error> {
    indented(call, b"", spaces, &text)
}

pub(super) fn nindent(call: &mut Call, spaces: i64, text: Str) -> Result<Str, Error> {
    indented(call, b"\n", spaces, &text)
}

/// Indents every line, including empty ones.
fn indented(call: &mut Call, before: &[u8], spaces: i64, text: &[u8]) -> Result<Str, Error> {
    let spaces = padding(spaces)?;
    let lines = memchr::memchr_iter(b'\n', text).count() + 1;
    let length = spaces
        .saturating_mul(lines)
        .saturating_add(text.len() + before.len());
    if length > MAX_TEXT {
        return Err(Error::new("text is too long"));
    }
    call.check_memory(length)?;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(before);
    let mut start = 0;
    for line_break in memchr::memchr_iter(b'\n', text) {
        out.resize(out.len() + spaces, b' ');
        out.extend_from_slice(&text[start..=line_break]);
        start = line_break + 1;
    }
    out.resize(out.len() + spaces, b' ');
    out.extend_from_slice(&text[start..]);
    Ok(out.into())
}

pub(super) fn cat(call: &mut Call, values: Rest<Value>) -> Result<Str, Error> {
    let mut texts = Texts::default();
    for value in values.iter().filter(|value| !value.is_untyped_nil()) {
        texts.push(format::to_string(value)?);
        call.check_memory(texts.length)?;
    }
    texts.joined(call, b" ")
}

pub(super) fn quote(call: &mut Call, values: Rest<Value>) -> Result<Str, Error> {
    join_each(call, &values, text_of, |text, out| {
        append_quoted(out, text, false);
    })
}

/// Inner quotes are not escaped.
pub(super) fn squote(call: &mut Call, values: Rest<Value>) -> Result<Str, Error> {
    let printed = |value: &Value| Ok(format::to_string(value)?);
    join_each(call, &values, printed, |text, out| {
        out.push(b'\'');
        out.extend_from_slice(text);
        out.push(b'\'');
    })
}

/// Joined with spaces, without nils.
fn join_each(
    call: &mut Call,
    values: &[Value],
    text_of: impl Fn(&Value) -> Result<Str, Error>,
    append: impl Fn(&Str, &mut Vec<u8>),
) -> Result<Str, Error> {
    // `\x00` for one byte.
    const LONGEST_ESCAPE: usize = 4;
    let mut out = Vec::with_capacity(64);
    for value in values.iter().filter(|value| !value.is_untyped_nil()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        let text = text_of(value)?;
        call.check_memory(out.len().saturating_add(LONGEST_ESCAPE * text.len()))?;
        append(&text, &mut out);
    }
    Ok(out.into())
}

/// The texts of values, as long as there is memory for them.
#[derive(Default)]
struct Texts {
    texts: Vec<Str>,
    /// Total length in bytes.
    length: usize,
}

impl Texts {
    /// The texts of a list without its nils; for any other value, its text.
    fn of(call: &mut Call, value: &Value) -> Result<Self, Error> {
        let mut texts = Self::default();
        match value {
            Value::Nil => {}
            Value::List(list) => {
                call.take_steps(list.len() as u64 / 4)?;
                call.check_memory(list.len() * size_of::<Str>())?;
                for item in list.iter().filter(|item| !item.is_untyped_nil()) {
                    let text = text_of(item)?;
                    if !matches!(item, Value::String(_)) {
                        call.take_memory(text.len())?;
                    }
                    texts.push(text);
                }
            }
            Value::Bytes(bytes) => {
                call.check_memory(bytes.len() * MEMORY_OF_A_PART)?;
                bytes.iter().for_each(|byte| texts.push(byte.to_string().into()));
            }
            other => texts.push(text_of(other)?),
        }
        Ok(texts)
    }

    fn push(&mut self, text: Str) {
        self.length = self.length.saturating_add(text.len());
        self.texts.push(text);
    }

    fn joined(self, call: &mut Call, separator: &[u8]) -> Result<Str, Error> {
        let separators = separator.len().saturating_mul(self.texts.len());
        let length = self.length.saturating_add(separators);
        call.check_memory(length)?;
        call.take_steps(length as u64 / 64)?;
        Ok(self.texts.join(separator).into())
    }
}

pub(super) fn to_strings(call: &mut Call, value: Value) -> Result<Value, Error> {
    match &value {
        // Go passes a []string through, even a nil one.
        Value::List(list) if list.ty().is(&types::STRINGS) => Ok(value),
        _ => Ok(Value::strings(Texts::of(call, &value)?.texts)),
    }
}

pub(super) fn join(call: &mut Call, separator: Str, value: Value) -> Result<Str, Error> {
    Texts::of(call, &value)?.joined(call, &separator)
}

pub(super) fn sort_alpha(call: &mut Call, value: Value) -> Result<List, Error> {
    let mut texts = match &value {
        // Go sorts in place: a nil list stays nil.
        Value::List(list) if list.is_nil() && list.ty().is(&types::STRINGS) => return Ok(list.clone()),
        Value::Nil => {
            let mut texts = Texts::default();
            texts.push(text_of(&value)?);
            texts
        }
        _ => Texts::of(call, &value)?,
    };
    // Each text is compared with some others, at worst to its end.
    let comparisons = u64::from(texts.texts.len().max(1).ilog2() + 1);
    call.take_steps((texts.length as u64 / 64 + texts.texts.len() as u64 / 4).saturating_mul(comparisons))?;
    texts.texts.sort();
    Ok(List::strings(texts.texts))
}

pub(super) fn split(call: &mut Call, separator: Str, text: Str) -> Result<Map, Error> {
    take_parts(call, &text, &separator, None)?;
    Ok(numbered(&split_bytes(&text, &separator, None)))
}

pub(super) fn splitn(call: &mut Call, separator: Str, limit: i64, text: Str) -> Result<Map, Error> {
    let limit = usize::try_from(limit).ok();
    take_parts(call, &text, &separator, limit)?;
    Ok(numbered(&split_bytes(&text, &separator, limit)))
}

fn numbered(parts: &[&[u8]]) -> Map {
    let entries = parts.iter().enumerate();
    let entries = entries
        .map(|(index, part)| (format!("_{index}").into(), Value::String((*part).into())))
        .collect();
    Map::from_entries(&types::STRING_MAP, entries)
}

pub(super) fn split_list(call: &mut Call, separator: Str, text: Str) -> Result<List, Error> {
    take_parts(call, &text, &separator, None)?;
    Ok(List::strings(split_bytes(&text, &separator, None)))
}

pub(super) fn shuffle(call: &mut Call, text: Str) -> Result<Str, Error> {
    call.check_memory(text.len() * size_of::<char>())?;
    call.take_steps(text.len() as u64 * super::random::STEPS_OF_A_DRAW)?;
    let context = call.host::<Context>()?;
    let mut characters: Vec<char> = runes(&text).map(|(c, _)| c).collect();
    for last in (1..characters.len()).rev() {
        let other = context.random_below(last as u64 + 1) as usize;
        characters.swap(last, other);
    }
    Ok(characters.into_iter().collect::<String>().into())
}
