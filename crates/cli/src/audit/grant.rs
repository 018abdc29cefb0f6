//! The `ChartGrant` that a chart needs, for review and for Git: `kco audit-rbac --grant` and the other commands that print
//! grants.

mod consented;
mod converted;
mod danger;
mod entries;
mod fit;
mod rendered;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use api::definition::ChartSource;
use api::grant::{ChartGrant, DefinitionRef, GrantedChart};
use chart_bound::Allowed;
use chart_bound::grant::{APPROVERS, Applicant, Consent, MAX_TEXT};
use chart_bound::scan::{Rule, Scan};
use serde_json::{Value, json};

use self::entries::{Danger, Entry};
use self::fit::is_too_long;
use crate::release::args::Format;
use crate::release::output;
use crate::report::{out, warn};

pub(crate) use self::converted::Converted;
pub(crate) use self::rendered::Rendering;

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
    /// What is a guess, which people have to replace.
    pub(crate) guessed: Guessed,
}

/// What of a grant is a guess.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Guessed {
    /// Namespace and name of the definition.
    pub(crate) definition: bool,
    /// The address of the chart.
    pub(crate) url: bool,
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
            guessed: Guessed::default(),
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
    /// Why the chart was not rendered.
    refused: Option<String>,
    granted: Granted,
    labels: BTreeSet<String>,
    /// What no grant allows, and what has to be said besides.
    impossible: Vec<String>,
    sections: Vec<(&'static str, Vec<Entry>)>,
    /// Entries that cannot be granted as they are.
    left_out: Vec<LeftOut>,
}

/// An entry that cannot be granted as it is.
#[derive(Debug)]
struct LeftOut {
    section: &'static str,
    entry: Entry,
    why: String,
}

/// One `ChartGrant`: as much of a grant as fits.
struct Part<'g> {
    labels: Vec<&'g String>,
    sections: Vec<(&'static str, &'g [Entry])>,
}

impl Grant {
    /// What a chart needs and nobody consents to yet, by its scan and by what it renders.
    pub(crate) fn needed(granted: Granted, scan: &Scan, rendering: &Rendering, allowed: &Allowed) -> Self {
        let nothing = Scan::default();
        let rendered = rendering.found.as_ref().unwrap_or(&nothing);
        let labels = entries::all_rules(scan)
            .chain(entries::all_rules(rendered))
            .flat_map(|rule| &rule.aggregated_to)
            .map(|label| label.split('=').next().unwrap_or_default())
            .filter(|label| !allowed.rbac.labels.contains(*label) && !label.contains('?'));
        let (approvers, labels): (BTreeSet<&str>, BTreeSet<&str>) =
            labels.partition(|label| *label == APPROVERS);
        let approvers = approvers
            .into_iter()
            .map(|label| format!("A role of the chart has the label {label}: no grant allows that."));
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
        let mut wanted = consented::without(rendered, allowed);
        // The annotation for roles may be for lines with unknown names.
        let consented: BTreeSet<&Rule> = entries::all_rules(scan)
            .filter(|rule| !rest.role_rules.contains(rule) && !rest.cluster_role_rules.contains(rule))
            .collect();
        let is_new = |rule: &Rule| !consented.iter().any(|known| rendered::is_within(rule, known));
        wanted.role_rules.retain(is_new);
        wanted.cluster_role_rules.retain(is_new);
        let unscanned = rendered::unscanned(scan, rendered);
        let mut kinds = entries::kinds(&rest);
        kinds.extend(entries::unscanned(
            unscanned.filter(|kind| consented::is_kind_outside(kind, scan, allowed)),
        ));
        let rest = rendered::merged(rest, rendered, &wanted);
        let was_rendered = rendering.found.is_some();
        let grant = Self {
            intro: intro(&granted.title, rendering),
            refused: rendering.refused.clone(),
            granted,
            labels: labels.into_iter().map(str::to_owned).collect(),
            impossible: aggregations.chain(approvers).collect(),
            sections: vec![
                ("kinds", kinds),
                (
                    "rules",
                    entries::rules(&rest, |rule| {
                        !was_rendered || rendered::is_rule_rendered(rule, rendered)
                    }),
                ),
                (
                    "bindings",
                    entries::bindings(&rest, |binding| {
                        !was_rendered || rendered::is_binding_rendered(binding, rendered)
                    }),
                ),
                ("namespaces", entries::namespaces(&rest)),
            ],
            left_out: Vec::new(),
        };
        grant.noting_cuts(&rendering.cut).finished()
    }

