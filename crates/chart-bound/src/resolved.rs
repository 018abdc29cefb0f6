//! Combines a chart's scan and the admin's consent into the upper bound of what its controller may be granted.

use std::collections::BTreeSet;

use api::annotations;
use api::grant::{GrantedKind, Origin};

use crate::allowed::{Allowed, is_protected};
use crate::allowed_definitions::AllowedDefinition;
use crate::bound::{Bound, RBAC};
use crate::grant::{Binding, Rule};
use crate::group_resource::GroupResource;
use crate::kinds::{Kinds, ResourceMapping, guess, is_namespaces, is_ruling, unserved_plural};
use crate::lookups::Allowance;
use crate::scan::{self, Kind, Reads, Scan};

/// A bound, and notes about how it was computed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The bound.
    pub bound: Bound,
    /// Kinds that are not served yet and whose plural is a guess.
    pub guessed: BTreeSet<String>,
    /// What annotations ask for although the platform closes it.
    pub closed: BTreeSet<String>,
    /// Entries of grants that do not count, and why.
    pub void: BTreeSet<String>,
    /// What the scan finds and what nobody consents to: kinds whose objects rule over others, rules and bindings.
    pub needs: BTreeSet<String>,
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
        // Roles and bindings have a consent of their own.
        let is_open = |pair: &GroupResource| {
            if pair.group == RBAC {
                allowed.chart_rbac || !allowed.rbac.is_empty()
            } else {
                allowed.all_kinds || !is_ruling(pair)
            }
        };
        let found: BTreeSet<GroupResource> = bound.namespaced.union(&bound.cluster).cloned().collect();
        bound.namespaced.retain(is_open);
        bound.cluster.retain(is_open);
        bound.chart_rbac = allowed.chart_rbac;
        if allowed.chart_rbac {
            bound.chart_rules.clone_from(&scan.rules);
            bound.chart_cluster_rules.clone_from(&scan.cluster_rules);
            if let Some(roles) = &allowed.roles {
                bound.chart_rules.retain(|line| roles.rules.contains(line));
                bound
                    .chart_cluster_rules
                    .retain(|line| roles.cluster_rules.contains(line));
            }
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
        bound.from_values.extend(allowed.kinds.iter().cloned());
        for granted in &allowed.granted_kinds {
            resolved.add_granted(granted, scan, kinds);
        }
        let bound = &mut resolved.bound;
        let is_ours =
            |name: &&String| !is_protected(name, krateo_namespace) && !allowed.closed.contains(*name);
        let created = scan.created_namespaces.iter().filter(is_ours);
        bound.created_namespaces = created.cloned().collect();
        bound.rbac.clone_from(&allowed.rbac);
        bound.placed.clone_from(&allowed.placed);
        let is_reached = |namespace: &str| !allowed.closed.contains(namespace);
        bound
            .rbac
            .bindings
            .retain(|binding| binding.namespace().is_none_or(is_reached));
        bound.placed.retain(|placed| is_reached(&placed.namespace));
        resolved.void.clone_from(&allowed.void);
        let literal = scan
            .namespaces
            .iter()
            .filter(|name| !is_protected(name, krateo_namespace));
        let is_closed = |name: &&String| allowed.closed.contains(*name);
        let (closed, open): (Vec<_>, Vec<_>) = literal.chain(&allowed.namespaces).partition(is_closed);
        bound.namespaces.extend(open.into_iter().cloned());
        let opened = allowed
            .namespaces
            .iter()
            .filter(|name| bound.namespaces.contains(*name));
        bound.opened = opened.cloned().collect();
        // No controller consents.
        let is_no_consent = |pair: &GroupResource| pair.group != api::GRANT_GROUP;
        for kinds in [&mut bound.namespaced, &mut bound.cluster, &mut bound.from_values] {
            kinds.retain(is_no_consent);
        }
        resolved.needs = needed_kinds(bound, &found)
            .chain(needed_rbac(bound, allowed, scan))
            .collect();
        resolved.closed = stay_closed(&closed, &closed_lookups);
        resolved
    }

    /// A kind that a grant names. Roles and bindings are granted by their rules and subjects instead.
    fn add_granted(&mut self, granted: &GrantedKind, scan: &Scan, kinds: &impl Kinds) {
        let GrantedKind { group, kind, from } = granted;
        let kind = Kind {
            api_version: if group.is_empty() {
                "v1".to_owned()
            } else {
                format!("{group}/v1")
            },
            kind: kind.clone(),
        };
        let (pair, namespaced) = self.find(&kind, scan, kinds);
        if pair.group == RBAC {
            return;
        }
        if *from == Origin::Values {
            self.bound.from_values.insert(pair.clone());
        }
        if namespaced {
            self.bound.namespaced.insert(pair);
        } else {
            self.bound.cluster.insert(pair);
        }
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

/// The kinds of a scan that need consent and do not have it. Roles and bindings are told one by one.
fn needed_kinds(bound: &Bound, found: &BTreeSet<GroupResource>) -> impl Iterator<Item = String> {
    let is_needed = |kind: &&GroupResource| {
        is_ruling(kind)
            && kind.group != RBAC
            && !bound.cluster.contains(*kind)
            && !bound.namespaced.contains(*kind)
            && (!is_namespaces(kind) || bound.created_namespaces.is_empty())
    };
    found.iter().filter(is_needed).map(GroupResource::to_string)
}

/// The rules and bindings of a scan that need consent and do not have it.
fn needed_rbac(bound: &Bound, allowed: &Allowed, scan: &Scan) -> impl Iterator<Item = String> {
    let is_granted = |rule: &scan::Rule| {
        let rule = Rule::of_scan(rule);
        let mut granted = bound.rbac.rules.iter();
        granted.any(|granted| rule.may_be_within(granted))
    };
    let rules = [(&scan.role_rules, false), (&scan.cluster_role_rules, true)];
    let lines = rules.into_iter().flat_map(move |(rules, is_of_cluster)| {
        let rules = rules.iter().filter(move |rule| !is_granted(rule));
        rules
            .flat_map(scan::Rule::parts)
            .filter(move |part| !allowed.is_rule_annotated(part, is_of_cluster))
    });
    let lines = lines.flat_map(|rule| rule.lines().into_iter().chain(rule.urls));
    let is_bound = |binding: &Binding| {
        let mut granted = bound.rbac.bindings.iter();
        granted.any(|granted| binding.may_be(granted))
    };
    let bindings = scan.bindings.iter().filter(move |binding| {
        !allowed.is_binding_annotated(binding, &bound.namespaces) && !is_bound(&Binding::of_scan(binding))
    });
    lines.chain(bindings.map(|binding| format!("{} {}", binding.kind(), binding.name)))
}

/// What is asked for and stays closed.
fn stay_closed(namespaces: &[&String], lookups: &BTreeSet<Allowance>) -> BTreeSet<String> {
    namespaces
        .iter()
        .map(|name| format!("namespace {name} stays closed: the platform closes it to all definitions"))
        .chain(lookups.iter().map(|entry| {
            format!(
                "{}: {entry} is not allowed: the platform closes that namespace to all definitions",
                annotations::ALLOWED_LOOKUPS
            )
        }))
        .collect()
}
