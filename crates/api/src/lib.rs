//! The words this product shares with its users and between its programs: custom resources, labels,
//! annotations, finalizers, conditions, policies, event reasons and the wire types of chart-inspector.
//!
//! Nothing here decides or talks to anybody. Every name is spelled once, here, and kept as
//! `docs/reference/names.md` lists it, because existing manifests and dashboards rely on it.

pub mod annotations;
pub mod composition;
pub mod conditions;
pub mod definition;
pub mod events;
pub mod finalizers;
pub mod inspection;
pub mod joining;
pub mod labels;
pub mod mesh;
pub mod policy;
pub mod release_key;

pub use composition::{Composition, CompositionStatus};
pub use definition::{CompositionDefinition, CompositionDefinitionSpec, CompositionDefinitionStatus};

/// API group of the types that are generated from charts.
pub const COMPOSITION_GROUP: &str = "composition.krateo.io";

/// API group of [`CompositionDefinition`].
pub const DEFINITION_GROUP: &str = "core.krateo.io";

/// Into how many parts the compositions of a type are cut, for the replicas of its controller to share, unless
/// [`SHARDS_VARIABLE`] says otherwise.
pub const SHARDS: u16 = 8;

/// As many parts are possible: the controller's Role names a Lease for each.
pub const MOST_SHARDS: u16 = 64;

/// The controllers' environment variable for the number of parts.
pub const SHARDS_VARIABLE: &str = "COMPOSITION_CONTROLLER_SHARDS";
