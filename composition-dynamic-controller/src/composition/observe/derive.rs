//! Turns what was read of a composition into the facts for the plan, and decides what to read next. It makes no
//! request.

use std::time::Duration;

use api::Composition;
use api::inspection::Resource;
use cluster::{Health, ObjectId, ResourceId};
use composition::permissions::Grant;
use composition::plan::{self, Growth, NamespacePhase, Release, Rights};
use composition::{Permissions, ReleaseName};
use helm_client::records;
use helm_client::release::Releases;
use helm_client::release::drift::DriftedObject;
use k8s_openapi::api::core::v1::Namespace;

use super::fetched::{CompositionState, Fetched, FoundRelease, Going};
use super::intention::{Intention, TargetRelease};

/// What a pass observed.
pub(in crate::composition) struct Observed {
    /// The facts that the plan decides on.
    pub(in crate::composition) facts: plan::Observed,
    pub(in crate::composition) release_name: ReleaseName,
    /// The client for releases, set up for this composition.
    pub(in crate::composition) releases: Releases,
    /// What the release should be; `None` while deleting.
    pub(in crate::composition) target: Option<TargetRelease>,
    /// The release's records; `None` when they may not be read yet.
    pub(in crate::composition) records: Option<records::Observed>,
    /// The objects of the deployed revision, and their health.
    pub(in crate::composition) objects: Vec<(ObjectId, Health)>,
    /// The objects that have drifted.
    pub(in crate::composition) drifted: Vec<DriftedObject>,
    /// When a failed action is retried, if it is retried without a change.
    pub(in crate::composition) retry_in: Option<Duration>,
    /// Objects that may belong to the composition although no record of its own names them: those outside its
    /// namespace, when that is being deleted, and those named by its permissions, when its record was replaced.
    pub(in crate::composition) outlying: Vec<ObjectId>,
    /// Why the release does not have the name that the definition gives.
    pub(in crate::composition) ignored_name: Option<String>,
}

/// Derives the facts for the plan, and what applying its steps needs.
pub(super) fn derive(composition: &Composition, fetched: Fetched) -> Observed {
    let Fetched {
        release_name,
        releases,
        state,
    } = fetched;
    let nothing = Observed {
        facts: of_nothing(),
        release_name,
        releases,
        target: None,
        records: None,
        objects: Vec::new(),
        drifted: Vec::new(),
        retry_in: None,
        outlying: Vec::new(),
        ignored_name: None,
    };
    match state {
        CompositionState::Paused => nothing,
        CompositionState::OfAnother(why) => Observed {
            facts: plan::Observed {
                release: Release::Foreign(why),
                ..of_nothing()
            },
            ..nothing
        },
        CompositionState::Going(going) => going.added_to(nothing, composition),
        CompositionState::Release(release) => release.added_to(nothing),
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
        namespace: NamespacePhase::Active,
        unrecorded: Vec::new(),
    }
}

impl Going {
    /// Objects of the release outside the namespace are removed with permissions for exactly that. Permissions of the
    /// controller before us are bound to us first.
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
                namespace: NamespacePhase::Terminating(outlying.iter().map(ToString::to_string).collect()),
                ..nothing.facts
            },
            outlying,
            ..nothing
        }
    }
}

impl FoundRelease {
    fn added_to(self, nothing: Observed) -> Observed {
        let Self {
            offered,
            intention,
            roles,
            rights,
            growth,
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
            // They are removed with the permissions that name them, which may still be bound to the controller before
            // us.
            Rights {
                needed: roles.given_to_us(&rights.granted),
                ..rights
            }
        };
        Observed {
            facts: plan::Observed {
                definition: intention.as_ref().and_then(|it| it.definition.clone()),
                named: offered.name,
                rights,
                growth,
                outside,
                release: standing.release,
                namespace: NamespacePhase::Active,
                unrecorded: outlying.iter().map(ToString::to_string).collect(),
            },
            target: intention.and_then(|intention| intention.target(&objects)),
            records,
            objects,
            drifted,
            retry_in: standing.retry_in,
            outlying,
            ignored_name: offered.ignored,
            ..nothing
        }
    }
}

