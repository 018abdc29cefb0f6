//! Maps: sprig's `dict.go`. `set`, `unset` and the merge functions change the map passed to them.

use gotemplate::function::{Call, Error, Rest};
use gotemplate::string::Str;
use gotemplate::types;
use gotemplate::value::{List, Map, Value};

use super::budget::MEMORY_OF_AN_ENTRY;
use super::merge::{Overwrite, merge_into};
use super::strings::text_of;

/// `dict KEY VALUE …`; a last key without a value gets "".
pub(super) fn dict(call: &mut Call, entries: Rest<Value>) -> Result<Map, Error> {
    let map = Map::new();
    for entry in entries.chunks(2) {
        let value = entry.get(1).cloned().unwrap_or_else(|| "".into());
        let key = text_of(&entry[0])?;
        if !matches!(entry[0], Value::String(_)) {
            call.take_memory(key.len())?;
        }
        map.insert(key, value);
    }
    Ok(map)
}

/// "" if the key is missing.
pub(super) fn get(map: Map, key: Str) -> Value {
    map.get(key).unwrap_or_else(|| "".into())
}

pub(super) fn set(call: &mut Call, map: Map, key: Str, value: Value) -> Result<Map, Error> {
    if map.is_nil() {
        return Err(Error::new("assignment to entry in nil map"));
    }
    call.take_memory(MEMORY_OF_AN_ENTRY)?;
    map.insert(key, value);
    Ok(map)
}

pub(super) fn unset(map: Map, key: Str) -> Map {
    map.remove(key);
    map
}

pub(super) fn has_key(map: Map, key: Str) -> bool {
    map.contains_key(key)
}

pub(super) fn pluck(key: Str, maps: Rest<Map>) -> List {
    maps.iter().filter_map(|map| map.get(&key)).collect()
}

/// Sorted, while Go's order is random.
pub(super) fn keys(call: &mut Call, maps: Rest<Map>) -> Result<Vec<Str>, Error> {
    for map in &*maps {
        copied(call, map)?;
    }
    Ok(maps.iter().flat_map(Map::keys).collect())
}

/// Takes steps and memory for a copy of the entries of a map.
fn copied(call: &mut Call, map: &Map) -> Result<(), Error> {
    call.check_memory(map.len() * MEMORY_OF_AN_ENTRY)?;
    call.take_steps(map.len() as u64 / 4)
}

/// In the order of the keys, while Go's order is random.
pub(super) fn values(call: &mut Call, map: Map) -> Result<List, Error> {
    copied(call, &map)?;
    Ok(map.borrow().values().cloned().collect())
}

pub(super) fn pick(map: Map, keys: Rest<Str>) -> Map {
    keys.into_iter()
        .filter_map(|key| Some((key.clone(), map.get(key)?)))
        .collect()
}

pub(super) fn omit(call: &mut Call, map: Map, keys: Rest<Str>) -> Result<Map, Error> {
    copied(call, &map)?;
    call.take_steps((map.len() as u64).saturating_mul(keys.len() as u64) / 16)?;
    Ok(map
        .entries()
        .into_iter()
        .filter(|(key, _)| !keys.contains(key))
        .collect())
}

/// Fills the empty entries of the first map.
pub(super) fn merge(call: &mut Call, map: Map, others: Rest<Map>) -> Result<Value, Error> {
    merge_all(call, map, &others, Overwrite::EmptyOnly)
}

/// The last map wins.
pub(super) fn merge_overwrite(call: &mut Call, map: Map, others: Rest<Map>) -> Result<Value, Error> {
    merge_all(call, map, &others, Overwrite::Always)
}

fn merge_all(call: &mut Call, map: Map, others: &[Map], overwrite: Overwrite) -> Result<Value, Error> {
    let mut map = map;
    for other in others {
        // mergo turns a nil map into an empty one, and sprig returns that.
        if map.is_nil() && !other.is_nil() {
            map = Map::with_type(map.ty());
        }
        merge_into(call, &map, other, overwrite)?;
    }
    Ok(Value::Map(map))
}

pub(super) fn deep_copy(call: &mut Call, value: Value) -> Result<Value, Error> {
    if value.is_untyped_nil() {
        return Err(Error::new("reflect: call of reflect.Value.Type on zero Value"));
    }
    // The strings are shared.
    call.take_copy(&value)?;
    Ok(value.deep_copy()?)
}

pub(super) fn deep_equal(call: &mut Call, a: Value, b: Value) -> Result<bool, Error> {
    call.weigh(&a)?;
    Ok(a.deep_equal(&b)?)
}

/// `dig KEY … DEFAULT MAP`. Every step must be a plain map; `.Values` itself is not one.
pub(super) fn dig(arguments: Rest<Value>) -> Result<Value, Error> {
    let [keys @ .., default, map] = &*arguments else {
        return Err(Error::new("dig needs at least three arguments"));
    };
    if keys.is_empty() {
        return Err(Error::new("dig needs at least three arguments"));
    }
    let mut map = plain_map(map)?;
    let keys: Vec<&Str> = keys.iter().map(plain_text).collect::<Result<_, _>>()?;
    let (last, path) = keys
        .split_last()
        .ok_or_else(|| Error::new("dig needs at least three arguments"))?;
    for key in path {
        match map.get(key) {
            Some(step) => map = plain_map(&step)?,
            None => return Ok(default.clone()),
        }
    }
    Ok(map.get(last).unwrap_or_else(|| default.clone()))
}

fn plain_map(value: &Value) -> Result<Map, Error> {
    match value {
        Value::Map(map) if map.ty().is(&types::MAP) => Ok(map.clone()),
        other => Err(conversion_error(other, types::MAP.name())),
    }
}

fn plain_text(value: &Value) -> Result<&Str, Error> {
    value
        .as_str()
        .ok_or_else(|| conversion_error(value, types::STRING.name()))
}

fn conversion_error(value: &Value, wanted: &str) -> Error {
    let found = if value.is_untyped_nil() {
        "nil"
    } else {
        value.type_name()
    };
    Error::new(format!(
        "interface conversion: interface {{}} is {found}, not {wanted}"
    ))
}
