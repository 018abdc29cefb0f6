//! Template functions: turns Rust functions into functions that templates can call.
//!
//! A function is plain Rust. Its parameter types determine the Go types it takes; the evaluator rejects everything
//! else with Go's error messages, so the function itself gets arguments that have been checked:
//!
//! ```
//! use gotemplate::{function::{Call, Error, Functions, Rest}, string::Str, value::{List, Map, Value}};
//!
//! fn trim_suffix(suffix: Str, text: Str) -> Str {
//!     text.strip_suffix(suffix.as_bytes()).unwrap_or(&text).into()
//! }
//!
//! /// A nil map reads as an empty map.
//! fn has_key(map: Map, key: Str) -> bool {
//!     map.contains_key(key)
//! }
//!
//! /// Go's `func(d interface{}, given ...interface{}) interface{}`.
//! fn default(fallback: Value, given: Rest<Value>) -> Value {
//!     given.first().filter(|value| value.truth()).cloned().unwrap_or(fallback)
//! }
//!
//! /// An error becomes `error calling fail: ...`, as does a panic in Go.
//! fn fail(message: Str) -> Result<Value, Error> {
//!     Err(Error::new(message.lossy()))
//! }
//!
//! /// A function that needs the running execution takes it first.
//! fn include(call: &mut Call, name: Str, data: Value) -> Result<Str, Error> {
//!     call.execute(&name, data)
//! }
//!
//! let mut functions = Functions::default();
//! functions.add("trimSuffix", trim_suffix);
//! functions.add("hasKey", has_key);
//! functions.add("default", default);
//! functions.add("fail", fail);
//! functions.add("include", include);
//! functions.add("hello", || "Hello!");
//! ```
//!
//! | parameter | Go type | |
//! |---|---|---|
//! | [`Value`] | `interface {}` | anything; nil is [`Value::Nil`] |
//! | [`Str`] | `string` | |
//! | `String` | `string` | lossy where the bytes are not UTF-8 |
//! | `bool`, `f64`, `i32` | `bool`, `float64`, `int32` | |
//! | `i64` | `int` | *not* `int64` |
//! | [`Int64`] | `int64` | |
//! | [`Bytes`] | `[]byte` | |
//! | [`List`] | `[]interface {}` | nil arrives as a nil list |
//! | `Vec<Str>`, `Vec<i64>` | `[]string`, `[]int` | |
//! | [`Map`] | `map[string]interface {}` | `.Values` as well; nil arrives as a nil map |
//! | [`Function`] | `func` | |
//! | `Option<T>` | that of `T`, which can be nil | `None` for nil |
//! | [`Rest<T>`](Rest) | `...T` | last only |
//! | [`Receiver`] | | first parameter of a method: the value it was called on |
//!
//! Results convert back the same way: `Value` and `Option<Value>` are `interface {}` (which matters for the wording of errors and for
//! field access on nil), others have the type of the table; `&str` and `char`-free text types are strings, `Vec<Str>` is `[]string`,
//! `Vec<i64>` is `[]int`. Any of them may come in a `Result<_, Error>`.

use std::{any::Any, borrow::Cow, fmt, marker::PhantomData, ops::Deref, rc::Rc, sync::Arc};

use smallvec::SmallVec;

use crate::{
    hash::ByName,
    string::Str,
    types::{self, Type},
    value::{List, Map, TooDeep, Value, Weight},
};

/// Why a function failed; the template error reads `error calling <name>: <this>`.
#[derive(Debug)]
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

impl Error {
    /// An error of that text.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into().into())
    }

    /// Wraps an error. Callers of the execution can get it back with [`downcast_ref`](Self::downcast_ref).
    pub fn from_error(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }

    /// The wrapped error, if it is of that type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }

    /// The wrapped error.
    pub fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<TooDeep> for Error {
    fn from(error: TooDeep) -> Self {
        Self::from_error(error)
    }
}

