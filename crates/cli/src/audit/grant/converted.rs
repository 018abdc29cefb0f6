//! The grant that allows what the annotations of a definition allow.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use api::annotations::ALLOWED_KINDS;
use chart_bound::scan::{Binding, Name, Rule, Scan};
use chart_bound::{Allowed, AllowedDefinition, GroupResource, is_ruling};
use serde_json::{Map, Value, json};

use super::entries::{self, Danger, Entry};
use super::rendered::{self, Rendering};
use super::{Grant, Granted, consented};

/// The group of roles and bindings, which are granted by what they say.
const RBAC: &str = "rbac.authorization.k8s.io";

/// A grant in place of annotations, and what it leaves out.
pub(crate) struct Converted {
    /// The grant.
    pub(crate) grant: Grant,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
}

impl Converted {
    /// The grant that allows the same. `own_roles` are the chart's own roles as `kind/name`, `kind_of` tells the kind of a
    /// plural.
    ///
    /// # Errors
    /// When the kind of a plural is unknown.
    pub(crate) fn of(
        granted: Granted,
        scan: &Scan,
        rendering: &Rendering,
        allowed: &Allowed,
        own_roles: &BTreeSet<String>,
        kind_of: impl Fn(&GroupResource) -> Option<String>,
    ) -> Result<Self> {
        let mut left_out = Vec::new();
        let (mut kinds, mut bindings) = (Vec::new(), Vec::new());
        for pair in &allowed.kinds {
            if [RBAC, api::GRANT_GROUP].contains(&pair.group.as_str()) {
                left_out.push(format!("{ALLOWED_KINDS} {pair}: it allows nothing"));
                continue;
            }
            let kind = kind_of(pair).with_context(|| {
                format!(
                    "annotation {ALLOWED_KINDS} lists {pair}, which the cluster does not serve and the chart does not contain, \
                     so its kind is unknown: take it out, or make its type first"
                )
            })?;
            kinds.push(of_kind(pair, &kind));
        }
        let open = consented::open_namespaces(scan, allowed);
        for binding in &scan.bindings {
            match why_not(binding, &open, allowed, own_roles) {
                None => bindings.push(binding.clone()),
                Some(why) if allowed.chart_rbac => left_out.push(format!(
                    "{} {}: the annotation does not allow it: {why}",
                    binding.kind(),
                    binding.name
                )),
                Some(_) => {}
            }
        }
        let kept = Scan {
            role_rules: kept(scan, allowed, false),
            cluster_role_rules: kept(scan, allowed, true),
            bindings: bindings.into_iter().collect(),
            rule_places: scan.rule_places.clone(),
            binding_places: scan.binding_places.clone(),
            ..Scan::default()
        };
        let nothing = Scan::default();
        let rendered = rendering.found.as_ref().unwrap_or(&nothing);
        let kept = rendered::merged(
            kept.clone(),
            rendered,
            &of_kept(rendered, &kept, |binding| {
                why_not(binding, &open, allowed, own_roles).is_none()
            }),
        );
        for definition in allowed
            .definitions
            .iter()
            .filter(|one| !one.annotations.is_empty())
        {
            let AllowedDefinition { namespace, name, .. } = definition;
            left_out.push(format!(
                "what definition {name} in namespace {namespace} may be allowed: kco grant {namespace}/{name} prints it"
            ));
        }
        let lookups = allowed.lookups.iter().map(|lookup| {
            let why = "templates see it, and whoever makes compositions may see what they print";
            Entry::new(Danger::Reads, why, json!(lookup.to_string()))
        });
        let namespaces: BTreeSet<&str> = allowed.namespaces.iter().map(String::as_str).collect();
        let definition = &granted.definition;
        let grant = Grant {
            intro: format!(
                "What the annotations of definition {} in namespace {} allow with chart {}, the worst first. Once it\nis applied, \
                 they can be removed.",
                definition.name, definition.namespace, granted.title
            ),
            refused: rendering.refused.clone(),
            granted,
            labels: BTreeSet::new(),
            impossible: Vec::new(),
            sections: vec![
                ("kinds", kinds),
                ("rules", entries::rules(&kept, |_| true)),
                ("bindings", entries::bindings(&kept, |_| true)),
                (
                    "namespaces",
                    namespaces.into_iter().map(entries::namespace).collect(),
                ),
                ("lookups", lookups.collect()),
                (
                    "definitions",
                    allowed.definitions.iter().map(of_definition).collect(),
                ),
            ],
            left_out: Vec::new(),
        };
        Ok(Self {
            grant: grant.finished(),
            left_out,
        })
    }
}

