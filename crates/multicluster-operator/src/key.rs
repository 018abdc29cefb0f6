//! The objects that are worked on, by their place.

use runtime::queue::Grouped;

/// Which type an object is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Tenant,
    Deployment,
}

impl Kind {
    /// As the API has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "Tenant",
            Self::Deployment => "KryptonDeployment",
        }
    }
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The objects of a namespace take turns with those of others.
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
