//! How bad it is what an entry of a grant lets happen.

use chart_bound::scan::{Binding, NAMESPACE, Name, Rule};
use chart_bound::{GroupResource, is_protected, ruling_kinds};

/// How bad it is; the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Danger {
    /// Whoever has it controls the cluster.
    Cluster,
    /// It reaches what belongs to others.
    Others,
    /// It changes what belongs to the platform or runs programs.
    Changes,
    /// It reads.
    Reads,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// With any of these, one connects to a subresource.
const CONNECTS: [&str; 5] = ["get", "create", "update", "patch", "delete"];
/// What makes pods.
const WORKLOADS: [(&str, &str); 8] = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
];

pub(super) fn of_kind(kind: &GroupResource) -> (Danger, &'static str) {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("admissionregistration.k8s.io", _) => (
            Danger::Cluster,
            "sees, changes and refuses the writes of everybody in the cluster that it selects, Secrets and pods included",
        ),
        ("apiregistration.k8s.io", _) => (
            Danger::Cluster,
            "answers all requests for an API group in the place of the API server",
        ),
        ("", "persistentvolumes") => (
            Danger::Cluster,
            "gives pods any folder of a node, or any disk: no rule about pods applies to it",
        ),
        ("", "nodes") => (Danger::Cluster, "decides where pods of others run"),
        ("apiextensions.k8s.io", _) => (
            Danger::Others,
            "defines a type for the whole cluster; whoever removes it removes all objects of that type",
        ),
        ("", "namespaces") => (
            Danger::Others,
            "makes namespaces and sets their labels, on which rules about pods and networks depend",
        ),
        ("storage.k8s.io", _) => (
            Danger::Others,
            "decides how volumes of others are made and mounted",
        ),
        ("node.k8s.io", _) => (Danger::Others, "decides with which runtime pods run"),
        (RBAC, _) => (Danger::Others, "gives others the rights that it has itself"),
        _ => (
            Danger::Others,
            "decides whose pods run and whose requests are served first",
        ),
    }
}

/// The worst that a rule lets happen.
pub(super) fn of_rule(rule: &Rule) -> (Danger, String) {
    let of_cluster = of_cluster(rule).map(|why| (Danger::Cluster, why.to_owned()));
    let of_others = of_others(rule).map(|why| (Danger::Others, why.to_owned()));
    let ruling = ruling_kinds()
        .filter(|kind| does(rule, &WRITES) && reaches(rule, &kind.group, &kind.resource))
        .map(|kind| {
            let (danger, why) = of_kind(&kind);
            (danger, format!("writes {kind}: {why}"))
        });
    // The first of the worst.
    let worst = of_cluster
        .chain(of_others)
        .chain(ruling)
        .min_by_key(|(danger, _)| *danger);
    worst.unwrap_or_else(|| {
        let only_reads = rule.verbs.iter().all(|verb| READS.contains(&verb.as_str()));
        let (danger, verb) = if only_reads {
            (Danger::Reads, "reads")
        } else if does(rule, &WRITES) {
            (Danger::Changes, "changes")
        } else {
            (Danger::Changes, "acts on")
        };
        (danger, format!("{verb} these objects where the role is bound"))
    })
}

fn does(rule: &Rule, verbs: &[&str]) -> bool {
    rule.verbs.contains("*") || verbs.iter().any(|verb| rule.verbs.contains(*verb))
}

fn reaches(rule: &Rule, group: &str, resource: &str) -> bool {
    let is_part = || {
        let part = resource.split_once('/');
        part.is_some_and(|(_, part)| rule.resources.contains(&format!("*/{part}")))
    };
    (rule.groups.contains(group) || rule.groups.contains("*"))
        && (rule.resources.contains(resource) || rule.resources.contains("*") || is_part())
}

fn is_any(rule: &Rule, kinds: &[(&str, &str)]) -> bool {
    kinds
        .iter()
        .any(|(group, resource)| reaches(rule, group, resource))
}

/// What controls the cluster.
fn of_cluster(rule: &Rule) -> impl Iterator<Item = &'static str> {
    let writes = does(rule, &WRITES);
    let is_all = rule.groups.contains("*") && rule.resources.contains("*");
    let found = [
        (
            is_all && rule.verbs.contains("*"),
            "everything: whoever has the role controls the cluster",
        ),
        (
            is_all && writes,
            "changes everything: whoever has the role controls the cluster",
        ),
        (
            acts_as_others(rule),
            "gives itself, or acts with, the rights of others",
        ),
        (
            does(rule, &CONNECTS) && is_any(rule, &[("", "nodes/proxy")]),
            "runs commands in every pod of the nodes, as root",
        ),
        (
            signs(rule),
            "issues certificates with which anybody may be whom they name, admins and nodes included",
        ),
        (
            writes && is_any(rule, &[(api::GRANT_GROUP, "chartgrants")]),
            "consents to what charts need, in your place",
        ),
        (
            writes && is_any(rule, &[(api::DEFINITION_GROUP, "compositiondefinitions")]),
            "decides which charts the platform installs and, by annotations, what their controllers may do",
        ),
    ];
    found.into_iter().filter_map(|(is_so, why)| is_so.then_some(why))
}

