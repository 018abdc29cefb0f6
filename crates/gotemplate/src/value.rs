//! [`Value`]: the values that templates compute with; Go values of every type that templates can reach.
//!
//! A value belongs to one thread (templates themselves are shared between threads). Maps have Go's reference
//! semantics: all holders of a map see each other's changes. Lists are immutable. All recursion is bounded: printing
//! a map that contains itself is an error.

use std::{
    any::Any,
    cell::{Cell, OnceCell, Ref, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};

use crate::{
    changes::{self, Time},
    frozen::FrozenMap,
    function::Function,
    string::Str,
    types::{self, Kind, Type},
};

/// The maximum nesting depth of a value: printing, comparing or converting a deeper one is an error.
///
/// Go would overflow its stack on a map that contains itself.
pub const MAX_DEPTH: usize = 500;

/// How many values may be visited to compare, copy or convert one. Lists that hold the same list twice, level upon
/// level, are small in memory but take forever to walk.
const MAX_VISITS: usize = 2_000_000;

/// Counts the values visited by a walk, and checks its depth.
pub(crate) struct Walk {
    visits: usize,
}

impl Walk {
    pub(crate) fn new() -> Self {
        Self { visits: 0 }
    }

    /// Visits one more value, at that depth.
    pub(crate) fn visit(&mut self, depth: usize) -> Result<(), TooDeep> {
        self.visits += 1;
        if depth > MAX_DEPTH || self.visits > MAX_VISITS {
            Err(TooDeep)
        } else {
            Ok(())
        }
    }

    /// Visits a value and everything below it: `count` values, down to `depth`.
    fn visit_all(&mut self, count: usize, depth: usize) -> Result<(), TooDeep> {
        // The value itself has been counted before.
        self.visits = self.visits.saturating_add(count.saturating_sub(2));
        self.visit(depth)
    }
}

/// The size of a value with everything in it; a value found in several places counts each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of values, itself included.
    pub values: usize,
    /// Bytes of keys and strings.
    pub bytes: usize,
    /// Sum of the depths of all values.
    pub depth: usize,
}

impl Weight {
    /// Its maximum length as JSON or YAML: up to `\\u0000` for a byte, 24 for a number, and two spaces for each
    /// level.
    pub fn text(self) -> usize {
        let values = self.values.saturating_mul(24);
        let bytes = self.bytes.saturating_mul(6);
        values
            .saturating_add(bytes)
            .saturating_add(self.depth.saturating_mul(2))
    }

    /// Bytes of memory for a full copy.
    pub fn memory(self) -> usize {
        self.memory_of_values().saturating_add(self.bytes)
    }

    fn and(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            bytes: self.bytes.saturating_add(other.bytes),
            depth: self.depth.saturating_add(other.depth),
        }
    }

    /// Bytes of memory for a full copy that shares the strings.
    pub fn memory_of_values(self) -> usize {
        self.values.saturating_mul(MEMORY_OF_A_VALUE)
    }

    /// The cost of walking through it.
    pub fn steps(self) -> u64 {
        (self.values / 4 + self.bytes / 64) as u64
    }
}

/// Memory of a value in a map, with its key and its share of the nodes.
const MEMORY_OF_A_VALUE: usize = 64;

/// A value is nested deeper than [`MAX_DEPTH`] or takes too long to walk: most likely a map contains itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value is nested too deeply, does it contain itself?")]
pub struct TooDeep;

/// A Go value.
///
/// `Nil` is Go's untyped nil: a nil `interface {}`, or no value at all.
#[derive(Clone, Default)]
#[expect(missing_docs, reason = "each is Go's type of the same name")]
pub enum Value {
    #[default]
    Nil,
    Bool(bool),
    Int(i64),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Uint(u64),
    Uint8(u8),
    Uint16(u16),
    Uint32(u32),
    Uint64(u64),
    Float32(f32),
    Float64(f64),
    /// A `complex128`: real and imaginary part.
    Complex(f64, f64),
    String(Str),
    /// A `[]byte`; boxed to keep `Value` small.
    Bytes(Rc<Str>),
    List(List),
    Map(Map),
    /// A struct, a pointer to one, or a value of a defined basic type.
    Object(Rc<dyn Object>),
    Func(Function),
}

