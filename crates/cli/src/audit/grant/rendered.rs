//! What a chart renders with given values, in place of what its scan does not know.
//!
//! Names of roles and bindings usually come from helpers that the scan cannot follow to the end. A rendering knows them:
//! the names that stood in for the release and its namespace are put back as `<release>` and `<namespace>`.

use std::collections::BTreeSet;

use anyhow::Result;
use chart_bound::scan::{Binding, Kind, NAMESPACE, Name, RELEASE, Rule, Scan};
use helm::engine::{Engine, Operation};
use serde_json::{Map, Value};

use super::entries::all_rules;
use crate::audit::{self, rbac};

/// The names of a release and of its namespace: two pairs, since a name that is not the same with both is one that
/// somebody cannot grant, such as a hash. They are short, so that no chart cuts them, and no chart is called like that.
const STAND_INS: [(&str, &str); 2] = [("zq7x9k", "zh3w8v"), ("jx5v2w", "jk9z4q")];

/// What a chart renders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rendering {
    /// Its roles, bindings and kinds; none if it was not rendered.
    pub(super) found: Option<Scan>,
    /// Why it could not be rendered.
    pub(super) refused: Option<String>,
    /// What the name of the release has in it.
    pub(super) release: Option<String>,
    /// Names that are as long as a label may be, so that they are probably cut: with other names of the release and its
    /// namespace they are others.
    pub(super) cut: BTreeSet<String>,
}

/// The length to which charts cut names.
const CUT: usize = 63;

impl Rendering {
    /// Renders the chart with these values, for a release whose name has this part. Without one, for a release that is called
    /// like the chart and for one that is not: many charts leave their own name out of names if the release has it.
    pub(crate) fn of(
        engine: &Engine,
        values: &Map<String, Value>,
        scan: &Scan,
        release: Option<&str>,
    ) -> Self {
        let missing = engine.chart().missing_dependencies();
        if !missing.is_empty() {
            return Self {
                refused: Some(format!(
                    "charts that it needs are missing in its charts/ ({}): kco dependency build fetches them",
                    missing.join(", ")
                )),
                ..Self::default()
            };
        }
        let parts = match release {
            Some(release) => vec![format!("-{release}")],
            None => vec![String::new(), format!("-{}", engine.chart().name())],
        };
        let mut found = Scan::default();
        let mut cut = BTreeSet::new();
        for part in parts {
            let render = |(stand_in, namespace): (&str, &str)| {
                let release = format!("{stand_in}{part}");
                one(engine, values, scan, &release, namespace, &mut cut)
            };
            match STAND_INS.map(render) {
                [Ok(first), Ok(second)] => add_common(&mut found, &first, &second),
                [Err(error), _] | [_, Err(error)] => {
                    return Self {
                        refused: Some(format!("{error:#}")),
                        ..Self::default()
                    };
                }
            }
        }
        Self {
            found: Some(found),
            refused: None,
            release: release.map(str::to_owned),
            cut,
        }
    }
}

fn one(
    engine: &Engine,
    values: &Map<String, Value>,
    scan: &Scan,
    release: &str,
    namespace: &str,
    cut: &mut BTreeSet<String>,
) -> Result<Scan> {
    let mut options = audit::options(scan, Operation::Install)?;
    release.clone_into(&mut options.release.name);
    namespace.clone_into(&mut options.release.namespace);
    let rendered = engine.render(values, &options)?;
    let mut found = Scan::default();
    for (_, mut object) in audit::objects(&rendered) {
        put_back(&mut object, release, namespace, cut);
        take(&object, &mut found);
    }
    found.kinds = audit::kinds(&rendered)
        .into_iter()
        .map(|(_, kind)| kind)
        .collect();
    Ok(found)
}

