//! The entries of a grant, each with how bad it is and what it lets happen.

use std::collections::BTreeSet;

use chart_bound::scan::{Binding, NAMESPACE, Name, Rule, Scan};
use chart_bound::{BuiltIn, GroupResource, guess, is_protected, is_ruling};
use serde_json::{Map, Value, json};

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

/// An entry of the grant, and what it lets happen.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) danger: Danger,
    pub(super) why: String,
    pub(super) value: Value,
}

/// The rules of all roles in a chart.
pub(super) fn all_rules(scan: &Scan) -> impl Iterator<Item = &Rule> {
    scan.role_rules.union(&scan.cluster_role_rules)
}

pub(super) fn kinds(scan: &Scan) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    for kind in &scan.kinds {
        let (pair, _) = guess(&BuiltIn, kind.group(), &kind.kind);
        // Roles and bindings are granted by what they say.
        let is_ours = pair.group != "rbac.authorization.k8s.io";
        let is_created = pair == GroupResource::new("", "namespaces") && !scan.created_namespaces.is_empty();
        if !is_ours || is_created || !is_ruling(&pair) || !seen.insert(pair.clone()) {
            continue;
        }
        let (danger, why) = of_kind(&pair);
        entries.push(Entry {
            danger,
            why: format!("{}: {why}", kind.kind),
            value: json!({"group": pair.group, "kind": kind.kind, "from": "Chart"}),
        });
    }
    entries
}

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
        _ => (
            Danger::Others,
            "decides whose pods run and whose requests are served first",
        ),
    }
}

