//! Executes trees on data and returns text: Go's `text/template/exec.go`.

use std::{any::Any, cell::Cell, fmt, ops::Deref, sync::Arc};

pub use crate::budget::{Budget, Limit, Limits, Spent};
use crate::{
    ast::{Branch, Callee, Command, Expr, Ideal, List, Location, Node, Number, Pipe, Tree},
    budget::STEPS_AT_ONCE,
    builtin::{self, Builtin},
    changes::Watch,
    format,
    function::{self, Call, Function, Runtime},
    include_cache::{Cost, IncludeCache},
    marks::{self, Marks},
    quote,
    reflect::Reflect,
    set::Set,
    stack::Stack,
    string::Str,
    types::{self, Kind, Type},
    value::{Map, Value},
};

/// The result of a field access on a map that lacks the key: Go's option `missingkey`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// No value; field access on it is silent.
    #[default]
    Invalid,
    /// The zero value of the element type. Helm's mode.
    Zero,
    /// An error. Helm's strict mode.
    Error,
}

/// The inputs of an execution besides its data.
#[derive(Clone, Copy)]
pub struct Options<'h> {
    /// What a missing key of a map means.
    pub missing_key: MissingKey,
    /// The limits if there is no budget.
    pub limits: Limits,
    /// The budget shared with other executions, with its own limits.
    pub budget: Option<&'h Budget<'h>>,
    /// Returned to functions by [`Call::host`].
    pub host: &'h dyn Any,
    /// Outputs of included templates, shared by executions with the same set and host.
    pub include_cache: Option<&'h IncludeCache>,
    /// A number that changes whenever a function returns a result that it may not return again, such as a random one.
    pub host_changes: Option<&'h dyn Fn() -> u64>,
    /// Marks in the output which characters are the templates' own.
    pub marks: Option<&'h dyn Marks>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            missing_key: MissingKey::default(),
            limits: Limits::default(),
            budget: None,
            host: &(),
            include_cache: None,
            host_changes: None,
            marks: None,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("missing_key", &self.missing_key)
            .field("limits", &self.limits)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// The error of an execution. Its text is Go's one-line chain.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    context: Option<ErrorContext>,
    message: String,
    cause: Option<function::Error>,
}

/// Where an execution failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorContext {
    /// The position in the source.
    pub location: Location,
    /// The template that was executing.
    pub executing: Str,
    /// The node, as Go prints it.
    pub node: String,
}

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            context: None,
            message: message.into(),
            cause: None,
        }))
    }

    /// Where it happened; none if there was no template to execute.
    pub fn context(&self) -> Option<&ErrorContext> {
        self.0.context.as_ref()
    }

    /// What happened there, without the [cause](Self::cause): `error calling include`.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The error of the function that failed.
    pub fn cause(&self) -> Option<&function::Error> {
        self.0.cause.as_ref()
    }

    /// The next link of the chain: the error of the execution that the function had started.
    pub fn inner(&self) -> Option<&Error> {
        self.cause()?.downcast_ref()
    }

    /// The limit that was exceeded, if that is what ended the chain.
    pub fn limit(&self) -> Option<Limit> {
        // An error of the host, such as that of `tpl`, may wrap the limit.
        let first: &(dyn std::error::Error + 'static) = self.cause()?.as_error();
        std::iter::successors(Some(first), |error| error.source())
            .find_map(|error| error.downcast_ref().copied())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        if let Some(context) = &inner.context {
            let executing = quote::quote(&context.executing);
            let executing = String::from_utf8_lossy(&executing);
            write!(
                f,
                "template: {}: executing {executing} at <{}>: ",
                context.location, context.node
            )?;
        }
        match (&inner.cause, inner.message.as_str()) {
            (None, message) => f.write_str(message),
            (Some(cause), "") => cause.fmt(f),
            (Some(cause), message) => write!(f, "{message}: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text contains the cause already; `source` is for callers that look for its type.
        self.cause().map(|cause| cause.as_error() as _)
    }
}

impl From<Error> for function::Error {
    fn from(error: Error) -> Self {
        Self::from_error(error)
    }
}

/// Bytes of text that a function processes in one step: looking at each character takes a few nanoseconds.
const BYTES_OF_A_STEP: usize = 16;

type Result<T = (), E = Error> = std::result::Result<T, E>;

impl Set {
    /// Executes the template of that name and returns its output.
    pub fn execute(&self, name: &str, data: Value, options: &Options<'_>) -> Result<Vec<u8>> {
        execute(self, &name.into(), data, options)
    }
}

/// Executes a template of a set.
fn execute(set: &Set, name: &Str, data: Value, options: &Options<'_>) -> Result<Vec<u8>> {
    let own = Budget::new(options.limits);
    let budget = options.budget.unwrap_or(&own);
    let mut execution = Execution {
        set,
        host: options.host,
        include_cache: options.include_cache,
        host_changes: options.host_changes,
        marks: options.marks,
        foreign_texts: 0,
        has_own_text: false,
        missing_key: options.missing_key,
        limits: *budget.limits(),
        budget,
        stack: Stack::new(budget.limits().stack),
        overlays: Vec::new(),
        out: Vec::with_capacity(4096),
        variables: Vec::new(),
        base: 0,
        depth: 0,
        deepest: 0,
        steps: 0,
        max_output: budget.output_left(),
        buffers: Vec::new(),
        values: Vec::new(),
    };
    let result = execution.execute_named(name, data);
    budget.return_steps(execution.steps);
    result?;
    budget.take_output(execution.out.len());
    Ok(execution.out)
}

struct Execution<'e> {
    set: &'e Set,
    host: &'e dyn Any,
    include_cache: Option<&'e IncludeCache>,
    host_changes: Option<&'e dyn Fn() -> u64>,
    marks: Option<&'e dyn Marks>,
    /// How many of the texts being executed are not the host's own.
    foreign_texts: usize,
    /// Whether the first argument of the function that is being called is a text of the host's own.
    has_own_text: bool,
    missing_key: MissingKey,
    limits: Limits,
    budget: &'e Budget<'e>,
    stack: Stack,
    /// Templates of the texts being executed by `tpl`, innermost last.
    overlays: Vec<Arc<[Arc<Tree>]>>,
    out: Vec<u8>,
    /// The variables of all templates that are being executed; those of the current one start at `base`.
    variables: Vec<(u32, Reflect)>,
    base: usize,
    depth: usize,
    /// The greatest depth since the innermost watched template started.
    deepest: usize,
    /// Steps taken from the budget but not used yet.
    steps: u32,
    /// What the budget has left for this execution.
    max_output: usize,
    /// Used argument lists, kept for the next call.
    buffers: Vec<Vec<Reflect>>,
    values: Vec<Vec<Value>>,
}

/// A template being executed.
struct Frame<'t> {
    tree: &'t Tree,
    /// The node that an error would be reported for.
    at: Cell<At<'t>>,
}

