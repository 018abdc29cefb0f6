//! To which parts of a scan an admin consents already, by annotations of the definition or by grants.

use chart_bound::scan::{Binding, Kind, NAMESPACE, Name, Rule, Scan};
use chart_bound::{Allowed, BuiltIn, Resolved, guess};

/// Verbs, groups and roles that the annotation `krateo.io/allow-chart-rbac` never allows; the policies of a controller
/// say the same.
const VERBS: [&str; 4] = ["*", "bind", "escalate", "impersonate"];
const GROUPS: [&str; 2] = ["*", api::GRANT_GROUP];
const ROLES: [&str; 4] = ["admin", "cluster-admin", "edit", "view"];
const ROLE_PREFIXES: [&str; 2] = ["composition:", "system:"];

/// What nobody consents to yet.
pub(super) fn without(scan: &Scan, allowed: &Allowed) -> Scan {
    let mut rest = scan.clone();
    rest.kinds.retain(|kind| {
        let one = Scan {
            kinds: [kind.clone()].into(),
            defined: scan.defined.clone(),
            created_namespaces: scan.created_namespaces.clone(),
            ..Scan::default()
        };
        !is_granted(&one, allowed)
    });
    let is_rule_granted = |rule: &Rule| {
        let one = Scan {
            role_rules: [rule.clone()].into(),
            ..Scan::default()
        };
        is_granted(&one, allowed)
    };
    rest.role_rules
        .retain(|rule| !is_rule_granted(rule) && !is_annotated(rule, allowed, false));
    rest.cluster_role_rules
        .retain(|rule| !is_rule_granted(rule) && !is_annotated(rule, allowed, true));
    rest.bindings.retain(|binding| {
        let one = Scan {
            bindings: [binding.clone()].into(),
            ..Scan::default()
        };
        !is_granted(&one, allowed) && !is_binding_annotated(binding, allowed, scan)
    });
    rest.namespaces.retain(|name| {
        let is_placed = allowed.placed.iter().any(|placed| placed.namespace == *name);
        !is_placed && !allowed.namespaces.contains(name)
    });
    rest
}

/// True when releases may not have objects of this kind, which the scan does not find.
pub(super) fn is_kind_outside(kind: &Kind, scan: &Scan, allowed: &Allowed) -> bool {
    let (pair, _) = guess(&BuiltIn, kind.group(), &kind.kind);
    let bound = Resolved::new(scan, allowed, &BuiltIn, "").bound;
    !bound.namespaced.contains(&pair) && !bound.cluster.contains(&pair)
}

/// True when this scan of a single thing needs nothing else than grants and lists of kinds allow.
fn is_granted(one: &Scan, allowed: &Allowed) -> bool {
    let by_grants = Allowed {
        chart_rbac: false,
        ..allowed.clone()
    };
    Resolved::new(one, &by_grants, &BuiltIn, "").needs.is_empty()
}

/// True when the annotation for roles allows this rule, of a role of the cluster or of a namespace.
pub(super) fn is_annotated(rule: &Rule, allowed: &Allowed, is_of_cluster: bool) -> bool {
    let recorded = allowed.roles.as_ref().map(|roles| {
        if is_of_cluster {
            &roles.cluster_rules
        } else {
            &roles.rules
        }
    });
    allowed.chart_rbac
        && rule.urls.is_empty()
        && !rule.verbs.iter().any(|verb| VERBS.contains(&verb.as_str()))
        && !rule.groups.iter().any(|group| GROUPS.contains(&group.as_str()))
        && !rule.resources.iter().any(|resource| resource.contains('*'))
        && recorded.is_none_or(|lines| rule.lines().iter().all(|line| lines.contains(line)))
}

