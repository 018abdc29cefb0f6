//! Makes a cluster of bare machines by the real kubeadm: `make bootstrap` tests their whole life, `make demo-bootstrap`
//! shows how they come up.

mod members;
mod pods;
mod rig;
mod run;
mod trial;
mod upkeep;

pub use run::{DEMO, Outcome, demo, run};
