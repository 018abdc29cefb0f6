//! The installer with trial components: their list, charts that stand for them, the packaged chart, and what it renders.

pub mod charts;
pub mod components;
pub mod package;
pub mod rendered;

pub use components::{Component, Profile};
pub use package::{Package, Subcharts};
