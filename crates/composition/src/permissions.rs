//! Turns the objects that a release touches into the exact permissions that its controller needs, and into their
//! Roles.
//!
//! Rules for writing always carry resource names: objects are created by server-side apply, which the API server
//! authorises with the name. No rule ever contains `*`. The rules are replaced as a whole, so they shrink when the
//! chart does.

use std::collections::{BTreeMap, BTreeSet};

use api::inspection::{Resource, Verb};
use api::{Composition, DEFINITION_GROUP, labels};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{ReleaseName, rendering};

/// The ServiceAccount that gets the permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Exact permissions of one release, by namespace; the empty namespace stands for the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    rules: BTreeMap<String, BTreeMap<Target, Needs>>,
}

/// A kind of object in RBAC's terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    group: String,
    resource: String,
}

/// What is needed for one kind: verbs for each name, and verbs for all objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Needs {
    by_name: BTreeMap<String, BTreeSet<Verb>>,
    of_all: BTreeSet<Verb>,
}

/// What a managed object of a release needs: server-side apply, Helm's ownership check, removal, and a watch that
/// notices edits. Reading is granted for all objects of the kind in the namespace, except for Secrets.
pub const MANAGE: [Verb; 6] = [
    Verb::Get,
    Verb::List,
    Verb::Watch,
    Verb::Create,
    Verb::Patch,
    Verb::Delete,
];

/// What an object needs that is kept when its release is uninstalled, because of its resource policy.
pub const KEEP: [Verb; 5] = [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch];

/// What a hook's object or a release record needs: the same without the watch, as it comes and goes. The owner of a
/// hook's object is checked before it is written.
pub const WRITE: [Verb; 4] = [Verb::Get, Verb::Create, Verb::Patch, Verb::Delete];

/// What a CRD in `crds/` needs: it is created when it does not exist, and never removed.
pub const DEFINE: [Verb; 3] = [Verb::Get, Verb::Create, Verb::Patch];

/// What is needed to find and remove an object.
pub const REMOVE: [Verb; 3] = [Verb::Get, Verb::List, Verb::Delete];

/// How many revisions beyond the current one have their records named in the permissions at least: the next, and one
/// more so that an upgrade made by hand with Helm is noticed.
const REVISIONS_AHEAD: i64 = 2;

/// Records are named in blocks of this many revisions. Otherwise each revision would need another Role first, and the
/// wait until it is in force.
const REVISIONS_TOGETHER: i64 = 8;

impl Permissions {
    /// The permissions for the objects of an inspection.
    ///
    /// A resource without verbs, as Krateo's chart-inspector answers, counts as an object that the release manages.
    pub fn of_resources(resources: &[Resource]) -> Self {
        let mut permissions = Self::default();
        for resource in resources {
            let verbs: &[Verb] = match resource.verbs.as_slice() {
                [] => &MANAGE,
                verbs => verbs,
            };
            permissions.add(resource, verbs);
        }
        permissions
    }

    /// The permissions to read the logs of those of these objects that are hooks and run to an end: the logs of a
    /// Pod; for a Job, whose pods' names are not known beforehand, the logs of all pods in its namespace.
    pub fn of_hook_logs(resources: &[Resource]) -> Self {
        let mut permissions = Self::default();
        for hook in resources.iter().filter(|resource| resource.verbs == WRITE) {
            let logs = |name: &str| Resource::new("", "v1", "pods/log", &hook.namespace, name, &[]);
            match (hook.group.as_str(), hook.resource.as_str()) {
                ("batch", "jobs") => {
                    let pods = Resource::new("", "v1", "pods", &hook.namespace, "", &[]);
                    permissions.add(&pods, &[Verb::List]);
                    permissions.add(&logs(""), &[Verb::Get]);
                }
                ("", "pods") => permissions.add(&logs(&hook.name), &[Verb::Get]),
                _ => {}
            }
        }
        permissions
    }

