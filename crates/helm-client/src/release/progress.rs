//! What an action on a release is doing, as it does it.

use std::fmt;
use std::sync::Arc;

use cluster::{Health, ObjectId};
use helm::hook::{HookEvent, HookPhase};
use helm::release::Status;

/// Told of every step of an action. It is called between requests and should not take long.
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
    /// A definition of `crds/` was made or replaced.
    Defined {
        /// The definition.
        id: &'a ObjectId,
    },
    /// A hook begins or has ended.
    Hook {
        /// The event it runs at.
        event: &'a HookEvent,
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
        /// How far it is.
        phase: &'a HookPhase,
    },
    /// What a hook printed, where its policy or its failure asks for that.
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
        /// True when it was not there before.
        created: bool,
    },
    /// An object was deleted; it may still be going.
    Deleted {
        /// The object.
        id: &'a ObjectId,
    },
    /// An object that would be removed stays.
    Kept {
        /// The object.
        id: &'a ObjectId,
    },
    /// An awaited object is now like this.
    Awaiting {
        /// The object.
        id: &'a ObjectId,
        /// How it is doing.
        health: &'a Health,
    },
    /// The action failed, and what it changed is being undone.
    Undoing {
        /// Why it failed.
        because: &'a str,
    },
}

/// In words: `applied ConfigMap shop/a`.
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