/// What a running execution provides to functions.
pub(crate) trait Runtime {
    fn host(&self) -> &dyn Any;
    fn execute(&mut self, name: &Str, data: Value) -> Result<Str, Error>;
    fn execute_text(&mut self, text: &Str, data: Value) -> Result<Str, Error>;
    fn take_steps(&mut self, steps: u64) -> Result<(), Error>;
    fn take_memory(&mut self, bytes: usize) -> Result<(), Error>;
    fn check_memory(&mut self, bytes: usize) -> Result<(), Error>;
    fn memory_left(&self) -> usize;
}

/// The execution that a function is called from.
pub struct Call<'a> {
    pub(crate) runtime: &'a mut dyn Runtime,
}

impl Call<'_> {
    /// The host's own context, as passed to the execution: clock, random source, files. All functions share it, so
    /// the parts that change are in cells.
    ///
    /// # Errors
    /// The execution was started without a host of that type.
    pub fn host<T: 'static>(&self) -> Result<&T, Error> {
        self.runtime
            .host()
            .downcast_ref()
            .ok_or_else(|| Error::new("not available here"))
    }

    /// Takes steps out of the budget for the work that a function is about to do. Each call takes one step, plus one
    /// for every 16 bytes of string arguments; call this for anything that takes longer. A step corresponds to about
    /// 100 ns.
    ///
    /// # Errors
    /// Not enough steps are left, or the time is over. The function must return this error.
    pub fn take_steps(&mut self, steps: u64) -> Result<(), Error> {
        self.runtime.take_steps(steps)
    }

    /// Takes memory out of the budget. Strings, lists and maps are counted when a function returns them; call this
    /// for new values inside them.
    ///
    /// # Errors
    /// Not enough memory is left. The function must return this error.
    pub fn take_memory(&mut self, bytes: usize) -> Result<(), Error> {
        self.runtime.take_memory(bytes)
    }

    /// Checks that enough memory is left for what a function is about to create, without taking it: the result is
    /// counted when it is returned, if at all.
    ///
    /// # Errors
    /// Not enough memory is left. The function must return this error.
    pub fn check_memory(&mut self, bytes: usize) -> Result<(), Error> {
        self.runtime.check_memory(bytes)
    }

    /// For a value that a function is about to walk through, of whatever type: checks that enough memory is left for
    /// its text, and takes the steps for the walk.
    ///
    /// # Errors
    /// The budget is exhausted. The function must return this error.
    pub fn weigh(&mut self, value: &Value) -> Result<Weight, Error> {
        let weight = value.weight(self.runtime.memory_left());
        self.runtime.check_memory(weight.text())?;
        self.runtime.take_steps(weight.steps())?;
        Ok(weight)
    }

    /// Takes memory and steps out of the budget for a copy of a value that shares no lists or maps with it.
    ///
    /// # Errors
    /// The budget is exhausted. The function must return this error.
    pub fn take_copy(&mut self, value: &Value) -> Result<(), Error> {
        let weight = value.own_weight(self.runtime.memory_left());
        self.runtime.take_memory(weight.memory_of_values())?;
        self.runtime.take_steps(weight.steps())
    }

    /// Takes memory out of the budget for everything that a value holds and nothing else shares.
    ///
    /// # Errors
    /// Not enough memory is left. The function must return this error.
    pub fn take_memory_of(&mut self, value: &Value) -> Result<(), Error> {
        let weight = value.own_weight(self.runtime.memory_left());
        self.runtime.take_memory(weight.memory())
    }

    /// Executes a template of the set and returns its output (Helm's `include`, Go's `ExecuteTemplate`).
    pub fn execute(&mut self, name: &Str, data: Value) -> Result<Str, Error> {
        self.runtime.execute(name, data)
    }

    /// Parses a text and executes it (Helm's `tpl`). It sees all templates of the set; templates that it defines are
    /// visible only to itself and to what it executes.
    pub fn execute_text(&mut self, text: &Str, data: Value) -> Result<Str, Error> {
        self.runtime.execute_text(text, data)
    }
}

