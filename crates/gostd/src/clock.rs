//! Go's `time.Time`: instants in a zone, printed and parsed by the reference layout `Mon Jan 2 15:04:05 MST 2006`.

use std::fmt::Write as _;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::duration::{Duration, leading_int, quote};

/// An instant, and the zone in which it is displayed.
#[derive(Clone, Debug)]
pub struct Time {
    /// Seconds since 1970, without limits: Go's years have none.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// The zone in which it is displayed.
    pub zone: Zone,
}

/// Go's `time.Location`.
#[derive(Clone, Debug)]
pub enum Zone {
    /// UTC.
    Utc,
    /// A zone with rules; Go's `Local` or one of the database.
    Rules(TimeZone),
    /// A constant offset, as parsed from a text.
    Fixed {
        /// The abbreviation in the text, empty if there was none.
        name: String,
        /// Seconds east of UTC.
        offset: i64,
    },
}

/// The zone database is part of the program, because container images have no files for it.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Zone {
    /// `time.LoadLocation`, `local` being its `Local`. `None` for unknown names, which are case-sensitive.
    pub fn load(name: &str, local: &TimeZone) -> Option<Self> {
        match name {
            "" | "UTC" => Some(Self::Utc),
            "Local" => Some(Self::local(local)),
            _ => {
                let zone = ZONES.get(name).ok()?;
                (zone.iana_name() == Some(name)).then_some(Self::Rules(zone))
            }
        }
    }

    /// Go's `Local` for a process in `zone`.
    pub fn local(zone: &TimeZone) -> Self {
        if *zone == TimeZone::UTC {
            Self::Utc
        } else {
            Self::Rules(zone.clone())
        }
    }

    /// Abbreviation and offset in force at an instant.
    fn at(&self, seconds: i64) -> (String, i64) {
        match self {
            Self::Utc => ("UTC".to_owned(), 0),
            Self::Rules(zone) => {
                let info = zone.to_offset_info(timestamp(seconds));
                (info.abbreviation().to_owned(), info.offset().seconds().into())
            }
            Self::Fixed { name, offset } => (name.clone(), *offset),
        }
    }

    /// The offset of an abbreviation, preferably one in force at that local time.
    fn named(&self, abbreviation: &str, local_seconds: i64) -> Option<i64> {
        let offsets = self.offsets_of(abbreviation);
        offsets
            .iter()
            .copied()
            .find(|offset| self.at(local_seconds - offset) == (abbreviation.to_owned(), *offset))
            .or_else(|| offsets.first().copied())
    }

    fn offsets_of(&self, abbreviation: &str) -> Vec<i64> {
        match self {
            Self::Utc => Vec::from_iter((abbreviation == "UTC").then_some(0)),
            Self::Fixed { name, offset } => Vec::from_iter((abbreviation == name).then_some(*offset)),
            Self::Rules(zone) => {
                let mut offsets: Vec<i64> = Vec::new();
                // The tables of the database end in 2037; later years repeat its rules.
                for transition in zone.preceding(timestamp(2_145_916_800)) {
                    let offset = i64::from(transition.offset().seconds());
                    if transition.abbreviation() == abbreviation && !offsets.contains(&offset) {
                        offsets.push(offset);
                    }
                }
                offsets.reverse();
                offsets
            }
        }
    }
}

/// The nearest instant that the zone database supports.
fn timestamp(seconds: i64) -> Timestamp {
    let seconds = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(seconds).unwrap_or_default()
}

/// 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
const SECONDS_PER_DAY: i64 = 86_400;
/// 1970-01-01 counted from 0000-03-01.
const EPOCH_DAY: i64 = 719_468;

/// The date and time of day in the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year; 0 is the year before year 1.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59.
    pub second: i64,
    /// 0 is Sunday.
    pub weekday: i64,
    /// 1 is January 1st.
    pub year_day: i64,
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a date; a day beyond the end of its month continues into the next months.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Starting years in March puts the leap day last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH_DAY
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAY;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

impl Time {
    /// The zero value of Go's type: January 1st of year 1, UTC.
    pub const ZERO: Self = Self {
        seconds: -62_135_596_800,
        nanos: 0,
        zone: Zone::Utc,
    };

    /// `time.Unix`, shown in `zone`.
    pub fn from_unix(seconds: i64, zone: Zone) -> Self {
        Self {
            seconds,
            nanos: 0,
            zone,
        }
    }

