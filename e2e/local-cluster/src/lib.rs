//! A real Kubernetes on this machine, for tests and the demo.

pub mod audit;
pub mod packages;
pub mod parts;
pub mod process;
pub mod state;
pub mod wait;

mod certificates;
mod control_plane;
mod home;
mod progress;

pub use control_plane::{ControlPlane, Options};
pub use process::output;