/// Memory of a list or map without its contents.
const SHARED: usize = 64;

/// Values are moved often, so they should stay small.
const _: () = assert!(size_of::<Value>() <= 24);

impl Value {
    /// An empty `map[string]interface {}`.
    pub fn map() -> Self {
        Self::Map(Map::new())
    }

    /// A `[]interface {}`.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// A `[]string`.
    pub fn strings<S: Into<Str>>(items: impl IntoIterator<Item = S>) -> Self {
        Self::List(List::strings(items))
    }

    /// A `[]byte`.
    pub fn bytes(bytes: impl Into<Str>) -> Self {
        Self::Bytes(Rc::new(bytes.into()))
    }

    /// Wraps a host object.
    pub fn object(object: impl Object) -> Self {
        Self::Object(Rc::new(object))
    }

    /// The Go type; none for nil.
    pub fn ty(&self) -> Option<&'static Type> {
        Some(match self {
            Self::Nil => return None,
            Self::Bool(_) => &types::BOOL,
            Self::Int(_) => &types::INT,
            Self::Int8(_) => &types::INT8,
            Self::Int16(_) => &types::INT16,
            Self::Int32(_) => &types::INT32,
            Self::Int64(_) => &types::INT64,
            Self::Uint(_) => &types::UINT,
            Self::Uint8(_) => &types::UINT8,
            Self::Uint16(_) => &types::UINT16,
            Self::Uint32(_) => &types::UINT32,
            Self::Uint64(_) => &types::UINT64,
            Self::Float32(_) => &types::FLOAT32,
            Self::Float64(_) => &types::FLOAT64,
            Self::Complex(..) => &types::COMPLEX128,
            Self::String(_) => &types::STRING,
            Self::Bytes(_) => &types::BYTES,
            Self::List(list) => list.ty(),
            Self::Map(map) => map.ty(),
            Self::Object(object) => object.ty(),
            Self::Func(_) => &types::FUNC,
        })
    }

    /// What `%T` prints: the type's name, `<nil>` for nil.
    pub fn type_name(&self) -> &'static str {
        self.ty().map_or("<nil>", Type::name)
    }

    /// The kind; `Invalid` for nil.
    pub fn kind(&self) -> Kind {
        self.ty().map_or(Kind::Invalid, Type::kind)
    }

    /// Whether this is the untyped nil. See [`is_nil`](Self::is_nil) for nil lists and maps.
    pub fn is_untyped_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Whether Go's `== nil` holds: nil, a nil list, a nil map.
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Nil => true,
            Self::List(list) => list.is_nil(),
            Self::Map(map) => map.is_nil(),
            _ => false,
        }
    }

    /// Truth as `if` sees it: not the zero value of its type. Structs are always true.
    pub fn truth(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(b) => *b,
            Self::Float32(f) => *f != 0.0,
            Self::Float64(f) => *f != 0.0,
            Self::Complex(re, im) => *re != 0.0 || *im != 0.0,
            Self::String(s) => !s.is_empty(),
            Self::Bytes(s) => !s.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Object(object) => object.underlying().is_none_or(|value| value.truth()),
            Self::Func(_) => true,
            _ => self.as_i64().is_some_and(|n| n != 0) || self.as_u64().is_some_and(|n| n != 0),
        }
    }

    /// The string, if the value is of type `string`.
    pub fn as_str(&self) -> Option<&Str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The number, if the value is of a signed integer type (including `time.Duration`).
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(n) | Self::Int64(n) => Some(*n),
            Self::Int8(n) => Some((*n).into()),
            Self::Int16(n) => Some((*n).into()),
            Self::Int32(n) => Some((*n).into()),
            Self::Object(object) => object.underlying()?.as_i64(),
            _ => None,
        }
    }

    /// The number, if the value is of an unsigned integer type.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Uint(n) | Self::Uint64(n) => Some(*n),
            Self::Uint8(n) => Some((*n).into()),
            Self::Uint16(n) => Some((*n).into()),
            Self::Uint32(n) => Some((*n).into()),
            Self::Object(object) => object.underlying()?.as_u64(),
            _ => None,
        }
    }

    /// The number, if the value is of a floating point type.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float32(f) => Some((*f).into()),
            Self::Float64(f) => Some(*f),
            Self::Object(object) => object.underlying()?.as_f64(),
            _ => None,
        }
    }

    /// The list, if the value is of a slice type other than `[]byte`.
    pub fn as_list(&self) -> Option<&List> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }

    /// The map, if the value is of a map type.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The host object, if the value is one of that type.
    pub fn as_object<T: Object>(&self) -> Option<&T> {
        match self {
            Self::Object(object) => object.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Go's `reflect.DeepEqual`: same types, same contents. Numbers of different types differ, and an empty list
    /// differs from a nil one.
    pub fn deep_equal(&self, other: &Self) -> Result<bool, TooDeep> {
        deep_equal(self, other, &mut Walk::new(), 0)
    }

    /// Whether both are equal for templates. Long strings, and large or deeply nested containers, count as different unless
    /// they are the same.
    pub(crate) fn looks_equal(&self, other: &Self) -> bool {
        looks_equal(self, other, MAX_COMPARED_DEPTH)
    }

    /// The weight of the value. Counting stops once its text is longer than `most`, and at [`MAX_DEPTH`].
    pub fn weight(&self, most: usize) -> Weight {
        let mut weight = Weight::default();
        weigh(self, (most, true), 0, &mut weight);
        weight
    }

    /// Like [`weight`](Self::weight), but a map that is still frozen, and so shared, counts as one value.
    pub fn own_weight(&self, most: usize) -> Weight {
        let mut weight = Weight::default();
        weigh(self, (most, false), 0, &mut weight);
        weight
    }

    /// A copy that shares no maps or lists (`copystructure`, used by `deepCopy`). Host objects are shared.
    pub fn deep_copy(&self) -> Result<Self, TooDeep> {
        deep_copy(self, &mut Walk::new(), 0)
    }
}

/// Down to which depth, and up to which number of items, [`Value::looks_equal`] compares containers.
const MAX_COMPARED_DEPTH: usize = 3;
const MAX_COMPARED_ITEMS: usize = 16;
/// Bytes of a string up to which [`Value::looks_equal`] compares strings that are not the same. Comparing takes no steps
/// from the budget of templates, so it has to be cheap.
const MAX_COMPARED_TEXT: usize = 256;

fn looks_equal(a: &Value, b: &Value, levels: usize) -> bool {
    match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) | (Value::Int64(a), Value::Int64(b)) => a == b,
        (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits(),
        (Value::String(a), Value::String(b)) => {
            let is_comparable = a.len() <= MAX_COMPARED_TEXT || a.as_ptr() == b.as_ptr();
            a.len() == b.len() && is_comparable && a == b
        }
        (Value::List(a), Value::List(b)) => {
            let is_same = Rc::ptr_eq(&a.data, &b.data);
            let is_comparable =
                levels > 0 && a.len() == b.len() && a.len() <= MAX_COMPARED_ITEMS && a.is_nil() == b.is_nil();
            a.ty().is(b.ty())
                && (is_same
                    || is_comparable && a.iter().zip(b.iter()).all(|(a, b)| looks_equal(a, b, levels - 1)))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.ty().is(b.ty()) && (a.is_same(b) || a.has_equal_entries(b, levels))
        }
        (Value::Object(a), Value::Object(b)) => Rc::ptr_eq(a, b),
        _ => false,
    }
}

