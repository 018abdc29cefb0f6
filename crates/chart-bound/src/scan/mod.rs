//! Finds everything that a chart can ever touch from its syntax trees: the upper bound of what its controller may be
//! granted.
//!
//! Nothing is rendered. The walk takes every branch: documents of templates and hooks, what helpers print, lookups,
//! subcharts whether enabled or not, definitions in `crds/`. Whatever depends on the user's values is unknown; the
//! place is listed as unresolved, and the chart's defaults are included.

mod charts;
mod document;
mod effects;
mod evaluate;
mod possible;
mod read;
mod roles;
mod steps;
mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;

use api::inspection::Verb;
use gotemplate::ast::Tree;
use gotemplate::set::Set;
use helm::chart::Chart;
use serde_json::Value;

use self::charts::ChartNode;
use self::document::{Finding, Parts};
use self::effects::Defines;
use self::possible::{Alternative, Hole, Possible};
use self::read::Reader;
use self::walk::Walk;

pub use self::roles::{Aggregation, Binding, NAMESPACE, Name, RELEASE, RoleRef, Rule, Subject};

/// The most lines that the rules of all roles in a chart may have, and the most subjects of its bindings.
const MAX_LINES: usize = 10_000;

/// Everything that a chart can touch, as far as its trees show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Kinds of the objects that it can render, hooks and definitions included.
    pub kinds: BTreeSet<Kind>,
    /// Kinds that its own definitions in `crds/` define.
    pub defined: BTreeSet<Defined>,
    /// Kinds that its templates look up, and whether they list all objects of a kind.
    pub lookups: BTreeMap<Kind, Reads>,
    /// The same for texts passed to `tpl`, for example from values.yaml.
    pub text_lookups: BTreeMap<Kind, Reads>,
    /// Namespaces that it names, other than that of the release.
    pub namespaces: BTreeSet<String>,
    /// What the Roles in the chart allow: the lines of [`Rule::lines`].
    pub rules: BTreeSet<String>,
    /// What the `ClusterRole`s in the chart allow.
    pub cluster_rules: BTreeSet<String>,
    /// The rules of the Roles in the chart.
    pub role_rules: BTreeSet<Rule>,
    /// The rules of the `ClusterRole`s in the chart.
    pub cluster_role_rules: BTreeSet<Rule>,
    /// The `ClusterRole`s in the chart that have the rules of others.
    pub aggregations: BTreeSet<Aggregation>,
    /// The bindings in the chart.
    pub bindings: BTreeSet<Binding>,
    /// Names of the Namespaces in the chart, where they are literal.
    pub created_namespaces: BTreeSet<String>,
    /// Where those of its rules are that have an unknown name: `file:line` of the first that is like this.
    pub rule_places: BTreeMap<Rule, String>,
    /// Where its bindings are: `file:line` of the first that is like this.
    pub binding_places: BTreeMap<Binding, String>,
    /// What could not be determined, and where.
    pub unresolved: BTreeSet<Unresolved>,
}

/// A kind in a version of its API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl Kind {
    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}

/// A kind that the chart itself defines.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Defined {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Plural resource name.
    pub plural: String,
    /// True when it is namespaced.
    pub namespaced: bool,
}

/// How a kind is looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Single objects, by name.
    pub one: bool,
    /// All objects of a namespace or of the cluster.
    pub all: bool,
}

impl Reads {
    /// The verbs that this needs.
    pub fn verbs(self) -> impl Iterator<Item = Verb> {
        let one = self.one.then_some(Verb::Get);
        one.into_iter().chain(self.all.then_some(Verb::List))
    }
}

/// A place whose result cannot be determined from the trees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unresolved {
    /// Path of the template, as in `# Source:`.
    pub file: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// What it depends on.
    pub what: String,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Walks through a chart and all its subcharts.
pub fn scan(chart: &Chart) -> Scan {
    let mut scan = Scan::default();
    let (nodes, is_complete) = charts::all(chart);
    if !is_complete {
        let what = format!(
            "it has more subcharts, counted once for each name they are declared under, than the {} that the scan follows",
            charts::MAX_CHARTS
        );
        scan.note(&format!("{}/Chart.yaml", chart.name()), 1, what);
    }
    scan.definitions(chart);
    let (files, defines) = scan.parsed(&nodes);
    let mut walk = Walk::new(&nodes, defines);
    for (path, index, tree) in files {
        let root = Possible::one(Alternative::Root(index));
        let cut = walk.file(&tree, root);
        scan.take(&path, &mut walk);
        if let Some(cut) = cut {
            scan.note(&path, cut.line, cut.why.to_owned());
        }
    }
    scan
}