/// A function, with the Go types of its signature.
#[derive(Clone)]
pub struct Function(Arc<Inner>);

type Body = dyn Fn(&mut Call<'_>, &mut Arguments<'_>) -> Result<Value, Error> + Send + Sync;

struct Inner {
    parameters: Box<[&'static Type]>,
    variadic: bool,
    returns_interface: bool,
    body: Box<Body>,
}

impl Function {
    /// Wraps a Rust function; see the [module](self) for the types it may take and return.
    pub fn new<M>(function: impl IntoFunction<M>) -> Self {
        function.into_function()
    }

    /// The types of the parameters; if the function is variadic, the last one is the type of the elements.
    pub fn parameters(&self) -> &[&'static Type] {
        &self.0.parameters
    }

    /// Whether the last parameter takes any number of values.
    pub fn is_variadic(&self) -> bool {
        self.0.variadic
    }

    /// Whether the Go type of the result is `interface {}`.
    pub fn returns_interface(&self) -> bool {
        self.0.returns_interface
    }

    /// Calls it. Number and types of the arguments have been checked against [`parameters`](Self::parameters).
    pub(crate) fn call(&self, call: &mut Call<'_>, arguments: &mut [Value]) -> Result<Value, Error> {
        (self.0.body)(
            call,
            &mut Arguments {
                values: arguments.iter_mut(),
            },
        )
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "func{:?}", self.0.parameters)
    }
}

/// Functions by name. Cheap to clone; a clone that gets more functions does not change the original.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    by_name: Arc<ByName<Function>>,
    /// The first bytes of all names, as a set of their low six bits: most keys of maps are not methods, and this
    /// rules them out without a lookup.
    firsts: u64,
}

fn first(name: &[u8]) -> u64 {
    name.first().map_or(0, |first| 1 << (first & 63))
}

impl Functions {
    /// Adds a function, or replaces the one of that name.
    pub fn add<M>(&mut self, name: &str, function: impl IntoFunction<M>) {
        self.add_function(name, function.into_function());
    }

    /// Adds a function that exists already, for example under a second name.
    pub fn add_function(&mut self, name: &str, function: Function) {
        self.firsts |= first(name.as_bytes());
        Arc::make_mut(&mut self.by_name).insert(name.into(), function);
    }

    /// Adds all functions of another set, replacing those of the same name.
    pub fn extend(&mut self, other: &Functions) {
        self.firsts |= other.firsts;
        Arc::make_mut(&mut self.by_name).extend(
            other
                .by_name
                .iter()
                .map(|(name, function)| (name.clone(), function.clone())),
        );
    }

    /// The function of that name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Function> {
        let name = name.as_ref();
        if self.firsts & first(name) == 0 {
            return None;
        }
        self.by_name.get(name)
    }

    /// All names, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &Str> {
        self.by_name.keys()
    }
}

/// The arguments of one call, taken from first to last.
#[derive(Debug)]
pub struct Arguments<'a> {
    values: std::slice::IterMut<'a, Value>,
}

impl Arguments<'_> {
    /// The next argument.
    pub fn take(&mut self) -> Option<Value> {
        self.values.next().map(std::mem::take)
    }
}

/// A Rust type that a template function may take.
pub trait Parameter: Sized {
    /// Whether it takes all remaining arguments.
    const VARIADIC: bool = false;

    /// The Go type; that of one element if variadic.
    fn go_type() -> &'static Type;

    /// Takes the argument, whose type the evaluator has checked.
    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error>;
}

macro_rules! parameter {
    ($rust:ty, $ty:ident, $pattern:pat => $value:expr) => {
        impl Parameter for $rust {
            fn go_type() -> &'static Type {
                &types::$ty
            }

            fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
                match arguments.take() {
                    Some($pattern) => Ok($value),
                    other => Err(unexpected(other, Self::go_type())),
                }
            }
        }
    };
}