    /// Converts a [`Timestamp`].
    pub fn from_timestamp(timestamp: Timestamp, zone: Zone) -> Self {
        // Before 1970, jiff's subseconds are negative.
        let nanos = timestamp.as_nanosecond();
        Self {
            seconds: nanos.div_euclid(1_000_000_000) as i64,
            nanos: nanos.rem_euclid(1_000_000_000) as u32,
            zone,
        }
    }

    /// `time.Date`: months, days and times out of range overflow into the next larger unit.
    pub fn from_civil(date: (i64, i64, i64), clock: (i64, i64, i64, u32), zone: Zone) -> Self {
        let (year, month, day) = date;
        let (hour, minute, second, nanos) = clock;
        let month = month - 1;
        let days = days_from_civil(year + month.div_euclid(12), month.rem_euclid(12) + 1, day);
        let local = days
            .wrapping_mul(SECONDS_PER_DAY)
            .wrapping_add(hour * 3600 + minute * 60 + second);
        // The offset is looked up as if local time were UTC, and again if that was on the wrong side of a transition.
        let (_, guess) = zone.at(local);
        let offset = if guess == 0 { 0 } else { zone.at(local - guess).1 };
        Self {
            seconds: local - offset,
            nanos,
            zone,
        }
    }

    /// The same instant in another zone.
    pub fn within(&self, zone: Zone) -> Self {
        Self { zone, ..*self }
    }

    /// The date and time of day in its zone.
    pub fn civil(&self) -> Civil {
        let local = self.seconds.saturating_add(self.offset());
        let days = local.div_euclid(SECONDS_PER_DAY);
        let clock = local.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
            weekday: (days + 4).rem_euclid(7),
            year_day: days - days_from_civil(year, 1, 1) + 1,
        }
    }

    /// Seconds east of UTC.
    pub fn offset(&self) -> i64 {
        self.zone.at(self.seconds).1
    }

    /// `Time.Add`.
    pub fn add(&self, duration: Duration) -> Self {
        let nanos = i64::from(self.nanos) + duration.0 % 1_000_000_000;
        Self {
            seconds: self
                .seconds
                .wrapping_add(duration.0 / 1_000_000_000)
                .wrapping_add(nanos.div_euclid(1_000_000_000)),
            nanos: nanos.rem_euclid(1_000_000_000) as u32,
            zone: self.zone.clone(),
        }
    }

    /// `Time.Sub`: the difference, limited to the range of a duration.
    pub fn since(&self, earlier: &Self) -> Duration {
        let nanos = i128::from(self.seconds - earlier.seconds) * 1_000_000_000 + i128::from(self.nanos)
            - i128::from(earlier.nanos);
        Duration(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// `Time.AddDate`.
    pub fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let civil = self.civil();
        Self::from_civil(
            (civil.year + years, civil.month + months, civil.day + days),
            (civil.hour, civil.minute, civil.second, self.nanos),
            self.zone.clone(),
        )
    }

    /// `Time.Format`. Text of the layout that is not a field is copied unchanged.
    pub fn format(&self, layout: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(layout.len() + 10);
        let civil = self.civil();
        let mut rest = layout;
        while let Some((prefix, field, suffix)) = next_field(rest) {
            out.extend_from_slice(prefix);
            out.extend_from_slice(self.field(field, &civil).as_bytes());
            rest = suffix;
        }
        out.extend_from_slice(rest);
        out
    }

    fn field(&self, field: Field, civil: &Civil) -> String {
        let month = MONTHS[(civil.month - 1) as usize];
        let weekday = WEEKDAYS[civil.weekday as usize];
        let hour12 = if civil.hour % 12 == 0 { 12 } else { civil.hour % 12 };
        match field {
            Field::Year => format!("{:02}", civil.year.abs() % 100),
            Field::LongYear => signed(civil.year, 4),
            Field::Month => month[..3].to_owned(),
            Field::LongMonth => month.to_owned(),
            Field::NumberMonth => civil.month.to_string(),
            Field::ZeroMonth => format!("{:02}", civil.month),
            Field::Weekday => weekday[..3].to_owned(),
            Field::LongWeekday => weekday.to_owned(),
            Field::Day => civil.day.to_string(),
            Field::SpaceDay => format!("{:2}", civil.day),
            Field::ZeroDay => format!("{:02}", civil.day),
            Field::SpaceYearDay => format!("{:3}", civil.year_day),
            Field::ZeroYearDay => format!("{:03}", civil.year_day),
            Field::Hour => format!("{:02}", civil.hour),
            Field::Hour12 => hour12.to_string(),
            Field::ZeroHour12 => format!("{hour12:02}"),
            Field::Minute => civil.minute.to_string(),
            Field::ZeroMinute => format!("{:02}", civil.minute),
            Field::Second => civil.second.to_string(),
            Field::ZeroSecond => format!("{:02}", civil.second),
            Field::UpperHalf => if civil.hour >= 12 { "PM" } else { "AM" }.to_owned(),
            Field::LowerHalf => if civil.hour >= 12 { "pm" } else { "am" }.to_owned(),
            Field::Offset(style) => offset_text(self.offset(), style),
            Field::ZoneName => {
                let (name, offset) = self.zone.at(self.seconds);
                let unnamed = Offset {
                    zulu: false,
                    precision: Precision::Minutes,
                    colon: false,
                };
                if name.is_empty() {
                    offset_text(offset, unnamed)
                } else {
                    name
                }
            }
            Field::Fraction {
                digits,
                separator,
                trimmed,
            } => self.fraction(digits, separator, trimmed),
        }
    }

    fn fraction(&self, digits: usize, separator: u8, trimmed: bool) -> String {
        let mut fraction = format!("{:09}", self.nanos);
        // Nanoseconds have no more digits than these.
        fraction.truncate(digits);
        if trimmed {
            fraction.truncate(fraction.trim_end_matches('0').len());
            if fraction.is_empty() {
                return String::new();
            }
        }
        format!("{}{fraction}", char::from(separator))
    }

    /// `Time.String`.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.format(b"2006-01-02 15:04:05.999999999 -0700 MST")).into_owned()
    }

    /// `time.ParseInLocation`.
    pub fn parse(layout: &[u8], value: &[u8], zone: &Zone) -> Result<Self, ParseError> {
        Reader::read(layout, value, zone)
    }
}

