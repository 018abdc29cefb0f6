//! Durations: Helm's own helpers.

use gostd::duration::{self, Duration};
use gostd::quote::quote;
use gostd::unicode;
use gotemplate::format;
use gotemplate::function::{Error, Int64};
use gotemplate::value::Value;

use crate::times::DurationValue;

/// Converts a duration, its text, or seconds as text or number.
fn duration_of(value: &Value) -> Result<Duration, Error> {
    if let Some(DurationValue(span)) = value.as_object() {
        return Ok(*span);
    }
    match value {
        Value::Nil => Err(Error::new("invalid duration")),
        Value::String(text) => from_text(text),
        other => match (other.as_i64(), other.as_u64(), other.as_f64()) {
            (Some(seconds), ..) => from_seconds(seconds.into()),
            (_, Some(seconds), _) => from_seconds(seconds.into()),
            (.., Some(seconds)) => from_fraction(seconds),
            _ => Err(Error::new(format!(
                "unsupported duration type {}",
                other.type_name()
            ))),
        },
    }
}

fn from_text(text: &[u8]) -> Result<Duration, Error> {
    let trimmed = unicode::trim(text, unicode::is_space);
    if trimmed.is_empty() {
        return Err(Error::new("empty duration"));
    }
    if let Ok(span) = Duration::parse(trimmed) {
        return Ok(span);
    }
    match std::str::from_utf8(trimmed)
        .ok()
        .and_then(gostd::number::parse_float)
    {
        Some(seconds) => from_fraction(seconds),
        None => Err(Error::new(format!(
            "could not parse duration {}",
            String::from_utf8_lossy(&quote(text))
        ))),
    }
}

fn from_seconds(seconds: i128) -> Result<Duration, Error> {
    let limit = i128::from(i64::MAX / duration::SECOND);
    if seconds.abs() > limit {
        return Err(Error::new(format!("duration seconds overflow: {seconds}")));
    }
    Ok(Duration(seconds as i64 * duration::SECOND))
}

fn from_fraction(seconds: f64) -> Result<Duration, Error> {
    let printed = |number: f64| format::to_string(&Value::Float64(number));
    if !seconds.is_finite() {
        return Err(Error::new(format!(
            "invalid duration seconds: {}",
            printed(seconds)?
        )));
    }
    let largest = i64::MAX as f64;
    if seconds.abs() > largest / duration::SECOND as f64 {
        return Err(Error::new(format!(
            "duration seconds overflow: {}",
            printed(seconds)?
        )));
    }
    let nanos = seconds * duration::SECOND as f64;
    if nanos.abs() > largest {
        return Err(Error::new(format!(
            "duration nanoseconds overflow: {}",
            printed(nanos)?
        )));
    }
    // 2^63 itself passes these checks; Go's conversion then gives the smallest number.
    Ok(Duration(if nanos >= largest { i64::MIN } else { nanos as i64 }))
}

/// 0 if the value is not a duration.
fn or_zero(value: &Value) -> Duration {
    duration_of(value).unwrap_or_default()
}

pub(super) fn must_to_duration(value: Value) -> Result<DurationValue, Error> {
    duration_of(&value).map(DurationValue)
}

pub(super) fn seconds(value: Value) -> f64 {
    or_zero(&value).seconds()
}

pub(super) fn milliseconds(value: Value) -> Int64 {
    Int64(or_zero(&value).0 / duration::MILLISECOND)
}

pub(super) fn microseconds(value: Value) -> Int64 {
    Int64(or_zero(&value).0 / duration::MICROSECOND)
}

pub(super) fn nanoseconds(value: Value) -> Int64 {
    Int64(or_zero(&value).0)
}

pub(super) fn minutes(value: Value) -> f64 {
    or_zero(&value).minutes()
}

pub(super) fn hours(value: Value) -> f64 {
    or_zero(&value).hours()
}

pub(super) fn days(value: Value) -> f64 {
    or_zero(&value).hours() / 24.0
}

pub(super) fn weeks(value: Value) -> f64 {
    or_zero(&value).hours() / 24.0 / 7.0
}

/// Returns the duration unchanged if the unit is not a duration.
pub(super) fn round_to(value: Value, unit: Value) -> DurationValue {
    DurationValue(or_zero(&value).round(or_zero(&unit)))
}

pub(super) fn truncate_to(value: Value, unit: Value) -> DurationValue {
    DurationValue(or_zero(&value).truncate(or_zero(&unit)))
}
