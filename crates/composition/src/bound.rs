//! A chart's scan and the admin's word become the upper bound of what its controller may be given, and what a
//! composition needs is held against it.
//!
//! core-provider writes the same bound twice: into the admission policies that hold the controller to it, and into a
//! `ConfigMap`, by which the controller says what is missing before it tries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use api::annotations;
use api::inspection::{Resource, Verb};

use crate::scan::{Kind, Reads, Scan};

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// A kind of object as authorisation names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
}

impl GroupResource {
    fn new(group: &str, resource: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    fn is_secrets(&self) -> bool {
        self.group.is_empty() && self.resource == "secrets"
    }

    /// As policies compare it: the slash is always there.
    fn key(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }
}

/// `apps/deployments`, and `services` in the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}/{}", self.group, self.resource)
        }
    }
}

/// An annotation that names no kind of object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no kind of object: write group/resource, as in apps/deployments, or the resource alone in the core group"
)]
pub struct NotAKind {
    text: String,
}

impl FromStr for GroupResource {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        let (group, resource) = text.trim().split_once('/').unwrap_or(("", text.trim()));
        let is_name = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/'))
        };
        if resource.is_empty() || !is_name(group) || !is_name(resource) {
            return Err(NotAKind {
                text: text.to_owned(),
            });
        }
        Ok(Self::new(group, resource))
    }
}

/// What is known of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Plural resource name.
    pub plural: String,
    /// True when its objects stand in namespaces.
    pub namespaced: bool,
}

/// Where kinds are looked up, best a cluster's discovery.
pub trait Kinds {
    /// The kind, in any version.
    fn kind(&self, group: &str, kind: &str) -> Option<Known>;
    /// True when objects of this resource stand in namespaces.
    fn is_namespaced(&self, group: &str, plural: &str) -> Option<bool>;
}

/// What Kubernetes itself serves, by its own rule for plurals: for use without a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

/// Kinds of Kubernetes that stand outside of namespaces.
const CLUSTER_SCOPED: [&str; 26] = [
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrustBundle",
    "CustomResourceDefinition",
    "DeviceClass",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PodSecurityPolicy",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "RuntimeClass",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Groups of Kubernetes whose names do not end in `.k8s.io`.
const OLD_GROUPS: [&str; 6] = ["", "apps", "autoscaling", "batch", "extensions", "policy"];

impl Kinds for BuiltIn {
    fn kind(&self, group: &str, kind: &str) -> Option<Known> {
        let is_ours = OLD_GROUPS.contains(&group)
            || (group.ends_with(".k8s.io")
                && !group.ends_with(".x-k8s.io")
                && group.matches('.').count() <= 3);
        is_ours.then(|| Known {
            plural: plural(kind),
            namespaced: !CLUSTER_SCOPED.contains(&kind),
        })
    }

    fn is_namespaced(&self, group: &str, resource: &str) -> Option<bool> {
        let is_cluster_scoped = CLUSTER_SCOPED.iter().any(|kind| plural(kind) == resource);
        self.kind(group, "").map(|_| !is_cluster_scoped)
    }
}

/// The rule by which Kubernetes guesses a plural.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_bytes().last() {
        _ if kind == "endpoints" => kind,
        Some(b's') => kind + "es",
        Some(b'y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => kind + "s",
    }
}

/// What the admin says about a chart, in annotations on its definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Kinds besides those of the scan.
    pub kinds: Vec<GroupResource>,
    /// Namespaces besides those of the compositions and those that the chart names.
    pub namespaces: Vec<String>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
}

impl Allowed {
    /// Reads the annotations.
    ///
    /// # Errors
    /// When one of the kinds is none, such as `*`.
    pub fn of(found: &BTreeMap<String, String>) -> Result<Self, NotAKind> {
        Ok(Self {
            kinds: listed(found, annotations::ALLOWED_KINDS)
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            namespaces: listed(found, annotations::ALLOWED_NAMESPACES)
                .map(str::to_owned)
                .collect(),
            chart_rbac: annotations::is_true(found, annotations::ALLOW_CHART_RBAC),
        })
    }
}

