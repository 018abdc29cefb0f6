//! Which objects survive an uninstall: the annotation `helm.sh/resource-policy` (Helm's `resource_policy.go`).

/// The annotation that may have the value [`KEEP`].
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The only meaningful value: the object is kept when its release is uninstalled.
pub const KEEP: &str = "keep";

/// What an uninstall does with an object of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUninstall {
    /// Delete it.
    Delete,
    /// Keep it and list it in the report.
    Keep,
    /// Keep it without listing it: the annotation has another value than `keep`.
    /// Helm's uninstall puts such an object into neither list.
    Ignore,
}

impl OnUninstall {
    /// The policy for the value of the annotation in the stored manifest.
    pub fn of(annotation: Option<&str>) -> Self {
        match annotation {
            None => Self::Delete,
            Some(value) if value.trim().to_lowercase() == KEEP => Self::Keep,
            Some(_) => Self::Ignore,
        }
    }
}

/// Whether an object that is no longer in the manifest is kept in the cluster on upgrade or rollback.
///
/// This is decided by the live object's annotation, and only by the exact value.
pub fn is_kept_on_upgrade(live_annotation: Option<&str>) -> bool {
    live_annotation == Some(KEEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_is_lenient_about_the_spelling_and_upgrade_is_not() {
        assert_eq!(OnUninstall::of(None), OnUninstall::Delete);
        assert_eq!(OnUninstall::of(Some(" Keep ")), OnUninstall::Keep);
        assert_eq!(OnUninstall::of(Some("delete")), OnUninstall::Ignore);
        assert!(is_kept_on_upgrade(Some("keep")));
        assert!(!is_kept_on_upgrade(Some("Keep")));
        assert!(!is_kept_on_upgrade(None));
    }
}
