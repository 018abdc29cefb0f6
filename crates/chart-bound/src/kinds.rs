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

/// The group whose objects decide about the writes of others: all of its kinds are ruling.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The other ruling kinds.
const RULING: [(&str, &str); 13] = [
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumes"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "storageclasses"),
];

/// The kinds of [`ADMISSION`] that Kubernetes serves.
const ADMITTING: [&str; 6] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// The ruling kinds that Kubernetes serves.
pub fn ruling_kinds() -> impl Iterator<Item = GroupResource> {
    let admitting = ADMITTING.into_iter().map(|resource| (ADMISSION, resource));
    admitting
        .chain(RULING)
        .map(|(group, resource)| GroupResource::new(group, resource))
}

/// The kind of namespaces, the only ruling kind of which some objects need no consent.
pub(crate) fn is_namespaces(kind: &GroupResource) -> bool {
    kind.group.is_empty() && kind.resource == "namespaces"
}

/// The kind of custom resource definitions.
pub(crate) fn is_definitions(kind: &GroupResource) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.resource == "customresourcedefinitions"
}

/// True for a kind whose objects rule over others in the whole cluster: who writes one decides what others may do, or
/// what they get. That a chart contains it is no consent: an admin has to consent to the kind.
pub fn is_ruling(kind: &GroupResource) -> bool {
    kind.group == ADMISSION || RULING.contains(&(kind.group.as_str(), kind.resource.as_str()))
}

/// True for the name of a custom resource definition that only core-provider or the chart of the platform writes:
/// those of types that charts become, of their definitions, and of the consent to them.
pub(crate) fn is_reserved(definition: &str) -> bool {
    let group = definition.split_once('.').map_or("", |(_, group)| group);
    RESERVED_GROUPS.contains(&group)
}

/// The groups of the types that no release may define.
pub const RESERVED_GROUPS: [&str; 3] = [api::COMPOSITION_GROUP, api::DEFINITION_GROUP, api::GRANT_GROUP];

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
