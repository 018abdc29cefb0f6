//! Walks through syntax trees, takes every branch, and collects what is printed on the way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use gotemplate::ast::{Branch, Expr, List, Node, Pipe, Tree};
use gotemplate::set::Set;
use gotemplate::stack::Stack;

use super::charts::ChartNode;
use super::document::{DocumentState, Finding, Findings, Shape};
use super::effects::{self, Defines, Effects};
use super::possible::{self, Alternative, ChartIndex, Hole, Holes, MAX_TEXT, Possible, Shared};
use super::read;
use super::steps::{Cut, Steps};

/// How deeply templates may be nested; deeper ones are treated as unknown.
const MAX_DEPTH: usize = 40;

/// A template that is nested in itself more often than this is treated as unknown, whatever its argument: templates
/// that descend into values call themselves as often as the values are deep.
const MAX_CALLS_OF_ITSELF: usize = 3;

/// Bytes of the thread's stack that a walk may use: they fit into the threads that Rust and tokio start.
const MAX_STACK: usize = 1 << 20;

/// What a walk prints to, on one way through the templates.
pub(super) trait Sink: Clone + Ord {
    /// At most this many ways through a template are distinguished.
    const MAX_WAYS: usize;

    /// Plain text of a template.
    fn plain(&mut self, text: &str, walk: &mut Walk<'_>);
    /// True when it does not matter what an action prints here.
    fn is_indifferent(&self, shape: Shape) -> bool;
    /// True when the output of a named template has to be followed line by line.
    fn follows(&self, shape: Shape) -> bool;
    /// True when what an action prints here is kept together with all that it can be.
    fn collects(&self, _: Shape) -> bool {
        false
    }
    /// What it costs to go on with this way, in steps.
    fn weight(&self) -> usize {
        1
    }
    /// One of the texts that an action can print.
    fn print(&mut self, text: &str, shape: Shape, walk: &mut Walk<'_>);
    /// Drops details that would make too many ways differ.
    fn blur(&mut self, walk: &mut Walk<'_>);
    /// Follows the ways through the templates with this name.
    fn pass(
        walk: &mut Walk<'_>,
        name: &str,
        dot: &Possible,
        shape: Shape,
        trees: &[Rc<Tree>],
        ways: &mut Vec<Self>,
    );
}

/// A walk through the templates of a chart.
pub(super) struct Walk<'c> {
    pub(super) charts: &'c [ChartNode<'c>],
    defines: Defines,
    effects: Effects,
    pub(super) holes: Holes,
    pub(super) findings: Findings,
    pub(super) lookups: BTreeSet<Lookup>,
    pub(super) memo: Memo,
    /// What named templates do to the ways through the file that is being executed.
    followed: BTreeMap<Following, Followed>,
    pub(super) steps: Steps,
    /// What is left of the steps for reading roles and bindings.
    pub(super) steps_of_reading: usize,
    stack: Stack,
    /// The file that is being executed.
    file: Vec<u8>,
    /// Where its lines end.
    line_ends: Vec<usize>,
    pub(super) line: usize,
    /// The templates that are being executed, the innermost last; texts passed to `tpl` have no name.
    running: Vec<Option<String>>,
}

/// A path into the values of a chart.
type ValuesPath = (ChartIndex, Shared<[String]>);

/// Results for the whole chart, kept for later calls.
#[derive(Default)]
pub(super) struct Memo {
    /// What a named template, or a text passed to `tpl`, prints for a dot. The flag is true inside a text passed to
    /// `tpl`, because lookups there are listed separately. `None` while it is being evaluated.
    printed: BTreeMap<(Printing, Possible, bool), Option<Possible>>,
    /// Calls of pure functions, by name and number of arguments.
    pub(super) calls: HashMap<(String, usize), Set>,
    /// The results of pure functions.
    pub(super) called: BTreeMap<(String, Vec<Possible>), Possible>,
    pub(super) values_texts: BTreeMap<ValuesPath, Rc<[Rc<str>]>>,
    pub(super) values_keys: BTreeMap<ValuesPath, Possible>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Printing {
    Named(String),
    Text(String),
}

/// A named template with its dot, entered at a line of the file by these ways.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Following {
    name: String,
    dot: Possible,
    line: usize,
    ways: Vec<DocumentState>,
}

/// The ways at the end of a named template, and what was found in it.
#[derive(Clone)]
struct Followed {
    ways: Vec<DocumentState>,
    findings: BTreeSet<Finding>,
    line: usize,
}

/// A call of `lookup`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lookup {
    pub(super) api_version: Possible,
    pub(super) kind: Possible,
    pub(super) name: Possible,
    pub(super) line: usize,
    /// True inside a text passed to `tpl`.
    pub(super) in_text: bool,
}