fn weigh(value: &Value, (most, of_frozen): (usize, bool), depth: usize, weight: &mut Weight) {
    weight.values += 1;
    weight.depth += depth;
    if depth > MAX_DEPTH || weight.text() > most {
        return;
    }
    match value {
        Value::String(text) => weight.bytes += text.len(),
        Value::Bytes(text) => weight.bytes += text.len(),
        Value::List(list) => {
            for item in list.iter() {
                weigh(item, (most, of_frozen), depth + 1, weight);
                if weight.text() > most {
                    return;
                }
            }
        }
        Value::Map(map) => match map.data.still_frozen() {
            Some(frozen) => {
                if of_frozen {
                    // The weight of the frozen map includes the map itself.
                    weight.values -= 1;
                    weight.depth -= depth;
                    *weight = weight.and(frozen.weight(depth));
                }
            }
            None => {
                for (key, item) in map.borrow().iter() {
                    weight.bytes += key.len();
                    weigh(item, (most, of_frozen), depth + 1, weight);
                    if weight.text() > most {
                        return;
                    }
                }
            }
        },
        Value::Object(object) => {
            for (_, field) in object.fields() {
                weigh(&field, (most, of_frozen), depth + 1, weight);
            }
        }
        _ => {}
    }
}

#[expect(clippy::float_cmp, reason = "Go compares them so")]
fn deep_equal(a: &Value, b: &Value, walk: &mut Walk, depth: usize) -> Result<bool, TooDeep> {
    walk.visit(depth)?;
    Ok(match (a, b) {
        (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Float32(a), Value::Float32(b)) => a == b,
        (Value::Float64(a), Value::Float64(b)) => a == b,
        (Value::Complex(a, x), Value::Complex(b, y)) => a == b && x == y,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            if !a.ty().is(b.ty()) || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return Ok(false);
            }
            if Rc::ptr_eq(&a.data, &b.data) {
                return Ok(true);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !deep_equal(a, b, walk, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if !a.ty().is(b.ty()) || a.is_nil() != b.is_nil() || a.len() != b.len() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            for ((key_a, a), (key_b, b)) in a.borrow().iter().zip(b.borrow().iter()) {
                if key_a != key_b || !deep_equal(a, b, walk, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => {
            if !a.ty().is(b.ty()) {
                return Ok(false);
            }
            if Rc::ptr_eq(a, b) {
                return Ok(true);
            }
            if let (Some(a), Some(b)) = (a.underlying(), b.underlying()) {
                return deep_equal(&a, &b, walk, depth + 1);
            }
            let (a, b) = (a.fields(), b.fields());
            if a.is_empty() || a.len() != b.len() {
                // Objects without fields are opaque: equal only to themselves.
                return Ok(false);
            }
            for ((_, a), (_, b)) in a.iter().zip(&b) {
                if !deep_equal(a, b, walk, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        // Functions are equal only when both are nil.
        (Value::Func(_), Value::Func(_)) => false,
        _ => {
            a.kind() == b.kind()
                && a.as_i64() == b.as_i64()
                && a.as_u64() == b.as_u64()
                && a.ty().is_some()
                && same_type(a, b)
        }
    })
}

fn same_type(a: &Value, b: &Value) -> bool {
    matches!((a.ty(), b.ty()), (Some(a), Some(b)) if a.is(b))
}

fn deep_copy(value: &Value, walk: &mut Walk, depth: usize) -> Result<Value, TooDeep> {
    walk.visit(depth)?;
    Ok(match value {
        Value::List(list) if !list.is_nil() => {
            let items = list
                .iter()
                .map(|item| deep_copy(item, walk, depth + 1))
                .collect::<Result<Vec<_>, _>>()?;
            Value::List(List::with_type(list.ty(), items))
        }
        Value::Map(map) if !map.is_nil() => {
            if let Some(frozen) = map.data.still_frozen() {
                walk.visit_all(frozen.count(), depth + frozen.depth())?;
                return Ok(Value::Map(Map::frozen_as(map.ty(), frozen.clone())));
            }
            let entries = map.borrow();
            let entries = entries
                .iter()
                .map(|(key, item)| Ok((key.clone(), deep_copy(item, walk, depth + 1)?)));
            Value::Map(Map::from_entries(
                map.ty(),
                entries.collect::<Result<_, TooDeep>>()?,
            ))
        }
        other => other.clone(),
    })
}

macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

// `i64` becomes Go's `int`, as in function signatures; the other types have variants of their own name.
from! { bool => Bool, i64 => Int, f64 => Float64, Str => String, &str => String, String => String, &String => String, List => List, Map => Map, Function => Func }

impl From<Option<Value>> for Value {
    fn from(value: Option<Value>) -> Self {
        value.unwrap_or_default()
    }
}

/// A Go slice: immutable items of a [`Type`], or nil. Cheap to clone. `[]byte` is [`Value::Bytes`] instead.
#[derive(Clone)]
pub struct List {
    data: Rc<Items>,
    ty: &'static Type,
}

struct Items {
    items: Vec<Value>,
    nil: bool,
}

impl List {
    /// A list of the given slice type.
    pub fn with_type(ty: &'static Type, items: Vec<Value>) -> Self {
        Self {
            data: Rc::new(Items { items, nil: false }),
            ty,
        }
    }

    /// The nil slice of the given type: empty, `null` in JSON.
    pub fn nil(ty: &'static Type) -> Self {
        Self {
            data: Rc::new(Items {
                items: Vec::new(),
                nil: true,
            }),
            ty,
        }
    }

    /// A `[]string`.
    pub fn strings<S: Into<Str>>(items: impl IntoIterator<Item = S>) -> Self {
        Self::with_type(
            &types::STRINGS,
            items.into_iter().map(|item| Value::String(item.into())).collect(),
        )
    }

    /// The same items under another type, like a conversion in Go.
    pub fn as_type(&self, ty: &'static Type) -> Self {
        Self {
            data: self.data.clone(),
            ty,
        }
    }

    /// The type.
    pub fn ty(&self) -> &'static Type {
        self.ty
    }

    /// Whether this is Go's nil slice.
    pub fn is_nil(&self) -> bool {
        self.data.nil
    }

    /// Bytes that are freed when this list is dropped, without those that its items refer to: none while others share
    /// it.
    pub(crate) fn own_size(&self) -> usize {
        if Rc::strong_count(&self.data) == 1 {
            SHARED + self.data.items.capacity() * size_of::<Value>()
        } else {
            0
        }
    }

    /// The items, copied only if the list is shared.
    pub fn into_vec(self) -> Vec<Value> {
        match Rc::try_unwrap(self.data) {
            Ok(mut data) => std::mem::take(&mut data.items),
            Err(shared) => shared.items.clone(),
        }
    }
}

impl std::ops::Deref for List {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.data.items
    }
}

/// Collects a `[]interface {}`.
impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::with_type(&types::LIST, items.into_iter().collect())
    }
}

impl From<Vec<Value>> for List {
    fn from(items: Vec<Value>) -> Self {
        Self::with_type(&types::LIST, items)
    }
}

/// A Go map with string keys: shared and mutable, its entries in key order. Cloning shares it.
#[derive(Clone)]
pub struct Map {
    data: Rc<Entries>,
    ty: &'static Type,
}

struct Entries {
    /// Empty while the map is frozen.
    by_key: RefCell<BTreeMap<Str, Value>>,
    /// The frozen map that the entries are copied from on first access.
    frozen: OnceCell<FrozenMap>,
    is_thawed: Cell<bool>,
    nil: bool,
    /// Creation time; that of the map it was thawed from.
    created: Time,
    /// The key whose value differs between executions.
    volatile_key: OnceCell<Box<Str>>,
    /// Whether the current [`CycleGuard`] has registered this map already.
    remembered: Cell<bool>,
}

impl Entries {
    fn new(entries: BTreeMap<Str, Value>, nil: bool) -> Self {
        Self {
            by_key: RefCell::new(entries),
            frozen: OnceCell::new(),
            is_thawed: Cell::new(true),
            nil,
            created: changes::created(),
            volatile_key: OnceCell::new(),
            remembered: Cell::new(false),
        }
    }

    fn still_frozen(&self) -> Option<&FrozenMap> {
        if self.is_thawed.get() {
            return None;
        }
        self.frozen.get()
    }

    /// The entries, copied from the frozen map if necessary.
    #[inline]
    fn by_key(&self) -> &RefCell<BTreeMap<Str, Value>> {
        if !self.is_thawed.get() {
            self.thaw();
        }
        &self.by_key
    }

    /// Records a read of a key if it is volatile.
    #[inline]
    fn note_read(&self, key: &[u8]) {
        if self
            .volatile_key
            .get()
            .is_some_and(|volatile_key| volatile_key.as_bytes() == key)
        {
            changes::volatile_read();
        }
    }

    #[cold]
    fn thaw(&self) {
        if let Some(frozen) = self.frozen.get() {
            self.by_key.replace(frozen.thaw(self.created));
        }
        self.is_thawed.set(true);
    }
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Map {
    /// An empty `map[string]interface {}`.
    pub fn new() -> Self {
        Self::with_type(&types::MAP)
    }

    /// An empty map of the given type.
    pub fn with_type(ty: &'static Type) -> Self {
        Self::from_entries(ty, BTreeMap::new())
    }

    /// A map of the given type.
    pub fn from_entries(ty: &'static Type, entries: BTreeMap<Str, Value>) -> Self {
        Self {
            data: Rc::new(Entries::new(entries, false)),
            ty,
        }
    }

    /// A copy of a frozen map; the entries are copied on first access.
    pub fn frozen(entries: FrozenMap) -> Self {
        Self::frozen_as(&types::MAP, entries)
    }

    fn frozen_as(ty: &'static Type, entries: FrozenMap) -> Self {
        Self::frozen_at(ty, entries, changes::created())
    }

    /// The same with that creation time.
    pub(crate) fn frozen_at(ty: &'static Type, entries: FrozenMap, created: Time) -> Self {
        Self {
            data: Rc::new(Entries {
                by_key: RefCell::default(),
                frozen: entries.into(),
                is_thawed: Cell::new(false),
                nil: false,
                created,
                volatile_key: OnceCell::new(),
                remembered: Cell::new(false),
            }),
            ty,
        }
    }

    /// The entries as a frozen map; free of cost while the map is still frozen.
    pub fn freeze(&self) -> FrozenMap {
        match self.data.still_frozen() {
            Some(frozen) => frozen.clone(),
            None => FrozenMap::from(&*self.borrow()),
        }
    }

    /// False if it is known, without walking the entries, that neither this map nor a nested one holds a nil.
    pub fn may_hold_nil(&self) -> bool {
        self.data.still_frozen().is_none_or(FrozenMap::has_nil)
    }

    /// True if both are copies of the same frozen map whose entries have not been accessed yet, so that they are
    /// equal.
    pub fn is_same_frozen(&self, other: &Self) -> bool {
        match (self.data.still_frozen(), other.data.still_frozen()) {
            (Some(this), Some(other)) => this.is_same(other),
            _ => false,
        }
    }

    /// Whether two small maps have equal entries. Does not thaw either.
    fn has_equal_entries(&self, other: &Self, levels: usize) -> bool {
        let (a, b) = (&*self.data, &*other.data);
        let is_comparable =
            |entries: &Entries| entries.still_frozen().is_none() && entries.volatile_key.get().is_none();
        if self.is_same_frozen(other) {
            return true;
        }
        if levels == 0 || a.nil != b.nil || !is_comparable(a) || !is_comparable(b) {
            return false;
        }
        let (a, b) = (a.by_key.borrow(), b.by_key.borrow());
        a.len() == b.len()
            && a.len() <= MAX_COMPARED_ITEMS
            && a.iter()
                .zip(b.iter())
                .all(|((key_a, a), (key_b, b))| key_a == key_b && looks_equal(a, b, levels - 1))
    }

    /// The nil map of the given type: empty, `null` in JSON. Inserting is refused.
    pub fn nil(ty: &'static Type) -> Self {
        Self {
            data: Rc::new(Entries::new(BTreeMap::new(), true)),
            ty,
        }
    }

    /// The same map under another type, like a conversion in Go: changes through one are visible through the other.
    pub fn as_type(&self, ty: &'static Type) -> Self {
        Self {
            data: self.data.clone(),
            ty,
        }
    }

    /// The type.
    pub fn ty(&self) -> &'static Type {
        self.ty
    }

    /// Whether this is Go's nil map.
    pub fn is_nil(&self) -> bool {
        self.data.nil
    }

    /// Whether both are the same map, not merely equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.data, &other.data)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        match self.data.still_frozen() {
            Some(frozen) => frozen.entries().len(),
            None => self.data.by_key.borrow().len(),
        }
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`List::own_size`].
    pub(crate) fn own_size(&self) -> usize {
        if Rc::strong_count(&self.data) == 1 {
            SHARED + self.len() * MEMORY_OF_A_VALUE
        } else {
            0
        }
    }

    /// The value at a path of keys. None if a map on the way has a type with a method of that name.
    pub(crate) fn path(&self, names: &[Str]) -> Option<(Value, &'static Type)> {
        let (name, rest) = names.split_first()?;
        if self.ty.method(name).is_some() {
            return None;
        }
        self.data.note_read(name);
        let entries = self.data.by_key().borrow();
        let element = entries.get(name)?;
        match element {
            _ if rest.is_empty() => Some((element.clone(), self.ty.element())),
            Value::Map(map) => map.path(rest),
            _ => None,
        }
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.data.note_read(key.as_ref());
        self.data.by_key().borrow().get(key.as_ref()).cloned()
    }

    /// Whether the map has the key.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        match self.data.still_frozen() {
            Some(frozen) => frozen.get(key.as_ref()).is_some(),
            None => self.data.by_key.borrow().contains_key(key.as_ref()),
        }
    }

    /// Sets a key and returns the previous value. Does nothing on a nil map: callers that mirror Go's panic check
    /// [`is_nil`](Self::is_nil) first.
    pub fn insert(&self, key: impl Into<Str>, value: impl Into<Value>) -> Option<Value> {
        if self.data.nil {
            return None;
        }
        changes::modified(self.data.created);
        self.put(key.into(), value.into())
    }

    /// Sets a key whose value differs between executions: outputs of templates that read it are not cached.
    pub fn insert_volatile(&self, key: impl Into<Str>, value: impl Into<Value>) {
        let key = key.into();
        // A map has one such key.
        let _ = self.data.volatile_key.set(Box::new(key.clone()));
        self.put(key, value.into());
    }

    fn put(&self, key: Str, value: Value) -> Option<Value> {
        if matches!(
            value,
            Value::Map(_) | Value::List(_) | Value::Object(_) | Value::Func(_)
        ) && !self.data.remembered.get()
        {
            CycleGuard::remember(&self.data);
        }
        self.data.by_key().borrow_mut().insert(key, value)
    }

    /// Removes a key and returns its value.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        changes::modified(self.data.created);
        self.data.by_key().borrow_mut().remove(key.as_ref())
    }

    /// The entries, for reading. Nothing may be changed while they are borrowed, so do not call back into templates
    /// meanwhile.
    pub fn borrow(&self) -> Ref<'_, BTreeMap<Str, Value>> {
        if self.data.volatile_key.get().is_some() {
            changes::volatile_read();
        }
        self.data.by_key().borrow()
    }

    /// A copy of the current entries, in key order.
    pub fn entries(&self) -> Vec<(Str, Value)> {
        self.borrow()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// A copy of the current keys, in order.
    pub fn keys(&self) -> Vec<Str> {
        self.borrow().keys().cloned().collect()
    }
}

