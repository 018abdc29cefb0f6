//! The installer with trial components: their list, the charts that stand in for them, the packaged chart, what it
//! renders, and the whole platform on a cluster.

pub mod charts;
pub mod components;
pub mod kills;
pub mod live;
pub mod order;
pub mod package;
pub mod removal;
pub mod rendered;
pub mod run;
pub mod stored;
pub mod umbrella;

pub use components::{Component, Profile};
pub use package::{Package, Schema, Subcharts};
