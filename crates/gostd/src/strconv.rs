//! Go's `strconv`, appending to strings: `ParseInt` of a given base, floats and quoted text. Numbers in Go's syntax
//! are parsed by [`crate::number`], which writes bytes.

use std::fmt::Write as _;

use crate::number;
use crate::quote::quote as quoted;

/// The text is not a number, or the number does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber {
    /// Returned by Go with the error: the nearest number that fits, or 0. Some callers ignore the error.
    pub nearest: i64,
}

/// `strconv.ParseInt(text, radix, 64)`: an optional sign and digits.
pub fn parse_int(text: &[u8], radix: u32) -> Result<i64, NotANumber> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(|byte| char::from(*byte).is_digit(radix)) {
        return Err(NotANumber { nearest: 0 });
    }
    let too_large = NotANumber {
        nearest: if negative { i64::MIN } else { i64::MAX },
    };
    let number = digits.iter().try_fold(0_i64, |number, byte| {
        let digit = i64::from(char::from(*byte).to_digit(radix)?);
        number
            .checked_mul(radix.into())?
            .checked_add(if negative { -digit } else { digit })
    });
    number.ok_or(too_large)
}

/// `FormatFloat(number, 'g', -1, 64)`, appended.
pub fn format_float(number: f64, onto: &mut String) {
    format_general(number, false, onto);
}

/// `FormatFloat(number, 'g', -1, 32)`, appended.
pub fn format_float32(number: f64, onto: &mut String) {
    format_general(f64::from(number as f32), true, onto);
}

fn format_general(number: f64, single: bool, onto: &mut String) {
    let mut text = Vec::with_capacity(24);
    number::append_float(&mut text, number, b'g', None, single);
    onto.extend(text.into_iter().map(char::from));
}

/// A finite float as written by `encoding/json`: without an exponent between 1e-6 and 1e21.
pub fn format_json_float(number: f64, onto: &mut String) {
    // Fast path for whole numbers, which are the most common.
    if number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative()) {
        let _ = write!(onto, "{}", number as i64);
    } else {
        let mut text = Vec::with_capacity(24);
        number::append_json_float(&mut text, number, false);
        onto.extend(text.into_iter().map(char::from));
    }
}

/// `Quote(text)`, appended.
pub fn quote(text: &str, onto: &mut String) {
    onto.push_str(&String::from_utf8_lossy(&quoted(text.as_bytes())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_go_reads_them() {
        for (text, radix, expected) in [
            ("12", 10, Ok(12)),
            ("-12", 10, Ok(-12)),
            ("+5", 10, Ok(5)),
            ("", 10, Err(0)),
            ("+", 10, Err(0)),
            ("1_0", 10, Err(0)),
            (" 1", 10, Err(0)),
            ("9223372036854775807", 10, Ok(i64::MAX)),
            ("9223372036854775808", 10, Err(i64::MAX)),
            ("-9223372036854775808", 10, Ok(i64::MIN)),
            ("-99999999999999999999", 10, Err(i64::MIN)),
            ("777", 8, Ok(511)),
            ("8", 8, Err(0)),
        ] {
            let expected = expected.map_err(|nearest| NotANumber { nearest });
            assert_eq!(
                parse_int(text.as_bytes(), radix),
                expected,
                "{text} in base {radix}"
            );
        }
    }
}
