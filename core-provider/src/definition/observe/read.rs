//! What was read of a definition and of other versions of its type.

use api::definition::{BoundStatus, Breaker};
use cluster::ObjectId;
use crdgen::CustomResourceDefinition;

use super::observed::{Located, Neighbours};
use crate::bundle::Target;
use crate::definition::admission::Probe;
use crate::definition::controllers::Controller;
use crate::definition::instances::Instance;
use crate::definition::members::Member;
use crate::definition::relocation::Relocation;

/// What was read of a definition to apply.
pub(super) struct Read {
    pub(super) live: Option<CustomResourceDefinition>,
    pub(super) desired: CustomResourceDefinition,
    pub(super) neighbours: Neighbours,
    pub(super) bundle: Vec<Member>,
    pub(super) target: Target,
    pub(super) bound: BoundStatus,
    pub(super) relocation: Option<Relocation>,
    pub(super) granted: Vec<ObjectId>,
    pub(super) is_available: bool,
    pub(super) unadmitted: Option<Probe>,
    /// `None` while we may not read compositions.
    pub(super) elsewhere: Option<Elsewhere>,
    /// The definition's controllers of other versions and types; only read while we may read compositions.
    pub(super) former: Vec<ReadController>,
}

/// Compositions of other versions, and those of them that the definition's version refuses.
#[derive(Default)]
pub(super) struct Elsewhere {
    pub(super) instances: Vec<Instance>,
    pub(super) breakers: Vec<Breaker>,
}

/// A controller that the definition had before.
pub(super) struct ReadController {
    pub(super) controller: Controller,
    /// Its objects, in the order in which they are removed.
    pub(super) objects: Vec<Located>,
    /// Its type, if it is no longer the definition's type.
    pub(super) of_type: Option<ReadType>,
}

/// A type that the definition had before.
pub(super) struct ReadType {
    pub(super) id: ObjectId,
    /// Its kind, while it is served.
    pub(super) kind: Option<String>,
    /// How many compositions the controller has.
    pub(super) compositions: usize,
}