fn acts_as_others(rule: &Rule) -> bool {
    const OF_OTHERS: [(&str, &str); 5] = [
        (RBAC, "roles"),
        (RBAC, "clusterroles"),
        ("", "serviceaccounts"),
        ("", "users"),
        ("", "groups"),
    ];
    ["escalate", "bind", "impersonate"]
        .iter()
        .any(|verb| rule.verbs.contains(*verb))
        || (rule.verbs.contains("*") && is_any(rule, &OF_OTHERS))
        || (does(rule, &WRITES) && is_any(rule, &[("", "serviceaccounts/token")]))
}

fn signs(rule: &Rule) -> bool {
    const REQUESTS: [(&str, &str); 2] = [
        ("certificates.k8s.io", "certificatesigningrequests/approval"),
        ("certificates.k8s.io", "certificatesigningrequests/status"),
    ];
    (does(rule, &["approve", "sign"]) && is_any(rule, &[("certificates.k8s.io", "signers")]))
        || (does(rule, &WRITES) && is_any(rule, &REQUESTS))
}

/// What reaches others.
fn of_others(rule: &Rule) -> impl Iterator<Item = &'static str> {
    const COMMANDS: [(&str, &str); 3] = [
        ("", "pods/exec"),
        ("", "pods/attach"),
        ("", "pods/ephemeralcontainers"),
    ];
    const PORTS: [(&str, &str); 3] = [
        ("", "pods/portforward"),
        ("", "pods/proxy"),
        ("", "services/proxy"),
    ];
    let (writes, connects) = (does(rule, &WRITES), does(rule, &CONNECTS));
    let found = [
        (
            does(rule, &READS) && rule.names.is_none() && is_any(rule, &[("", "secrets")]),
            "reads all Secrets where the role is bound, tokens and passwords of others included",
        ),
        (
            does(rule, &["create"]) && is_any(rule, &[("", "secrets")]),
            "makes Secrets, also such as hold a token of any account of the namespaces where the role is bound",
        ),
        (
            rule.verbs.contains("approve")
                && (rule.groups.contains(api::COMPOSITION_GROUP)
                    || rule.groups.contains(api::DEFINITION_GROUP)),
            "approves, in the place of people, what waits for them",
        ),
        (
            connects && is_any(rule, &COMMANDS),
            "runs commands in the pods of others, as their accounts, where the role is bound",
        ),
        (
            writes && is_any(rule, &WORKLOADS),
            "runs programs as any account of the namespaces where the role is bound",
        ),
        (
            connects && is_any(rule, &PORTS),
            "reaches the ports of others' pods, whatever rules about networks say",
        ),
        (
            writes && is_any(rule, &[(RBAC, "roles"), (RBAC, "rolebindings")]),
            "gives others the rights that it has itself",
        ),
        (
            writes && (rule.groups.contains(api::COMPOSITION_GROUP) || rule.groups.contains("*")),
            "makes compositions: the platform installs their charts with their values",
        ),
        (
            rule.resources.contains("*") || rule.groups.contains("*"),
            "a *: also what the cluster learns to serve later",
        ),
        (
            rule.verbs.contains("*"),
            "a * for the verbs: whatever can be done with these objects, now and later",
        ),
    ];
    found.into_iter().filter_map(|(is_so, why)| is_so.then_some(why))
}

