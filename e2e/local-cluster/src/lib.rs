//! A real Kubernetes on this machine, for tests and the demo.

pub mod audit;
pub mod image;
pub mod packages;
pub mod parts;
pub mod process;
pub mod state;
pub mod wait;

mod certificates;
mod cluster;
mod control_plane;
mod dns;
mod home;
mod network;
mod node;
mod progress;
mod registry;

pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Options};
pub use process::output;