    /// Says where a name is one that the chart cuts.
    fn noting_cuts(mut self, cut: &BTreeSet<String>) -> Self {
        for entry in self.sections.iter_mut().flat_map(|(_, entries)| entries) {
            let text = entry.value.to_string();
            if cut.iter().any(|name| text.contains(&json!(name).to_string())) {
                entry.why += ". The chart cuts a long name in it, which is another one for other names of release and namespace: \
                             write it as kco template prints it for yours";
            }
        }
        self
    }

    /// Each entry once, the worst first, and without those that cannot be granted.
    fn finished(mut self) -> Self {
        for (section, entries) in &mut self.sections {
            entries.sort_by_key(|entry| (entry.danger, !entry.is_rendered));
            let mut seen = BTreeSet::new();
            entries.retain(|entry| seen.insert(entry.value.to_string()));
            let refused = entries.extract_if(.., |entry| fit::refusal(section, &entry.value).is_some());
            let left_out = refused.map(|entry| LeftOut {
                section,
                why: fit::refusal(section, &entry.value).unwrap_or_default(),
                entry,
            });
            self.left_out.extend(left_out);
        }
        if self.is_too_long() {
            for (section, entries) in &mut self.sections {
                let left_out = entries.extract_if(.., |entry| !entry.is_rendered).map(|entry| LeftOut {
                    section,
                    entry,
                    why: format!("it is not rendered with these values, and all together are longer than {MAX_TEXT} bytes"),
                });
                self.left_out.extend(left_out);
            }
        }
        if self.is_too_long() {
            self.impossible.push(format!(
                "The rules and bindings are longer than {MAX_TEXT} bytes: take out some, since none of them counts otherwise."
            ));
        }
        self.left_out.sort_by_key(|left_out| left_out.entry.danger);
        self.sections.retain(|(_, entries)| !entries.is_empty());
        self.sections
            .sort_by_key(|(_, entries)| entries.first().map_or(Danger::Reads, |entry| entry.danger));
        self
    }

    /// True when its rules and bindings are so long that none of them would count.
    fn is_too_long(&self) -> bool {
        let has = |section: &str| {
            self.sections
                .iter()
                .any(|(name, entries)| *name == section && !entries.is_empty())
        };
        let GrantedChart {
            url, repo, versions, ..
        } = &self.granted.chart;
        let source = ChartSource {
            url: url.clone(),
            repo: repo.clone(),
            ..ChartSource::default()
        };
        let to = Applicant {
            namespace: &self.granted.definition.namespace,
            name: &self.granted.definition.name,
            source: &source,
            version: versions.first().map(String::as_str).unwrap_or_default(),
            digest: self.granted.chart.digest.as_deref().unwrap_or_default(),
        };
        let Ok(grants) = self.objects() else { return false };
        let grants: Vec<ChartGrant> = grants
            .into_iter()
            .filter_map(|grant| serde_json::from_value(grant).ok())
            .collect();
        let counts = !Consent::of(&grants, to).rbac.is_empty();
        (has("rules") || has("bindings")) && !counts
    }