/// Collects a `map[string]interface {}`.
impl<K: Into<Str>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self::from_entries(
            &types::MAP,
            entries
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }
}

/// Frees maps that contain themselves.
///
/// While a guard exists, it keeps weak references to the maps of its thread that get a list or map as entry. When it
/// is dropped, those still alive are emptied. Create it before the data of a render and drop it after that data: a
/// map still alive then is part of a cycle, and would leak in a long-running process. Guards nest; the outermost one
/// does the work.
#[derive(Debug)]
pub struct CycleGuard {
    outermost: bool,
}

thread_local! {
    static REMEMBERED: RefCell<Option<Vec<Weak<Entries>>>> = const { RefCell::new(None) };
}

impl CycleGuard {
    /// Starts to register maps.
    #[expect(clippy::new_without_default, reason = "a guard is bound on purpose")]
    pub fn new() -> Self {
        REMEMBERED.with_borrow_mut(|remembered| {
            let outermost = remembered.is_none();
            remembered.get_or_insert_default();
            Self { outermost }
        })
    }

    fn remember(map: &Rc<Entries>) {
        REMEMBERED.with_borrow_mut(|remembered| {
            if let Some(remembered) = remembered {
                map.remembered.set(true);
                remembered.push(Rc::downgrade(map));
            }
        });
    }
}

