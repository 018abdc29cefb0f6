//! Lists: sprig's `list.go`. All results are new lists; equality is Go's `reflect.DeepEqual`.

use gotemplate::function::{Call, Error, Rest};
use gotemplate::types;
use gotemplate::value::{List, Value};

use super::NIL_DEREFERENCE;
use super::budget::MEMORY_OF_A_PART;
use super::conversions::int64_of;

/// The items of any slice as a new vector, or an error that names the failed operation.
fn items(call: &mut Call, value: &Value, attempt: &str) -> Result<Vec<Value>, Error> {
    let copied = |call: &mut Call, length: usize| {
        call.check_memory(length * size_of::<Value>())?;
        call.take_steps(length as u64 / ITEMS_COPIED_IN_A_STEP)
    };
    match value {
        Value::List(list) => {
            copied(call, list.len())?;
            Ok(list.to_vec())
        }
        Value::Bytes(bytes) => {
            copied(call, bytes.len())?;
            Ok(bytes.iter().map(|byte| Value::Uint8(*byte)).collect())
        }
        Value::Nil => Err(Error::new(NIL_DEREFERENCE)),
        other => Err(Error::new(format!("{attempt} {}", other.kind()))),
    }
}

/// A copy increments the reference count of each item.
const ITEMS_COPIED_IN_A_STEP: u64 = 16;

/// Returned where sprig returns a nil list: printed as `[]`, but null in JSON.
fn nil_list() -> List {
    List::nil(&types::LIST)
}

pub(super) fn list(values: Rest<Value>) -> List {
    values.into_vec().into()
}

pub(super) fn push(call: &mut Call, list: Value, value: Value) -> Result<List, Error> {
    let mut items = items(call, &list, "Cannot push on type")?;
    items.push(value);
    Ok(items.into())
}

pub(super) fn prepend(call: &mut Call, list: Value, value: Value) -> Result<List, Error> {
    let mut items = items(call, &list, "Cannot prepend on type")?;
    items.insert(0, value);
    Ok(items.into())
}

pub(super) fn concat(call: &mut Call, lists: Rest<Value>) -> Result<Value, Error> {
    let mut all: Vec<Value> = Vec::new();
    for list in &*lists {
        call.check_memory(2 * all.len() * size_of::<Value>())?;
        match list {
            Value::List(_) | Value::Bytes(_) | Value::Nil => all.extend(items(call, list, "")?),
            other => return Err(Error::new(format!("Cannot concat type {} as list", other.kind()))),
        }
    }
    Ok(Value::List(if all.is_empty() { nil_list() } else { all.into() }))
}

/// Lists of `size` items each, the last one shorter.
pub(super) fn chunk(call: &mut Call, size: i64, list: Value) -> Result<List, Error> {
    let items = items(call, &list, "Cannot chunk type")?;
    // There are at most as many lists as items, and the items move into them.
    call.take_memory(items.len() * MEMORY_OF_A_PART)?;
    let chunks = match usize::try_from(size) {
        Ok(size @ 1..) => items
            .chunks(size)
            .map(|chunk| Value::List(chunk.to_vec().into()))
            .collect(),
        _ if counts_no_chunks(size, items.len()) => Vec::new(),
        // The only negative size for which sprig's arithmetic succeeds with a non-empty result.
        _ if items.len() == 1 && size < -1 => vec![Value::List(items.into())],
        _ => return Err(Error::new("runtime error: makeslice: len out of range")),
    };
    Ok(List::with_type(&types::LISTS, chunks))
}

/// Sprig computes the number of chunks in floating point, which gives 0 for some negative sizes.
fn counts_no_chunks(size: i64, length: usize) -> bool {
    ((length as f64 - 1.0) / size as f64).floor() + 1.0 == 0.0
}

pub(super) fn first(call: &mut Call, list: Value) -> Result<Value, Error> {
    Ok(items(call, &list, "Cannot find first on type")?
        .into_iter()
        .next()
        .unwrap_or_default())
}

pub(super) fn last(call: &mut Call, list: Value) -> Result<Value, Error> {
    Ok(items(call, &list, "Cannot find last on type")?
        .pop()
        .unwrap_or_default())
}

/// All but the first.
pub(super) fn rest(call: &mut Call, list: Value) -> Result<List, Error> {
    let mut items = items(call, &list, "Cannot find rest on type")?;
    if items.is_empty() {
        return Ok(nil_list());
    }
    items.remove(0);
    Ok(items.into())
}

/// All but the last.
pub(super) fn initial(call: &mut Call, list: Value) -> Result<List, Error> {
    let mut items = items(call, &list, "Cannot find initial on type")?;
    match items.pop() {
        Some(_) => Ok(items.into()),
        None => Ok(nil_list()),
    }
}

pub(super) fn reverse(call: &mut Call, list: Value) -> Result<List, Error> {
    let mut items = items(call, &list, "Cannot find reverse on type")?;
    items.reverse();
    Ok(items.into())
}

/// Removes empty values.
pub(super) fn compact(call: &mut Call, list: Value) -> Result<List, Error> {
    let items = items(call, &list, "Cannot compact on type")?;
    Ok(items.into_iter().filter(Value::truth).collect())
}

pub(super) fn uniq(call: &mut Call, list: Value) -> Result<List, Error> {
    let mut kept = Vec::new();
    for item in items(call, &list, "Cannot find uniq on type")? {
        if !is_among(call, &kept, &item)? {
            kept.push(item);
        }
    }
    Ok(kept.into())
}

pub(super) fn without(call: &mut Call, list: Value, unwanted: Rest<Value>) -> Result<List, Error> {
    let mut kept = Vec::new();
    for item in items(call, &list, "Cannot find without on type")? {
        if !is_among(call, &unwanted, &item)? {
            kept.push(item);
        }
    }
    Ok(kept.into())
}

/// A nil list contains nothing; sprig accepts it only here.
pub(super) fn has(call: &mut Call, needle: Value, list: Value) -> Result<bool, Error> {
    if list.is_untyped_nil() {
        return Ok(false);
    }
    let items = items(call, &list, "Cannot find has on type")?;
    is_among(call, &items, &needle)
}

fn is_among(call: &mut Call, items: &[Value], needle: &Value) -> Result<bool, Error> {
    // Most comparisons end at the first difference.
    let weight = call.weigh(needle)?;
    call.take_steps((items.len() as u64).saturating_mul(weight.steps() + 1) / ITEMS_COPIED_IN_A_STEP)?;
    for item in items {
        if needle.deep_equal(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `slice LIST [FROM [TO]]`, which keeps the type of the list.
pub(super) fn slice(call: &mut Call, list: Value, bounds: Rest<Value>) -> Result<Value, Error> {
    let items = items(call, &list, "list should be type of slice or array but")?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let start = bounds.first().map_or(0, int64_of);
    let end = bounds.get(1).map_or(items.len() as i64, int64_of);
    if start < 0 || end < start || end > items.len() as i64 {
        return Err(Error::new("reflect.Value.Slice: slice index out of bounds"));
    }
    let (start, end) = (start as usize, end as usize);
    Ok(match &list {
        Value::Bytes(bytes) => Value::bytes(&bytes[start..end]),
        Value::List(list) => Value::List(List::with_type(list.ty(), items[start..end].to_vec())),
        _ => Value::Nil,
    })
}
