//! Names of the platform's own objects.

/// The name of the definition of installers, and of the Installer object.
pub(super) const INSTALLER: &str = "installer";

/// The kind of the Installer object.
pub(super) const KIND: &str = "Installer";
