//! Values that do not exist in the version in which an object is shown. They are kept in an annotation until the
//! object is shown in their version again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The values kept for the other side of each change, by the version of the change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptValues(BTreeMap<String, Vec<Difference>>);

/// A path at which the original values differ from the result of converting them back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Difference {
    /// The path, as a JSON pointer.
    path: String,
    /// The original value; none if there was none.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    is: Option<Value>,
    /// The result of converting back, as long as nobody changed it.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    instead: Option<Value>,
}

/// An explicit `null` counts as a value.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl KeptValues {
    /// Parses an annotation. A damaged one counts as empty: reading an object must not fail because of it.
    pub(super) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text of the annotation; `None` when there is nothing to keep.
    pub(super) fn to_text(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        serde_json::to_string(self).ok()
    }

    /// Puts back the values kept for this side of a change, unless they have been overwritten since.
    pub(super) fn restore(&mut self, change: &str, value: &mut Value) {
        for Difference { path, is, instead } in self.0.remove(change).into_iter().flatten() {
            let _ = restore(value, &path, is, instead.as_ref());
        }
    }

    /// Keeps those of `values` that differ in `back`, the result of converting there and back.
    pub(super) fn keep(&mut self, change: &str, values: &Value, back: &Value) {
        let mut found = Vec::new();
        differences(Some(values), Some(back), String::new(), &mut found);
        if !found.is_empty() {
            self.0.insert(change.to_owned(), found);
        }
    }
}

/// The first difference between two values, for messages; `None` if they are equal.
pub(super) fn difference(one: &Value, other: &Value) -> Option<(String, String, String)> {
    let mut found = Vec::new();
    differences(Some(one), Some(other), String::new(), &mut found);
    let said = |value: Option<Value>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
    let Difference { path, is, instead } = found.into_iter().next()?;
    Some((path, said(is), said(instead)))
}

fn restore(values: &mut Value, path: &str, is: Option<Value>, instead: Option<&Value>) -> Option<()> {
    let Some((parent, key)) = path.rsplit_once('/') else {
        if Some(&*values) == instead {
            *values = is?;
        }
        return Some(());
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    match values.pointer_mut(parent)? {
        Value::Object(map) if map.get(&key) == instead => {
            match is {
                Some(is) => map.insert(key, is),
                None => map.remove(&key),
            };
        }
        Value::Array(list) => {
            let item = list.get_mut(key.parse::<usize>().ok()?)?;
            if Some(&*item) == instead {
                *item = is?;
            }
        }
        _ => {}
    }
    Some(())
}

fn differences(is: Option<&Value>, instead: Option<&Value>, path: String, found: &mut Vec<Difference>) {
    match (is, instead) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => fields(one, other, &path, found),
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                differences(Some(one), Some(other), format!("{path}/{at}"), found);
            }
        }
        (is, instead) if is == instead => {}
        (is, instead) => found.push(Difference {
            path,
            is: is.cloned(),
            instead: instead.cloned(),
        }),
    }
}

fn fields(one: &Map<String, Value>, other: &Map<String, Value>, path: &str, found: &mut Vec<Difference>) {
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    for key in keys {
        let at = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        differences(one.get(key), other.get(key), at, found);
    }
}
