//! How a kind that a chart names becomes one in RBAC's terms: by a cluster's discovery, by what Kubernetes itself
//! serves, or by a guess.

use crate::group_resource::GroupResource;

/// What is known about a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceMapping {
    /// Plural resource name.
    pub plural: String,
    /// True when it is namespaced.
    pub namespaced: bool,
}

/// Resolves kinds, usually by a cluster's discovery.
pub trait Kinds {
    /// The kind, in any version.
    fn kind(&self, group: &str, kind: &str) -> Option<ResourceMapping>;
    /// True when this resource is namespaced.
    fn is_namespaced(&self, group: &str, plural: &str) -> Option<bool>;
}

/// The kinds that Kubernetes itself serves, with its own rule for plurals: for use without a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltIn;

/// Cluster-scoped kinds of Kubernetes.
const CLUSTER_SCOPED: [&str; 26] = [
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrustBundle",
    "CustomResourceDefinition",
    "DeviceClass",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PodSecurityPolicy",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "RuntimeClass",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Groups of Kubernetes whose names do not end in `.k8s.io`.
const OLD_GROUPS: [&str; 6] = ["", "apps", "autoscaling", "batch", "extensions", "policy"];

impl Kinds for BuiltIn {
    fn kind(&self, group: &str, kind: &str) -> Option<ResourceMapping> {
        let is_ours = OLD_GROUPS.contains(&group)
            || (group.ends_with(".k8s.io")
                && !group.ends_with(".x-k8s.io")
                && group.matches('.').count() <= 3);
        is_ours.then(|| ResourceMapping {
            plural: plural(kind),
            namespaced: !CLUSTER_SCOPED.contains(&kind),
        })
    }

    fn is_namespaced(&self, group: &str, resource: &str) -> Option<bool> {
        let is_cluster_scoped = CLUSTER_SCOPED.iter().any(|kind| plural(kind) == resource);
        self.kind(group, "").map(|_| !is_cluster_scoped)
    }
}

/// The kind in RBAC's terms, and whether it is namespaced; a guess if the kind is unknown.
pub fn guess(kinds: &impl Kinds, group: &str, kind: &str) -> (GroupResource, bool) {
    let mapping = kinds.kind(group, kind).unwrap_or_else(|| ResourceMapping {
        plural: unserved_plural(group, kind),
        namespaced: true,
    });
    (GroupResource::new(group, &mapping.plural), mapping.namespaced)
}

/// The plural of a kind that is not served yet. Plurals of types generated from charts are our own.
pub(crate) fn unserved_plural(group: &str, kind: &str) -> String {
    if group == crdgen::GROUP {
        crdgen::Names::plural_of(kind)
    } else {
        plural(kind)
    }
}

/// The rule by which Kubernetes guesses plurals.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_bytes().last() {
        _ if kind == "endpoints" => kind,
        Some(b's') => kind + "es",
        Some(b'y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => kind + "s",
    }
}
