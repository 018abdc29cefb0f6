//! Go's `time.Time` and `time.Duration` as templates see them, and as they are written to documents.

use std::any::Any;
use std::sync::LazyLock;

use gostd::clock::{Civil, MONTHS, Time, WEEKDAYS, Zone};
use gostd::duration::{self, Duration};
use gotemplate::function::{Arguments, Call, Error, Functions, Int64, Parameter, Receiver, Returned};
use gotemplate::string::Str;
use gotemplate::types::{self, Type};
use gotemplate::value::{Object, Value};
use toml::value::{Datetime, Offset};

use crate::context::Context;

static TIME: Type = Type::structure("time.Time").with_methods(&TIME_METHODS);
static MONTH: Type = Type::basic("time.Month", &types::INT).with_methods(&CALENDAR_NAME_METHODS);
static WEEKDAY: Type = Type::basic("time.Weekday", &types::INT).with_methods(&CALENDAR_NAME_METHODS);
static DURATION: Type = Type::basic("time.Duration", &types::INT64).with_methods(&DURATION_METHODS);

/// A time as templates see it.
#[derive(Clone, Debug)]
pub(crate) struct TimeValue(pub(crate) Time);

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
pub(crate) enum CalendarName {
    /// 1 is January.
    Month(i64),
    /// 0 is Sunday.
    Weekday(i64),
}

impl CalendarName {
    pub(crate) fn number(&self) -> i64 {
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

/// A duration as templates see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurationValue(pub(crate) Duration);

impl Object for DurationValue {
    fn ty(&self) -> &'static Type {
        &DURATION
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn underlying(&self) -> Option<Value> {
        Some(Value::Int64(self.0.0))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Parameter for DurationValue {
    fn go_type() -> &'static Type {
        &DURATION
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let value = arguments.take().unwrap_or_default();
        value.as_object().copied().ok_or_else(|| {
            Error::new(format!(
                "wrong type for value; expected time.Duration; got {}",
                value.type_name()
            ))
        })
    }
}

impl Returned for DurationValue {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

static DURATION_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("String", |this: Receiver| {
        receiver(&this).map(|span| span.to_string())
    });
    methods.add("Hours", |this: Receiver| receiver(&this).map(Duration::hours));
    methods.add("Minutes", |this: Receiver| receiver(&this).map(Duration::minutes));
    methods.add("Seconds", |this: Receiver| receiver(&this).map(Duration::seconds));
    methods.add("Milliseconds", |this: Receiver| {
        receiver(&this).map(|span| Int64(span.0 / duration::MILLISECOND))
    });
    methods.add("Microseconds", |this: Receiver| {
        receiver(&this).map(|span| Int64(span.0 / duration::MICROSECOND))
    });
    methods.add("Nanoseconds", |this: Receiver| {
        receiver(&this).map(|span| Int64(span.0))
    });
    methods.add("Abs", |this: Receiver| {
        receiver(&this).map(|span| DurationValue(span.abs()))
    });
    methods.add("Round", |this: Receiver, DurationValue(unit): DurationValue| {
        receiver(&this).map(|span| DurationValue(span.round(unit)))
    });
    methods.add(
        "Truncate",
        |this: Receiver, DurationValue(unit): DurationValue| {
            receiver(&this).map(|span| DurationValue(span.truncate(unit)))
        },
    );
    methods
});

fn time(this: &Receiver) -> Result<&Time, Error> {
    this.object::<TimeValue>().map(|TimeValue(time)| time)
}

pub(crate) fn as_time(value: &Value) -> Option<&Time> {
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

pub(crate) fn local(call: &Call) -> Result<Zone, Error> {
    Ok(Zone::local(call.host::<Context>()?.time_zone()))
}

/// A date of a TOML text. One without an offset gets a special zone whose name says what is missing.
pub(crate) fn of_toml(datetime: &Datetime) -> TimeValue {
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

fn receiver(this: &Receiver) -> Result<Duration, Error> {
    this.object::<DurationValue>().map(|span| span.0)
}

/// A duration as written to documents: as text, not as a number.
pub(crate) fn duration_text(value: &Value) -> Option<String> {
    value.as_object::<DurationValue>().map(|span| span.0.to_string())
}
