//! The entries of a grant, each with how bad it is and what it lets happen.

use std::collections::BTreeSet;

use chart_bound::scan::{Binding, Kind, NAMESPACE, Name, Rule, Scan};
use chart_bound::{BuiltIn, GroupResource, guess, is_protected, is_ruling};
use serde_json::{Map, Value, json};

pub(super) use super::danger::{Danger, of_kind};
use super::danger::{of_binding, of_rule};

/// An entry of the grant, and what it lets happen.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) danger: Danger,
    pub(super) why: String,
    pub(super) value: Value,
    /// The template and the line, where values decide about a part of it.
    pub(super) at: Option<String>,
    /// False if the chart can render it, and does not with the values at hand.
    pub(super) is_rendered: bool,
}

impl Entry {
    pub(super) fn new(danger: Danger, why: impl Into<String>, value: Value) -> Self {
        Self {
            danger,
            why: why.into(),
            value,
            at: None,
            is_rendered: true,
        }
    }
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
        entries.push(of_chart(danger, &pair, kind, why));
    }
    entries
}

/// Kinds that were rendered and that the scan does not find.
pub(super) fn unscanned<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> Vec<Entry> {
    let entry = |kind: &Kind| {
        let (pair, _) = guess(&BuiltIn, kind.group(), &kind.kind);
        let (danger, why) = if is_ruling(&pair) {
            of_kind(&pair)
        } else {
            (Danger::Changes, "the scan of the chart does not find it")
        };
        let why = format!("{why}; write from: Values if your values ask for it, and not those of the chart");
        of_chart(danger, &pair, kind, &why)
    };
    kinds.into_iter().map(entry).collect()
}

fn of_chart(danger: Danger, pair: &GroupResource, kind: &Kind, why: &str) -> Entry {
    Entry::new(
        danger,
        format!("{}: {why}", kind.kind),
        json!({"group": pair.group, "kind": kind.kind, "from": "Chart"}),
    )
}

fn texts(names: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
    names.into_iter().map(|name| name.to_string()).collect()
}

pub(super) fn rules(scan: &Scan, is_rendered: impl Fn(&Rule) -> bool) -> Vec<Entry> {
    let entry = |rule: &Rule| {
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
        Entry {
            at: scan.rule_places.get(rule).cloned(),
            is_rendered: is_rendered(rule),
            ..Entry::new(danger, why, Value::Object(value))
        }
    };
    all_rules(scan).map(entry).collect()
}

pub(super) fn bindings(scan: &Scan, is_rendered: impl Fn(&Binding) -> bool) -> Vec<Entry> {
    let entry = |binding: &Binding| {
        let (danger, why) = of_binding(binding);
        Entry {
            at: scan
                .binding_places
                .get(binding)
                .filter(|_| binding.has_unknown())
                .cloned(),
            is_rendered: is_rendered(binding),
            ..Entry::new(danger, why, value_of(binding))
        }
    };
    scan.bindings.iter().map(entry).collect()
}

fn value_of(binding: &Binding) -> Value {
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
    value
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
    Entry::new(
        danger,
        format!("objects in {name}: {why}"),
        json!({"namespace": name}),
    )
}