impl<'t> Frame<'t> {
    fn at(&self, at: impl Into<At<'t>>) {
        self.at.set(at.into());
    }

    fn error(&self, message: impl Into<String>) -> Error {
        self.failure(message.into(), None)
    }

    fn failure(&self, message: String, cause: Option<function::Error>) -> Error {
        let context = ErrorContext {
            location: self.tree.source.location(self.at.get().pos()),
            executing: self.tree.name.clone(),
            node: self.at.get().to_string(),
        };
        Error(Box::new(Inner {
            context: Some(context),
            message,
            cause,
        }))
    }

    fn limit(&self, limit: Limit) -> Error {
        self.failure(String::new(), Some(function::Error::from_error(limit)))
    }
}

/// Anything with a position.
#[derive(Clone, Copy)]
enum At<'t> {
    Node(&'t Node),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Expr(&'t Expr),
    Root,
}

impl At<'_> {
    fn pos(self) -> usize {
        match self {
            Self::Node(node) => node.pos(),
            Self::Pipe(pipe) => pipe.pos,
            Self::Command(command) => command.pos,
            Self::Expr(expr) => expr.pos(),
            Self::Root => 0,
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Pipe(pipe) => pipe.fmt(f),
            Self::Command(command) => command.fmt(f),
            Self::Expr(expr) => expr.fmt(f),
            Self::Root => Ok(()),
        }
    }
}

impl<'t> From<&'t Node> for At<'t> {
    fn from(node: &'t Node) -> Self {
        Self::Node(node)
    }
}

impl<'t> From<&'t Pipe> for At<'t> {
    fn from(pipe: &'t Pipe) -> Self {
        Self::Pipe(pipe)
    }
}

impl<'t> From<&'t Command> for At<'t> {
    fn from(command: &'t Command) -> Self {
        Self::Command(command)
    }
}

impl<'t> From<&'t Expr> for At<'t> {
    fn from(expr: &'t Expr) -> Self {
        Self::Expr(expr)
    }
}

/// What happens after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// A template that was looked up.
enum TreeRef<'e> {
    InSet(&'e Tree),
    InText(Arc<Tree>),
}

impl Deref for TreeRef<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        match self {
            Self::InSet(tree) => tree,
            Self::InText(tree) => tree,
        }
    }
}

/// Whether this is the type of `reflect.Value` parameters, which take any argument unchanged.
fn is_reflect(ty: &Type) -> bool {
    std::ptr::eq(ty, &raw const types::REFLECT_VALUE)
}

fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(&quote::quote(text)).into_owned()
}

impl<'e> Execution<'e> {
    fn execute_named(&mut self, name: &Str, data: Value) -> Result {
        let Some(tree) = self.lookup(name) else {
            return Err(self.not_found(name));
        };
        self.execute_tree(&tree, &Reflect::concrete(data))
    }

    fn not_found(&self, name: &Str) -> Error {
        Error::new(format!(
            "template: no template {} associated with template {}",
            quoted(name),
            quoted(self.set.name())
        ))
    }

    /// Takes the memory of a cached text from the budget: as it is shared, it would not be counted as new.
    fn counted(&mut self, text: Str) -> Result<Str, function::Error> {
        self.budget
            .take_memory(text.shared_size())
            .map_err(|limit| self.exceeded(limit))?;
        Ok(text)
    }