fn listed<'a>(found: &'a BTreeMap<String, String>, name: &str) -> impl Iterator<Item = &'a str> {
    found
        .get(name)
        .map(String::as_str)
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// The most that a controller may ever be given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Kinds whose objects stand in namespaces.
    pub namespaced: BTreeSet<GroupResource>,
    /// Kinds whose objects do not.
    pub cluster: BTreeSet<GroupResource>,
    /// Namespaces other than those of the compositions.
    pub namespaces: BTreeSet<String>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
    /// What roles of the chart's own may allow (`verb group/resource`), when it may bring any.
    pub chart_rules: BTreeSet<String>,
    /// True when Secrets that the release does not render may be read, by name.
    pub foreign_secrets: bool,
}

impl Bound {
    /// True when it has all kinds and namespaces of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.namespaced.is_subset(&self.namespaced)
            && other.cluster.is_subset(&self.cluster)
            && other.namespaces.is_subset(&self.namespaces)
    }

    /// Adds the kinds and namespaces of `other`; what it says of RBAC and of Secrets stays as it is here, so roles and
    /// bindings come along only where the chart may bring them here, too.
    pub fn add(&mut self, other: &Self) {
        let chart_rbac = self.chart_rbac;
        let may_come = |pair: &&GroupResource| chart_rbac || pair.group != RBAC;
        self.namespaced
            .extend(other.namespaced.iter().filter(may_come).cloned());
        self.cluster
            .extend(other.cluster.iter().filter(may_come).cloned());
        self.namespaces.extend(other.namespaces.iter().cloned());
    }
}

/// A bound, and what it was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The bound.
    pub bound: Bound,
    /// What chart-inspector may read of the cluster, in the order of names; never Secrets.
    pub lookups: Vec<(GroupResource, Vec<Verb>)>,
    /// Kinds that nobody serves yet and whose plural is a guess.
    pub guessed: BTreeSet<String>,
}

/// True for namespaces that only the admin's word opens: those of Kubernetes and that of the platform.
pub fn is_protected(namespace: &str, krateo_namespace: &str) -> bool {
    namespace.starts_with("kube-") || namespace == krateo_namespace
}

impl Resolved {
    /// The bound of a chart.
    pub fn new(scan: &Scan, allowed: &Allowed, kinds: &impl Kinds, krateo_namespace: &str) -> Self {
        let mut resolved = Self::default();
        for kind in &scan.kinds {
            resolved.add(kind, scan, kinds);
        }
        // A Secret that is only looked up is not the release's own: reading it is the admin's to allow.
        let is_secret = |kind: &Kind| kind.group().is_empty() && kind.kind == "Secret";
        for (kind, reads) in scan.lookups.iter().filter(|(kind, _)| !is_secret(kind)) {
            let pair = resolved.add(kind, scan, kinds);
            resolved.add_lookup(pair, *reads);
        }
        let bound = &mut resolved.bound;
        if !allowed.chart_rbac {
            bound.namespaced.retain(|pair| pair.group != RBAC);
            bound.cluster.retain(|pair| pair.group != RBAC);
        }
        bound.chart_rbac = allowed.chart_rbac;
        if allowed.chart_rbac {
            bound.chart_rules.clone_from(&scan.rules);
        }
        for pair in &allowed.kinds {
            bound.foreign_secrets |= pair.is_secrets();
            if kinds.is_namespaced(&pair.group, &pair.resource) == Some(false) {
                bound.cluster.insert(pair.clone());
            } else {
                bound.namespaced.insert(pair.clone());
            }
        }
        let literal = scan
            .namespaces
            .iter()
            .filter(|name| !is_protected(name, krateo_namespace));
        bound
            .namespaces
            .extend(literal.chain(&allowed.namespaces).cloned());
        resolved
    }

    fn add(&mut self, kind: &Kind, scan: &Scan, kinds: &impl Kinds) -> GroupResource {
        let group = kind.group();
        let own = scan
            .defined
            .iter()
            .find(|defined| defined.group == group && defined.kind == kind.kind)
            .map(|defined| Known {
                plural: defined.plural.clone(),
                namespaced: defined.namespaced,
            });
        let known = own.or_else(|| kinds.kind(group, &kind.kind)).unwrap_or_else(|| {
            let plural = plural(&kind.kind);
            self.guessed.insert(format!(
                "{kind} is not served: its objects are taken for {plural}.{group}"
            ));
            Known {
                plural,
                namespaced: true,
            }
        });
        let pair = GroupResource::new(group, &known.plural);
        let set = if known.namespaced {
            &mut self.bound.namespaced
        } else {
            &mut self.bound.cluster
        };
        set.insert(pair.clone());
        pair
    }

