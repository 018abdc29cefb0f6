//! Reasons of the events about tenants, deployments and clusters.

/// Who tells of tenants.
pub const TENANTS: &str = "multicluster-tenants";
/// Who tells of deployments and clusters.
pub const OPERATOR: &str = "multicluster-operator";

/// The tenant's namespace was made.
pub const WORKSPACE_CREATED: &str = "WorkspaceCreated";
/// The tenant's namespace was there before and may be used.
pub const WORKSPACE_EXISTS: &str = "WorkspaceExists";
/// The tenant's namespace could not be made, or is not to be used.
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
/// The chart and the values are those that are installed.
pub const HELM_SKIP: &str = "HelmSkip";
/// Nothing could be decided about the release.
pub const HELM_CONFIG_INIT_FAILED: &str = "HelmConfigInitFailed";
/// The chart could not be fetched.
pub const CHART_NOT_LOADED: &str = "ChartNotLoaded";
/// The chart is not there in this version.
pub const CHART_VERSION_NOT_FOUND: &str = "ChartVersionNotFound";
/// The version of the chart is none.
pub const CHART_VERSION_INVALID: &str = "ChartVersionInvalid";
/// The phase changed.
pub const PHASE_SET: &str = "PhaseSet";
/// The status could not be written.
pub const STATUS_UPDATE_FAILED: &str = "StatusUpdateFailed";
/// The fingerprint was noted.
pub const FINGERPRINT_UPDATED: &str = "FingerprintUpdated";
/// The fingerprint could not be noted.
pub const FINGERPRINT_UPDATE_FAILED: &str = "FingerprintUpdateFailed";
/// The tenant names a Secret of a namespace in which no clusters are looked for.
pub const CLUSTER_REF_IGNORED: &str = "ClusterRefIgnored";
/// Objects of the release were not as they were applied, and are again.
pub const DRIFT_CORRECTED: &str = "DriftCorrected";
/// The object went although its release could not be removed: what stays behind.
pub const RELEASES_ORPHANED: &str = "ReleasesOrphaned";

/// The deployment has no account.
pub const ACCOUNT_MISSING: &str = "AccountMissing";
/// The account of the deployment is there.
pub const ACCOUNT_VALIDATED: &str = "AccountValidated";
/// The deployment's cluster cannot be reached, or is not known.
pub const EDGE_UNAVAILABLE: &str = "EdgeUnavailable";
/// Our finalizer is on the deployment.
pub const FINALIZER_ADDED: &str = "FinalizerAdded";
/// Our finalizer is off the deployment.
pub const FINALIZER_REMOVED: &str = "FinalizerRemoved";
/// Which cluster the deployment goes to.
pub const ROUTING: &str = "Routing";
/// The deployment's namespace was made on its cluster.
pub const EDGE_NAMESPACE_CREATED: &str = "EdgeNamespaceCreated";
/// The release is deployed.
pub const HELM_DEPLOYED: &str = "HelmDeployed";
/// The release could not be deployed.
pub const HELM_DEPLOY_FAILED: &str = "HelmDeployFailed";
/// What was gone of the release is put back.
pub const REPAIR_TRIGGERED: &str = "RepairTriggered";
/// The deployment is up.
pub const READY: &str = "Ready";
/// The deployment is going.
pub const DELETE_STARTED: &str = "DeleteStarted";
/// Its release is removed.
pub const HELM_UNINSTALLED: &str = "HelmUninstalled";
/// Its release could not be removed.
pub const HELM_UNINSTALL_FAILED: &str = "HelmUninstallFailed";
/// Its namespace is being removed.
pub const EDGE_NAMESPACE_DELETE_REQUESTED: &str = "EdgeNamespaceDeleteRequested";

/// The operator stands otherwise to a cluster than before; told of the Secret with its kubeconfig.
pub const CLUSTER_STATE: &str = "ClusterState";
