//! Go's `text/template` language: parse once, execute many times, on any thread.

pub mod format;
pub mod function;
pub mod json;
pub mod number;
pub mod quote;
pub mod rune;
pub mod string;
pub mod types;
pub mod unicode;
pub mod value;
