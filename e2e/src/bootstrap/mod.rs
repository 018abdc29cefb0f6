//! Bare machines to a cluster by the real kubeadm: `make bootstrap` tries all that becomes of them, `make demo-bootstrap`
//! shows how they come up.

mod members;
mod pods;
mod rig;
mod trial;
mod upkeep;

pub use trial::{DEMO, Outcome, demo, run};
