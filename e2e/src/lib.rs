//! The harness of the end-to-end tests and of the demo: our programs as images, a cluster to run them on,
//! the platform installed with Helm, charts in a registry, and scenarios in namespaces of their own.
#![allow(
    clippy::print_stderr,
    reason = "progress is what the person at the terminal waits for"
)]

mod admin;
pub mod chart;
pub mod collector;
pub mod cosign;
pub mod gpg;
pub mod host_platform;
pub mod http_server;
pub mod image;
pub mod layout;
pub mod namespace;
mod picture;
pub mod platform;
pub mod proxy;
pub mod scenario;
pub mod shared;
pub mod site;
pub mod token_service;
pub mod trials;
pub mod usage;
pub mod watch;

pub use chart::ChartFolder;
pub use collector::Collector;
pub use gpg::Signer;
pub use host_platform::HostPlatform;
pub use http_server::HttpServer;
pub use namespace::Namespace;
pub use scenario::Scenario;
pub use shared::Shared;
pub use site::Site;

/// Prints what is being done, so that nobody wonders during a long step.
pub fn progress(what: impl std::fmt::Display) {
    eprintln!("e2e: {what}");
}
