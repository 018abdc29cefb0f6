//! Go's `text/template` language: parse once, execute many times, on any thread.

pub mod function;
pub mod json;
pub mod string;
pub mod types;
pub mod value;