impl Drop for CycleGuard {
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let remembered = REMEMBERED.with_borrow_mut(Option::take).unwrap_or_default();
        for map in remembered.iter().filter_map(Weak::upgrade) {
            let entries = map.by_key.take();
            drop_deep(entries.into_values());
        }
    }
}

// Values can be nested as deeply as a loop in a template likes, so dropping them must not recurse.

/// How deep drops may recurse: up to there recursion is cheaper than a list of pending values.
const MAX_DROPS: u32 = 64;

thread_local! {
    static DROPS: Cell<u32> = const { Cell::new(0) };
}

/// Drops the contents of a container, by recursion as long as that is safe.
fn drop_contents<T>(contents: T, deeply: impl FnOnce(T)) {
    // While the thread ends, the counter is gone.
    let depth = DROPS.try_with(|drops| {
        drops.set(drops.get() + 1);
        drops.get()
    });
    match depth {
        Ok(..=MAX_DROPS) => drop(contents),
        _ => deeply(contents),
    }
    let _ = DROPS.try_with(|drops| drops.set(drops.get().saturating_sub(1)));
}

impl Drop for Items {
    fn drop(&mut self) {
        let references = self.items.len();
        if self.items.iter().any(|item| may_be_last(item, references)) {
            drop_contents(std::mem::take(&mut self.items), drop_deep);
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        let entries = self.by_key.get_mut();
        let references = entries.len();
        if entries.values().any(|item| may_be_last(item, references)) {
            drop_contents(std::mem::take(entries), |entries| {
                drop_deep(entries.into_values());
            });
        }
    }
}

/// Whether dropping that many references to a container may free it.
fn may_be_last(value: &Value, references: usize) -> bool {
    match value {
        Value::List(list) => Rc::strong_count(&list.data) <= references,
        Value::Map(map) => Rc::strong_count(&map.data) <= references,
        _ => false,
    }
}

fn is_container(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Map(_))
}

