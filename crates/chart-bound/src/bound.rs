//! The most that a controller may ever be granted, and how a release's needs are judged against it.

use std::collections::{BTreeMap, BTreeSet};

use api::inspection::{Resource, Verb};

use crate::allowed_definitions::AllowedDefinition;
use crate::grant::{Binding, Placed, Rbac};
use crate::group_resource::GroupResource;
use crate::kinds::{is_definitions, is_namespaces, is_reserved, is_ruling};
use crate::lookups::{Allowance, Decision, Lookups, Question};
use crate::outside::{Outside, described};
use crate::scan::Reads;

/// The API group of roles and bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// The most that a controller may ever be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Namespaced kinds.
    pub namespaced: BTreeSet<GroupResource>,
    /// Cluster-scoped kinds.
    pub cluster: BTreeSet<GroupResource>,
    /// Namespaces other than those of the compositions.
    pub namespaces: BTreeSet<String>,
    /// Those of them that an admin opened, also for what values ask for.
    pub opened: BTreeSet<String>,
    /// Kinds that text chosen by values may have: in other namespaces than the composition's, and cluster-scoped.
    pub from_values: BTreeSet<GroupResource>,
    /// Names of namespaces that the chart spells out and that its releases may create without further consent.
    pub created_namespaces: BTreeSet<String>,
    /// True when the chart may bring roles and bindings of its own.
    pub chart_rbac: bool,
    /// What Roles in the chart may allow (`verb group/resource`), if it may bring any.
    pub chart_rules: BTreeSet<String>,
    /// What `ClusterRole`s in the chart may allow, if it may bring any.
    pub chart_cluster_rules: BTreeSet<String>,
    /// What grants allow of the chart's own roles and bindings, whole entries.
    pub rbac: Rbac,
    /// Kinds and objects that releases may have in namespaces that are not open otherwise.
    pub placed: BTreeSet<Placed>,
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
    /// True when the chart may bring some roles or bindings of its own.
    pub fn has_rbac(&self) -> bool {
        self.chart_rbac || !self.rbac.is_empty()
    }

    /// The namespaces in which releases may have something, besides those of their compositions.
    pub fn reach(&self) -> BTreeSet<String> {
        let placed = self.placed.iter().map(|placed| placed.namespace.as_str());
        let bound = self.rbac.bindings.iter().filter_map(Binding::namespace);
        let open = self.namespaces.iter().map(String::as_str);
        open.chain(placed).chain(bound).map(str::to_owned).collect()
    }

    /// True when all of the kind, or this very object, may be in a namespace that is not open otherwise.
    fn is_placed(&self, pair: &GroupResource, needed: &Resource) -> bool {
        let is_it = |placed: &Placed| {
            placed.kind == *pair
                && placed.namespace == needed.namespace
                && placed.name.as_ref().is_none_or(|name| *name == needed.name)
        };
        // Which one it may be is decided when it is written.
        let is_binding = pair.group == RBAC && pair.resource == "rolebindings";
        self.placed.iter().any(is_it)
            || (is_binding
                && self
                    .rbac
                    .bindings
                    .iter()
                    .any(|binding| binding.namespace() == Some(&needed.namespace)))
    }

    /// True when it has all kinds and namespaces of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.namespaced.is_subset(&self.namespaced)
            && other.cluster.is_subset(&self.cluster)
            && other.namespaces.is_subset(&self.namespaces)
    }

    /// Adds the kinds and namespaces of `other`. RBAC, lookups and definitions are not taken from `other`, so roles
    /// and bindings are only added where this chart, too, may bring them.
    pub fn add(&mut self, other: &Self) {
        let has_rbac = self.has_rbac();
        let may_come = |pair: &&GroupResource| has_rbac || pair.group != RBAC;
        self.namespaced
            .extend(other.namespaced.iter().filter(may_come).cloned());
        self.cluster
            .extend(other.cluster.iter().filter(may_come).cloned());
        self.namespaces
            .extend(other.namespaces.difference(&self.closed).cloned());
        self.created_namespaces
            .extend(other.created_namespaces.iter().cloned());
    }
}

/// Name of the policy that checks what a controller grants itself; it carries the bound in the annotation
/// `krateo.io/bound`.
pub fn grants_policy(plural: &str, version: &str) -> String {
    format!("{plural}-{version}-grants")
}

/// The verb that a controller needs to write roles in a namespace that has a composition of its type: on the
/// subresource [`PERMISSIONS`] of the type, with the namespace as the name. Nothing is served there: the policies of
/// the controller check whether it is allowed, and core-provider maintains the role that allows it.
pub const GRANT: &str = "grant";

/// See [`GRANT`].
pub const PERMISSIONS: &str = "permissions";

impl Bound {
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
        if is_definitions(&pair) && is_reserved(&needed.name) {
            return Some(Outside::Reserved { object, path });
        }
        if pair.group == RBAC && !self.has_rbac() {
            return Some(Outside::Rbac { object, path });
        }
        let is_in = if needed.namespace.is_empty() {
            self.cluster.contains(&pair)
        } else {
            self.namespaced.contains(&pair)
        };
        let may_be_created = is_namespaces(&pair) && self.created_namespaces.contains(&needed.name);
        if !is_in && !may_be_created {
            return Some(if is_ruling(&pair) {
                Outside::Ruling { object, pair, path }
            } else {
                Outside::Kind { object, pair, path }
            });
        }
        if self.closed.contains(&needed.namespace) {
            return Some(Outside::Closed {
                object,
                namespace: needed.namespace.clone(),
                path,
            });
        }
        if !needed.namespace.is_empty()
            && !self.is_open(home, &needed.namespace)
            && !self.is_placed(&pair, needed)
        {
            return Some(Outside::Namespace {
                object,
                namespace: needed.namespace.clone(),
                path,
            });
        }
        let is_own_place = needed.namespace == home || self.opened.contains(&needed.namespace);
        if needed.from_values && !is_own_place && !self.from_values.contains(&pair) {
            return Some(Outside::FromValues { object, pair, path });
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
