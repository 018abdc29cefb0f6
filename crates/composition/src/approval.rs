//! When a release needs more permissions than before, holds it until somebody approves them: lists the new rights in
//! words, and gives the digest to approve.
//!
//! Off by default. Rights on the release's own records do not count: they change with every revision.

use std::collections::BTreeSet;

use helm::digest::fnv1_64_hex;

use crate::permissions::Grant;

/// Rights that a release needs but that are neither granted nor approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unapproved {
    /// Identifies everything the release needs; an annotation with this digest approves it.
    pub digest: String,
    /// The new rights, one per line: `team: create configmaps/web`.
    pub rights: Vec<String>,
}

/// What has to be approved before `needed` may replace `granted`; `None` when nothing is new, or when `approved` is
/// the digest of what is needed.
pub fn unapproved(needed: &[Grant], granted: &[Grant], approved: Option<&str>) -> Option<Unapproved> {
    let needed = rights(needed);
    let new: Vec<String> = needed.difference(&rights(granted)).cloned().collect();
    if new.is_empty() {
        return None;
    }
    let all: Vec<&str> = needed.iter().map(String::as_str).collect();
    let digest = fnv1_64_hex(all.join("\n").as_bytes());
    (approved != Some(digest.as_str())).then_some(Unapproved { digest, rights: new })
}

fn rights(grants: &[Grant]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for grant in grants {
        let place = match grant.namespace() {
            "" => "cluster",
            namespace => namespace,
        };
        for rule in grant.rules() {
            let names = rule
                .resource_names
                .clone()
                .unwrap_or_else(|| vec!["*".to_owned()]);
            let groups = rule.api_groups.as_deref().unwrap_or_default();
            let resources = rule.resources.as_deref().unwrap_or_default();
            for name in names
                .iter()
                .filter(|name| !name.starts_with(helm::release::SECRET_PREFIX))
            {
                for (group, resource) in groups.iter().flat_map(|g| resources.iter().map(move |r| (g, r))) {
                    let kind = if group.is_empty() {
                        resource.clone()
                    } else {
                        format!("{resource}.{group}")
                    };
                    let right = |verb: &String| format!("{place}: {verb} {kind}/{name}");
                    rights.extend(rule.verbs.iter().map(right));
                }
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::inspection::{Resource, Verb};

    use super::*;
    use crate::ReleaseName;
    use crate::permissions::{Account, Permissions};

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
    fn an_approval_names_all_that_is_needed() {
        let one = unapproved(&grants(&["b"], 1), &[], None).unwrap().digest;
        let other = unapproved(&grants(&["b", "c"], 1), &[], None).unwrap().digest;
        assert_ne!(one, other);
        assert_eq!(unapproved(&grants(&["b"], 5), &[], Some(&one)), None);
    }
}
