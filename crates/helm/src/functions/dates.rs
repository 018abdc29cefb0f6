//! Dates: sprig's `date.go`, and Go's `time.Time` as templates see it.

use std::any::Any;
use std::sync::LazyLock;

use gostd::clock::{Civil, MONTHS, Time, WEEKDAYS, Zone};
use gostd::duration::{self, Duration};
use gostd::strconv;
use gotemplate::function::{Arguments, Call, Error, Functions, Int64, Parameter, Receiver, Returned};
use gotemplate::string::Str;
use gotemplate::types::{self, Type};
use gotemplate::value::{Object, Value};
use toml::value::Offset;

use super::durations::DurationValue;
use crate::context::Context;
use crate::toml::Datetime;

static TIME: Type = Type::structure("time.Time").with_methods(&TIME_METHODS);
static MONTH: Type = Type::basic("time.Month", &types::INT).with_methods(&CALENDAR_NAME_METHODS);
static WEEKDAY: Type = Type::basic("time.Weekday", &types::INT).with_methods(&CALENDAR_NAME_METHODS);

/// A time as templates see it.
#[derive(Clone, Debug)]
pub(super) struct TimeValue(Time);

impl Object for TimeValue {
    fn ty(&self) -> &'static Type {
        &TIME
    }

    /// Used for comparisons only: Go's own fields are not exported.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let zone = format!("{:?}", self.0.zone);
        vec![
            ("wall", Value::Int64(self.0.seconds)),
            ("ext", Value::Uint(self.0.nanos.into())),
            ("loc", zone.into()),
        ]
    }

    fn field(&self, _: &str) -> Option<Value> {
        None
    }

    fn text(&self) -> Option<String> {
        Some(self.0.text())
    }

    fn json(&self) -> Value {
        Value::String(self.0.format(b"2006-01-02T15:04:05.999999999Z07:00").into())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Parameter for TimeValue {
    fn go_type() -> &'static Type {
        &TIME
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let value = arguments.take().unwrap_or_default();
        value.as_object::<Self>().cloned().ok_or_else(|| {
            Error::new(format!(
                "wrong type for value; expected time.Time; got {}",
                value.type_name()
            ))
        })
    }
}

impl Returned for TimeValue {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

/// A month or a day of the week: a number with a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum CalendarName {
    /// 1 is January.
    Month(i64),
    /// 0 is Sunday.
    Weekday(i64),
}

impl CalendarName {
    pub(super) fn number(&self) -> i64 {
        match self {
            Self::Month(number) | Self::Weekday(number) => *number,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Month(number) => MONTHS[(number - 1) as usize],
            Self::Weekday(number) => WEEKDAYS[number as usize],
        }
    }
}

impl Object for CalendarName {
    fn ty(&self) -> &'static Type {
        match self {
            Self::Month(_) => &MONTH,
            Self::Weekday(_) => &WEEKDAY,
        }
    }

    fn text(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn underlying(&self) -> Option<Value> {
        Some(Value::Int(self.number()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Returned for CalendarName {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

static CALENDAR_NAME_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("String", |this: Receiver| {
        Ok::<_, Error>(this.object::<CalendarName>()?.name())
    });
    methods
});

/// The methods of `time.Time` whose parameters and results templates can use.
static TIME_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Format", |this: Receiver, layout: Str| {
        Ok::<Str, Error>(time(&this)?.format(&layout).into())
    });
    methods.add("String", |this: Receiver| Ok::<_, Error>(time(&this)?.text()));
    methods.add("Year", |this: Receiver| civil(&this).map(|civil| civil.year));
    methods.add("Month", |this: Receiver| {
        civil(&this).map(|civil| CalendarName::Month(civil.month))
    });
    methods.add("Day", |this: Receiver| civil(&this).map(|civil| civil.day));
    methods.add("Weekday", |this: Receiver| {
        civil(&this).map(|civil| CalendarName::Weekday(civil.weekday))
    });
    methods.add("YearDay", |this: Receiver| {
        civil(&this).map(|civil| civil.year_day)
    });
    methods.add("Hour", |this: Receiver| civil(&this).map(|civil| civil.hour));
    methods.add("Minute", |this: Receiver| civil(&this).map(|civil| civil.minute));
    methods.add("Second", |this: Receiver| civil(&this).map(|civil| civil.second));
    methods.add("Nanosecond", |this: Receiver| {
        time(&this).map(|time| i64::from(time.nanos))
    });
    methods.add("Unix", |this: Receiver| unix(&this, 1));
    methods.add("UnixMilli", |this: Receiver| unix(&this, 1_000));
    methods.add("UnixMicro", |this: Receiver| unix(&this, 1_000_000));
    methods.add("UnixNano", |this: Receiver| unix(&this, 1_000_000_000));
    methods.add("UTC", |this: Receiver| {
        Ok::<_, Error>(TimeValue(time(&this)?.within(Zone::Utc)))
    });
    methods.add("Local", |call: &mut Call, this: Receiver| {
        Ok::<_, Error>(TimeValue(time(&this)?.within(local(call)?)))
    });
    methods.add("IsZero", |this: Receiver| {
        time(&this).map(|time| time.since(&Time::ZERO).0 == 0)
    });
    methods.add("Add", |this: Receiver, DurationValue(by): DurationValue| {
        Ok::<_, Error>(TimeValue(time(&this)?.add(by)))
    });
    methods.add("Sub", |this: Receiver, TimeValue(other): TimeValue| {
        Ok::<_, Error>(DurationValue(time(&this)?.since(&other)))
    });
    methods.add("AddDate", |this: Receiver, years: i64, months: i64, days: i64| {
        Ok::<_, Error>(TimeValue(time(&this)?.add_date(years, months, days)))
    });
    methods.add("After", |this: Receiver, TimeValue(other): TimeValue| {
        time(&this).map(|time| instant(time) > instant(&other))
    });
    methods.add("Before", |this: Receiver, TimeValue(other): TimeValue| {
        time(&this).map(|time| instant(time) < instant(&other))
    });
    methods.add("Equal", |this: Receiver, TimeValue(other): TimeValue| {
        time(&this).map(|time| instant(time) == instant(&other))
    });
    methods
});