fn texts(names: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

pub(super) fn rules(scan: &Scan) -> Vec<Entry> {
    let mut entries = Vec::new();
    for rule in all_rules(scan) {
        let (danger, why) = of_rule(rule);
        let mut value = Map::new();
        let mut put = |key: &str, texts: Vec<String>| {
            if !texts.is_empty() {
                value.insert(key.to_owned(), json!(texts));
            }
        };
        put("verbs", texts(&rule.verbs));
        if !rule.resources.is_empty() {
            put("apiGroups", texts(&rule.groups));
        }
        put("resources", texts(&rule.resources));
        put("resourceNames", texts(rule.names.iter().flatten()));
        put("nonResourceURLs", texts(&rule.urls));
        let mut why = why.to_owned();
        if rule.names.iter().flatten().any(|name| *name == Name::Unknown) {
            why += ". A name depends on values: replace ? by what you set, or grant all objects without resourceNames";
        }
        entries.push(Entry {
            danger,
            why,
            value: Value::Object(value),
        });
    }
    entries
}

fn of_rule(rule: &Rule) -> (Danger, &'static str) {
    let is = |set: &BTreeSet<String>, items: &[&str]| items.iter().any(|item| set.contains(*item));
    let in_core = is(&rule.groups, &["", "*"]);
    let in_rbac = is(&rule.groups, &["rbac.authorization.k8s.io", "*"]);
    let reads = is(&rule.verbs, &["get", "list", "watch", "*"]);
    let writes = is(
        &rule.verbs,
        &["create", "update", "patch", "delete", "deletecollection", "*"],
    );
    let has = |kinds: &[&str]| is(&rule.resources, kinds) || rule.resources.contains("*");
    if is(&rule.resources, &["*"]) && is(&rule.verbs, &["*"]) && rule.groups.contains("*") {
        (
            Danger::Cluster,
            "everything: whoever has the role controls the cluster",
        )
    } else if is(&rule.verbs, &["escalate", "bind", "impersonate"])
        || (rule.verbs.contains("*") && (in_rbac && has(&["roles", "clusterroles"])))
        || (rule.verbs.contains("*") && in_core && has(&["serviceaccounts", "users", "groups"]))
        || (writes && in_core && has(&["serviceaccounts/token"]))
    {
        (
            Danger::Cluster,
            "gives itself, or acts with, the rights of others",
        )
    } else if writes && is(&rule.groups, &["kco.krateo.io"]) {
        (Danger::Cluster, "consents to what charts need, in your place")
    } else if writes && is(&rule.groups, &["admissionregistration.k8s.io"]) {
        (
            Danger::Cluster,
            "sees, changes and refuses the writes of everybody in the cluster",
        )
    } else if reads && in_core && has(&["secrets"]) && rule.names.is_none() {
        (
            Danger::Others,
            "reads all Secrets where the role is bound, tokens and passwords of others included",
        )
    } else if is(&rule.verbs, &["*"]) || is(&rule.resources, &["*"]) || is(&rule.groups, &["*"]) {
        (Danger::Others, "a *: also what the cluster learns to serve later")
    } else if writes
        && has(&[
            "pods",
            "pods/exec",
            "deployments",
            "daemonsets",
            "statefulsets",
            "jobs",
            "cronjobs",
            "replicasets",
        ])
    {
        (
            Danger::Others,
            "runs programs as any account of the namespaces where the role is bound",
        )
    } else if writes {
        (Danger::Changes, "changes these objects where the role is bound")
    } else {
        (Danger::Reads, "reads these objects where the role is bound")
    }
}

pub(super) fn bindings(scan: &Scan) -> Vec<Entry> {
    scan.bindings.iter().map(of_binding).collect()
}

fn of_binding(binding: &Binding) -> Entry {
    let Binding {
        name,
        namespace,
        role,
        subjects,
    } = binding;
    let own = |namespace: &Option<Name>| {
        let is_own = |name: &Name| matches!(name, Name::Known(name) if name == NAMESPACE);
        namespace
            .as_ref()
            .filter(|name| !is_own(name))
            .map(ToString::to_string)
    };
    let listed = subjects.iter().map(|subject| {
        let mut listed = json!({"kind": subject.kind.to_string(), "name": subject.name.to_string()});
        if let Some(namespace) = own(&subject.namespace) {
            listed["namespace"] = json!(namespace);
        }
        listed
    });
    let mut value = json!({
        "kind": binding.kind(),
        "name": name.to_string(),
        "roleRef": {"kind": role.kind.to_string(), "name": role.name.to_string()},
        "subjects": listed.collect::<Vec<_>>(),
    });
    if let Some(namespace) = own(namespace) {
        value["namespace"] = json!(namespace);
    }
    let is_wide = matches!(&role.name, Name::Known(name) if ["cluster-admin", "admin", "edit"].contains(&name.as_str()));
    let is_everywhere = namespace.is_none();
    let (danger, reach) = match (is_wide, is_everywhere) {
        (true, true) => (Danger::Cluster, "in the whole cluster"),
        (false, true) => (Danger::Others, "in the whole cluster"),
        (true, false) => (Danger::Others, "in one namespace"),
        (false, false) => (Danger::Changes, "in one namespace"),
    };
    let mut why = format!("gives {} {} {reach}", role.kind, role.name);
    let is_everybody = |name: &Name| matches!(name, Name::Known(name) if name.starts_with("system:"));
    if subjects.iter().any(|subject| is_everybody(&subject.name)) {
        why += ". A subject that begins with system: is never granted: this entry does not count";
    }
    let parts = [name, &role.kind, &role.name].into_iter().chain(
        subjects
            .iter()
            .flat_map(|subject| {
                [
                    Some(&subject.kind),
                    Some(&subject.name),
                    subject.namespace.as_ref(),
                ]
            })
            .flatten(),
    );
    if parts.chain(namespace).any(|name| *name == Name::Unknown) {
        why += ". A part depends on values: replace ? by what you set";
    }
    Entry { danger, why, value }
}

/// Namespaces that the chart names and that only an admin opens.
pub(super) fn namespaces(scan: &Scan) -> Vec<Entry> {
    let protected = scan.namespaces.iter().filter(|name| is_protected(name, ""));
    protected.map(|name| namespace(name)).collect()
}

/// A namespace that is open to everything that releases may have.
pub(super) fn namespace(name: &str) -> Entry {
    let (danger, why) = if is_protected(name, "") {
        (
            Danger::Cluster,
            "a pod there can act as every account of Kubernetes that runs there",
        )
    } else {
        (
            Danger::Others,
            "a pod there can act as every account of that namespace",
        )
    };
    Entry {
        danger,
        why: format!("objects in {name}: {why}"),
        value: json!({"namespace": name}),
    }
}
