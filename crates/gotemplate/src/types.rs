//! Go types, as far as templates can see them: their names, kinds, elements and methods.

use std::{fmt, sync::LazyLock};

use crate::{
    function::Functions,
    value::{List, Map, Value},
};

/// Go's `reflect.Kind`; its `Display` is the name that Go prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is Go's kind of the same name")]
pub enum Kind {
    Invalid,
    Bool,
    Int,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float32,
    Float64,
    Complex128,
    Func,
    Interface,
    Map,
    Pointer,
    Slice,
    String,
    Struct,
}

impl Kind {
    /// Go's name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint => "uint",
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Complex128 => "complex128",
            Self::Func => "func",
            Self::Interface => "interface",
            Self::Map => "map",
            Self::Pointer => "ptr",
            Self::Slice => "slice",
            Self::String => "string",
            Self::Struct => "struct",
        }
    }

    /// Whether it is one of the signed integer kinds.
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            Self::Int | Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64
        )
    }

    /// Whether it is one of the unsigned integer kinds.
    pub const fn is_unsigned(self) -> bool {
        matches!(
            self,
            Self::Uint | Self::Uint8 | Self::Uint16 | Self::Uint32 | Self::Uint64
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Go type. Declared as a `static` next to the code that provides its values:
///
/// ```
/// use std::sync::LazyLock;
/// use gotemplate::{function::{Functions, Receiver}, types::{self, Type}, value::Value, string::Str};
///
/// /// `.Capabilities.APIVersions`: a list of strings with a method.
/// static VERSION_SET: Type = Type::slice("common.VersionSet", &types::STRING)
///     .defined_as(&types::STRINGS)
///     .with_methods(&VERSION_SET_METHODS);
/// static VERSION_SET_METHODS: LazyLock<Functions> = LazyLock::new(|| {
///     let mut methods = Functions::default();
///     methods.add("Has", |this: Receiver, version: Str| -> bool {
///         this.list().iter().any(|known| known.as_str() == Some(&version))
///     });
///     methods
/// });
/// ```
pub struct Type {
    name: &'static str,
    kind: Kind,
    element: Option<&'static Type>,
    underlying: Option<&'static Type>,
    methods: Option<&'static LazyLock<Functions>>,
}

impl Type {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            element: None,
            underlying: None,
            methods: None,
        }
    }

    /// A slice type, named as `%T` prints it (`[]string`, `common.VersionSet`).
    pub const fn slice(name: &'static str, element: &'static Type) -> Self {
        Self {
            element: Some(element),
            ..Self::new(name, Kind::Slice)
        }
    }

    /// A map type with string keys, named as `%T` prints it (`map[string]interface {}`, `common.Values`).
    pub const fn map(name: &'static str, element: &'static Type) -> Self {
        Self {
            element: Some(element),
            ..Self::new(name, Kind::Map)
        }
    }

    /// A struct type (`common.KubeVersion`).
    pub const fn structure(name: &'static str) -> Self {
        Self::new(name, Kind::Struct)
    }

    /// A pointer to a struct (`*semver.Version`).
    pub const fn pointer(name: &'static str) -> Self {
        Self::new(name, Kind::Pointer)
    }

    /// A defined basic type (`time.Duration`, of kind int64); its values are [`Object`](crate::value::Object)s with an underlying value.
    pub const fn basic(name: &'static str, underlying: &'static Type) -> Self {
        Self {
            underlying: Some(underlying),
            ..Self::new(name, underlying.kind)
        }
    }

    /// Declares a defined type over `underlying`: Go accepts its values where `underlying` is wanted, but not
    /// where another defined type over it is.
    pub const fn defined_as(mut self, underlying: &'static Type) -> Self {
        self.underlying = Some(underlying);
        self
    }

    /// Adds methods: functions whose first parameter is a [`Receiver`](crate::function::Receiver).
    pub const fn with_methods(mut self, methods: &'static LazyLock<Functions>) -> Self {
        self.methods = Some(methods);
        self
    }

    /// The name that `%T` prints.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The type of the elements of a slice or map; `interface {}` if none was given.
    pub fn element(&self) -> &'static Type {
        self.element.unwrap_or(&INTERFACE)
    }

    /// The method of that name.
    pub fn method(&self, name: &[u8]) -> Option<&'static crate::function::Function> {
        self.methods?.get(name)
    }

    /// Whether the two are the same type.
    pub fn is(&self, other: &Type) -> bool {
        std::ptr::eq(self, other) || self.name == other.name
    }

    /// Go's assignability of a value of this (concrete) type to a variable of type `target`.
    pub fn is_assignable_to(&self, target: &Type) -> bool {
        if target.kind == Kind::Interface || self.is(target) {
            return true;
        }
        // Equal underlying types, and not both of them defined types.
        match (self.underlying, target.underlying) {
            (Some(mine), None) => mine.is(target) && target.element.is_some(),
            (None, Some(theirs)) => theirs.is(self) && self.element.is_some(),
            (Some(_), Some(_)) | (None, None) => false,
        }
    }

    /// Whether an untyped nil can be assigned to it.
    pub fn can_be_nil(&self) -> bool {
        matches!(
            self.kind,
            Kind::Func | Kind::Interface | Kind::Map | Kind::Pointer | Kind::Slice
        ) || std::ptr::eq(self, &raw const REFLECT_VALUE)
    }

    /// The zero value.
    pub fn zero(&'static self) -> Value {
        match self.kind {
            Kind::Bool => Value::Bool(false),
            Kind::Int => Value::Int(0),
            Kind::Int8 => Value::Int8(0),
            Kind::Int16 => Value::Int16(0),
            Kind::Int32 => Value::Int32(0),
            Kind::Int64 => Value::Int64(0),
            Kind::Uint => Value::Uint(0),
            Kind::Uint8 => Value::Uint8(0),
            Kind::Uint16 => Value::Uint16(0),
            Kind::Uint32 => Value::Uint32(0),
            Kind::Uint64 => Value::Uint64(0),
            Kind::Float32 => Value::Float32(0.0),
            Kind::Float64 => Value::Float64(0.0),
            Kind::Complex128 => Value::Complex(0.0, 0.0),
            Kind::String => Value::String(crate::string::Str::EMPTY),
            Kind::Slice if self.is(&BYTES) => Value::bytes(crate::string::Str::EMPTY),
            Kind::Slice => Value::List(List::nil(self)),
            Kind::Map => Value::Map(Map::nil(self)),
            Kind::Invalid | Kind::Func | Kind::Interface | Kind::Pointer | Kind::Struct => Value::Nil,
        }
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! basic {
    ($($constant:ident $name:literal $kind:ident;)*) => {$(
        #[doc = concat!("Go's `", $name, "`.")]
        pub static $constant: Type = Type::new($name, Kind::$kind);
    )*};
}

basic! {
    INTERFACE "interface {}" Interface;
    BOOL "bool" Bool;
    INT "int" Int;
    INT8 "int8" Int8;
    INT16 "int16" Int16;
    INT32 "int32" Int32;
    INT64 "int64" Int64;
    UINT "uint" Uint;
    UINT8 "uint8" Uint8;
    UINT16 "uint16" Uint16;
    UINT32 "uint32" Uint32;
    UINT64 "uint64" Uint64;
    FLOAT32 "float32" Float32;
    FLOAT64 "float64" Float64;
    COMPLEX128 "complex128" Complex128;
    STRING "string" String;
    FUNC "func" Func;
    REFLECT_VALUE "reflect.Value" Struct;
}

/// `[]interface {}`.
pub static LIST: Type = Type::slice("[]interface {}", &INTERFACE);
/// `[]string`.
pub static STRINGS: Type = Type::slice("[]string", &STRING);
/// `[]int`.
pub static INTS: Type = Type::slice("[]int", &INT);
/// `[][]interface {}`, returned by `chunk`.
pub static LISTS: Type = Type::slice("[][]interface {}", &LIST);
/// `[]byte`, printed as Go does.
pub static BYTES: Type = Type::slice("[]uint8", &UINT8);
/// `map[string]interface {}`.
pub static MAP: Type = Type::map("map[string]interface {}", &INTERFACE);
/// `map[string]string`.
pub static STRING_MAP: Type = Type::map("map[string]string", &STRING);
/// `[]map[string]interface {}`.
pub static MAPS: Type = Type::slice("[]map[string]interface {}", &MAP);