fn put_back(value: &mut Value, release: &str, namespace: &str, cut: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let original = text.replace(release, RELEASE).replace(namespace, NAMESPACE);
            if text.len() == CUT && original != *text {
                cut.insert(original.clone());
            }
            *text = original;
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|item| put_back(item, release, namespace, cut)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|item| put_back(item, release, namespace, cut)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn take(object: &Value, found: &mut Scan) {
    match object["kind"].as_str().unwrap_or_default() {
        "Role" => found.role_rules.extend(rules_of(object)),
        "ClusterRole" => found.cluster_role_rules.extend(rules_of(object)),
        "RoleBinding" | "ClusterRoleBinding" => {
            found.bindings.insert(rbac::binding(object, NAMESPACE));
        }
        kind if kind.ends_with("List") => {
            for item in object["items"].as_array().into_iter().flatten() {
                take(item, found);
            }
        }
        _ => {}
    }
}

fn rules_of(role: &Value) -> Vec<Rule> {
    let labels = role["metadata"]["labels"].as_object().into_iter().flatten();
    let aggregated_to: BTreeSet<String> = labels
        .filter(|(key, _)| key.starts_with("rbac.authorization.k8s.io/"))
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let read = |rule: &Value| {
        let texts = |key: &str| -> BTreeSet<String> {
            let all = rule[key].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let names: BTreeSet<Name> = texts("resourceNames").into_iter().map(Name::Known).collect();
        Rule {
            groups: texts("apiGroups"),
            resources: texts("resources"),
            verbs: texts("verbs"),
            names: (!names.is_empty()).then_some(names),
            urls: texts("nonResourceURLs"),
            aggregated_to: aggregated_to.clone(),
        }
    };
    role["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(read)
        .filter(|rule| !rule.verbs.is_empty())
        .collect()
}

/// Adds what both renderings have.
fn add_common(found: &mut Scan, one: &Scan, other: &Scan) {
    found.kinds.extend(one.kinds.iter().cloned());
    found.role_rules.extend(&one.role_rules & &other.role_rules);
    found
        .cluster_role_rules
        .extend(&one.cluster_role_rules & &other.cluster_role_rules);
    found.bindings.extend(&one.bindings & &other.bindings);
}

/// The `scan` with what was rendered in place of the entries that are not known; `wanted` is what was rendered and what
/// nobody consents to yet.
pub(super) fn merged(scan: Scan, rendered: &Scan, wanted: &Scan) -> Scan {
    let is_open = |rule: &Rule| rule.has_unknown() || super::is_too_long(rule);
    let is_kept_rule = |rule: &Rule| !is_open(rule) || !is_rule_rendered(rule, rendered);
    let mut merged = scan;
    merged.role_rules.retain(is_kept_rule);
    merged.cluster_role_rules.retain(is_kept_rule);
    let known: Vec<Rule> = all_rules(&merged)
        .filter(|rule| !is_open(rule))
        .cloned()
        .collect();
    let is_new = |rule: &&Rule| !known.iter().any(|known| is_within(rule, known));
    merged
        .role_rules
        .extend(wanted.role_rules.iter().filter(is_new).cloned());
    merged
        .cluster_role_rules
        .extend(wanted.cluster_role_rules.iter().filter(is_new).cloned());
    // The scan lists a binding with all names that it may have: those that are rendered stand for them.
    let is_answered = |binding: &Binding| is_binding_rendered(binding, rendered);
    let places: BTreeSet<String> = merged
        .binding_places
        .iter()
        .filter(|(binding, _)| is_answered(binding))
        .map(|(_, place)| place.clone())
        .collect();
    let is_elsewhere = |binding: &Binding| {
        let place = merged.binding_places.get(binding);
        place.is_none_or(|place| !places.contains(place))
    };
    merged.bindings.retain(|binding| {
        if binding.has_unknown() {
            !is_answered(binding) && is_elsewhere(binding)
        } else {
            is_answered(binding) || is_elsewhere(binding)
        }
    });
    merged.bindings.extend(wanted.bindings.iter().cloned());
    merged
}

/// True when a rule of the scan stands for one that was rendered.
pub(super) fn is_rule_rendered(rule: &Rule, rendered: &Scan) -> bool {
    all_rules(rendered).any(|rendered| is_within(rendered, rule))
}

/// True when a binding of the scan stands for one that was rendered.
pub(super) fn is_binding_rendered(binding: &Binding, rendered: &Scan) -> bool {
    rendered
        .bindings
        .iter()
        .any(|rendered| rbac::covers(binding, rendered, RELEASE, NAMESPACE))
}

/// True when everything in a rule is in the other one, whose unknown names may be any.
pub(super) fn is_within(rule: &Rule, other: &Rule) -> bool {
    let are_names_within = match (&rule.names, &other.names) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(names), Some(others)) => others.contains(&Name::Unknown) || names.is_subset(others),
    };
    rule.verbs.is_subset(&other.verbs)
        && rule.groups.is_subset(&other.groups)
        && rule.resources.is_subset(&other.resources)
        && rule.urls.is_subset(&other.urls)
        && are_names_within
}

/// The kinds that were rendered and that the scan does not find.
pub(super) fn unscanned<'k>(scan: &'k Scan, rendered: &'k Scan) -> impl Iterator<Item = &'k Kind> {
    let is_found = |kind: &Kind| {
        scan.kinds
            .iter()
            .any(|found| found.group() == kind.group() && found.kind == kind.kind)
    };
    let mut seen = BTreeSet::new();
    rendered
        .kinds
        .iter()
        .filter(move |kind| !is_found(kind) && seen.insert((kind.group(), &kind.kind)))
        .filter(|kind| kind.group() != "rbac.authorization.k8s.io")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chart_bound::scan::{RoleRef, Subject};

    use super::*;

    fn name(text: &str) -> Name {
        match text {
            "?" => Name::Unknown,
            known => Name::Known(known.into()),
        }
    }

    fn binding(own: &str, role: &str) -> Binding {
        Binding {
            name: name(own),
            namespace: None,
            role: RoleRef {
                kind: name("ClusterRole"),
                name: name(role),
            },
            subjects: [Subject {
                kind: name("ServiceAccount"),
                name: name(role),
                namespace: None,
            }]
            .into(),
        }
    }

    fn rule(names: &[&str]) -> Rule {
        let set = |text: &str| BTreeSet::from([text.to_owned()]);
        Rule {
            groups: set(""),
            resources: set("secrets"),
            verbs: set("get"),
            names: Some(names.iter().map(|text| name(text)).collect()),
            ..Rule::default()
        }
    }

    #[test]
    fn what_is_rendered_stands_for_what_the_scan_does_not_know() {
        let places = [
            (binding("?", "?"), "c/a.yaml:1"),
            (binding("<release>", "?"), "c/a.yaml:1"),
            (binding("<release>", "default"), "c/a.yaml:1"),
            (binding("off", "off"), "c/b.yaml:1"),
            (binding("?", "off"), "c/b.yaml:1"),
        ];
        let places: BTreeMap<Binding, String> = places
            .into_iter()
            .map(|(binding, place)| (binding, place.to_owned()))
            .collect();
        let scan = Scan {
            role_rules: [rule(&["?"]), rule(&["off"])].into(),
            bindings: places.keys().cloned().collect(),
            binding_places: places,
            ..Scan::default()
        };
        let rendered = Scan {
            role_rules: [rule(&["<release>-ca"])].into(),
            bindings: [binding("<release>-c", "<release>-c")].into(),
            ..Scan::default()
        };
        let merged = merged(scan, &rendered, &rendered);
        assert_eq!(
            merged.role_rules,
            [rule(&["<release>-ca"]), rule(&["off"])].into()
        );
        let expected = [
            binding("<release>-c", "<release>-c"),
            binding("off", "off"),
            binding("?", "off"),
        ];
        assert_eq!(merged.bindings, expected.into());
    }

    #[test]
    fn a_name_of_the_length_to_which_charts_cut_is_noted() {
        let mut cut = BTreeSet::new();
        let mut object = Value::from(vec![format!("rel-{}", "a".repeat(59)), "rel-a".to_owned()]);
        put_back(&mut object, "rel", "ns", &mut cut);
        assert_eq!(object[1], "<release>-a");
        assert_eq!(cut, [format!("<release>-{}", "a".repeat(59))].into());
    }
}
