//! Pushes the figures to a collector: OTLP over HTTP, in protobuf.
//!
//! What [`Metrics`](crate::Metrics) holds is read and written down in OpenTelemetry's terms; nothing is recorded for it, and
//! without a [`Push`] nothing of this exists.

mod arguments;
mod client;
mod encoder;
#[cfg(test)]
mod tests;

pub use arguments::{Error, PushArgs};
pub use client::Push;
