//! Finalizers of ours. Each controller adds and removes only its own.

/// On a composition definition: its controller bundle and type are still there.
pub const DEFINITION: &str = "finalizer.managedresource.krateo.io";

/// On a composition: its release is still there.
pub const COMPOSITION: &str = "composition.krateo.io/finalizer";
