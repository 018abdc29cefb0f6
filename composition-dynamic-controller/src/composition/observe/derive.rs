//! What was read of a composition becomes what the plan is made from, and decides what is read next. Nothing here asks anybody.

use std::time::Duration;

use api::Composition;
use api::inspection::Resource;
use cluster::{Health, ObjectId, ResourceId};
use composition::permissions::Grant;
use composition::plan::{self, Growth, Home, Release, Rights};
use composition::{Permissions, ReleaseName};
use helm_client::records;
use helm_client::release::Releases;
use helm_client::release::drift::DriftedObject;
use k8s_openapi::api::core::v1::Namespace;

use super::fetched::{Fetched, Found, FoundRelease, Going};
use super::intention::{Intention, Wanted};

/// What a pass saw.
pub(in crate::composition) struct Observed {
    /// What the plan is made from.
    pub(in crate::composition) facts: plan::Observed,
    pub(in crate::composition) release_name: ReleaseName,
    /// The releases, as they are acted on for this composition.
    pub(in crate::composition) releases: Releases,
    /// What the release should be; `None` while deleting.
    pub(in crate::composition) wanted: Option<Wanted>,
    /// Its records; `None` when they may not be read yet.
    pub(in crate::composition) records: Option<records::Observed>,
    /// The objects of the deployed revision, and how they are.
    pub(in crate::composition) objects: Vec<(ObjectId, Health)>,
    /// Those of them that are not as they were applied.
    pub(in crate::composition) drifted: Vec<DriftedObject>,
    /// When a failed action is tried again, if it is by itself.
    pub(in crate::composition) retry_in: Option<Duration>,
    /// Objects that may be of the composition and that no record of its own names: those outside its namespace, when that
    /// goes, and those that its permissions name, when its record was replaced.
    pub(in crate::composition) outlying: Vec<ObjectId>,
    /// Why the release has not the name that the definition says.
    pub(in crate::composition) ignored_name: Option<String>,
}

/// What a plan is made from, and what its steps are carried out with.
pub(super) fn derive(composition: &Composition, fetched: Fetched, growth: Growth) -> Observed {
    let Fetched {
        release_name,
        releases,
        found,
    } = fetched;
    let nothing = Observed {
        facts: of_nothing(),
        release_name,
        releases,
        wanted: None,
        records: None,
        objects: Vec::new(),
        drifted: Vec::new(),
        retry_in: None,
        outlying: Vec::new(),
        ignored_name: None,
    };
    match found {
        Found::Nothing => nothing,
        Found::OfAnother(why) => Observed {
            facts: plan::Observed {
                release: Release::Foreign(why),
                ..of_nothing()
            },
            ..nothing
        },
        Found::Going(going) => going.added_to(nothing, composition),
        Found::Release(release) => release.added_to(nothing, growth),
    }
}

fn of_nothing() -> plan::Observed {
    plan::Observed {
        definition: None,
        named: None,
        rights: Rights::default(),
        growth: Growth::default(),
        outside: None,
        release: Release::Unreadable,
        home: Home::Stays,
        unrecorded: Vec::new(),
    }
}

impl Going {
    /// What the release has outside the namespace is removed by rights for just that. Those that the controller before us
    /// had become ours first.
    fn added_to(self, nothing: Observed, composition: &Composition) -> Observed {
        let Self {
            roles,
            granted,
            outlying,
        } = self;
        let (outlying, needed) = if let Some(outlying) = outlying {
            let removed: Vec<Resource> = outlying.iter().map(inspection::removed).collect();
            (outlying, roles.grants(&Permissions::of_resources(&removed)))
        } else {
            let elsewhere: Vec<Grant> = elsewhere(&granted, composition).cloned().collect();
            (Vec::new(), roles.given_to_us(&elsewhere))
        };
        Observed {
            facts: plan::Observed {
                rights: Rights { needed, granted },
                home: Home::Goes(outlying.iter().map(ToString::to_string).collect()),
                ..nothing.facts
            },
            outlying,
            ..nothing
        }
    }
}

impl FoundRelease {
    fn added_to(self, nothing: Observed, growth: Growth) -> Observed {
        let Self {
            given,
            intention,
            roles,
            rights,
            standing,
            records,
            objects,
            drifted,
            outside,
            in_roles,
        } = self;
        let outlying = unrecorded(&standing.release, in_roles);
        let rights = if outlying.is_empty() {
            rights
        } else {
            // They are removed by the rights that name them, which the controller before us may have had.
            Rights {
                needed: roles.given_to_us(&rights.granted),
                ..rights
            }
        };
        Observed {
            facts: plan::Observed {
                definition: intention.as_ref().and_then(|it| it.definition.clone()),
                named: given.name,
                rights,
                growth,
                outside,
                release: standing.release,
                home: Home::Stays,
                unrecorded: outlying.iter().map(ToString::to_string).collect(),
            },
            wanted: intention.and_then(|intention| intention.wanted(&objects)),
            records,
            objects,
            drifted,
            retry_in: standing.retry_in,
            outlying,
            ignored_name: given.ignored,
            ..nothing
        }
    }
}

/// What Roles alone tell of objects to remove. Where there is no record those are namespaces that the chart brings, which are
/// made before the first record; everything else that a release has went before its last record, or stays as hooks do.
fn unrecorded(release: &Release, mut in_roles: Vec<ObjectId>) -> Vec<ObjectId> {
    if *release == Release::Absent {
        let resource = ResourceId::of::<Namespace>();
        in_roles.retain(|object| *object.resource() == resource);
    }
    in_roles
}

/// Those of these permissions that are not in the composition's own namespace.
pub(super) fn elsewhere<'g>(
    granted: &'g [Grant],
    composition: &Composition,
) -> impl Iterator<Item = &'g Grant> {
    granted
        .iter()
        .filter(|grant| grant.namespace() != composition.namespace)
}

/// True when no pass has ever acted for the composition: our finalizer comes before anything else.
pub(super) fn is_new(composition: &Composition) -> bool {
    !composition.is_held() && composition.revision_hint().is_none()
}

/// A lookup that the render lacks the answer to although all is granted.
pub(super) fn unread(intention: Option<&Intention>, rights: &Rights) -> Option<String> {
    intention
        .filter(|_| rights.are_in_place())
        .and_then(|intention| intention.unread.clone())
}

/// True when it is worth asking whether the composition goes with its namespace: something is missing, or hooks want to run
/// there. Nothing else of a removal notices.
pub(super) fn may_go_with_namespace(
    composition: &Composition,
    rights: &Rights,
    records: Option<&records::Observed>,
    has_hooks: bool,
) -> bool {
    let has_record = records.is_some_and(|records| records.newest.is_some());
    is_removed(composition) && (!rights.are_in_place() || !has_record || has_hooks)
}

/// True when it counts how the objects of the release are. Where there is more to do than correct them, they are looked at
/// once that is done.
pub(super) fn looks_at_objects(composition: &Composition, rights: &Rights, release: &Release) -> bool {
    rights.are_in_place() && (composition.deleting || !release.is_acted_upon())
}

/// True when nothing but Roles tells which objects there are to remove.
pub(super) fn asks_roles(composition: &Composition, release: &Release) -> bool {
    is_removed(composition) && release.is_unrecorded()
}

/// True when the composition waits for us to remove its release.
fn is_removed(composition: &Composition) -> bool {
    composition.deleting && composition.is_held()
}
