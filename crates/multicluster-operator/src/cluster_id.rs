//! The ids under which clusters are known.

/// The id of a cluster: the Secret with its kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterId {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
