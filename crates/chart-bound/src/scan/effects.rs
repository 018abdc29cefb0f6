//! Finds expressions with side effects. Most have none, and need no evaluation where their value is unused.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use gotemplate::ast::{Expr, List, Node, Pipe, Tree};
use gotemplate::string::Str;

/// The variable that charts assign unwanted results to.
const BLANK: &[u8] = b"$_";

/// The templates with each name: which one is called depends on which subcharts are enabled.
pub(super) type Defines = HashMap<String, Rc<[Rc<Tree>]>>;

/// The named templates that can lead to a lookup.
#[derive(Debug, Default)]
pub(super) struct Effects {
    looking_up: HashSet<String>,
}

impl Effects {
    pub(super) fn new(defines: &Defines) -> Self {
        let mut effects = Self::default();
        let mut callers: HashMap<String, Vec<&str>> = HashMap::new();
        // From the templates that look something up themselves, back to all their callers.
        let mut to_visit = Vec::new();
        for (name, trees) in defines {
            for tree in trees.iter() {
                visit_list(&tree.root, &mut |reference| match reference.called() {
                    Some(Called::Named(called)) => callers.entry(called).or_default().push(name),
                    Some(Called::Unknown | Called::Lookup) => to_visit.push(name.as_str()),
                    Some(Called::Set) | None => {}
                });
            }
        }
        while let Some(name) = to_visit.pop() {
            if effects.looking_up.insert(name.to_owned()) {
                to_visit.extend(callers.get(name).into_iter().flatten());
            }
        }
        effects
    }

    /// True when a pipeline can look something up or change a variable.
    pub(super) fn of(&self, pipe: &Pipe) -> bool {
        let mut has_effect = pipe.is_assign;
        visit_pipe(pipe, &mut |reference| {
            has_effect |= match reference.called() {
                Some(Called::Named(name)) => self.looking_up.contains(&name),
                Some(Called::Unknown | Called::Lookup | Called::Set) => true,
                None => false,
            };
        });
        has_effect
    }
}

/// True when a pipeline's value is assigned to the variable for unwanted results.
pub(super) fn is_blank(pipe: &Pipe) -> bool {
    let [variable] = &pipe.variables[..] else {
        return false;
    };
    variable.name.as_bytes() == BLANK
}

/// True when a template does read `$_`.
pub(super) fn reads_blank(tree: &Tree) -> bool {
    let mut is_read = false;
    visit_list(&tree.root, &mut |reference| {
        is_read |= matches!(reference, Reference::Variable(name) if name.as_bytes() == BLANK);
    });
    is_read
}

/// Something that a template refers to.
enum Reference<'t> {
    /// A function with its arguments, except the piped one.
    Call(&'t Str, &'t [Expr]),
    /// `{{ template }}`
    Template(&'t Str),
    /// A variable that is read.
    Variable(&'t Str),
}

/// A call that has effects or may have them.
enum Called {
    /// A named template.
    Named(String),
    /// A template whose name is computed, or that is given as text.
    Unknown,
    /// `lookup`
    Lookup,
    /// `set`
    Set,
}

impl Reference<'_> {
    fn called(&self) -> Option<Called> {
        let name = |name: &Str| Called::Named(name.lossy().into_owned());
        Some(match self {
            Self::Template(called) => name(called),
            Self::Call(function, arguments) => match (function.as_bytes(), arguments.first()) {
                (b"include", Some(Expr::String { text, .. })) => name(text),
                (b"include" | b"tpl", _) => Called::Unknown,
                (b"lookup", _) => Called::Lookup,
                (b"set", _) => Called::Set,
                _ => return None,
            },
            Self::Variable(_) => return None,
        })
    }
}

fn visit_list<'t>(list: &'t List, see: &mut impl FnMut(Reference<'t>)) {
    for node in &list.nodes {
        match node {
            Node::Text { .. } | Node::Break { .. } | Node::Continue { .. } => {}
            Node::Action { pipe, .. } => visit_pipe(pipe, see),
            Node::Template { name, pipe, .. } => {
                see(Reference::Template(name));
                if let Some(pipe) = pipe {
                    visit_pipe(pipe, see);
                }
            }
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                visit_pipe(&branch.pipe, see);
                visit_list(&branch.list, see);
                if let Some(list) = &branch.else_list {
                    visit_list(list, see);
                }
            }
        }
    }
}

fn visit_pipe<'t>(pipe: &'t Pipe, see: &mut impl FnMut(Reference<'t>)) {
    for command in &pipe.commands {
        if let [Expr::Function { name, .. }, arguments @ ..] = &command.args[..] {
            see(Reference::Call(name, arguments));
            for argument in arguments {
                visit(argument, see);
            }
        } else {
            for argument in &command.args {
                visit(argument, see);
            }
        }
    }
}

fn visit<'t>(expression: &'t Expr, see: &mut impl FnMut(Reference<'t>)) {
    match expression {
        Expr::Pipe(pipe) => visit_pipe(pipe, see),
        Expr::Chain { node, .. } => visit(node, see),
        Expr::Variable { variable, .. } => see(Reference::Variable(&variable.name)),
        Expr::Function { name, .. } => see(Reference::Call(name, &[])),
        Expr::Dot { .. }
        | Expr::Nil { .. }
        | Expr::Bool { .. }
        | Expr::Number(_)
        | Expr::String { .. }
        | Expr::Field { .. } => {}
    }
}