    /// Looks a template up by name: first in the texts being executed, innermost first, then in the set. An empty
    /// template does not hide another one.
    fn lookup(&self, name: &Str) -> Option<TreeRef<'e>> {
        let mut empty = None;
        for overlay in self.overlays.iter().rev() {
            if let Some(tree) = overlay.iter().find(|tree| tree.name == *name) {
                if !tree.is_empty() {
                    return Some(TreeRef::InText(tree.clone()));
                }
                empty = Some(tree);
            }
        }
        let in_set = self.set.tree(name).map(TreeRef::InSet);
        in_set.or_else(|| empty.map(|tree| TreeRef::InText(tree.clone())))
    }

    fn execute_tree(&mut self, tree: &Tree, data: &Reflect) -> Result {
        let frame = Frame {
            tree,
            at: Cell::new(At::Root),
        };
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let base = std::mem::replace(&mut self.base, self.variables.len());
        self.variables.push((0, data.clone()));
        let result = self.walk_list(&frame, data, &tree.root);
        self.variables.truncate(self.base);
        self.base = base;
        self.depth -= 1;
        result.map(|_| ())
    }

    /// The cached output of a template. While a text is executed, its own templates may replace others, so nothing is cached.
    fn cached(&mut self, tree: &TreeRef<'e>, dot: &Value) -> Result<Option<Str>, Limit> {
        let (Some(cache), TreeRef::InSet(tree), []) = (self.include_cache, tree, &self.overlays[..]) else {
            return Ok(None);
        };
        let Some((text, cost)) = cache.get(tree, dot) else {
            return Ok(None);
        };
        if self.depth + cost.depth > self.limits.depth {
            return Ok(None);
        }
        self.take_steps(cost.steps)?;
        self.budget.take_memory(cost.memory)?;
        Ok(Some(text))
    }

    /// Executes a template, and caches its output from `start` on if executing it again would print the same.
    fn execute_watched(&mut self, tree: &TreeRef<'e>, data: &Reflect, start: usize) -> Result<Option<Str>> {
        let (Some(cache), TreeRef::InSet(in_set), []) = (self.include_cache, tree, &self.overlays[..]) else {
            self.execute_tree(tree, data)?;
            return Ok(None);
        };
        let before = (self.spent(), self.host_changes());
        let outer = std::mem::replace(&mut self.deepest, self.depth);
        let watch = Watch::start();
        let result = self.execute_tree(tree, data);
        let started = watch.finish();
        let depth = self.deepest - self.depth;
        self.deepest = self.deepest.max(outer);
        result?;
        let Some(started) = started.filter(|_| self.host_changes() == before.1) else {
            return Ok(None);
        };
        let text = Str::from(&self.out[start..]);
        let cost = Cost::between(before.0, self.spent(), depth);
        cache.add(in_set, data.value.clone(), text.clone(), started, cost);
        Ok(Some(text))
    }

    fn host_changes(&self) -> u64 {
        self.host_changes.map_or(0, |changes| changes())
    }

    /// What has been taken from the budget and used.
    fn spent(&self) -> Spent {
        let spent = self.budget.spent();
        Spent {
            steps: spent.steps - u64::from(self.steps),
            ..spent
        }
    }

    /// The limit that one more nested template would exceed.
    fn nesting_limit(&self) -> Option<Limit> {
        if self.depth >= self.limits.depth {
            return Some(Limit::Depth(self.limits.depth));
        }
        self.stack
            .is_exhausted()
            .then_some(Limit::Stack(self.limits.stack))
    }

    fn check_stack(&self, frame: &Frame<'_>) -> Result {
        if self.stack.is_exhausted() {
            return Err(frame.limit(Limit::Stack(self.limits.stack)));
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, frame: &Frame<'_>) -> Result {
        if self.steps == 0 {
            self.steps = self
                .budget
                .take_some_steps(STEPS_AT_ONCE)
                .map_err(|limit| frame.limit(limit))?;
        }
        self.steps -= 1;
        Ok(())
    }

    /// Takes several steps at once.
    fn take_steps(&mut self, steps: u64) -> Result<(), Limit> {
        match u64::from(self.steps).checked_sub(steps) {
            Some(left) => {
                self.steps = left as u32;
                Ok(())
            }
            None => self
                .budget
                .take_steps(steps - u64::from(std::mem::take(&mut self.steps))),
        }
    }

    /// Takes the steps for a function that reads its string arguments, as most do. Returns their total length.
    fn work_through<'v>(&mut self, values: impl Iterator<Item = &'v Value>) -> Result<usize, Limit> {
        let length = |value: &Value| match value {
            Value::String(text) => text.len(),
            Value::Bytes(text) => text.len(),
            _ => 0,
        };
        let length = values.map(length).sum::<usize>();
        if length >= BYTES_OF_A_STEP {
            self.take_steps((length / BYTES_OF_A_STEP) as u64)?;
        }
        Ok(length)
    }

    /// No more steps are granted once a limit is exceeded, even if the function swallows the error.
    fn exceeded(&mut self, limit: Limit) -> function::Error {
        self.budget.return_steps(std::mem::take(&mut self.steps));
        function::Error::from_error(limit)
    }

    /// Takes the memory of a function's result out of the budget. A value that is also held elsewhere was counted
    /// when it was created.
    fn account(&mut self, value: &Value) -> Result<(), function::Error> {
        let size = match value {
            Value::String(text) => text.own_size(),
            Value::Bytes(text) => text.own_size(),
            Value::List(list) => list.own_size(),
            Value::Map(map) => map.own_size(),
            _ => return Ok(()),
        };
        self.budget
            .take_memory(size)
            .map_err(|limit| self.exceeded(limit))
    }

    fn walk_list<'t>(&mut self, frame: &Frame<'t>, dot: &Reflect, list: &'t List) -> Result<Flow> {
        for node in &list.nodes {
            let flow = self.walk(frame, dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn walk<'t>(&mut self, frame: &Frame<'t>, dot: &Reflect, node: &'t Node) -> Result<Flow> {
        frame.at(node);
        self.step(frame)?;
        match node {
            Node::Text { text, .. } => match self.marked(text) {
                Some(marked) => self.out.extend_from_slice(&marked),
                None => self.out.extend_from_slice(text),
            },
            Node::Action { pipe, .. } => {
                let value = self.pipeline(frame, dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.print(frame, node, &value)?;
                }
            }
            Node::If(branch) => return self.branch(frame, dot, branch, false),
            Node::With(branch) => return self.branch(frame, dot, branch, true),
            Node::Range(branch) => return self.range(frame, dot, branch),
            Node::Template { name, pipe, .. } => self.template(frame, dot, name, pipe.as_ref())?,
            Node::Break { .. } => return Ok(Flow::Break),
            Node::Continue { .. } => return Ok(Flow::Continue),
        }
        if self.out.len() > self.max_output {
            return Err(frame.limit(self.budget.exceed_output()));
        }
        Ok(Flow::Next)
    }

    fn print<'t>(&mut self, frame: &Frame<'t>, node: &'t Node, value: &Reflect) -> Result {
        frame.at(node);
        if matches!(value.value, Value::Func(_)) {
            return Err(frame.error(format!("can't print {node} of type {}", value.type_name())));
        }
        builtin::append_printed(&mut self.out, &value.value)
            .map_err(|error| frame.failure(String::new(), Some(error)))
    }

    fn branch<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        branch: &'t Branch,
        is_with: bool,
    ) -> Result<Flow> {
        self.check_stack(frame)?;
        let mark = self.variables.len();
        let value = self.pipeline(frame, dot, &branch.pipe)?;
        let flow = match &branch.else_list {
            _ if value.value.truth() => {
                let dot = if is_with { &value } else { dot };
                self.walk_list(frame, dot, &branch.list)?
            }
            Some(list) => self.walk_list(frame, dot, list)?,
            None => Flow::Next,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn range<'t>(&mut self, frame: &Frame<'t>, dot: &Reflect, branch: &'t Branch) -> Result<Flow> {
        self.check_stack(frame)?;
        let outer = self.variables.len();
        let value = self.pipeline(frame, dot, &branch.pipe)?;
        let mark = self.variables.len();
        let any = match &value.value {
            Value::List(list) => {
                let ty = list.ty().element();
                self.iterate(frame, branch, mark, list.len(), |i| {
                    (
                        Reflect::concrete(Value::Int(i as i64)),
                        Reflect::element(list[i].clone(), ty),
                    )
                })?
            }
            Value::Bytes(bytes) => self.iterate(frame, branch, mark, bytes.len(), |i| {
                (
                    Reflect::concrete(Value::Int(i as i64)),
                    Reflect::concrete(Value::Uint8(bytes[i])),
                )
            })?,
            Value::Map(map) => {
                let ty = map.ty().element();
                self.take_steps(map.len() as u64 / 8)
                    .map_err(|limit| frame.limit(limit))?;
                let mut entries = map.entries();
                self.iterate(frame, branch, mark, entries.len(), |i| {
                    let (key, element) = std::mem::take(&mut entries[i]);
                    (
                        Reflect::concrete(Value::String(key)),
                        Reflect::element(element, ty),
                    )
                })?
            }
            Value::Nil => false,
            number => self.range_over_number(frame, branch, mark, number)?,
        };
        let mut flow = Flow::Next;
        if let (false, Some(list)) = (any, &branch.else_list) {
            flow = self.walk_list(frame, dot, list)?;
        }
        self.variables.truncate(outer);
        Ok(flow)
    }

    fn range_over_number<'t>(
        &mut self,
        frame: &Frame<'t>,
        branch: &'t Branch,
        mark: usize,
        value: &Value,
    ) -> Result<bool> {
        let count = match (value.as_i64(), value.as_u64()) {
            (Some(n), _) => usize::try_from(n).unwrap_or(0),
            (None, Some(n)) => n as usize,
            (None, None) => {
                let mut text = Vec::new();
                format::append_followed(&mut text, value)
                    .map_err(|error| frame.failure("range can't iterate".into(), Some(error.into())))?;
                let text = String::from_utf8_lossy(&text);
                return Err(frame.error(format!("range can't iterate over {text}")));
            }
        };
        if branch.pipe.variables.len() > 1 {
            return Err(frame.error(format!(
                "can't use {value} to iterate over more than one variable"
            )));
        }
        let kind = value.kind();
        self.iterate(frame, branch, mark, count, |i| {
            (Reflect::INVALID, Reflect::concrete(integer(kind, i as u64)))
        })
    }

    /// Iterates; returns whether there was anything to iterate over.
    fn iterate<'t>(
        &mut self,
        frame: &Frame<'t>,
        branch: &'t Branch,
        mark: usize,
        count: usize,
        mut next: impl FnMut(usize) -> (Reflect, Reflect),
    ) -> Result<bool> {
        for i in 0..count {
            self.step(frame)?;
            let (index, element) = next(i);
            self.bind(frame, &branch.pipe, mark, index, &element)?;
            let flow = self.walk_list(frame, &element, &branch.list)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(count > 0)
    }

    /// Assigns the variables of a range: a single variable gets the element.
    fn bind(
        &mut self,
        frame: &Frame<'_>,
        pipe: &Pipe,
        mark: usize,
        index: Reflect,
        element: &Reflect,
    ) -> Result {
        match (&pipe.variables[..], pipe.is_assign) {
            ([], _) => {}
            ([only], true) => self.assign(frame, only.id, &only.name, element.clone())?,
            ([_], false) => self.variables[mark - 1].1 = element.clone(),
            ([first, second, ..], true) => {
                self.assign(frame, first.id, &first.name, index)?;
                self.assign(frame, second.id, &second.name, element.clone())?;
            }
            ([_, _, ..], false) => {
                self.variables[mark - 1].1 = element.clone();
                self.variables[mark - 2].1 = index;
            }
        }
        Ok(())
    }

    fn template<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        name: &Str,
        pipe: Option<&'t Pipe>,
    ) -> Result {
        let Some(tree) = self.lookup(name) else {
            return Err(frame.error(format!("template {} not defined", quoted(name))));
        };
        if let Some(limit) = self.nesting_limit() {
            return Err(frame.limit(limit));
        }
        let data = match pipe {
            Some(pipe) => self.pipeline(frame, dot, pipe)?,
            None => Reflect::INVALID,
        };
        match self
            .cached(&tree, &data.value)
            .map_err(|limit| frame.limit(limit))?
        {
            Some(text) => self.out.extend_from_slice(&text),
            None => {
                self.execute_watched(&tree, &data, self.out.len())?;
            }
        }
        Ok(())
    }

    fn assign(&mut self, frame: &Frame<'_>, id: u32, name: &Str, value: Reflect) -> Result {
        match self.variables[self.base..]
            .iter_mut()
            .rev()
            .find(|(known, _)| *known == id)
        {
            Some((_, variable)) => {
                *variable = value;
                Ok(())
            }
            None => Err(frame.error(format!("undefined variable: {name}"))),
        }
    }

    fn variable(&self, frame: &Frame<'_>, id: u32, name: &Str) -> Result<&Reflect> {
        match self.variables[self.base..]
            .iter()
            .rev()
            .find(|(known, _)| *known == id)
        {
            Some((_, variable)) => Ok(variable),
            None => Err(frame.error(format!("undefined variable: {name}"))),
        }
    }

    fn pipeline<'t>(&mut self, frame: &Frame<'t>, dot: &Reflect, pipe: &'t Pipe) -> Result<Reflect> {
        frame.at(pipe);
        let mut value = None;
        for command in &pipe.commands {
            // The value of the previous command is the last argument of this one.
            value = Some(self.command(frame, dot, command, value)?.unwrapped());
        }
        let value = value.unwrap_or_default();
        for variable in &pipe.variables {
            if pipe.is_assign {
                self.assign(frame, variable.id, &variable.name, value.clone())?;
            } else {
                self.variables.push((variable.id, value.clone()));
            }
        }
        Ok(value)
    }

    fn command<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        command: &'t Command,
        last: Option<Reflect>,
    ) -> Result<Reflect> {
        self.step(frame)?;
        let first = &command.args[0];
        let has_arguments = command.args.len() > 1 || last.is_some();
        let no_function = |frame: &Frame<'t>| {
            if has_arguments {
                return Err(frame.error(format!("can't give argument to non-function {}", operand(first))));
            }
            Ok(())
        };
        match first {
            Expr::Field { .. } | Expr::Chain { .. } | Expr::Variable { .. } => {
                self.fields(frame, dot, first, &command.args[1..], last)
            }
            Expr::Function { name, callee, .. } => {
                frame.at(first);
                self.call(
                    frame,
                    dot,
                    At::Command(command),
                    name,
                    callee,
                    &command.args[1..],
                    last,
                )
            }
            Expr::Pipe(pipe) => {
                no_function(frame)?;
                self.check_stack(frame)?;
                self.pipeline(frame, dot, pipe)
            }
            value => {
                frame.at(value);
                no_function(frame)?;
                match value {
                    Expr::Nil { .. } => Err(frame.error("nil is not a command")),
                    other => self.literal(frame, dot, other),
                }
            }
        }
    }

    /// `.a.b`, `$x.a.b` or `(pipe).a.b`, with arguments if the last one is a method.
    fn fields<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        expr: &'t Expr,
        arguments: &'t [Expr],
        last: Option<Reflect>,
    ) -> Result<Reflect> {
        frame.at(expr);
        let has_arguments = !arguments.is_empty() || last.is_some();
        let (receiver, names) = match expr {
            Expr::Field { names, .. } => {
                if let (false, Some(found)) = (has_arguments, path(&dot.value, names)) {
                    return Ok(found);
                }
                (dot.clone(), names)
            }
            Expr::Variable { variable, fields, .. } => {
                let value = self.variable(frame, variable.id, &variable.name)?;
                if fields.is_empty() {
                    if has_arguments {
                        let variable = operand(expr);
                        return Err(frame.error(format!("can't give argument to non-function {variable}")));
                    }
                    return Ok(value.clone());
                }
                if let (false, Some(found)) = (has_arguments, path(&value.value, fields)) {
                    return Ok(found);
                }
                (value.clone(), fields)
            }
            Expr::Chain { node, fields, .. } => {
                if matches!(**node, Expr::Nil { .. }) {
                    return Err(frame.error(format!("indirection through explicit nil in {expr}")));
                }
                // Kept as it is: no value stays no value.
                (self.argument(frame, dot, &types::REFLECT_VALUE, node)?, fields)
            }
            other => return self.literal(frame, dot, other),
        };
        let Some((name, before)) = names.split_last() else {
            return Ok(receiver);
        };
        let mut receiver = receiver;
        for name in before {
            receiver = self.field(frame, dot, expr, name, &[], None, receiver)?;
        }
        self.field(frame, dot, expr, name, arguments, last, receiver)
    }

    /// Evaluates one field, method or key.
    #[expect(
        clippy::too_many_arguments,
        reason = "these are the arguments of Go's evalField"
    )]
    fn field<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        expr: &'t Expr,
        name: &Str,
        arguments: &'t [Expr],
        last: Option<Reflect>,
        receiver: Reflect,
    ) -> Result<Reflect> {
        if !receiver.is_valid() {
            if self.missing_key == MissingKey::Error {
                return Err(frame.error(format!("nil data; no entry for key {}", quoted(name))));
            }
            return Ok(Reflect::INVALID);
        }
        let type_name = receiver.type_name();
        let Some(ty) = receiver.value.ty() else {
            return Err(frame.error(format!("nil pointer evaluating {type_name}.{name}")));
        };
        if let Some(method) = ty.method(name) {
            let receiver = Some(receiver.value);
            return self.call_function(
                frame,
                dot,
                At::Expr(expr),
                name,
                method,
                receiver,
                arguments,
                last,
            );
        }
        let has_arguments = !arguments.is_empty() || last.is_some();
        match &receiver.value {
            Value::Object(object) => {
                let field = name.to_str().unwrap_or_default();
                if let Some(value) = object.field(field) {
                    if has_arguments {
                        return Err(
                            frame.error(format!("{name} has arguments but cannot be invoked as function"))
                        );
                    }
                    let interface = value.is_untyped_nil() || object.is_interface(field);
                    return Ok(Reflect { value, interface });
                }
            }
            Value::Map(map) => {
                if has_arguments {
                    return Err(frame.error(format!("{name} is not a method but has arguments")));
                }
                return self.key(frame, map, name);
            }
            _ => {}
        }
        Err(frame.error(format!("can't evaluate field {name} in type {type_name}")))
    }

    fn key(&self, frame: &Frame<'_>, map: &Map, name: &Str) -> Result<Reflect> {
        let ty = map.ty().element();
        match (map.get(name), self.missing_key) {
            (Some(value), _) => Ok(Reflect::element(value, ty)),
            (None, MissingKey::Invalid) => Ok(Reflect::INVALID),
            (None, MissingKey::Zero) => Ok(Reflect::element(ty.zero(), ty)),
            (None, MissingKey::Error) => {
                Err(frame.error(format!("map has no entry for key {}", quoted(name))))
            }
        }
    }

    /// Calls the function of that name.
    #[expect(
        clippy::too_many_arguments,
        reason = "these are the arguments of Go's evalCall"
    )]
    fn call<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        node: At<'t>,
        name: &Str,
        callee: &Callee,
        arguments: &'t [Expr],
        last: Option<Reflect>,
    ) -> Result<Reflect> {
        let builtin = match callee {
            Callee::Function(function) => {
                return self.call_function(frame, dot, node, name, function, None, arguments, last);
            }
            Callee::Builtin(builtin) => *builtin,
        };
        let (parameters, variadic) = builtin.signature();
        check_arity(
            frame,
            name,
            parameters.len(),
            variadic,
            arguments.len(),
            last.is_some(),
        )?;
        if let Builtin::And | Builtin::Or = builtin {
            return self.and_or(frame, dot, arguments, last, builtin == Builtin::Or);
        }
        let mut values = self.buffers.pop().unwrap_or_default();
        for (i, argument) in arguments.iter().enumerate() {
            values.push(self.argument(frame, dot, parameters[i.min(parameters.len() - 1)], argument)?);
        }
        if let Some(last) = last {
            values.push(validate(
                frame,
                last,
                parameters[arguments.len().min(parameters.len() - 1)],
            )?);
        }
        if self.marks.is_some() {
            for (position, value) in values.iter_mut().enumerate() {
                self.unmark_argument(name, position, &mut value.value)
                    .map_err(|error| frame.failure(String::new(), Some(error)))?;
            }
        }
        let given = values.iter().map(|value| &value.value);
        let length = self.work_through(given).map_err(|limit| frame.limit(limit))?;
        let result = if builtin == Builtin::Call {
            self.call_value(arguments.first(), &mut values)
        } else {
            self.budget
                .check_memory(length.saturating_mul(builtin.expansion()))
                .map_err(|limit| self.exceeded(limit))
                .and_then(|()| builtin.call(&mut values))
        };
        let result = result.and_then(|result| self.account(&result.value).map(|()| result));
        values.clear();
        self.buffers.push(values);
        result.map_err(|error| {
            frame.at.set(node);
            frame.failure(format!("error calling {name}"), Some(error))
        })
    }

    /// `and` and `or` stop at the first argument that decides.
    fn and_or<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        arguments: &'t [Expr],
        last: Option<Reflect>,
        is_or: bool,
    ) -> Result<Reflect> {
        let mut value = Reflect::INVALID;
        for argument in arguments {
            value = self.argument(frame, dot, &types::REFLECT_VALUE, argument)?;
            if value.value.truth() == is_or {
                return Ok(value);
            }
        }
        match last {
            Some(last) => validate(frame, last, &types::REFLECT_VALUE),
            None => Ok(value),
        }
    }

    /// The builtin `call`: the first value is the function.
    fn call_value(
        &mut self,
        first: Option<&Expr>,
        values: &mut Vec<Reflect>,
    ) -> Result<Reflect, function::Error> {
        let callee = std::mem::take(&mut values[0].value);
        let name = match first {
            Some(expr) => operand(expr),
            // What Go's `reflect.Value.String` returns.
            None => match &callee {
                Value::String(text) => text.to_string(),
                Value::Nil => "<invalid Value>".into(),
                other => format!("<{} Value>", other.type_name()),
            },
        };
        let function = match callee {
            Value::Func(function) => function,
            Value::Nil => return Err("call of nil".into()),
            other => return Err(format!("non-function {name} of type {}", other.type_name()).into()),
        };
        let parameters = function.parameters();
        let got = values.len() - 1;
        let fixed = if function.is_variadic() {
            parameters.len() - 1
        } else {
            parameters.len()
        };
        if function.is_variadic() && got < fixed {
            return Err(format!("wrong number of args for {name}: got {got} want at least {fixed}").into());
        }
        if !function.is_variadic() && got != fixed {
            return Err(format!("wrong number of args for {name}: got {got} want {fixed}").into());
        }
        let mut arguments = Vec::with_capacity(got);
        for (i, value) in values.drain(1..).enumerate() {
            let ty = parameters[i.min(parameters.len() - 1)];
            arguments.push(prepare(value.value, ty).map_err(|message| format!("arg {i}: {message}"))?);
        }
        let value = function.call(&mut Call { runtime: self }, &mut arguments)?;
        Ok(Reflect {
            value,
            interface: function.returns_interface(),
        })
    }

    /// Calls a function of the host, or a method.
    #[expect(
        clippy::too_many_arguments,
        reason = "these are the arguments of Go's evalCall"
    )]
    fn call_function<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        node: At<'t>,
        name: &Str,
        function: &Function,
        receiver: Option<Value>,
        arguments: &'t [Expr],
        last: Option<Reflect>,
    ) -> Result<Reflect> {
        let parameters = &function.parameters()[usize::from(receiver.is_some())..];
        check_arity(
            frame,
            name,
            parameters.len(),
            function.is_variadic(),
            arguments.len(),
            last.is_some(),
        )?;
        let mut values = self.values.pop().unwrap_or_default();
        let has_receiver = usize::from(receiver.is_some());
        values.extend(receiver);
        for (i, argument) in arguments.iter().enumerate() {
            let ty = parameters[i.min(parameters.len() - 1)];
            values.push(self.argument(frame, dot, ty, argument)?.value);
        }
        if let Some(last) = last {
            let ty = parameters[arguments.len().min(parameters.len() - 1)];
            values.push(validate(frame, last, ty)?.value);
        }
        if let Some(marks) = self.marks {
            let text = values.get(has_receiver).and_then(Value::as_str);
            self.has_own_text = self.foreign_texts == 0 && text.is_some_and(|text| marks.is_own(text));
            for (position, value) in values[has_receiver..].iter_mut().enumerate() {
                self.unmark_argument(name, position, value)
                    .map_err(|error| frame.failure(String::new(), Some(error)))?;
            }
        }
        self.work_through(values.iter())
            .map_err(|limit| frame.limit(limit))?;
        let result = function.call(&mut Call { runtime: self }, &mut values);
        let result = result.and_then(|value| self.unmark_keys(name, value));
        values.clear();
        self.values.push(values);
        let result = result.and_then(|value| self.account(&value).map(|()| value));
        match result {
            Ok(value) => Ok(Reflect {
                value,
                interface: function.returns_interface(),
            }),
            Err(error) => {
                frame.at.set(node);
                Err(frame.failure(format!("error calling {name}"), Some(error)))
            }
        }
    }

    fn literal<'t>(&self, frame: &Frame<'t>, dot: &Reflect, expr: &'t Expr) -> Result<Reflect> {
        let value = literal(frame, dot, expr)?;
        Ok(match expr {
            Expr::String { .. } => Reflect::concrete(self.own_constant(value.value)),
            _ => value,
        })
    }

    fn own_constant(&self, value: Value) -> Value {
        let marked = value.as_str().and_then(|text| self.marked(text));
        marked.map_or(value, Value::String)
    }

    /// A text of a template with its marks; none without marks, or while a text that is not the host's own is executed.
    #[inline]
    fn marked(&self, own: &[u8]) -> Option<Str> {
        self.marks
            .filter(|_| self.foreign_texts == 0)
            .and_then(|marks| marks.marked(own))
    }

    /// Takes the marks off an argument, unless the function carries them on.
    fn unmark_argument(
        &mut self,
        function: &[u8],
        position: usize,
        value: &mut Value,
    ) -> Result<(), function::Error> {
        let Some(marks) = self.marks else {
            return Ok(());
        };
        // Whoever wrote a text may pass what he likes to the templates that it includes: their output loses its marks
        // before any other function gets it.
        let carries = marks.carries(function, position);
        if carries && (self.foreign_texts == 0 || function == b"include") {
            return Ok(());
        }
        self.take_walk(value)?;
        if let Some(without) = marks::unmarked(value, marks)? {
            *value = without;
        }
        Ok(())
    }

    /// Takes the marks off the keys of maps that a function made of a text: they are looked up by their plain names.
    fn unmark_keys(&mut self, function: &[u8], value: Value) -> Result<Value, function::Error> {
        let Some(marks) = self.marks.filter(|marks| marks.makes_keys(function)) else {
            return Ok(value);
        };
        self.take_walk(&value)?;
        Ok(marks::with_unmarked_keys(&value, marks)?.unwrap_or(value))
    }

    fn take_walk(&mut self, value: &Value) -> Result<(), function::Error> {
        let weight = value.weight(self.budget.memory_left());
        self.take_steps(weight.steps())
            .map_err(|limit| self.exceeded(limit))
    }

    /// An argument for a parameter of a type: Go's `evalArg`.
    fn argument<'t>(
        &mut self,
        frame: &Frame<'t>,
        dot: &Reflect,
        ty: &'static Type,
        expr: &'t Expr,
    ) -> Result<Reflect> {
        frame.at(expr);
        match expr {
            Expr::Dot { .. } => validate(frame, dot.clone(), ty),
            Expr::Nil { .. } if ty.can_be_nil() => Ok(zero(ty)),
            Expr::Nil { .. } => Err(frame.error(format!("cannot assign nil to {ty}"))),
            Expr::Field { .. } | Expr::Variable { .. } | Expr::Chain { .. } => {
                let value = self.fields(frame, dot, expr, &[], None)?;
                validate(frame, value, ty)
            }
            Expr::Pipe(pipe) => {
                self.check_stack(frame)?;
                let value = self.pipeline(frame, dot, pipe)?;
                validate(frame, value, ty)
            }
            Expr::Function { name, callee, .. } => {
                let value = self.call(frame, dot, At::Expr(expr), name, callee, &[], None)?;
                validate(frame, value, ty)
            }
            Expr::Bool { .. } | Expr::Number(_) | Expr::String { .. } => {
                if ty.kind() == Kind::Interface || is_reflect(ty) {
                    return self.literal(frame, dot, expr);
                }
                let value = literal_of_type(frame, ty, expr)?;
                Ok(Reflect::concrete(self.own_constant(value)))
            }
        }
    }
}

