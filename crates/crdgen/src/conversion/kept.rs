//! What has no place in the version that an object is shown in, kept beside it until it is shown in its own again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What is kept for the other side of each change, by the version of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept(BTreeMap<String, Vec<Difference>>);

/// One place where the values are others than what turning them back would give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Difference {
    /// Where, as a JSON pointer.
    path: String,
    /// What is there; nothing when nothing is.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    is: Option<Value>,
    /// What turning back gives, as long as nobody changed it.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    instead: Option<Value>,
}

/// A `null` that is there is a value.
fn some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Kept {
    /// What an annotation says. A damaged one says nothing: reading an object must not fail for it.
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

    /// Puts back what was kept for this side of a change, where nobody wrote something else meanwhile.
    pub(super) fn restore(&mut self, change: &str, value: &mut Value) {
        for Difference { path, is, instead } in self.0.remove(change).into_iter().flatten() {
            let _ = restore(value, &path, is, instead.as_ref());
        }
    }

    /// Keeps what of `values` does not come back; `back` is what comes.
    pub(super) fn keep(&mut self, change: &str, values: &Value, back: &Value) {
        let mut found = Vec::new();
        differences(Some(values), Some(back), String::new(), &mut found);
        if !found.is_empty() {
            self.0.insert(change.to_owned(), found);
        }
    }
}

/// Where two values differ first, for people; `None` when they are equal.
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
