//! Parses tokens into trees: Go's `text/template/parse/parse.go`.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Branch, Callee, Command, Excerpt, Expr, List, Node, Number, Pipe, Quotes, Source, Tree, Variable},
    builtin::Builtin,
    function::Functions,
    lex::{Delimiters, Item, ItemKind, Lexer},
    number,
    quote::{self, Unquoted},
    stack::Stack,
    string::Str,
};

/// The text is not a valid template. The message is Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template: {file}:{line}: {message}")]
pub struct Error {
    /// The name of the file.
    pub file: Str,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// The trees of one text, in the order in which they end; the tree of the text itself comes last.
pub(crate) fn parse(
    name: &Str,
    text: &Str,
    delimiters: Delimiters<'_>,
    functions: &Functions,
) -> Result<Vec<Arc<Tree>>, Error> {
    let source = Arc::new(Source {
        name: name.clone(),
        text: text.clone(),
    });
    let mut parser = Parser {
        source: &source,
        functions,
        lexer: Lexer::new(text, delimiters),
        state: State::new(),
        trees: Trees::default(),
        variables: vec!["$".into()],
        unfinished: Unfinished::default(),
        stack: Stack::new(STACK),
    };
    parser.start();
    let root = parser.file()?;
    parser.add(name.clone(), root)?;
    Ok(parser.trees.in_order)
}

/// Maximum nesting of parentheses.
const MAX_PARENTHESES: usize = 10_000;
/// Bytes of stack that a parse may use; deeper nesting is an error of the template.
const STACK: usize = 768 << 10;

type Result<T = (), E = Error> = std::result::Result<T, E>;

struct Parser<'p, 't> {
    source: &'p Arc<Source>,
    functions: &'p Functions,
    lexer: Lexer<'t>,
    state: State<'t>,
    trees: Trees,
    /// The names of all variables; the index is the id.
    variables: Vec<Str>,
    unfinished: Unfinished,
    stack: Stack,
}

/// Stacks for the parts of unfinished nodes, the innermost on top, so that each finished list is allocated once with its final size.
#[derive(Default)]
struct Unfinished {
    nodes: Vec<Node>,
    commands: Vec<Command>,
    operands: Vec<Expr>,
    names: Vec<Str>,
}

/// Pops everything above that height.
fn above<T>(unfinished: &mut Vec<T>, height: usize) -> Box<[T]> {
    unfinished.drain(height..).collect()
}

#[derive(Default)]
struct Trees {
    by_name: HashMap<Str, usize>,
    in_order: Vec<Arc<Tree>>,
}

/// State of one tree; a `define` or `block` starts with a new one.
struct State<'t> {
    /// Lookahead as in Go: the token read last is `tokens[peeked]`.
    tokens: [Item<'t>; 3],
    peeked: usize,
    /// The variables in scope.
    scope: Vec<u32>,
    /// The line where the current action started; 0 outside.
    action_line: usize,
    range_depth: usize,
    parentheses: usize,
}

impl State<'_> {
    fn new() -> Self {
        Self {
            tokens: [Item::NONE; 3],
            peeked: 0,
            scope: vec![0],
            action_line: 0,
            range_depth: 0,
            parentheses: 0,
        }
    }
}

/// How a list of nodes ended.
enum Terminator {
    End,
    Else,
}

impl Terminator {
    fn text(&self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

enum Parsed {
    Node(Node),
    Terminator(Terminator),
}

impl<'t> Parser<'_, 't> {
    fn next(&mut self) -> Item<'t> {
        let state = &mut self.state;
        if state.peeked > 0 {
            state.peeked -= 1;
        } else {
            state.tokens[0] = self.lexer.next_item();
        }
        state.tokens[state.peeked]
    }

    fn backup(&mut self) {
        self.state.peeked += 1;
    }

    /// Steps back over two tokens; the second one is still in place.
    fn backup2(&mut self, first: Item<'t>) {
        self.state.tokens[1] = first;
        self.state.peeked = 2;
    }