fn time(this: &Receiver) -> Result<&Time, Error> {
    this.object::<TimeValue>().map(|TimeValue(time)| time)
}

fn as_time(value: &Value) -> Option<&Time> {
    value.as_object::<TimeValue>().map(|TimeValue(time)| time)
}

fn civil(this: &Receiver) -> Result<Civil, Error> {
    Ok(time(this)?.civil())
}

fn instant(time: &Time) -> (i64, u32) {
    (time.seconds, time.nanos)
}

fn unix(this: &Receiver, per_second: i64) -> Result<Int64, Error> {
    let time = time(this)?;
    let fraction = i64::from(time.nanos) * per_second / 1_000_000_000;
    Ok(Int64(
        time.seconds.wrapping_mul(per_second).wrapping_add(fraction),
    ))
}

fn local(call: &Call) -> Result<Zone, Error> {
    Ok(Zone::local(call.host::<Context>()?.time_zone()))
}

/// A date of a TOML text. One without an offset gets a special zone whose name says what is missing.
pub(super) fn of_toml(datetime: &Datetime) -> TimeValue {
    let date = datetime.date.map_or((0, 1, 1), |date| {
        (date.year.into(), date.month.into(), date.day.into())
    });
    let clock = datetime.time.map_or((0, 0, 0, 0), |time| {
        let second = time.second.unwrap_or(0).into();
        (
            time.hour.into(),
            time.minute.into(),
            second,
            time.nanosecond.unwrap_or(0),
        )
    });
    let zone = |name: &str, offset| Zone::Fixed {
        name: name.to_owned(),
        offset,
    };
    let zone = match (datetime.offset, datetime.date, datetime.time) {
        (Some(Offset::Z), ..) => Zone::Utc,
        (Some(Offset::Custom { minutes }), ..) => zone("", i64::from(minutes) * 60),
        (None, Some(_), Some(_)) => zone("datetime-local", 0),
        (None, Some(_), None) => zone("date-local", 0),
        (None, None, _) => zone("time-local", 0),
    };
    TimeValue(Time::from_civil(date, clock, zone))
}

/// A time as a YAML timestamp.
pub(crate) fn yaml_timestamp(value: &Value) -> Option<String> {
    let time = as_time(value)?;
    let text = time.format(b"2006-01-02T15:04:05.999999999Z07:00");
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// A time as a TOML date.
pub(crate) fn toml_date(value: &Value) -> Option<Vec<u8>> {
    let time = as_time(value)?;
    let layout: &[u8] = match &time.zone {
        Zone::Fixed { name, .. } if name == "datetime-local" => b"2006-01-02T15:04:05.999999999",
        Zone::Fixed { name, .. } if name == "date-local" => b"2006-01-02",
        Zone::Fixed { name, .. } if name == "time-local" => b"15:04:05.999999999",
        Zone::Utc | Zone::Rules(_) | Zone::Fixed { .. } => b"2006-01-02T15:04:05.999999999Z07:00",
    };
    Some(time.format(layout))
}

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