/// A number with at least `width` digits, not counting the sign.
fn signed(number: i64, width: usize) -> String {
    format!(
        "{}{:0width$}",
        if number < 0 { "-" } else { "" },
        number.unsigned_abs()
    )
}

fn offset_text(offset: i64, style: Offset) -> String {
    if offset == 0 && style.zulu {
        return "Z".to_owned();
    }
    // Go takes the sign from whole minutes, but the seconds from the whole offset.
    let minutes = offset / 60;
    let seconds = if minutes < 0 { -offset } else { offset } % 60;
    let minutes_abs = minutes.abs();
    let colon = if style.colon { ":" } else { "" };
    let mut text = format!("{}{:02}", if minutes < 0 { '-' } else { '+' }, minutes_abs / 60);
    // Writing to a String cannot fail.
    if style.precision != Precision::Hours {
        let _ = write!(text, "{colon}{:02}", minutes_abs % 60);
    }
    if style.precision == Precision::Seconds {
        let _ = write!(text, "{colon}{}", signed(seconds, 2));
    }
    text
}

/// The English names of the months, January first.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The English names of the days of a week, Sunday first.
pub const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A field of the reference time, named after its notation in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Year,
    LongYear,
    Month,
    LongMonth,
    NumberMonth,
    ZeroMonth,
    Weekday,
    LongWeekday,
    Day,
    SpaceDay,
    ZeroDay,
    SpaceYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    /// `PM`
    UpperHalf,
    /// `pm`
    LowerHalf,
    Offset(Offset),
    /// `MST`
    ZoneName,
    Fraction {
        digits: usize,
        separator: u8,
        trimmed: bool,
    },
}

/// The notation of an offset: `-07:00`, `Z0700` …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    /// Whether UTC is written as `Z`.
    zulu: bool,
    precision: Precision,
    colon: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    Hours,
    Minutes,
    Seconds,
}

/// Notations that start with the same byte; longer ones come first where Go checks them first.
const SPELLINGS: [(&[u8], Field); 19] = [
    (b"January", Field::LongMonth),
    (b"Monday", Field::LongWeekday),
    (b"MST", Field::ZoneName),
    (b"01", Field::ZeroMonth),
    (b"02", Field::ZeroDay),
    (b"03", Field::ZeroHour12),
    (b"04", Field::ZeroMinute),
    (b"05", Field::ZeroSecond),
    (b"06", Field::Year),
    (b"002", Field::ZeroYearDay),
    (b"15", Field::Hour),
    (b"1", Field::NumberMonth),
    (b"2006", Field::LongYear),
    (b"2", Field::Day),
    (b"3", Field::Hour12),
    (b"4", Field::Minute),
    (b"5", Field::Second),
    (b"PM", Field::UpperHalf),
    (b"pm", Field::LowerHalf),
];

