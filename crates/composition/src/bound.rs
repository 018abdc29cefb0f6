//! Combines a chart's scan and the admin's consent into the upper bound of what its controller may be granted, and
//! checks what a composition needs against it.
//!
//! core-provider writes the same bound twice: into the admission policies that enforce it, and into a `ConfigMap`,
//! from which the controller can say what is missing before it tries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::annotations;
use api::inspection::{Resource, Verb};
use serde_json::json;

use crate::allowed_definitions::{self, AllowedDefinition, NotAllowable};
pub use crate::group_resource::{GroupResource, NotAKind};
use crate::lookups::{Allowance, Decision, Lookups, NotAnAllowance, Question, Refused};
use crate::scan::{Kind, Reads, Scan};

/// The API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// What is known about a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceMapping {
    /// Plural resource name.
    pub plural: String,
    /// True when it is namespaced.
    pub namespaced: bool,
}

/// Resolves kinds, usually by a cluster's discovery.
pub trait Kinds {
    /// The kind, in any version.
    fn kind(&self, group: &str, kind: &str) -> Option<ResourceMapping>;
    /// True when this resource is namespaced.
    fn is_namespaced(&self, group: &str, plural: &str) -> Option<bool>;
}

/// The kinds that Kubernetes itself serves, with its own rule for plurals: for use without a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

/// Cluster-scoped kinds of Kubernetes.
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
    fn kind(&self, group: &str, kind: &str) -> Option<ResourceMapping> {
        let is_ours = OLD_GROUPS.contains(&group)
            || (group.ends_with(".k8s.io")
                && !group.ends_with(".x-k8s.io")
                && group.matches('.').count() <= 3);
        is_ours.then(|| ResourceMapping {
            plural: plural(kind),
            namespaced: !CLUSTER_SCOPED.contains(&kind),
        })
    }

    fn is_namespaced(&self, group: &str, resource: &str) -> Option<bool> {
        let is_cluster_scoped = CLUSTER_SCOPED.iter().any(|kind| plural(kind) == resource);
        self.kind(group, "").map(|_| !is_cluster_scoped)
    }
}

/// The kind in RBAC's terms, and whether it is namespaced; a guess if the kind is unknown.
pub fn guess(kinds: &impl Kinds, group: &str, kind: &str) -> (GroupResource, bool) {
    let mapping = kinds.kind(group, kind).unwrap_or_else(|| ResourceMapping {
        plural: unserved_plural(group, kind),
        namespaced: true,
    });
    (GroupResource::new(group, &mapping.plural), mapping.namespaced)
}

/// The plural of a kind that is not served yet. Plurals of types generated from charts are our own.
fn unserved_plural(group: &str, kind: &str) -> String {
    if group == crdgen::GROUP {
        crdgen::Names::plural_of(kind)
    } else {
        plural(kind)
    }
}

/// The rule by which Kubernetes guesses plurals.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_bytes().last() {
        _ if kind == "endpoints" => kind,
        Some(b's') => kind + "es",
        Some(b'y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => kind + "s",
    }
}

/// What the admin allows a chart, by annotations on its definition, except what the platform closes for all
/// definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Kinds in addition to those of the scan.
    pub kinds: Vec<GroupResource>,
    /// Namespaces in addition to those of the compositions and those that the chart names.
    pub namespaces: Vec<String>,
    /// Lookups in addition to those allowed anyway.
    pub lookups: BTreeSet<Allowance>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
    /// Definitions that the chart may bring with annotations reserved to the admin, and the kinds generated from
    /// their charts.
    pub definitions: Vec<AllowedDefinition>,
    /// True when the chart may bring no other definitions.
    pub only_definitions: bool,
    /// Namespaces that the platform closes: no annotation opens them. Not read from the definition.
    pub closed: BTreeSet<String>,
}

