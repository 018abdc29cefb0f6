//! Reads text as templates print it, one line at a time, and finds the kinds of the documents in it by indentation.
//!
//! Only what affects the result is kept, so that the many ways through a template become equal again at the end of
//! nearly every line.

use std::collections::BTreeSet;

use super::possible::{Hole, RELEASE_NAMESPACE};

/// Something that was found in the output of a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// A document is of this kind.
    Kind { api_version: String, kind: String },
    /// What is printed at this line is unknown, for the reason that the hole records.
    Unknown { hole: Hole, line: usize },
    /// An object is in this namespace, whichever the release's is.
    Namespace(String),
    /// A role of this kind has this rule; the kind is `None` when the document has not shown it yet.
    Rule { kind: Option<String>, rule: Rule },
}

/// A rule of a role in a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) groups: BTreeSet<String>,
    pub(super) resources: BTreeSet<String>,
    pub(super) verbs: BTreeSet<String>,
}

/// One way through the templates up to a point: the position in its line and its document.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentState {
    line: Line,
    document: Document,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    /// The text since its start.
    Start(String),
    /// The value of a key that matters.
    Value(Key, String),
    /// The rest of it does not matter.
    Rest,
}

impl Default for Line {
    fn default() -> Self {
        Self::Start(String::new())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    ApiVersion,
    Kind,
    Namespace,
    ItemApiVersion,
    ItemKind,
    /// A line within the rules of a role.
    Rule,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Document {
    /// The indentation of its keys.
    root: Option<usize>,
    object: Object,
    /// Unknown text on lines of its own: it may contain keys, or whole documents.
    opaque: Option<Opaque>,
    section: Section,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    api_version: Option<String>,
    kind: Option<String>,
    line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Opaque {
    hole: Hole,
    line: usize,
    /// True when it can contain more than keys of this document.
    is_text: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    #[default]
    Other,
    /// `metadata:`, and the indentation of its keys.
    Metadata(Option<usize>),
    /// `items:` of a list.
    Items { indent: Option<usize>, item: Object },
    /// `rules:` of a role.
    Rules(Rules),
}

/// The position of a walk in the rules of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rules {
    /// The column of the dashes that begin a rule.
    dash: Option<usize>,
    rule: Rule,
    list: Option<RuleList>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleList {
    Groups,
    Resources,
    Verbs,
    Other,
}

/// The layout of what an action prints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Spaces that `indent` or `nindent` puts before each line.
    pub(super) indent: Option<usize>,
    /// True for `nindent`.
    pub(super) on_new_line: bool,
    /// True when it is one value as YAML, so that no document can end in it.
    pub(super) is_yaml: bool,
}

impl DocumentState {
    /// True when a whole document could be printed here.
    fn is_open(&self, shape: Shape) -> bool {
        let column = match (&self.line, shape.on_new_line) {
            (_, true) => shape.indent.unwrap_or(0),
            (Line::Start(text), false) if text.trim().is_empty() => text.len() + shape.indent.unwrap_or(0),
            _ => return false,
        };
        !self.is_nested(column)
    }

    /// True when a named template has to be followed line by line from here on.
    pub(super) fn follows(&self, shape: Shape) -> bool {
        self.is_open(shape) && !self.is_in_list()
    }

    /// True when what is printed at this point does not matter.
    pub(super) fn is_indifferent(&self, shape: Shape) -> bool {
        match (&self.line, shape.on_new_line) {
            (Line::Rest, false) => true,
            (Line::Rest | Line::Start(_), _) => self.is_nested_start(shape),
            (Line::Value(..), _) => false,
        }
    }

    fn is_nested_start(&self, shape: Shape) -> bool {
        match &self.line {
            Line::Start(text) if !text.trim().is_empty() => false,
            Line::Start(text) if !shape.on_new_line => {
                self.is_nested(text.len() + shape.indent.unwrap_or(0)) && !self.may_be_key(text.len())
            }
            _ => self.is_nested(shape.indent.unwrap_or(0)),
        }
    }

    /// Keys of `metadata` matter, although they are nested.
    fn may_be_key(&self, column: usize) -> bool {
        matches!(self.document.section, Section::Metadata(at) if at.is_none_or(|at| at == column))
    }

    fn is_nested(&self, column: usize) -> bool {
        self.document.root.is_some_and(|root| column > root) && !self.is_in_list()
    }

    fn is_in_list(&self) -> bool {
        matches!(self.document.section, Section::Items { .. } | Section::Rules(_))
    }

    /// Plain text of a template.
    pub(super) fn text(&mut self, text: &str, at: usize, findings: &mut Vec<Finding>) {
        let mut lines = text.split('\n');
        if let Some(first) = lines.next() {
            self.extend(first, at, findings);
        }
        for line in lines {
            self.end_line(at, findings);
            self.extend(line, at, findings);
        }
    }

    /// One of the texts that an action can print.
    pub(super) fn printed(&mut self, text: &str, shape: Shape, at: usize, findings: &mut Vec<Finding>) {
        if shape.on_new_line {
            self.end_line(at, findings);
        }
        if self.is_nested_start(Shape {
            on_new_line: false,
            ..shape
        }) {
            self.line = Line::Rest;
            return;
        }
        let Some(hole) = Hole::first_in(text) else {
            self.text(text, at, findings);
            return;
        };
        if self.is_open(Shape {
            on_new_line: false,
            ..shape
        }) && text.chars().all(Hole::is)
        {
            self.note_opaque(hole, !shape.is_yaml, at);
        }
        self.text(text, at, findings);
    }

    fn note_opaque(&mut self, hole: Hole, is_text: bool, at: usize) {
        let is_text = is_text || self.document.opaque.as_ref().is_some_and(|opaque| opaque.is_text);
        self.document.opaque = Some(Opaque {
            hole,
            line: at,
            is_text,
        });
    }

    fn extend(&mut self, more: &str, at: usize, findings: &mut Vec<Finding>) {
        match &mut self.line {
            Line::Rest => {}
            Line::Value(_, text) => text.push_str(more),
            Line::Start(text) => {
                text.push_str(more);
                if let Some(rest) = text.strip_prefix("---") {
                    let rest = rest.trim_start().to_owned();
                    self.end_document(findings);
                    self.line = Line::Start(rest);
                }
                self.classify(false, at, findings);
            }
        }
    }

    /// Finds out whether the line matters, as soon as that is certain.
    fn classify(&mut self, is_whole: bool, at: usize, findings: &mut Vec<Finding>) {
        let Line::Start(text) = &self.line else { return };
        let text = text.clone();
        let mut content = text.trim_start();
        if content.is_empty() {
            return;
        }
        let mut column = text.len() - content.len();
        if content.starts_with('#') {
            self.line = Line::Rest;
            return;
        }
        let root = *self.document.root.get_or_insert(column);
        let is_in_rules = matches!(self.document.section, Section::Rules(_));
        if is_in_rules && (column > root || content.starts_with('-')) {
            self.line = Line::Value(Key::Rule, text);
            return;
        }
        if let Some(dash) = self.enter_item(column, content, root, findings) {
            content = text[dash..].trim_start();
            column = text.len() - content.len();
            if content.is_empty() {
                return;
            }
        } else if column <= root && !content.chars().all(Hole::is) {
            self.leave_section(findings);
        }
        if self.is_deep(column, root) {
            self.line = Line::Rest;
            return;
        }
        let Some((key, value)) = split_key(content, is_whole) else {
            return;
        };
        self.enter_key(key, value, (column, root), at);
    }

    /// True when no key at this column matters.
    fn is_deep(&mut self, column: usize, root: usize) -> bool {
        match &mut self.document.section {
            Section::Items {
                indent: Some(indent), ..
            } => column > *indent,
            Section::Items { indent: None, .. } => false,
            Section::Metadata(indent) if column > root => column > *indent.get_or_insert(column),
            Section::Metadata(_) | Section::Other | Section::Rules(_) => column > root,
        }
    }

    /// Within `items`, the length of the line up to the first key after the item's dash.
    fn enter_item(
        &mut self,
        column: usize,
        content: &str,
        root: usize,
        findings: &mut Vec<Finding>,
    ) -> Option<usize> {
        let rest = content.strip_prefix("- ").or((content == "-").then_some(""))?;
        let Section::Items { indent, item } = &mut self.document.section else {
            return None;
        };
        if column < root {
            return None;
        }
        let key_at = column + 2 + (rest.len() - rest.trim_start().len());
        if rest.trim_start().is_empty() {
            return Some(column + 1);
        }
        if *indent.get_or_insert(key_at) == key_at {
            let whole = std::mem::take(item);
            let list = self.document.object.clone();
            report_item(&whole, &list, findings);
        }
        Some(column + 2)
    }

    /// A list item that is printed as a whole.
    fn note_item(&mut self, text: &str, at: usize) {
        let item = text.trim_start().strip_prefix('-').unwrap_or_default().trim();
        let in_items = matches!(self.document.section, Section::Items { .. });
        if let Some(hole) = Hole::first_in(item).filter(|_| in_items) {
            self.note_opaque(hole, true, at);
        }
    }

    fn leave_section(&mut self, findings: &mut Vec<Finding>) {
        match std::mem::take(&mut self.document.section) {
            Section::Items { item, .. } => report_item(&item, &self.document.object, findings),
            Section::Rules(rules) => rules.rule.report(self.document.object.kind.as_deref(), findings),
            Section::Metadata(_) | Section::Other => {}
        }
    }

    fn enter_key(&mut self, key: &str, value: &str, (column, root): (usize, usize), at: usize) {
        let value = value.to_owned();
        let key = unquoted(key);
        if let Some(hole) = Hole::first_in(key) {
            if column <= root {
                self.note_opaque(hole, false, at);
            }
            self.line = Line::Rest;
            return;
        }
        let in_items = matches!(self.document.section, Section::Items { .. });
        self.line = match key {
            "apiVersion" if in_items => Line::Value(Key::ItemApiVersion, value),
            "kind" if in_items => Line::Value(Key::ItemKind, value),
            "namespace" if column > root && !in_items => Line::Value(Key::Namespace, value),
            _ if column > root => Line::Rest,
            "apiVersion" => Line::Value(Key::ApiVersion, value),
            "kind" => Line::Value(Key::Kind, value),
            "metadata" => {
                self.document.section = Section::Metadata(None);
                Line::Rest
            }
            "rules" => {
                self.document.section = Section::Rules(Rules::default());
                Line::Rest
            }
            "items" => {
                self.document.section = Section::Items {
                    indent: None,
                    item: Object::default(),
                };
                Line::Rest
            }
            _ => Line::Rest,
        };
    }

    fn end_line(&mut self, at: usize, findings: &mut Vec<Finding>) {
        self.classify(true, at, findings);
        let line = std::mem::take(&mut self.line);
        if let Line::Start(text) = &line {
            self.note_item(text, at);
        }
        let Line::Value(key, text) = line else { return };
        let Document { object, section, .. } = &mut self.document;
        if let (Key::Rule, Section::Rules(rules)) = (key, section) {
            if let Some(hole) = rules.line(&text, object.kind.as_deref(), findings) {
                self.note_opaque(hole, true, at);
            }
            return;
        }
        let text = scalar(&text).to_owned();
        let document = &mut self.document;
        match (key, &mut document.section) {
            (Key::ApiVersion, _) => {
                document.object.api_version = Some(text);
                document.object.line = at;
            }
            (Key::Kind, _) => {
                document.object.kind = Some(text);
                document.object.line = at;
            }
            (Key::Namespace, _) => {
                if Hole::first_in(&text).is_none() && !text.contains(RELEASE_NAMESPACE) && !text.is_empty() {
                    findings.push(Finding::Namespace(text));
                }
            }
            (Key::ItemApiVersion, Section::Items { item, .. }) => {
                item.api_version = Some(text);
                item.line = at;
            }
            (Key::ItemKind, Section::Items { item, .. }) => {
                item.kind = Some(text);
                item.line = at;
            }
            (Key::ItemApiVersion | Key::ItemKind | Key::Rule, _) => {}
        }
    }

    fn end_document(&mut self, findings: &mut Vec<Finding>) {
        let had_items = self.is_in_list();
        self.leave_section(findings);
        let Document { object, opaque, .. } = std::mem::take(&mut self.document);
        let is_list = object.kind.as_deref().is_some_and(|kind| kind.ends_with("List"));
        if !(had_items && is_list) {
            object.report(findings);
        }
        let is_whole = object.api_version.is_some() && object.kind.is_some();
        if let Some(opaque) = opaque.filter(|opaque| opaque.is_text || !is_whole || had_items) {
            findings.push(Finding::Unknown {
                hole: opaque.hole,
                line: opaque.line,
            });
        }
    }

    /// The end of the file.
    pub(super) fn end(mut self, at: usize, findings: &mut Vec<Finding>) {
        self.end_line(at, findings);
        self.end_document(findings);
    }

    /// Drops the content of the line, and notes that something was lost.
    pub(super) fn blur(&mut self, hole: Hole, at: usize) {
        if !matches!(self.line, Line::Rest) {
            self.line = Line::Rest;
            self.note_opaque(hole, true, at);
        }
    }
}

/// Items of a typed list may omit what the list says.
fn report_item(item: &Object, list: &Object, findings: &mut Vec<Finding>) {
    if *item == Object::default() {
        return;
    }
    let of_list = list.kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
    Object {
        api_version: item.api_version.clone().or_else(|| list.api_version.clone()),
        kind: item.kind.clone().or_else(|| of_list.map(str::to_owned)),
        line: item.line,
    }
    .report(findings);
}

impl Object {
    fn report(&self, findings: &mut Vec<Finding>) {
        let (Some(api_version), Some(kind)) = (&self.api_version, &self.kind) else {
            return;
        };
        let hole = Hole::first_in(kind).or_else(|| Hole::first_in(api_version));
        match hole {
            Some(hole) => findings.push(Finding::Unknown {
                hole,
                line: self.line,
            }),
            None if kind.is_empty() || api_version.is_empty() => {}
            None => findings.push(Finding::Kind {
                api_version: api_version.clone(),
                kind: kind.clone(),
            }),
        }
    }
}

impl Rules {
    /// Reads a whole line; returns its hole if it has unknown parts.
    fn line(&mut self, text: &str, kind: Option<&str>, findings: &mut Vec<Finding>) -> Option<Hole> {
        let text = text.trim_end();
        let mut content = text.trim_start();
        let column = text.len() - content.len();
        if content.is_empty() || content.starts_with('#') {
            return None;
        }
        if let Some(rest) = content.strip_prefix('-') {
            if *self.dash.get_or_insert(column) != column {
                return self.entry(rest);
            }
            std::mem::take(&mut self.rule).report(kind, findings);
            content = rest.trim_start();
        }
        let Some((key, value)) = content.split_once(':') else {
            return Hole::first_in(content);
        };
        self.list = Some(match unquoted(key) {
            "apiGroups" => RuleList::Groups,
            "resources" => RuleList::Resources,
            "verbs" => RuleList::Verbs,
            _ => RuleList::Other,
        });
        let value = value.split(" #").next().unwrap_or_default().trim();
        let inside = value
            .strip_prefix('[')
            .map(|value| value.strip_suffix(']').unwrap_or(value))?;
        let holes: Vec<Hole> = inside.split(',').filter_map(|item| self.entry(item)).collect();
        holes.first().copied()
    }

    fn entry(&mut self, item: &str) -> Option<Hole> {
        let set = match self.list? {
            RuleList::Groups => &mut self.rule.groups,
            RuleList::Resources => &mut self.rule.resources,
            RuleList::Verbs => &mut self.rule.verbs,
            RuleList::Other => return None,
        };
        let item = scalar(item);
        let hole = Hole::first_in(item);
        if hole.is_none() {
            set.insert(item.to_owned());
        }
        hole
    }
}

impl Rule {
    fn report(self, kind: Option<&str>, findings: &mut Vec<Finding>) {
        if !self.verbs.is_empty() && !self.resources.is_empty() {
            findings.push(Finding::Rule {
                kind: kind.map(str::to_owned),
                rule: self,
            });
        }
    }
}

/// A key and the start of its value, once the colon after the key is certain.
fn split_key(content: &str, is_whole: bool) -> Option<(&str, &str)> {
    if let Some((key, value)) = content.split_once(": ") {
        return Some((key, value));
    }
    let key = content.trim_end().strip_suffix(':')?;
    is_whole.then_some((key, ""))
}

fn scalar(text: &str) -> &str {
    let text = text.trim();
    if text.starts_with('"') || text.starts_with('\'') {
        return unquoted(text);
    }
    text.split_once(" #").map_or(text, |(text, _)| text).trim_end()
}

fn unquoted(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split_once(quote).map_or(rest, |(inside, _)| inside);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let mut state = DocumentState::default();
        state.text(text, 1, &mut findings);
        state.end(1, &mut findings);
        findings
            .into_iter()
            .map(|finding| match finding {
                Finding::Kind { api_version, kind } => format!("{api_version} {kind}"),
                Finding::Namespace(namespace) => format!("namespace {namespace}"),
                Finding::Unknown { .. } | Finding::Rule { .. } => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn documents_are_read_by_indentation() {
        let text = "# comment\napiVersion: v1\nkind: \"Secret\" # why\nmetadata:\n  labels:\n    namespace: no\n  namespace: shop\n\
                    data:\n  kind: No\n---\n  kind: A\n  apiVersion: g/v1\n  spec:\n    apiVersion: x\n    kind: No\n";
        assert_eq!(kinds(text), ["namespace shop", "v1 Secret", "g/v1 A"]);
    }

    #[test]
    fn rules_of_roles_are_read_in_both_spellings() {
        let text = "kind: Role\nrules:\n- apiGroups: [\"\", apps]\n  resources:\n  - pods\n  - \"pods/log\" # why\n  verbs: [get]\n\
                    - apiGroups:\n    - g.io\n  resources: ['*']\n  verbs:\n    - list\nsubjects: []\n";
        let mut findings = Vec::new();
        let mut state = DocumentState::default();
        state.text(text, 1, &mut findings);
        state.end(1, &mut findings);
        let rules: Vec<String> = findings
            .into_iter()
            .map(|finding| match finding {
                Finding::Rule { kind, rule } => {
                    let Rule {
                        groups,
                        resources,
                        verbs,
                    } = rule;
                    format!("{} {groups:?} {resources:?} {verbs:?}", kind.unwrap_or_default())
                }
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(
            rules,
            [
                r#"Role {"", "apps"} {"pods", "pods/log"} {"get"}"#,
                r#"Role {"g.io"} {"*"} {"list"}"#
            ]
        );
    }

    #[test]
    fn lists_are_taken_apart() {
        let text = "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Service\n    spec:\n      - kind: No\n\
                    \x20 - apiVersion: apps/v1\n    kind: Deployment\n---\napiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {}\n  kind: ConfigMap\n";
        assert_eq!(kinds(text), ["v1 Service", "apps/v1 Deployment", "v1 ConfigMap"]);
    }
}