const OFFSETS: [(&[u8], Precision, bool); 5] = [
    (b"070000", Precision::Seconds, false),
    (b"07:00:00", Precision::Seconds, true),
    (b"0700", Precision::Minutes, false),
    (b"07:00", Precision::Minutes, true),
    (b"07", Precision::Hours, false),
];

/// The first field of a layout: the text before it, the field, and the text after it.
fn next_field(layout: &[u8]) -> Option<(&[u8], Field, &[u8])> {
    (0..layout.len()).find_map(|start| {
        let here = &layout[start..];
        // `_2006` is an underscore and a year.
        if here.starts_with(b"_2006") {
            return Some((&layout[..=start], Field::LongYear, &here[5..]));
        }
        let (field, width) = field_at(here)?;
        Some((&layout[..start], field, &here[width..]))
    })
}

fn field_at(layout: &[u8]) -> Option<(Field, usize)> {
    if let Some((spelling, field)) = SPELLINGS
        .iter()
        .find(|(spelling, _)| layout.starts_with(spelling))
    {
        return Some((*field, spelling.len()));
    }
    match layout {
        // Excludes `Month` and `Janus`.
        [b'J', b'a', b'n', rest @ ..] if !rest.first().is_some_and(u8::is_ascii_lowercase) => {
            Some((Field::Month, 3))
        }
        [b'M', b'o', b'n', rest @ ..] if !rest.first().is_some_and(u8::is_ascii_lowercase) => {
            Some((Field::Weekday, 3))
        }
        [b'_', b'2', ..] => Some((Field::SpaceDay, 2)),
        [b'_', b'_', b'2', ..] => Some((Field::SpaceYearDay, 3)),
        [sign @ (b'-' | b'Z'), rest @ ..] => {
            let (spelling, precision, colon) =
                OFFSETS.iter().find(|(spelling, ..)| rest.starts_with(spelling))?;
            let style = Offset {
                zulu: *sign == b'Z',
                precision: *precision,
                colon: *colon,
            };
            Some((Field::Offset(style), spelling.len() + 1))
        }
        [separator @ (b'.' | b','), digit @ (b'0' | b'9'), ..] => {
            let digits = layout[1..].iter().take_while(|byte| *byte == digit).count();
            // A fraction consists of equal digits and must end where the digits end.
            if layout.get(1 + digits).is_some_and(u8::is_ascii_digit) {
                return None;
            }
            Some((
                Field::Fraction {
                    digits,
                    separator: *separator,
                    trimmed: *digit == b'9',
                },
                digits + 1,
            ))
        }
        _ => None,
    }
}

/// Why a text does not match a layout, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parsing time {text}{problem}")]
pub struct ParseError {
    text: String,
    problem: String,
}

/// A value that does not match its field, or is out of range.
enum Misfit {
    Bad,
    OutOfRange(&'static str),
}

/// The fields parsed so far.
#[derive(Default)]
struct Reader {
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    year_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: u32,
    half: Option<Half>,
    utc: bool,
    offset: Option<i64>,
    zone_name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Morning,
    Afternoon,
}

impl Reader {
    fn read(layout: &[u8], value: &[u8], zone: &Zone) -> Result<Time, ParseError> {
        let fail = |problem: String| ParseError {
            text: quote(value),
            problem,
        };
        let cannot = |value: &[u8], element: &[u8]| {
            fail(format!(
                " as {}: cannot parse {} as {}",
                quote(layout),
                quote(value),
                quote(element)
            ))
        };
        let mut reader = Self::default();
        let mut layout_rest = layout;
        let mut rest = value;
        while let Some((prefix, field, suffix)) = next_field(layout_rest) {
            rest = skip(rest, prefix).map_err(|stopped| cannot(stopped, prefix))?;
            let element = &layout_rest[prefix.len()..layout_rest.len() - suffix.len()];
            let held = rest;
            layout_rest = suffix;
            reader
                .take(field, &mut rest, layout_rest)
                .map_err(|misfit| match misfit {
                    Misfit::Bad => cannot(held, element),
                    Misfit::OutOfRange(what) => fail(format!(": {what} out of range")),
                })?;
        }
        rest = skip(rest, layout_rest).map_err(|stopped| cannot(stopped, layout_rest))?;
        if !rest.is_empty() {
            return Err(fail(format!(": extra text: {}", quote(rest))));
        }
        reader.finish(zone).map_err(|what| fail(format!(": {what}")))
    }