impl Allowed {
    /// Reads the annotations.
    ///
    /// # Errors
    /// When an entry is not a kind, for example `*`, an entry does not allow a lookup, or the list of definitions is
    /// invalid.
    pub fn of(found: &BTreeMap<String, String>) -> Result<Self, BadAnnotation> {
        Ok(Self {
            kinds: listed(found, annotations::ALLOWED_KINDS)
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            namespaces: listed(found, annotations::ALLOWED_NAMESPACES)
                .map(str::to_owned)
                .collect(),
            lookups: listed(found, annotations::ALLOWED_LOOKUPS)
                .map(str::parse)
                .collect::<Result<_, _>>()?,
            chart_rbac: annotations::is_true(found, annotations::ALLOW_CHART_RBAC),
            definitions: found
                .get(annotations::ALLOWED_DEFINITIONS)
                .map(|text| allowed_definitions::parse(text))
                .transpose()?
                .unwrap_or_default(),
            only_definitions: annotations::is_true(found, annotations::ONLY_ALLOWED_DEFINITIONS),
            closed: BTreeSet::new(),
        })
    }
}

/// An admin's annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// An entry is not a kind.
    #[error("annotation {} of the definition is not usable", annotations::ALLOWED_KINDS)]
    Kinds(#[from] NotAKind),
    /// An entry does not allow a lookup.
    #[error("annotation {} of the definition is not usable", annotations::ALLOWED_LOOKUPS)]
    Lookups(#[from] NotAnAllowance),
    /// The list of definitions is invalid.
    #[error(
        "annotation {} of the definition is not usable",
        annotations::ALLOWED_DEFINITIONS
    )]
    Definitions(#[from] NotAllowable),
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

/// The most that a controller may ever be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Namespaced kinds.
    pub namespaced: BTreeSet<GroupResource>,
    /// Cluster-scoped kinds.
    pub cluster: BTreeSet<GroupResource>,
    /// Namespaces other than those of the compositions.
    pub namespaces: BTreeSet<String>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
    /// What Roles in the chart may allow (`verb group/resource`), if it may bring any.
    pub chart_rules: BTreeSet<String>,
    /// What `ClusterRole`s in the chart may allow, if it may bring any.
    pub chart_cluster_rules: BTreeSet<String>,
    /// What the chart may look up, in addition to objects that the release may write.
    pub lookups: Lookups,
    /// Definitions that the release may write with annotations reserved to the admin.
    pub definitions: Vec<AllowedDefinition>,
    /// True when it may write no other definitions.
    pub only_definitions: bool,
    /// Namespaces that are closed, also to the compositions in them.
    pub closed: BTreeSet<String>,
}

impl Bound {
    /// True when it has all kinds and namespaces of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.namespaced.is_subset(&self.namespaced)
            && other.cluster.is_subset(&self.cluster)
            && other.namespaces.is_subset(&self.namespaces)
    }

    /// Adds the kinds and namespaces of `other`. RBAC, lookups and definitions are not taken from `other`, so roles
    /// and bindings are only added where this chart, too, may bring them.
    pub fn add(&mut self, other: &Self) {
        let chart_rbac = self.chart_rbac;
        let may_come = |pair: &&GroupResource| chart_rbac || pair.group != RBAC;
        self.namespaced
            .extend(other.namespaced.iter().filter(may_come).cloned());
        self.cluster
            .extend(other.cluster.iter().filter(may_come).cloned());
        self.namespaces
            .extend(other.namespaces.difference(&self.closed).cloned());
    }
}

/// A bound, and notes about how it was computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The bound.
    pub bound: Bound,
    /// Kinds that are not served yet and whose plural is a guess.
    pub guessed: BTreeSet<String>,
    /// What annotations ask for although the platform closes it.
    pub closed: BTreeSet<String>,
}

