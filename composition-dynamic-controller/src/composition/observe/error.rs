//! Why a composition could not be observed.

use composition::Ungoverned;
use composition::release_name::InvalidReleaseName;
use helm_client::release::drift::InvalidPolicy;
use helm_client::release::{self, UnservedType};

use crate::composition::held;
use crate::{inspector, release_key};

/// A composition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the composition's release has no usable name")]
    ReleaseName(#[from] InvalidReleaseName),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
    #[error(transparent)]
    Ungoverned(#[from] Ungoverned),
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error(transparent)]
    Render(#[from] inspection::Error),
    #[error("could not find out which objects the chart would touch")]
    Inspect(#[source] inspector::Error),
    #[error(
        "the chart looks up {0}, and reading it is denied although the release's role allows it: the release stays as \
         it is until the role is in force"
    )]
    Unread(String),
    #[error(
        "waiting for {told}, not served by the API server: nothing of the release is written until it is"
    )]
    Unserved {
        /// The types as text, without names that have to be withheld.
        told: String,
        types: Vec<UnservedType>,
    },
    #[error("could not answer what the chart looks up")]
    LookedUpUnserved {
        /// The types that are not served.
        types: Vec<UnservedType>,
        source: inspection::Error,
    },
    #[error(transparent)]
    Held(#[from] held::Error),
    #[error("could not look at the release")]
    Release(#[source] release::Error),
    #[error("could not tell which records of the release are the controller's own")]
    ReleaseKey(#[from] release_key::Error),
    #[error(transparent)]
    Granted(#[from] inspection::GrantsError),
    #[error("annotation krateo.io/drift of the composition cannot be read")]
    DriftPolicy(#[source] InvalidPolicy),
}

impl Error {
    /// The types that the composition waits for.
    pub(crate) fn unserved(&self) -> Option<&[UnservedType]> {
        match self {
            Self::Unserved { types, .. } | Self::LookedUpUnserved { types, .. } => Some(types),
            _ => None,
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_transient(),
            Self::Chart(error) => error.is_transient(),
            Self::Render(error) | Self::LookedUpUnserved { source: error, .. } => error.is_transient(),
            Self::Inspect(error) => error.is_transient(),
            Self::Release(error) => error.is_transient(),
            Self::Held(error) => error.is_transient(),
            Self::ReleaseKey(error) => error.is_transient(),
            Self::Granted(error) => error.is_transient(),
            // The definition may be applied or become ready a moment later; a role may be restored.
            Self::Ungoverned(Ungoverned::ByNone { .. }) | Self::Unread(_) => true,
            // A watch requeues the composition when they are served.
            Self::Unserved { .. }
            | Self::ReleaseName(_)
            | Self::DriftPolicy(_)
            | Self::Ungoverned(Ungoverned::BySeveral { .. } | Ungoverned::ByForeign { .. }) => false,
        }
    }
}
