//! What every controller process needs: arguments, logs, metrics, probes, shutdown, leadership, events, backoff.
//!
//! A program's `main` parses and runs; `run` reads like this:
//!
//! ```no_run
//! # async fn run() -> Result<(), runtime::Error> {
//! let process = runtime::start(runtime::Options::new("core-provider", env!("CARGO_PKG_VERSION"))).await?;
//! let leading = process.lead("krateo-system", "leader-election-core-provider").await?;
//! process.readiness().set(true);
//! // … controllers, until `process.shutdown()` or `leading.lost()` is cancelled …
//! process.finish(Some(leading)).await;
//! # Ok(())
//! # }
//! ```

pub mod admin;
#[cfg(feature = "jemalloc")]
mod allocator;
pub mod args;
pub mod backoff;
mod chain;
pub mod connections;
pub mod duration;
pub mod events;
mod excerpt;
pub mod logs;
pub mod looks;
pub mod metrics;
pub mod otlp;
mod process;
mod process_metrics;
pub mod queue;
pub mod renders;
pub mod server;
pub mod shutdown;
pub mod spans;
pub mod telemetry;
pub mod watch;
pub mod watches;

pub use backoff::Backoff;
pub use chain::chain;
pub use duration::GoDuration;
pub use events::Recorder;
pub use looks::Looks;
pub use metrics::Metrics;
pub use otlp::{Push, PushArgs};
pub use process::{Error, Options, Process, init, start};
pub use queue::Queue;
pub use renders::Renders;
pub use telemetry::Telemetry;
pub use watches::Watches;