/// True for namespaces that only an admin can open: those of Kubernetes and that of the platform.
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
        for (kind, reads) in &scan.lookups {
            resolved.add_lookup(kind, *reads, true, scan, kinds);
        }
        for (kind, reads) in &scan.text_lookups {
            resolved.add_lookup(kind, *reads, false, scan, kinds);
        }
        let bound = &mut resolved.bound;
        if !allowed.chart_rbac {
            bound.namespaced.retain(|pair| pair.group != RBAC);
            bound.cluster.retain(|pair| pair.group != RBAC);
        }
        bound.chart_rbac = allowed.chart_rbac;
        if allowed.chart_rbac {
            bound.chart_rules.clone_from(&scan.rules);
            bound.chart_cluster_rules.clone_from(&scan.cluster_rules);
        }
        let (closed_lookups, lookups): (BTreeSet<_>, BTreeSet<_>) =
            allowed.lookups.iter().cloned().partition(|allowance| {
                allowance
                    .namespace()
                    .is_some_and(|name| allowed.closed.contains(name))
            });
        bound.lookups.allowed = lookups;
        bound.definitions.clone_from(&allowed.definitions);
        bound.only_definitions = allowed.only_definitions;
        bound.closed.clone_from(&allowed.closed);
        for kind in allowed.definitions.iter().filter_map(AllowedDefinition::kind) {
            let (pair, namespaced) = guess(kinds, crdgen::GROUP, kind);
            if namespaced {
                // A chart that waits for objects it brings looks them up, by a kind that the scan cannot determine
                // either.
                bound.lookups.namespaced.entry(pair.clone()).or_default().one = true;
                bound.namespaced.insert(pair);
            }
        }
        for pair in &allowed.kinds {
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
        let is_closed = |name: &&String| allowed.closed.contains(*name);
        let (closed, open): (Vec<_>, Vec<_>) = literal.chain(&allowed.namespaces).partition(is_closed);
        bound.namespaces.extend(open.into_iter().cloned());
        resolved.closed = closed
            .into_iter()
            .map(|name| format!("namespace {name} stays closed: the platform closes it to all definitions"))
            .chain(closed_lookups.iter().map(|entry| {
                format!(
                    "{}: {entry} is not allowed: the platform closes that namespace to all definitions",
                    annotations::ALLOWED_LOOKUPS
                )
            }))
            .collect();
        resolved
    }

    fn add(&mut self, kind: &Kind, scan: &Scan, kinds: &impl Kinds) {
        let (pair, namespaced) = self.find(kind, scan, kinds);
        let set = if namespaced {
            &mut self.bound.namespaced
        } else {
            &mut self.bound.cluster
        };
        set.insert(pair);
    }

    /// The kind in RBAC's terms, and whether it is namespaced.
    fn find(&mut self, kind: &Kind, scan: &Scan, kinds: &impl Kinds) -> (GroupResource, bool) {
        let group = kind.group();
        let own = scan
            .defined
            .iter()
            .find(|defined| defined.group == group && defined.kind == kind.kind)
            .map(|defined| ResourceMapping {
                plural: defined.plural.clone(),
                namespaced: defined.namespaced,
            });
        let mapping = own.or_else(|| kinds.kind(group, &kind.kind)).unwrap_or_else(|| {
            let plural = unserved_plural(group, &kind.kind);
            self.guessed.insert(format!(
                "{kind} is not served: its objects are taken for {plural}.{group}"
            ));
            ResourceMapping {
                plural,
                namespaced: true,
            }
        });
        (GroupResource::new(group, &mapping.plural), mapping.namespaced)
    }

    /// For cluster-scoped kinds, only lookups in the templates themselves count: a text passed to `tpl` comes from
    /// the values, which the author of a composition may replace.
    fn add_lookup(
        &mut self,
        kind: &Kind,
        reads: Reads,
        is_spelled_out: bool,
        scan: &Scan,
        kinds: &impl Kinds,
    ) {
        let (pair, namespaced) = self.find(kind, scan, kinds);
        let lookups = &mut self.bound.lookups;
        let known = match (namespaced, is_spelled_out) {
            (true, _) => lookups.namespaced.entry(pair).or_default(),
            (false, true) => lookups.cluster.entry(pair).or_default(),
            (false, false) => return,
        };
        known.one |= reads.one;
        known.all |= reads.all;
    }
}

