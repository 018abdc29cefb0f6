//! Pushes figures and traces to a collector: OTLP over HTTP, in protobuf.
//!
//! What [`Metrics`](crate::Metrics) holds is read and written down in OpenTelemetry's terms; nothing is recorded for it.
//! Spans are recorded by [`crate::spans`]. Without either nothing of this exists.

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
