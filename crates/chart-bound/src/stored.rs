//! The form in which a bound is kept: the data of a `ConfigMap`, and the annotation of a controller's policy.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::bound::Bound;
use crate::grant::{Placed, Rbac};
use crate::group_resource::GroupResource;
use crate::lookups::{Allowance, Lookups};
use crate::scan::Reads;

/// Keys of the `ConfigMap` that carries a bound. Lists have one entry per line.
mod keys {
    pub(super) const KINDS: &str = "kinds";
    pub(super) const CLUSTER_KINDS: &str = "clusterKinds";
    pub(super) const NAMESPACES: &str = "namespaces";
    pub(super) const OPENED_NAMESPACES: &str = "openedNamespaces";
    pub(super) const FROM_VALUES: &str = "fromValues";
    pub(super) const CREATED_NAMESPACES: &str = "createdNamespaces";
    pub(super) const CHART_RBAC: &str = "chartRbac";
    pub(super) const CHART_RULES: &str = "chartRules";
    pub(super) const CHART_CLUSTER_RULES: &str = "chartClusterRules";
    /// JSON objects.
    pub(super) const GRANTED_RULES: &str = "grantedRules";
    /// JSON objects.
    pub(super) const GRANTED_BINDINGS: &str = "grantedBindings";
    pub(super) const AGGREGATION_LABELS: &str = "aggregationLabels";
    /// `group/resource@namespace`, with or without `/name`
    pub(super) const PLACED: &str = "placed";
    /// `verb group/resource`
    pub(super) const LOOKUPS: &str = "lookups";
    pub(super) const CLUSTER_LOOKUPS: &str = "clusterLookups";
    pub(super) const ALLOWED_LOOKUPS: &str = "allowedLookups";
    /// One entry of the annotation per line, as written there.
    pub(super) const ALLOWED_DEFINITIONS: &str = "allowedDefinitions";
    pub(super) const ONLY_ALLOWED_DEFINITIONS: &str = "onlyAllowedDefinitions";
    pub(super) const CLOSED_NAMESPACES: &str = "closedNamespaces";
}

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
            (
                keys::OPENED_NAMESPACES.to_owned(),
                lines(self.opened.iter().cloned()),
            ),
            (keys::FROM_VALUES.to_owned(), pairs(&self.from_values)),
            (
                keys::CREATED_NAMESPACES.to_owned(),
                lines(self.created_namespaces.iter().cloned()),
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
            (
                keys::GRANTED_RULES.to_owned(),
                lines(self.rbac.rules.iter().map(|rule| json!(rule).to_string())),
            ),
            (
                keys::GRANTED_BINDINGS.to_owned(),
                lines(
                    self.rbac
                        .bindings
                        .iter()
                        .map(|binding| json!(binding).to_string()),
                ),
            ),
            (
                keys::AGGREGATION_LABELS.to_owned(),
                lines(self.rbac.labels.iter().cloned()),
            ),
            (
                keys::PLACED.to_owned(),
                lines(self.placed.iter().map(Placed::key)),
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
            opened: lines(keys::OPENED_NAMESPACES).map(str::to_owned).collect(),
            from_values: pairs(keys::FROM_VALUES),
            created_namespaces: lines(keys::CREATED_NAMESPACES).map(str::to_owned).collect(),
            chart_rbac: is_true(keys::CHART_RBAC),
            chart_rules: lines(keys::CHART_RULES).map(str::to_owned).collect(),
            chart_cluster_rules: lines(keys::CHART_CLUSTER_RULES).map(str::to_owned).collect(),
            rbac: Rbac {
                rules: lines(keys::GRANTED_RULES)
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .collect(),
                bindings: lines(keys::GRANTED_BINDINGS)
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .collect(),
                labels: lines(keys::AGGREGATION_LABELS).map(str::to_owned).collect(),
            },
            placed: lines(keys::PLACED).filter_map(Placed::of_key).collect(),
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
