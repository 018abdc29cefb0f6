//! The parts of Go's standard library that are visible in charts: how values are parsed and printed, and the text of
//! errors.
//!
//! Strings are bytes, as in Go. The crate is pure: no clock, no randomness, no files.
//!
//! ```
//! use gostd::duration::Duration;
//! use gostd::regexp::Regexp;
//!
//! assert_eq!(Duration::parse(b"1h15m").unwrap().to_string(), "1h15m0s");
//! assert!(Regexp::compile(br"^\d+$").unwrap().is_match(b"12"));
//! assert!(Regexp::compile(b"(?=a)").is_err(), "Go has no lookaround");
//! ```

pub mod clock;
pub mod duration;
pub mod number;
pub mod path;
pub mod quote;
pub mod regexp;
pub mod rune;
pub mod strconv;
pub mod unicode;
pub mod url;
