//! Why a definition could not be observed.

use api::annotations;
use crdgen::conversion;
use helm_client::rendering::Busy;

use crate::bound;
use crate::bundle;
use crate::definition::gate::LOOK_TIMEOUT;

/// A definition could not be observed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no slot was free to check compositions against the chart's schema")]
    Busy(#[source] Busy),
    #[error(
        "a page of compositions could not be checked against the chart's schema within {}s: make the schema simpler",
        LOOK_TIMEOUT.as_secs()
    )]
    TooLong,
    #[error("could not fetch the chart")]
    Chart(#[source] charts::Error),
    #[error("the chart cannot become a type")]
    Names(#[from] crdgen::names::Error),
    #[error("the chart's version cannot become an API version")]
    Version(#[from] crdgen::version::Error),
    #[error("chart {chart} has no values.schema.json: add one to the chart, the type is generated from it")]
    NoSchema { chart: String },
    #[error("the type cannot be made from the chart")]
    Schema(#[from] composition::schema::Error),
    #[error("the type cannot get another version")]
    AnotherVersion(#[from] crdgen::crd::Error),
    #[error("the chart's values cannot be converted between its versions")]
    Conversion(#[from] conversion::Error),
    #[error(
        "objects of the type have to be converted, and the API server cannot reach us for that: give core-provider a \
         CORE_PROVIDER_WEBHOOK_PORT"
    )]
    NoWebhook,
    #[error(
        "annotation {} of the definition is {said:?}: set it to a number of replicas from 1 to {}",
        annotations::CONTROLLER_REPLICAS,
        api::MOST_SHARDS
    )]
    Replicas { said: String },
    #[error("could not make the controller's objects")]
    Bundle(#[from] bundle::Error),
    #[error("could not determine the most that the controller may be granted")]
    Bound(#[from] bound::Error),
    #[error("could not look at the cluster")]
    Cluster(#[from] cluster::Error),
}

impl Error {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Chart(error) => error.is_transient(),
            Self::Bound(error) => error.is_transient(),
            Self::Cluster(error) => error.is_transient(),
            Self::Busy(_) | Self::TooLong => true,
            Self::Names(_)
            | Self::Version(_)
            | Self::NoSchema { .. }
            | Self::Schema(_)
            | Self::AnotherVersion(_)
            | Self::Conversion(_)
            | Self::NoWebhook
            | Self::Replicas { .. }
            | Self::Bundle(_) => false,
        }
    }

    /// True when a Secret of another namespace does not allow its use.
    pub(crate) fn is_without_consent(&self) -> bool {
        matches!(self, Self::Chart(error) if error.is_without_consent())
    }
}