/// What a binding lets happen.
pub(super) fn of_binding(binding: &Binding) -> (Danger, String) {
    let Binding {
        namespace,
        role,
        subjects,
        name: _,
    } = binding;
    // Those of Kubernetes and of the platform have rights that nobody else gets.
    let is_wide = matches!(&role.name, Name::Known(name) if ["cluster-admin", "admin", "edit"].contains(&name.as_str())
        || name.starts_with("system:") || name.contains("core-provider"));
    let (danger, reach) = match namespace {
        None if is_wide => (Danger::Cluster, "in the whole cluster".to_owned()),
        None => (Danger::Others, "in the whole cluster".to_owned()),
        Some(Name::Known(name)) if name == NAMESPACE && !is_wide => {
            (Danger::Changes, "in the composition's namespace".to_owned())
        }
        Some(Name::Known(name)) if name == NAMESPACE => {
            (Danger::Others, "in the composition's namespace".to_owned())
        }
        Some(Name::Known(name)) if is_wide && is_protected(name, "") => {
            (Danger::Cluster, format!("in namespace {name}"))
        }
        Some(name) => (Danger::Others, format!("in namespace {name}")),
    };
    let strangers: Vec<String> = subjects
        .iter()
        .filter(|subject| subject.kind != Name::Known("ServiceAccount".to_owned()))
        .map(|subject| format!("{} {}", subject.kind, subject.name))
        .collect();
    let to = if strangers.is_empty() {
        String::new()
    } else {
        format!(", to {}: no account of the chart", strangers.join(", "))
    };
    (danger, format!("gives {} {} {reach}{to}", role.kind, role.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &str, groups: &str, resources: &str) -> Rule {
        let set = |text: &str| text.split(' ').map(str::to_owned).collect();
        Rule {
            verbs: set(verbs),
            groups: set(groups),
            resources: set(resources),
            ..Rule::default()
        }
    }

    fn check(rule: &Rule, danger: Danger, part: &str) {
        let (found, why) = of_rule(rule);
        assert!(found == danger && why.contains(part), "{rule:?}: {found:?} {why}");
    }

    #[test]
    fn rules_that_control_the_cluster_are_the_worst() {
        use Danger::Cluster;
        check(&rule("get", "", "nodes/proxy"), Cluster, "every pod of the nodes");
        check(
            &rule("get", "", "pods nodes/proxy secrets"),
            Cluster,
            "every pod of the nodes",
        );
        check(
            &rule("approve", "certificates.k8s.io", "signers"),
            Cluster,
            "certificates",
        );
        check(&rule("sign", "*", "*"), Cluster, "certificates");
        check(
            &rule(
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/approval",
            ),
            Cluster,
            "certificates",
        );
        check(
            &rule("patch", "apiregistration.k8s.io", "apiservices"),
            Cluster,
            "writes api",
        );
        check(
            &rule("create", "", "persistentvolumes pods"),
            Cluster,
            "any folder of a node",
        );
        check(&rule("patch", "", "nodes"), Cluster, "writes nodes");
        check(
            &rule("update", "admissionregistration.k8s.io", "*"),
            Cluster,
            "sees, changes and refuses",
        );
        check(
            &rule("patch", "core.krateo.io", "compositiondefinitions"),
            Cluster,
            "which charts",
        );
        check(&rule("create", "kco.krateo.io", "*"), Cluster, "in your place");
        check(&rule("update", "*", "*"), Cluster, "changes everything");
        check(&rule("create", "", "*/token"), Cluster, "");
    }

    #[test]
    fn rules_that_reach_others_come_before_those_that_change_and_those_that_read() {
        use Danger::{Changes, Others, Reads};
        check(
            &rule("create", "", "pods/exec"),
            Others,
            "runs commands in the pods",
        );
        check(
            &rule("get", "", "pods/attach"),
            Others,
            "runs commands in the pods",
        );
        check(
            &rule("patch", "", "pods/ephemeralcontainers"),
            Others,
            "runs commands in the pods",
        );
        check(&rule("create", "", "pods/portforward"), Others, "ports");
        check(&rule("delete", "", "namespaces"), Others, "writes namespaces");
        check(
            &rule("create", "apiextensions.k8s.io", "customresourcedefinitions"),
            Others,
            "defines a type",
        );
        check(
            &rule("create", "scheduling.k8s.io", "priorityclasses"),
            Others,
            "served first",
        );
        check(&rule("create", RBAC, "rolebindings"), Others, "it has itself");
        check(&rule("*", "metallb.io", "addresspools"), Others, "for the verbs");
        check(&rule("get", "custom.metrics.k8s.io", "*"), Others, "a *: also");
        check(&rule("create", "", "events"), Changes, "changes");
        check(&rule("use", "policy", "podsecuritypolicies"), Changes, "acts on");
        check(
            &rule("get list", "", "nodes namespaces"),
            Reads,
            "reads these objects",
        );
    }

    #[test]
    fn a_binding_is_as_bad_as_its_role_and_names_who_is_not_of_the_chart() {
        use chart_bound::scan::{RoleRef, Subject};

        let told = |role: &str, kind: &str| {
            let known = |text: &str| Name::Known(text.into());
            of_binding(&Binding {
                name: known("a"),
                namespace: None,
                role: RoleRef {
                    kind: known("ClusterRole"),
                    name: known(role),
                },
                subjects: [Subject {
                    kind: known(kind),
                    name: known("eve"),
                    namespace: None,
                }]
                .into(),
            })
        };
        for role in ["cluster-admin", "system:node", "core-provider"] {
            assert_eq!(told(role, "ServiceAccount").0, Danger::Cluster, "{role}");
        }
        let (danger, why) = told("<release>", "User");
        assert_eq!(danger, Danger::Others);
        assert!(why.ends_with("to User eve: no account of the chart"), "{why}");
    }
}
