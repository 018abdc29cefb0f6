//! Reads text as templates print it, one line at a time, and finds the kinds of the documents in it by indentation.
//!
//! Only what affects the result is kept, so that the many ways through a template become equal again at the end of
//! nearly every line.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::possible::{Hole, RELEASE_NAMESPACE};

/// Longest text of a rule, or of another part of a role or binding, that is followed.
const MAX_BLOCK: usize = 16 << 10;

/// The most that roles and bindings of one file may say together, in all ways through it.
const MAX_FINDINGS: usize = 4 << 20;

/// Something that was found in the output of a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// A document is of this kind.
    Kind { api_version: String, kind: String },
    /// What is printed at this line is unknown, for the reason that the hole records.
    Unknown { hole: Hole, line: usize },
    /// More is printed at this line than is followed.
    Long { line: usize },
    /// An object is in this namespace, whichever the release's is.
    Namespace(String),
    /// A role of this kind has these rules, as YAML; the kind is `None` when the document has not shown it yet.
    Rules {
        kind: Option<String>,
        /// What its metadata says, as far as it was kept.
        parts: Option<Rc<Parts>>,
        text: Rc<str>,
        line: usize,
    },
    /// A document of a kind whose parts matter.
    Object {
        kind: String,
        parts: Rc<Parts>,
        line: usize,
    },
}

/// What was found, each once.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: BTreeSet<Finding>,
    /// The length of what roles and bindings say, in this file so far.
    length: usize,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        if self.found.contains(&finding) {
            return;
        }
        let (length, line) = match &finding {
            Finding::Rules { text, line, .. } => (text.len(), *line),
            Finding::Object { parts, line, .. } => (parts.len(), *line),
            Finding::Kind { .. } | Finding::Unknown { .. } | Finding::Long { .. } | Finding::Namespace(_) => {
                (0, 0)
            }
        };
        self.length += length;
        if length > 0 && self.length > MAX_FINDINGS {
            self.found.insert(Finding::Long { line });
        } else {
            self.found.insert(finding);
        }
    }

    pub(super) fn extend(&mut self, more: impl IntoIterator<Item = Finding>) {
        self.found.extend(more);
    }

    /// Takes what was found so far; what comes next is counted together with it.
    pub(super) fn take(&mut self) -> Self {
        let length = self.length;
        std::mem::replace(
            self,
            Self {
                length,
                ..Self::default()
            },
        )
    }

    /// Everything, for the next file to begin anew.
    pub(super) fn drain(&mut self) -> BTreeSet<Finding> {
        std::mem::take(self).found
    }

    /// What came after [`take`](Self::take), which is put back.
    pub(super) fn replace(&mut self, before: Self) -> BTreeSet<Finding> {
        let length = self.length;
        let after = std::mem::replace(self, before);
        self.length = length;
        after.found
    }
}

/// The parts of a role, a binding or a Namespace that matter, as YAML.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parts {
    /// The lines with `name`, `namespace` and the labels by which roles are aggregated; or all of it in flow style.
    pub(super) metadata: String,
    pub(super) role_ref: String,
    pub(super) subjects: String,
    pub(super) aggregation: String,
}

impl Parts {
    fn len(&self) -> usize {
        let Self {
            metadata,
            role_ref,
            subjects,
            aggregation,
        } = self;
        metadata.len() + role_ref.len() + subjects.len() + aggregation.len()
    }
}

/// Labels by which the rules of one cluster role become those of another begin with this.
pub(super) const AGGREGATION_LABELS: &str = "rbac.authorization.k8s.io/";

/// One way through the templates up to a point: the position in its line and its document.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DocumentState {
    /// Spaces before each line of the named template that is followed.
    margin: usize,
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
    /// A line of the metadata that is kept.
    Metadata,
    /// A line of a part that is kept as a whole.
    Block,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Document {
    /// The indentation of its keys.
    root: Option<usize>,
    object: Object,
    /// Unknown text on lines of its own: it may contain keys, or whole documents.
    opaque: Option<Opaque>,
    section: Section,
    parts: Option<Box<Parts>>,
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
    /// A part that is kept as a whole.
    Block(Block),
}

