//! Reads the parts of roles and bindings that were kept as YAML, with everything that the holes in them can be.
//!
//! What comes from values is what the chart's defaults say; that it may be something else is noted. A `range` over
//! values reads one element of the defaults at a time, so that no rule has the verbs of one and the resources of another.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::charts;
use super::document::{AGGREGATION_LABELS, Parts};
use super::possible::{Alternative, ChartIndex, Hole, MAX_TEXT, Possible, RELEASE_NAME, RELEASE_NAMESPACE};
use super::roles::{Aggregation, Binding, NAMESPACE, Name, RELEASE, RoleRef, Rule, Subject};
use super::walk::Walk;

/// Steps for reading what all files of a chart say. The largest public charts take some thousand.
pub(super) const STEPS: usize = 200_000;

/// How deeply values may be nested in values.
const MAX_DEPTH: usize = 12;

/// A text that can be more than this is unknown; a binding with more forms has unknown names.
const MAX_FORMS: usize = 32;

/// The key of a value that takes the place of several keys of its map.
type Keys = Vec<String>;

/// Reads what was kept.
pub(super) struct Reader<'w, 'c> {
    walk: &'w mut Walk<'c>,
    /// The element of a list or map in the values that is read at the moment, for each `*` in a path.
    bound: Vec<(ChartIndex, Keys, String)>,
    /// Why something is unknown.
    pub(super) unknown: BTreeSet<String>,
}

/// Everything that a hole can be.
#[derive(Default)]
struct Options {
    known: Vec<Value>,
    is_unknown: bool,
}

/// The texts that something can be: with the name and the namespace of the release, but without other holes.
#[derive(Debug, Default)]
struct Texts {
    known: BTreeSet<String>,
    is_unknown: bool,
}

