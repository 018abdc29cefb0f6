//! Go's `time.Duration`: nanoseconds, parsed and printed as `1h15m30.918s`.

use std::fmt::{self, Write as _};

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub i64);

/// Nanoseconds in a microsecond.
pub const MICROSECOND: i64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: i64 = 1_000 * MICROSECOND;
/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000 * MILLISECOND;
/// Nanoseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;

/// Why a text is not a duration, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time: {problem} {text}")]
pub struct Error {
    /// What is wrong with it.
    pub problem: Problem,
    text: String,
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is empty, or a part is not a number with a unit.
    #[error("invalid duration")]
    Malformed,
    /// More than fits into 64 bits of nanoseconds.
    #[error("invalid duration")]
    TooLong,
    /// A number without a unit.
    #[error("missing unit in duration")]
    NoUnit,
    /// An unknown unit, quoted.
    #[error("unknown unit {0} in duration")]
    UnknownUnit(String),
}

impl Duration {
    /// `time.ParseDuration`: signed decimal numbers, each with a unit: `300ms`, `-1.5h`, `2h45m`.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let fail = |problem: Problem| {
            Err(Error {
                problem,
                text: quote(text),
            })
        };
        let (negative, mut rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] | rest => (false, rest),
        };
        if rest == b"0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return fail(Problem::Malformed);
        }
        let limit = i64::MIN.unsigned_abs();
        let mut total = 0_u64;
        while !rest.is_empty() {
            if !matches!(rest[0], b'.' | b'0'..=b'9') {
                return fail(Problem::Malformed);
            }
            let (whole, digits, behind) = leading_int(rest);
            let Some(whole) = whole else {
                return fail(Problem::TooLong);
            };
            rest = behind;
            let mut fraction = (0, 1.0);
            let mut fraction_digits = 0;
            if let [b'.', behind @ ..] = rest {
                (fraction, fraction_digits, rest) = leading_fraction(behind);
            }
            if digits == 0 && fraction_digits == 0 {
                return fail(Problem::Malformed);
            }
            let end = rest
                .iter()
                .position(|&b| b == b'.' || b.is_ascii_digit())
                .unwrap_or(rest.len());
            let (unit_name, behind) = rest.split_at(end);
            if unit_name.is_empty() {
                return fail(Problem::NoUnit);
            }
            rest = behind;
            let Some(unit) = unit(unit_name) else {
                return fail(Problem::UnknownUnit(quote(unit_name)));
            };
            if whole > limit / unit {
                return fail(Problem::TooLong);
            }
            // Go also computes the fraction in floating point; the rounding affects the nanoseconds.
            let part = (fraction.0 as f64 * (unit as f64 / fraction.1)) as u64;
            let Some(sum) = (whole * unit)
                .checked_add(part)
                .filter(|part| *part <= limit)
                .and_then(|part| total.checked_add(part))
            else {
                return fail(Problem::TooLong);
            };
            total = sum;
            if total > limit {
                return fail(Problem::TooLong);
            }
        }
        match negative {
            true => Ok(Self((total as i64).wrapping_neg())),
            false if total < limit => Ok(Self(total as i64)),
            false => fail(Problem::TooLong),
        }
    }

    /// Rounds towards zero to a multiple of `unit`; unchanged if the unit is not positive.
    pub fn truncate(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            self
        } else {
            Self(self.0 - self.0 % unit.0)
        }
    }

    /// Rounds to the nearest multiple of `unit`, half away from zero; unchanged if the unit is not positive. On
    /// overflow, the result is the largest duration of the same sign.
    pub fn round(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            return self;
        }
        let rest = (self.0 % unit.0).unsigned_abs();
        let down = self.0 - self.0 % unit.0;
        if rest + rest < unit.0.unsigned_abs() {
            return Self(down);
        }
        Self(if self.0 < 0 {
            down.saturating_sub(unit.0)
        } else {
            down.saturating_add(unit.0)
        })
    }

    /// Removes the sign; the smallest duration becomes the largest.
    pub fn abs(self) -> Self {
        Self(self.0.checked_abs().unwrap_or(i64::MAX))
    }

    /// `Seconds`: the number of seconds.
    pub fn seconds(self) -> f64 {
        self.split(SECOND)
    }

    /// `Minutes`: the number of minutes.
    pub fn minutes(self) -> f64 {
        self.split(MINUTE)
    }

    /// `Hours`: the number of hours.
    pub fn hours(self) -> f64 {
        self.split(HOUR)
    }

    /// Converts whole units and the rest separately, as Go does to keep precision.
    fn split(self, unit: i64) -> f64 {
        (self.0 / unit) as f64 + (self.0 % unit) as f64 / unit as f64
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (unit, name) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        if unit < 1_000_000_000 {
            return write!(f, "{}{name}", decimal(nanos, unit));
        }
        let seconds = nanos / unit;
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % (60 * unit), unit))
    }
}

