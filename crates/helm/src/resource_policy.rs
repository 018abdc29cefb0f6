//! What survives an uninstall: the annotation `helm.sh/resource-policy` (Helm's `resource_policy.go`).

/// The annotation that may hold [`KEEP`].
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The one value with a meaning: the object stays when its release goes.
pub const KEEP: &str = "keep";

/// What an uninstall does with an object of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUninstall {
    /// Delete it.
    Delete,
    /// Leave it and name it in the report.
    Keep,
    /// Leave it and say nothing: the annotation is there with another value than `keep`.
    /// Helm's uninstall sorts such an object into neither list.
    Ignore,
}

impl OnUninstall {
    /// Reads the policy out of the annotation's value in the stored manifest.
    pub fn of(annotation: Option<&str>) -> Self {
        match annotation {
            None => Self::Delete,
            Some(value) if value.trim().to_lowercase() == KEEP => Self::Keep,
            Some(_) => Self::Ignore,
        }
    }
}

/// True when an object that left the manifest stays in the cluster on upgrade or rollback.
///
/// Here the live object's annotation counts, and only the exact value.
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
