//! Compares the roles and bindings of a rendering with what the scan of its chart found.

use std::collections::BTreeSet;
use std::fmt;

use chart_bound::scan::{Binding, NAMESPACE, Name, RELEASE, RoleRef, Scan, Subject};
use helm::engine::Rendered;
use serde_json::Value;

use super::HOME;

/// The name of the release that charts are rendered for.
pub(super) const AUDITED: &str = "audit";

/// The totals over all charts.
#[derive(Default)]
pub(super) struct Counts {
    rules: usize,
    missed_rules: usize,
    /// Rules whose names the scan does not know, so that it takes them for rules without.
    lost_names: usize,
    bindings: usize,
    missed_bindings: usize,
    /// Rules and bindings that the scan does not have, of templates that it lists as unresolved.
    unresolved: usize,
}

impl Counts {
    /// Everything that the scan should have found.
    pub(super) fn missed(&self) -> usize {
        self.missed_rules + self.lost_names + self.missed_bindings
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rules,
            missed_rules,
            lost_names,
            bindings,
            missed_bindings,
            unresolved,
        } = self;
        write!(
            f,
            "{rules} rules, {missed_rules} missed, {lost_names} without their names, {bindings} bindings, \
             {missed_bindings} missed, {unresolved} rules and bindings in unresolved templates"
        )
    }
}

/// What the scan lacks of the rules and bindings of a rendering, as text. A rule counts for each verb and resource, and
/// for each name.
pub(super) fn check(
    rendered: &Rendered,
    scan: &Scan,
    unresolved: &BTreeSet<&str>,
    counts: &mut Counts,
) -> Vec<String> {
    let mut told = Vec::new();
    for (path, object) in super::objects(rendered) {
        let kind = object["kind"].as_str().unwrap_or_default();
        match kind {
            "Role" | "ClusterRole" => {
                for line in lines(&object) {
                    counts.rules += 1;
                    let Some(lack) = lack(kind, &line, scan) else {
                        continue;
                    };
                    told.push(format!("{} {kind} {line} of {path}", lack.word()));
                    match lack {
                        _ if unresolved.contains(path.as_str()) => counts.unresolved += 1,
                        Lack::Rule => counts.missed_rules += 1,
                        Lack::Name => counts.lost_names += 1,
                    }
                }
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                counts.bindings += 1;
                let binding = binding(&object, HOME);
                let is_found = |known: &Binding| covers(known, &binding, AUDITED, HOME);
                if scan.bindings.iter().any(is_found) {
                    continue;
                }
                told.push(format!("missed {kind} {} of {path}", binding.name));
                if unresolved.contains(path.as_str()) {
                    counts.unresolved += 1;
                } else {
                    counts.missed_bindings += 1;
                }
            }
            _ => {}
        }
    }
    told
}

/// What is missing of a rule.
#[derive(Clone, Copy)]
enum Lack {
    Rule,
    Name,
}

impl Lack {
    fn word(self) -> &'static str {
        match self {
            Self::Rule => "missed",
            Self::Name => "missed the name of",
        }
    }
}

fn lack(kind: &str, line: &str, scan: &Scan) -> Option<Lack> {
    let (found, rules) = if kind == "Role" {
        (&scan.rules, &scan.role_rules)
    } else {
        (&scan.cluster_rules, &scan.cluster_role_rules)
    };
    if let Some(url) = line.split_once(" url ") {
        let has =
            |verbs: &BTreeSet<String>, urls: &BTreeSet<String>| verbs.contains(url.0) && urls.contains(url.1);
        let is_known = rules.iter().any(|rule| has(&rule.verbs, &rule.urls));
        return (!is_known).then_some(Lack::Rule);
    }
    let mut words = line.splitn(3, ' ');
    let all = [words.next().unwrap_or_default(), words.next().unwrap_or_default()].join(" ");
    let Some(name) = words.next() else {
        return (!found.contains(&all)).then_some(Lack::Rule);
    };
    let mut with_names = found
        .iter()
        .filter_map(|known| known.strip_prefix(&all)?.strip_prefix(' '));
    if with_names.any(|known| known == "?" || known.replace(RELEASE, AUDITED) == name) {
        return None;
    }
    Some(if found.contains(&all) {
        Lack::Name
    } else {
        Lack::Rule
    })
}

/// The rules of a role: `verb group/resource`, with a name if they have one, and `verb url URL`.
fn lines(role: &Value) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let texts = |key: &str| -> Vec<&str> {
            let all = rule[key].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).collect()
        };
        for verb in texts("verbs") {
            lines.extend(
                texts("nonResourceURLs")
                    .iter()
                    .map(|url| format!("{verb} url {url}")),
            );
            for group in texts("apiGroups") {
                for resource in texts("resources") {
                    let all = format!("{verb} {group}/{resource}");
                    let names = texts("resourceNames");
                    if names.is_empty() {
                        lines.insert(all);
                    } else {
                        lines.extend(names.iter().map(|name| format!("{all} {name}")));
                    }
                }
            }
        }
    }
    lines
}

