//! Keys of the objects that are reconciled.

use runtime::queue::Grouped;

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Tenant,
    Deployment,
}

impl Kind {
    /// The name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "Tenant",
            Self::Deployment => "KryptonDeployment",
        }
    }
}

/// The key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Fairness is per namespace.
impl Grouped for Key {
    fn group(&self) -> &str {
        &self.namespace
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}
