//! Merges maps like dario.cat/mergo 1.0.1, which sprig's `merge` and `mergeOverwrite` wrap.
//!
//! Values are shared, not copied: a map taken from the source is the same object, and later changes are visible in
//! both.

use gotemplate::function::{Call, Error};
use gotemplate::string::Str;
use gotemplate::value::{MAX_DEPTH, Map, TooDeep, Value};

use super::budget::MEMORY_OF_AN_ENTRY;

/// Which entries of the destination are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overwrite {
    /// Empty ones: nil, "", 0, false, an empty list or map.
    EmptyOnly,
    /// All, but nested maps are merged and not replaced.
    Always,
}

/// Merges `source` into `destination`.
pub(super) fn merge_into(
    call: &mut Call,
    destination: &Map,
    source: &Map,
    overwrite: Overwrite,
) -> Result<(), Error> {
    merge_at(call, destination, source, overwrite, 0)
}

fn merge_at(
    call: &mut Call,
    destination: &Map,
    source: &Map,
    overwrite: Overwrite,
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    call.check_memory(source.len() * MEMORY_OF_AN_ENTRY)?;
    call.take_steps(1 + source.len() as u64)?;
    for (key, new) in source.entries() {
        let old = destination.get(&key);
        if new.is_untyped_nil() {
            // A nil in the source only wins if everything in the source wins.
            if overwrite == Overwrite::Always {
                insert(call, destination, key, new)?;
            }
            continue;
        }
        if let (Some(Value::Map(old)), Value::Map(new)) = (&old, &new)
            && !old.is_nil()
        {
            merge_at(call, old, new, overwrite, depth + 1)?;
            // For two empty maps, mergo takes the one of the source.
            if !old.is_empty() {
                continue;
            }
        }
        let gives_way = overwrite == Overwrite::Always || old.as_ref().is_none_or(is_empty);
        if gives_way {
            insert(call, destination, key, new)?;
        }
    }
    Ok(())
}

fn insert(call: &mut Call, map: &Map, key: Str, value: Value) -> Result<(), Error> {
    call.take_memory(MEMORY_OF_AN_ENTRY)?;
    map.insert(key, value);
    Ok(())
}

/// mergo's `isEmptyValue`. Structs are never empty.
fn is_empty(value: &Value) -> bool {
    !value.truth()
}