/// The variables of a template, and its dot.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) dot: Possible,
    variables: Vec<(String, Possible)>,
    /// True when the template reads `$_`.
    reads_blank: bool,
}

impl Scope {
    fn new(tree: &Tree, dot: Possible) -> Self {
        Self {
            reads_blank: effects::reads_blank(tree),
            variables: vec![("$".to_owned(), dot.clone())],
            dot,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Possible> {
        self.variables
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    fn declare(&mut self, name: &str, value: Possible) {
        self.variables.push((name.to_owned(), value));
    }

    /// An assignment may or may not be executed, so the variable can have either value afterwards.
    pub(super) fn assign(&mut self, name: &str, value: &Possible, holes: &mut Holes) {
        if let Some((_, known)) = self.variables.iter_mut().rev().find(|(known, _)| known == name) {
            *known = possible::assigned(std::mem::take(known), value, holes);
        }
    }
}

impl<'c> Walk<'c> {
    pub(super) fn new(charts: &'c [ChartNode<'c>], defines: Defines) -> Self {
        Self {
            charts,
            effects: Effects::new(&defines),
            defines,
            holes: Holes::default(),
            findings: Findings::default(),
            lookups: BTreeSet::new(),
            memo: Memo::default(),
            followed: BTreeMap::new(),
            steps: Steps::default(),
            steps_of_reading: read::STEPS,
            stack: Stack::new(MAX_STACK),
            file: Vec::new(),
            line_ends: Vec::new(),
            line: 0,
            running: Vec::new(),
        }
    }

    /// Collects every document that a file can print; returns where the walk was cut off, if it was, and why.
    pub(super) fn file(&mut self, tree: &Tree, dot: Possible) -> Option<Cut> {
        self.file = tree.source.name.as_bytes().to_vec();
        self.line = 1;
        self.followed.clear();
        self.steps.begin_file();
        let text = tree.source.text.iter().enumerate();
        self.line_ends = text
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        let mut ways = vec![DocumentState::default()];
        self.list(tree, &tree.root, &mut Scope::new(tree, dot), &mut ways);
        let line = self.line;
        for way in ways {
            way.end(line, &mut self.findings);
        }
        self.steps.cut()
    }

    /// False once the walk is cut off: the rest is skipped, and results found meanwhile are not kept.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.stack.is_exhausted() {
            self.steps.cut_for_depth(self.line);
        }
        self.steps.go_on(self.line)
    }

    fn list<S: Sink>(&mut self, tree: &Tree, list: &List, scope: &mut Scope, ways: &mut Vec<S>) {
        for node in &list.nodes {
            self.steps.spend(1 + ways.iter().map(S::weight).sum::<usize>());
            if !self.goes_on() {
                return;
            }
            self.node(tree, node, scope, ways);
            if ways.len() < 2 {
                continue;
            }
            ways.sort();
            ways.dedup();
            if ways.len() > S::MAX_WAYS {
                for way in &mut *ways {
                    way.blur(self);
                }
                ways.sort();
                ways.dedup();
            }
        }
    }

    fn node<S: Sink>(&mut self, tree: &Tree, node: &Node, scope: &mut Scope, ways: &mut Vec<S>) {
        match node {
            Node::Text { pos, text } => {
                self.at(tree, *pos);
                let text = String::from_utf8_lossy(text);
                for way in ways {
                    way.plain(&text, self);
                }
            }
            Node::Action { pos, pipe } => {
                self.at(tree, *pos);
                self.action(pipe, scope, ways);
            }
            Node::Template { pos, name, pipe } => {
                self.at(tree, *pos);
                let dot = pipe
                    .as_ref()
                    .map_or_else(Possible::nothing, |pipe| self.pipe(pipe, scope));
                self.include(&name.lossy(), &dot, Shape::default(), ways);
            }
            Node::If(branch) => self.branch(tree, branch, scope, ways, false),
            Node::With(branch) => self.branch(tree, branch, scope, ways, true),
            Node::Range(branch) => self.range(tree, branch, scope, ways),
            // Ignored: a way that goes on after them is one of the possible ways anyway.
            Node::Break { .. } | Node::Continue { .. } => {}
        }
    }

