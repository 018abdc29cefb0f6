//! The actions on a release, and the record statuses that show them.

use std::fmt;

use helm::hook::HookEvent;
use helm::release::Status;

/// An action that changes a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// From no release to a deployed revision.
    Install,
    /// From a deployed revision to one of new inputs.
    Upgrade,
    /// From a deployed revision to one with the content of an earlier one.
    Rollback,
    /// The release is removed.
    Uninstall,
}

impl Action {
    /// The action that is in progress, or was interrupted, when a record has this status.
    pub fn underway(status: &Status) -> Option<Self> {
        match status {
            Status::PendingInstall => Some(Self::Install),
            Status::PendingUpgrade => Some(Self::Upgrade),
            Status::PendingRollback => Some(Self::Rollback),
            Status::Uninstalling => Some(Self::Uninstall),
            Status::Unknown
            | Status::Deployed
            | Status::Uninstalled
            | Status::Superseded
            | Status::Failed
            | Status::Other(_) => None,
        }
    }

    /// The status of the record while the action is in progress.
    pub(super) fn pending(self) -> Status {
        match self {
            Self::Install => Status::PendingInstall,
            Self::Upgrade => Status::PendingUpgrade,
            Self::Rollback => Status::PendingRollback,
            Self::Uninstall => Status::Uninstalling,
        }
    }

    /// The events whose hooks run before and after the action.
    pub(super) fn events(self) -> (HookEvent, HookEvent) {
        match self {
            Self::Install => (HookEvent::PreInstall, HookEvent::PostInstall),
            Self::Upgrade => (HookEvent::PreUpgrade, HookEvent::PostUpgrade),
            Self::Rollback => (HookEvent::PreRollback, HookEvent::PostRollback),
            Self::Uninstall => (HookEvent::PreDelete, HookEvent::PostDelete),
        }
    }

    /// The action as Helm's error for an object of another owner names it.
    pub(super) fn in_ownership_error(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade | Self::Rollback | Self::Uninstall => "update",
        }
    }

    /// How Helm begins the description of a record of a failed action.
    pub(super) fn failed_in_words_of_helm(self) -> &'static str {
        match self {
            Self::Install => "Release",
            Self::Upgrade => "Upgrade",
            Self::Rollback => "Rollback",
            Self::Uninstall => "Uninstall",
        }
    }
}

/// As a verb: `install`, `roll back`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "roll back",
            Self::Uninstall => "uninstall",
        })
    }
}