fn kept(scan: &Scan, allowed: &Allowed, is_of_cluster: bool) -> BTreeSet<Rule> {
    let rules = if is_of_cluster {
        &scan.cluster_role_rules
    } else {
        &scan.role_rules
    };
    let rules = rules
        .iter()
        .filter(|rule| allowed.is_rule_annotated(rule, is_of_cluster));
    rules.cloned().collect()
}

/// What was rendered of what is kept.
fn of_kept(rendered: &Scan, kept: &Scan, is_allowed: impl Fn(&Binding) -> bool) -> Scan {
    let is_kept = |rule: &&Rule| entries::all_rules(kept).any(|kept| rendered::is_within(rule, kept));
    let rules = |rules: &BTreeSet<Rule>| rules.iter().filter(is_kept).cloned().collect();
    let bindings = rendered.bindings.iter().filter(|binding| is_allowed(binding));
    Scan {
        role_rules: rules(&rendered.role_rules),
        cluster_role_rules: rules(&rendered.cluster_role_rules),
        bindings: bindings.cloned().collect(),
        ..Scan::default()
    }
}

/// Why the annotation does not allow a binding; none if it does.
fn why_not(
    binding: &Binding,
    open: &BTreeSet<String>,
    allowed: &Allowed,
    own_roles: &BTreeSet<String>,
) -> Option<&'static str> {
    if !allowed.is_binding_annotated(binding, open) {
        return Some("only accounts of open namespaces get roles, and only those of the chart");
    }
    // A name of the release's is checked by the policies: such a role has to be of the same composition.
    let is_own = match &binding.role.name {
        Name::Known(name) => {
            name.contains('<') || own_roles.contains(&format!("{}/{name}", binding.role.kind))
        }
        Name::Unknown => true,
    };
    (!is_own).then_some("its role is not one that the chart renders with its defaults")
}

fn of_kind(pair: &GroupResource, kind: &str) -> Entry {
    let (danger, why) = if is_ruling(pair) {
        entries::of_kind(pair)
    } else {
        (Danger::Changes, "objects that values ask for, too")
    };
    Entry::new(
        danger,
        format!("{kind}: {why}"),
        json!({"group": pair.group, "kind": kind, "from": "Values"}),
    )
}

