//! [`Frozen`]: values that never change, shared between threads.
//!
//! A [`Map`] can be made from a frozen one at no cost: its entries are copied on first access, level by level. So a
//! render that reads a tenth of a chart's values copies a tenth of them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    changes::{self, Time},
    string::Str,
    types,
    value::{List, Map, Value, Weight},
};

/// A value that never changes.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each is Go's type of the same name")]
pub enum Frozen {
    #[default]
    Nil,
    Bool(bool),
    Int64(i64),
    Uint64(u64),
    Float64(f64),
    String(Str),
    List(Arc<[Frozen]>),
    Map(FrozenMap),
}

/// A `map[string]interface {}` that never changes. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrozenMap(Arc<Level>);

#[derive(Debug, Default, PartialEq)]
struct Level {
    /// Sorted by key.
    entries: Box<[(Str, Frozen)]>,
    /// Number of values, including the map itself.
    count: usize,
    /// Bytes of keys and strings.
    bytes: usize,
    /// Nesting depth; 0 if nothing is nested.
    depth: usize,
    /// Sum of the depths of all values.
    depths: usize,
    /// Whether an entry of this map or of a nested one is nil.
    has_nil: bool,
}

impl Frozen {
    /// Number of values, including this one.
    fn count(&self) -> usize {
        match self {
            Self::List(items) => items
                .iter()
                .fold(1, |count, item| count.saturating_add(item.count())),
            Self::Map(map) => map.count(),
            _ => 1,
        }
    }

    /// Bytes of keys and strings.
    fn bytes(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            Self::List(items) => items
                .iter()
                .fold(0, |bytes, item| bytes.saturating_add(item.bytes())),
            Self::Map(map) => map.0.bytes,
            _ => 0,
        }
    }

    /// Sum of the depths of all values below.
    fn depths(&self) -> usize {
        match self {
            Self::List(items) => items.iter().fold(0, |depths, item| {
                depths.saturating_add(item.depths() + item.count())
            }),
            Self::Map(map) => map.0.depths,
            _ => 0,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::List(items) => items.iter().map(|item| item.depth() + 1).max().unwrap_or(0),
            Self::Map(map) => map.depth(),
            _ => 0,
        }
    }

    /// The value for use in templates; maps in it are still frozen.
    pub fn thaw(&self) -> Value {
        self.thaw_at(changes::created())
    }

    /// The same, for a map that was created at that time.
    fn thaw_at(&self, created: Time) -> Value {
        match self {
            Self::Nil => Value::Nil,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int64(n) => Value::Int64(*n),
            Self::Uint64(n) => Value::Uint64(*n),
            Self::Float64(f) => Value::Float64(*f),
            Self::String(text) => Value::String(text.clone()),
            Self::List(items) => {
                Value::List(items.iter().map(|item| item.thaw_at(created)).collect::<List>())
            }
            Self::Map(map) => Value::Map(Map::frozen_at(&types::MAP, map.clone(), created)),
        }
    }
}

