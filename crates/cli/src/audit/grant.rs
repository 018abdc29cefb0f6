//! The `ChartGrant` that a chart needs, for review and for Git: `kco audit-rbac --grant` and the other commands that print
//! grants.

mod consented;
mod converted;
mod entries;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use api::definition::ChartSource;
use api::grant::{DefinitionRef, GrantedChart};
use chart_bound::Allowed;
use chart_bound::scan::Scan;
use serde_json::{Value, json};

use self::entries::{Danger, Entry};
use crate::release::args::Format;
use crate::release::output;
use crate::report::out;

pub(crate) use self::converted::Converted;

/// Whom a grant is for.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    /// Name of the grant.
    pub(crate) name: String,
    /// The definition.
    pub(crate) definition: DefinitionRef,
    /// Name and version of the chart, for people.
    pub(crate) title: String,
    /// The chart.
    pub(crate) chart: GrantedChart,
}

impl Granted {
    /// A definition and the chart that it has. Grants are of the cluster, so their name tells the namespace, too.
    pub(crate) fn new(definition: DefinitionRef, chart_name: &str, chart: GrantedChart) -> Self {
        let version = chart.versions.first().map(String::as_str).unwrap_or_default();
        Self {
            name: format!("{}.{}", definition.namespace, definition.name),
            title: format!("{chart_name} {version}"),
            definition,
            chart,
        }
    }
}

/// The chart of a grant for a definition with this `spec.chart`, whose archive has the digest.
pub(crate) fn chart_of(source: &ChartSource, version: &str, digest: Option<&str>) -> GrantedChart {
    // Whoever chooses the authorities could serve another chart, so only the digest counts then.
    let pinned = digest.filter(|_| source.ca_bundle_ref.is_some());
    GrantedChart {
        url: source.url.clone(),
        repo: source.repo.clone().filter(|repo| !repo.is_empty()),
        versions: vec![version.to_owned()],
        digest: source.digest.clone().or_else(|| pinned.map(str::to_owned)),
        plain_http: source.plain_http.filter(|is_set| *is_set),
        insecure_skip_verify_tls: source.insecure_skip_verify_tls.filter(|is_set| *is_set),
    }
}

/// A grant with what each of its entries lets happen, the worst first.
#[derive(Debug)]
pub(crate) struct Grant {
    /// The comment above it.
    intro: String,
    granted: Granted,
    labels: BTreeSet<String>,
    /// What no grant allows.
    impossible: Vec<String>,
    sections: Vec<(&'static str, Vec<Entry>)>,
}

impl Grant {
    /// What a chart needs and nobody consents to yet.
    pub(crate) fn needed(granted: Granted, scan: &Scan, allowed: &Allowed) -> Self {
        let labels = entries::all_rules(scan)
            .flat_map(|rule| &rule.aggregated_to)
            .map(|label| label.split('=').next().unwrap_or_default())
            .filter(|label| !allowed.rbac.labels.contains(*label));
        let aggregations = scan.aggregations.iter().map(|aggregation| {
            let labels: Vec<String> = aggregation
                .labels
                .iter()
                .map(|(label, value)| format!("{label}={value}"))
                .collect();
            let labels = labels.join(", ");
            format!(
                "A role of the chart takes the rules of all roles labelled {labels}: no grant allows that."
            )
        });
        let rest = consented::without(scan, allowed);
        let grant = Self {
            intro: format!(
                "What chart {} needs beyond what every chart may have, the worst first. Grant what you want it to\nhave: each \
                 entry counts as a whole, or not at all.",
                granted.title
            ),
            granted,
            labels: labels.map(str::to_owned).collect(),
            impossible: aggregations.collect(),
            sections: vec![
                ("kinds", entries::kinds(&rest)),
                ("rules", entries::rules(&rest)),
                ("bindings", entries::bindings(&rest)),
                ("namespaces", entries::namespaces(&rest)),
            ],
        };
        grant.sorted()
    }

    fn sorted(mut self) -> Self {
        self.sections.retain(|(_, entries)| !entries.is_empty());
        for (_, entries) in &mut self.sections {
            entries.sort_by_key(|entry| entry.danger);
        }
        self.sections
            .sort_by_key(|(_, entries)| entries.first().map_or(Danger::Reads, |entry| entry.danger));
        self
    }

    /// True when there is nothing to grant.
    pub(crate) fn is_empty(&self) -> bool {
        self.sections.is_empty() && self.labels.is_empty()
    }

    /// Name and version of the chart.
    pub(crate) fn title(&self) -> &str {
        &self.granted.title
    }

