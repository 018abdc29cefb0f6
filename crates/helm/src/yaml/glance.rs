//! Documents of which only a few fields are read: nothing is copied, entries of mappings keep their order.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::build::{Build, Key};

/// A document that borrows its texts.
#[derive(Debug)]
pub(crate) enum Glance<'v> {
    Null,
    Bool(bool),
    Number(Number),
    String(Cow<'v, str>),
    Array,
    Object(Vec<(Cow<'v, str>, Glance<'v>)>),
}

impl<'v> Glance<'v> {
    /// The entries of a mapping by key; of several with the same key, the last one.
    pub(crate) fn sorted<'g>(
        entries: &'g [(Cow<'v, str>, Self)],
    ) -> impl Iterator<Item = (&'g str, &'g Glance<'v>)> {
        let mut sorted: Vec<(&str, &Self)> = entries.iter().map(|(key, value)| (&**key, value)).collect();
        sorted.reverse();
        sorted.sort_by_key(|(key, _)| *key);
        sorted.dedup_by_key(|(key, _)| *key);
        sorted.into_iter()
    }

    /// A scalar as JSON; null for everything else.
    pub(crate) fn scalar(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::String(text) => Value::from(&**text),
            Self::Null | Self::Array | Self::Object(_) => Value::Null,
        }
    }
}

pub(super) struct Glancer;

impl<'v> Build<'v> for Glancer {
    type Value = Glance<'v>;
    type Map = Vec<(Cow<'v, str>, Glance<'v>)>;

    fn null(&self) -> Glance<'v> {
        Glance::Null
    }

    fn bool(&self, value: bool) -> Glance<'v> {
        Glance::Bool(value)
    }

    fn int(&self, value: i64) -> Glance<'v> {
        Glance::Number(value.into())
    }

    fn uint(&self, value: u64) -> Glance<'v> {
        Glance::Number(value.into())
    }

    fn float(&self, value: f64) -> Glance<'v> {
        Number::from_f64(value).map_or(Glance::Null, Glance::Number)
    }

    fn string(&self, value: Cow<'v, str>) -> Glance<'v> {
        Glance::String(value)
    }

    fn list(&self, _items: Vec<Glance<'v>>) -> Glance<'v> {
        Glance::Array
    }

    fn map(&self, map: Self::Map) -> Glance<'v> {
        Glance::Object(map)
    }

    fn insert(&self, map: &mut Self::Map, key: Key<'v>, value: Glance<'v>) {
        map.push((key.into_text(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_entries_with_the_same_key_the_last_one_counts() {
        let keys = super::super::glance(b"{b: 1, a: 2, b: 3, 1: x}", |seen| match seen {
            Glance::Object(entries) => Glance::sorted(entries)
                .map(|(key, value)| (key.to_owned(), value.scalar()))
                .collect(),
            _ => Vec::new(),
        });
        let expected = [("1", Value::from("x")), ("a", 2.into()), ("b", 3.into())];
        assert_eq!(
            keys.unwrap(),
            expected.map(|(key, value)| (key.to_owned(), value))
        );
    }
}
