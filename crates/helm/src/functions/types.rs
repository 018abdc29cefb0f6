//! Types and kinds of values: sprig's `reflect.go`.

use gotemplate::string::Str;
use gotemplate::value::Value;

pub(super) fn type_of(value: Value) -> &'static str {
    value.type_name()
}

pub(super) fn type_is(name: Str, value: Value) -> bool {
    name == value.type_name()
}

/// A pointer matches the type that it points to.
pub(super) fn type_is_like(name: Str, value: Value) -> bool {
    let found = value.type_name();
    name == found || found.strip_prefix('*').is_some_and(|pointee| name == pointee)
}

pub(super) fn kind_of(value: Value) -> &'static str {
    value.kind().name()
}

pub(super) fn kind_is(name: Str, value: Value) -> bool {
    name == value.kind().name()
}
