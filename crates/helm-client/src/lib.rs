//! Releases out to clusters, and their records to Secrets.

pub mod authenticity;
mod json;
pub mod records;
pub mod release;
pub mod rendering;
