//! The API of this product, for users and between its programs: custom resources, labels, annotations, finalizers,
//! conditions, policies, event reasons, the wire types of chart-inspector and the length of messages.
//!
//! There is no other logic and no I/O here. Every name is defined once, here, and listed in `docs/reference/names.md`;
//! names must not change, because existing manifests and dashboards rely on them.

pub mod annotations;
pub mod composition;
pub mod conditions;
pub mod definition;
pub mod events;
pub mod finalizers;
pub mod grant;
pub mod inspection;
pub mod joining;
pub mod labels;
pub mod mesh;
pub mod message;
pub mod policy;
pub mod release_key;

pub use composition::{Composition, CompositionStatus};
pub use definition::{CompositionDefinition, CompositionDefinitionSpec, CompositionDefinitionStatus};
pub use grant::{ChartGrant, ChartGrantSpec};

/// API group of the types that are generated from charts.
pub const COMPOSITION_GROUP: &str = "composition.krateo.io";

/// API group of [`CompositionDefinition`].
pub const DEFINITION_GROUP: &str = "core.krateo.io";

/// API group of `ChartGrant`: Krateo, which we extend by it, has the others.
pub const GRANT_GROUP: &str = "kco.krateo.io";

/// Into how many shards the compositions of a type are split for the replicas of its controller, unless
/// [`SHARDS_VARIABLE`] says otherwise.
pub const SHARDS: u16 = 8;

/// The maximum number of shards: the controller's Role names a Lease for each.
pub const MOST_SHARDS: u16 = 64;

/// The controllers' environment variable for the number of shards.
pub const SHARDS_VARIABLE: &str = "COMPOSITION_CONTROLLER_SHARDS";