impl<'w, 'c> Reader<'w, 'c> {
    pub(super) fn new(walk: &'w mut Walk<'c>) -> Self {
        Self {
            walk,
            bound: Vec::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// The rules in the `rules` of a role, or in a part of them.
    pub(super) fn rules(&mut self, text: &str) -> BTreeSet<Rule> {
        let mut rules = BTreeSet::new();
        if let Some(value) = self.yaml(text) {
            for object in self.objects(&value, 0) {
                self.each_element(&object, false, &mut |reader, object| {
                    let object = reader.spliced(object);
                    rules.extend(reader.rule(&object));
                });
            }
        }
        rules
    }

    fn rule(&mut self, object: &Map<String, Value>) -> Option<Rule> {
        let mut words = |key: &str| {
            let texts = object
                .get(key)
                .map(|value| self.list(value, 0))
                .unwrap_or_default();
            if texts.is_unknown {
                self.note(object.get(key));
            }
            let is_word = |text: &String| {
                !text
                    .chars()
                    .any(|c| c.is_whitespace() || c.is_control() || "{}<>?".contains(c))
            };
            let known = texts
                .known
                .into_iter()
                .filter(|text| super::document::is_literal(text));
            known.filter(is_word).collect::<BTreeSet<String>>()
        };
        let rule = Rule {
            groups: words("apiGroups"),
            resources: words("resources"),
            verbs: words("verbs"),
            urls: words("nonResourceURLs"),
            names: None,
            aggregated_to: BTreeSet::new(),
        };
        let names = object.get("resourceNames").and_then(|value| self.names(value));
        let is_for_resources = !rule.groups.is_empty() && !rule.resources.is_empty();
        let is_rule = !rule.verbs.is_empty() && (is_for_resources || !rule.urls.is_empty());
        is_rule.then_some(Rule { names, ..rule })
    }

    /// The names in a list; `None` when it is empty, which stands for all names.
    fn names(&mut self, value: &Value) -> Option<BTreeSet<Name>> {
        let texts = self.list(value, 0);
        if texts.known.is_empty() && self.is_empty(value) {
            return None;
        }
        let mut names = named(&texts);
        if names.is_empty() {
            names.insert(Name::Unknown);
        }
        Some(names)
    }

    /// True for a list without items, also if the values may have some instead.
    fn is_empty(&mut self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items
                .iter()
                .all(|item| only_hole(item).is_some() && self.is_empty(item)),
            Value::String(_) => only_hole(value).is_some_and(|hole| {
                let options = self.options(hole, 0).known;
                options
                    .iter()
                    .any(|option| option.as_array().is_some_and(Vec::is_empty))
            }),
            _ => false,
        }
    }

    /// The labels of a role that decide which roles get its rules.
    pub(super) fn labels(&mut self, metadata: &str) -> BTreeSet<String> {
        let Some(Value::Object(metadata)) = self.yaml(metadata) else {
            return BTreeSet::new();
        };
        let nested = metadata
            .get("labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let labels: Vec<_> = metadata.iter().chain(nested).collect();
        let mut found = BTreeSet::new();
        for (key, value) in labels {
            if !key.starts_with(AGGREGATION_LABELS) {
                continue;
            }
            for key in named(&self.text(key, 0)) {
                let values = named(&self.scalar(value));
                found.extend(values.into_iter().map(|value| format!("{key}={value}")));
            }
        }
        found
    }

    /// What a cluster role aggregates.
    pub(super) fn aggregations(&mut self, text: &str) -> BTreeSet<Aggregation> {
        if text.is_empty() {
            return BTreeSet::new();
        }
        let read = self.yaml(text);
        let Some(Value::Object(rule)) = read else {
            return BTreeSet::from([Aggregation::default()]);
        };
        let selectors = rule.get("clusterRoleSelectors").map(|all| self.objects(all, 0));
        let mut found = BTreeSet::new();
        for selector in selectors.unwrap_or_default() {
            let mut aggregation = Aggregation::default();
            let labels = selector.get("matchLabels").and_then(Value::as_object);
            if selector.contains_key("matchExpressions") || labels.is_none() {
                found.insert(aggregation);
                continue;
            }
            for (key, value) in labels.into_iter().flatten() {
                let mut names = named(&self.scalar(value));
                let first = names.pop_first().filter(|_| names.is_empty());
                aggregation
                    .labels
                    .insert(key.clone(), first.unwrap_or(Name::Unknown));
            }
            found.insert(aggregation);
        }
        found
    }

    /// The names and the namespaces in the metadata of an object.
    pub(super) fn place(&mut self, metadata: &str) -> (BTreeSet<Name>, BTreeSet<Name>) {
        let Some(Value::Object(metadata)) = self.yaml(metadata) else {
            return Default::default();
        };
        let mut names = |key: &str| {
            let value = metadata.get(key).cloned().unwrap_or_default();
            named(&self.scalar(&value))
        };
        (names("name"), names("namespace"))
    }

    /// The forms that a binding can have.
    pub(super) fn bindings(&mut self, is_of_cluster: bool, parts: &Parts) -> BTreeSet<Binding> {
        let map = |reader: &mut Self, text: &str| match reader.yaml(text) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let metadata = map(self, &parts.metadata);
        let role_ref = map(self, &parts.role_ref);
        let unknown_before = std::mem::take(&mut self.unknown);
        let subjects: Vec<_> = match self.yaml(&parts.subjects) {
            Some(value) => self.objects(&value, 0),
            None => Vec::new(),
        };
        let more_subjects = !self.unknown.is_empty();
        self.unknown.extend(unknown_before);
        let mut subject_maps = Vec::new();
        for subject in subjects {
            self.each_element(&subject, true, &mut |reader, subject| {
                let subject = reader.spliced(subject);
                subject_maps.push(reader.resolved_stars(subject));
            });
        }
        let forms = self.forms([&metadata, &role_ref].into_iter().chain(&subject_maps));
        let mut found = BTreeSet::new();
        for form in forms {
            let name = |map: &Map<String, Value>, key: &str| match map.get(key) {
                Some(Value::String(text)) => filled(text, &form),
                Some(Value::Null) | None => Some(Name::Known(String::new())),
                Some(_) => Some(Name::Unknown),
            };
            let given = |map: &Map<String, Value>, key: &str| {
                let name = name(map, key)?;
                Some(if name == Name::Known(String::new()) {
                    Name::Unknown
                } else {
                    name
                })
            };
            let place = |map: &Map<String, Value>| {
                let name = name(map, "namespace")?;
                Some(Some(name).filter(|name| *name != Name::Known(String::new())))
            };
            let binding = || {
                let mut subjects = BTreeSet::new();
                for subject in &subject_maps {
                    subjects.insert(Subject {
                        kind: given(subject, "kind")?,
                        name: given(subject, "name")?,
                        namespace: place(subject)?,
                    });
                }
                if more_subjects {
                    subjects.insert(Subject {
                        kind: Name::Unknown,
                        name: Name::Unknown,
                        namespace: None,
                    });
                }
                let namespace = place(&metadata)?.unwrap_or_else(|| Name::Known(NAMESPACE.to_owned()));
                Some(Binding {
                    name: given(&metadata, "name")?,
                    namespace: (!is_of_cluster).then_some(namespace),
                    role: RoleRef {
                        kind: given(&role_ref, "kind")?,
                        name: given(&role_ref, "name")?,
                    },
                    subjects,
                })
            };
            found.extend(binding());
        }
        found
    }

    /// Each combination of what the holes in some maps can be. The same hole is the same everywhere in one of them.
    fn forms<'m>(
        &mut self,
        maps: impl Iterator<Item = &'m Map<String, Value>>,
    ) -> Vec<BTreeMap<char, Option<String>>> {
        let values = maps.flat_map(Map::values);
        let holes: BTreeSet<char> = values
            .filter_map(Value::as_str)
            .flat_map(str::chars)
            .filter(|&c| Hole::is(c) && c != RELEASE_NAME)
            .collect();
        let mut forms = vec![BTreeMap::new()];
        for hole in holes {
            let texts = self.scalar(&Value::String(hole.to_string()));
            let mut choices: Vec<Option<String>> = texts.known.into_iter().map(Some).collect();
            if choices.len() > 1 {
                choices.retain(|choice| choice.as_deref() != Some(""));
            }
            if texts.is_unknown || choices.is_empty() {
                choices.push(None);
            }
            if forms.len() * choices.len() > MAX_FORMS {
                choices = vec![None];
            }
            self.spend(forms.len() * choices.len());
            forms = forms
                .iter()
                .flat_map(|form| {
                    choices.iter().map(|choice| {
                        let mut form = form.clone();
                        form.insert(hole, choice.clone());
                        form
                    })
                })
                .collect();
        }
        forms
    }

    /// The same map, with scalars for the holes that a `*` is in: those of the element that is read.
    fn resolved_stars(&mut self, mut map: Map<String, Value>) -> Map<String, Value> {
        for value in map.values_mut() {
            let Some(hole) = only_hole(value) else { continue };
            if self.bound.is_empty() || !self.is_of_values(hole) {
                continue;
            }
            let texts = self.scalar(value);
            if let Some(text) = texts.known.first().filter(|_| texts.known.len() == 1) {
                *value = Value::String(text.clone());
            }
        }
        map
    }

    fn is_of_values(&self, hole: char) -> bool {
        let value = self.walk.holes.value(hole);
        value.is_some_and(|value| {
            value
                .iter()
                .any(|alternative| matches!(alternative, Alternative::Values(_, path) if path.iter().any(|key| key == "*")))
        })
    }

    /// Reads YAML in which a hole may have a line of its own: there it stands for items of a list or keys of a map.
    fn yaml(&mut self, text: &str) -> Option<Value> {
        if text.is_empty() || !self.spend(1 + text.len() / 16) {
            return None;
        }
        let mut lines = Vec::new();
        for line in text.lines() {
            let content = line.trim();
            let mut holes = content.chars();
            let (Some(hole), None) = (holes.next().filter(|&c| Hole::is(c)), holes.next()) else {
                lines.push(line.to_owned());
                continue;
            };
            let indent = &line[..line.len() - line.trim_start().len()];
            let options = self.options(hole, 0).known;
            if options.iter().any(Value::is_object) {
                lines.push(format!("{indent}{hole}: {hole}"));
            } else if options.iter().any(Value::is_array) {
                lines.push(format!("{indent}- {hole}"));
            } else {
                self.note_hole(hole);
            }
        }
        let read = helm::yaml::parse_typed(lines.join("\n").as_bytes());
        if read.is_err() {
            self.unknown
                .insert("a role or binding that cannot be read".to_owned());
        }
        read.ok()
    }

    /// All maps in a list, or in what stands for a list.
    fn objects(&mut self, value: &Value, depth: usize) -> Vec<Map<String, Value>> {
        if depth > MAX_DEPTH || !self.spend(1) {
            return Vec::new();
        }
        match value {
            Value::Object(map) => vec![map.clone()],
            Value::Array(items) => items
                .iter()
                .flat_map(|item| self.objects(item, depth + 1))
                .collect(),
            Value::String(_) => {
                let Some(hole) = only_hole(value) else {
                    return Vec::new();
                };
                let options = self.options(hole, depth);
                if options.is_unknown {
                    self.note_hole(hole);
                }
                options
                    .known
                    .iter()
                    .flat_map(|option| self.objects(option, depth + 1))
                    .collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
        }
    }

    /// The texts in a list, or in what stands for a list.
    fn list(&mut self, value: &Value, depth: usize) -> Texts {
        let mut texts = Texts::default();
        if depth > MAX_DEPTH || !self.spend(1) {
            texts.is_unknown = true;
            return texts;
        }
        match value {
            Value::Array(items) => {
                for item in items {
                    texts.add(self.list(item, depth + 1));
                }
            }
            Value::String(text) => match only_hole(value) {
                None | Some(RELEASE_NAME) => texts.add(self.text(text, depth)),
                Some(hole) => {
                    let options = self.options(hole, depth);
                    texts.is_unknown |= options.is_unknown;
                    for option in &options.known {
                        match option {
                            // Several items of a list in flow style.
                            Value::String(text) => {
                                for item in text.split(',') {
                                    let item = item.trim().trim_matches(['"', '\'']);
                                    texts.add(self.text(item, depth + 1));
                                }
                            }
                            other => texts.add(self.list(other, depth + 1)),
                        }
                    }
                }
            },
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => texts.is_unknown = true,
        }
        texts
    }

    /// The texts that a single value can be.
    fn scalar(&mut self, value: &Value) -> Texts {
        match value {
            Value::String(text) => self.text(text, 0),
            Value::Null => Texts::default(),
            Value::Bool(_) | Value::Number(_) => Texts {
                known: BTreeSet::from([value.to_string()]),
                is_unknown: false,
            },
            Value::Array(_) | Value::Object(_) => Texts {
                is_unknown: true,
                ..Texts::default()
            },
        }
    }

    /// The texts that a text with holes can be.
    fn text(&mut self, text: &str, depth: usize) -> Texts {
        let mut texts = Texts {
            known: BTreeSet::from([String::new()]),
            is_unknown: false,
        };
        if depth > MAX_DEPTH || !self.spend(1) {
            return Texts {
                is_unknown: true,
                ..Texts::default()
            };
        }
        let mut rest = text;
        while let Some(at) = rest.find(|c| Hole::is(c) && c != RELEASE_NAME) {
            let (before, from) = rest.split_at(at);
            let Some(hole) = from.chars().next() else { break };
            rest = &from[hole.len_utf8()..];
            let mut choices = Texts::default();
            let options = self.options(hole, depth);
            choices.is_unknown = options.is_unknown;
            for option in &options.known {
                match option {
                    Value::String(text) => choices.add(self.text(text, depth + 1)),
                    Value::Bool(_) | Value::Number(_) => choices.add(self.scalar(option)),
                    Value::Null | Value::Array(_) | Value::Object(_) => choices.is_unknown = true,
                }
            }
            texts.is_unknown |= choices.is_unknown;
            let combined = texts.known.iter().flat_map(|start| {
                choices
                    .known
                    .iter()
                    .map(move |end| format!("{start}{before}{end}"))
            });
            texts.known = combined.take(MAX_FORMS + 1).collect();
            if texts.known.len() > MAX_FORMS {
                return Texts {
                    is_unknown: true,
                    ..Texts::default()
                };
            }
        }
        texts.known = texts.known.iter().map(|start| format!("{start}{rest}")).collect();
        texts
    }

    fn options(&mut self, hole: char, depth: usize) -> Options {
        let mut options = Options::default();
        if depth > MAX_DEPTH || !self.spend(1) {
            options.is_unknown = true;
            return options;
        }
        if hole == RELEASE_NAME {
            options.known.push(Value::String(hole.to_string()));
            return options;
        }
        let Some(value) = self.walk.holes.value(hole).cloned() else {
            options.is_unknown = true;
            return options;
        };
        for alternative in value.iter() {
            match alternative {
                Alternative::Text(text) if text.len() <= MAX_TEXT => options.known.push(fragment(text)),
                Alternative::Int(int) => options.known.push(Value::String(int.to_string())),
                Alternative::Bool(bool) => options.known.push(Value::String(bool.to_string())),
                Alternative::Values(chart, path) => self.add_defaults(*chart, path, &mut options),
                Alternative::List(items) => {
                    let items: Vec<Value> = items.iter().map(|item| self.standing_for(item)).collect();
                    options.known.push(Value::Array(items));
                }
                Alternative::Map(map) => {
                    let entries: Map<String, Value> = map
                        .iter()
                        .map(|(key, value)| (key.clone(), self.standing_for(value)))
                        .collect();
                    options.known.push(Value::Object(entries));
                }
                Alternative::Text(_)
                | Alternative::Hole(_)
                | Alternative::Root(_)
                | Alternative::Metadata(_)
                | Alternative::Release
                | Alternative::Files(_) => options.is_unknown = true,
            }
        }
        options
    }

    fn standing_for(&mut self, value: &Possible) -> Value {
        Value::String(self.walk.standing_for(value))
    }

    /// What the chart's values say at a path, unless the schema lists everything that they may say.
    fn add_defaults(&mut self, chart: ChartIndex, path: &[String], options: &mut Options) {
        if let Some(listed) = charts::listed(self.walk.charts, chart, path) {
            options.known.extend(listed.into_iter().map(Value::String));
            return;
        }
        options.is_unknown = true;
        let path = self.bound_path(chart, path);
        for found in self.defaults(chart, &path) {
            if !self.spend(1 + weight(found, 0)) {
                return;
            }
            options.known.extend((!found.is_null()).then(|| found.clone()));
        }
    }

    fn defaults(&mut self, chart: ChartIndex, path: &[String]) -> Vec<&'c Value> {
        let found = charts::effective_at(self.walk.charts, chart, path);
        self.spend(found.visited);
        found.found
    }

    /// A path with the keys of the elements that are read at the moment.
    fn bound_path(&self, chart: ChartIndex, path: &[String]) -> Keys {
        let mut path = path.to_vec();
        for (of, prefix, key) in &self.bound {
            if *of == chart
                && path.starts_with(prefix)
                && path.get(prefix.len()).is_some_and(|key| key == "*")
            {
                path[prefix.len()].clone_from(key);
            }
        }
        path
    }

    /// Reads a map once for each element of the defaults that its holes are about. If it is one of a single value each,
    /// the elements themselves count, too.
    fn each_element(
        &mut self,
        map: &Map<String, Value>,
        is_single: bool,
        read: &mut impl FnMut(&mut Self, &Map<String, Value>),
    ) {
        if !self.spend(1 + map.len()) {
            return;
        }
        let star = if self.bound.len() < MAX_DEPTH {
            map.iter().find_map(|(key, value)| {
                let is_splice = Some(key.as_str()) == value.as_str();
                self.star(value, is_splice || is_single, 0)
            })
        } else {
            None
        };
        let Some((chart, prefix)) = star else {
            read(self, map);
            return;
        };
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for found in self.defaults(chart, &prefix) {
            match found {
                Value::Array(items) => keys.extend((0..items.len()).map(|index| index.to_string())),
                Value::Object(map) => keys.extend(map.keys().cloned()),
                _ => {}
            }
        }
        if keys.is_empty() {
            // An element that the defaults do not have: nothing is known about it.
            keys.insert(String::new());
        }
        for key in keys {
            self.bound.push((chart, prefix.clone(), key));
            self.each_element(map, is_single, read);
            self.bound.pop();
        }
    }

    /// The first path in a value with a `*` that several holes may have in common.
    fn star(&self, value: &Value, is_splice: bool, depth: usize) -> Option<(ChartIndex, Keys)> {
        if depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::String(text) => text.chars().find_map(|c| {
                let value = self.walk.holes.value(c)?;
                self.star_of(value, is_splice, depth)
            }),
            Value::Array(items) => items.iter().find_map(|item| self.star(item, false, depth + 1)),
            Value::Object(map) => map.values().find_map(|value| self.star(value, false, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn star_of(&self, value: &Possible, is_splice: bool, depth: usize) -> Option<(ChartIndex, Keys)> {
        if depth > MAX_DEPTH {
            return None;
        }
        value.iter().find_map(|alternative| match alternative {
            Alternative::Values(chart, path) => {
                let path = self.bound_path(*chart, path);
                let at = path.iter().position(|key| key == "*")?;
                (is_splice || at + 1 < path.len()).then(|| (*chart, path[..at].to_vec()))
            }
            Alternative::Map(map) => map
                .values()
                .find_map(|value| self.star_of(value, false, depth + 1)),
            Alternative::List(items) => items
                .iter()
                .find_map(|value| self.star_of(value, false, depth + 1)),
            _ => None,
        })
    }

    /// The map with the keys of the maps that stand in it as a whole.
    fn spliced(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        let mut spliced = Map::new();
        for (key, value) in map {
            let whole = only_hole(value).filter(|_| Some(key.as_str()) == value.as_str());
            let Some(hole) = whole else {
                spliced.insert(key.clone(), value.clone());
                continue;
            };
            let options = self.options(hole, 0);
            if options.is_unknown {
                self.note_hole(hole);
            }
            for option in options.known {
                if let Value::Object(more) = option {
                    spliced.extend(more);
                }
            }
        }
        spliced
    }

    fn note(&mut self, value: Option<&Value>) {
        let text = value.map(Value::to_string).unwrap_or_default();
        match text.chars().find(|&c| Hole::is(c)) {
            Some(hole) => self.note_hole(hole),
            None => {
                self.unknown.insert("a value".to_owned());
            }
        }
    }

    fn note_hole(&mut self, hole: char) {
        if let Some(hole) = Hole::first_in(&hole.to_string()) {
            self.unknown.insert(self.walk.holes.reason(hole).to_owned());
        }
    }

    /// False when the steps are used up.
    fn spend(&mut self, steps: usize) -> bool {
        self.walk.steps_of_reading = self.walk.steps_of_reading.saturating_sub(steps);
        if self.walk.steps_of_reading == 0 {
            self.unknown
                .insert("more roles and bindings than the scan follows".to_owned());
        }
        self.walk.steps_of_reading > 0
    }
}

impl Texts {
    fn add(&mut self, more: Self) {
        self.known.extend(more.known);
        self.is_unknown |= more.is_unknown;
    }
}

/// The names among some texts. What is no name of an object is left out.
fn named(texts: &Texts) -> BTreeSet<Name> {
    let is_name =
        |text: &String| !text.is_empty() && !text.starts_with(['-', '.']) && !text.ends_with(['-', '.']);
    let mut names: BTreeSet<Name> = texts
        .known
        .iter()
        .filter(|text| is_name(text))
        .map(|text| name(text))
        .collect();
    if texts.is_unknown {
        names.insert(Name::Unknown);
    }
    names
}

/// A text as a name. One with characters that no name has is not told from what stands for something else.
fn name(text: &str) -> Name {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "{}<>?".contains(c);
    if text
        .chars()
        .any(|c| is_odd(c) || (Hole::is(c) && c != RELEASE_NAME))
    {
        return Name::Unknown;
    }
    let text = text.replace(RELEASE_NAME, RELEASE);
    Name::Known(text.replace(RELEASE_NAMESPACE, NAMESPACE))
}

/// A text with what its holes are in one form; `None` when that is not the name of an object.
fn filled(text: &str, form: &BTreeMap<char, Option<String>>) -> Option<Name> {
    let mut filled = String::new();
    for c in text.chars() {
        match form.get(&c) {
            Some(Some(text)) => filled += text,
            Some(None) => return Some(Name::Unknown),
            None => filled.push(c),
        }
    }
    let is_name = !filled.starts_with(['-', '.']) && !filled.ends_with(['-', '.']);
    is_name.then(|| name(&filled))
}

/// The hole that a value consists of.
fn only_hole(value: &Value) -> Option<char> {
    let mut chars = value.as_str()?.chars();
    let hole = chars.next().filter(|&c| Hole::is(c))?;
    chars.next().is_none().then_some(hole)
}

/// A text that was printed where YAML is read.
fn fragment(text: &str) -> Value {
    let trimmed = text.trim();
    let is_yaml =
        trimmed.starts_with(['"', '\'', '[', '{']) || trimmed.starts_with("- ") || trimmed.contains('\n');
    let read = is_yaml
        .then(|| helm::yaml::parse_typed(text.as_bytes()).ok())
        .flatten();
    read.unwrap_or_else(|| Value::String(trimmed.to_owned()))
}

/// About how many values a value consists of.
fn weight(value: &Value, depth: usize) -> usize {
    match value {
        _ if depth > MAX_DEPTH => 1,
        Value::Array(items) => 1 + items.iter().map(|item| weight(item, depth + 1)).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(|value| weight(value, depth + 1)).sum::<usize>(),
        Value::String(text) => 1 + text.len() / 64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}
