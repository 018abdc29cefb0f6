//! A walk through syntax trees that takes every branch, and what is printed on the way.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use gotemplate::ast::{Branch, Expr, List, Node, Pipe, Tree};
use gotemplate::set::Set;

use super::charts::Place;
use super::document::{Found, Shape, State};
use super::possible::{Alternative, Hole, Holes, MAX_TEXT, Possible};

/// Templates within templates; deeper ones are taken as unknown.
const MAX_DEPTH: usize = 40;

/// What a walk writes to, for one way through the templates.
pub(super) trait Sink: Clone + Ord {
    /// More ways through a template than this are not told apart.
    const MAX_WAYS: usize;

    /// Plain text of a template.
    fn plain(&mut self, text: &str, walk: &mut Walk<'_>);
    /// True when it does not matter what an action prints here.
    fn is_indifferent(&self, shape: Shape) -> bool;
    /// True when what a named template prints is to be followed line by line.
    fn follows(&self, shape: Shape) -> bool;
    /// One of the texts that an action can print.
    fn print(&mut self, text: &str, shape: Shape, walk: &mut Walk<'_>);
    /// Gives up what would tell too many ways apart.
    fn blur(&mut self, walk: &mut Walk<'_>);
}

/// A walk through the templates of a chart.
pub(super) struct Walk<'c> {
    pub(super) places: &'c [Place<'c>],
    pub(super) defines: HashMap<String, Vec<Rc<Tree>>>,
    pub(super) holes: Holes,
    pub(super) found: Vec<Found>,
    pub(super) lookups: Vec<Lookup>,
    /// What named templates print, by name, dot and whether a text given to `tpl` calls them; `None` while that is being found out.
    printed: BTreeMap<(String, Possible, bool), Option<Possible>>,
    /// Calls of pure functions, by name and number of arguments.
    pub(super) calls: HashMap<(String, usize), Set>,
    /// The file that is executed, and the line in it.
    file: Vec<u8>,
    /// Where its lines end.
    line_ends: Vec<usize>,
    pub(super) line: usize,
    depth: usize,
    /// How many texts given to `tpl` the walk is in.
    texts: usize,
}

/// A call of `lookup`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lookup {
    pub(super) api_version: Possible,
    pub(super) kind: Possible,
    pub(super) name: Possible,
    pub(super) line: usize,
    /// True within a text that is given to `tpl`.
    pub(super) in_text: bool,
}

/// The variables of a template, and its dot.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) dot: Possible,
    variables: Vec<(String, Possible)>,
}

impl Scope {
    pub(super) fn new(dot: Possible) -> Self {
        Self {
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

    /// An assignment may or may not happen, so the variable can be either afterwards.
    pub(super) fn assign(&mut self, name: &str, value: &Possible) {
        if let Some((_, known)) = self.variables.iter_mut().rev().find(|(known, _)| known == name) {
            *known = std::mem::take(known).or(value);
        }
    }
}

impl<'c> Walk<'c> {
    pub(super) fn new(places: &'c [Place<'c>], defines: HashMap<String, Vec<Rc<Tree>>>) -> Self {
        Self {
            places,
            defines,
            holes: Holes::default(),
            found: Vec::new(),
            lookups: Vec::new(),
            printed: BTreeMap::new(),
            calls: HashMap::new(),
            file: Vec::new(),
            line_ends: Vec::new(),
            line: 0,
            depth: 0,
            texts: 0,
        }
    }

    /// Every document that a file can print.
    pub(super) fn file(&mut self, tree: &Tree, dot: Possible) {
        self.file = tree.source.name.as_bytes().to_vec();
        let text = tree.source.text.iter().enumerate();
        self.line_ends = text
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        let mut ways = vec![State::default()];
        self.list(tree, &tree.root, &mut Scope::new(dot), &mut ways);
        let line = self.line;
        for way in ways {
            way.end(line, &mut self.found);
        }
    }

    fn list<S: Sink>(&mut self, tree: &Tree, list: &List, scope: &mut Scope, ways: &mut Vec<S>) {
        for node in &list.nodes {
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
            Node::If(branch) => self.branch(tree, branch, scope, ways, |_, _| {}),
            Node::With(branch) => self.branch(tree, branch, scope, ways, |scope, value| scope.dot = value),
            Node::Range(branch) => self.range(tree, branch, scope, ways),
            // Taken as if they were not there: what follows them is one of the ways then.
            Node::Break { .. } | Node::Continue { .. } => {}
        }
    }

    /// Where the file that is executed is at; a named template's own lines do not count.
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
        enter: impl Fn(&mut Scope, Possible),
    ) {
        self.at(tree, branch.pipe.pos);
        let value = self.pipe(&branch.pipe, scope);
        let (dot, depth) = (scope.dot.clone(), scope.variables.len());
        if let [variable] = branch.pipe.variables.as_slice() {
            scope.declare(&variable.name.lossy(), value.clone());
        }
        let mut otherwise = ways.clone();
        enter(scope, value);
        self.list(tree, &branch.list, scope, ways);
        scope.dot = dot;
        if let Some(list) = &branch.else_list {
            self.list(tree, list, scope, &mut otherwise);
        }
        scope.variables.truncate(depth);
        ways.append(&mut otherwise);
    }

