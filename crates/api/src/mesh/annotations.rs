//! Annotations on tenants, deployments, their namespaces and the Secrets of clusters.

/// On a [`Tenant`](super::Tenant) or [`KryptonDeployment`](super::KryptonDeployment), followed by the name of a cluster: the
/// fingerprint of the chart and the values that were installed there.
pub const FINGERPRINT: &str = "mesh.openkcm.io/fingerprint-";

/// On a [`Tenant`](super::Tenant): `"true"` once its releases are being removed.
pub const DELETING: &str = "mesh.openkcm.io/deleting";

/// On an object that is being deleted: `"true"` lets it go although its release could not be removed, which stays behind.
pub const FORCE_DELETE: &str = "mesh.openkcm.io/force-delete";

/// On a namespace that was there before: the [`Tenant`](super::Tenant) that may have its release in it, `name` or
/// `namespace/name`.
pub const FOR_TENANT: &str = "mesh.openkcm.io/tenant";

/// The same of a [`KryptonDeployment`](super::KryptonDeployment).
pub const FOR_DEPLOYMENT: &str = "mesh.openkcm.io/kryptondeployment";

/// On the Secret of a cluster: how the operator stands to it, a JSON object of `state`, `since`, `message`, and `leftBehind`
/// where objects went without their releases.
pub const CLUSTER_STATE: &str = "mesh.openkcm.io/cluster-state";
