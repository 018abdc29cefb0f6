//! Our finalizers. Each controller adds and removes only its own.

/// On a composition definition: its controller bundle and type still exist.
pub const DEFINITION: &str = "finalizer.managedresource.krateo.io";

/// On a composition: its release still exists.
pub const COMPOSITION: &str = "composition.krateo.io/finalizer";
