//! What was read of a composition.

use cluster::{Health, ObjectId};
use composition::bound::Outside;
use composition::permissions::Grant;
use composition::plan::Rights;
use composition::{Given, ReleaseName};
use helm_client::records;
use helm_client::release::Releases;
use helm_client::release::drift::DriftedObject;
use inspection::Standing;

use super::grants::Roles;
use super::intention::Intention;

/// What was read of a composition.
pub(super) struct Fetched {
    pub(super) release_name: ReleaseName,
    /// The releases, as they are acted on for this composition.
    pub(super) releases: Releases,
    pub(super) found: Found,
}

/// What was found.
pub(super) enum Found {
    /// The composition is paused: nothing was looked at.
    Nothing,
    /// The Roles of that release name are another composition's, as this says.
    OfAnother(String),
    /// The composition goes with its namespace.
    Going(Box<Going>),
    /// The release, which may not be there yet.
    Release(Box<FoundRelease>),
}

/// What a composition has that goes with its namespace.
pub(super) struct Going {
    pub(super) roles: Roles,
    /// The permissions that are there.
    pub(super) granted: Vec<Grant>,
    /// The objects of the release outside the namespace; none while those permissions are not this controller's, without
    /// which they are not to be found.
    pub(super) outlying: Option<Vec<ObjectId>>,
}

/// The release of a composition, and all that bears on it.
pub(super) struct FoundRelease {
    /// Whether the definition gives it a name.
    pub(super) given: Given,
    /// What it should be; none of a composition that goes.
    pub(super) intention: Option<Intention>,
    pub(super) roles: Roles,
    pub(super) rights: Rights,
    pub(super) standing: Standing,
    /// Its records; none while they may not be read.
    pub(super) records: Option<records::Observed>,
    /// The objects of the deployed revision, where they were looked at.
    pub(super) objects: Vec<(ObjectId, Health)>,
    /// Those of them that are not as they were applied.
    pub(super) drifted: Vec<DriftedObject>,
    /// What it needs beyond the bound, where it lacks rights.
    pub(super) outside: Option<Outside>,
    /// The objects that its Roles name, where no record of its own does.
    pub(super) in_roles: Vec<ObjectId>,
}