/// A file that is executed: its path, its chart, its tree.
type Executed = (String, usize, Rc<Tree>);

impl Scan {
    /// The templates that are executed, and all that are called by name. A name may have several templates: which one
    /// is called depends on which subcharts are enabled.
    fn parsed(&mut self, nodes: &[ChartNode<'_>]) -> (Vec<Executed>, Defines) {
        let mut files = Vec::new();
        let mut defines: HashMap<String, Vec<Rc<Tree>>> = HashMap::new();
        let mut known = HashSet::new();
        for (index, node) in nodes.iter().enumerate() {
            let is_library = node.chart.metadata().chart_type == "library";
            for file in node.chart.templates() {
                let path = format!("{}/{}", node.path(), file.name);
                let base = file.name.rsplit('/').next().unwrap_or_default();
                let is_partial = base.starts_with('_');
                let mut set = Set::new("gotpl", helm::functions::all().clone());
                if let Err(error) = set.parse(&path, &file.data) {
                    self.note(&path, 1, format!("it cannot be parsed: {error}"));
                    continue;
                }
                for tree in set.trees() {
                    let name = tree.name.lossy().into_owned();
                    let tree = Rc::new(tree.clone());
                    if name == path && !is_partial && !is_library {
                        files.push((path.clone(), index, tree.clone()));
                    }
                    if known.insert((name.clone(), tree.root.to_string())) {
                        defines.entry(name).or_default().push(tree);
                    }
                }
            }
        }
        files.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let defines = defines
            .into_iter()
            .map(|(name, trees)| (name, trees.into()))
            .collect();
        (files, defines)
    }

    fn take(&mut self, path: &str, walk: &mut Walk<'_>) {
        // NOTES.txt is printed and creates no objects, but its lookups count.
        let is_notes = path.ends_with("NOTES.txt");
        for finding in walk.findings.drain() {
            match finding {
                _ if is_notes => {}
                Finding::Kind { api_version, kind } => {
                    self.kinds.insert(Kind { api_version, kind });
                }
                Finding::Namespace(namespace) => {
                    self.namespaces.insert(namespace);
                }
                Finding::Rules {
                    kind,
                    parts,
                    text,
                    line,
                } => {
                    let mut reader = Reader::new(walk);
                    let labels = parts.map(|parts| reader.labels(&parts.metadata));
                    let rules = reader.rules(&text);
                    let unknown = reader.unknown;
                    for mut rule in rules {
                        rule.aggregated_to.extend(labels.iter().flatten().cloned());
                        self.take_rule(kind.as_deref(), rule, (path, line));
                    }
                    self.note_all(path, line, unknown);
                }
                Finding::Object { kind, parts, line } => {
                    let unknown = self.take_object(&kind, &parts, (path, line), Reader::new(walk));
                    self.note_all(path, line, unknown);
                }
                Finding::Unknown { hole, line } => {
                    let reason = walk.holes.reason(hole).to_owned();
                    self.note_all(path, line, [reason]);
                }
                Finding::Long { line } => {
                    let what = "a line, or a part of a role or binding, is longer than the scan follows";
                    self.note(path, line, what.to_owned());
                }
            }
        }
        for lookup in std::mem::take(&mut walk.lookups) {
            self.take_lookup(path, &lookup, walk);
        }
    }

    /// Rules of a role whose kind comes after them, or is not known, count for both kinds of role.
    fn take_rule(&mut self, kind: Option<&str>, rule: Rule, (path, line): (&str, usize)) {
        let names = rule.names.as_ref().map_or(1, BTreeSet::len);
        let sizes = [rule.verbs.len(), rule.groups.len(), rule.resources.len(), names];
        let lines = sizes.into_iter().fold(1, usize::saturating_mul);
        let known = self.rules.len() + self.cluster_rules.len();
        if lines.saturating_add(known).saturating_add(rule.urls.len()) > MAX_LINES {
            let what = "the chart's roles have more rules than the scan follows";
            self.note(path, line, what.to_owned());
            return;
        }
        if rule.has_unknown() {
            let place = self.rule_places.entry(rule.clone());
            place.or_insert_with(|| format!("{path}:{line}"));
        }
        let lines = rule.lines();
        if kind != Some("ClusterRole") {
            self.rules.extend(lines.iter().cloned());
            self.role_rules.insert(rule.clone());
        }
        if kind != Some("Role") {
            self.cluster_rules.extend(lines);
            self.cluster_role_rules.insert(rule);
        }
    }

    /// Returns what about it is unknown.
    fn take_object(
        &mut self,
        kind: &str,
        parts: &Parts,
        (path, line): (&str, usize),
        mut reader: Reader<'_, '_>,
    ) -> BTreeSet<String> {
        let (names, namespaces) = reader.place(&parts.metadata);
        let literal = namespaces.iter().filter_map(Name::literal);
        self.namespaces.extend(literal.map(str::to_owned));
        match kind {
            "RoleBinding" | "ClusterRoleBinding" => {
                for binding in reader.bindings(kind == "ClusterRoleBinding", parts) {
                    let subjects: usize = self.bindings.iter().map(|known| 1 + known.subjects.len()).sum();
                    if subjects + binding.subjects.len() > MAX_LINES {
                        let what = "the chart has more bindings than the scan follows";
                        reader.unknown.insert(what.to_owned());
                        break;
                    }
                    let place = self.binding_places.entry(binding.clone());
                    place.or_insert_with(|| format!("{path}:{line}"));
                    self.bindings.insert(binding);
                }
            }
            "Namespace" => {
                // A name that is one of several is not the chart's alone.
                let only = names.first().filter(|_| names.len() == 1);
                let literal = only.and_then(Name::literal).map(str::to_owned);
                self.created_namespaces.extend(literal);
            }
            "ClusterRole" => self.aggregations.extend(reader.aggregations(&parts.aggregation)),
            // Of others, only the namespace matters.
            _ => reader.unknown.clear(),
        }
        reader.unknown
    }

    fn note_all(&mut self, path: &str, line: usize, reasons: impl IntoIterator<Item = String>) {
        for reason in reasons {
            self.note(path, line, format!("what is rendered depends on {reason}"));
        }
    }

    fn take_lookup(&mut self, path: &str, lookup: &walk::Lookup, walk: &mut Walk<'_>) {
        let names = walk.texts(&lookup.name);
        let reads = Reads {
            one: names.iter().any(|name| !name.is_empty()),
            all: names
                .iter()
                .any(|name| name.is_empty() || Hole::first_in(name).is_some()),
        };
        for api_version in walk.texts(&lookup.api_version) {
            for kind in walk.texts(&lookup.kind) {
                if let Some(hole) = Hole::first_in(&kind).or_else(|| Hole::first_in(&api_version)) {
                    let what = format!("what is looked up depends on {}", walk.holes.reason(hole));
                    self.note(path, lookup.line, what);
                    continue;
                }
                let of = Kind {
                    api_version: api_version.to_string(),
                    kind: kind.to_string(),
                };
                let lookups = if lookup.in_text {
                    &mut self.text_lookups
                } else {
                    &mut self.lookups
                };
                let known = lookups.entry(of).or_default();
                known.one |= reads.one;
                known.all |= reads.all;
            }
        }
    }

    fn note(&mut self, file: &str, line: usize, what: String) {
        self.unresolved.insert(Unresolved {
            file: file.to_owned(),
            line,
            what,
        });
    }

    /// The kinds that files in `crds/` define, including those of subcharts, and the kinds of those files' objects.
    fn definitions(&mut self, chart: &Chart) {
        for file in chart.crds() {
            let path = format!("{}/{}", chart.name(), file.name);
            for document in helm::manifest::split(&String::from_utf8_lossy(&file.data)) {
                match helm::yaml::parse_typed(document.as_bytes()) {
                    Ok(object) => self.definition(&object),
                    Err(error) => self.note(&path, 1, format!("it cannot be read: {error}")),
                }
            }
        }
    }

    fn definition(&mut self, object: &Value) {
        let text = |at: &str| {
            object
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        if kind.is_empty() {
            return;
        }
        if kind == "CustomResourceDefinition" {
            self.defined.insert(Defined {
                group: text("/spec/group"),
                kind: text("/spec/names/kind"),
                plural: text("/spec/names/plural"),
                namespaced: text("/spec/scope") != "Cluster",
            });
        }
        self.kinds.insert(Kind { api_version, kind });
    }
}
