//! [`Marks`]: shows which characters of an output are the templates' own.
//!
//! In an execution with marks, texts and constants of templates are marked as they are printed or used. Functions see
//! their arguments without marks, except those that a host lists as carrying them on. What is executed by a text that
//! is not the host's own is not marked, and its output loses all marks: marks cannot be moved by whoever wrote it.
//!
//! So marks are lost rather than gained. A host that compares the output without marks with that of an execution
//! without any knows that the marks have not changed what was printed.

use std::collections::BTreeMap;

use crate::{
    string::Str,
    value::{List, Map, TooDeep, Value, Walk},
};

/// How a host marks the text of its templates.
pub trait Marks {
    /// A text or constant of a template, with its marks; none if nothing in it is marked.
    fn marked(&self, own: &[u8]) -> Option<Str>;

    /// A text without its marks; none if it has none.
    fn unmarked(&self, text: &[u8]) -> Option<Str>;

    /// Whether this argument of a function, counted from 0, keeps its marks.
    fn carries(&self, function: &[u8], argument: usize) -> bool;

    /// Whether a function makes maps from a text, so that marks in it may end up in keys.
    fn makes_keys(&self, function: &[u8]) -> bool;

    /// Whether a text that is executed, with its marks, is the host's own: whether what it prints may be marked.
    fn is_own(&self, text: &[u8]) -> bool;
}

/// A value without marks in its strings, in those of its lists and maps, and in keys; none if it has none.
///
/// # Errors
/// The value is nested too deeply.
pub(crate) fn unmarked(value: &Value, marks: &dyn Marks) -> Result<Option<Value>, TooDeep> {
    Unmark {
        marks,
        values: true,
        walk: Walk::new(),
    }
    .value(value, 0)
}

/// The same for the keys of maps only.
///
/// # Errors
/// The value is nested too deeply.
pub(crate) fn with_unmarked_keys(value: &Value, marks: &dyn Marks) -> Result<Option<Value>, TooDeep> {
    Unmark {
        marks,
        values: false,
        walk: Walk::new(),
    }
    .value(value, 0)
}

struct Unmark<'m> {
    marks: &'m dyn Marks,
    /// False if only keys lose their marks.
    values: bool,
    walk: Walk,
}

impl Unmark<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<Option<Value>, TooDeep> {
        self.walk.visit(depth)?;
        match value {
            Value::String(text) if self.values => Ok(self.marks.unmarked(text).map(Value::String)),
            Value::Bytes(text) if self.values => Ok(self.marks.unmarked(text).map(Value::bytes)),
            Value::List(list) => self.list(list, depth),
            Value::Map(map) => self.map(map, depth),
            _ => Ok(None),
        }
    }

    fn list(&mut self, list: &List, depth: usize) -> Result<Option<Value>, TooDeep> {
        let mut changed: Option<Vec<Value>> = None;
        for (index, item) in list.iter().enumerate() {
            if let Some(item) = self.value(item, depth + 1)? {
                changed.get_or_insert_with(|| list.to_vec())[index] = item;
            }
        }
        Ok(changed.map(|items| Value::List(List::with_type(list.ty(), items))))
    }

    fn map(&mut self, map: &Map, depth: usize) -> Result<Option<Value>, TooDeep> {
        let mut changed: Option<BTreeMap<Str, Value>> = None;
        for (key, value) in map.entries() {
            let new_value = self.value(&value, depth + 1)?;
            let new_key = self.marks.unmarked(&key);
            if new_value.is_none() && new_key.is_none() {
                continue;
            }
            let entries = changed.get_or_insert_with(|| map.entries().into_iter().collect());
            let old = entries.remove(&key);
            let value = new_value.or(old).unwrap_or_default();
            entries.insert(new_key.unwrap_or(key), value);
        }
        Ok(changed.map(|entries| Value::Map(Map::from_entries(map.ty(), entries))))
    }
}
