//! Why a pass failed.

use super::{apply, observe, plan};

/// A pass failed in one of its steps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the definition")]
    Read(#[source] cluster::Error),
    #[error("could not observe the definition")]
    Observe(#[source] observe::Error),
    #[error("the definition cannot be carried out")]
    Plan(#[source] plan::Blocked),
    #[error("could not reconcile the definition")]
    Apply(#[source] apply::Error),
    #[error("could not report on the definition")]
    Report(#[source] cluster::Error),
}

impl Error {
    /// True when compositions, which are not watched, have to be corrected first.
    pub(crate) fn waits_for_compositions(&self) -> bool {
        matches!(
            self,
            Self::Plan(plan::Blocked::Incompatible { .. } | plan::Blocked::AnotherKind { .. })
        )
    }

    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Observe(error) => error.is_transient(),
            Self::Plan(_) => false,
            Self::Apply(error) => error.is_transient(),
            Self::Read(error) | Self::Report(error) => error.is_transient(),
        }
    }
}