/// The evaluator checks arguments before it calls; this is for hosts that call a function directly.
fn unexpected(value: Option<Value>, ty: &Type) -> Error {
    Error::new(match value {
        Some(value) => format!("wrong type for value; expected {ty}; got {}", value.type_name()),
        None => format!("missing argument of type {ty}"),
    })
}

parameter!(Value, INTERFACE, value => value);
parameter!(Str, STRING, Value::String(text) => text);
parameter!(String, STRING, Value::String(text) => text.lossy().into_owned());
parameter!(bool, BOOL, Value::Bool(b) => b);
parameter!(i64, INT, Value::Int(n) => n);
parameter!(i32, INT32, Value::Int32(n) => n);
parameter!(Int64, INT64, Value::Int64(n) => Int64(n));
parameter!(f64, FLOAT64, Value::Float64(f) => f);
parameter!(Bytes, BYTES, Value::Bytes(bytes) => Bytes(Rc::unwrap_or_clone(bytes)));
parameter!(List, LIST, Value::List(list) => list);
parameter!(Map, MAP, Value::Map(map) => map);
parameter!(Function, FUNC, Value::Func(function) => function);
parameter!(Vec<Str>, STRINGS, Value::List(list) => list.iter().filter_map(Value::as_str).cloned().collect());
parameter!(Vec<i64>, INTS, Value::List(list) => list.iter().filter_map(Value::as_i64).collect());
parameter!(Receiver, INTERFACE, value => Receiver(value));

impl<T: Parameter> Parameter for Option<T> {
    fn go_type() -> &'static Type {
        T::go_type()
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        match arguments.values.as_slice().first() {
            Some(value) if value.is_nil() => {
                arguments.take();
                Ok(None)
            }
            _ => T::take(arguments).map(Some),
        }
    }
}

/// All remaining arguments: Go's `...T`.
#[derive(Clone, Debug)]
pub struct Rest<T>(SmallVec<[T; 4]>);

impl<T> Rest<T> {
    /// The arguments as a vector.
    pub fn into_vec(self) -> Vec<T> {
        self.0.into_vec()
    }
}

impl<T> Deref for Rest<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> IntoIterator for Rest<T> {
    type Item = T;
    type IntoIter = smallvec::IntoIter<[T; 4]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T: Parameter> Parameter for Rest<T> {
    const VARIADIC: bool = true;

    fn go_type() -> &'static Type {
        T::go_type()
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let mut rest = SmallVec::with_capacity(arguments.values.len());
        while arguments.values.len() > 0 {
            rest.push(T::take(arguments)?);
        }
        Ok(Self(rest))
    }
}

/// Go's `int64`, as parameter and result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int64(pub i64);

/// Go's `[]byte`, as parameter and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Str);

/// The value that a method was called on. The evaluator found the method through the value's type, so the value is of
/// that type.
#[derive(Clone, Debug)]
pub struct Receiver(pub Value);

impl Receiver {
    /// The items if it is a list, otherwise none.
    pub fn list(&self) -> &[Value] {
        self.0.as_list().map_or(&[], |list| list)
    }

    /// The map; empty if the value is not a map.
    pub fn map(&self) -> Map {
        self.0.as_map().cloned().unwrap_or_default()
    }

    /// The host object, if it is of that type.
    pub fn object<T: crate::value::Object>(&self) -> Result<&T, Error> {
        self.0
            .as_object()
            .ok_or_else(|| Error::new(format!("method called on {}", self.0.type_name())))
    }
}

/// A Rust type that a template function may return.
pub trait Returned {
    /// Whether Go's static type of the result is `interface {}`.
    const INTERFACE: bool = false;

    /// The template value.
    fn into_result(self) -> Result<Value, Error>;
}

macro_rules! returned {
    ($($rust:ty: $self:ident => $value:expr;)*) => {$(
        impl Returned for $rust {
            fn into_result($self) -> Result<Value, Error> {
                Ok($value)
            }
        }
    )*};
}

