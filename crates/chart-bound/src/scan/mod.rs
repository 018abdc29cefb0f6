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
use self::document::{Finding, Rule as FoundRule};
use self::effects::Defines;
use self::possible::{Alternative, Hole, Possible};
use self::walk::Walk;

pub use self::roles::{Aggregation, Binding, NAMESPACE, Name, RELEASE, RoleRef, Rule, Subject};

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
        for finding in std::mem::take(&mut walk.findings) {
            match finding {
                _ if is_notes => {}
                Finding::Kind { api_version, kind } => {
                    self.kinds.insert(Kind { api_version, kind });
                }
                Finding::Namespace(namespace) => {
                    self.namespaces.insert(namespace);
                }
                Finding::Rule { kind, rule } => self.take_rule(kind.as_deref(), &rule),
                Finding::Unknown { hole, line } => {
                    let what = format!("what is rendered depends on {}", walk.holes.reason(hole));
                    self.note(path, line, what);
                }
            }
        }
        for lookup in std::mem::take(&mut walk.lookups) {
            self.take_lookup(path, &lookup, walk);
        }
    }

    /// Rules of a role whose kind comes after them, or is not known, count for both kinds of role.
    fn take_rule(&mut self, kind: Option<&str>, rule: &FoundRule) {
        for verb in &rule.verbs {
            for group in &rule.groups {
                let rights = rule
                    .resources
                    .iter()
                    .map(|resource| format!("{verb} {group}/{resource}"));
                match kind {
                    Some("Role") => self.rules.extend(rights),
                    Some("ClusterRole") => self.cluster_rules.extend(rights),
                    _ => {
                        self.rules.extend(rights.clone());
                        self.cluster_rules.extend(rights);
                    }
                }
            }
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