    /// True when there is nothing to grant, and nothing that cannot be granted either.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_entries() && self.impossible.is_empty() && self.left_out.is_empty()
    }

    /// True when nothing is needed with the values at hand, and only with others something may be.
    pub(crate) fn is_only_possible(&self) -> bool {
        let is_open = |left_out: &LeftOut| left_out.entry.at.is_some();
        !self.has_entries()
            && self.refused.is_none()
            && self.impossible.is_empty()
            && !self.left_out.is_empty()
            && self.left_out.iter().all(is_open)
    }

    fn has_entries(&self) -> bool {
        !self.sections.is_empty() || !self.labels.is_empty()
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
        let others = self.impossible.len() + self.left_out.len();
        if others > 0 {
            counts.push(format!("cannot be printed {others}"));
        }
        let worst = self.sections.first().and_then(|(_, entries)| entries.first());
        match worst {
            Some(worst) => format!("{}; the worst {}", counts.join(", "), printable(&worst.why)),
            None => counts.join(", "),
        }
    }

    /// The grant as YAML, with a comment for each entry; several documents if it has more entries than one grant may have.
    ///
    /// # Errors
    /// When YAML cannot be written.
    pub(crate) fn yaml(&self) -> Result<String> {
        let mut text = String::new();
        if self.has_entries() {
            let parts = self.parts();
            let count = parts.len();
            let mut documents = Vec::new();
            for (number, part) in parts.into_iter().enumerate() {
                let mut document = String::new();
                if number == 0 {
                    comment(&mut document, "", &self.intro);
                    comment(&mut document, "", &self.worst());
                }
                if count > 1 {
                    let _ = writeln!(
                        document,
                        "# Part {} of {count}: together they are the grant.",
                        number + 1
                    );
                }
                documents.push(document + &self.part_text(number, &part)?);
            }
            text += &documents.join("---\n");
        } else if self.is_empty() && self.refused.is_none() {
            let _ = writeln!(text, "# {} needs no ChartGrant.", printable(self.title()));
        } else if self.is_only_possible() {
            let _ = writeln!(
                text,
                "# No grant can be printed for {}: it may need one, but values decide which.",
                printable(self.title())
            );
        } else {
            let _ = writeln!(text, "# No grant can be printed for {}:", printable(self.title()));
            if let Some(why) = &self.refused {
                comment(&mut text, "", &not_rendered(why));
            }
        }
        for impossible in &self.impossible {
            comment(&mut text, "", impossible);
        }
        text += &self.left_out_text();
        Ok(text)
    }

    /// The worst entries of all sections.
    fn worst(&self) -> String {
        let mut found = Vec::new();
        for (section, entries) in &self.sections {
            for entry in entries.iter().filter(|entry| entry.danger == Danger::Cluster) {
                let line = format!("\n  {section}: {}", entry.why);
                if !found.contains(&line) {
                    found.push(line);
                }
            }
        }
        if found.is_empty() {
            return String::new();
        }
        format!("With these, the chart controls the cluster:{}", found.concat())
    }

    /// As many grants as its entries need.
    fn parts(&self) -> Vec<Part<'_>> {
        let labels: Vec<&String> = self.labels.iter().collect();
        let longest = self.sections.iter().map(|(_, entries)| entries.len()).max();
        let count = longest
            .unwrap_or_default()
            .div_ceil(fit::ENTRIES)
            .max(labels.len().div_ceil(fit::LABELS));
        let part = |number: usize| Part {
            labels: labels
                .chunks(fit::LABELS)
                .nth(number)
                .unwrap_or_default()
                .to_vec(),
            sections: self
                .sections
                .iter()
                .filter_map(|(section, entries)| Some((*section, entries.chunks(fit::ENTRIES).nth(number)?)))
                .collect(),
        };
        (0..count).map(part).collect()
    }

    fn part_text(&self, number: usize, part: &Part<'_>) -> Result<String> {
        let Granted {
            name,
            definition,
            title: _,
            chart,
            guessed,
        } = &self.granted;
        let name = match number {
            0 => name.clone(),
            _ => format!("{name}-{}", number + 1),
        };
        let mut text = String::new();
        let replace = if guessed.definition { " # REPLACE" } else { "" };
        let _ = write!(
            text,
            "apiVersion: kco.krateo.io/v1alpha1\nkind: ChartGrant\nmetadata:\n  name: {}\nspec:\n  \
             # The CompositionDefinition; it need not exist yet.\n  definition:\n    namespace: {}{replace}\n    name: {}{replace}\n",
            json!(name),
            json!(definition.namespace),
            json!(definition.name),
        );
        text += &chart_text(chart, *guessed);
        if !part.labels.is_empty() {
            text += "  # Rules of the chart's roles become part of these roles of the cluster: whoever has those gets them.\n";
            let _ = writeln!(text, "  aggregationLabels: {}", json!(part.labels));
        }
        for (section, entries) in &part.sections {
            let _ = writeln!(text, "  {section}:");
            for entry in *entries {
                let note = if entry.is_rendered {
                    ""
                } else {
                    ". Not rendered with these values"
                };
                let _ = writeln!(text, "    # {}{note}", printable(&entry.why));
                let yaml = helm::yaml::to_string(&entry.value).context("could not write YAML")?;
                for (number, line) in yaml.trim_end().lines().enumerate() {
                    text += if number == 0 { "    - " } else { "      " };
                    text += line;
                    text.push('\n');
                }
            }
        }
        Ok(text)
    }

    /// The entries that cannot be granted as they are, as comments.
    fn left_out_text(&self) -> String {
        if self.left_out.is_empty() {
            return String::new();
        }
        let mut text = String::from("# Left out, and why:\n");
        let mut places = BTreeSet::new();
        for left_out in &self.left_out {
            let LeftOut { section, entry, why } = left_out;
            let is_alike = |other: &&LeftOut| {
                other.entry.at.is_some() && other.entry.at == entry.at && other.section == *section
            };
            let at = match &entry.at {
                Some(at) if !places.insert((section, at)) => continue,
                Some(at) => match self.left_out.iter().filter(is_alike).count() {
                    1 => format!(" ({at})"),
                    count => format!(" ({at}, the first of {count} alternatives)"),
                },
                None => String::new(),
            };
            let line = format!("{section}: {}{at}: {why}", entry.why);
            comment(&mut text, "", &printable(&line));
            comment(&mut text, "", &format!("  - {}", entry.value));
        }
        if !places.is_empty() {
            text += "# Render with your values (--values, --set) to see what stands in the place of ?, or replace it yourself.\n";
        }
        text
    }

    /// The grant as objects.
    ///
    /// # Errors
    /// When YAML cannot be written.
    pub(crate) fn objects(&self) -> Result<Vec<Value>> {
        let parts = self.parts();
        let objects = parts.iter().enumerate().map(|(number, part)| {
            let text = self.part_text(number, part)?;
            helm::yaml::parse_typed(text.as_bytes()).context("could not read the grant")
        });
        objects.collect()
    }

    /// What there is to say besides the objects.
    fn notes(&self) -> impl Iterator<Item = String> {
        let left_out = self.left_out.iter().map(|left_out| {
            let LeftOut { section, entry, why } = left_out;
            format!("{section}: {}: {why}", entry.why)
        });
        let notes = self.impossible.iter().cloned().chain(left_out);
        notes.map(|note| format!("{}: {}", printable(self.title()), printable(&note)))
    }
}

