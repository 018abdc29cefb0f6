//! Compositions from a terminal: which exist, their state, what their controllers would do next, and what their charts
//! would touch. Nothing is written but approvals.

mod approve;
pub(crate) mod args;
mod desired;
pub(crate) mod find;
mod foreseen;
mod inspect;
mod list;
pub(crate) mod names;
mod permissions;
mod plan;
mod standing;
mod tree;

pub(crate) use desired::grants;
pub(crate) use foreseen::{Foreseen, foreseen};
pub(crate) use {
    approve::run as approve, inspect::run as inspect, list::run as list, plan::run as plan, tree::run as tree,
};