    /// Notes the current line of the executed file; lines of a named template do not count.
    fn at(&mut self, tree: &Tree, pos: usize) {
        if tree.source.name.as_bytes() == self.file {
            self.line = 1 + self.line_ends.partition_point(|end| *end < pos);
        }
    }

    fn branch<S: Sink>(
        &mut self,
        tree: &Tree,
        branch: &Branch,
        scope: &mut Scope,
        ways: &mut Vec<S>,
        is_with: bool,
    ) {
        self.at(tree, branch.pipe.pos);
        let is_wanted = is_with || !branch.pipe.variables.is_empty();
        let value = if is_wanted || self.effects.of(&branch.pipe) {
            self.pipe(&branch.pipe, scope)
        } else {
            Possible::nothing()
        };
        let (dot, depth) = (scope.dot.clone(), scope.variables.len());
        if let [variable] = &branch.pipe.variables[..] {
            scope.declare(&variable.name.lossy(), value.clone());
        }
        let mut otherwise = ways.clone();
        if is_with {
            scope.dot = value;
        }
        self.list(tree, &branch.list, scope, ways);
        scope.dot = dot;
        if let Some(list) = &branch.else_list {
            self.list(tree, list, scope, &mut otherwise);
        }
        scope.variables.truncate(depth);
        ways.append(&mut otherwise);
    }

    /// Zero, one and two rounds: what one round prints may combine with what the next one prints. If a round changes
    /// nothing, further rounds change nothing.
    fn range<S: Sink>(&mut self, tree: &Tree, branch: &Branch, scope: &mut Scope, ways: &mut Vec<S>) {
        self.at(tree, branch.pipe.pos);
        let value = self.pipe(&branch.pipe, scope);
        let (key, element) = self.elements(&value);
        let (dot, depth) = (scope.dot.clone(), scope.variables.len());
        let names: Vec<String> = branch
            .pipe
            .variables
            .iter()
            .map(|v| v.name.lossy().into_owned())
            .collect();
        let mut all = ways.clone();
        if let Some(list) = &branch.else_list {
            self.list(tree, list, scope, &mut all);
        }
        let mut round = std::mem::take(ways);
        for _ in 0..2 {
            match names.as_slice() {
                [one] => scope.declare(one, element.clone()),
                [index, one] => {
                    scope.declare(index, key.clone());
                    scope.declare(one, element.clone());
                }
                _ => {}
            }
            scope.dot = element.clone();
            let before = (round.clone(), scope.variables[..depth].to_vec());
            self.list(tree, &branch.list, scope, &mut round);
            scope.variables.truncate(depth);
            if (&round, &scope.variables) == (&before.0, &before.1) {
                all.append(&mut round);
                break;
            }
            all.extend(round.iter().cloned());
        }
        scope.dot = dot;
        *ways = all;
    }

