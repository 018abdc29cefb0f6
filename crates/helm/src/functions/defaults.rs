//! Choosing between values: sprig's `defaults.go`. A value is empty if it is nil, false, 0 or of length 0.

use gotemplate::function::Rest;
use gotemplate::value::Value;

/// `default FALLBACK GIVEN`.
pub(super) fn default(fallback: Value, given: Rest<Value>) -> Value {
    given.into_iter().next().filter(Value::truth).unwrap_or(fallback)
}

pub(super) fn empty(value: Value) -> bool {
    !value.truth()
}

/// The first value that is not empty, otherwise nil.
pub(super) fn coalesce(values: Rest<Value>) -> Value {
    values.into_iter().find(Value::truth).unwrap_or_default()
}

pub(super) fn all(values: Rest<Value>) -> bool {
    values.iter().all(Value::truth)
}

pub(super) fn any(values: Rest<Value>) -> bool {
    values.iter().any(Value::truth)
}

/// `ternary YES NO CONDITION`.
pub(super) fn ternary(yes: Value, no: Value, condition: bool) -> Value {
    if condition { yes } else { no }
}
