//! The parts of Go's standard library whose behaviour the template functions show: what parses, how it prints,
//! and what the errors say. Strings are bytes here as they are in Go.

pub(crate) mod clock;
pub(crate) mod duration;
pub(crate) mod path;
pub mod regexp;
pub(crate) mod strconv;
pub(crate) mod unicode;
pub(crate) mod url;