    /// The permissions for the release's own records around the newest of `revisions` (empty when there is no record
    /// yet), and for older ones among `revisions`. They stay the same for several revisions.
    ///
    /// Records are read and written by name and never listed: a controller sees no Secrets but its own.
    pub fn of_records(namespace: &str, release: &ReleaseName, revisions: &[i64], max_history: i64) -> Self {
        let mut permissions = Self::default();
        let newest = revisions.iter().copied().max().unwrap_or(0);
        let blocks = (newest + REVISIONS_AHEAD - 1) / REVISIONS_TOGETHER + 1;
        let last = blocks * REVISIONS_TOGETHER;
        let newest_at_first = last - REVISIONS_TOGETHER + 1 - REVISIONS_AHEAD;
        let around = (newest_at_first - max_history).max(1)..=last;
        for revision in around.chain(revisions.iter().copied()) {
            let name = helm::release::secret_name(release.as_str(), revision);
            let record = Resource::new("", "v1", "secrets", namespace, &name, &WRITE);
            permissions.add(&record, &WRITE);
        }
        permissions
    }

    /// The permission to read the Lease of the release's name, which shows whether somebody with a terminal is still
    /// working on it: needed only while a record says that somebody is.
    pub fn of_lease(namespace: &str, release: &ReleaseName) -> Self {
        let mut permissions = Self::default();
        let lease = helm::release::lease_name(release.as_str());
        let lease = Resource::new("coordination.k8s.io", "v1", "leases", namespace, &lease, &[]);
        permissions.add(&lease, &[Verb::Get]);
        permissions
    }

    /// Both permissions.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (namespace, targets) in other.rules {
            for (target, needs) in targets {
                let mine = self
                    .rules
                    .entry(namespace.clone())
                    .or_default()
                    .entry(target)
                    .or_default();
                mine.of_all.extend(needs.of_all);
                for (name, verbs) in needs.by_name {
                    mine.by_name.entry(name).or_default().extend(verbs);
                }
            }
        }
        self
    }

    fn add(&mut self, resource: &Resource, verbs: &[Verb]) {
        let target = Target {
            group: resource.group.clone(),
            resource: resource.resource.clone(),
        };
        let needs = self
            .rules
            .entry(resource.namespace.clone())
            .or_default()
            .entry(target)
            .or_default();
        let is_secret = resource.group.is_empty() && resource.resource == "secrets";
        // An object looked up by name is listed and watched by name.
        let reads_one = !resource.name.is_empty()
            && verbs
                .iter()
                .all(|verb| matches!(verb, Verb::Get | Verb::List | Verb::Watch));
        let is_written = verbs
            .iter()
            .any(|verb| matches!(verb, Verb::Create | Verb::Delete));
        for &verb in verbs {
            let reads_all = matches!(verb, Verb::List | Verb::Watch);
            if (reads_all && is_secret && is_written) || is_inborn(resource, verb) {
                continue;
            }
            // The right to list a kind includes reading each object of it.
            let is_read = verb == Verb::Get && verbs.contains(&Verb::List) && !is_secret;
            if resource.name.is_empty() || (reads_all || is_read) && !reads_one {
                needs.of_all.insert(verb);
            } else {
                needs
                    .by_name
                    .entry(resource.name.clone())
                    .or_default()
                    .insert(verb);
            }
        }
    }

    /// The namespaces in which the permissions apply; the empty one stands for the cluster.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.rules.keys().map(String::as_str)
    }

    /// The Roles and bindings that grant the permissions to `account`, one pair for each namespace, and a
    /// `ClusterRole` with its binding when there are cluster-scoped objects.
    pub fn grants(&self, name: &str, account: &Account, labels: &BTreeMap<String, String>) -> Vec<Grant> {
        self.rules
            .iter()
            .map(|(namespace, targets)| {
                let rules = targets.iter().flat_map(|(target, needs)| needs.rules(target));
                Grant::new(name, namespace, joined(rules), account, labels)
            })
            .collect()
    }
}

