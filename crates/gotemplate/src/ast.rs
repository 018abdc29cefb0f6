//! The parse tree of a template, and how Go prints its nodes.

use std::{fmt, ops::Range, sync::Arc};

use crate::{builtin::Builtin, function::Function, string::Str};

/// One template: a file, or the body of a `define` or `block` in it.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The name that templates call it by.
    pub name: Str,
    /// Where it was read from.
    pub source: Arc<Source>,
    /// Its nodes; trees parsed from equal texts share them.
    pub root: Arc<List>,
}

/// A text that contains templates.
#[derive(Debug)]
pub struct Source {
    /// The name of the file, for messages.
    pub name: Str,
    /// The text.
    pub text: Str,
}

/// A position as error messages show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name of the file.
    pub file: Str,
    /// The line, from 1.
    pub line: usize,
    /// The column, in bytes from 0.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Source {
    /// The position of a byte.
    #[expect(clippy::naive_bytecount, reason = "only called for error messages")]
    pub fn location(&self, pos: usize) -> Location {
        let before = &self.text[..pos.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
        Location {
            file: self.name.clone(),
            line,
            column,
        }
    }
}

impl Tree {
    /// Whether it contains nothing but white space, comments and definitions.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

/// A sequence of nodes.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// The nodes.
    pub nodes: Box<[Node]>,
}

impl List {
    /// Whether it contains nothing but white space.
    fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| match node {
            // Trims what Go's `bytes.TrimSpace` trims.
            Node::Text { text, .. } => String::from_utf8_lossy(text).trim().is_empty(),
            _ => false,
        })
    }
}

/// A part of a source text, without a copy of it.
#[derive(Clone)]
pub struct Excerpt {
    text: Str,
    range: Range<usize>,
}

impl Excerpt {
    /// The bytes of that range, which must lie within the text.
    pub(crate) fn new(text: &Str, range: Range<usize>) -> Self {
        Self {
            text: text.clone(),
            range,
        }
    }
}

impl std::ops::Deref for Excerpt {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.text[self.range.clone()]
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self).fmt(f)
    }
}

/// How a string literal is written.
#[derive(Clone, Debug)]
pub enum Quotes {
    /// The value between double quotes.
    Double,
    /// The value between backquotes.
    Raw,
    /// With escapes: the literal with its quotes.
    Escaped(Box<Str>),
}

impl Quotes {
    /// Compares a literal with its value.
    pub(crate) fn of(written: &[u8], text: &[u8]) -> Self {
        match written {
            [b'"', inner @ .., b'"'] if inner == text => Self::Double,
            [b'`', inner @ .., b'`'] if inner == text => Self::Raw,
            _ => Self::Escaped(Box::new(written.into())),
        }
    }
}

/// A node of a template.
#[derive(Clone, Debug)]
pub enum Node {
    /// Plain text.
    Text {
        /// Position in the source.
        pos: usize,
        /// The text, trimmed.
        text: Excerpt,
    },
    /// `{{ pipe }}`
    Action {
        /// Position in the source.
        pos: usize,
        /// The pipeline; its value is printed unless it declares or assigns variables.
        pipe: Pipe,
    },
    /// `{{ if pipe }}`
    If(Branch),
    /// `{{ with pipe }}`
    With(Branch),
    /// `{{ range pipe }}`
    Range(Branch),
    /// `{{ template "name" pipe }}`
    Template {
        /// Position in the source.
        pos: usize,
        /// The name of the template.
        name: Str,
        /// The data that it gets.
        pipe: Option<Pipe>,
    },
    /// `{{ break }}`
    Break {
        /// Position in the source.
        pos: usize,
    },
    /// `{{ continue }}`
    Continue {
        /// Position in the source.
        pos: usize,
    },
}

/// The parts of a control structure.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The condition, or what is iterated over.
    pub pipe: Pipe,
    /// Executed if the condition is true.
    pub list: List,
    /// Executed if it is not.
    pub else_list: Option<List>,
}

/// Commands; each passes its value to the next.
#[derive(Clone, Debug)]
pub struct Pipe {
    /// Position in the source.
    pub pos: usize,
    /// Whether the variables are assigned (`=`) rather than declared (`:=`).
    pub is_assign: bool,
    /// The variables that get the value.
    pub variables: Box<[Variable]>,
    /// The commands.
    pub commands: Box<[Command]>,
}

/// The name of a variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name with its dollar.
    pub name: Str,
    /// Identifies the name within one parse; 0 is `$`.
    pub id: u32,
}

/// An operand with its arguments.
#[derive(Clone, Debug)]
pub struct Command {
    /// Position in the source.
    pub pos: usize,
    /// The operand and the arguments; at least one.
    pub args: Box<[Expr]>,
}

/// An operand.
#[derive(Clone, Debug)]
pub enum Expr {
    /// `.`
    Dot {
        /// Position in the source.
        pos: usize,
    },
    /// `nil`
    Nil {
        /// Position in the source.
        pos: usize,
    },
    /// `true` or `false`
    Bool {
        /// Position in the source.
        pos: usize,
        /// The value.
        value: bool,
    },
    /// A number, or a character constant.
    Number(Box<Number>),
    /// A string.
    String {
        /// Position in the source.
        pos: usize,
        /// How the literal is written.
        quotes: Quotes,
        /// Its value.
        text: Str,
    },
    /// `.a.b`
    Field {
        /// Position in the source, of the second field if there are several.
        pos: usize,
        /// The names; at least one.
        names: Box<[Str]>,
    },
    /// `$x.a.b`
    Variable {
        /// Position in the source, of the first field if there are any.
        pos: usize,
        /// The variable.
        variable: Variable,
        /// The fields accessed on it.
        fields: Box<[Str]>,
    },
    /// The name of a function.
    Function {
        /// Position in the source.
        pos: usize,
        /// The name.
        name: Str,
        /// The function.
        callee: Callee,
    },
    /// `(pipe).a.b`
    Chain {
        /// Position in the source, of the first field.
        pos: usize,
        /// The operand that the fields are accessed on.
        node: Box<Expr>,
        /// The fields; at least one.
        fields: Box<[Str]>,
    },
    /// `(pipe)`
    Pipe(Box<Pipe>),
}

