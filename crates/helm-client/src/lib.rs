//! Charts in from registries; releases out to clusters and their records to Secrets.

pub mod authenticity;
pub mod charts;
mod digest;
mod json;
pub mod records;
pub mod release;
pub mod rendering;
pub mod source;
