//! Durations as Go spells them: `1h`, `3m`, `1h30m`, `250ms`.
//!
//! Follows `ParseDuration` and `Duration.String` of Go's `time` package, because existing manifests contain such
//! settings. Settings are never negative, so a sign is refused.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gostd::duration::{self, Problem};

/// A duration in Go's syntax; `clap` parses it through its `FromStr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Empty, or not a number with a unit.
    #[error("{0:?} is not a duration; write it like 1h, 3m, 1h30m or 250ms")]
    Malformed(String),
    /// A number without a unit.
    #[error("{0:?} has no unit; write it like 1h, 3m, 1h30m or 250ms")]
    NoUnit(String),
    /// More than Go's 64 bits of nanoseconds (about 292 years).
    #[error("{0:?} is too long for a duration")]
    TooLong(String),
}

impl FromStr for GoDuration {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let malformed = || Invalid::Malformed(text.to_owned());
        if text.starts_with(['-', '+']) {
            return Err(malformed());
        }
        let read = duration::Duration::parse(text.as_bytes()).map_err(|error| match error.problem {
            Problem::NoUnit => Invalid::NoUnit(text.to_owned()),
            Problem::TooLong => Invalid::TooLong(text.to_owned()),
            Problem::Malformed | Problem::UnknownUnit(_) => malformed(),
        })?;
        Ok(Self(Duration::from_nanos(read.0.unsigned_abs())))
    }
}

/// As Go prints it: `1h30m0s`, `1.5s`, `250ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Longer durations cannot be parsed, only constructed.
        let nanoseconds = i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX);
        duration::Duration(nanoseconds).fmt(f)
    }
}

impl From<GoDuration> for Duration {
    fn from(GoDuration(duration): GoDuration) -> Self {
        duration
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The non-negative cases of Go's `time_test.go`, and some of ours.
    #[test]
    fn durations_are_read_and_printed_as_go_does() {
        let check = |text: &str, nanoseconds: u64, printed: &str| {
            let read: GoDuration = text.parse().unwrap();
            assert_eq!(read, GoDuration(Duration::from_nanos(nanoseconds)), "{text}");
            assert_eq!(read.to_string(), printed, "{text}");
        };
        check("0", 0, "0s");
        check("5s", 5 * SECOND, "5s");
        check("1h", 3600 * SECOND, "1h0m0s");
        check("3m", 180 * SECOND, "3m0s");
        check("1h30m", 5400 * SECOND, "1h30m0s");
        check("250ms", 250_000_000, "250ms");
        check("5.6s", 5_600_000_000, "5.6s");
        check("5.s", 5 * SECOND, "5s");
        check(".5s", 500_000_000, "500ms");
        check("1.004s", 1_004_000_000, "1.004s");
        check("100.00100s", 100_001_000_000, "1m40.001s");
        check("10ns", 10, "10ns");
        check("11us", 11_000, "11\u{b5}s");
        check("12\u{b5}s", 12_000, "12\u{b5}s");
        check("12\u{3bc}s10ns", 12_010, "12.01\u{b5}s");
        check("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s");
        check(
            "9007199254.740993ms",
            9_007_199_254_740_993,
            "2501h59m59.254740993s",
        );
        check("0.3333333333333333333h", 1_200 * SECOND, "20m0s");
        check(
            "9223372036854775807ns",
            i64::MAX.unsigned_abs(),
            "2562047h47m16.854775807s",
        );
    }

    #[test]
    fn an_invalid_duration_is_refused_with_an_example() {
        for text in [
            "",
            "3",
            "-5s",
            "+5s",
            "s",
            ".",
            "-.",
            ".s",
            "1d",
            "3000000h",
            "9223372036854775808ns",
            "1h x",
            "1 h",
        ] {
            let error = text.parse::<GoDuration>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        assert_eq!("3".parse::<GoDuration>(), Err(Invalid::NoUnit("3".to_owned())));
    }
}
