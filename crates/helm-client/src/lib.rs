//! Charts in from registries; releases out to clusters and their records to Secrets.

pub mod charts;
pub mod source;
