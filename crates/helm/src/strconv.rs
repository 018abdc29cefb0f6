//! Numbers and quoted text as Go writes them, into strings.

use std::fmt::Write as _;

use gotemplate::{number, quote};

/// `FormatFloat(number, 'g', -1, 64)`, appended.
pub(crate) fn format_float(number: f64, onto: &mut String) {
    format_general(number, false, onto);
}

/// `FormatFloat(number, 'g', -1, 32)`, appended.
pub(crate) fn format_float32(number: f64, onto: &mut String) {
    format_general(f64::from(number as f32), true, onto);
}

fn format_general(number: f64, single: bool, onto: &mut String) {
    let mut text = Vec::with_capacity(24);
    number::append_float(&mut text, number, b'g', None, single);
    onto.extend(text.into_iter().map(char::from));
}

/// A finite float as `encoding/json` writes it: without an exponent between 1e-6 and 1e21.
pub(crate) fn format_json_float(number: f64, onto: &mut String) {
    // Whole numbers, which is what most are, take the short way.
    if number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative()) {
        let _ = write!(onto, "{}", number as i64);
    } else {
        let mut text = Vec::with_capacity(24);
        number::append_json_float(&mut text, number, false);
        onto.extend(text.into_iter().map(char::from));
    }
}

/// `ParseInt(text, radix, 64)`.
pub(crate) fn parse_int_radix(text: &str, radix: u32) -> Option<i64> {
    i64::from_str_radix(text, radix).ok()
}

/// `Quote(text)`, appended.
pub(crate) fn quote(text: &str, onto: &mut String) {
    onto.push_str(&String::from_utf8_lossy(&quote::quote(text.as_bytes())));
}