/// Name of the policy that checks what a controller grants itself; it carries the bound in the annotation
/// `krateo.io/bound`.
pub fn grants_policy(plural: &str, version: &str) -> String {
    format!("{plural}-{version}-grants")
}

/// Keys of the `ConfigMap` that carries a bound. Lists have one entry per line.
mod keys {
    pub(super) const KINDS: &str = "kinds";
    pub(super) const CLUSTER_KINDS: &str = "clusterKinds";
    pub(super) const NAMESPACES: &str = "namespaces";
    pub(super) const CHART_RBAC: &str = "chartRbac";
    pub(super) const CHART_RULES: &str = "chartRules";
    pub(super) const CHART_CLUSTER_RULES: &str = "chartClusterRules";
    /// `verb group/resource`
    pub(super) const LOOKUPS: &str = "lookups";
    pub(super) const CLUSTER_LOOKUPS: &str = "clusterLookups";
    pub(super) const ALLOWED_LOOKUPS: &str = "allowedLookups";
    /// One entry of the annotation per line, as written there.
    pub(super) const ALLOWED_DEFINITIONS: &str = "allowedDefinitions";
    pub(super) const ONLY_ALLOWED_DEFINITIONS: &str = "onlyAllowedDefinitions";
    pub(super) const CLOSED_NAMESPACES: &str = "closedNamespaces";
}

