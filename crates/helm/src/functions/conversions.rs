//! Conversions of any value to numbers: spf13/cast 1.7, which never fails but returns 0.

use gostd::number;
use gotemplate::format;
use gotemplate::function::{Error, Int64};
use gotemplate::string::Str;
use gotemplate::value::Value;

use crate::times::CalendarName;
use gostd::strconv;

/// `cast.ToInt64`.
pub(super) fn int64_of(value: &Value) -> i64 {
    match value {
        Value::Bool(b) => (*b).into(),
        Value::Float32(f) => truncated((*f).into()),
        Value::Float64(f) => truncated(*f),
        Value::String(text) => text
            .to_str()
            .and_then(|text| number::parse_int(without_zero_decimals(text)))
            .unwrap_or(0),
        // Of the defined integer types, cast knows only these two; a duration gives 0.
        Value::Object(_) => value.as_object::<CalendarName>().map_or(0, CalendarName::number),
        integer => match (integer.as_i64(), integer.as_u64()) {
            (Some(n), _) => n,
            (None, Some(n)) => n as i64,
            (None, None) => 0,
        },
    }
}

/// Go's conversion on amd64: numbers out of range become the smallest one.
fn truncated(f: f64) -> i64 {
    // 2^63 is the first number out of range.
    if f.is_nan() || f.trunc() < -9_223_372_036_854_775_808.0 || f.trunc() >= 9_223_372_036_854_775_808.0 {
        return i64::MIN;
    }
    f as i64
}

/// `5.00` is read as `5`; `5.7` is left alone, and is not an integer.
fn without_zero_decimals(text: &str) -> &str {
    match text.trim_end_matches('0').strip_suffix('.') {
        Some(whole) if text.ends_with('0') => whole,
        _ => text,
    }
}

/// `cast.ToFloat64`.
pub(super) fn float64_of(value: &Value) -> f64 {
    match value {
        Value::Bool(b) => f64::from(u8::from(*b)),
        Value::Float32(f) => (*f).into(),
        Value::Float64(f) => *f,
        Value::String(text) => text.to_str().and_then(number::parse_float).unwrap_or(0.0),
        Value::Uint(n) | Value::Uint64(n) => *n as f64,
        other => int64_of(other) as f64,
    }
}

pub(super) fn int(value: Value) -> i64 {
    int64_of(&value)
}

pub(super) fn int64(value: Value) -> Int64 {
    Int64(int64_of(&value))
}

pub(super) fn float64(value: Value) -> f64 {
    float64_of(&value)
}

/// Decimal digits only; a number too large becomes the largest one.
pub(super) fn atoi(text: Str) -> i64 {
    strconv::parse_int(&text, 10).unwrap_or_else(|error| error.nearest)
}

/// The number written in octal digits, such as a file mode.
pub(super) fn to_decimal(value: Value) -> Result<Int64, Error> {
    Ok(Int64(
        strconv::parse_int(&format::to_string(&value)?, 8).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_out_of_anything() {
        for (value, expected) in [
            (Value::from("0x1F"), 31),
            (Value::from("010"), 8),
            (Value::from("0012"), 10),
            (Value::from("08"), 0),
            (Value::from("1_000"), 1000),
            (Value::from("5.0"), 5),
            (Value::from("5."), 0),
            (Value::from("5.7"), 0),
            (Value::from(".0"), 0),
            (Value::from(" 5"), 0),
            (Value::from("+5"), 5),
            (Value::from(5.9), 5),
            (Value::from(-5.9), -5),
            (Value::from(1e19), i64::MIN),
            (Value::from(f64::NAN), i64::MIN),
            (Value::from(true), 1),
            (Value::Nil, 0),
            (Value::Uint64(u64::MAX), -1),
            (Value::list([]), 0),
        ] {
            assert_eq!(int64_of(&value), expected, "{value:?}");
        }
    }
}
