//! Reasons of the events about tenants, deployments and clusters.

/// Reporting component of events about tenants.
pub const TENANTS: &str = "multicluster-tenants";
/// Reporting component of events about deployments and clusters.
pub const OPERATOR: &str = "multicluster-operator";

/// The tenant's namespace was created.
pub const WORKSPACE_CREATED: &str = "WorkspaceCreated";
/// The tenant's namespace existed before and may be used.
pub const WORKSPACE_EXISTS: &str = "WorkspaceExists";
/// The tenant's namespace could not be created, or must not be used.
pub const WORKSPACE_CREATE_FAILED: &str = "WorkspaceCreateFailed";
/// An install begins.
pub const HELM_INSTALL_START: &str = "HelmInstallStart";
/// The release is installed.
pub const HELM_INSTALLED: &str = "HelmInstalled";
/// An upgrade begins.
pub const HELM_UPGRADE_START: &str = "HelmUpgradeStart";
/// The release is upgraded.
pub const HELM_UPGRADED: &str = "HelmUpgraded";
/// The release could not be installed.
pub const HELM_INSTALL_FAILED: &str = "HelmInstallFailed";
/// The release could not be upgraded.
pub const HELM_UPGRADE_FAILED: &str = "HelmUpgradeFailed";
/// The chart and the values are already installed.
pub const HELM_SKIP: &str = "HelmSkip";
/// The state of the release could not be determined.
pub const HELM_CONFIG_INIT_FAILED: &str = "HelmConfigInitFailed";
/// The chart could not be fetched.
pub const CHART_NOT_LOADED: &str = "ChartNotLoaded";
/// The chart does not exist in this version.
pub const CHART_VERSION_NOT_FOUND: &str = "ChartVersionNotFound";
/// The version of the chart is not valid.
pub const CHART_VERSION_INVALID: &str = "ChartVersionInvalid";
/// The phase changed.
pub const PHASE_SET: &str = "PhaseSet";
/// The status could not be written.
pub const STATUS_UPDATE_FAILED: &str = "StatusUpdateFailed";
/// The fingerprint was stored.
pub const FINGERPRINT_UPDATED: &str = "FingerprintUpdated";
/// The fingerprint could not be stored.
pub const FINGERPRINT_UPDATE_FAILED: &str = "FingerprintUpdateFailed";
/// The tenant names a Secret in a namespace that is not searched for clusters.
pub const CLUSTER_REF_IGNORED: &str = "ClusterRefIgnored";
/// Objects of the release had drifted and were corrected.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// The object was removed although its release could not be: what stays behind.
pub const RELEASES_ORPHANED: &str = "ReleasesOrphaned";

/// The deployment has no account.
pub const ACCOUNT_MISSING: &str = "AccountMissing";
/// The deployment has an account.
pub const ACCOUNT_VALIDATED: &str = "AccountValidated";
/// The deployment's cluster cannot be reached, or is not known.
pub const EDGE_UNAVAILABLE: &str = "EdgeUnavailable";
/// Our finalizer was added to the deployment.
pub const FINALIZER_ADDED: &str = "FinalizerAdded";
/// Our finalizer was removed from the deployment.
pub const FINALIZER_REMOVED: &str = "FinalizerRemoved";
/// The cluster of the deployment was determined.
pub const ROUTING: &str = "Routing";
/// The deployment's namespace was created on its cluster.
pub const EDGE_NAMESPACE_CREATED: &str = "EdgeNamespaceCreated";
/// The release is deployed.
pub const HELM_DEPLOYED: &str = "HelmDeployed";
/// The release could not be deployed.
pub const HELM_DEPLOY_FAILED: &str = "HelmDeployFailed";
/// Missing objects of the release are being restored.
pub const REPAIR_TRIGGERED: &str = "RepairTriggered";
/// The deployment is up.
pub const READY: &str = "Ready";
/// The deployment is being deleted.
pub const DELETE_STARTED: &str = "DeleteStarted";
/// Its release was removed.
pub const HELM_UNINSTALLED: &str = "HelmUninstalled";
/// Its release could not be removed.
pub const HELM_UNINSTALL_FAILED: &str = "HelmUninstallFailed";
/// Its namespace is being removed.
pub const EDGE_NAMESPACE_DELETE_REQUESTED: &str = "EdgeNamespaceDeleteRequested";

/// The operator's connection to a cluster changed; published for the Secret with its kubeconfig.
pub const CLUSTER_STATE: &str = "ClusterState";
