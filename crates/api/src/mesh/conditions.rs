//! Conditions of tenants, one of each kind for each cluster, and of deployments.

/// Followed by a slash and the name of a cluster: the release is deployed there and up.
pub const CLUSTER_READY: &str = "ClusterReady";
/// Followed by a slash and the name of a cluster: the last pass failed there.
pub const CLUSTER_ERROR: &str = "ClusterError";
/// Followed by a slash and the name of a cluster: an action on the release is in progress there.
pub const CLUSTER_PROGRESS: &str = "ClusterProgress";

/// Condition type of a deployment.
pub const READY: &str = "Ready";

/// Ready: the release was installed.
pub const INSTALLED: &str = "Installed";
/// Ready: the release was upgraded.
pub const UPGRADED: &str = "Upgraded";
/// Ready: there was nothing to do.
pub const NO_CHANGE: &str = "NoChange";
/// Not ready: objects of the release are not up.
pub const NOT_READY: &str = "NotReady";
/// The error is gone.
pub const RESOLVED: &str = "Resolved";

/// The release could not be installed.
pub const INSTALL_FAILED: &str = "InstallFailed";
/// The release could not be upgraded.
pub const UPGRADE_FAILED: &str = "UpgradeFailed";
/// The release could not be removed.
pub const UNINSTALL_FAILED: &str = "UninstallFailed";
/// The chart could not be fetched.
pub const CHART_NOT_LOADED: &str = "ChartNotLoaded";
/// The version of the chart is not valid.
pub const VERSION_INVALID: &str = "VersionInvalid";
/// The chart does not exist in this version.
pub const VERSION_NOT_FOUND: &str = "VersionNotFound";
/// The namespace belongs to somebody else.
pub const NAMESPACE_REFUSED: &str = "NamespaceRefused";
/// The release belongs to somebody else.
pub const RELEASE_FOREIGN: &str = "ReleaseForeign";

/// In progress: an install.
pub const INSTALLING: &str = "Installing";
/// In progress: an upgrade.
pub const UPGRADING: &str = "Upgrading";
/// In progress: a removal.
pub const DELETING: &str = "Deleting";
/// No longer in progress: the install is complete.
pub const INSTALL_COMPLETE: &str = "InstallComplete";
/// No longer in progress: the upgrade is complete.
pub const UPGRADE_COMPLETE: &str = "UpgradeComplete";
/// Not in progress: somebody else is acting on the release.
pub const LOCKED: &str = "Locked";

/// Ready: the release is deployed and up.
pub const DEPLOYED: &str = "Deployed";
/// Not ready: `spec.account.name` is empty.
pub const ACCOUNT_MISSING: &str = "AccountMissing";
/// Not ready: the cluster cannot be reached, or is not known.
pub const EDGE_UNAVAILABLE: &str = "EdgeUnavailable";
/// Not ready: the release could not be checked.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
/// Not ready: an action on the release failed.
pub const HELM_FAILED: &str = "HelmFailed";
/// Not ready: missing objects are being restored.
pub const REPAIR_TRIGGERED: &str = "RepairTriggered";
/// Not ready: the release is on another cluster than the spec now says.
pub const TARGET_CHANGED: &str = "TargetChanged";