fn of_definition(definition: &AllowedDefinition) -> Entry {
    let AllowedDefinition {
        name,
        namespace,
        url,
        version,
        repo,
        digest,
        insecure_skip_verify_tls,
        plain_http,
        kind,
        annotations: _,
    } = definition;
    let mut value = Map::new();
    let texts = [
        ("name", name),
        ("namespace", namespace),
        ("url", url),
        ("version", version),
        ("repo", repo),
        ("digest", digest),
        ("kind", kind),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        value.insert(key.to_owned(), json!(text));
    }
    for (key, is_set) in [
        ("insecureSkipVerifyTLS", insecure_skip_verify_tls),
        ("plainHTTP", plain_http),
    ] {
        if *is_set {
            value.insert(key.to_owned(), true.into());
        }
    }
    Entry::new(
        Danger::Others,
        format!("makes definition {name} in namespace {namespace}, and compositions of it"),
        Value::Object(value),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::definition::{AllowedRoles, ChartSource};
    use api::grant::{ChartGrant, DefinitionRef};
    use chart_bound::grant::{Applicant, Consent};
    use chart_bound::scan::{RoleRef, Subject};
    use chart_bound::{BuiltIn, Resolved};

    use super::*;

    fn binding(name: &str, role: &str) -> Binding {
        let known = |text: &str| Name::Known(text.into());
        Binding {
            name: known(name),
            namespace: Some(known("<namespace>")),
            role: RoleRef {
                kind: known("Role"),
                name: known(role),
            },
            subjects: [Subject {
                kind: known("ServiceAccount"),
                name: known("<release>"),
                namespace: Some(known("<namespace>")),
            }]
            .into(),
        }
    }

    fn rule(verb: &str) -> Rule {
        Rule {
            groups: [String::new()].into(),
            resources: ["pods".to_owned()].into(),
            verbs: [verb.to_owned()].into(),
            ..Rule::default()
        }
    }

    fn scan() -> Scan {
        let mut scan = Scan {
            role_rules: [rule("get"), rule("*")].into(),
            bindings: [
                binding("a", "<release>"),
                binding("b", "own"),
                binding("c", "of-others"),
                binding("d", "cluster-admin"),
            ]
            .into(),
            ..Scan::default()
        };
        scan.rules = scan.role_rules.iter().flat_map(Rule::lines).collect();
        scan
    }

    fn converted(annotations: &[(&str, &str)]) -> Result<Converted> {
        let annotations: BTreeMap<String, String> = annotations
            .iter()
            .map(|(key, value)| (format!("krateo.io/{key}"), (*value).to_owned()))
            .collect();
        of(&Allowed::of(&annotations).unwrap())
    }

    fn of(allowed: &Allowed) -> Result<Converted> {
        let definition = DefinitionRef {
            namespace: "team".into(),
            name: "web".into(),
        };
        let granted = Granted::new(
            definition,
            "web",
            super::super::chart_of(&source(), "1.2.3", None),
        );
        let kind_of = |pair: &GroupResource| match pair.resource.as_str() {
            "priorityclasses" => Some("PriorityClass".to_owned()),
            "jobs" => Some("Job".to_owned()),
            _ => None,
        };
        Converted::of(
            granted,
            &scan(),
            &Rendering::default(),
            allowed,
            &["Role/own".to_owned(), "ClusterRole/of-others".to_owned()].into(),
            kind_of,
        )
    }

    fn source() -> ChartSource {
        ChartSource {
            url: "oci://r.example/web".into(),
            ..ChartSource::default()
        }
    }

    /// The consent that the grant is, as core-provider reads it.
    fn consent(converted: &Converted) -> Consent {
        let grant: ChartGrant = serde_json::from_value(converted.grant.objects().unwrap().remove(0)).unwrap();
        let to = Applicant {
            namespace: "team",
            name: "web",
            source: &source(),
            version: "1.2.3",
            digest: "",
        };
        Consent::of([&grant], to)
    }

    #[test]
    fn a_grant_gives_the_bound_of_the_annotations() {
        let annotations = [
            ("allowed-kinds", "scheduling.k8s.io/priorityclasses,batch/jobs"),
            ("allowed-namespaces", "monitoring, kube-system"),
            (
                "allowed-lookups",
                "apps/deployments,@monitoring,secrets@vault/shared",
            ),
            (
                "allowed-definitions",
                r#"[{"name": "a", "namespace": "b", "url": "oci://r.example/a", "version": "1.0.0", "kind": "A", "plainHTTP": true}]"#,
            ),
        ];
        let converted = converted(&annotations).unwrap();
        assert!(converted.left_out.is_empty(), "{:?}", converted.left_out);
        let consent = consent(&converted);
        assert!(consent.void.is_empty(), "{:?}", consent.void);
        let bound = |allowed: &Allowed| Resolved::new(&scan(), allowed, &BuiltIn, "").bound;
        let keyed = annotations.map(|(key, value)| (format!("krateo.io/{key}"), value.to_owned()));
        let annotated = Allowed::of(&BTreeMap::from(keyed)).unwrap();
        assert_eq!(
            bound(&Allowed::default().and(consent)),
            bound(&annotated),
            "{}",
            converted.grant.yaml().unwrap()
        );
    }

    #[test]
    fn roles_are_those_that_the_annotation_allows() {
        let converted = converted(&[("allow-chart-rbac", "true")]).unwrap();
        let rbac = consent(&converted).rbac;
        let verbs: Vec<_> = rbac.rules.iter().flat_map(|rule| &rule.verbs).collect();
        assert_eq!(verbs, ["get"]);
        let names: BTreeSet<&str> = rbac.bindings.iter().map(|one| one.binding[2].as_str()).collect();
        assert_eq!(names, ["a", "b"].into());
        assert_eq!(converted.left_out.len(), 2, "{:?}", converted.left_out);
        let of_older_version = Allowed {
            chart_rbac: true,
            roles: Some(AllowedRoles::default()),
            ..Allowed::default()
        };
        assert!(consent(&of(&of_older_version).unwrap()).rbac.rules.is_empty());
    }

    #[test]
    fn without_annotations_there_is_nothing_to_convert() {
        let none = converted(&[("allow-chart-rbac", "yes")]).unwrap();
        assert!(
            none.grant.is_empty() && none.left_out.is_empty(),
            "{:?}",
            none.left_out
        );
    }

    #[test]
    fn a_kind_that_nobody_knows_is_an_error_and_one_that_allows_nothing_is_told() {
        let Err(error) = converted(&[("allowed-kinds", "example.org/widgets")]) else {
            panic!("it was converted")
        };
        assert!(error.to_string().contains("lists example.org/widgets"), "{error}");
        let void = converted(&[("allowed-kinds", "kco.krateo.io/chartgrants")]).unwrap();
        assert!(void.grant.is_empty());
        assert_eq!(void.left_out.len(), 1);
    }

    #[test]
    fn the_annotations_of_listed_definitions_are_named() {
        let listed = r#"[{"name": "a", "namespace": "b", "url": "oci://r.example/a", "version": "1.0.0",
            "annotations": {"krateo.io/allow-chart-rbac": "true"}}]"#;
        let converted = converted(&[("allowed-definitions", listed)]).unwrap();
        assert_eq!(consent(&converted).definitions.len(), 1);
        assert!(
            converted.left_out[0].contains("kco grant b/a"),
            "{:?}",
            converted.left_out
        );
    }
}