    /// Not at all, once, and twice: what one round prints may meet what the next one does.
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
            self.list(tree, &branch.list, scope, &mut round);
            scope.variables.truncate(depth);
            all.extend(round.iter().cloned());
        }
        scope.dot = dot;
        *ways = all;
    }

    fn action<S: Sink>(&mut self, pipe: &Pipe, scope: &mut Scope, ways: &mut Vec<S>) {
        if !pipe.variables.is_empty() {
            let value = self.pipe(pipe, scope);
            for variable in &pipe.variables {
                let name = variable.name.lossy();
                if pipe.is_assign {
                    scope.assign(&name, &value);
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
        let value = self.pipe(pipe, scope);
        let texts = self.texts(&value);
        for way in others {
            if way.is_indifferent(shape) {
                let mut way = way;
                way.print("", shape, self);
                ways.push(way);
                continue;
            }
            for text in &texts {
                let mut way = way.clone();
                way.print(text, shape, self);
                ways.push(way);
            }
        }
    }

    /// Goes on in a named template with the ways that could print a whole document.
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

    /// What a named template prints, right where the ways are.
    fn include<S: Sink>(&mut self, name: &str, dot: &Possible, shape: Shape, ways: &mut Vec<S>) {
        let Some(trees) = self.defines.get(name).cloned().filter(|_| self.depth < MAX_DEPTH) else {
            let hole = self
                .holes
                .because(&format!("the named template {name:?}, which is not there"));
            let text = hole.as_char().to_string();
            for way in ways {
                way.print(&text, shape, self);
            }
            return;
        };
        if shape.on_new_line {
            for way in &mut *ways {
                way.plain("\n", self);
            }
        }
        self.depth += 1;
        let before = std::mem::take(ways);
        for tree in trees {
            let mut after = before.clone();
            self.list(&tree, &tree.root, &mut Scope::new(dot.clone()), &mut after);
            ways.append(&mut after);
        }
        self.depth -= 1;
    }

    /// The texts that a named template can print.
    pub(super) fn printed(&mut self, name: &str, dot: &Possible) -> Possible {
        let key = (name.to_owned(), dot.clone(), self.is_in_text());
        match self.printed.get(&key) {
            Some(Some(known)) => return known.clone(),
            Some(None) => {
                return Possible::hole(
                    self.holes
                        .because(&format!("the named template {name:?}, which calls itself")),
                );
            }
            None => {}
        }
        self.printed.insert(key.clone(), None);
        let mut ways = vec![Text::default()];
        self.include(name, dot, Shape::default(), &mut ways);
        let texts = ways.into_iter().map(|way| match way {
            Text::Short(text) => Alternative::Text(text.into()),
            Text::Long(hole) => Alternative::Hole(hole),
        });
        let printed = texts.collect::<Possible>().bounded(&mut self.holes);
        self.printed.insert(key, Some(printed.clone()));
        printed
    }

    /// True within a text that is given to `tpl`.
    pub(super) fn is_in_text(&self) -> bool {
        self.texts > 0
    }

    /// The texts that a template, given as text, can print.
    pub(super) fn printed_text(&mut self, text: &str, dot: &Possible) -> Possible {
        let mut set = Set::new("gotpl", helm::functions::all().clone());
        if self.depth >= MAX_DEPTH || set.parse("tpl", text).is_err() {
            return Possible::hole(self.holes.because("a text given to tpl"));
        }
        let Some(tree) = set.tree("tpl").cloned() else {
            return Possible::nothing();
        };
        let mut ways = vec![Text::default()];
        self.depth += 1;
        self.texts += 1;
        self.list(&tree, &tree.root, &mut Scope::new(dot.clone()), &mut ways);
        self.texts -= 1;
        self.depth -= 1;
        let texts = ways.into_iter().map(|way| match way {
            Text::Short(text) => Alternative::Text(text.into()),
            Text::Long(hole) => Alternative::Hole(hole),
        });
        texts.collect::<Possible>().bounded(&mut self.holes)
    }
}

/// `include "name" dot`, with nothing after it that changes more than its indentation.
fn included(pipe: &Pipe) -> Option<(&Expr, &Expr)> {
    let (first, rest) = pipe.commands.split_first()?;
    let is_layout = |command: &gotemplate::ast::Command| {
        ["indent", "nindent", "trim"]
            .iter()
            .any(|name| is_function(&command.args[0], name))
    };
    match first.args.as_slice() {
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

/// How an action lays out what it prints.
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

/// A short text as it is put together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Text {
    Short(String),
    /// Too long to be followed.
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
            // A hole in it is the better reason.
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
}

impl Sink for State {
    const MAX_WAYS: usize = 96;

    fn plain(&mut self, text: &str, walk: &mut Walk<'_>) {
        self.text(text, walk.line, &mut walk.found);
    }

    fn is_indifferent(&self, shape: Shape) -> bool {
        Self::is_indifferent(self, shape)
    }

    fn follows(&self, shape: Shape) -> bool {
        Self::follows(self, shape)
    }

    fn print(&mut self, text: &str, shape: Shape, walk: &mut Walk<'_>) {
        self.printed(text, shape, walk.line, &mut walk.found);
    }

    fn blur(&mut self, walk: &mut Walk<'_>) {
        let hole = walk.holes.because("a template with many ways through it");
        Self::blur(self, hole, walk.line);
    }
}