/// The verb that a controller needs to write roles in a namespace that has a composition of its type: on the
/// subresource [`PERMISSIONS`] of the type, with the namespace as the name. Nothing is served there: the policies of
/// the controller check whether it is allowed, and core-provider maintains the role that allows it.
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
            (
                keys::CHART_CLUSTER_RULES.to_owned(),
                lines(self.chart_cluster_rules.iter().cloned()),
            ),
            (keys::LOOKUPS.to_owned(), reads(&self.lookups.namespaced)),
            (keys::CLUSTER_LOOKUPS.to_owned(), reads(&self.lookups.cluster)),
            (
                keys::ALLOWED_LOOKUPS.to_owned(),
                lines(self.lookups.allowed.iter().map(Allowance::key)),
            ),
            (
                keys::ALLOWED_DEFINITIONS.to_owned(),
                lines(self.definitions.iter().map(|entry| json!(entry).to_string())),
            ),
            (
                keys::ONLY_ALLOWED_DEFINITIONS.to_owned(),
                self.only_definitions.to_string(),
            ),
            (
                keys::CLOSED_NAMESPACES.to_owned(),
                lines(self.closed.iter().cloned()),
            ),
        ])
    }

    /// The bound from the data of a `ConfigMap`. Entries that cannot be read are not allowed.
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
            chart_cluster_rules: lines(keys::CHART_CLUSTER_RULES).map(str::to_owned).collect(),
            lookups: Lookups {
                namespaced: reads_of(lines(keys::LOOKUPS)),
                cluster: reads_of(lines(keys::CLUSTER_LOOKUPS)),
                allowed: lines(keys::ALLOWED_LOOKUPS)
                    .filter_map(|line| line.parse().ok())
                    .collect(),
            },
            definitions: lines(keys::ALLOWED_DEFINITIONS)
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            only_definitions: is_true(keys::ONLY_ALLOWED_DEFINITIONS),
            closed: lines(keys::CLOSED_NAMESPACES).map(str::to_owned).collect(),
        }
    }

    /// The bound from the annotation of the controller's policy.
    pub fn of_annotation(text: &str) -> Self {
        Self::of_data(&serde_json::from_str(text).unwrap_or_default())
    }

    /// What chart-inspector may read of the cluster for its templates, ordered by name; never Secrets.
    pub fn inspected(&self) -> Vec<(GroupResource, Vec<Verb>)> {
        let mut all: BTreeMap<&GroupResource, Reads> = BTreeMap::new();
        let Lookups {
            namespaced,
            cluster,
            allowed,
        } = &self.lookups;
        for (kind, reads) in namespaced.iter().chain(cluster) {
            let known = all.entry(kind).or_default();
            known.one |= reads.one;
            known.all |= reads.all;
        }
        for allowance in allowed {
            // What is open in a single namespace is read by the controller instead.
            if let Allowance::Kind(kind) = allowance {
                all.insert(kind, Reads { one: true, all: true });
            }
        }
        all.into_iter()
            .filter(|(kind, _)| !kind.is_secrets())
            .map(|(kind, reads)| (kind.clone(), reads.verbs().collect()))
            .collect()
    }

    /// The first thing that a release needs and that is outside the bound. `home` is the composition's namespace.
    pub fn outside(&self, home: &str, needed: &[Resource]) -> Option<Outside> {
        needed.iter().find_map(|resource| self.judge(home, resource))
    }

    fn judge(&self, home: &str, needed: &Resource) -> Option<Outside> {
        let pair = GroupResource::new(&needed.group, &needed.resource);
        if is_lookup(needed) {
            let question = Question {
                kind: &pair,
                namespaced: !needed.namespace.is_empty() || !self.is_of_cluster(&pair),
                namespace: &needed.namespace,
                name: &needed.name,
            };
            return match self.decide(home, &question) {
                // The owner of a Secret was checked when it was read.
                Decision::Answerable | Decision::IfOwn(_) => None,
                Decision::Refused(refused) => Some(Outside::Lookup(Box::new(refused))),
            };
        }
        let object = described(needed);
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
        if self.closed.contains(&needed.namespace) {
            return Some(Outside::Closed {
                object,
                namespace: needed.namespace.clone(),
                path,
            });
        }
        if !needed.namespace.is_empty() && !self.is_open(home, &needed.namespace) {
            return Some(Outside::Namespace {
                object,
                namespace: needed.namespace.clone(),
                path,
            });
        }
        None
    }

    fn is_of_cluster(&self, pair: &GroupResource) -> bool {
        self.lookups.cluster.contains_key(pair) || self.cluster.contains(pair)
    }
}

/// True for an object that is only read.
fn is_lookup(needed: &Resource) -> bool {
    let is_read = |verb: &Verb| matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    !needed.verbs.is_empty() && needed.verbs.iter().all(is_read)
}

fn reads(kinds: &BTreeMap<GroupResource, Reads>) -> String {
    let each = |(kind, reads): (&GroupResource, &Reads)| {
        let kind = kind.key();
        let verbs: Vec<_> = reads.verbs().collect();
        verbs
            .into_iter()
            .map(move |verb| format!("{} {kind}", verb.as_str()))
    };
    lines(kinds.iter().flat_map(each))
}

fn reads_of<'l>(lines: impl Iterator<Item = &'l str>) -> BTreeMap<GroupResource, Reads> {
    let mut kinds: BTreeMap<GroupResource, Reads> = BTreeMap::new();
    for (verb, kind) in lines.filter_map(|line| line.split_once(' ')) {
        let Ok(kind) = kind.parse() else { continue };
        let reads = kinds.entry(kind).or_default();
        reads.one |= verb == "get";
        reads.all |= verb == "list";
    }
    kinds
}

fn lines(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join("\n")
}

fn described(resource: &Resource) -> String {
    let pair = GroupResource::new(&resource.group, &resource.resource);
    match (resource.namespace.as_str(), resource.name.as_str()) {
        ("", "") => format!("{pair}"),
        ("", name) => format!("{pair} {name}"),
        (namespace, "") => format!("{pair} in namespace {namespace}"),
        (namespace, name) => format!("{pair} {namespace}/{name}"),
    }
}

