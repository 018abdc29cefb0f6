//! A real Kubernetes on this machine, for tests and the demo.
//!
//! Nothing is simulated: API server, store, controllers, kubelets and container runtime are the real ones,
//! built once from pinned Go modules ([`parts`]). There are two sizes:
//!
//! - [`ControlPlane`]: API server, store and default controllers on loopback, in about 4 s and without root;
//!   for whatever needs no pods.
//! - [`Cluster`]: with nodes, pods, Services, DNS and a registry in network namespaces of their own, in about
//!   8 s; needs root.
//!
//! [`Machines`] run no Kubernetes; they are for testing what turns bare machines into a cluster.
//!
//! ```no_run
//! use local_cluster::{ControlPlane, Options, output};
//!
//! # fn main() -> anyhow::Result<()> {
//! let control_plane = ControlPlane::start(Options::default())?;
//! let before = control_plane.audit().mark()?;
//! control_plane.apply("{apiVersion: v1, kind: Namespace, metadata: {name: here}}")?;
//! println!("{}", output(&mut control_plane.kubectl(["get", "namespaces"]))?);
//! for record in control_plane.audit().since(before)? {
//!     println!("{:?}", record?);
//! }
//! # Ok(())
//! # } // it is gone here
//! ```
//!
//! A value owns its cluster: the cluster ends with the value, and at the latest with the process, however that ends
//! ([`state`]). `README.md` beside this crate lists the settings and their reasons.

pub mod audit;
pub mod certificates;
pub mod image;
pub mod mirror;
pub mod packages;
pub mod parts;
pub mod process;
pub mod registry;
pub mod state;
pub mod wait;

mod cluster;
mod control_plane;
mod digest;
mod dns;
mod forecast;
mod home;
mod machines;
mod network;
mod node;
mod progress;

pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Options};
pub use machines::Machines;
pub use process::{Usage, output};