/// The objects to remove that only Roles name. Without a record these are the namespaces that the chart brings, which
/// are created before the first record; all other objects of a release are deleted before its last record, or stay,
/// like hooks.
fn unrecorded(release: &Release, mut in_roles: Vec<ObjectId>) -> Vec<ObjectId> {
    if *release == Release::Absent {
        let resource = ResourceId::of::<Namespace>();
        in_roles.retain(|object| *object.resource() == resource);
    }
    in_roles
}

/// The grants outside the composition's own namespace.
pub(super) fn elsewhere<'g>(
    granted: &'g [Grant],
    composition: &Composition,
) -> impl Iterator<Item = &'g Grant> {
    granted
        .iter()
        .filter(|grant| grant.namespace() != composition.namespace)
}

/// True when no pass has written anything for the composition yet: our finalizer is the first write.
pub(super) fn is_new(composition: &Composition) -> bool {
    !composition.is_held() && composition.revision_hints().is_empty()
}

/// A lookup that still may not be read although all permissions are granted.
pub(super) fn unread(intention: Option<&Intention>, rights: &Rights) -> Option<String> {
    intention
        .filter(|_| rights.are_in_place())
        .and_then(|intention| intention.unread.clone())
}

/// True when the pass has to check whether the composition is being deleted with its namespace: when something is
/// missing, or hooks have to run there. Nothing else in a removal depends on it.
pub(super) fn may_go_with_namespace(
    composition: &Composition,
    rights: &Rights,
    records: Option<&records::Observed>,
    has_hooks: bool,
) -> bool {
    let has_record = records.is_some_and(|records| records.newest.is_some());
    is_removed(composition) && (!rights.are_in_place() || !has_record || has_hooks)
}

/// True when the health of the release's objects has to be known. If there is more to do than to correct them, they are
/// read once that is done. A removal does not depend on it, and need not start watches that it would end at once.
pub(super) fn looks_at_objects(composition: &Composition, rights: &Rights, release: &Release) -> bool {
    rights.are_in_place() && !composition.deleting && !release.is_acted_upon()
}

/// True when only Roles tell which objects to remove.
pub(super) fn asks_roles(composition: &Composition, release: &Release) -> bool {
    is_removed(composition) && release.is_unrecorded()
}

/// True when the composition is being deleted and waits for us to remove its release.
fn is_removed(composition: &Composition) -> bool {
    composition.deleting && composition.is_held()
}

#[cfg(test)]
mod tests {
    use api::annotations;
    use cluster::scripted::Script;
    use composition::{Account, OfferedName};
    use helm_client::release::Options;
    use inspection::Standing;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::api::rbac::v1::ClusterRole;

    use super::super::fetch::tests::{composition, served};
    use super::super::grants::Roles;
    use super::*;

    /// Needs an async runtime, although it sends no request.
    fn releases() -> Releases {
        Releases::new(Script::new("no request").cluster(), Options::default())
    }

    fn roles(account: &str) -> Roles {
        let account = Account {
            namespace: "system".into(),
            name: account.into(),
        };
        let release = ReleaseName::new("web").unwrap();
        Roles::of(&composition(), &release, &served(), &account, "krateo-system")
    }

    /// Roles in these namespaces, the empty one being the cluster, bound to this account.
    fn grants(namespaces: &[&str], account: &str) -> Vec<Grant> {
        let services = namespaces
            .iter()
            .map(|namespace| Resource::new("", "v1", "services", namespace, "web", &[]));
        let services: Vec<_> = services.collect();
        roles(account).grants(&Permissions::of_resources(&services))
    }

    fn in_place(granted: Vec<Grant>) -> Rights {
        Rights {
            needed: granted.clone(),
            granted,
        }
    }