    fn add_lookup(&mut self, pair: GroupResource, reads: Reads) {
        let mut verbs = Vec::new();
        if reads.one {
            verbs.push(Verb::Get);
        }
        if reads.all {
            verbs.push(Verb::List);
        }
        match self.lookups.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, known)) => {
                known.extend(verbs);
                known.sort_unstable();
                known.dedup();
            }
            None => self.lookups.push((pair, verbs)),
        }
    }
}

/// Keys of the `ConfigMap` that carries a bound. Lists hold one entry a line.
mod keys {
    pub(super) const KINDS: &str = "kinds";
    pub(super) const CLUSTER_KINDS: &str = "clusterKinds";
    pub(super) const NAMESPACES: &str = "namespaces";
    pub(super) const CHART_RBAC: &str = "chartRbac";
    pub(super) const CHART_RULES: &str = "chartRules";
    pub(super) const FOREIGN_SECRETS: &str = "foreignSecrets";
}

/// The verb by which a controller may write roles in a namespace that holds a composition of its type, on the
/// subresource [`PERMISSIONS`] of the type, with the namespace as the name. Nothing is served there: the policies of
/// the controller ask whether it is allowed, and core-provider keeps the role that allows it.
pub const GRANT: &str = "grant";

/// See [`GRANT`].
pub const PERMISSIONS: &str = "permissions";

impl Bound {
    /// The data of the `ConfigMap`.
    pub fn data(&self) -> BTreeMap<String, String> {
        let pairs = |pairs: &BTreeSet<GroupResource>| lines(pairs.iter().map(GroupResource::key));
        BTreeMap::from([
            (keys::KINDS.to_owned(), pairs(&self.namespaced)),
            (keys::CLUSTER_KINDS.to_owned(), pairs(&self.cluster)),
            (
                keys::NAMESPACES.to_owned(),
                lines(self.namespaces.iter().cloned()),
            ),
            (keys::CHART_RBAC.to_owned(), self.chart_rbac.to_string()),
            (
                keys::CHART_RULES.to_owned(),
                lines(self.chart_rules.iter().cloned()),
            ),
            (keys::FOREIGN_SECRETS.to_owned(), self.foreign_secrets.to_string()),
        ])
    }

    /// The bound that a `ConfigMap` carries. What cannot be read is not allowed.
    pub fn of_data(data: &BTreeMap<String, String>) -> Self {
        let lines = |key: &str| {
            data.get(key)
                .into_iter()
                .flat_map(|text| text.lines())
                .map(str::trim)
                .filter(|line| !line.is_empty())
        };
        let pairs = |key: &str| lines(key).filter_map(|line| line.parse().ok()).collect();
        let is_true = |key: &str| data.get(key).is_some_and(|text| text == "true");
        Self {
            namespaced: pairs(keys::KINDS),
            cluster: pairs(keys::CLUSTER_KINDS),
            namespaces: lines(keys::NAMESPACES).map(str::to_owned).collect(),
            chart_rbac: is_true(keys::CHART_RBAC),
            chart_rules: lines(keys::CHART_RULES).map(str::to_owned).collect(),
            foreign_secrets: is_true(keys::FOREIGN_SECRETS),
        }
    }

    /// The first thing that a release needs and the bound does not have.
    pub fn outside(&self, needed: &[Resource]) -> Option<Outside> {
        needed.iter().find_map(|resource| self.judge(resource))
    }

    fn judge(&self, needed: &Resource) -> Option<Outside> {
        let pair = GroupResource::new(&needed.group, &needed.resource);
        let object = told(needed);
        let path = needed.path.clone();
        if pair.group == RBAC && !self.chart_rbac {
            return Some(Outside::Rbac { object, path });
        }
        let is_in = if needed.namespace.is_empty() {
            self.cluster.contains(&pair)
        } else {
            self.namespaced.contains(&pair)
        };
        if !is_in {
            return Some(Outside::Kind { object, pair, path });
        }
        if !needed.namespace.is_empty() && !self.namespaces.contains(&needed.namespace) {
            return Some(Outside::Namespace {
                object,
                namespace: needed.namespace.clone(),
                path,
            });
        }
        None
    }
}