/// `nanos` in `unit`s, without trailing zeros.
fn decimal(nanos: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanos % unit);
    match fraction.trim_end_matches('0') {
        "" => (nanos / unit).to_string(),
        fraction => format!("{}.{fraction}", nanos / unit),
    }
}

fn unit(name: &[u8]) -> Option<u64> {
    Some(match std::str::from_utf8(name).ok()? {
        "ns" => 1,
        // The micro sign and the Greek letter mu.
        "us" | "\u{B5}s" | "\u{3BC}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    } as u64)
}

/// The leading digits: their value (none if above 2^63), their count, and the rest of the text.
pub fn leading_int(text: &[u8]) -> (Option<u64>, usize, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = text[..digits].iter().try_fold(0_u64, |value, digit| {
        value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))
            .filter(|value| *value <= 1 << 63)
    });
    (value, digits, &text[digits..])
}

/// The digits after a point as (value, scale); digits that do not fit are dropped.
fn leading_fraction(text: &[u8]) -> ((u64, f64), usize, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut value = 0_u64;
    let mut scale = 1.0;
    for digit in &text[..digits] {
        let Some(next) = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
        else {
            break;
        };
        if value > i64::MAX as u64 / 10 || next > 1 << 63 {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    ((value, scale), digits, &text[digits..])
}

/// The quoting of Go's `time` package, which avoids `strconv`: bytes that are not printable ASCII in hex.
pub fn quote(text: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for &byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..0x80 => quoted.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "\\x{byte:02x}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("5s", Ok(5 * SECOND)),
            ("-5s", Ok(-5 * SECOND)),
            ("+5s", Ok(5 * SECOND)),
            ("5.6s", Ok(5600 * MILLISECOND)),
            (".5m", Ok(30 * SECOND)),
            ("1.h", Ok(HOUR)),
            ("3h30m", Ok(3 * HOUR + 30 * MINUTE)),
            ("10.5s4m", Ok(4 * MINUTE + 10500 * MILLISECOND)),
            ("12µs", Ok(12 * MICROSECOND)),
            ("12μs", Ok(12 * MICROSECOND)),
            ("0.3333333333333333333h", Ok(20 * MINUTE)),
            ("9223372036854775807ns", Ok(i64::MAX)),
            ("-9223372036854775808ns", Ok(i64::MIN)),
            (
                "9223372036854775808ns",
                Err("time: invalid duration \"9223372036854775808ns\""),
            ),
            ("", Err("time: invalid duration \"\"")),
            ("3", Err("time: missing unit in duration \"3\"")),
            ("3d", Err("time: unknown unit \"d\" in duration \"3d\"")),
            (".s", Err("time: invalid duration \".s\"")),
            (
                "1s é",
                Err("time: unknown unit \"s \\xc3\\xa9\" in duration \"1s \\xc3\\xa9\""),
            ),
        ] {
            let parsed = Duration::parse(text.as_bytes())
                .map(|duration| duration.0)
                .map_err(|error| error.to_string());
            assert_eq!(parsed, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn durations_print_as_go_prints_them() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (95 * SECOND, "1m35s"),
            (4 * MINUTE + 5_001_000_000, "4m5.001s"),
            (5 * HOUR + 6_000_000_001, "5h0m6.000000001s"),
            (-HOUR, "-1h0m0s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(Duration(nanos).to_string(), expected);
        }
    }

    #[test]
    fn rounding_goes_half_away_from_zero_and_never_overflows() {
        let round = |value, unit| Duration(value).round(Duration(unit)).0;
        assert_eq!(
            [
                round(7, 2),
                round(-7, 2),
                round(14, 10),
                round(15, 10),
                round(-15, 10),
                round(5, 0),
                round(5, -1)
            ],
            [8, -8, 10, 20, -20, 5, 5]
        );
        assert_eq!(round(i64::MAX, HOUR), i64::MAX);
        assert_eq!(Duration(-17).truncate(Duration(5)), Duration(-15));
    }
}