/// The value of a literal where any type is accepted.
fn literal<'t>(frame: &Frame<'t>, dot: &Reflect, literal: &'t Expr) -> Result<Reflect> {
    frame.at(literal);
    Ok(Reflect::concrete(match literal {
        Expr::Dot { .. } => return Ok(dot.clone()),
        Expr::Bool { value, .. } => Value::Bool(*value),
        Expr::String { text, .. } => Value::String(text.clone()),
        Expr::Number(number) => match number.ideal() {
            Ideal::Int(n) => Value::Int(n),
            Ideal::Float(f) => Value::Float64(f),
            Ideal::Complex(re, im) => Value::Complex(re, im),
            Ideal::Overflow => return Err(frame.error(format!("{} overflows int", number.text))),
        },
        other => {
            return Err(frame.error(format!(
                "can't evaluate command {}",
                quoted(other.to_string().as_bytes())
            )));
        }
    }))
}

/// An operand in a message: a pipeline without its parentheses, as in Go.
fn operand(expr: &Expr) -> String {
    expr.to_string()
}

/// The zero value of a type that can be nil.
fn zero(ty: &'static Type) -> Reflect {
    Reflect {
        value: ty.zero(),
        interface: ty.kind() == Kind::Interface,
    }
}

/// An integer of a kind.
fn integer(kind: Kind, n: u64) -> Value {
    match kind {
        Kind::Int8 => Value::Int8(n as i8),
        Kind::Int16 => Value::Int16(n as i16),
        Kind::Int32 => Value::Int32(n as i32),
        Kind::Int64 => Value::Int64(n as i64),
        Kind::Uint => Value::Uint(n),
        Kind::Uint8 => Value::Uint8(n as u8),
        Kind::Uint16 => Value::Uint16(n as u16),
        Kind::Uint32 => Value::Uint32(n as u32),
        Kind::Uint64 => Value::Uint64(n),
        _ => Value::Int(n as i64),
    }
}