/// A part of a document that is kept as a whole, up to the line before the current one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    part: Part,
    text: String,
    /// The column of the dashes that begin a rule.
    dash: Option<usize>,
    /// How many brackets are open.
    depth: usize,
    /// Where its text begins.
    line: usize,
    is_lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Rules,
    Metadata,
    RoleRef,
    Subjects,
    Aggregation,
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
        (self.is_open(shape) || self.begins_block(shape))
            && !matches!(self.document.section, Section::Items { .. })
    }

    /// True when the line, once it ends, begins a part that is kept.
    fn begins_block(&self, shape: Shape) -> bool {
        let is_key = matches!(&self.line, Line::Start(text) if text.trim_end().ends_with(':'));
        if !is_key || !shape.on_new_line {
            return false;
        }
        let mut after = self.clone();
        after.end_line(0, &mut Findings::default());
        after.is_in_block()
    }

    /// True when what is printed at this point is kept together with all that it can be.
    pub(super) fn collects(&self, shape: Shape) -> bool {
        match &self.line {
            Line::Value(Key::Metadata | Key::Block, _) => true,
            Line::Start(_) => self.is_in_block() || self.begins_block(shape),
            Line::Rest | Line::Value(..) => shape.on_new_line && self.is_in_block(),
        }
    }

    fn is_in_block(&self) -> bool {
        matches!(self.document.section, Section::Block(_))
    }

    /// The length of the text that it keeps.
    pub(super) fn len(&self) -> usize {
        let block = match &self.document.section {
            Section::Block(block) => block.text.len(),
            Section::Other | Section::Metadata(_) | Section::Items { .. } => 0,
        };
        let line = match &self.line {
            Line::Start(text) | Line::Value(_, text) => text.len(),
            Line::Rest => 0,
        };
        block + line + self.document.parts.as_ref().map_or(0, |parts| parts.len())
    }

    /// Begins a named template whose lines are indented, and returns what to [`leave`](Self::leave) it with. The
    /// columns of other lines do not matter.
    pub(super) fn enter(&mut self, indent: usize) -> usize {
        let before = self.margin;
        if !self.is_in_block() {
            self.margin = 0;
        } else if let Line::Start(text) = &mut self.line {
            text.extend(std::iter::repeat_n(' ', indent));
            self.margin += indent;
        }
        before
    }

    pub(super) fn leave(&mut self, margin: usize) {
        self.margin = margin;
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
        matches!(self.document.section, Section::Items { .. } | Section::Block(_))
    }

    /// Plain text of a template.
    pub(super) fn text(&mut self, text: &str, at: usize, findings: &mut Findings) {
        let mut lines = text.split('\n');
        if let Some(first) = lines.next() {
            self.extend(first, at, findings);
        }
        for line in lines {
            self.end_line(at, findings);
            self.extend(line, at, findings);
        }
    }

    fn begin_line(&mut self) {
        let margin = if self.is_in_block() { self.margin } else { 0 };
        self.line = Line::Start(" ".repeat(margin));
    }

    /// One of the texts that an action can print.
    pub(super) fn printed(&mut self, text: &str, shape: Shape, at: usize, findings: &mut Findings) {
        if shape.on_new_line {
            self.end_line(at, findings);
        }
        let is_in_block = self.is_in_block();
        if let Line::Start(start) = &mut self.line
            && is_in_block
        {
            if start.trim().is_empty() && text.chars().all(Hole::is) {
                start.extend(std::iter::repeat_n(' ', shape.indent.unwrap_or(0)));
            }
            self.text(text, at, findings);
            return;
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

    fn extend(&mut self, more: &str, at: usize, findings: &mut Findings) {
        match &mut self.line {
            Line::Rest => {}
            Line::Value(_, text) | Line::Start(text) if text.len() + more.len() > MAX_BLOCK => {
                findings.push(Finding::Long { line: at });
                if let Section::Block(block) = &mut self.document.section {
                    block.text.clear();
                    block.is_lost = true;
                }
                self.line = Line::Rest;
            }
            Line::Value(_, text) => text.push_str(more),
            Line::Start(text) => {
                text.push_str(more);
                if let Some(rest) = text.strip_prefix("---") {
                    let rest = rest.trim_start().to_owned();
                    self.end_document(at, findings);
                    self.line = Line::Start(rest);
                }
                self.classify(false, at, findings);
            }
        }
    }

    /// Finds out whether the line matters, as soon as that is certain.
    fn classify(&mut self, is_whole: bool, at: usize, findings: &mut Findings) {
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
        if let Section::Block(block) = &self.document.section
            && (column > root || content.starts_with('-') || block.depth > 0)
        {
            self.line = Line::Value(Key::Block, text);
            return;
        }
        if self.is_label(content) {
            self.line = Line::Value(Key::Metadata, content.to_owned());
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
            Section::Metadata(_) | Section::Other | Section::Block(_) => column > root,
        }
    }

    /// Within `items`, the length of the line up to the first key after the item's dash.
    fn enter_item(
        &mut self,
        column: usize,
        content: &str,
        root: usize,
        findings: &mut Findings,
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

    fn leave_section(&mut self, findings: &mut Findings) {
        match std::mem::take(&mut self.document.section) {
            Section::Items { item, .. } => report_item(&item, &self.document.object, findings),
            Section::Block(block) => self.keep(block, findings),
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
        if column <= root
            && let Some(part) = self.document.object.part(key, &value)
        {
            self.document.section = Section::Block(Block {
                part,
                text: String::new(),
                dash: None,
                depth: 0,
                line: at,
                is_lost: false,
            });
            self.line = Line::Value(Key::Block, value);
            return;
        }
        self.line = match key {
            "apiVersion" if in_items => Line::Value(Key::ItemApiVersion, value),
            "kind" if in_items => Line::Value(Key::ItemKind, value),
            "name" | "namespace" if column > root && !in_items && self.document.object.is_kept() => {
                Line::Value(Key::Metadata, format!("{key}: {value}"))
            }
            "namespace" if column > root && !in_items => Line::Value(Key::Namespace, value),
            _ if column > root => Line::Rest,
            "apiVersion" => Line::Value(Key::ApiVersion, value),
            "kind" => Line::Value(Key::Kind, value),
            "metadata" => {
                self.document.section = Section::Metadata(None);
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

    fn end_line(&mut self, at: usize, findings: &mut Findings) {
        self.classify(true, at, findings);
        let line = std::mem::take(&mut self.line);
        self.begin_line();
        if let Line::Start(text) = &line {
            self.note_item(text, at);
            if self.is_in_block() && !text.trim().is_empty() {
                self.block_line(text, at, findings);
            }
        }
        let Line::Value(key, text) = line else { return };
        if key == Key::Block {
            self.block_line(&text, at, findings);
            return;
        }
        if key == Key::Metadata {
            let parts = self.document.parts.get_or_insert_default();
            if parts.metadata.len() + text.len() > MAX_BLOCK {
                findings.push(Finding::Long { line: at });
            } else {
                parts.metadata += &text;
                parts.metadata.push('\n');
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
                if is_literal(&text) && !text.is_empty() {
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
            (Key::ItemApiVersion | Key::ItemKind | Key::Metadata | Key::Block, _) => {}
        }
    }

    fn end_document(&mut self, at: usize, findings: &mut Findings) {
        let had_items = self.is_in_list();
        self.leave_section(findings);
        let Document {
            object,
            opaque,
            parts,
            ..
        } = std::mem::take(&mut self.document);
        if let (Some(kind), Some(parts)) = (&object.kind, parts) {
            findings.push(Finding::Object {
                kind: kind.clone(),
                parts: (*parts).into(),
                line: at,
            });
        }
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
    pub(super) fn end(mut self, at: usize, findings: &mut Findings) {
        self.end_line(at, findings);
        self.end_document(at, findings);
    }

    /// Drops the content of the line, and notes that something was lost.
    pub(super) fn blur(&mut self, hole: Hole, at: usize) {
        if !matches!(self.line, Line::Rest) {
            self.line = Line::Rest;
            self.note_opaque(hole, true, at);
        }
        if let Section::Block(block) = &mut self.document.section
            && !block.text.is_empty()
        {
            block.text.clear();
            block.is_lost = true;
            self.note_opaque(hole, true, at);
        }
    }

    /// A line of a part that is kept. Of rules, only the one that has begun is: so the ways through the ones before
    /// it become equal.
    fn block_line(&mut self, line: &str, at: usize, findings: &mut Findings) {
        let Section::Block(block) = &mut self.document.section else {
            return;
        };
        let content = line.trim_start();
        let column = line.len() - content.len();
        let begins_rule = block.part == Part::Rules && block.depth == 0 && content.starts_with('-');
        if begins_rule && *block.dash.get_or_insert(column) == column {
            let whole = Block {
                text: String::new(),
                line: at,
                is_lost: false,
                ..*block
            };
            let whole = std::mem::replace(block, whole);
            self.keep(whole, findings);
        }
        let Section::Block(block) = &mut self.document.section else {
            return;
        };
        block.depth = brackets(block.depth, line);
        if block.is_lost || content.is_empty() {
            return;
        }
        if block.text.len() + line.len() > MAX_BLOCK {
            findings.push(Finding::Long { line: at });
            block.text.clear();
            block.is_lost = true;
            return;
        }
        block.text += line;
        block.text.push('\n');
        if block.depth == 0 && block.text.trim_start().starts_with(['[', '{']) {
            // Complete: what comes next is no part of it.
            self.leave_section(findings);
        }
    }

    /// Keeps a part that is complete.
    fn keep(&mut self, block: Block, findings: &mut Findings) {
        let (text, line) = (block.text, block.line);
        if text.is_empty() {
            return;
        }
        let Document { object, parts, .. } = &mut self.document;
        if block.part == Part::Rules {
            let parts = parts
                .as_deref()
                .filter(|parts| parts.metadata.contains(AGGREGATION_LABELS));
            findings.push(Finding::Rules {
                kind: object.kind.clone(),
                parts: parts.cloned().map(Rc::new),
                text: text.into(),
                line,
            });
            return;
        }
        let parts = parts.get_or_insert_default();
        let known = match block.part {
            Part::Metadata | Part::Rules => &mut parts.metadata,
            Part::RoleRef => &mut parts.role_ref,
            Part::Subjects => &mut parts.subjects,
            Part::Aggregation => &mut parts.aggregation,
        };
        *known = text;
    }

    /// True for a label by which roles are aggregated.
    fn is_label(&self, content: &str) -> bool {
        matches!(self.document.section, Section::Metadata(_))
            && content
                .trim_start_matches(['"', '\''])
                .starts_with(AGGREGATION_LABELS)
    }
}

/// Items of a typed list may omit what the list says.
fn report_item(item: &Object, list: &Object, findings: &mut Findings) {
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
    /// The part that a key at the root begins, if it is one that matters for an object of this kind.
    fn part(&self, key: &str, value: &str) -> Option<Part> {
        let is = |kinds: &[&str]| {
            self.kind
                .as_deref()
                .is_none_or(|kind| kinds.contains(&kind) || Hole::first_in(kind).is_some())
        };
        match key {
            "rules" if is(&["Role", "ClusterRole"]) => Some(Part::Rules),
            "aggregationRule" if is(&["ClusterRole"]) => Some(Part::Aggregation),
            "roleRef" if is(&["RoleBinding", "ClusterRoleBinding"]) => Some(Part::RoleRef),
            "subjects" if is(&["RoleBinding", "ClusterRoleBinding"]) => Some(Part::Subjects),
            // In flow style.
            "metadata" if value.trim_start().starts_with('{') => Some(Part::Metadata),
            _ => None,
        }
    }

    /// True when its name matters.
    fn is_kept(&self) -> bool {
        self.kind
            .as_deref()
            .is_none_or(|kind| ["RoleBinding", "ClusterRoleBinding", "Namespace"].contains(&kind))
    }

    fn report(&self, findings: &mut Findings) {
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

/// The number of brackets that are open at the end of a line.
fn brackets(mut depth: usize, line: &str) -> usize {
    let mut quote = None;
    let mut before = ' ';
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if before == ' ' => break,
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        before = c;
    }
    depth
}

/// True for a text without unknown parts, and without what the release decides.
pub(super) fn is_literal(text: &str) -> bool {
    !text.chars().any(|c| Hole::is(c) || c == RELEASE_NAMESPACE)
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
        let mut findings = Findings::default();
        let mut state = DocumentState::default();
        state.text(text, 1, &mut findings);
        state.end(1, &mut findings);
        findings
            .drain()
            .into_iter()
            .map(|finding| match finding {
                Finding::Kind { api_version, kind } => format!("{api_version} {kind}"),
                Finding::Namespace(namespace) => format!("namespace {namespace}"),
                Finding::Unknown { .. }
                | Finding::Long { .. }
                | Finding::Rules { .. }
                | Finding::Object { .. } => "?".to_owned(),
            })
            .collect()
    }

    #[test]
    fn documents_are_read_by_indentation() {
        let text = "# comment\napiVersion: v1\nkind: \"Secret\" # why\nmetadata:\n  labels:\n    namespace: no\n  namespace: shop\n\
                    data:\n  kind: No\n---\n  kind: A\n  apiVersion: g/v1\n  spec:\n    apiVersion: x\n    kind: No\n";
        assert_eq!(kinds(text), ["g/v1 A", "v1 Secret", "namespace shop"]);
    }

    #[test]
    fn lists_are_taken_apart() {
        let text = "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Service\n    spec:\n      - kind: No\n\
                    \x20 - apiVersion: apps/v1\n    kind: Deployment\n---\napiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {}\n  kind: ConfigMap\n";
        assert_eq!(kinds(text), ["apps/v1 Deployment", "v1 ConfigMap", "v1 Service"]);
    }
}