/// The comment above what a chart needs.
fn intro(title: &str, rendering: &Rendering) -> String {
    let text = format!(
        "What chart {title} needs beyond what every chart may have. Grant what you want it to have: each entry counts as\na \
         whole, or not at all. The worst come first: sections by their worst entry, and entries within them.\n"
    );
    match rendering {
        Rendering {
            refused: Some(why), ..
        } => text + &not_rendered(why),
        Rendering {
            found: Some(_),
            release: Some(release),
            ..
        } => format!(
            "{text}<release> stands for the name of the release. Names are those of a release that has {release} in its name."
        ),
        Rendering { found: Some(_), .. } => format!(
            "{text}<release> stands for the name of the release. Names are those that the chart renders with these values, for a\n\
             release that is called like the chart, or has its name in its own, and for any other."
        ),
        Rendering { .. } => text.trim_end().to_owned(),
    }
}

fn not_rendered(why: &str) -> String {
    let why: Vec<&str> = why.split_whitespace().collect();
    format!(
        "The chart does not render with these values, so names that it computes are left out: {}\nTry others: --values, --set.",
        why.join(" ")
    )
}

/// Adds a text as comments.
fn comment(text: &mut String, indent: &str, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "{indent}# {}", printable(line));
    }
}

/// The text without characters that would end a comment: it quotes charts.
fn printable(text: &str) -> String {
    text.replace(
        |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'),
        "\u{fffd}",
    )
}