    fn backup3(&mut self, first: Item<'t>, second: Item<'t>) {
        self.state.tokens[1] = second;
        self.state.tokens[2] = first;
        self.state.peeked = 3;
    }

    fn peek(&mut self) -> Item<'t> {
        let state = &mut self.state;
        if state.peeked == 0 {
            state.peeked = 1;
            state.tokens[0] = self.lexer.next_item();
        }
        state.tokens[state.peeked - 1]
    }

    fn next_non_space(&mut self) -> Item<'t> {
        loop {
            let token = self.next();
            if token.kind != ItemKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Item<'t> {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        let line = self.state.tokens[0].line;
        Err(Error {
            file: self.source.name.clone(),
            line,
            message: message.into(),
        })
    }

    fn expect(&mut self, kind: ItemKind, context: &str) -> Result<Item<'t>> {
        let token = self.next_non_space();
        if token.kind == kind {
            Ok(token)
        } else {
            self.unexpected(token, context)
        }
    }

    fn unexpected<T>(&self, token: Item<'t>, context: &str) -> Result<T> {
        if token.kind != ItemKind::Error {
            return self.error(format!("unexpected {} in {context}", token.describe()));
        }
        let message = &self.lexer.error;
        let started = self.state.action_line;
        if started == 0 || started == token.line {
            return self.error(message);
        }
        // Avoids "unclosed action in action started".
        let link = if message.ends_with(" action") {
            " started"
        } else {
            " in action started"
        };
        self.error(format!("{message}{link} at {}:{started}", self.source.name))
    }

    /// Prepares the lexer for a new tree.
    fn start(&mut self) {
        self.lexer.break_is_keyword = !self.has_function(b"break");
        self.lexer.continue_is_keyword = !self.has_function(b"continue");
    }

    fn has_function(&self, name: &[u8]) -> bool {
        self.functions.get(name).is_some() || Builtin::named(name).is_some()
    }

    fn add(&mut self, name: Str, root: List) -> Result {
        let tree = Arc::new(Tree {
            name: name.clone(),
            source: self.source.clone(),
            root: Arc::new(root),
        });
        let trees = &mut self.trees;
        match trees.by_name.get(&name) {
            None => {
                trees.by_name.insert(name, trees.in_order.len());
                trees.in_order.push(tree);
            }
            Some(&known) if trees.in_order[known].is_empty() => trees.in_order[known] = tree,
            Some(_) if tree.is_empty() => {}
            Some(_) => {
                let name = quote::quote(&name);
                let name = String::from_utf8_lossy(&name);
                return self.error(format!("template: multiple definition of template {name}"));
            }
        }
        Ok(())
    }

    /// The whole text; `define` is only allowed at this level.
    fn file(&mut self) -> Result<List> {
        let height = self.unfinished.nodes.len();
        while self.peek().kind != ItemKind::Eof {
            if self.peek().kind == ItemKind::LeftDelim {
                let delim = self.next();
                if self.next_non_space().kind == ItemKind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup2(delim);
            }
            match self.text_or_action()? {
                Parsed::Node(node) => self.unfinished.nodes.push(node),
                Parsed::Terminator(terminator) => {
                    return self.error(format!("unexpected {}", terminator.text()));
                }
            }
        }
        Ok(self.list_above(height))
    }

    fn list_above(&mut self, height: usize) -> List {
        List {
            nodes: above(&mut self.unfinished.nodes, height),
        }
    }

    /// `{{define "name"}} ... {{end}}`, starting after the keyword.
    fn definition(&mut self) -> Result {
        let context = "define clause";
        let outer = std::mem::replace(&mut self.state, State::new());
        self.start();
        let token = self.next_non_space();
        if !matches!(token.kind, ItemKind::String | ItemKind::RawString) {
            return self.unexpected(token, context);
        }
        let name = self.unquote(token)?;
        self.expect(ItemKind::RightDelim, context)?;
        match self.item_list()? {
            (list, Terminator::End) => self.add(name, list)?,
            (_, Terminator::Else) => self.unexpected_else(context)?,
        }
        self.state = outer;
        Ok(())
    }

    fn unexpected_else<T>(&self, context: &str) -> Result<T> {
        self.error(format!("unexpected {} in {context}", Terminator::Else.text()))
    }

    fn unquote(&self, token: Item<'t>) -> Result<Str> {
        match quote::unquote(token.text) {
            Ok(text) => Ok(text.into()),
            Err(error) => self.error(error.to_string()),
        }
    }

    fn item_list(&mut self) -> Result<(List, Terminator)> {
        if self.stack.is_exhausted() {
            return self.error("max nesting depth exceeded");
        }
        let height = self.unfinished.nodes.len();
        while self.peek_non_space().kind != ItemKind::Eof {
            match self.text_or_action()? {
                Parsed::Node(node) => self.unfinished.nodes.push(node),
                Parsed::Terminator(terminator) => return Ok((self.list_above(height), terminator)),
            }
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Parsed> {
        let token = self.next_non_space();
        match token.kind {
            ItemKind::Text => Ok(Parsed::Node(Node::Text {
                pos: token.pos,
                text: Excerpt::new(&self.source.text, token.pos..token.pos + token.text.len()),
            })),
            ItemKind::LeftDelim => {
                self.state.action_line = token.line;
                let action = self.action()?;
                self.state.action_line = 0;
                Ok(action)
            }
            _ => self.unexpected(token, "input"),
        }
    }

    fn action(&mut self) -> Result<Parsed> {
        let token = self.next_non_space();
        Ok(Parsed::Node(match token.kind {
            ItemKind::Block => self.block()?,
            ItemKind::Break => {
                self.loop_control("{{break}}")?;
                Node::Break { pos: token.pos }
            }
            ItemKind::Continue => {
                self.loop_control("{{continue}}")?;
                Node::Continue { pos: token.pos }
            }
            ItemKind::Else => {
                // The parser of the branch parses the `if` or `with`.
                if !matches!(self.peek_non_space().kind, ItemKind::If | ItemKind::With) {
                    self.expect(ItemKind::RightDelim, "else")?;
                }
                return Ok(Parsed::Terminator(Terminator::Else));
            }
            ItemKind::End => {
                self.expect(ItemKind::RightDelim, "end")?;
                return Ok(Parsed::Terminator(Terminator::End));
            }
            ItemKind::If => Node::If(self.branch("if")?),
            ItemKind::Range => Node::Range(self.branch("range")?),
            ItemKind::Template => self.template()?,
            ItemKind::With => Node::With(self.branch("with")?),
            _ => {
                self.backup();
                let pos = self.peek().pos;
                Node::Action {
                    pos,
                    pipe: self.pipeline("command", ItemKind::RightDelim)?,
                }
            }
        }))
    }

    fn loop_control(&mut self, what: &str) -> Result {
        let token = self.next_non_space();
        if token.kind != ItemKind::RightDelim {
            return self.unexpected(token, what);
        }
        if self.state.range_depth == 0 {
            return self.error(format!("{what} outside {{{{range}}}}"));
        }
        Ok(())
    }

    fn branch(&mut self, context: &str) -> Result<Branch> {
        let scope = self.state.scope.len();
        let pipe = self.pipeline(context, ItemKind::RightDelim)?;
        let is_range = usize::from(context == "range");
        self.state.range_depth += is_range;
        let (list, terminator) = self.item_list()?;
        self.state.range_depth -= is_range;
        let else_list = match terminator {
            Terminator::End => None,
            Terminator::Else => Some(self.else_list(context)?),
        };
        self.state.scope.truncate(scope);
        Ok(Branch {
            pipe,
            list,
            else_list,
        })
    }

    /// What follows an `else`. `{{else if x}}` is a nested branch that shares the end of the outer one.
    fn else_list(&mut self, context: &str) -> Result<List> {
        let inner: Option<fn(Branch) -> Node> = match (context, self.peek().kind) {
            ("if", ItemKind::If) => Some(Node::If),
            ("with", ItemKind::With) => Some(Node::With),
            _ => None,
        };
        if let Some(node) = inner {
            self.next();
            return Ok(List {
                nodes: Box::new([node(self.branch(context)?)]),
            });
        }
        let (list, terminator) = self.item_list()?;
        match terminator {
            Terminator::End => Ok(list),
            Terminator::Else => self.error(format!("expected end; found {}", terminator.text())),
        }
    }

    /// `{{block "name" pipe}} ... {{end}}`: a definition and its use.
    fn block(&mut self) -> Result<Node> {
        let context = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(token, context)?;
        let pipe = self.pipeline(context, ItemKind::RightDelim)?;
        let outer = std::mem::replace(&mut self.state, State::new());
        self.start();
        let (list, terminator) = self.item_list()?;
        if let Terminator::Else = terminator {
            // Go reports the line of the `block` here.
            self.state = outer;
            return self.unexpected_else(context);
        }
        self.add(name.clone(), list)?;
        self.state = outer;
        Ok(Node::Template {
            pos: token.pos,
            name,
            pipe: Some(pipe),
        })
    }

    fn template(&mut self) -> Result<Node> {
        let context = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(token, context)?;
        let mut pipe = None;
        if self.next_non_space().kind != ItemKind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(context, ItemKind::RightDelim)?);
        }
        Ok(Node::Template {
            pos: token.pos,
            name,
            pipe,
        })
    }

    fn template_name(&mut self, token: Item<'t>, context: &str) -> Result<Str> {
        match token.kind {
            ItemKind::String | ItemKind::RawString => self.unquote(token),
            _ => self.unexpected(token, context),
        }
    }

    fn pipeline(&mut self, context: &str, end: ItemKind) -> Result<Pipe> {
        let pos = self.peek_non_space().pos;
        let height = self.unfinished.commands.len();
        let (variables, is_assign) = self.declarations(context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => {
                    let commands = above(&mut self.unfinished.commands, height);
                    self.check_pipeline(&commands, context)?;
                    return Ok(Pipe {
                        pos,
                        is_assign,
                        variables: variables.into(),
                        commands,
                    });
                }
                ItemKind::Bool
                | ItemKind::CharConstant
                | ItemKind::Complex
                | ItemKind::Dot
                | ItemKind::Field
                | ItemKind::Identifier
                | ItemKind::Number
                | ItemKind::Nil
                | ItemKind::RawString
                | ItemKind::String
                | ItemKind::Variable
                | ItemKind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    self.unfinished.commands.push(command);
                }
                _ => return self.unexpected(token, context),
            }
        }
    }

    /// `$x :=`, `$x =`, and in a range `$x, $y :=`: the variables, and whether they are assigned. Anything else is put back.
    fn declarations(&mut self, context: &str) -> Result<(Vec<Variable>, bool)> {
        let mut variables = Vec::new();
        loop {
            let token = self.peek_non_space();
            if token.kind != ItemKind::Variable {
                return Ok((variables, false));
            }
            self.next();
            // Three tokens are needed to see that `$x` is an operand in `$x foo`, as the space is a token.
            let after = self.peek();
            let next = self.peek_non_space();
            if matches!(next.kind, ItemKind::Assign | ItemKind::Declare) {
                self.next_non_space();
                variables.push(self.declare(token));
                return Ok((variables, next.kind == ItemKind::Assign));
            }
            if next.kind == ItemKind::Char && next.text == b"," {
                self.next_non_space();
                variables.push(self.declare(token));
                if context != "range" || variables.len() >= 2 {
                    return self.error(format!("too many declarations in {context}"));
                }
                match self.peek_non_space().kind {
                    ItemKind::Variable | ItemKind::RightDelim | ItemKind::RightParen => continue,
                    _ => return self.error("range can only initialize variables"),
                }
            }
            if after.kind == ItemKind::Space {
                self.backup3(token, after);
            } else {
                self.backup2(token);
            }
            return Ok((variables, false));
        }
    }

    fn declare(&mut self, token: Item<'t>) -> Variable {
        let variable = self.variable(token.text);
        self.state.scope.push(variable.id);
        variable
    }

    fn variable(&mut self, name: &[u8]) -> Variable {
        let known = self.variables.iter().position(|known| known.as_bytes() == name);
        let id = known.unwrap_or_else(|| {
            self.variables.push(name.into());
            self.variables.len() - 1
        });
        Variable {
            name: self.variables[id].clone(),
            id: id as u32,
        }
    }

    fn check_pipeline(&self, commands: &[Command], context: &str) -> Result {
        if commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        match commands[1..]
            .iter()
            .position(|command| command.args[0].is_literal())
        {
            Some(i) => self.error(format!("non executable command in pipeline stage {}", i + 2)),
            None => Ok(()),
        }
    }

    fn command(&mut self) -> Result<Command> {
        let pos = self.peek_non_space().pos;
        let height = self.unfinished.operands.len();
        loop {
            if let Some(operand) = self.operand()? {
                self.unfinished.operands.push(operand);
            }
            let token = self.next();
            match token.kind {
                ItemKind::Space => {}
                ItemKind::RightDelim | ItemKind::RightParen => {
                    self.backup();
                    break;
                }
                ItemKind::Pipe => break,
                _ => return self.unexpected(token, "operand"),
            }
        }
        let args = above(&mut self.unfinished.operands, height);
        if args.is_empty() {
            return self.error("empty command");
        }
        Ok(Command { pos, args })
    }

    /// A term followed by fields.
    fn operand(&mut self) -> Result<Option<Expr>> {
        let first = self.next_non_space();
        self.backup();
        if first.kind == ItemKind::Field {
            let names = self.fields();
            let pos = if names.len() > 1 {
                first.pos + first.text.len()
            } else {
                first.pos
            };
            return Ok(Some(Expr::Field { pos, names }));
        }
        let Some(term) = self.term()? else {
            return Ok(None);
        };
        let pos = self.peek().pos;
        if self.peek().kind != ItemKind::Field {
            return Ok(Some(term));
        }
        let names = self.fields();
        Ok(Some(match term {
            Expr::Variable { variable, .. } => Expr::Variable {
                pos,
                variable,
                fields: names,
            },
            term if term.is_literal() => {
                let term = quote::quote(term.to_string().as_bytes());
                return self.error(format!(
                    "unexpected . after term {}",
                    String::from_utf8_lossy(&term)
                ));
            }
            term => Expr::Chain {
                pos,
                node: Box::new(term),
                fields: names,
            },
        }))
    }

    /// Parses consecutive field names.
    fn fields(&mut self) -> Box<[Str]> {
        let height = self.unfinished.names.len();
        while self.peek().kind == ItemKind::Field {
            let name = self.next().text[1..].into();
            self.unfinished.names.push(name);
        }
        above(&mut self.unfinished.names, height)
    }

    fn term(&mut self) -> Result<Option<Expr>> {
        let token = self.next_non_space();
        let pos = token.pos;
        Ok(Some(match token.kind {
            ItemKind::Identifier => self.function(token)?,
            ItemKind::Dot => Expr::Dot { pos },
            ItemKind::Nil => Expr::Nil { pos },
            ItemKind::Variable => self.use_variable(token)?,
            ItemKind::Bool => Expr::Bool {
                pos,
                value: token.text == b"true",
            },
            ItemKind::CharConstant | ItemKind::Complex | ItemKind::Number => match read_number(token) {
                Ok(number) => Expr::Number(Box::new(number)),
                Err(message) => return self.error(message),
            },
            ItemKind::LeftParen => {
                if self.state.parentheses >= MAX_PARENTHESES || self.stack.is_exhausted() {
                    return self.error("max expression depth exceeded");
                }
                self.state.parentheses += 1;
                let pipe = self.pipeline("parenthesized pipeline", ItemKind::RightParen)?;
                self.state.parentheses -= 1;
                Expr::Pipe(Box::new(pipe))
            }
            ItemKind::String | ItemKind::RawString => {
                let text = self.unquote(token)?;
                Expr::String {
                    pos,
                    quotes: Quotes::of(token.text, &text),
                    text,
                }
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        }))
    }

    fn function(&mut self, token: Item<'t>) -> Result<Expr> {
        let callee = if let Some(function) = self.functions.get(token.text) {
            Callee::Function(function.clone())
        } else if let Some(builtin) = Builtin::named(token.text) {
            Callee::Builtin(builtin)
        } else {
            let name = quote::quote(token.text);
            return self.error(format!("function {} not defined", String::from_utf8_lossy(&name)));
        };
        Ok(Expr::Function {
            pos: token.pos,
            name: token.text.into(),
            callee,
        })
    }

    fn use_variable(&mut self, token: Item<'t>) -> Result<Expr> {
        let variable = self.variable(token.text);
        if !self.state.scope.contains(&variable.id) {
            let name = quote::quote(token.text);
            return self.error(format!("undefined variable {}", String::from_utf8_lossy(&name)));
        }
        Ok(Expr::Variable {
            pos: token.pos,
            variable,
            fields: Box::new([]),
        })
    }
}

