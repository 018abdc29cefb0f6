//! Determines the type of a scalar (go-yaml's `resolve.go`, YAML 1.1 as far as it implements it).

use gostd::number;

use super::Problem;
use gostd::strconv;

const PREFIX: &str = "tag:yaml.org,2002:";

/// The type of a scalar, with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond 63 bits.
    Uint(u64),
    Float(f64),
    /// A string that looks like a time; it stays a string.
    Timestamp,
    Str,
}

impl Resolved {
    fn tag(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Uint(_) => "int",
            Self::Float(_) => "float",
            Self::Timestamp => "timestamp",
            Self::Str => "str",
        }
    }
}

/// The type of a plain scalar without a tag.
pub(super) fn plain(text: &str) -> Resolved {
    match text.as_bytes() {
        [b'0'..=b'9' | b'+' | b'-', ..] => number(text, true),
        _ => other(text),
    }
}

/// The type of a scalar with a tag other than `!!binary`. If go-yaml does not know the tag, the scalar is a string.
pub(super) fn tagged(tag: &str, text: &str) -> Result<Resolved, Problem> {
    let Some(wanted @ ("bool" | "int" | "float" | "null" | "timestamp")) = tag.strip_prefix(PREFIX) else {
        return Ok(Resolved::Str);
    };
    let found = match text.as_bytes() {
        [b'0'..=b'9' | b'+' | b'-', ..] => number(text, wanted == "timestamp"),
        _ => other(text),
    };
    match found {
        Resolved::Int(n) if wanted == "float" => Ok(Resolved::Float(n as f64)),
        found if found.tag() == wanted => Ok(found),
        found => Err(Problem::plain(format!(
            "cannot decode !!{} `{text}` as a !!{wanted}",
            found.tag()
        ))),
    }
}

/// Whether a tag marks base64 text.
pub(super) fn is_binary(tag: &str) -> bool {
    tag.strip_prefix(PREFIX) == Some("binary")
}

/// Whether a string must be quoted, because it would have another type without quotes.
pub(super) fn needs_quotes(text: &str) -> bool {
    match text.as_bytes() {
        [] => true,
        [b'0'..=b'9' | b'+' | b'-', ..] => number(text, true) != Resolved::Str || is_base60(text),
        // The first letters of words with a meaning.
        [
            b'.' | b'~' | b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O',
            ..,
        ] => other(text) != Resolved::Str,
        _ => false,
    }
}

/// Whether only go-yaml v3 reads it as a number: `0o-17`.
pub(super) fn is_signed_octal(text: &str) -> bool {
    match text.strip_prefix("0o").or_else(|| text.strip_prefix("0_o")) {
        Some(octal) => strconv::parse_int(octal.replace('_', "").as_bytes(), 8).is_ok(),
        None => false,
    }
}

/// Neither a number nor a time: one of the words of YAML 1.1, or a string.
fn other(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" => Resolved::Float(f64::INFINITY),
        _ if text.starts_with('.') => number::parse_float(text).map_or(Resolved::Str, Resolved::Float),
        _ => Resolved::Str,
    }
}

fn number(text: &str, or_time: bool) -> Resolved {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let bytes = text.as_bytes();
    // Versions, addresses, sizes: most texts that start with a digit are not numbers, which their letters reveal.
    let numeric = |byte: &u8| {
        byte.is_ascii_hexdigit() || matches!(byte, b'+' | b'-' | b'_' | b'.' | b'x' | b'X' | b'o' | b'O')
    };
    let may_be_time = or_time && bytes.get(4) == Some(&b'-');
    if !may_be_time && !bytes.iter().all(numeric) {
        return Resolved::Str;
    }
    if or_time && is_timestamp(text) {
        return Resolved::Timestamp;
    }
    let without_underscores;
    let digits = if text.contains('_') {
        without_underscores = text.replace('_', "");
        &without_underscores
    } else {
        text
    };
    if let Some(n) = number::parse_int(digits) {
        return Resolved::Int(n);
    }
    if let Some(n) = number::parse_uint(digits) {
        return Resolved::Uint(n);
    }
    if is_decimal(digits)
        && let Some(f) = number::parse_float(digits)
    {
        return Resolved::Float(f);
    }
    // Only signs after the prefix get here.
    if let Some(binary) = digits.strip_prefix("0b")
        && let Ok(n) = strconv::parse_int(binary.as_bytes(), 2)
    {
        return Resolved::Int(n);
    }
    Resolved::Str
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)),
        ),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fits = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && digits(mantissa),
    };
    fits && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

/// `[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?`, which older parsers read as a base-60 number.
fn is_base60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
        && text.len() > first.len()
        && parts.all(|part| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
}

/// Whether Go's `time.Parse` accepts it in one of the four layouts of go-yaml:
/// `2006-1-2T15:4:5.999999999Z07:00` (or with `t`), `2006-1-2 15:4:5.999999999`, `2006-1-2`.
fn is_timestamp(text: &str) -> bool {
    timestamp(text.as_bytes()).is_some()
}

fn timestamp(text: &[u8]) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    if !year.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let year = year
        .iter()
        .fold(0_u32, |year, digit| year * 10 + u32::from(digit - b'0'));
    let (month, rest) = one_or_two_digits(rest.strip_prefix(b"-")?)?;
    let (day, rest) = one_or_two_digits(rest.strip_prefix(b"-")?)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => return None,
    };
    if day < 1 || day > last {
        return None;
    }
    match rest {
        [] => Some(()),
        [b'T' | b't', rest @ ..] => zone(time(rest)?),
        // One space of a layout matches any number of them.
        [b' ', ..] => time(&rest[rest.iter().take_while(|byte| **byte == b' ').count()..])?
            .is_empty()
            .then_some(()),
        _ => None,
    }
}

fn time(text: &[u8]) -> Option<&[u8]> {
    let (hour, rest) = one_or_two_digits(text)?;
    let (minute, rest) = one_or_two_digits(rest.strip_prefix(b":")?)?;
    let (second, rest) = one_or_two_digits(rest.strip_prefix(b":")?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(match rest {
        [b'.' | b',', b'0'..=b'9', ..] => {
            let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            &rest[1 + digits..]
        }
        _ => rest,
    })
}

fn zone(text: &[u8]) -> Option<()> {
    match *text {
        [b'Z'] => Some(()),
        [
            b'+' | b'-',
            h1 @ b'0'..=b'9',
            h2 @ b'0'..=b'9',
            b':',
            m1 @ b'0'..=b'9',
            m2 @ b'0'..=b'9',
        ] => {
            let two = |tens: u8, ones: u8| (tens - b'0') * 10 + ones - b'0';
            (two(h1, h2) <= 24 && two(m1, m2) <= 60).then_some(())
        }
        _ => None,
    }
}

fn one_or_two_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let digit = |byte: u8| u32::from(byte - b'0');
    match text {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', rest @ ..] => Some((digit(*a) * 10 + digit(*b), rest)),
        [a @ b'0'..=b'9', rest @ ..] => Some((digit(*a), rest)),
        _ => None,
    }
}