    fn derived(composition: &Composition, state: CompositionState) -> Observed {
        let fetched = Fetched {
            release_name: ReleaseName::new("web").unwrap(),
            releases: releases(),
            state,
        };
        derive(composition, fetched)
    }

    fn object<K: kube::Resource<DynamicType = (), Scope: cluster::Scoped>>(name: &str) -> ObjectId {
        let namespace = ResourceId::of::<K>().namespaced.then_some("team");
        ObjectId::of::<K>(namespace, name).unwrap()
    }

    fn described(objects: &[ObjectId]) -> Vec<String> {
        objects.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_paused_or_foreign_release_gives_the_plan_no_other_facts() {
        let foreign = "role \"a\" belongs to the release of another composition";
        for (state, release) in [
            (CompositionState::Paused, Release::Unreadable),
            (
                CompositionState::OfAnother(foreign.into()),
                Release::Foreign(foreign.into()),
            ),
        ] {
            let facts = derived(&composition(), state).facts;
            assert_eq!(
                facts,
                plan::Observed {
                    release,
                    ..of_nothing()
                }
            );
        }
    }

    #[tokio::test]
    async fn a_release_deleted_with_its_namespace_needs_permissions_only_outside_of_it() {
        let ours = || grants(&["", "other", "team"], "cdc");
        let theirs = || grants(&["", "other", "team"], "former");
        let outlying = [object::<ClusterRole>("high"), object::<Namespace>("own")];
        let removed: Vec<_> = outlying.iter().map(inspection::removed).collect();
        let removal = roles("cdc").grants(&Permissions::of_resources(&removed));
        let nothing: &[ObjectId] = &[];
        for (granted, found, needed, expected) in [
            (ours(), Some(nothing), Vec::new(), nothing),
            (ours(), Some(&outlying), removal, &outlying),
            // They are bound to another controller, so they become ours before objects are looked for.
            (theirs(), None, grants(&["", "other"], "cdc"), nothing),
        ] {
            let going = Going {
                roles: roles("cdc"),
                granted: granted.clone(),
                outlying: found.map(<[_]>::to_vec),
            };
            let observed = derived(&composition(), CompositionState::Going(Box::new(going)));
            let facts = plan::Observed {
                rights: Rights { needed, granted },
                namespace: NamespacePhase::Terminating(described(expected)),
                ..of_nothing()
            };
            assert_eq!(observed.facts, facts);
            assert_eq!(observed.outlying, expected);
        }
    }

    fn found(release: Release, rights: Rights, in_roles: &[ObjectId]) -> FoundRelease {
        FoundRelease {
            offered: OfferedName::default(),
            intention: None,
            roles: roles("cdc"),
            rights,
            growth: Growth::Approved,
            standing: Standing::from(release),
            records: None,
            objects: Vec::new(),
            drifted: Vec::new(),
            outside: None,
            in_roles: in_roles.to_vec(),
        }
    }

    #[tokio::test]
    async fn roles_name_the_namespaces_to_remove_without_a_record_and_all_objects_if_it_is_foreign() {
        let (own, map) = (object::<Namespace>("own"), object::<ConfigMap>("web"));
        let both = [map.clone(), own.clone()];
        let foreign = || Release::Foreign("release web is another's".into());
        let theirs = || grants(&["", "team"], "former");
        let ours = || grants(&["", "team"], "cdc");
        let none: &[ObjectId] = &[];
        for (release, in_roles, expected, needed) in [
            (Release::InSync, none, none, theirs()),
            (Release::Absent, none, none, theirs()),
            // It was deleted before its record.
            (Release::Absent, &both[..1], none, theirs()),
            // The permissions to remove them may be bound to the controller before us.
            (Release::Absent, &both, &both[1..], ours()),
            (foreign(), &both, &both, ours()),
        ] {
            let release_found = found(release.clone(), in_place(theirs()), in_roles);
            let observed = derived(&composition(), CompositionState::Release(Box::new(release_found)));
            let facts = plan::Observed {
                rights: Rights {
                    needed,
                    granted: theirs(),
                },
                growth: Growth::Approved,
                release,
                unrecorded: described(expected),
                ..of_nothing()
            };
            assert_eq!(observed.facts, facts);
            assert_eq!(observed.outlying, expected);
        }
    }

    #[tokio::test]
    async fn a_release_name_that_the_definition_gives_or_ignores_is_passed_on() {
        let mut release = found(Release::InSync, Rights::default(), &[]);
        release.offered.name = Some("given".into());
        assert_eq!(
            derived(&composition(), CompositionState::Release(Box::new(release)))
                .facts
                .named
                .as_deref(),
            Some("given")
        );
        let mut release = found(Release::InSync, Rights::default(), &[]);
        release.offered.ignored = Some("it governs two".into());
        let observed = derived(&composition(), CompositionState::Release(Box::new(release)));
        assert_eq!(observed.ignored_name.as_deref(), Some("it governs two"));
        assert_eq!(observed.facts.named, None);
    }

    fn deleted() -> Composition {
        Composition {
            deleting: true,
            ..composition()
        }
    }

    fn unheld(composition: Composition) -> Composition {
        Composition {
            finalizers: Vec::new(),
            ..composition
        }
    }

    #[test]
    fn objects_are_read_once_nothing_else_is_to_do() {
        let lacking = || Rights {
            needed: grants(&["team"], "cdc"),
            granted: Vec::new(),
        };
        let all = || in_place(grants(&["team"], "cdc"));
        let changed = || Release::OutOfSync("the values changed".into());
        for (composition, rights, release, expected) in [
            (composition(), all(), Release::InSync, true),
            (composition(), all(), changed(), false),
            (composition(), lacking(), Release::InSync, false),
            (deleted(), all(), Release::InSync, false),
        ] {
            let looks = looks_at_objects(&composition, &rights, &release);
            assert_eq!(looks, expected, "{} {release:?}", composition.deleting);
        }
    }

    #[test]
    fn a_removal_checks_the_namespace_when_something_is_missing() {
        let lacking = || Rights {
            needed: grants(&["team"], "cdc"),
            granted: Vec::new(),
        };
        let all = || in_place(grants(&["team"], "cdc"));
        for (composition, rights, has_hooks, expected) in [
            // There is no record in any of these.
            (deleted(), all(), false, true),
            (deleted(), lacking(), true, true),
            (composition(), lacking(), true, false),
            (unheld(deleted()), lacking(), true, false),
        ] {
            let none = records::Observed::default();
            for records in [None, Some(&none)] {
                let asks = may_go_with_namespace(&composition, &rights, records, has_hooks);
                assert_eq!(asks, expected, "{}", composition.deleting);
            }
        }
    }

    #[test]
    fn roles_tell_what_to_remove_when_no_record_does() {
        let foreign = || Release::Foreign("release web is another's".into());
        for (composition, release, expected) in [
            (deleted(), Release::Absent, true),
            (deleted(), foreign(), true),
            (deleted(), Release::InSync, false),
            (deleted(), Release::Unreadable, false),
            (composition(), Release::Absent, false),
            (unheld(deleted()), Release::Absent, false),
        ] {
            assert_eq!(asks_roles(&composition, &release), expected, "{release:?}");
        }
    }

    #[test]
    fn a_composition_is_new_until_a_pass_has_written_something() {
        let new = unheld(composition());
        assert!(is_new(&new));
        assert!(!is_new(&composition()));
        let mut migrated = new.clone();
        let revision = (annotations::RELEASE_REVISION.into(), "3".into());
        migrated.annotations.extend([revision]);
        assert!(!is_new(&migrated));
        let mut released = new;
        released.status.release_revision = Some(1);
        assert!(!is_new(&released));
    }
}