/// Go's `newNumber`: the value for each type that the number fits.
fn read_number(token: Item<'_>) -> Result<Number, String> {
    let mut number = Number {
        pos: token.pos,
        text: token.text.into(),
        int: None,
        uint: None,
        float: None,
        complex: None,
    };
    let text = String::from_utf8_lossy(token.text);
    let quoted = || String::from_utf8_lossy(&quote::quote(token.text)).into_owned();
    if token.kind == ItemKind::CharConstant {
        let (c, tail) = quote::unquote_char(&token.text[1..], b'\'').map_err(|error| error.to_string())?;
        if tail != b"'" {
            return Err(format!("malformed character constant: {text}"));
        }
        let code = match c {
            Unquoted::Byte(byte) => u32::from(byte),
            Unquoted::Char(c) => u32::from(c),
        };
        number.int = Some(code.into());
        number.uint = Some(code.into());
        number.float = Some(code.into());
        return Ok(number);
    }
    if token.kind == ItemKind::Complex {
        let (re, im) = split_complex(&text).ok_or("syntax error scanning complex number")?;
        set_complex(&mut number, re, im);
        return Ok(number);
    }
    if let Some(im) = text.strip_suffix('i').and_then(number::parse_float) {
        set_complex(&mut number, 0.0, im);
        return Ok(number);
    }
    number.uint = number::parse_uint(&text);
    number.int = number::parse_int(&text);
    if number.int == Some(0) {
        number.uint = Some(0);
    }
    match (number.int, number.uint) {
        (Some(int), _) => number.float = Some(int as f64),
        (None, Some(uint)) => number.float = Some(uint as f64),
        (None, None) => {
            let float =
                number::parse_float(&text).ok_or_else(|| format!("illegal number syntax: {}", quoted()))?;
            if !text.contains(['.', 'e', 'E', 'p', 'P']) {
                return Err(format!("integer overflow: {}", quoted()));
            }
            number.float = Some(float);
            number.int = exact_int(float);
            number.uint = exact_uint(float);
        }
    }
    Ok(number)
}

fn set_complex(number: &mut Number, re: f64, im: f64) {
    number.complex = Some((re, im));
    if im == 0.0 {
        number.float = Some(re);
        number.int = exact_int(re);
        number.uint = exact_uint(re);
    }
}

fn exact_int(float: f64) -> Option<i64> {
    // -2^63 is a float, 2^63 - 1 is not.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    (fits && float.fract() == 0.0).then_some(float as i64)
}

fn exact_uint(float: f64) -> Option<u64> {
    ((0.0..18_446_744_073_709_551_616.0).contains(&float) && float.fract() == 0.0).then_some(float as u64)
}

/// Splits `1+2i` into its parts, at the last sign that does not belong to an exponent.
fn split_complex(text: &str) -> Option<(f64, f64)> {
    let body = text.strip_suffix('i')?;
    let bytes = body.as_bytes();
    let at = (1..bytes.len())
        .rev()
        .find(|&i| matches!(bytes[i], b'+' | b'-') && !matches!(bytes[i - 1], b'e' | b'E' | b'p' | b'P'))?;
    Some((
        number::parse_float(&body[..at])?,
        number::parse_float(&body[at..])?,
    ))
}
