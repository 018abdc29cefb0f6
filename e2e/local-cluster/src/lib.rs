//! A real Kubernetes on this machine, for tests and the demo.

pub mod packages;
pub mod parts;

mod home;
mod progress;