/// The fast path through nested maps. None for anything unusual, which the general code then handles.
fn path(value: &Value, names: &[Str]) -> Option<Reflect> {
    let (value, ty) = value.as_map()?.path(names)?;
    Some(Reflect::element(value, ty))
}

#[inline]
fn check_arity(
    frame: &Frame<'_>,
    name: &Str,
    parameters: usize,
    variadic: bool,
    arguments: usize,
    has_last: bool,
) -> Result {
    let got = arguments + usize::from(has_last);
    if variadic && got < parameters - 1 {
        let want = parameters - 1;
        return Err(frame.error(format!(
            "wrong number of args for {name}: want at least {want} got {arguments}"
        )));
    }
    if !variadic && got != parameters {
        return Err(frame.error(format!(
            "wrong number of args for {name}: want {parameters} got {got}"
        )));
    }
    Ok(())
}

/// Go's `validateType`: converts the value to the type, or fails.
#[inline]
fn validate(frame: &Frame<'_>, value: Reflect, ty: &'static Type) -> Result<Reflect> {
    if !value.is_valid() {
        if ty.can_be_nil() {
            return Ok(zero(ty));
        }
        return Err(frame.error(format!("invalid value; expected {ty}")));
    }
    if is_reflect(ty) {
        return Ok(value);
    }
    if ty.kind() == Kind::Interface {
        let copy = match &value.value {
            Value::Object(object) => object.copied(),
            _ => None,
        };
        return Ok(copy.map_or(value, Reflect::concrete));
    }
    match value.value.ty() {
        Some(actual) if actual.is(ty) => Ok(Reflect::concrete(value.value)),
        Some(actual) if actual.is_assignable_to(ty) => Ok(Reflect::concrete(convert(value.value, ty))),
        Some(actual) => Err(frame.error(format!("wrong type for value; expected {ty}; got {actual}"))),
        None => Err(frame.error(format!(
            "wrong type for value; expected {ty}; got {}",
            value.type_name()
        ))),
    }
}

