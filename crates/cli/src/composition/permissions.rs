//! The permissions of a release: those that it needs, and those that exist.

use std::collections::BTreeSet;

use anyhow::Result;
use api::inspection::Resource;
use api::{Composition, CompositionDefinition};
use cluster::ResourceId;
use composition::permissions::{Grant, role_labels, role_name};
use composition::{Account, ReleaseName};
use helm_client::records::Observed;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Serialize;

use super::args;
use crate::release::session::Session;

/// The composition of the release, and its stored records.
pub(super) struct ReleaseContext<'a> {
    pub(super) composition: &'a Composition,
    pub(super) resource: &'a ResourceId,
    pub(super) release: &'a ReleaseName,
    pub(super) records: &'a Observed,
}

/// The permissions that a release needs, and those that it has.
pub(super) struct Granting {
    pub(super) needed: Vec<Grant>,
    pub(super) granted: Vec<Grant>,
}

/// A permission, and whether it is granted already.
#[derive(Debug, Serialize)]
pub(super) struct Right {
    /// Empty for cluster-wide permissions.
    pub(super) namespace: String,
    pub(super) resources: String,
    pub(super) names: Vec<String>,
    pub(super) verbs: Vec<String>,
    pub(super) granted: bool,
}

/// Determines both. Controllers run in the namespace of the platform, or in that of the definition.
///
/// # Errors
/// If roles or the objects of the stored revision cannot be read.
pub(super) async fn granting(
    session: &Session,
    context: &ReleaseContext<'_>,
    definition: &CompositionDefinition,
    touched: &[Resource],
    controller: &args::Controller,
) -> Result<Granting> {
    let args::Controller {
        krateo_namespace,
        history_max,
    } = controller;
    let controller_namespaces = [
        krateo_namespace.as_str(),
        definition.metadata.namespace.as_deref().unwrap_or_default(),
    ];
    let ReleaseContext {
        composition,
        resource,
        release,
        records,
    } = context;
    let stored = inspection::stored(&session.releases(), Some(records))
        .await?
        .touched;
    let permissions = inspection::permissions(
        composition,
        release,
        touched,
        &stored,
        Some(records),
        *history_max,
    );
    let role = role_name(&resource.plural, &composition.namespace, release);
    let had = composition.status.managed.iter();
    let had = had.map(|object| object.namespace.as_str());
    let namespaces: BTreeSet<&str> = permissions.namespaces().chain(had).collect();
    let labels = role_labels(composition, krateo_namespace);
    let granted = inspection::granted(&session.cluster, namespaces, &role, &labels).await?;
    let account = account(
        format!("{}-{}", resource.plural, resource.version),
        controller_namespaces,
        &granted,
    );
    Ok(Granting {
        needed: permissions.grants(&role, &account, &labels),
        granted,
    })
}

/// The controller's account: the one that has permissions already, which shows where the platform runs its controllers.
/// The account in the first of `namespaces` if nothing is granted yet.
fn account(name: String, namespaces: [&str; 2], granted: &[Grant]) -> Account {
    let subjects = granted.iter().filter_map(|grant| match grant {
        Grant::Namespaced(_, binding) => binding.subjects.as_deref(),
        Grant::Cluster(_, binding) => binding.subjects.as_deref(),
    });
    let mut accounts = subjects.flatten().filter(|subject| subject.name == name);
    let in_use = accounts.find_map(|subject| {
        let namespace = subject.namespace.as_deref()?;
        namespaces.into_iter().find(|other| *other == namespace)
    });
    Account {
        namespace: in_use.unwrap_or(namespaces[0]).to_owned(),
        name,
    }
}

impl Granting {
    /// The permissions that are needed.
    pub(super) fn rights(&self) -> Vec<Right> {
        let mut rights = Vec::new();
        for needed in &self.needed {
            let same_namespace = |grant: &&Grant| grant.namespace() == needed.namespace();
            let had: Vec<&PolicyRule> = self
                .granted
                .iter()
                .filter(same_namespace)
                .flat_map(Grant::rules)
                .collect();
            rights.extend(
                needed
                    .rules()
                    .iter()
                    .map(|rule| Right::of(needed.namespace(), rule, had.contains(&rule))),
            );
        }
        rights
    }
}

impl Right {
    fn of(namespace: &str, rule: &PolicyRule, granted: bool) -> Self {
        let groups = rule.api_groups.iter().flatten();
        let resources = rule.resources.as_deref().unwrap_or_default().join(",");
        let group = groups.map(String::as_str).collect::<Vec<_>>().join(",");
        Self {
            namespace: namespace.to_owned(),
            resources: if group.is_empty() {
                resources
            } else {
                format!("{resources}.{group}")
            },
            names: rule.resource_names.clone().unwrap_or_default(),
            verbs: rule.verbs.clone(),
            granted,
        }
    }
}
#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::Subject;

    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

    use super::*;

    #[test]
    fn the_account_is_the_one_that_has_permissions_already() {
        let granted_in = |namespace: &str| {
            let subject = Subject {
                kind: "ServiceAccount".into(),
                name: "webs-v1-0-0".into(),
                namespace: Some(namespace.into()),
                ..Subject::default()
            };
            let binding = RoleBinding {
                subjects: Some(vec![subject]),
                ..RoleBinding::default()
            };
            vec![Grant::Namespaced(Role::default(), binding)]
        };
        let check = |granted: &[Grant], expected: &str| {
            let account = account("webs-v1-0-0".into(), ["krateo-system", "defs"], granted);
            assert_eq!(account.namespace, expected);
        };
        check(&[], "krateo-system");
        check(&granted_in("krateo-system"), "krateo-system");
        check(&granted_in("defs"), "defs");
        check(&granted_in("team"), "krateo-system");
    }
}
