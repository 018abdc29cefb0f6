//! Why an action on a release failed.

use helm::hook::HookEvent;

use super::Action;
use crate::pool::Busy;
use crate::records;

/// An action that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record could not be read or written.
    #[error("could not store the record of the release")]
    Records(#[source] records::Error),
    /// The name is taken by a deployed release.
    #[error("cannot reuse a name that is still in use: release {release} is deployed in revision {revision}")]
    NameInUse {
        /// The release.
        release: String,
        /// Its deployed revision.
        revision: i64,
    },
    /// There is no release of that name.
    #[error("release: not found")]
    NoRelease,
    /// There is no such revision to roll back to.
    #[error("release {release:?} has no revision {revision}")]
    NoRevision {
        /// The release.
        release: String,
        /// The revision.
        revision: i64,
    },
    /// There is no action to continue.
    #[error("no action on the release was interrupted")]
    NotUnderway,
    /// Somebody else is acting on the release.
    #[error(
        "another operation (install/upgrade/rollback) is in progress: release {release} is held by {lease}"
    )]
    Held {
        /// The release.
        release: String,
        /// The Lease of its holder.
        lease: String,
    },
    /// The release could not be held.
    #[error("could not lock release {release}")]
    Hold {
        /// The release.
        release: String,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// There is nothing to upgrade.
    #[error("{release:?} has no deployed releases")]
    NotDeployed {
        /// The release.
        release: String,
    },
    /// A document of the release is not an object.
    #[error("could not read a document of {what}")]
    Parse {
        /// Manifest, hook or CRD file.
        what: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API path of an object could not be determined.
    #[error("could not find the place of {object} of the release; ensure CRDs are installed first")]
    Locate {
        /// Kind and name.
        object: String,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// Objects are of types that the API server does not serve: their CRDs are missing, or not established yet.
    /// Nothing is written.
    #[error(
        "could not find the place of {object} of the release; ensure CRDs are installed first: the API server serves no {}",
        listed(.types)
    )]
    Unserved {
        /// Kind and name of the first such object.
        object: String,
        /// The types, each once.
        types: Vec<UnservedType>,
    },
    /// No place to process the release's manifest became free.
    #[error("could not work on the manifest of the release")]
    Busy(#[source] Busy),
    /// An object exists and does not belong to this release.
    #[error(
        "unable to continue with {action}: {object} exists and cannot be imported into the current release: {reason}"
    )]
    NotOurs {
        /// Install or update, in Helm's words.
        action: &'static str,
        /// The object, in Helm's words.
        object: String,
        /// Which label or annotation is missing or names another release.
        reason: String,
    },
    /// An object could not be read, written or deleted.
    #[error("could not {attempt} the objects of the release")]
    Objects {
        /// What was tried.
        attempt: &'static str,
        /// Which object, and why.
        source: Box<cluster::Error>,
    },
    /// A hook failed.
    #[error("failed {event}: hook {path} of kind {kind}{}", printed(.output.as_deref()))]
    Hook {
        /// The event it ran at.
        event: HookEvent,
        /// Its template.
        path: String,
        /// Its kind.
        kind: String,
        /// The last lines that it printed, if they can be read.
        output: Option<String>,
        /// Why.
        source: Box<Error>,
    },
    /// An action failed; the record says so.
    #[error("could not {action} release {release}; {undone}")]
    Action {
        /// The action that failed.
        action: Action,
        /// The release.
        release: String,
        /// What happened to the changed objects.
        undone: Undone,
        /// Why.
        source: Box<Error>,
    },
}

/// A type that the API server does not serve.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnservedType {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl UnservedType {
    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl std::fmt::Display for UnservedType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "kind {} in {}", self.kind, self.api_version)
    }
}

fn listed(types: &[UnservedType]) -> String {
    let types: Vec<_> = types.iter().map(ToString::to_string).collect();
    types.join(", ")
}

/// The output of a hook, in one line.
fn printed(output: Option<&str>) -> String {
    output.map_or_else(String::new, |output| {
        let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
        format!(", which printed: {}", lines.join(" | "))
    })
}

/// What happened to the changes of a failed action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// What it created has been removed again.
    Removed,
    /// The manifest of this revision has been applied again.
    RolledBack(i64),
    /// They are kept, as the options ask for.
    Kept,
    /// They could not be undone.
    Not {
        /// Why.
        because: String,
    },
}

impl std::fmt::Display for Undone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Removed => f.write_str("what it made is removed again"),
            Self::RolledBack(revision) => write!(f, "it is rolled back to revision {revision}"),
            Self::Kept => f.write_str("what it did is kept"),
            Self::Not { because } => write!(f, "it is left half done ({because})"),
        }
    }
}

impl Error {
    /// True when the same attempt can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Records(source) => source.is_transient(),
            Self::Locate { source, .. } | Self::Objects { source, .. } | Self::Hold { source, .. } => {
                source.is_transient()
            }
            Self::Hook { source, .. } | Self::Action { source, .. } => source.is_transient(),
            // The holder may be done soon.
            Self::Held { .. } | Self::Busy(_) => true,
            Self::NameInUse { .. }
            | Self::NoRelease
            | Self::NoRevision { .. }
            | Self::NotUnderway
            | Self::NotDeployed { .. }
            | Self::Parse { .. }
            | Self::Unserved { .. }
            | Self::NotOurs { .. } => false,
        }
    }

    /// The types that have to be served before the same attempt can succeed.
    pub fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Unserved { types, .. } => Some(types),
            _ => None,
        }
    }

    /// True when the rights to read or write a record are missing: they still have to be granted.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Records(source) if source.is_forbidden())
    }

    /// The error of a failed request about an object of the release.
    pub(super) fn objects(attempt: &'static str) -> impl Fn(cluster::Error) -> Self + Copy {
        move |source| Self::Objects {
            attempt,
            source: Box::new(source),
        }
    }
}
