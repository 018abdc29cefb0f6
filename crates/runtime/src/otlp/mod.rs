//! Pushes metrics and traces to a collector: OTLP over HTTP, in protobuf.
//!
//! Metrics are read from [`Metrics`](crate::Metrics) and converted to OpenTelemetry's format; nothing is recorded
//! twice. Spans are recorded by [`crate::spans`]. If neither is pushed, nothing of this runs.

mod arguments;
mod client;
mod encoder;
pub(crate) mod messages;
mod settings;
#[cfg(test)]
mod tests;

pub use arguments::PushArgs;
pub use client::Push;
pub(crate) use client::Recorded;
