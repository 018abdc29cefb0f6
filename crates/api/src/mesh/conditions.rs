//! Conditions of tenants, one of each kind for each cluster, and of deployments.

/// Before the slash and the name of a cluster: the release is there and as it should be.
pub const CLUSTER_READY: &str = "ClusterReady";
/// Before the slash and the name of a cluster: the last pass failed there.
pub const CLUSTER_ERROR: &str = "ClusterError";
/// Before the slash and the name of a cluster: an action on the release is under way there.
pub const CLUSTER_PROGRESS: &str = "ClusterProgress";

/// Condition type of a deployment.
pub const READY: &str = "Ready";

/// Ready: the release was installed.
pub const INSTALLED: &str = "Installed";
/// Ready: the release was upgraded.
pub const UPGRADED: &str = "Upgraded";
/// Ready: nothing was to be done.
pub const NO_CHANGE: &str = "NoChange";
/// Not ready: objects of the release are not up.
pub const NOT_READY: &str = "NotReady";
/// No error any more.
pub const RESOLVED: &str = "Resolved";

/// The release could not be installed.
pub const INSTALL_FAILED: &str = "InstallFailed";
/// The release could not be upgraded.
pub const UPGRADE_FAILED: &str = "UpgradeFailed";
/// The release could not be removed.
pub const UNINSTALL_FAILED: &str = "UninstallFailed";
/// The chart could not be fetched.
pub const CHART_NOT_LOADED: &str = "ChartNotLoaded";
/// The version of the chart is none.
pub const VERSION_INVALID: &str = "VersionInvalid";
/// The chart is not there in this version.
pub const VERSION_NOT_FOUND: &str = "VersionNotFound";
/// The namespace is another's.
pub const NAMESPACE_REFUSED: &str = "NamespaceRefused";
/// The release is another's.
pub const RELEASE_FOREIGN: &str = "ReleaseForeign";

/// In progress: an install.
pub const INSTALLING: &str = "Installing";
/// In progress: an upgrade.
pub const UPGRADING: &str = "Upgrading";
/// In progress: a removal.
pub const DELETING: &str = "Deleting";
/// Not in progress any more: the install is through.
pub const INSTALL_COMPLETE: &str = "InstallComplete";
/// Not in progress any more: the upgrade is through.
pub const UPGRADE_COMPLETE: &str = "UpgradeComplete";
/// Not in progress: somebody else is at the release.
pub const LOCKED: &str = "Locked";

/// Ready: the release is deployed and up.
pub const DEPLOYED: &str = "Deployed";
/// Not ready: `spec.account.name` is empty.
pub const ACCOUNT_MISSING: &str = "AccountMissing";
/// Not ready: the cluster cannot be reached, or is not known.
pub const EDGE_UNAVAILABLE: &str = "EdgeUnavailable";
/// Not ready: the release could not be looked at.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
/// Not ready: an action on the release failed.
pub const HELM_FAILED: &str = "HelmFailed";
/// Not ready: what was gone is being put back.
pub const REPAIR_TRIGGERED: &str = "RepairTriggered";
/// Not ready: the release is on another cluster than the spec says by now.
pub const TARGET_CHANGED: &str = "TargetChanged";