    fn action<S: Sink>(&mut self, pipe: &Pipe, scope: &mut Scope, ways: &mut Vec<S>) {
        if effects::is_blank(pipe) && !scope.reads_blank && !self.effects.of(pipe) {
            return;
        }
        if !pipe.variables.is_empty() {
            let value = self.pipe(pipe, scope);
            for variable in &pipe.variables {
                let name = variable.name.lossy();
                if pipe.is_assign {
                    scope.assign(&name, &value, &mut self.holes);
                } else {
                    scope.declare(&name, value.clone());
                }
            }
            return;
        }
        let shape = shape(pipe);
        let mut others = std::mem::take(ways);
        if let Some((name, dot)) = included(pipe) {
            let (followed, rest): (Vec<S>, Vec<S>) = others.into_iter().partition(|way| way.follows(shape));
            others = rest;
            self.follow(name, dot, shape, scope, &followed, ways);
        }
        if others.is_empty() {
            return;
        }
        let (kept, others): (Vec<S>, Vec<S>) = others.into_iter().partition(|way| way.collects(shape));
        if !kept.is_empty() {
            let value = self.pipe(pipe, scope);
            self.steps.spend(value.size());
            let text = self.standing_for(&value);
            for mut way in kept {
                way.print(&text, shape, self);
                ways.push(way);
            }
        }
        if others.is_empty() {
            return;
        }
        let is_wanted = others.iter().any(|way| !way.is_indifferent(shape));
        let texts = if is_wanted || self.effects.of(pipe) {
            let value = self.pipe(pipe, scope);
            self.texts(&value)
        } else {
            BTreeSet::new()
        };
        for way in others {
            if way.is_indifferent(shape) {
                let mut way = way;
                way.print("", shape, self);
                ways.push(way);
                continue;
            }
            self.steps.spend(texts.len());
            if !self.goes_on() {
                return;
            }
            for text in &texts {
                let mut way = way.clone();
                way.print(text, shape, self);
                ways.push(way);
            }
        }
    }

    /// Continues in a named template with the ways that could print a whole document.
    fn follow<S: Sink>(
        &mut self,
        name: &Expr,
        dot: &Expr,
        shape: Shape,
        scope: &mut Scope,
        followed: &[S],
        ways: &mut Vec<S>,
    ) {
        if followed.is_empty() {
            return;
        }
        let (names, dot) = (self.expression(name, scope), self.expression(dot, scope));
        for name in self.texts(&names) {
            let mut after = followed.to_vec();
            match Hole::first_in(&name) {
                Some(_) => {
                    for way in &mut after {
                        way.print(&name, shape, self);
                    }
                }
                None => self.include(&name, &dot, shape, &mut after),
            }
            ways.append(&mut after);
        }
    }

    /// Prints the output of a named template in place.
    fn include<S: Sink>(&mut self, name: &str, dot: &Possible, shape: Shape, ways: &mut Vec<S>) {
        let trees = match self.callable(name) {
            Ok(trees) => trees,
            Err(reason) => {
                let text = self.holes.because(&reason).as_char().to_string();
                for way in ways {
                    way.print(&text, shape, self);
                }
                return;
            }
        };
        if shape.on_new_line {
            for way in &mut *ways {
                way.plain("\n", self);
            }
        }
        S::pass(self, name, dot, shape, &trees, ways);
    }

    /// The templates with this name, or the reason why they are not followed.
    fn callable(&self, name: &str) -> Result<Rc<[Rc<Tree>]>, String> {
        let running = self.running.iter();
        let calls_of_itself = running.filter(|running| running.as_deref() == Some(name)).count();
        if calls_of_itself > MAX_CALLS_OF_ITSELF {
            return Err(format!("the named template {name:?}, which calls itself"));
        }
        let trees = self.defines.get(name).filter(|_| self.running.len() < MAX_DEPTH);
        trees
            .cloned()
            .ok_or_else(|| format!("the named template {name:?}, which is not there"))
    }

    /// Follows all ways through the templates with this name.
    fn through<S: Sink>(&mut self, name: &str, dot: &Possible, trees: &[Rc<Tree>], ways: &mut Vec<S>) {
        self.running.push(Some(name.to_owned()));
        let before = std::mem::take(ways);
        for tree in trees {
            let mut after = before.clone();
            self.list(tree, &tree.root, &mut Scope::new(tree, dot.clone()), &mut after);
            ways.append(&mut after);
        }
        self.running.pop();
    }