/// The function that a name refers to.
#[derive(Clone, Debug)]
pub enum Callee {
    /// A function of the language.
    Builtin(Builtin),
    /// A function of the host.
    Function(Function),
}

/// A number. It may fit several types; the place where it is used decides which one it takes.
#[derive(Clone, Debug)]
pub struct Number {
    /// Position in the source.
    pub pos: usize,
    /// As written.
    pub text: Str,
    /// Its value as signed integer.
    pub int: Option<i64>,
    /// Its value as unsigned integer.
    pub uint: Option<u64>,
    /// Its value as float.
    pub float: Option<f64>,
    /// Its value as complex number, if written as one.
    pub complex: Option<(f64, f64)>,
}

/// The type that a number takes where nothing says which type is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ideal {
    Int(i64),
    Float(f64),
    Complex(f64, f64),
    Overflow,
}

impl Number {
    /// Go's `idealConstant`: the notation decides.
    pub(crate) fn ideal(&self) -> Ideal {
        if let Some((re, im)) = self.complex {
            return Ideal::Complex(re, im);
        }
        let is_float = || {
            let text = self.text.as_bytes();
            let is_hex_int =
                matches!(text, [b'0', b'x' | b'X', _, ..]) && !text.iter().any(|byte| b"pP".contains(byte));
            !is_hex_int && text[0] != b'\'' && text.iter().any(|byte| b".eEpP".contains(byte))
        };
        match (self.float, self.int) {
            (Some(float), _) if is_float() => Ideal::Float(float),
            (_, Some(int)) => Ideal::Int(int),
            _ => Ideal::Overflow,
        }
    }
}

impl Node {
    pub(crate) fn pos(&self) -> usize {
        match self {
            Self::Text { pos, .. }
            | Self::Action { pos, .. }
            | Self::Template { pos, .. }
            | Self::Break { pos }
            | Self::Continue { pos } => *pos,
            Self::If(branch) | Self::With(branch) | Self::Range(branch) => branch.pipe.pos,
        }
    }
}

impl Expr {
    pub(crate) fn pos(&self) -> usize {
        match self {
            Self::Dot { pos }
            | Self::Nil { pos }
            | Self::Bool { pos, .. }
            | Self::String { pos, .. }
            | Self::Field { pos, .. }
            | Self::Variable { pos, .. }
            | Self::Function { pos, .. }
            | Self::Chain { pos, .. } => *pos,
            Self::Number(number) => number.pos,
            Self::Pipe(pipe) => pipe.pos,
        }
    }

    /// Whether it may only be the first command of a pipeline.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(
            self,
            Self::Bool { .. } | Self::Dot { .. } | Self::Nil { .. } | Self::Number(_) | Self::String { .. }
        )
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|node| node.fmt(f))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text, .. } => f.write_str(&String::from_utf8_lossy(text)),
            Self::Action { pipe, .. } => write!(f, "{{{{{pipe}}}}}"),
            Self::If(branch) => branch.print("if", f),
            Self::With(branch) => branch.print("with", f),
            Self::Range(branch) => branch.print("range", f),
            Self::Template { name, pipe, .. } => {
                write!(
                    f,
                    "{{{{template {}",
                    String::from_utf8_lossy(&crate::quote::quote(name))
                )?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
            Self::Break { .. } => f.write_str("{{break}}"),
            Self::Continue { .. } => f.write_str("{{continue}}"),
        }
    }
}

impl Branch {
    fn print(&self, keyword: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{{keyword} {}}}}}{}", self.pipe, self.list)?;
        if let Some(list) = &self.else_list {
            write!(f, "{{{{else}}}}{list}")?;
        }
        f.write_str("{{end}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, variable) in self.variables.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, variable.name)?;
        }
        if !self.variables.is_empty() {
            f.write_str(if self.is_assign { " = " } else { " := " })?;
        }
        for (i, command) in self.commands.iter().enumerate() {
            write!(f, "{}{command}", if i > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, arg) in self.args.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            match arg {
                Expr::Pipe(pipe) => write!(f, "({pipe})")?,
                arg => arg.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dot { .. } => f.write_str("."),
            Self::Nil { .. } => f.write_str("nil"),
            Self::Bool { value, .. } => value.fmt(f),
            Self::Number(number) => number.text.fmt(f),
            Self::String { quotes, text, .. } => match quotes {
                Quotes::Double => write!(f, "\"{text}\""),
                Quotes::Raw => write!(f, "`{text}`"),
                Quotes::Escaped(written) => written.fmt(f),
            },
            Self::Field { names, .. } => fields(names, f),
            Self::Variable {
                variable,
                fields: names,
                ..
            } => {
                variable.name.fmt(f)?;
                fields(names, f)
            }
            Self::Function { name, .. } => name.fmt(f),
            Self::Chain {
                node, fields: names, ..
            } => {
                match &**node {
                    Self::Pipe(pipe) => write!(f, "({pipe})")?,
                    node => node.fmt(f)?,
                }
                fields(names, f)
            }
            Self::Pipe(pipe) => pipe.fmt(f),
        }
    }
}

fn fields(names: &[Str], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, ".{name}"))
}
