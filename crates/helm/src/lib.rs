//! Filled in below.

pub mod context;
