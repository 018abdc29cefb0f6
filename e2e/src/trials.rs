//! Longer trials, each with a program in `src/bin` and a make target: comparisons, kills, attacks and measurements. They
//! use the harness, which is the rest of this crate. Short forms of most of them are among the scenarios.

pub mod admission;
pub mod api_faults;
pub mod attacks;
pub mod bootstrap;
pub mod composition_kills;
pub mod composition_replicas;
pub mod compositions;
pub mod definition_kills;
pub mod installer;
pub mod kills;
pub mod migration;
pub mod multicluster;
pub mod network_policies;
pub mod released;
pub mod releases;
pub mod walk_through;