    /// How many entries of which sort, and what the worst of them lets happen.
    pub(crate) fn summary(&self) -> String {
        let mut counts: Vec<String> = self
            .sections
            .iter()
            .map(|(section, entries)| format!("{section} {}", entries.len()))
            .collect();
        if !self.labels.is_empty() {
            counts.push(format!("aggregation labels {}", self.labels.len()));
        }
        let worst = self.sections.first().and_then(|(_, entries)| entries.first());
        match worst {
            Some(worst) => format!("{}; the worst {}", counts.join(", "), printable(&worst.why)),
            None => counts.join(", "),
        }
    }

    /// The grant as YAML, with a comment for each entry.
    ///
    /// # Errors
    /// When YAML cannot be written.
    pub(crate) fn yaml(&self) -> Result<String> {
        let Granted {
            name,
            definition,
            title,
            chart,
        } = &self.granted;
        if self.is_empty() {
            return Ok(format!("# {} needs no ChartGrant.\n", printable(title)));
        }
        let mut text = String::new();
        for line in self.intro.lines() {
            let _ = writeln!(text, "# {}", printable(line));
        }
        let _ = write!(
            text,
            "apiVersion: kco.krateo.io/v1alpha1\nkind: ChartGrant\nmetadata:\n  name: {}\nspec:\n  \
             # The CompositionDefinition; it need not exist yet.\n  definition:\n    namespace: {}\n    name: {}\n",
            json!(name),
            json!(definition.namespace),
            json!(definition.name),
        );
        text += &chart_text(chart);
        if !self.labels.is_empty() {
            text += "  # Rules of the chart's roles become part of these roles of the cluster: whoever has those gets them.\n";
            let _ = writeln!(text, "  aggregationLabels: {}", json!(self.labels));
        }
        for impossible in &self.impossible {
            let _ = writeln!(text, "  # {}", printable(impossible));
        }
        for (section, entries) in &self.sections {
            let _ = writeln!(text, "  {section}:");
            for Entry {
                danger: _,
                why,
                value,
            } in entries
            {
                let _ = writeln!(text, "    # {}", printable(why));
                let yaml = helm::yaml::to_string(value).context("could not write YAML")?;
                for (number, line) in yaml.trim_end().lines().enumerate() {
                    text += if number == 0 { "    - " } else { "      " };
                    text += line;
                    text.push('\n');
                }
            }
        }
        Ok(text)
    }

    /// The grant as an object.
    ///
    /// # Errors
    /// When YAML cannot be written.
    pub(crate) fn object(&self) -> Result<Value> {
        helm::yaml::parse_typed(self.yaml()?.as_bytes()).context("could not read the grant")
    }
}

/// The text without characters that would end a comment: it quotes charts.
fn printable(text: &str) -> String {
    text.replace(
        |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
        "\u{fffd}",
    )
}

fn chart_text(chart: &GrantedChart) -> String {
    let GrantedChart {
        url,
        repo,
        versions,
        digest,
        plain_http,
        insecure_skip_verify_tls,
    } = chart;
    let mut text = format!(
        "  chart:\n    # spec.chart.url of the definition.\n    url: {}\n",
        json!(url)
    );
    let fields = [
        ("repo", repo.as_ref().map(|repo| json!(repo))),
        ("versions", (!versions.is_empty()).then(|| json!(versions))),
        ("digest", digest.as_ref().map(|digest| json!(digest))),
        ("plainHTTP", plain_http.map(Value::from)),
        ("insecureSkipVerifyTLS", insecure_skip_verify_tls.map(Value::from)),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            let _ = writeln!(text, "    {field}: {value}");
        }
    }
    text
}

/// Prints grants, as YAML documents with comments or as a list in JSON: both are ready for `kubectl apply`.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn print(format: Format, grants: &[Grant]) -> Result<()> {
    match format {
        Format::Table | Format::Yaml => {
            let texts = grants.iter().map(Grant::yaml).collect::<Result<Vec<_>>>()?;
            if texts.is_empty() {
                return out("# No ChartGrant is needed.\n");
            }
            out(&texts.join("---\n"))
        }
        Format::Json => {
            let items = grants.iter().map(Grant::object).collect::<Result<Vec<_>>>()?;
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            output::print(format, &list, String::new)
        }
    }
}

#[cfg(test)]
mod tests {
    use chart_bound::grant::{Applicant, Consent};
    use chart_bound::scan::{Binding, Kind, NAMESPACE, Name, RoleRef, Rule, Subject};

    use super::*;

    fn set<const N: usize>(items: [&str; N]) -> BTreeSet<String> {
        items.map(str::to_owned).into()
    }

    fn known(name: &str) -> Name {
        Name::Known(name.into())
    }

    fn granted(chart: GrantedChart) -> Granted {
        let definition = DefinitionRef {
            namespace: "web-system".into(),
            name: "web".into(),
        };
        Granted::new(definition, "web", chart)
    }

    fn of_web(scan: &Scan, allowed: &Allowed) -> Grant {
        let chart = GrantedChart {
            url: "oci://r.example/web".into(),
            versions: vec!["1.2.3".into()],
            ..GrantedChart::default()
        };
        Grant::needed(granted(chart), scan, allowed)
    }

