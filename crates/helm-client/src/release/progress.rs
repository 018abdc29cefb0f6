//! Progress reports of an action on a release.

use std::fmt;
use std::sync::Arc;

use cluster::{Health, ObjectId};
use helm::hook::{HookEvent, HookPhase};
use helm::release::Status;

/// Receives every step of an action. It is called between requests and should not take long.
pub type Listener = Arc<dyn Fn(&Progress<'_>) + Send + Sync>;

/// One step of an action on a release.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A record was written.
    Recorded {
        /// The revision.
        revision: i64,
        /// Its status now.
        status: &'a Status,
    },
    /// A CRD in `crds/` was created or replaced.
    Defined {
        /// The CRD.
        id: &'a ObjectId,
    },
    /// A hook has started or ended.
    Hook {
        /// The event it runs at.
        event: &'a HookEvent,
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// Its phase.
        phase: &'a HookPhase,
    },
    /// The output of a hook, when it failed or its policy asks for the output.
    Output {
        /// Its name.
        name: &'a str,
        /// The last lines.
        text: &'a str,
    },
    /// An object was applied.
    Applied {
        /// The object.
        id: &'a ObjectId,
        /// True when it did not exist before.
        created: bool,
    },
    /// An object was deleted; its removal may still be in progress.
    Deleted {
        /// The object.
        id: &'a ObjectId,
    },
    /// An object that would be removed is kept.
    Kept {
        /// The object.
        id: &'a ObjectId,
    },
    /// The state of an awaited object changed.
    Awaiting {
        /// The object.
        id: &'a ObjectId,
        /// Whether it is healthy.
        health: &'a Health,
    },
    /// The action failed, and what it changed is being undone.
    Undoing {
        /// Why it failed.
        because: &'a str,
    },
}

/// As text: `applied ConfigMap shop/a`.
impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded { revision, status } => write!(f, "revision {revision} is {status}"),
            Self::Defined { id } => write!(f, "defined {}", id.name()),
            Self::Hook {
                event,
                kind,
                name,
                phase,
            } => write!(f, "{event} hook {kind} {name}: {phase}"),
            Self::Output { name, text } => write!(f, "output of hook {name}:\n{text}"),
            Self::Applied { id, created: true } => write!(f, "created {id}"),
            Self::Applied { id, created: false } => write!(f, "applied {id}"),
            Self::Deleted { id } => write!(f, "deleted {id}"),
            Self::Kept { id } => write!(f, "kept {id}"),
            Self::Awaiting { id, health } => write!(f, "{id} is {health}"),
            Self::Undoing { because } => write!(f, "undoing it: {because}"),
        }
    }
}