/// True for what every controller may do without a grant: writing the roles of its releases (policies decide which),
/// and reading definitions and custom resource definitions. These rights are not granted again.
fn is_inborn(resource: &Resource, verb: Verb) -> bool {
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("rbac.authorization.k8s.io", _) => !matches!(verb, Verb::List | Verb::Watch),
        ("apiextensions.k8s.io", "customresourcedefinitions")
        | (DEFINITION_GROUP, "compositiondefinitions") => {
            matches!(verb, Verb::Get | Verb::List | Verb::Watch)
        }
        _ => false,
    }
}

/// True when existing grants give all that is needed for this object: the release has it, or may have it, already.
pub fn is_granted(granted: &[Grant], needed: &Resource) -> bool {
    let mut all: Vec<&[PolicyRule]> = Vec::new();
    for grant in granted
        .iter()
        .filter(|grant| grant.namespace() == needed.namespace)
    {
        all.extend(match grant {
            Grant::Namespaced(role, _) => role.rules.as_deref(),
            Grant::Cluster(role, _) => role.rules.as_deref(),
        });
    }
    let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|listed| listed == item);
    let gives = |verb: &str| {
        all.iter().copied().flatten().any(|rule| {
            let names = rule.resource_names.as_deref().unwrap_or_default();
            rule.verbs.iter().any(|listed| listed == verb)
                && has(&rule.api_groups, &needed.group)
                && has(&rule.resources, &needed.resource)
                && (names.is_empty() || names.contains(&needed.name))
        })
    };
    let needs = Permissions::of_resources(std::slice::from_ref(needed));
    let verbs: BTreeSet<Verb> = needs
        .rules
        .values()
        .flat_map(BTreeMap::values)
        .flat_map(|needs| needs.by_name.values().flatten().chain(&needs.of_all))
        .copied()
        .collect();
    // What every controller may do is no sign of a consent.
    !verbs.is_empty() && verbs.iter().all(|verb| gives(verb.as_str()))
}

/// The name of a release's Roles and bindings. RBAC names may contain colons while other names may not, so these
/// names cannot be mistaken for anybody else's.
pub fn role_name(plural: &str, namespace: &str, release: &ReleaseName) -> String {
    format!("composition:{plural}:{namespace}:{release}")
}

/// The labels of a release's Roles and their bindings: those of its objects, with two exceptions.
///
/// By the label that names the type, a controller's policies find the bindings that charts bring. The API server evaluates
/// these policies once for every role that exists, for each write of a binding with that label. For a controller's own
/// bindings they say nothing, so each would cost more the more releases there are.
///
/// With the label that names the version, each change of version would write the Role, although its rules usually stay.
pub fn role_labels(composition: &Composition, krateo_namespace: &str) -> BTreeMap<String, String> {
    let mut role = rendering::object_labels(composition, krateo_namespace);
    for exception in [
        labels::COMPOSITION_RESOURCE,
        labels::COMPOSITION_INSTALLED_VERSION,
    ] {
        role.remove(exception);
    }
    role
}

impl Needs {
    /// One rule for each set of verbs: names that need the same verbs share a rule.
    fn rules(&self, target: &Target) -> Vec<PolicyRule> {
        let mut names_by_verbs: BTreeMap<Vec<Verb>, Vec<String>> = BTreeMap::new();
        for (name, verbs) in &self.by_name {
            // Verbs granted for all objects of the kind are not repeated for one.
            let verbs: Vec<Verb> = verbs.difference(&self.of_all).copied().collect();
            if !verbs.is_empty() {
                names_by_verbs.entry(verbs).or_default().push(name.clone());
            }
        }
        let named = names_by_verbs
            .into_iter()
            .map(|(verbs, names)| rule(target, &verbs, Some(names)));
        let of_all: Vec<Verb> = self.of_all.iter().copied().collect();
        let of_all = (!of_all.is_empty()).then(|| rule(target, &of_all, None));
        named.chain(of_all).collect()
    }
}

