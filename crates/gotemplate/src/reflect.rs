//! [`Reflect`]: a value as Go's `reflect` presents it to the evaluator: a [`Value`] plus whether it is in an
//! interface.

use crate::{
    types::{self, Kind, Type},
    value::Value,
};

/// A value, and whether it is held in an `interface {}`: an element of a `map[string]interface {}`, or the result of
/// a function that returns one.
///
/// This decides how a nil behaves (`.a.b` fails on a nil interface, but not on no value at all) and which type errors
/// name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reflect {
    pub(crate) value: Value,
    pub(crate) interface: bool,
}

impl Reflect {
    /// No value at all: Go's zero `reflect.Value`.
    pub(crate) const INVALID: Self = Self {
        value: Value::Nil,
        interface: false,
    };

    /// A value of a known type.
    pub(crate) fn concrete(value: Value) -> Self {
        Self {
            value,
            interface: false,
        }
    }

    /// An element of a container, or a field of a struct.
    pub(crate) fn element(value: Value, ty: &Type) -> Self {
        let interface = ty.kind() == Kind::Interface || value.is_untyped_nil();
        Self { value, interface }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.interface || !self.value.is_untyped_nil()
    }

    /// Whether it is a nil interface.
    pub(crate) fn is_nil_interface(&self) -> bool {
        self.interface && self.value.is_untyped_nil()
    }

    /// Go's `indirectInterface`: unwraps the interface; a nil interface becomes no value.
    pub(crate) fn unwrapped(self) -> Self {
        Self::concrete(self.value)
    }

    /// The static type, as errors name it.
    pub(crate) fn type_name(&self) -> &'static str {
        if self.interface {
            types::INTERFACE.name()
        } else {
            self.value.type_name()
        }
    }
}