/// Something that a release needs and that is outside the bound of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A kind that the scan did not find.
    Kind {
        /// The object.
        object: String,
        /// Its kind.
        pair: GroupResource,
        /// The template that names it.
        path: Option<String>,
    },
    /// A namespace that is not open to the composition.
    Namespace {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// A namespace that the platform closes to all definitions, even if it is the composition's own.
    Closed {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
        /// The template that names it.
        path: Option<String>,
    },
    /// The composition's own namespace, which had no composition of the type before: core-provider, which opens it,
    /// has not seen the composition yet.
    Unopened {
        /// The object.
        object: String,
        /// The namespace.
        namespace: String,
    },
    /// A lookup that the composition is not allowed.
    Lookup(Box<Refused>),
    /// A role or binding that the chart brings.
    Rbac {
        /// The object.
        object: String,
        /// The template that names it.
        path: Option<String>,
    },
}

impl Outside {
    /// The first thing needed in the composition's own namespace while that is not open. core-provider opens it by
    /// itself, so the composition waits for that and not for an admin.
    pub fn at_home(home: &str, needed: &[Resource], krateo_namespace: &str) -> Option<Self> {
        let needed = needed.iter().find(|needed| needed.namespace == home)?;
        let (object, namespace) = (described(needed), home.to_owned());
        Some(if is_protected(home, krateo_namespace) {
            Self::Namespace {
                object,
                namespace,
                path: needed.path.clone(),
            }
        } else {
            Self::Unopened { object, namespace }
        })
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
            Self::Closed {
                object,
                namespace,
                path,
            } => {
                let path = path.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
                return write!(
                    f,
                    "the release needs {object}{path}, in namespace {namespace}, which the platform closes to all \
                     definitions (coreProvider.closedNamespaces): no annotation opens it; use another namespace"
                );
            }
            Self::Unopened { object, namespace } => {
                return write!(
                    f,
                    "the release needs {object}, and namespace {namespace} holds its first composition of this type: \
                     waiting for core-provider to open it; nothing has to be done if core-provider runs"
                );
            }
            Self::Lookup(refused) => return refused.fmt(f),
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
            guessed,
            closed,
        } = resolved(&[]);
        assert!(closed.is_empty(), "{closed:?}");
        assert_eq!(
            keys(&bound.namespaced),
            ["services", "apps/deployments", "g.io/policies"]
        );
        assert_eq!(
            keys(&bound.cluster),
            ["networking.k8s.io/ingressclasses"],
            "nodes are looked up and never written"
        );
        let data = bound.data();
        assert_eq!(data["lookups"], "get /secrets");
        assert_eq!(data["clusterLookups"], "list /nodes");
        let inspected = bound.inspected();
        assert_eq!(inspected, [(GroupResource::new("", "nodes"), vec![Verb::List])]);
        assert_eq!(guessed.len(), 1);
        assert_eq!(Vec::from_iter(bound.namespaces), ["monitoring"]);
    }

    #[test]
    fn the_admins_word_adds_to_it_and_never_a_wildcard() {
        let bound = resolved(&[
            ("krateo.io/allowed-kinds", "batch/jobs, nodes"),
            ("krateo.io/allowed-namespaces", "kube-system"),
            ("krateo.io/allow-chart-rbac", "true"),
            ("krateo.io/allowed-lookups", "pods@team-b, apps/daemonsets"),
        ])
        .bound;
        assert_eq!(bound.data()["allowedLookups"], "apps/daemonsets\n/pods@team-b");
        let inspected: Vec<_> = bound
            .inspected()
            .iter()
            .map(|(kind, _)| kind.to_string())
            .collect();
        assert_eq!(inspected, ["nodes", "apps/daemonsets"]);
        assert!(keys(&bound.namespaced).contains(&"batch/jobs".to_owned()));
        assert!(keys(&bound.namespaced).contains(&"rbac.authorization.k8s.io/roles".to_owned()));
        assert!(bound.namespaces.contains("kube-system") && bound.chart_rbac);
        let wildcard = BTreeMap::from([("krateo.io/allowed-kinds".to_owned(), "apps/*".to_owned())]);
        assert!(
            matches!(Allowed::of(&wildcard), Err(BadAnnotation::Kinds(why)) if why.to_string().contains("apps/*"))
        );
        let secrets = BTreeMap::from([("krateo.io/allowed-lookups".to_owned(), "@a, secrets".to_owned())]);
        let refused = Allowed::of(&secrets).unwrap_err();
        assert!(
            refused.to_string().contains("krateo.io/allowed-lookups"),
            "{refused}"
        );
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

    /// A list of one definition, with these annotations.
    fn listed(kind: &str, annotations: &serde_json::Value) -> String {
        json!([{
            "name": "authn", "namespace": "krateo-system", "url": "oci://r.example/authn", "version": "0.22.2",
            "kind": kind, "annotations": annotations,
        }])
        .to_string()
    }

    #[test]
    fn a_listed_definition_opens_the_kind_that_it_becomes_by_our_own_plural() {
        let text = listed("OtelCollectorDaemonset", &json!({}));
        let bound = resolved(&[("krateo.io/allowed-definitions", &text)]).bound;
        let kind: GroupResource = "composition.krateo.io/otelcollectordaemonsets".parse().unwrap();
        assert!(bound.namespaced.contains(&kind), "{:?}", keys(&bound.namespaced));
        assert!(bound.inspected().contains(&(kind, vec![Verb::Get])));
        assert_eq!(bound.definitions.len(), 1);
        assert!(!bound.only_definitions);
        // Where flect and Kubernetes differ, the type has flect's plural.
        let of = |group: &str, kind: &str| guess(&BuiltIn, group, kind).0.to_string();
        assert_eq!(
            of("composition.krateo.io", "KagentCrds"),
            "composition.krateo.io/kagentcrds"
        );
        assert_eq!(of("g.io", "KagentCrds"), "g.io/kagentcrdses");
        let only = resolved(&[
            ("krateo.io/allowed-definitions", &text),
            ("krateo.io/only-allowed-definitions", "true"),
        ]);
        assert!(only.bound.only_definitions);
        let wrong = BTreeMap::from([("krateo.io/allowed-definitions".to_owned(), "authn".to_owned())]);
        let refused = Allowed::of(&wrong).unwrap_err();
        assert!(
            refused.to_string().contains("krateo.io/allowed-definitions"),
            "{refused}"
        );
    }

    #[test]
    fn a_closed_namespace_is_opened_by_nothing() {
        let annotations = [
            ("krateo.io/allowed-namespaces", "krateo-system, monitoring, vault"),
            (
                "krateo.io/allowed-lookups",
                "pods@vault, @vault, secrets@vault/a, configmaps, pods@team-b",
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let allowed = Allowed {
            closed: BTreeSet::from(["krateo-system".into(), "vault".into()]),
            ..Allowed::of(&BTreeMap::from(annotations)).unwrap()
        };
        let Resolved { bound, closed, .. } = Resolved::new(&scanned(), &allowed, &BuiltIn, "krateo-platform");
        assert_eq!(Vec::from_iter(&bound.namespaces), ["monitoring"]);
        let allowances: Vec<_> = bound.lookups.allowed.iter().map(ToString::to_string).collect();
        assert_eq!(allowances, ["configmaps", "pods@team-b"]);
        assert_eq!(closed.len(), 5, "an admin is told of each: {closed:?}");

        let services = |verb: Verb, namespace: &str| {
            let needed = Resource::new("", "v1", "services", namespace, "web", &[verb]);
            bound
                .outside(namespace, &[needed])
                .map(|outside| outside.to_string())
        };
        // Not even for compositions in it.
        for verb in [Verb::Patch, Verb::Get] {
            assert_eq!(services(verb, "team"), None);
            let told = services(verb, "vault").unwrap();
            assert!(
                told.contains("the platform closes") && told.contains("no annotation"),
                "{told}"
            );
        }
        let maps = Resource::looked_up("", "v1", "configmaps", "vault", "a");
        assert!(
            bound.outside("team", &[maps]).is_some(),
            "nor for a kind that is open everywhere"
        );
        let mut other = Bound::default();
        other.namespaces.insert("vault".into());
        let mut sum = bound.clone();
        sum.add(&other);
        assert_eq!(sum.namespaces, bound.namespaces, "nor for the chart before");
    }

    #[test]
    fn a_bound_survives_its_config_map() {
        let mut bound = resolved(&[
            ("krateo.io/allowed-kinds", "secrets"),
            ("krateo.io/allow-chart-rbac", "true"),
            (
                "krateo.io/allowed-lookups",
                "pods@team-b,apps/daemonsets,@team-c,secrets@vault/shared",
            ),
        ])
        .bound;
        bound.definitions = allowed_definitions::parse(&listed(
            "Authn",
            &json!({"krateo.io/allowed-kinds": "apps/deployments, configmaps"}),
        ))
        .unwrap();
        bound.only_definitions = true;
        bound.closed.insert("vault-b".into());
        bound.chart_rules.insert("get /pods".into());
        bound.chart_cluster_rules.insert("get /nodes".into());
        bound.namespaces.extend(["team-a".into(), "team-b".into()]);
        assert_eq!(Bound::of_data(&bound.data()), bound);
        assert_eq!(bound.lookups.allowed.len(), 4);
        let annotation = serde_json::json!(bound.data()).to_string();
        assert_eq!(Bound::of_annotation(&annotation), bound);
        assert_eq!(Bound::of_annotation("?"), Bound::default());
    }

    #[test]
    fn the_first_composition_of_a_namespace_waits_for_core_provider_and_not_for_an_admin() {
        let needed =
            ["kube-system", "shop"].map(|namespace| Resource::looked_up("", "v1", "services", namespace, ""));
        let at = |home: &str| Outside::at_home(home, &needed, "krateo-system");
        let told = |home: &str| at(home).unwrap().to_string();
        assert!(
            told("shop").contains("waiting for core-provider"),
            "{}",
            told("shop")
        );
        assert!(told("kube-system").contains("krateo.io/allowed-namespaces: kube-system"));
        assert_eq!(at("other"), None);
    }

    #[test]
    fn what_lies_outside_is_named_with_the_annotation_that_allows_it() {
        let bound = resolved(&[]).bound;
        let asks = |verb: Verb, group: &str, resource: &str, namespace: &str| {
            let needed = Resource::new(group, "v1", resource, namespace, "web", &[verb]);
            bound
                .outside("team", &[needed])
                .map(|outside| outside.to_string())
        };
        let needs =
            |group: &str, resource: &str, namespace: &str| asks(Verb::Patch, group, resource, namespace);
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
        // All namespaces at once is more than any list of them.
        said(needs("apps", "deployments", ""), "apps/deployments");
        // Another tenant's namespace is not open to this composition, even if the type has a composition there; the
        // namespace of the bound is.
        assert_eq!(needs("apps", "deployments", "monitoring"), None);
        // A kind that is looked up may not be written for that reason alone.
        said(needs("", "nodes", ""), "krateo.io/allowed-kinds: nodes");
        let all_nodes = Resource::looked_up("", "v1", "nodes", "", "");
        assert_eq!(bound.outside("team", &[all_nodes]), None);
        assert_eq!(asks(Verb::Get, "", "secrets", "team"), None);
        said(
            asks(Verb::Get, "", "services", "other"),
            "krateo.io/allowed-lookups: services@other",
        );
    }
}