    /// [`through`](Self::through) for ways in documents, whose results are kept because they are always the same.
    fn through_documents(
        &mut self,
        name: &str,
        dot: &Possible,
        trees: &[Rc<Tree>],
        ways: &mut Vec<DocumentState>,
    ) {
        self.steps
            .spend(1 + dot.size() + ways.iter().map(DocumentState::weight).sum::<usize>());
        ways.sort();
        ways.dedup();
        let following = Following {
            name: name.to_owned(),
            dot: dot.clone(),
            line: self.line,
            ways: std::mem::take(ways),
        };
        if let Some(followed) = self.followed.get(&following) {
            self.steps.spend(followed.ways.len() + followed.findings.len());
            ways.extend(followed.ways.iter().cloned());
            self.findings.extend(followed.findings.iter().cloned());
            self.line = followed.line;
            return;
        }
        ways.extend(following.ways.iter().cloned());
        let findings_before = self.findings.take();
        self.through(name, dot, trees, ways);
        let findings = self.findings.replace(findings_before);
        self.findings.extend(findings.iter().cloned());
        if self.goes_on() {
            let followed = Followed {
                ways: ways.clone(),
                findings,
                line: self.line,
            };
            self.followed.insert(following, followed);
        }
    }

    /// The texts that a named template can print.
    pub(super) fn printed(&mut self, name: &str, dot: &Possible) -> Possible {
        let printing = Printing::Named(name.to_owned());
        self.printed_once(printing, dot, |walk, ways| {
            walk.include(name, dot, Shape::default(), ways);
        })
    }

    /// The texts that a text passed to `tpl` can print.
    pub(super) fn printed_text(&mut self, text: &str, dot: &Possible) -> Possible {
        let printing = Printing::Text(text.to_owned());
        self.printed_once(printing, dot, |walk, ways| walk.text_template(text, dot, ways))
    }

    /// True inside a text passed to `tpl`.
    pub(super) fn is_in_text(&self) -> bool {
        self.running.contains(&None)
    }

    fn text_template(&mut self, text: &str, dot: &Possible, ways: &mut Vec<Text>) {
        let mut set = Set::new("gotpl", helm::functions::all().clone());
        self.steps.spend(text.len());
        if self.running.len() >= MAX_DEPTH || set.parse("tpl", text).is_err() {
            *ways = vec![Text::Long(self.holes.because("a text given to tpl"))];
            return;
        }
        let Some(tree) = set.tree("tpl").cloned() else {
            ways.clear();
            return;
        };
        self.running.push(None);
        self.list(&tree, &tree.root, &mut Scope::new(&tree, dot.clone()), ways);
        self.running.pop();
    }

    fn printed_once(
        &mut self,
        printing: Printing,
        dot: &Possible,
        print: impl FnOnce(&mut Self, &mut Vec<Text>),
    ) -> Possible {
        let key = (printing, dot.clone(), self.is_in_text());
        self.steps.spend(1 + dot.size());
        match self.memo.printed.get(&key) {
            Some(Some(cached)) => return cached.clone(),
            Some(None) => {
                let what = match key.0 {
                    Printing::Named(name) => format!("the named template {name:?}, which calls itself"),
                    Printing::Text(_) => "a text given to tpl".to_owned(),
                };
                return Possible::hole(self.holes.because(&what));
            }
            None => {}
        }
        self.memo.printed.insert(key.clone(), None);
        let mut ways = vec![Text::default()];
        print(self, &mut ways);
        let texts = ways.into_iter().map(|way| match way {
            Text::Short(text) => Alternative::Text(text.into()),
            Text::Long(hole) => Alternative::Hole(hole),
        });
        let printed = texts.collect::<Possible>().bounded(&mut self.holes);
        if self.goes_on() {
            self.memo.printed.insert(key, Some(printed.clone()));
        } else {
            self.memo.printed.remove(&key);
        }
        printed
    }
}

/// `include "name" dot`, followed by nothing that changes more than the indentation.
fn included(pipe: &Pipe) -> Option<(&Expr, &Expr)> {
    let (first, rest) = pipe.commands.split_first()?;
    let is_layout = |command: &gotemplate::ast::Command| {
        ["indent", "nindent", "trim"]
            .iter()
            .any(|name| is_function(&command.args[0], name))
    };
    match &first.args[..] {
        [function, name, dot] if is_function(function, "include") && rest.iter().all(is_layout) => {
            Some((name, dot))
        }
        [Expr::Pipe(inner)] if rest.iter().all(is_layout) => included(inner),
        _ => None,
    }
}

pub(super) fn is_function(expr: &Expr, called: &str) -> bool {
    matches!(expr, Expr::Function { name, .. } if name.as_bytes() == called.as_bytes())
}