/// The same rules, with one for all kinds of a group that need the same verbs on the same names: the API server
/// compares each request with one rule after the other. Secrets keep rules of their own, which policies check apart.
fn joined(rules: impl Iterator<Item = PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for rule in rules {
        let has_secrets = |rule: &PolicyRule| rule.resources.iter().flatten().any(|kind| kind == "secrets");
        let same = joined.iter_mut().find(|other| {
            other.api_groups == rule.api_groups
                && other.verbs == rule.verbs
                && other.resource_names == rule.resource_names
                && !has_secrets(other)
                && !has_secrets(&rule)
        });
        match same {
            Some(other) => other
                .resources
                .get_or_insert_default()
                .extend(rule.resources.into_iter().flatten()),
            None => joined.push(rule),
        }
    }
    joined
}

fn rule(target: &Target, verbs: &[Verb], names: Option<Vec<String>>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![target.group.clone()]),
        resources: Some(vec![target.resource.clone()]),
        verbs: verbs.iter().map(|verb| verb.as_str().to_owned()).collect(),
        resource_names: names,
        non_resource_urls: None,
    }
}

/// A role and the binding that gives it to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Grant {
    /// Inside one namespace.
    Namespaced(Role, RoleBinding),
    /// For cluster-scoped objects.
    Cluster(ClusterRole, ClusterRoleBinding),
}

impl Grant {
    /// The name of the role, and of its binding.
    pub fn name(&self) -> &str {
        let name = match self {
            Self::Namespaced(role, _) => role.metadata.name.as_deref(),
            Self::Cluster(role, _) => role.metadata.name.as_deref(),
        };
        name.unwrap_or_default()
    }

    /// The labels of the role.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Namespaced(role, _) => role.metadata.labels.as_ref(),
            Self::Cluster(role, _) => role.metadata.labels.as_ref(),
        }
    }

    fn new(
        name: &str,
        namespace: &str,
        rules: Vec<PolicyRule>,
        account: &Account,
        labels: &BTreeMap<String, String>,
    ) -> Self {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: some_unless_empty(namespace),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        };
        let role_ref = |kind: &str| RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let subjects = Some(vec![subject(account)]);
        let rules = Some(rules);
        if namespace.is_empty() {
            Self::Cluster(
                ClusterRole {
                    metadata: metadata.clone(),
                    rules,
                    aggregation_rule: None,
                },
                ClusterRoleBinding {
                    metadata,
                    role_ref: role_ref("ClusterRole"),
                    subjects,
                },
            )
        } else {
            Self::Namespaced(
                Role {
                    metadata: metadata.clone(),
                    rules,
                },
                RoleBinding {
                    metadata,
                    role_ref: role_ref("Role"),
                    subjects,
                },
            )
        }
    }

    /// The namespace of the role; empty for a `ClusterRole`.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Namespaced(role, _) => role.metadata.namespace.as_deref().unwrap_or_default(),
            Self::Cluster(..) => "",
        }
    }

    /// The grant reduced to what [`Permissions::grants`] writes, to compare it with the server's answer, to which the
    /// server adds metadata and others may add labels.
    #[must_use]
    pub fn as_written(self, labels: &BTreeMap<String, String>) -> Self {
        let bare = |metadata: ObjectMeta| ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            labels: metadata.labels.map(|found| {
                found
                    .into_iter()
                    .filter(|(name, _)| labels.contains_key(name))
                    .collect()
            }),
            ..ObjectMeta::default()
        };
        match self {
            Self::Namespaced(role, binding) => Self::Namespaced(
                Role {
                    metadata: bare(role.metadata),
                    ..role
                },
                RoleBinding {
                    metadata: bare(binding.metadata),
                    ..binding
                },
            ),
            Self::Cluster(role, binding) => Self::Cluster(
                ClusterRole {
                    metadata: bare(role.metadata),
                    ..role
                },
                ClusterRoleBinding {
                    metadata: bare(binding.metadata),
                    ..binding
                },
            ),
        }
    }

    /// The subjects of the binding.
    pub fn subjects(&self) -> &[Subject] {
        match self {
            Self::Namespaced(_, binding) => binding.subjects.as_deref(),
            Self::Cluster(_, binding) => binding.subjects.as_deref(),
        }
        .unwrap_or_default()
    }

    /// The same grant for `account`.
    #[must_use]
    pub fn given_to(mut self, account: &Account) -> Self {
        let subjects = Some(vec![subject(account)]);
        match &mut self {
            Self::Namespaced(_, binding) => binding.subjects = subjects,
            Self::Cluster(_, binding) => binding.subjects = subjects,
        }
        self
    }

    /// True if `account` is one of those that it is given to.
    pub fn is_given_to(&self, account: &Account) -> bool {
        let subjects = match self {
            Self::Namespaced(_, binding) => &binding.subjects,
            Self::Cluster(_, binding) => &binding.subjects,
        };
        let account = subject(account);
        subjects.iter().flatten().any(|subject| *subject == account)
    }

    /// The rules.
    pub fn rules(&self) -> &[PolicyRule] {
        match self {
            Self::Namespaced(role, _) => role.rules.as_deref(),
            Self::Cluster(role, _) => role.rules.as_deref(),
        }
        .unwrap_or_default()
    }
}

