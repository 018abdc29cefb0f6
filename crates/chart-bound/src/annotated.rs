//! Which of a chart's own roles and bindings the annotation `krateo.io/allow-chart-rbac` allows. The policies of a
//! controller say the same (`charts/core-provider/assets/cdc-bound/grants-policy.yaml`).

use std::collections::BTreeSet;

use crate::allowed::Allowed;
use crate::scan::{Binding, NAMESPACE, Name, Rule};

/// Verbs and groups that only a grant allows, and roles that only a grant binds.
const VERBS: [&str; 4] = ["*", "bind", "escalate", "impersonate"];
const GROUPS: [&str; 2] = ["*", api::GRANT_GROUP];
const ROLES: [&str; 4] = ["admin", "cluster-admin", "edit", "view"];
const ROLE_PREFIXES: [&str; 2] = ["composition:", "system:"];

impl Allowed {
    /// True when the annotation allows this rule; `is_of_cluster` for one of a `ClusterRole`.
    pub fn is_rule_annotated(&self, rule: &Rule, is_of_cluster: bool) -> bool {
        let recorded = self.roles.as_ref().map(|roles| {
            if is_of_cluster {
                &roles.cluster_rules
            } else {
                &roles.rules
            }
        });
        self.chart_rbac
            && rule.urls.is_empty()
            && !rule.verbs.iter().any(|verb| VERBS.contains(&verb.as_str()))
            && !rule.groups.iter().any(|group| GROUPS.contains(&group.as_str()))
            && !rule.resources.iter().any(|resource| resource.contains('*'))
            && recorded.is_none_or(|lines| rule.lines().iter().all(|line| lines.contains(line)))
    }

    /// True when the annotation allows this binding, if its role is one of the release. A name that depends on values
    /// may be an allowed one. `open` are the namespaces besides the composition's whose accounts may be bound.
    pub fn is_binding_annotated(&self, binding: &Binding, open: &BTreeSet<String>) -> bool {
        let is_of_others =
            |role: &str| ROLES.contains(&role) || ROLE_PREFIXES.iter().any(|prefix| role.starts_with(prefix));
        let holds = |name: &Name, check: &dyn Fn(&str) -> bool| match name {
            Name::Known(name) => check(name),
            Name::Unknown => true,
        };
        let is_open = |name: &str| name == NAMESPACE || open.contains(name);
        self.chart_rbac
            && holds(&binding.role.name, &|role| !is_of_others(role))
            && binding.subjects.iter().all(|subject| {
                holds(&subject.kind, &|kind| kind == "ServiceAccount")
                    && subject
                        .namespace
                        .as_ref()
                        .is_none_or(|name| holds(name, &is_open))
            })
    }
}
