//! When a release needs more permissions than before, holds it until somebody approves them: lists the new rights in
//! words, and gives the digest to approve.
//!
//! Off by default. Rights on the release's own records do not count, because they change with every revision, nor does the
//! right to read its Lease, which is needed while somebody works on the release by hand.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;

use api::{Composition, CompositionDefinition, annotations};
use kube::ResourceExt as _;
use serde::Serialize;

use crate::has_served;
use crate::permissions::Grant;

/// Rights that a release needs but that are neither granted nor approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unapproved {
    /// Identifies everything the release needs; an annotation with this digest approves it.
    pub digest: String,
    /// The new rights, one per line: `team: create configmaps/web`.
    pub rights: Vec<String>,
}

/// True when permissions that grow have to be approved: a definition asks for it, or the composition itself.
///
/// Every definition of the type counts, not only the one that the composition's labels name, because whoever may write
/// the composition may write these.
pub fn is_demanded<D: Borrow<CompositionDefinition>>(
    composition: &Composition,
    definitions: impl IntoIterator<Item = D>,
) -> bool {
    let resource = &composition.resource;
    let demands = |definition: &CompositionDefinition| {
        annotations::is_true(definition.annotations(), annotations::APPROVE_PERMISSIONS)
            && has_served(definition, &resource.api_version, &resource.kind)
    };
    annotations::is_true(&composition.annotations, annotations::APPROVE_PERMISSIONS)
        || definitions
            .into_iter()
            .any(|definition| demands(definition.borrow()))
}

/// What has to be approved before `needed` may replace `granted`; `None` when nothing is new, or when `approved` is
/// the digest of what is needed.
pub fn unapproved(needed: &[Grant], granted: &[Grant], approved: Option<&str>) -> Option<Unapproved> {
    let needed = rights(needed);
    let granted = rights(granted);
    let new: Vec<String> = needed.difference(&granted).map(ToString::to_string).collect();
    if new.is_empty() {
        return None;
    }
    let digest = digest(&needed);
    (approved != Some(digest.as_str())).then_some(Unapproved { digest, rights: new })
}

/// The SHA-256 digest of the rights as canonical JSON (RFC 8785): a sorted list of objects, whose fields are in the
/// order of their names, without spaces.
fn digest(rights: &BTreeSet<Right>) -> String {
    // Strings alone cannot fail to be written.
    let text = serde_json::to_vec(rights).unwrap_or_default();
    helm::digest::sha256(&text)
}

/// One verb on one object, or on all objects of a kind.
///
/// The fields are in the order of their names, which canonical JSON demands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Right {
    group: String,
    /// None for all objects.
    name: Option<String>,
    /// Empty for the cluster.
    namespace: String,
    resource: String,
    verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            name,
            namespace,
            resource,
            verb,
        } = self;
        let place = if namespace.is_empty() {
            "cluster"
        } else {
            namespace
        };
        write!(f, "{}: {verb} {resource}", place.escape_debug())?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        // Names come from values, and people read them in a terminal.
        write!(f, "/{}", name.as_deref().unwrap_or("*").escape_debug())
    }
}

fn rights(grants: &[Grant]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for grant in grants {
        for rule in grant.rules() {
            let names: Vec<Option<&String>> = match &rule.resource_names {
                Some(names) => names.iter().map(Some).collect(),
                None => vec![None],
            };
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    let names = names
                        .iter()
                        .filter(|name| !name.is_some_and(|name| is_of_records(grant, group, resource, name)));
                    for name in names {
                        rights.extend(rule.verbs.iter().map(|verb| Right {
                            group: group.clone(),
                            name: name.cloned(),
                            namespace: grant.namespace().to_owned(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                        }));
                    }
                }
            }
        }
    }
    rights
}