fn subject(account: &Account) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.name.clone(),
        namespace: Some(account.namespace.clone()),
        api_group: None,
    }
}

fn some_unless_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, resource: &str, namespace: &str, name: &str, verbs: &[Verb]) -> Resource {
        Resource::new(group, "v1", resource, namespace, name, verbs)
    }

    fn lines(permissions: &Permissions) -> Vec<String> {
        let account = Account {
            namespace: "system".into(),
            name: "cdc".into(),
        };
        permissions
            .grants("composition:webs:n:web", &account, &BTreeMap::new())
            .iter()
            .flat_map(|grant| {
                grant.rules().iter().map(|rule| {
                    format!(
                        "{}|{}/{}|{}|{}",
                        grant.namespace(),
                        rule.api_groups.as_ref().unwrap().join(","),
                        rule.resources.as_ref().unwrap().join(","),
                        rule.verbs.join(","),
                        rule.resource_names
                            .as_ref()
                            .map_or("-".to_owned(), |names| names.join(",")),
                    )
                })
            })
            .collect()
    }

    #[test]
    fn writing_carries_names_and_reading_all_does_not() {
        let permissions = Permissions::of_resources(&[
            resource("apps", "deployments", "n", "web", &MANAGE),
            resource("apps", "deployments", "n", "api", &MANAGE),
            resource("", "configmaps", "n", "", &[Verb::List]),
            resource("", "configmaps", "n", "seen", &[Verb::Get]),
            resource("scheduling.k8s.io", "priorityclasses", "", "high", &MANAGE),
            // What the controller may do anyway is not granted again.
            resource(
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "",
                "toys.example.org",
                &DEFINE,
            ),
            resource("rbac.authorization.k8s.io", "clusterroles", "", "reader", &MANAGE),
        ]);
        assert_eq!(
            lines(&permissions),
            [
                "|apiextensions.k8s.io/customresourcedefinitions|create,patch|toys.example.org",
                "|rbac.authorization.k8s.io/clusterroles|list,watch|-",
                "|scheduling.k8s.io/priorityclasses|create,patch,delete|high",
                "|scheduling.k8s.io/priorityclasses|get,list,watch|-",
                "n|/configmaps|get|seen",
                "n|/configmaps|list|-",
                "n|apps/deployments|create,patch,delete|api,web",
                "n|apps/deployments|get,list,watch|-",
            ]
        );
    }

    #[test]
    fn an_answer_without_verbs_is_an_object_of_the_release() {
        let permissions = Permissions::of_resources(&[resource("", "services", "n", "web", &[])]);
        assert_eq!(
            lines(&permissions),
            [
                "n|/services|create,patch,delete|web",
                "n|/services|get,list,watch|-"
            ]
        );
    }

    #[test]
    fn a_secret_is_neither_listed_nor_watched() {
        let permissions = Permissions::of_resources(&[resource("", "secrets", "n", "own", &[])]);
        assert_eq!(lines(&permissions), ["n|/secrets|get,create,patch,delete|own"]);
    }

    #[test]
    fn records_are_named_around_the_current_revision() {
        let release = ReleaseName::new("web").unwrap();
        let check = |revisions: &[i64], expected: &str| {
            let lines = lines(&Permissions::of_records("n", &release, revisions, 3));
            let names = expected.replace('v', "sh.helm.release.v1.web.v");
            let records = format!("n|/secrets|get,create,patch,delete|{names}");
            assert_eq!(lines, [records]);
        };
        check(&[], "v1,v2,v3,v4,v5,v6,v7,v8");
        check(&[6], "v1,v2,v3,v4,v5,v6,v7,v8");
        for newest in [7, 14] {
            // From the oldest that is kept while the newest is 7.
            check(&[newest], "v10,v11,v12,v13,v14,v15,v16,v4,v5,v6,v7,v8,v9");
        }
        // There may be many failed upgrades after the deployed revision.
        check(&[1, 7], "v1,v10,v11,v12,v13,v14,v15,v16,v4,v5,v6,v7,v8,v9");
        assert_eq!(
            lines(&Permissions::of_lease("n", &release)),
            ["n|coordination.k8s.io/leases|get|sh.helm.release.v1.web"]
        );
    }

    #[test]
    fn a_hook_of_a_kind_that_may_be_read_is_not_named_for_that() {
        let permissions = Permissions::of_resources(&[
            resource("", "configmaps", "n", "web", &MANAGE),
            resource("", "configmaps", "n", "seed", &WRITE),
        ]);
        assert_eq!(
            lines(&permissions),
            [
                "n|/configmaps|create,patch,delete|seed,web",
                "n|/configmaps|get,list,watch|-",
            ]
        );
    }

    #[test]
    fn hooks_are_read_before_they_are_written() {
        let permissions = Permissions::of_resources(&[
            resource("batch", "jobs", "n", "migrate", &WRITE),
            resource("", "configmaps", "n", "seed", &WRITE),
        ]);
        assert_eq!(
            lines(&permissions),
            [
                "n|/configmaps|get,create,patch,delete|seed",
                "n|batch/jobs|get,create,patch,delete|migrate",
            ]
        );
    }

    #[test]
    fn logs_are_read_where_hooks_run() {
        let logs = |resources: &[Resource]| lines(&Permissions::of_hook_logs(resources));
        assert_eq!(
            logs(&[
                resource("batch", "jobs", "n", "migrate", &WRITE),
                resource("", "pods", "other", "check", &WRITE),
                resource("", "configmaps", "n", "seed", &WRITE),
            ]),
            ["n|/pods|list|-", "n|/pods/log|get|-", "other|/pods/log|get|check"]
        );
        // Jobs that are part of the release are not awaited, and their output is not read.
        assert!(logs(&[resource("batch", "jobs", "n", "work", &MANAGE)]).is_empty());
    }

    #[test]
    fn no_permission_is_a_wildcard() {
        let permissions = Permissions::of_resources(&[
            resource("", "secrets", "n", "own", &[]),
            resource("", "nodes", "", "", &[Verb::List]),
        ]);
        assert!(!lines(&permissions).join("\n").contains('*'));
    }

    #[test]
    fn what_is_looked_up_is_read_and_watched_as_narrowly_as_it_is_asked_for() {
        let looked_up = |resource: &str, name: &str| Resource::looked_up("", "v1", resource, "n", name);
        let permissions = Permissions::of_resources(&[
            looked_up("configmaps", "settings"),
            looked_up("services", ""),
            looked_up("secrets", "own"),
        ]);
        assert_eq!(
            lines(&permissions),
            [
                "n|/configmaps|get,list,watch|settings",
                "n|/secrets|get|own",
                "n|/services|list,watch|-",
            ]
        );
        // When all objects of the kind are granted, too, a single one only needs `get`.
        let both = Permissions::of_resources(&[looked_up("services", ""), looked_up("services", "web")]);
        assert_eq!(lines(&both), ["n|/services|get|web", "n|/services|list,watch|-"]);
    }

    #[test]
    fn two_permissions_join_without_repeating_a_right() {
        let one = Permissions::of_resources(&[resource("", "services", "n", "web", &[Verb::Get])]);
        let two =
            Permissions::of_resources(&[resource("", "services", "n", "web", &[Verb::Get, Verb::Patch])]);
        assert_eq!(lines(&one.and(two)), ["n|/services|get,patch|web"]);
    }

    #[test]
    fn roles_are_labelled_without_what_selects_bindings_of_charts_and_without_the_version() {
        let composition = crate::plan::tests::composition();
        let mut objects = rendering::object_labels(&composition, "krateo-system");
        for exception in [
            labels::COMPOSITION_RESOURCE,
            labels::COMPOSITION_INSTALLED_VERSION,
        ] {
            assert!(objects.remove(exception).is_some());
        }
        assert_eq!(role_labels(&composition, "krateo-system"), objects);
    }

    #[test]
    fn a_binding_gives_its_role_to_the_controller_alone() {
        let account = Account {
            namespace: "system".into(),
            name: "cdc".into(),
        };
        let permissions = Permissions::of_resources(&[resource("", "services", "n", "web", &[])]);
        let grants = permissions.grants("composition:webs:n:web", &account, &BTreeMap::new());
        let [Grant::Namespaced(role, binding)] = grants.as_slice() else {
            panic!("{grants:?}")
        };
        assert_eq!(role.metadata.name, binding.metadata.name);
        assert_eq!(binding.role_ref.name, "composition:webs:n:web");
        let subjects = binding.subjects.as_deref().unwrap();
        assert_eq!(subjects.len(), 1);
        assert_eq!(
            (subjects[0].name.as_str(), subjects[0].namespace.as_deref()),
            ("cdc", Some("system"))
        );
        let other = Account {
            namespace: "elsewhere".into(),
            name: "cdc".into(),
        };
        let given = grants[0].clone().given_to(&other);
        assert_eq!(given.subjects()[0].namespace.as_deref(), Some("elsewhere"));
        assert_eq!(given.given_to(&account), grants[0]);
    }

    #[test]
    fn what_is_granted_is_told_from_what_is_not() {
        let hook = |name: &str, verbs: &[Verb]| {
            Resource::new(
                "admissionregistration.k8s.io",
                "v1",
                "mutatingwebhookconfigurations",
                "",
                name,
                verbs,
            )
        };
        let account = Account {
            namespace: "krateo".into(),
            name: "webs".into(),
        };
        let granted =
            Permissions::of_resources(&[hook("a", &MANAGE)]).grants("r", &account, &BTreeMap::new());
        let check = |needed: Resource, expected: bool| {
            assert_eq!(is_granted(&granted, &needed), expected, "{needed:?}");
        };
        check(hook("a", &MANAGE), true);
        check(hook("a", &REMOVE), true);
        check(hook("a", &[]), true);
        check(hook("b", &MANAGE), false);
        check(hook("b", &REMOVE), false);
        let elsewhere = Resource::new("", "v1", "nodes", "", "a", &REMOVE);
        check(elsewhere, false);
        // Controllers write roles and read definitions without a grant.
        let role = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles", "", "a", &WRITE);
        check(role, false);
        assert!(!is_granted(&[], &hook("a", &MANAGE)));
    }
}