/// The same map or list with the type of the parameter.
fn convert(value: Value, ty: &'static Type) -> Value {
    match value {
        Value::Map(map) => Value::Map(map.as_type(ty)),
        Value::List(list) => Value::List(list.as_type(ty)),
        other => other,
    }
}

/// Go's `prepareArg`, which `call` uses for its arguments: integers convert to any other integer type.
fn prepare(value: Value, ty: &'static Type) -> Result<Value, String> {
    let Some(actual) = value.ty() else {
        if ty.can_be_nil() {
            return Ok(ty.zero());
        }
        return Err(format!("value is nil; should be of type {ty}"));
    };
    if actual.is_assignable_to(ty) {
        return Ok(convert(value, ty));
    }
    let integer_type = ty.kind().is_signed() || ty.kind().is_unsigned();
    match (value.as_i64(), value.as_u64()) {
        (Some(n), _) if integer_type => Ok(integer(ty.kind(), n as u64)),
        (None, Some(n)) if integer_type => Ok(integer(ty.kind(), n)),
        _ => Err(format!("value has type {actual}; should be {ty}")),
    }
}

/// A literal for a parameter of a basic type.
fn literal_of_type(frame: &Frame<'_>, ty: &'static Type, expr: &Expr) -> Result<Value> {
    let number = match expr {
        Expr::Number(number) => Some(&**number),
        _ => None,
    };
    let (value, expected) = match ty.kind() {
        Kind::Bool => match expr {
            Expr::Bool { value, .. } => (Some(Value::Bool(*value)), "bool"),
            _ => (None, "bool"),
        },
        Kind::String => match expr {
            Expr::String { text, .. } => (Some(Value::String(text.clone())), "string"),
            _ => (None, "string"),
        },
        Kind::Float32 => (
            number
                .and_then(|number| number.float)
                .map(|f| Value::Float32(f as f32)),
            "float",
        ),
        Kind::Float64 => (
            number.and_then(|number| number.float).map(Value::Float64),
            "float",
        ),
        Kind::Complex128 => (complex(number), "complex"),
        kind if kind.is_signed() => (
            number
                .and_then(|number| number.int)
                .map(|n| integer(kind, n as u64)),
            "integer",
        ),
        kind if kind.is_unsigned() => (
            number.and_then(|number| number.uint).map(|n| integer(kind, n)),
            "unsigned integer",
        ),
        _ => return Err(frame.error(format!("can't handle {expr} for arg of type {ty}"))),
    };
    value.ok_or_else(|| frame.error(format!("expected {expected}; found {expr}")))
}