    fn told(scan: &Scan) -> String {
        of_web(scan, &Allowed::default()).yaml().unwrap()
    }

    #[test]
    fn a_chart_that_needs_nothing_has_no_grant() {
        assert_eq!(told(&Scan::default()), "# web 1.2.3 needs no ChartGrant.\n");
        let plain = Scan {
            kinds: [Kind {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
            }]
            .into(),
            ..Scan::default()
        };
        assert_eq!(told(&plain), "# web 1.2.3 needs no ChartGrant.\n");
    }

    #[test]
    fn the_grant_of_a_chart_counts_for_it_and_begins_with_the_worst() {
        let rule = |verbs: &[&str], resources: &[&str], names: Option<&[&str]>| Rule {
            groups: set([""]),
            resources: resources.iter().map(|text| (*text).to_owned()).collect(),
            verbs: verbs.iter().map(|text| (*text).to_owned()).collect(),
            names: names.map(|names| names.iter().map(|name| known(name)).collect()),
            ..Rule::default()
        };
        let scan = Scan {
            kinds: [Kind {
                api_version: "scheduling.k8s.io/v1".into(),
                kind: "PriorityClass".into(),
            }]
            .into(),
            role_rules: [
                rule(&["get"], &["configmaps"], Some(&["<release>-config"])),
                rule(&["*"], &["serviceaccounts"], None),
            ]
            .into(),
            bindings: [Binding {
                name: known("<release>-view"),
                namespace: Some(known(NAMESPACE)),
                role: RoleRef {
                    kind: known("ClusterRole"),
                    name: known("view"),
                },
                subjects: [Subject {
                    kind: known("ServiceAccount"),
                    name: known("<release>"),
                    namespace: Some(known(NAMESPACE)),
                }]
                .into(),
            }]
            .into(),
            ..Scan::default()
        };
        let text = told(&scan);
        let at = |part: &str| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} is missing: {text}"))
        };
        assert!(at("rules:") < at("kinds:"), "{text}");
        assert!(
            at("acts with, the rights of others") < at("reads these objects"),
            "{text}"
        );
        let object = helm::yaml::parse_typed(text.as_bytes()).unwrap();
        let grant: api::ChartGrant = serde_json::from_value(object).unwrap();
        let source = api::definition::ChartSource {
            url: "oci://r.example/web".into(),
            ..Default::default()
        };
        let consent = Consent::of(
            [&grant],
            Applicant {
                namespace: "web-system",
                name: "web",
                source: &source,
                version: "1.2.3",
                digest: "",
            },
        );
        assert!(consent.void.is_empty(), "{:?}", consent.void);
        assert_eq!(
            (
                consent.rbac.rules.len(),
                consent.rbac.bindings.len(),
                consent.kinds.len()
            ),
            (2, 1, 1)
        );
    }

    #[test]
    fn what_values_decide_is_marked() {
        let scan = Scan {
            role_rules: [Rule {
                groups: set([""]),
                resources: set(["secrets"]),
                verbs: set(["get"]),
                names: Some([Name::Unknown].into()),
                ..Rule::default()
            }]
            .into(),
            ..Scan::default()
        };
        let text = told(&scan);
        assert!(text.contains("replace ? by what you set"), "{text}");
    }

    #[test]
    fn a_chart_cannot_end_a_comment() {
        let scan = Scan {
            bindings: [Binding {
                name: known("a"),
                namespace: None,
                role: RoleRef {
                    kind: known("ClusterRole"),
                    name: known("view\n  rules:\n  - {verbs: ['*'], apiGroups: ['*'], resources: ['*']}"),
                },
                subjects: BTreeSet::new(),
            }]
            .into(),
            ..Scan::default()
        };
        let text = told(&scan);
        let object: Value = helm::yaml::parse_typed(text.as_bytes()).unwrap();
        assert_eq!(object["spec"].get("rules"), None, "{text}");
        assert_eq!(
            object["spec"]["bindings"].as_array().map(Vec::len),
            Some(1),
            "{text}"
        );
    }

    #[test]
    fn own_authorities_pin_the_digest_and_flags_that_are_off_are_left_out() {
        let mut source = ChartSource {
            plain_http: Some(false),
            ..ChartSource::default()
        };
        let plain = chart_of(&source, "1.2.3", Some("sha256:a"));
        assert_eq!((plain.digest, plain.plain_http), (None, None));
        source.ca_bundle_ref = Some(api::definition::SecretItemRef {
            name: "ca".into(),
            namespace: None,
            key: None,
        });
        let pinned = chart_of(&source, "1.2.3", Some("sha256:a"));
        assert_eq!(pinned.digest.as_deref(), Some("sha256:a"));
    }
}
