//! To which parts of a scan an admin consents already, by annotations of the definition or by grants.

use std::collections::BTreeSet;

use chart_bound::scan::{Kind, Rule, Scan};
use chart_bound::{Allowed, BuiltIn, Resolved, guess};

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
        .retain(|rule| !is_rule_granted(rule) && !allowed.is_rule_annotated(rule, false));
    rest.cluster_role_rules
        .retain(|rule| !is_rule_granted(rule) && !allowed.is_rule_annotated(rule, true));
    let open = open_namespaces(scan, allowed);
    rest.bindings.retain(|binding| {
        let one = Scan {
            bindings: [binding.clone()].into(),
            ..Scan::default()
        };
        !is_granted(&one, allowed) && !allowed.is_binding_annotated(binding, &open)
    });
    rest.namespaces.retain(|name| {
        let is_placed = allowed.placed.iter().any(|placed| placed.namespace == *name);
        !is_placed && !allowed.namespaces.contains(name)
    });
    rest
}

/// The namespaces that are open to releases of the chart, as far as a chart without a cluster tells them.
pub(super) fn open_namespaces(scan: &Scan, allowed: &Allowed) -> BTreeSet<String> {
    Resolved::new(scan, allowed, &BuiltIn, "").bound.namespaces
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

#[cfg(test)]
mod tests {
    use api::definition::AllowedRoles;
    use api::grant::{GrantedKind, Origin};
    use chart_bound::grant::Rbac;
    use chart_bound::scan::{Binding, Name, RoleRef, Subject};

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