/// True for a record of the grant's own release, and for its Lease. Any other object of such a name counts: a chart may
/// have one.
fn is_of_records(grant: &Grant, group: &str, resource: &str, name: &str) -> bool {
    // The name of the role, which contains the namespace of the composition and the release.
    let mut parts = grant.name().split(':').skip(2);
    let (Some(namespace), Some(release)) = (parts.next(), parts.next()) else {
        return false;
    };
    grant.namespace() == namespace
        && match (group, resource) {
            ("", "secrets") => helm::release::of_secret_name(name).is_some_and(|(of, _)| of == release),
            ("coordination.k8s.io", "leases") => name == helm::release::lease_name(release),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::inspection::{Resource, Verb};

    use super::*;
    use crate::ReleaseName;
    use crate::governing::tests::definition;
    use crate::permissions::{Account, Permissions};
    use crate::plan::tests::composition;

    fn grants(names: &[&str], revision: i64) -> Vec<Grant> {
        let resources: Vec<Resource> = names
            .iter()
            .map(|name| Resource::new("", "v1", "configmaps", "team", name, &[Verb::Create]))
            .collect();
        let account = Account {
            namespace: "system".into(),
            name: "cdc".into(),
        };
        let release = ReleaseName::new("web").unwrap();
        Permissions::of_resources(&resources)
            .and(Permissions::of_records("team", &release, &[revision], 3))
            .grants("composition:webs:team:web", &account, &BTreeMap::new())
    }

    #[test]
    fn the_digest_is_that_of_canonical_json() {
        let pending = unapproved(&grants(&["a"], 1), &[], None).unwrap();
        let text = r#"[{"group":"","name":"a","namespace":"team","resource":"configmaps","verb":"create"}]"#;
        assert_eq!(pending.digest, helm::digest::sha256(text.as_bytes()));
        // All objects of a kind are not the one that is called "*".
        let of_all = |name: Option<&str>| Right {
            group: String::new(),
            name: name.map(str::to_owned),
            namespace: String::new(),
            resource: "clusterroles".into(),
            verb: "get".into(),
        };
        assert_ne!(
            digest(&[of_all(None)].into()),
            digest(&[of_all(Some("*"))].into())
        );
        assert_eq!(of_all(None).to_string(), "cluster: get clusterroles/*");
    }

    #[test]
    fn a_digest_of_an_earlier_release_approves_nothing_new_and_holds_nothing_granted() {
        // FNV-1 of 64 bits, for which other rights with the same digest can be made up.
        let earlier = Some("af63bd4c8601b7be");
        let granted = grants(&["a"], 1);
        assert_eq!(unapproved(&granted, &granted, earlier), None);
        assert!(unapproved(&grants(&["a", "b"], 1), &granted, earlier).is_some());
    }

    #[test]
    fn a_composition_cannot_take_back_what_a_definition_of_its_type_demands() {
        let with = |value: Option<&str>, name: &str, version: &str| {
            let mut definition = definition(name, version);
            let annotations = definition.metadata.annotations.get_or_insert_default();
            annotations.extend(value.map(|value| (annotations::APPROVE_PERMISSIONS.into(), value.into())));
            definition
        };
        let asking = |value: &str| {
            let mut composition = composition();
            let said = (annotations::APPROVE_PERMISSIONS.into(), value.into());
            composition.annotations.extend([said]);
            composition
        };
        let (yes, no) = (Some("true"), None);
        for (composition, definitions, expected) in [
            (composition(), vec![with(no, "web", "v1-0-0")], false),
            (composition(), vec![with(yes, "web", "v1-0-0")], true),
            (asking("false"), vec![with(yes, "web", "v1-0-0")], true),
            // Its labels name another definition.
            (
                composition(),
                vec![with(no, "web", "v1-0-0"), with(yes, "other", "v1-0-0")],
                true,
            ),
            (composition(), vec![with(yes, "other", "v2-0-0")], false),
            (asking("true"), vec![with(no, "web", "v1-0-0")], true),
        ] {
            assert_eq!(
                is_demanded(&composition, &definitions),
                expected,
                "{definitions:?}"
            );
        }
    }

    #[test]
    fn growth_waits_for_its_digest() {
        let before = grants(&["a"], 1);
        let after = grants(&["a", "b"], 1);
        let pending = unapproved(&after, &before, None).unwrap();
        assert_eq!(pending.rights, ["team: create configmaps/b"]);
        assert_eq!(unapproved(&after, &before, Some("other")), Some(pending.clone()));
        assert_eq!(unapproved(&after, &before, Some(&pending.digest)), None);
    }

    #[test]
    fn shrinking_and_a_new_revision_need_no_approval() {
        assert_eq!(
            unapproved(&grants(&["a"], 1), &grants(&["a", "b"], 1), None),
            None
        );
        assert_eq!(unapproved(&grants(&["a"], 9), &grants(&["a"], 1), None), None);
    }

    #[test]
    fn only_the_records_of_the_release_itself_need_no_approval() {
        let needs = |group: &str, resource: &str, namespace: &str, name: &str| {
            let touched = Resource::new(group, "v1", resource, namespace, name, &[Verb::Create]);
            let account = Account {
                namespace: "system".into(),
                name: "cdc".into(),
            };
            let grants = Permissions::of_resources(&[touched]);
            let grants = grants.grants("composition:webs:team:web", &account, &BTreeMap::new());
            unapproved(&grants, &[], None).is_some()
        };
        let (record, lease) = ("sh.helm.release.v1.web.v7", "sh.helm.release.v1.web");
        assert!(!needs("", "secrets", "team", record));
        assert!(!needs("coordination.k8s.io", "leases", "team", lease));
        for (group, resource, namespace, name) in [
            ("", "secrets", "team", "sh.helm.release.v1.other.v7"),
            ("", "secrets", "elsewhere", record),
            ("apps", "deployments", "team", record),
            ("", "secrets", "team", lease),
        ] {
            assert!(
                needs(group, resource, namespace, name),
                "{namespace} {resource}/{name}"
            );
        }
    }

    #[test]
    fn an_approval_names_all_that_is_needed() {
        let one = unapproved(&grants(&["b"], 1), &[], None).unwrap().digest;
        let other = unapproved(&grants(&["b", "c"], 1), &[], None).unwrap().digest;
        assert_ne!(one, other);
        assert_eq!(unapproved(&grants(&["b"], 5), &[], Some(&one)), None);
    }
}
