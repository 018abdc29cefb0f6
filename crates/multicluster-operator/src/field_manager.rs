//! The field manager of what the operator writes itself.

/// Our field manager. Objects of releases have Helm's.
pub(crate) const FIELD_MANAGER: &str = "multicluster-operator";