    fn take(&mut self, field: Field, rest: &mut &[u8], layout_rest: &[u8]) -> Result<(), Misfit> {
        match field {
            Field::Year => {
                let year = fixed_number(take_bytes(rest, 2)?)?;
                self.year = year + if year >= 69 { 1900 } else { 2000 };
            }
            Field::LongYear => {
                if !rest.first().is_some_and(u8::is_ascii_digit) {
                    return Err(Misfit::Bad);
                }
                self.year = fixed_number(take_bytes(rest, 4)?)?;
            }
            Field::Month => self.month = Some(take_name(rest, MONTHS.map(|name| &name[..3]))? + 1),
            Field::LongMonth => self.month = Some(take_name(rest, MONTHS)? + 1),
            Field::NumberMonth | Field::ZeroMonth => {
                let month = take_number(rest, field == Field::ZeroMonth)?;
                self.month = Some(within(month, 1..=12, "month")?);
            }
            // Only the spelling of the day of the week is checked.
            Field::Weekday => drop(take_name(rest, WEEKDAYS.map(|name| &name[..3]))?),
            Field::LongWeekday => drop(take_name(rest, WEEKDAYS)?),
            Field::Day | Field::SpaceDay | Field::ZeroDay => {
                if field == Field::SpaceDay {
                    skip_spaces(rest, 1);
                }
                self.day = Some(take_number(rest, field == Field::ZeroDay)?);
            }
            Field::SpaceYearDay | Field::ZeroYearDay => {
                if field == Field::SpaceYearDay {
                    skip_spaces(rest, 2);
                }
                self.year_day = Some(take_year_day(rest, field == Field::ZeroYearDay)?);
            }
            Field::Hour => self.hour = within(take_number(rest, false)?, 0..=23, "hour")?,
            Field::Hour12 | Field::ZeroHour12 => {
                self.hour = within(take_number(rest, field == Field::ZeroHour12)?, 0..=12, "hour")?;
            }
            Field::Minute | Field::ZeroMinute => {
                self.minute = within(take_number(rest, field == Field::ZeroMinute)?, 0..=59, "minute")?;
            }
            Field::Second | Field::ZeroSecond => {
                self.second = within(take_number(rest, field == Field::ZeroSecond)?, 0..=59, "second")?;
                self.take_unannounced_fraction(rest, layout_rest)?;
            }
            Field::UpperHalf => self.half = Some(take_half(rest, b"AM", b"PM")?),
            Field::LowerHalf => self.half = Some(take_half(rest, b"am", b"pm")?),
            Field::Offset(style) => self.take_offset(rest, style)?,
            Field::ZoneName => self.take_zone_name(rest)?,
            Field::Fraction {
                trimmed: false,
                digits,
                ..
            } => {
                self.nanos = fraction_nanos(take_bytes(rest, digits + 1)?)?;
            }
            Field::Fraction { trimmed: true, .. } => {
                if let [b'.' | b',', digits @ ..] = *rest {
                    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    if count > 0 {
                        self.nanos = fraction_nanos(take_bytes(rest, count + 1)?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Seconds may have a fraction even if the layout has none.
    fn take_unannounced_fraction(&mut self, rest: &mut &[u8], layout_rest: &[u8]) -> Result<(), Misfit> {
        if !matches!(*rest, [b'.' | b',', b'0'..=b'9', ..]) {
            return Ok(());
        }
        if matches!(next_field(layout_rest), Some((_, Field::Fraction { .. }, _))) {
            return Ok(());
        }
        let digits = rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.nanos = fraction_nanos(take_bytes(rest, digits + 1)?)?;
        Ok(())
    }

    fn take_offset(&mut self, rest: &mut &[u8], style: Offset) -> Result<(), Misfit> {
        if style.zulu && rest.first() == Some(&b'Z') {
            *rest = &rest[1..];
            self.utc = true;
            return Ok(());
        }
        let (width, colons): (usize, &[usize]) = match (style.precision, style.colon) {
            (Precision::Hours, _) => (3, &[]),
            (Precision::Minutes, false) => (5, &[]),
            (Precision::Minutes, true) => (6, &[3]),
            (Precision::Seconds, false) => (7, &[]),
            (Precision::Seconds, true) => (9, &[3, 6]),
        };
        let text = rest.get(..width).ok_or(Misfit::Bad)?;
        if colons.iter().any(|colon| text[*colon] != b':') {
            return Err(Misfit::Bad);
        }
        *rest = &rest[width..];
        let digits: Vec<u8> = (1..width)
            .filter(|index| !colons.contains(index))
            .map(|index| text[index])
            .collect();
        let part = |index: usize| match digits.get(2 * index..2 * index + 2) {
            Some(part) => {
                let mut part = part;
                take_number(&mut part, true)
            }
            None => Ok(0),
        };
        // Go stops at the first part that is not a number, but reports parts out of range first, the last one taking
        // precedence.
        let parts: Vec<i64> = (0..3).map_while(|index| part(index).ok()).collect();
        let size = |index: usize| parts.get(index).copied().unwrap_or(0);
        let (hours, minutes, seconds) = (size(0), size(1), size(2));
        within(seconds, 0..=60, "time zone offset second")?;
        within(minutes, 0..=60, "time zone offset minute")?;
        within(hours, 0..=24, "time zone offset hour")?;
        if parts.len() < 3 {
            return Err(Misfit::Bad);
        }
        let offset = (hours * 60 + minutes) * 60 + seconds;
        self.offset = Some(match text[0] {
            b'+' => offset,
            b'-' => -offset,
            _ => return Err(Misfit::Bad),
        });
        Ok(())
    }

    fn take_zone_name(&mut self, rest: &mut &[u8]) -> Result<(), Misfit> {
        if rest.starts_with(b"UTC") {
            *rest = &rest[3..];
            self.utc = true;
            return Ok(());
        }
        let width = zone_name_width(rest).ok_or(Misfit::Bad)?;
        self.zone_name = String::from_utf8_lossy(take_bytes(rest, width)?).into_owned();
        Ok(())
    }

    fn finish(mut self, zone: &Zone) -> Result<Time, &'static str> {
        match self.half {
            Some(Half::Afternoon) if self.hour < 12 => self.hour += 12,
            Some(Half::Morning) if self.hour == 12 => self.hour = 0,
            _ => {}
        }
        let (month, day) = self.month_and_day()?;
        if day < 1 || day > days_in(month, self.year) {
            return Err("day out of range");
        }
        let date = (self.year, month, day);
        let clock = (self.hour, self.minute, self.second, self.nanos);
        if self.utc {
            return Ok(Time::from_civil(date, clock, Zone::Utc));
        }
        // Go uses an offset of -1 second to mark a missing one.
        if let Some(offset) = self.offset.filter(|offset| *offset != -1) {
            let mut time = Time::from_civil(date, clock, Zone::Utc);
            time.seconds -= offset;
            let (name, in_force) = zone.at(time.seconds);
            let fits = in_force == offset && (self.zone_name.is_empty() || name == self.zone_name);
            time.zone = if fits {
                zone.clone()
            } else {
                Zone::Fixed {
                    name: self.zone_name,
                    offset,
                }
            };
            return Ok(time);
        }
        if !self.zone_name.is_empty() {
            let mut time = Time::from_civil(date, clock, Zone::Utc);
            if let Some(offset) = zone.named(&self.zone_name, time.seconds) {
                time.seconds -= offset;
                time.zone = zone.clone();
                return Ok(time);
            }
            let hours = self
                .zone_name
                .strip_prefix("GMT")
                .and_then(|hours| hours.parse::<i64>().ok())
                .unwrap_or(0);
            // The time was parsed as UTC and stays so, even for `GMT+3`.
            time.zone = Zone::Fixed {
                name: self.zone_name,
                offset: hours * 3600,
            };
            return Ok(time);
        }
        Ok(Time::from_civil(date, clock, zone.clone()))
    }

    fn month_and_day(&self) -> Result<(i64, i64), &'static str> {
        let Some(year_day) = self.year_day else {
            return Ok((self.month.unwrap_or(1), self.day.unwrap_or(1)));
        };
        if year_day < 1 || year_day > 365 + i64::from(is_leap(self.year)) {
            return Err("day-of-year out of range");
        }
        let (_, month, day) = civil_from_days(days_from_civil(self.year, 1, 1) + year_day - 1);
        if self.month.is_some_and(|given| given != month) {
            return Err("day-of-year does not match month");
        }
        if self.day.is_some_and(|given| given != day) {
            return Err("day-of-year does not match day");
        }
        Ok((month, day))
    }
}

fn within(number: i64, range: std::ops::RangeInclusive<i64>, what: &'static str) -> Result<i64, Misfit> {
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(Misfit::OutOfRange(what))
    }
}

/// Removes `prefix`, where any run of spaces matches any other. On a mismatch, returns the text left at that point.
fn skip<'a>(mut value: &'a [u8], mut prefix: &[u8]) -> Result<&'a [u8], &'a [u8]> {
    while let Some(&expected) = prefix.first() {
        if expected == b' ' {
            if value.first().is_some_and(|found| *found != b' ') {
                return Err(value);
            }
            skip_spaces(&mut prefix, usize::MAX);
            skip_spaces(&mut value, usize::MAX);
            continue;
        }
        if value.first() != Some(&expected) {
            return Err(value);
        }
        prefix = &prefix[1..];
        value = &value[1..];
    }
    Ok(value)
}

fn skip_spaces(text: &mut &[u8], most: usize) {
    let spaces = text.iter().take(most).take_while(|byte| **byte == b' ').count();
    *text = &text[spaces..];
}

fn take_bytes<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Misfit> {
    let taken = rest.get(..count).ok_or(Misfit::Bad)?;
    *rest = &rest[count..];
    Ok(taken)
}

/// All digits, or a sign and digits as Go's `atoi` accepts them.
fn fixed_number(text: &[u8]) -> Result<i64, Misfit> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    let (value, count, _) = leading_int(digits);
    match value {
        Some(value) if count == digits.len() => Ok(sign * value as i64),
        _ => Err(Misfit::Bad),
    }
}

/// One or two digits; exactly two if `fixed`.
fn take_number(rest: &mut &[u8], fixed: bool) -> Result<i64, Misfit> {
    let digit = |index: usize| {
        rest.get(index)
            .filter(|byte| byte.is_ascii_digit())
            .map(|byte| i64::from(byte - b'0'))
    };
    let (number, width) = match (digit(0), digit(1)) {
        (Some(tens), Some(ones)) => (tens * 10 + ones, 2),
        (Some(ones), None) if !fixed => (ones, 1),
        _ => return Err(Misfit::Bad),
    };
    *rest = &rest[width..];
    Ok(number)
}

fn take_year_day(rest: &mut &[u8], fixed: bool) -> Result<i64, Misfit> {
    let width = rest
        .iter()
        .take(3)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if width == 0 || (fixed && width != 3) {
        return Err(Misfit::Bad);
    }
    fixed_number(take_bytes(rest, width)?)
}

/// The index of the name at the start of the text, in any case.
fn take_name<const N: usize>(rest: &mut &[u8], names: [&str; N]) -> Result<i64, Misfit> {
    let index = names
        .iter()
        .position(|name| {
            rest.get(..name.len())
                .is_some_and(|text| text.eq_ignore_ascii_case(name.as_bytes()))
        })
        .ok_or(Misfit::Bad)?;
    *rest = &rest[names[index].len()..];
    Ok(index as i64)
}

fn take_half(rest: &mut &[u8], morning: &[u8], afternoon: &[u8]) -> Result<Half, Misfit> {
    let text = take_bytes(rest, 2)?;
    if text == afternoon {
        Ok(Half::Afternoon)
    } else if text == morning {
        Ok(Half::Morning)
    } else {
        Err(Misfit::Bad)
    }
}

/// The nanoseconds in a separator followed by digits; further digits are cut off.
fn fraction_nanos(text: &[u8]) -> Result<u32, Misfit> {
    if !matches!(text.first(), Some(b'.' | b',')) {
        return Err(Misfit::Bad);
    }
    let digits = &text[1..text.len().min(10)];
    let nanos = fixed_number(digits)?;
    if nanos < 0 {
        return Err(Misfit::OutOfRange("fractional second"));
    }
    Ok((nanos * 10_i64.pow(9 - digits.len() as u32)) as u32)
}

/// The length of the text that looks like a zone abbreviation.
fn zone_name_width(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if text.starts_with(b"GMT") {
        return Some(3 + signed_offset_width(&text[3..]));
    }
    if matches!(text[0], b'+' | b'-') {
        return Some(signed_offset_width(text)).filter(|width| *width > 0);
    }
    match text
        .iter()
        .take(6)
        .take_while(|byte| byte.is_ascii_uppercase())
        .count()
    {
        5 if text[4] == b'T' => Some(5),
        4 if text[3] == b'T' || text.starts_with(b"WITA") => Some(4),
        3 => Some(3),
        _ => None,
    }
}

/// The width of `+03`, `-4` …; 0 if it is not an offset of at most 23 hours.
fn signed_offset_width(text: &[u8]) -> usize {
    let [b'+' | b'-', digits @ ..] = text else {
        return 0;
    };
    match leading_int(digits) {
        (Some(hours), count @ 1.., _) if hours <= 23 => count + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(zone: Zone) -> Time {
        Time {
            seconds: 1_136_239_445,
            nanos: 123_456_000,
            zone,
        }
    }

    fn berlin() -> Zone {
        Zone::load("Europe/Berlin", &TimeZone::UTC).unwrap()
    }

    #[test]
    fn a_time_prints_by_any_layout() {
        for (layout, expected) in [
            ("Mon Jan _2 15:04:05 2006", "Mon Jan  2 23:04:05 2006"),
            ("2006-01-02T15:04:05Z07:00", "2006-01-02T23:04:05+01:00"),
            (
                "Monday, 02-Jan-06 03:04:05 PM MST",
                "Monday, 02-Jan-06 11:04:05 PM CET",
            ),
            ("3:4:5pm -070000 -07", "11:4:5pm +010000 +01"),
            ("05.000 05.999999999 05,99 .0001", "05.123 05.123456 05,12 .0001"),
            ("__2 002 _2006", "  2 002 _2006"),
            ("Month Janus", "Month Janus"),
            ("é1", "é1"),
        ] {
            assert_eq!(
                String::from_utf8(reference(berlin()).format(layout.as_bytes())).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn zones_are_known_by_their_exact_name() {
        assert!(Zone::load("America/New_York", &TimeZone::UTC).is_some());
        assert!(Zone::load("america/new_york", &TimeZone::UTC).is_none());
        assert!(Zone::load("Mars/Olympus", &TimeZone::UTC).is_none());
    }

    #[test]
    fn texts_are_read_back() {
        for (layout, text, expected) in [
            ("2006-01-02", "2017-12-31", "2017-12-31 00:00:00 +0000 UTC"),
            (
                "2006-01-02T15:04:05Z07:00",
                "2020-02-29T12:00:00.5+02:00",
                "2020-02-29 12:00:00.5 +0200 +0200",
            ),
            ("3:04PM", "12:30AM", "0000-01-01 00:30:00 +0000 UTC"),
            (
                "02 Jan 06 15:04 MST",
                "02 Jan 70 15:04 EST",
                "1970-01-02 15:04:00 +0000 EST",
            ),
            ("2006 002", "2024 366", "2024-12-31 00:00:00 +0000 UTC"),
        ] {
            let time = Time::parse(layout.as_bytes(), text.as_bytes(), &Zone::Utc).unwrap();
            assert_eq!(time.text(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_times_are_reported_in_gos_words() {
        for (layout, text, expected) in [
            (
                "2006-01-02",
                "nope",
                r#"parsing time "nope" as "2006-01-02": cannot parse "nope" as "2006""#,
            ),
            (
                "2006-01-02",
                "2017-13-01",
                r#"parsing time "2017-13-01": month out of range"#,
            ),
            (
                "2006-01-02",
                "2017-02-30",
                r#"parsing time "2017-02-30": day out of range"#,
            ),
            (
                "2006-01-02",
                "2017-02-03x",
                r#"parsing time "2017-02-03x": extra text: "x""#,
            ),
            (
                "2006-01-02",
                "2017/02/03",
                r#"parsing time "2017/02/03" as "2006-01-02": cannot parse "/02/03" as "-""#,
            ),
        ] {
            let error = Time::parse(layout.as_bytes(), text.as_bytes(), &Zone::Utc).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn local_times_follow_their_zone_through_its_changes() {
        let summer = Time::from_civil((2024, 7, 1), (12, 0, 0, 0), berlin());
        assert_eq!(summer.text(), "2024-07-01 12:00:00 +0200 CEST");
        assert_eq!(summer.add_date(0, 6, 0).text(), "2025-01-01 12:00:00 +0100 CET");
        assert_eq!(summer.within(Zone::Utc).text(), "2024-07-01 10:00:00 +0000 UTC");
    }

    #[test]
    fn instants_far_away_still_have_a_date() {
        assert_eq!(Time::ZERO.text(), "0001-01-01 00:00:00 +0000 UTC");
        assert_eq!(
            Time::from_unix(99_999_999_999_999, Zone::Utc).format(b"2006-01-02"),
            b"3170843-11-07"
        );
        assert_eq!(
            Time::from_unix(-99_999_999_999_999, Zone::Utc).format(b"2006"),
            b"-3166904"
        );
    }
}