/// How an action lays out its output.
fn shape(pipe: &Pipe) -> Shape {
    let mut shape = Shape::default();
    for command in &pipe.commands {
        let Some((function, arguments)) = command.args.split_first() else {
            continue;
        };
        match arguments.first() {
            Some(Expr::Number(number)) if is_function(function, "nindent") => {
                shape.indent = number.int.and_then(|n| usize::try_from(n).ok());
                shape.on_new_line = true;
            }
            Some(Expr::Number(number)) if is_function(function, "indent") => {
                shape.indent = number.int.and_then(|n| usize::try_from(n).ok());
            }
            _ => {
                shape.is_yaml |= ["toYaml", "toYamlPretty", "toJson", "toPrettyJson"]
                    .iter()
                    .any(|name| is_function(function, name));
            }
        }
    }
    shape
}

/// A short text as it is built up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Text {
    Short(String),
    /// Too long to be tracked.
    Long(Hole),
}

impl Default for Text {
    fn default() -> Self {
        Self::Short(String::new())
    }
}

impl Text {
    fn push(&mut self, more: &str, walk: &mut Walk<'_>) {
        let Self::Short(text) = self else { return };
        text.push_str(more);
        if text.len() > MAX_TEXT {
            // If it has a hole, that is the better reason.
            let hole = Hole::first_in(text);
            *self = Self::Long(hole.unwrap_or_else(|| walk.holes.because("a long text")));
        }
    }
}

impl Sink for Text {
    const MAX_WAYS: usize = 24;

    fn plain(&mut self, text: &str, walk: &mut Walk<'_>) {
        self.push(text, walk);
    }

    fn is_indifferent(&self, _: Shape) -> bool {
        matches!(self, Self::Long(_))
    }

    fn follows(&self, _: Shape) -> bool {
        false
    }

    fn print(&mut self, text: &str, _: Shape, walk: &mut Walk<'_>) {
        self.push(text, walk);
    }

    fn blur(&mut self, walk: &mut Walk<'_>) {
        if let Self::Short(text) = self {
            let hole = Hole::first_in(text);
            *self = Self::Long(hole.unwrap_or_else(|| walk.holes.because("a text with many forms")));
        }
    }

    fn pass(
        walk: &mut Walk<'_>,
        name: &str,
        dot: &Possible,
        _: Shape,
        trees: &[Rc<Tree>],
        ways: &mut Vec<Self>,
    ) {
        walk.through(name, dot, trees, ways);
    }
}

impl Sink for DocumentState {
    const MAX_WAYS: usize = 96;

    fn plain(&mut self, text: &str, walk: &mut Walk<'_>) {
        self.text(text, walk.line, &mut walk.findings);
    }

    fn is_indifferent(&self, shape: Shape) -> bool {
        Self::is_indifferent(self, shape)
    }

    fn collects(&self, shape: Shape) -> bool {
        Self::collects(self, shape)
    }

    fn weight(&self) -> usize {
        1 + self.len() / 128
    }

    fn follows(&self, shape: Shape) -> bool {
        Self::follows(self, shape)
    }

    fn print(&mut self, text: &str, shape: Shape, walk: &mut Walk<'_>) {
        self.printed(text, shape, walk.line, &mut walk.findings);
    }

    fn blur(&mut self, walk: &mut Walk<'_>) {
        let hole = walk.holes.because("a template with many ways through it");
        Self::blur(self, hole, walk.line);
    }

    /// Ways with different margins go through one after the other, so that each can be given its own back.
    fn pass(
        walk: &mut Walk<'_>,
        name: &str,
        dot: &Possible,
        shape: Shape,
        trees: &[Rc<Tree>],
        ways: &mut Vec<Self>,
    ) {
        let mut by_margin: BTreeMap<usize, Vec<Self>> = BTreeMap::new();
        for mut way in std::mem::take(ways) {
            let before = way.enter(shape.indent.unwrap_or(0));
            by_margin.entry(before).or_default().push(way);
        }
        for (margin, mut entered) in by_margin {
            walk.through_documents(name, dot, trees, &mut entered);
            for way in &mut entered {
                way.leave(margin);
            }
            ways.append(&mut entered);
        }
    }
}