/// A binding that was rendered for a release in this namespace.
pub(super) fn binding(object: &Value, home: &str) -> Binding {
    let name = |value: &Value| Name::Known(value.as_str().unwrap_or_default().to_owned());
    let given = |value: &Value| value.as_str().map(|text| Name::Known(text.to_owned()));
    let is_of_cluster = object["kind"] == "ClusterRoleBinding";
    let namespace = given(&object["metadata"]["namespace"]).unwrap_or_else(|| Name::Known(home.to_owned()));
    Binding {
        name: name(&object["metadata"]["name"]),
        namespace: (!is_of_cluster).then_some(namespace),
        role: RoleRef {
            kind: name(&object["roleRef"]["kind"]),
            name: name(&object["roleRef"]["name"]),
        },
        subjects: object["subjects"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|subject| Subject {
                kind: name(&subject["kind"]),
                name: name(&subject["name"]),
                namespace: given(&subject["namespace"]),
            })
            .collect(),
    }
}

/// True when a binding that the scan found is one that was rendered for this release.
pub(super) fn covers(found: &Binding, rendered: &Binding, release: &str, home: &str) -> bool {
    let is = |found: &Name, rendered: &Name| match (found, rendered) {
        (Name::Unknown, _) => true,
        (Name::Known(found), Name::Known(rendered)) => {
            found.replace(RELEASE, release).replace(NAMESPACE, home) == *rendered
        }
        (Name::Known(_), Name::Unknown) => false,
    };
    let is_place = |found: &Option<Name>, rendered: &Option<Name>| match (found, rendered) {
        (Some(found), Some(rendered)) => is(found, rendered),
        (None | Some(Name::Unknown), None) => true,
        (None, Some(_)) | (Some(Name::Known(_)), None) => false,
    };
    is(&found.name, &rendered.name)
        && is_place(&found.namespace, &rendered.namespace)
        && is(&found.role.kind, &rendered.role.kind)
        && is(&found.role.name, &rendered.role.name)
        && rendered.subjects.iter().all(|subject| {
            found.subjects.iter().any(|known| {
                is(&known.kind, &subject.kind)
                    && is(&known.name, &subject.name)
                    && (is_place(&known.namespace, &subject.namespace) || known.kind == Name::Unknown)
            })
        })
}

#[cfg(test)]
mod tests {
    use chart_bound::scan::scan;
    use helm::chart::{Chart, File, Limits};
    use helm::engine::{Engine, Operation};
    use serde_json::Map;

    use super::*;

    const TEMPLATE: &str = "kind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: r}\n\
                            rules:\n- {apiGroups: [\"\"], resources: [secrets], resourceNames: [\"{{ .Release.Name }}\"], verbs: [get]}\n\
                            - {apiGroups: [a], resources: [b], verbs: [get, list]}\n- {nonResourceURLs: [/metrics], verbs: [get]}\n---\n\
                            kind: RoleBinding\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: \"{{ .Release.Name }}-b\"}\n\
                            roleRef: {kind: Role, name: r}\nsubjects: [{kind: ServiceAccount, name: x, namespace: \"{{ .Release.Namespace }}\"}]\n";

    #[test]
    fn what_the_scan_lacks_of_a_rendering_is_counted() {
        let files = vec![
            File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
            File::new("templates/t.yaml", TEMPLATE),
        ];
        let chart = Chart::from_files(files, &Limits::default()).unwrap();
        let found = scan(&chart);
        let engine = Engine::new(chart);
        let rendered = super::super::render(&engine, &Map::new(), &found, Operation::Install).unwrap();
        let counted = |scan: &Scan, unresolved: &[&str]| {
            let mut counts = Counts::default();
            let told = check(
                &rendered,
                scan,
                &unresolved.iter().copied().collect(),
                &mut counts,
            );
            (
                counts.missed_rules,
                counts.lost_names,
                counts.missed_bindings,
                counts.unresolved,
                told.len(),
            )
        };
        assert_eq!(counted(&found, &[]), (0, 0, 0, 0, 0));
        let nameless = Scan {
            rules: ["get /secrets", "get a/b"].map(str::to_owned).into(),
            ..found.clone()
        };
        assert_eq!(counted(&nameless, &[]), (1, 1, 0, 0, 2));
        let mut elsewhere = found.clone();
        elsewhere.bindings = found
            .bindings
            .iter()
            .map(|binding| Binding {
                name: Name::Known("b".to_owned()),
                ..binding.clone()
            })
            .collect();
        assert_eq!(counted(&elsewhere, &[]), (0, 0, 1, 0, 1));
        assert_eq!(counted(&Scan::default(), &[]), (4, 0, 1, 0, 5));
        assert_eq!(
            counted(&Scan::default(), &["c/templates/t.yaml"]),
            (0, 0, 0, 5, 5)
        );
    }
}
