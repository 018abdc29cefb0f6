//! Dates: sprig's `date.go`.

use gostd::clock::{Time, Zone};
use gostd::duration::{self, Duration};
use gostd::strconv;
use gotemplate::function::{Call, Error};
use gotemplate::string::Str;
use gotemplate::value::Value;

use crate::context::Context;
use crate::times::{TimeValue, as_time, local};

pub(super) fn now(call: &mut Call) -> Result<TimeValue, Error> {
    current(call).map(TimeValue)
}

fn current(call: &Call) -> Result<Time, Error> {
    Ok(Time::from_timestamp(call.host::<Context>()?.now, local(call)?))
}

/// The time that a value represents: a time, or whole seconds as an integer. Anything else means now, including
/// numbers from values files.
fn moment(call: &mut Call, value: &Value) -> Result<Time, Error> {
    match value {
        Value::Int(seconds) | Value::Int64(seconds) => Ok(Time::from_unix(*seconds, Zone::Utc)),
        Value::Int32(seconds) => Ok(Time::from_unix((*seconds).into(), Zone::Utc)),
        other => match as_time(other) {
            Some(time) => Ok(time.clone()),
            None => current(call),
        },
    }
}

pub(super) fn date_in_zone(call: &mut Call, layout: Str, date: Value, zone: Str) -> Result<Str, Error> {
    let time = moment(call, &date)?;
    let local = call.host::<Context>()?.time_zone();
    let zone = zone
        .to_str()
        .and_then(|name| Zone::load(name, local))
        .unwrap_or(Zone::Utc);
    Ok(time.within(zone).format(&layout).into())
}

pub(super) fn date(call: &mut Call, layout: Str, date: Value) -> Result<Str, Error> {
    date_in_zone(call, layout, date, "Local".into())
}

pub(super) fn html_date(call: &mut Call, date: Value) -> Result<Str, Error> {
    date_in_zone(call, "2006-01-02".into(), date, "Local".into())
}

pub(super) fn html_date_in_zone(call: &mut Call, date: Value, zone: Str) -> Result<Str, Error> {
    date_in_zone(call, "2006-01-02".into(), date, zone)
}

/// Returns the date unchanged if the duration cannot be parsed.
pub(super) fn date_modify(by: Str, TimeValue(date): TimeValue) -> TimeValue {
    TimeValue(match Duration::parse(&by) {
        Ok(by) => date.add(by),
        Err(_) => date,
    })
}

pub(super) fn must_date_modify(by: Str, TimeValue(date): TimeValue) -> Result<TimeValue, Error> {
    let by = Duration::parse(&by).map_err(Error::from_error)?;
    Ok(TimeValue(date.add(by)))
}

/// January 1st of year 1 if the text cannot be parsed.
pub(super) fn to_date(call: &mut Call, layout: Str, text: Str) -> Result<TimeValue, Error> {
    let time = Time::parse(&layout, &text, &local(call)?);
    Ok(TimeValue(time.unwrap_or(Time::ZERO)))
}

pub(super) fn must_to_date(call: &mut Call, layout: Str, text: Str) -> Result<TimeValue, Error> {
    let time = Time::parse(&layout, &text, &local(call)?);
    time.map(TimeValue).map_err(Error::from_error)
}

pub(super) fn unix_epoch(TimeValue(date): TimeValue) -> String {
    date.seconds.to_string()
}

/// The time since the date, in whole seconds.
pub(super) fn ago(call: &mut Call, date: Value) -> Result<String, Error> {
    // Unlike the date functions, this does not accept int32.
    let then = if matches!(date, Value::Int32(_)) {
        current(call)?
    } else {
        moment(call, &date)?
    };
    let ago = current(call)?.since(&then).round(Duration(duration::SECOND));
    Ok(ago.to_string())
}

/// Converts seconds, as decimal text or int64, to a duration; a plain int gives zero.
pub(super) fn duration(seconds: Value) -> String {
    let seconds = match seconds {
        Value::String(text) => strconv::parse_int(&text, 10).unwrap_or_else(|error| error.nearest),
        Value::Int64(seconds) => seconds,
        _ => 0,
    };
    Duration(seconds.wrapping_mul(duration::SECOND)).to_string()
}

/// Rounds to the largest unit that fits: `3d`, `2mo`.
pub(super) fn duration_round(call: &mut Call, value: Value) -> Result<String, Error> {
    let span = match &value {
        Value::String(text) => Duration::parse(text).unwrap_or_default(),
        Value::Int64(nanos) => Duration(*nanos),
        other => match as_time(other) {
            Some(time) => current(call)?.since(time),
            None => Duration(0),
        },
    };
    let span = span.0.unsigned_abs();
    let day = 24 * duration::HOUR;
    let units = [
        (365 * day, "y"),
        (30 * day, "mo"),
        (day, "d"),
        (duration::HOUR, "h"),
        (duration::MINUTE, "m"),
        (duration::SECOND, "s"),
    ];
    let largest = units.iter().find(|(unit, _)| span > unit.unsigned_abs());
    Ok(largest.map_or("0s".to_owned(), |(unit, name)| {
        format!("{}{name}", span / unit.unsigned_abs())
    }))
}