fn lines(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join("\n")
}

fn told(resource: &Resource) -> String {
    let pair = GroupResource::new(&resource.group, &resource.resource);
    match (resource.namespace.as_str(), resource.name.as_str()) {
        ("", "") => format!("{pair}"),
        ("", name) => format!("{pair} {name}"),
        (namespace, "") => format!("{pair} in namespace {namespace}"),
        (namespace, name) => format!("{pair} {namespace}/{name}"),
    }
}

/// Something that a release needs beyond the bound of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// Of a kind that the scan did not find.
    Kind {
        /// The object.
        object: String,
        /// Its kind.
        pair: GroupResource,
        /// The template that names it.
        path: Option<String>,
    },
    /// In a namespace that is not the composition's.
    Namespace {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// In the composition's own namespace, in which no composition of the type was before: core-provider, which opens
    /// it, has not seen the composition yet.
    Unopened {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
    },
    /// A role or binding that the chart brings.
    Rbac {
        /// The object.
        object: String,
        /// The template that names it.
        path: Option<String>,
    },
}

impl Outside {
    /// The same, for a composition of this namespace: what core-provider opens by itself waits for that, not for an
    /// admin.
    #[must_use]
    pub fn from_home(self, home: &str, krateo_namespace: &str) -> Self {
        match self {
            Self::Namespace {
                object, namespace, ..
            } if namespace == home && !is_protected(home, krateo_namespace) => {
                Self::Unopened { object, namespace }
            }
            other => other,
        }
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, path, why, annotation) = match self {
            Self::Kind { object, pair, path } => (
                object,
                path,
                "a kind that the scan of the chart, in this version, did not find",
                format!("{}: {pair}", annotations::ALLOWED_KINDS),
            ),
            Self::Namespace {
                object,
                namespace,
                path,
            } => (
                object,
                path,
                "a namespace that is closed to releases of its definition",
                format!("{}: {namespace}", annotations::ALLOWED_NAMESPACES),
            ),
            Self::Unopened { object, namespace } => {
                return write!(
                    f,
                    "the release needs {object}, and namespace {namespace} holds its first composition of this type: \
                     waiting for core-provider to open it; nothing has to be done if core-provider runs"
                );
            }
            Self::Rbac { object, path } => (
                object,
                path,
                "a role or binding of the chart's own",
                format!("{}: \"true\"", annotations::ALLOW_CHART_RBAC),
            ),
        };
        write!(f, "the release needs {object}")?;
        if let Some(path) = path {
            write!(f, " ({path})")?;
        }
        write!(
            f,
            ", {why}: an admin can allow it on the CompositionDefinition with the annotation {annotation}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Unresolved;

    fn kind(api_version: &str, kind: &str) -> Kind {
        Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }

    fn scanned() -> Scan {
        Scan {
            kinds: BTreeSet::from([
                kind("apps/v1", "Deployment"),
                kind("v1", "Service"),
                kind("networking.k8s.io/v1", "IngressClass"),
                kind("rbac.authorization.k8s.io/v1", "Role"),
                kind("g.io/v1", "Policy"),
            ]),
            lookups: BTreeMap::from([
                (
                    kind("v1", "Secret"),
                    Reads {
                        one: true,
                        all: false,
                    },
                ),
                (
                    kind("v1", "Node"),
                    Reads {
                        one: false,
                        all: true,
                    },
                ),
            ]),
            namespaces: BTreeSet::from(["kube-system".into(), "monitoring".into()]),
            unresolved: BTreeSet::<Unresolved>::new(),
            ..Scan::default()
        }
    }

    fn resolved(annotations: &[(&str, &str)]) -> Resolved {
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Resolved::new(
            &scanned(),
            &Allowed::of(&annotations).unwrap(),
            &BuiltIn,
            "krateo-system",
        )
    }

    fn keys(pairs: &BTreeSet<GroupResource>) -> Vec<String> {
        pairs.iter().map(GroupResource::to_string).collect()
    }

    #[test]
    fn the_scan_becomes_kinds_by_scope_without_the_charts_own_rbac() {
        let Resolved {
            bound,
            lookups,
            guessed,
        } = resolved(&[]);
        assert_eq!(
            keys(&bound.namespaced),
            ["services", "apps/deployments", "g.io/policies"]
        );
        assert_eq!(
            keys(&bound.cluster),
            ["nodes", "networking.k8s.io/ingressclasses"]
        );
        assert_eq!(
            lookups.len(),
            1,
            "Secrets that are looked up are the admin's to allow"
        );
        assert_eq!(guessed.len(), 1);
        assert_eq!(Vec::from_iter(bound.namespaces), ["monitoring"]);
    }

    #[test]
    fn the_admins_word_adds_to_it_and_never_a_wildcard() {
        let bound = resolved(&[
            ("krateo.io/allowed-kinds", "batch/jobs, nodes"),
            ("krateo.io/allowed-namespaces", "kube-system"),
            ("krateo.io/allow-chart-rbac", "true"),
        ])
        .bound;
        assert!(keys(&bound.namespaced).contains(&"batch/jobs".to_owned()));
        assert!(keys(&bound.namespaced).contains(&"rbac.authorization.k8s.io/roles".to_owned()));
        assert!(bound.namespaces.contains("kube-system") && bound.chart_rbac);
        let wildcard = BTreeMap::from([("krateo.io/allowed-kinds".to_owned(), "apps/*".to_owned())]);
        assert!(Allowed::of(&wildcard).unwrap_err().to_string().contains("apps/*"));
    }

    #[test]
    fn what_another_chart_adds_brings_roles_only_where_the_chart_may_bring_them() {
        let other = resolved(&[("krateo.io/allow-chart-rbac", "true")]).bound;
        let roles = "rbac.authorization.k8s.io/roles".to_owned();
        assert!(keys(&other.namespaced).contains(&roles));
        let sum = |chart_rbac: bool| {
            let mut bound = Bound {
                chart_rbac,
                ..Bound::default()
            };
            bound.add(&other);
            assert!(bound.covers(&resolved(&[]).bound));
            assert_eq!(
                (bound.chart_rbac, bound.chart_rules.len()),
                (chart_rbac, 0),
                "its own"
            );
            keys(&bound.namespaced)
        };
        assert!(!sum(false).contains(&roles));
        assert!(sum(true).contains(&roles));
    }

    #[test]
    fn a_bound_survives_its_config_map() {
        let mut bound = resolved(&[("krateo.io/allowed-kinds", "secrets")]).bound;
        assert!(bound.foreign_secrets);
        bound.namespaces.extend(["team-a".into(), "team-b".into()]);
        assert_eq!(Bound::of_data(&bound.data()), bound);
    }

    #[test]
    fn the_first_composition_of_a_namespace_waits_for_core_provider_and_not_for_an_admin() {
        let outside = |namespace: &str| Outside::Namespace {
            object: "services".into(),
            namespace: namespace.into(),
            path: None,
        };
        let told = |namespace: &str| outside(namespace).from_home("shop", "krateo-system").to_string();
        assert!(
            told("shop").contains("waiting for core-provider"),
            "{}",
            told("shop")
        );
        assert!(told("other").contains("krateo.io/allowed-namespaces: other"));
        let protected = outside("kube-system").from_home("kube-system", "krateo-system");
        assert_eq!(protected, outside("kube-system"));
    }

    #[test]
    fn what_lies_outside_is_named_with_the_annotation_that_allows_it() {
        let mut bound = resolved(&[]).bound;
        bound.namespaces.insert("team".into());
        let needs = |group: &str, resource: &str, namespace: &str| {
            let needed = Resource::new(group, "v1", resource, namespace, "web", &[Verb::Get]);
            bound.outside(&[needed]).map(|outside| outside.to_string())
        };
        assert_eq!(needs("apps", "deployments", "team"), None);
        assert_eq!(needs("networking.k8s.io", "ingressclasses", ""), None);
        let said = |outside: Option<String>, expected: &str| {
            assert!(outside.as_ref().unwrap().ends_with(expected), "{outside:?}");
        };
        said(
            needs("batch", "jobs", "team"),
            "krateo.io/allowed-kinds: batch/jobs",
        );
        said(
            needs("apps", "deployments", "other"),
            "krateo.io/allowed-namespaces: other",
        );
        said(
            needs(RBAC, "roles", "team"),
            "krateo.io/allow-chart-rbac: \"true\"",
        );
        // All namespaces at once is more than any of them.
        said(needs("apps", "deployments", ""), "apps/deployments");
    }
}