/// True when the annotation for roles allows this binding, if its role is one of the release. A name that depends on
/// values may be an allowed one.
pub(super) fn is_binding_annotated(binding: &Binding, allowed: &Allowed, scan: &Scan) -> bool {
    let is_of_others =
        |role: &str| ROLES.contains(&role) || ROLE_PREFIXES.iter().any(|prefix| role.starts_with(prefix));
    let is_open = |name: &str| {
        name == NAMESPACE
            || scan.namespaces.contains(name)
            || allowed.namespaces.iter().any(|open| open == name)
    };
    let holds = |name: &Name, check: &dyn Fn(&str) -> bool| match name {
        Name::Known(name) => check(name),
        Name::Unknown => true,
    };
    allowed.chart_rbac
        && holds(&binding.role.name, &|role| !is_of_others(role))
        && binding.subjects.iter().all(|subject| {
            holds(&subject.kind, &|kind| kind == "ServiceAccount")
                && subject
                    .namespace
                    .as_ref()
                    .is_none_or(|name| holds(name, &is_open))
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::definition::AllowedRoles;
    use api::grant::{GrantedKind, Origin};
    use chart_bound::grant::Rbac;
    use chart_bound::scan::{RoleRef, Subject};

    use super::*;

    fn rule(verb: &str, resource: &str) -> Rule {
        let set = |text: &str| BTreeSet::from([text.to_owned()]);
        Rule {
            groups: set(""),
            resources: set(resource),
            verbs: set(verb),
            ..Rule::default()
        }
    }

    fn binding(role: &str, subject: &str) -> Binding {
        Binding {
            name: Name::Known("<release>".into()),
            namespace: Some(Name::Known("<namespace>".into())),
            role: RoleRef {
                kind: Name::Known("Role".into()),
                name: Name::Known(role.into()),
            },
            subjects: [Subject {
                kind: Name::Known(subject.into()),
                name: Name::Known("<release>".into()),
                namespace: None,
            }]
            .into(),
        }
    }

    fn scan() -> Scan {
        Scan {
            kinds: [Kind {
                api_version: "scheduling.k8s.io/v1".into(),
                kind: "PriorityClass".into(),
            }]
            .into(),
            role_rules: [rule("get", "pods"), rule("*", "pods"), rule("bind", "pods")].into(),
            bindings: [
                binding("<release>", "ServiceAccount"),
                binding("<release>", "User"),
                binding("cluster-admin", "ServiceAccount"),
            ]
            .into(),
            namespaces: ["kube-system".to_owned()].into(),
            ..Scan::default()
        }
    }

    #[test]
    fn without_any_consent_everything_is_left() {
        assert_eq!(without(&scan(), &Allowed::default()), scan());
    }

    #[test]
    fn the_annotation_for_roles_leaves_what_it_never_allows() {
        let allowed = Allowed {
            chart_rbac: true,
            ..Allowed::default()
        };
        let rest = without(&scan(), &allowed);
        assert_eq!(rest.role_rules, [rule("*", "pods"), rule("bind", "pods")].into());
        assert_eq!(rest.bindings.len(), 2, "{:?}", rest.bindings);
        assert!(!rest.bindings.contains(&binding("<release>", "ServiceAccount")));
        assert_eq!(rest.kinds, scan().kinds);
        let of_older_version = Allowed {
            roles: Some(AllowedRoles::default()),
            ..allowed
        };
        assert!(
            without(&scan(), &of_older_version)
                .role_rules
                .contains(&rule("get", "pods"))
        );
    }

    #[test]
    fn kinds_namespaces_and_grants_count() {
        let annotated = Allowed {
            kinds: vec!["scheduling.k8s.io/priorityclasses".parse().unwrap()],
            namespaces: vec!["kube-system".into()],
            ..Allowed::default()
        };
        let rest = without(&scan(), &annotated);
        assert!(rest.kinds.is_empty() && rest.namespaces.is_empty(), "{rest:?}");
        assert_eq!(rest.role_rules, scan().role_rules);
        let granted = Allowed {
            granted_kinds: vec![GrantedKind {
                group: "scheduling.k8s.io".into(),
                kind: "PriorityClass".into(),
                from: Origin::Chart,
            }],
            rbac: Rbac {
                rules: [chart_bound::grant::Rule {
                    verbs: ["*".to_owned()].into(),
                    api_groups: [String::new()].into(),
                    resources: ["pods".to_owned()].into(),
                    ..Default::default()
                }]
                .into(),
                ..Rbac::default()
            },
            ..Allowed::default()
        };
        let rest = without(&scan(), &granted);
        assert!(rest.kinds.is_empty(), "{rest:?}");
        assert_eq!(
            rest.role_rules,
            [rule("get", "pods"), rule("bind", "pods")].into()
        );
        assert_eq!(rest.namespaces, scan().namespaces);
    }
}
