//! Annotations on tenants, deployments, their namespaces and the Secrets of clusters.

/// On a [`Tenant`](super::Tenant) or [`KryptonDeployment`](super::KryptonDeployment), followed by the name of a
/// cluster: the fingerprint of the chart and the values that are installed there.
pub const FINGERPRINT: &str = "mesh.openkcm.io/fingerprint-";

/// On a [`Tenant`](super::Tenant): `"true"` once its releases are being removed.
pub const DELETING: &str = "mesh.openkcm.io/deleting";

/// On an object that is being deleted: `"true"` allows its removal although its release could not be removed and
/// stays behind.
pub const FORCE_DELETE: &str = "mesh.openkcm.io/force-delete";

/// On an existing namespace: the [`Tenant`](super::Tenant) whose release may be installed in it, `name` or
/// `namespace/name`.
pub const FOR_TENANT: &str = "mesh.openkcm.io/tenant";

/// The same for a [`KryptonDeployment`](super::KryptonDeployment).
pub const FOR_DEPLOYMENT: &str = "mesh.openkcm.io/kryptondeployment";

/// On the Secret of a cluster: the operator's connection to it, a JSON object of `state`, `since`, `message`, and
/// `leftBehind` if objects were removed without their releases.
pub const CLUSTER_STATE: &str = "mesh.openkcm.io/cluster-state";