fn chart_text(chart: &GrantedChart, guessed: Guessed) -> String {
    let GrantedChart {
        url,
        repo,
        versions,
        digest,
        plain_http,
        insecure_skip_verify_tls,
    } = chart;
    let replace = if guessed.url { " # REPLACE" } else { "" };
    let mut text = format!(
        "  chart:\n    # spec.chart.url of the definition.\n    url: {}{replace}\n",
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
            let items = grants.iter().map(Grant::objects).collect::<Result<Vec<_>>>()?;
            for note in grants.iter().flat_map(Grant::notes) {
                warn(&note);
            }
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items.concat()});
            output::print(format, &list, String::new)
        }
    }
}

#[cfg(test)]
mod tests {
    use chart_bound::grant::{Applicant, Consent};
    use chart_bound::scan::{Binding, Kind, NAMESPACE, Name, RoleRef, Subject};

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
        Grant::needed(granted(chart), scan, &Rendering::default(), allowed)
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
        assert!(
            text.starts_with("# No grant can be printed for web 1.2.3:"),
            "{text}"
        );
        assert!(
            text.contains("values decide what stands in the place of ?"),
            "{text}"
        );
        assert!(!of_web(&scan, &Allowed::default()).is_empty());
        assert!(of_web(&scan, &Allowed::default()).objects().unwrap().is_empty());
    }

    #[test]
    fn a_chart_cannot_end_a_comment() {
        let binding = |role: &str| Binding {
            name: known("a"),
            namespace: None,
            role: RoleRef {
                kind: known("ClusterRole"),
                name: known(role),
            },
            subjects: [Subject {
                kind: known("ServiceAccount"),
                name: known("a"),
                namespace: None,
            }]
            .into(),
        };
        let scan = Scan {
            bindings: [
                binding("view\n  rules:\n  - {verbs: ['*'], apiGroups: ['*'], resources: ['*']}"),
                binding("view"),
            ]
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

    #[test]
    fn the_label_of_approvers_is_told_and_not_granted() {
        let labels = [
            format!("{APPROVERS}=true"),
            "rbac.authorization.k8s.io/aggregate-to-view=true".to_owned(),
        ];
        let scan = Scan {
            cluster_role_rules: [Rule {
                verbs: set(["get"]),
                groups: set([""]),
                resources: set(["pods"]),
                aggregated_to: labels.into(),
                ..Rule::default()
            }]
            .into(),
            ..Scan::default()
        };
        let text = told(&scan);
        let object: Value = helm::yaml::parse_typed(text.as_bytes()).unwrap();
        assert_eq!(
            object["spec"]["aggregationLabels"],
            json!(["rbac.authorization.k8s.io/aggregate-to-view"]),
            "{text}"
        );
        assert!(
            text.contains(&format!("has the label {APPROVERS}: no grant allows that")),
            "{text}"
        );
    }
}