returned! {
    Str: self => Value::String(self);
    String: self => Value::String(self.into());
    &str: self => Value::String(self.into());
    Cow<'_, str>: self => Value::String(self.into());
    bool: self => Value::Bool(self);
    i64: self => Value::Int(self);
    i32: self => Value::Int32(self);
    Int64: self => Value::Int64(self.0);
    f64: self => Value::Float64(self);
    Bytes: self => Value::bytes(self.0);
    List: self => Value::List(self);
    Map: self => Value::Map(self);
    Vec<Str>: self => Value::strings(self);
    Vec<i64>: self => Value::List(List::with_type(&types::INTS, self.into_iter().map(Value::Int).collect()));
    Function: self => Value::Func(self);
}

impl Returned for Value {
    const INTERFACE: bool = true;

    fn into_result(self) -> Result<Value, Error> {
        Ok(self)
    }
}

impl Returned for Option<Value> {
    const INTERFACE: bool = true;

    fn into_result(self) -> Result<Value, Error> {
        Ok(self.unwrap_or_default())
    }
}

/// A result whose Go type is that of the value itself and not `interface {}`: for host objects (`*semver.Version`)
/// and named containers.
#[derive(Clone, Debug)]
pub struct Concrete(pub Value);

impl Returned for Concrete {
    fn into_result(self) -> Result<Value, Error> {
        Ok(self.0)
    }
}

impl<T: Returned, E: Into<Error>> Returned for Result<T, E> {
    const INTERFACE: bool = T::INTERFACE;

    fn into_result(self) -> Result<Value, Error> {
        self.map_err(Into::into)?.into_result()
    }
}

/// A Rust function that can be registered: up to six [`Parameter`]s, with or without a leading `&mut Call`, and a [`Returned`] result.
pub trait IntoFunction<M> {
    /// Wraps it.
    fn into_function(self) -> Function;
}

/// Marks functions without access to the execution.
#[derive(Debug)]
pub struct Plain<T>(PhantomData<T>);

/// Marks functions whose first parameter is `&mut Call`.
#[derive(Debug)]
pub struct WithCall<T>(PhantomData<T>);

fn variadic(parameters: &[bool]) -> bool {
    let variadic = parameters.last().copied().unwrap_or_default();
    debug_assert!(
        parameters.iter().filter(|variadic| **variadic).count() <= usize::from(variadic),
        "only the last parameter may be variadic"
    );
    variadic
}

macro_rules! into_function {
    ($($parameter:ident)*) => {
        impl<F, R, $($parameter),*> IntoFunction<Plain<fn($($parameter),*) -> R>> for F
        where
            F: Fn($($parameter),*) -> R + Send + Sync + 'static,
            R: Returned,
            $($parameter: Parameter,)*
        {
            fn into_function(self) -> Function {
                Function(Arc::new(Inner {
                    parameters: Box::new([$($parameter::go_type()),*]),
                    variadic: variadic(&[$($parameter::VARIADIC),*]),
                    returns_interface: R::INTERFACE,
                    // Rust evaluates call arguments from left to right.
                    body: Box::new(move |_, _arguments| self($($parameter::take(_arguments)?),*).into_result()),
                }))
            }
        }

        impl<F, R, $($parameter),*> IntoFunction<WithCall<fn($($parameter),*) -> R>> for F
        where
            F: Fn(&mut Call<'_>, $($parameter),*) -> R + Send + Sync + 'static,
            R: Returned,
            $($parameter: Parameter,)*
        {
            fn into_function(self) -> Function {
                Function(Arc::new(Inner {
                    parameters: Box::new([$($parameter::go_type()),*]),
                    variadic: variadic(&[$($parameter::VARIADIC),*]),
                    returns_interface: R::INTERFACE,
                    body: Box::new(move |call, _arguments| self(call, $($parameter::take(_arguments)?),*).into_result()),
                }))
            }
        }
    };
}

into_function!();
into_function!(A);
into_function!(A B);
into_function!(A B C);
into_function!(A B C D);
into_function!(A B C D E);
into_function!(A B C D E G);