impl FrozenMap {
    /// A map of the entries; of several with the same key, the last one wins.
    pub fn new(entries: impl IntoIterator<Item = (Str, Frozen)>) -> Self {
        let mut entries: Vec<(Str, Frozen)> = entries.into_iter().collect();
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|later, earlier| {
                let is_same = later.0 == earlier.0;
                if is_same {
                    std::mem::swap(later, earlier);
                }
                is_same
            });
        }
        Self::sorted(entries.into())
    }

    fn sorted(entries: Box<[(Str, Frozen)]>) -> Self {
        let values = || entries.iter().map(|(_, value)| value);
        let has_nil = |value: &Frozen| match value {
            Frozen::Nil => true,
            Frozen::Map(map) => map.has_nil(),
            _ => false,
        };
        Self(Arc::new(Level {
            count: values().fold(1, |count, value| count.saturating_add(value.count())),
            bytes: entries.iter().fold(0, |bytes, (key, value)| {
                bytes.saturating_add(key.len()).saturating_add(value.bytes())
            }),
            depth: values().map(|value| value.depth() + 1).max().unwrap_or(0),
            depths: values().fold(0, |depths, value| {
                depths.saturating_add(value.depths() + value.count())
            }),
            has_nil: values().any(has_nil),
            entries,
        }))
    }

    /// The entries in key order.
    pub fn entries(&self) -> &[(Str, Frozen)] {
        &self.0.entries
    }

    /// Whether both are the same map, not merely equal.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Frozen> {
        let key = key.as_ref();
        let entries = self.entries();
        let at = entries
            .binary_search_by(|(known, _)| known.as_bytes().cmp(key))
            .ok()?;
        Some(&entries[at].1)
    }

    /// Its weight when it is nested at that depth.
    pub(crate) fn weight(&self, depth: usize) -> Weight {
        Weight {
            values: self.0.count,
            bytes: self.0.bytes,
            depth: self.0.depths.saturating_add(depth.saturating_mul(self.0.count)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count
    }

    pub(crate) fn depth(&self) -> usize {
        self.0.depth
    }

    /// Whether an entry of this map or of a nested one is nil.
    pub fn has_nil(&self) -> bool {
        self.0.has_nil
    }

    /// The entries, for a map that was created at that time.
    pub(crate) fn thaw(&self, created: Time) -> BTreeMap<Str, Value> {
        let entries = self.entries().iter();
        entries
            .map(|(key, value)| (key.clone(), value.thaw_at(created)))
            .collect()
    }
}

/// Values of types that frozen values do not have become nil.
impl From<&Value> for Frozen {
    fn from(value: &Value) -> Self {
        match value {
            Value::Bool(b) => Self::Bool(*b),
            Value::Float64(f) => Self::Float64(*f),
            Value::String(text) => Self::String(text.clone()),
            Value::List(list) => Self::List(list.iter().map(Self::from).collect()),
            Value::Map(map) => Self::Map(map.freeze()),
            other => match (other.as_i64(), other.as_u64()) {
                (Some(n), _) => Self::Int64(n),
                (None, Some(n)) => Self::Uint64(n),
                (None, None) => Self::Nil,
            },
        }
    }
}

impl From<&BTreeMap<Str, Value>> for FrozenMap {
    fn from(entries: &BTreeMap<Str, Value>) -> Self {
        let entries = entries.iter();
        Self::sorted(entries.map(|(key, value)| (key.clone(), value.into())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> FrozenMap {
        let inner = FrozenMap::new([("x".into(), Frozen::Int64(1)), ("n".into(), Frozen::Nil)]);
        let list = Frozen::List([Frozen::Map(inner.clone()), Frozen::Bool(true)].into());
        FrozenMap::new([("map".into(), Frozen::Map(inner)), ("list".into(), list)])
    }

    #[test]
    fn a_thawed_map_is_a_copy() {
        let frozen = values();
        let (a, b) = (Map::frozen(frozen.clone()), Map::frozen(frozen.clone()));
        let inner = |map: &Map| map.get("map").unwrap().as_map().unwrap().clone();
        assert!(inner(&a).is_same(&inner(&a)), "looking twice finds the same map");
        assert!(inner(&a).is_same_frozen(&inner(&b)));
        inner(&a).insert("x", 2);
        assert!(!inner(&a).is_same_frozen(&inner(&b)), "one was looked into");
        assert!(matches!(inner(&a).get("x"), Some(Value::Int(2))));
        assert!(matches!(inner(&b).get("x"), Some(Value::Int64(1))));
        assert_eq!(b.freeze(), frozen);
        assert_ne!(a.freeze(), frozen);
    }

    #[test]
    fn a_copy_of_a_frozen_map_is_as_deep_and_as_large() {
        let mut frozen = values();
        assert_eq!((frozen.count(), frozen.depth()), (9, 3));
        assert!(frozen.has_nil());
        for _ in 0..crate::value::MAX_DEPTH {
            frozen = FrozenMap::new([("below".into(), Frozen::Map(frozen))]);
        }
        let copy = Value::Map(Map::frozen(frozen)).deep_copy();
        assert!(copy.is_err(), "nested too deeply");
    }
}