fn drop_deep(values: impl IntoIterator<Item = Value>) {
    let mut waiting: Vec<Value> = values.into_iter().filter(is_container).collect();
    while let Some(value) = waiting.pop() {
        match value {
            Value::List(list) => {
                if let Ok(mut data) = Rc::try_unwrap(list.data) {
                    waiting.extend(std::mem::take(&mut data.items).into_iter().filter(is_container));
                }
            }
            Value::Map(map) => {
                if let Ok(mut data) = Rc::try_unwrap(map.data) {
                    waiting.extend(
                        std::mem::take(data.by_key.get_mut())
                            .into_values()
                            .filter(is_container),
                    );
                }
            }
            _ => {}
        }
    }
}

/// A Go struct, a pointer to one, or a value of a defined basic type (`time.Duration`).
///
/// Methods are part of its [`Type`].
pub trait Object: 'static {
    /// The type; its kind is `Struct`, `Pointer`, or that of [`underlying`](Self::underlying).
    fn ty(&self) -> &'static Type;

    /// The exported fields in order, as `%v` prints them: `{v1 1 29}`. Opaque objects have none.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The field of that name.
    fn field(&self, name: &str) -> Option<Value> {
        self.fields()
            .into_iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    /// Whether the declared type of the field is `interface {}`; this only affects the wording of errors.
    fn is_interface(&self, _field: &str) -> bool {
        false
    }

    /// The result of `String()` or `Error()`, if the type itself has one: fmt prints it for `%v` and `%s`.
    fn text(&self) -> Option<String> {
        None
    }

    /// The text printed by a bare `{{ x }}`. It differs from [`text`](Self::text) where only the pointer has a
    /// `String()` method, which Go finds for a field of a struct behind a pointer but not for a function argument.
    fn printed(&self) -> Option<String> {
        self.text()
    }

    /// The value that a function gets for this one if it is a field of a struct behind a pointer: Go passes a copy,
    /// which has the methods of the struct but not those of its pointer.
    fn copied(&self) -> Option<Value> {
        None
    }

    /// The underlying value of a defined basic type.
    fn underlying(&self) -> Option<Value> {
        None
    }

    /// The value that `json.Marshal` encodes for it; by default a map of the fields.
    fn json(&self) -> Value {
        match self.underlying() {
            Some(value) => value,
            None => Value::Map(
                self.json_fields()
                    .unwrap_or_else(|| self.fields())
                    .into_iter()
                    .collect(),
            ),
        }
    }

    /// The fields of a struct in JSON, in order: named by their tags, without the omitted ones.
    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        None
    }

    /// Lets the host get its own type back.
    fn as_any(&self) -> &dyn Any;
}

impl std::fmt::Debug for dyn Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.ty(), self.fields())
    }
}