fn complex(number: Option<&Number>) -> Option<Value> {
    number
        .and_then(|number| number.complex)
        .map(|(re, im)| Value::Complex(re, im))
}

impl Runtime for Execution<'_> {
    fn host(&self) -> &dyn Any {
        self.host
    }

    fn take_steps(&mut self, steps: u64) -> Result<(), function::Error> {
        self.take_steps(steps).map_err(function::Error::from_error)
    }

    fn take_memory(&mut self, bytes: usize) -> Result<(), function::Error> {
        self.budget
            .take_memory(bytes)
            .map_err(|limit| self.exceeded(limit))
    }

    fn check_memory(&mut self, bytes: usize) -> Result<(), function::Error> {
        self.budget
            .check_memory(bytes)
            .map_err(|limit| self.exceeded(limit))
    }

    fn memory_left(&self) -> usize {
        self.budget.memory_left()
    }

    /// Appends to the common output, then cuts the result off from there.
    fn execute(&mut self, name: &Str, data: Value) -> Result<Str, function::Error> {
        self.nesting_limit()
            .map_or(Ok(()), |limit| Err(function::Error::from_error(limit)))?;
        let Some(tree) = self.lookup(name) else {
            return Err(self.not_found(name).into());
        };
        if let Some(text) = self.cached(&tree, &data).map_err(|limit| self.exceeded(limit))? {
            return self.counted(text);
        }
        let start = self.out.len();
        let cached = self.execute_watched(&tree, &Reflect::concrete(data), start)?;
        let text = match cached {
            Some(text) => self.counted(text)?,
            None => Str::from(&self.out[start..]),
        };
        self.out.truncate(start);
        Ok(text)
    }

    fn execute_text(&mut self, text: &Str, data: Value) -> Result<Str, function::Error> {
        self.nesting_limit()
            .map_or(Ok(()), |limit| Err(function::Error::from_error(limit)))?;
        let trees = self.set.parse_text(text).map_err(function::Error::from_error)?;
        let Some(tree) = trees.last().cloned() else {
            return Ok(Str::EMPTY);
        };
        let start = self.out.len();
        let is_own = std::mem::take(&mut self.has_own_text);
        let foreign = self.marks.filter(|_| !is_own);
        self.foreign_texts += usize::from(foreign.is_some());
        self.overlays.push(trees);
        let result = self.execute_tree(&tree, &Reflect::concrete(data));
        self.overlays.pop();
        self.foreign_texts -= usize::from(foreign.is_some());
        result?;
        let printed = &self.out[start..];
        let unmarked = foreign.and_then(|marks| marks.unmarked(printed));
        let text = unmarked.unwrap_or_else(|| Str::from(printed));
        self.out.truncate(start);
        Ok(text)
    }
}
