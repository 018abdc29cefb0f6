//! Why a pass failed.

use std::any::Any;
use std::time::Duration;

use composition::Blocked;
use helm_client::release::UnservedType;

use super::{apply, observe};

/// A pass failed in one of its steps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the composition")]
    Read(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("could not observe the composition")]
    Observe(#[source] Box<observe::Error>),
    #[error("the composition cannot be acted upon")]
    Plan(#[source] Blocked),
    #[error("could not reconcile the composition")]
    Apply(#[source] apply::Error),
    #[error("could not write the status of the composition")]
    Report(#[source] cluster::Error),
    #[error(
        "the pass was cut off after {} minutes of work; the next one continues from the current state",
        .0.as_secs() / 60
    )]
    Overdue(Duration),
    #[error("a bug in the controller ended the pass: {0}. Please report it, with the log of the controller")]
    Panicked(String),
}

impl Error {
    /// An error with the message of a panic.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Panicked(text.unwrap_or("it does not say what happened").to_owned())
    }

    /// True when the same attempt can succeed later although nobody changed anything.
    pub(crate) fn is_transient(&self) -> bool {
        if self.is_refusal() {
            // Permissions and policies reach the API server's cache a moment after they are stored, including those
            // that core-provider has just given to a starting controller. And when a namespace is being deleted, its
            // roles go before its compositions.
            return true;
        }
        match self {
            // The admin may widen the bound, which is stored in another object.
            Self::Plan(Blocked::Outside(_)) | Self::Overdue(_) | Self::Panicked(_) => true,
            Self::Read(_) | Self::Plan(_) => false,
            Self::Observe(error) => error.is_transient(),
            Self::Apply(error) => error.is_transient(),
            Self::Report(error) => error.is_transient(),
        }
    }

    /// The types that have to be served before the same attempt can succeed; nothing was written.
    pub(super) fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Observe(error) => error.unserved(),
            Self::Apply(error) => error.unserved(),
            Self::Read(_) | Self::Plan(_) | Self::Report(_) | Self::Overdue(_) | Self::Panicked(_) => None,
        }
    }

    /// True when the API server refused a request for lack of permission, or because of a policy.
    fn is_refusal(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let refused = error.downcast_ref::<cluster::Error>();
            if refused.is_some_and(cluster::Error::is_forbidden) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}
