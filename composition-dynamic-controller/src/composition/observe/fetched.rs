//! What was read of a composition.

use chart_bound::Outside;
use cluster::{Health, ObjectId};
use composition::permissions::Grant;
use composition::plan::{Growth, Rights};
use composition::{OfferedName, ReleaseName};
use helm_client::records;
use helm_client::release::Releases;
use helm_client::release::drift::DriftedObject;
use inspection::Standing;

use super::grants::Roles;
use super::intention::Intention;

/// What was read of a composition.
pub(super) struct Fetched {
    pub(super) release_name: ReleaseName,
    /// The client for releases, set up for this composition.
    pub(super) releases: Releases,
    pub(super) state: CompositionState,
}

/// What was found of a composition.
pub(super) enum CompositionState {
    /// The composition is paused: nothing was read.
    Paused,
    /// The Roles for that release name belong to another composition; the text says which.
    OfAnother(String),
    /// The composition is being deleted with its namespace.
    Going(Box<Going>),
    /// The release, which may not exist yet.
    Release(Box<FoundRelease>),
}

/// What was read of a composition that is being deleted with its namespace.
pub(super) struct Going {
    pub(super) roles: Roles,
    /// The existing permissions.
    pub(super) granted: Vec<Grant>,
    /// The objects of the release outside the namespace; none while those permissions are not bound to this controller,
    /// which needs them to find the objects.
    pub(super) outlying: Option<Vec<ObjectId>>,
}

/// The release of a composition, and everything that was read with it.
pub(super) struct FoundRelease {
    /// The release name that the definition gives, if any.
    pub(super) offered: OfferedName,
    /// What the release should be; none when the composition is being deleted.
    pub(super) intention: Option<Intention>,
    pub(super) roles: Roles,
    pub(super) rights: Rights,
    /// Whether additional permissions have to wait for an approval.
    pub(super) growth: Growth,
    pub(super) standing: Standing,
    /// The release's records; none while they may not be read.
    pub(super) records: Option<records::Observed>,
    /// The objects of the deployed revision and their health, if they were read.
    pub(super) objects: Vec<(ObjectId, Health)>,
    /// The objects that have drifted.
    pub(super) drifted: Vec<DriftedObject>,
    /// What the release needs beyond the bound, if permissions are missing.
    pub(super) outside: Option<Outside>,
    /// The objects that its Roles name, if no record of its own does.
    pub(super) in_roles: Vec<ObjectId>,
}
