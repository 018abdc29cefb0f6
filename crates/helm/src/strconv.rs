//! Numbers and quoted text as Go's `strconv` reads and writes them.

use std::fmt::Write as _;

/// `ParseInt(text, 0, 64)`, of a text without underscores: the base follows from the prefix.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (digits, radix) = split_radix(text.strip_prefix(['+', '-']).unwrap_or(text));
    signed(text, digits, radix)
}

/// `ParseUint(text, 0, 64)`, of a text without underscores.
pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    let (digits, radix) = split_radix(text);
    unsigned(digits, radix)
}

/// `ParseInt(text, radix, 64)`.
pub(crate) fn parse_int_radix(text: &str, radix: u32) -> Option<i64> {
    signed(text, text.strip_prefix(['+', '-']).unwrap_or(text), radix)
}

fn signed(text: &str, digits: &str, radix: u32) -> Option<i64> {
    let magnitude = unsigned(digits, radix)?;
    if text.starts_with('-') {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        magnitude.try_into().ok()
    }
}

fn unsigned(digits: &str, radix: u32) -> Option<u64> {
    // Rust takes a sign here.
    if digits.starts_with(['+', '-']) {
        None
    } else {
        u64::from_str_radix(digits, radix).ok()
    }
}

fn split_radix(text: &str) -> (&str, u32) {
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    }
}

/// `ParseFloat(text, 64)` of a decimal number, underscores between digits allowed. None for what overflows.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'_'))
    {
        return None;
    }
    let parsed: f64 = if text.contains('_') {
        let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
        let bytes = text.as_bytes();
        let misplaced = |at: usize| {
            bytes[at] == b'_' && !(at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1)))
        };
        if (0..bytes.len()).any(misplaced) {
            return None;
        }
        text.replace('_', "").parse().ok()?
    } else {
        text.parse().ok()?
    };
    parsed.is_finite().then_some(parsed)
}

/// `FormatFloat(number, 'g', -1, 64)`, appended.
pub(crate) fn format_float(number: f64, onto: &mut String) {
    if number.is_finite() {
        format_shortest(number.is_sign_negative(), &format!("{:e}", number.abs()), onto);
    } else {
        format_special(number, onto);
    }
}

/// `FormatFloat(number, 'g', -1, 32)`, appended.
pub(crate) fn format_float32(number: f64, onto: &mut String) {
    let narrow = number as f32;
    if narrow.is_finite() {
        format_shortest(narrow.is_sign_negative(), &format!("{:e}", narrow.abs()), onto);
    } else {
        format_special(narrow.into(), onto);
    }
}

fn format_special(number: f64, onto: &mut String) {
    onto.push_str(if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    });
}

/// From `d.ddde±x`, the shortest digits that Rust finds as Go does.
fn format_shortest(negative: bool, scientific: &str, onto: &mut String) {
    if negative {
        onto.push('-');
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        onto.push_str(mantissa);
        let _ = write!(
            onto,
            "e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        );
        return;
    }
    push_fixed(mantissa, exponent, onto);
}

/// The number `mantissa` × 10^`exponent` without an exponent.
fn push_fixed(mantissa: &str, exponent: i32, onto: &mut String) {
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if exponent < 0 {
        onto.push_str("0.");
        onto.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize - 1));
        onto.push_str(whole);
        onto.push_str(fraction);
        return;
    }
    let shift = exponent as usize;
    onto.push_str(whole);
    if fraction.len() <= shift {
        onto.push_str(fraction);
        onto.extend(std::iter::repeat_n('0', shift - fraction.len()));
    } else {
        onto.push_str(&fraction[..shift]);
        onto.push('.');
        onto.push_str(&fraction[shift..]);
    }
}

/// A float as `encoding/json` writes it: without an exponent between 1e-6 and 1e21.
pub(crate) fn format_json_float(number: f64, onto: &mut String) {
    // Whole numbers, which is what most are, take the short way.
    if number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative()) {
        let _ = write!(onto, "{}", number as i64);
        return;
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number.is_sign_negative() {
        onto.push('-');
    }
    if number != 0.0 && !(-6..21).contains(&exponent) {
        let _ = write!(
            onto,
            "{mantissa}e{}{}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        );
    } else {
        push_fixed(mantissa, exponent, onto);
    }
}

/// `Quote(text)`.
pub(crate) fn quote(text: &str, onto: &mut String) {
    onto.push('"');
    for c in text.chars() {
        match c {
            '"' => onto.push_str("\\\""),
            '\\' => onto.push_str("\\\\"),
            '\x07' => onto.push_str("\\a"),
            '\x08' => onto.push_str("\\b"),
            '\x0c' => onto.push_str("\\f"),
            '\n' => onto.push_str("\\n"),
            '\r' => onto.push_str("\\r"),
            '\t' => onto.push_str("\\t"),
            '\x0b' => onto.push_str("\\v"),
            '\0'..='\x1f' | '\x7f' => {
                let _ = write!(onto, "\\x{:02x}", u32::from(c));
            }
            c => onto.push(c),
        }
    }
    onto.push('"');
}
