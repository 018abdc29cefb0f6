//! The order in which kinds are installed and uninstalled (Helm's `kind_sorter.go`).

use std::cmp::Ordering;

/// Kinds in the order in which Helm creates them: those that others refer to come first.
pub const INSTALL_ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Kinds in the order in which Helm deletes them.
pub const UNINSTALL_ORDER: [&str; 38] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];

/// One of Helm's orders of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindOrder {
    /// The order of creation.
    Install,
    /// The order of creation in Helm 3, which has no place for webhook configurations.
    InstallHelm3,
    /// The order of deletion.
    Uninstall,
}

impl KindOrder {
    fn position(self, kind: &str) -> Option<usize> {
        let kinds: &[&str] = match self {
            Self::Install => &INSTALL_ORDER,
            // The two kinds of webhook configurations come last in Helm 4's order.
            Self::InstallHelm3 => &INSTALL_ORDER[..INSTALL_ORDER.len() - 2],
            Self::Uninstall => &UNINSTALL_ORDER,
        };
        kinds.iter().position(|known| *known == kind)
    }

    /// Compares two kinds: known ones by their position in the order, then unknown ones by name.
    ///
    /// Only a stable sort by this comparison reproduces Helm's order; the API version is irrelevant.
    pub fn compare(self, a: &str, b: &str) -> Ordering {
        match (self.position(a), self.position(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_hold_the_same_kinds() {
        let mut install = INSTALL_ORDER;
        let mut uninstall = UNINSTALL_ORDER;
        install.sort_unstable();
        uninstall.sort_unstable();
        assert_eq!(install, uninstall);
    }

    #[test]
    fn unknown_kinds_come_last_by_name_and_the_empty_kind_before_them() {
        let mut kinds = ["Zebra", "Service", "Ant", "", "Namespace", "Ingress"];
        kinds.sort_by(|a, b| KindOrder::Install.compare(a, b));
        assert_eq!(kinds, ["Namespace", "Service", "Ingress", "", "Ant", "Zebra"]);
        kinds.sort_by(|a, b| KindOrder::Uninstall.compare(a, b));
        assert_eq!(kinds, ["Ingress", "Service", "Namespace", "", "Ant", "Zebra"]);

        let mut kinds = ["ValidatingWebhookConfiguration", "", "Zebra", "APIService"];
        kinds.sort_by(|a, b| KindOrder::InstallHelm3.compare(a, b));
        assert_eq!(
            kinds,
            ["APIService", "", "ValidatingWebhookConfiguration", "Zebra"]
        );
    }
}
