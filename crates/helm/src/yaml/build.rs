//! What documents are decoded into: values of whatever kind the caller builds.

use std::borrow::Cow;

use super::resolve::Resolved;

/// Builds the values that documents are decoded into; they may borrow from the text.
pub trait Build<'v> {
    /// Any node.
    type Value;
    /// A mapping under construction.
    type Map: Default;

    /// `null`.
    fn null(&self) -> Self::Value;
    /// A boolean.
    fn bool(&self, value: bool) -> Self::Value;
    /// A number written without fraction and exponent.
    fn int(&self, value: i64) -> Self::Value;
    /// The same for numbers beyond 63 bits.
    fn uint(&self, value: u64) -> Self::Value;
    /// Any other number. It may be infinite or NaN, but then the document is rejected at the end.
    fn float(&self, value: f64) -> Self::Value;
    /// A string.
    fn string(&self, value: Cow<'v, str>) -> Self::Value;
    /// A sequence.
    fn list(&self, items: Vec<Self::Value>) -> Self::Value;
    /// A mapping.
    fn map(&self, map: Self::Map) -> Self::Value;
    /// Adds an entry, replacing one with the same key.
    fn insert(&self, map: &mut Self::Map, key: Key<'v>, value: Self::Value);
}

/// The key of an entry.
#[derive(Clone, Debug)]
pub struct Key<'a> {
    /// Its YAML type.
    pub(super) resolved: Resolved,
    /// Its text in JSON.
    pub(super) text: Cow<'a, str>,
}

impl<'a> Key<'a> {
    /// A key that is a string.
    pub(crate) fn new(text: Cow<'a, str>) -> Self {
        Self {
            resolved: Resolved::Str,
            text,
        }
    }

    /// The key in JSON, whose keys are strings.
    pub fn into_text(self) -> Cow<'a, str> {
        self.text
    }
}
