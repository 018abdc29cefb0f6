//! The words this product shares with its users and between its programs: custom resources, labels,
//! annotations, finalizers, conditions, policies, event reasons and the wire types of chart-inspector.
//!
//! Nothing here decides or talks to anybody. Every name is spelled once, here, and kept as
//! `docs/contract.md` lists it, because existing manifests and dashboards rely on it.

pub mod annotations;
pub mod composition;
pub mod conditions;
pub mod definition;
pub mod events;
pub mod finalizers;
pub mod inspection;
pub mod labels;
pub mod policy;

pub use composition::{Composition, CompositionStatus};
pub use definition::{CompositionDefinition, CompositionDefinitionSpec, CompositionDefinitionStatus};

/// API group of the types that are generated from charts.
pub const COMPOSITION_GROUP: &str = "composition.krateo.io";

/// API group of [`CompositionDefinition`].
pub const DEFINITION_GROUP: &str = "core.krateo.io";
