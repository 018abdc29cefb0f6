//! What passes need from the process.

use std::sync::Arc;
use std::time::Duration;

use api::CompositionDefinition;
use charts::Charts;
use cluster::Cluster;
use kube::runtime::reflector::ObjectRef;
use runtime::{Backoff, Recorder, Telemetry};

use super::placed::Placed;
use super::relocation::Waits;
use super::resolution::Looks;
use super::settled::Settled;
use super::turns::Turns;
use crate::backlog::Backlog;
use crate::bound::Scans;
use crate::bundle::Platform;
use crate::labelling::Labelling;
use crate::namespaces::Namespaces;
use crate::templates::Templates;
use crate::webhook::Registration;

/// Our field manager.
pub(crate) const FIELD_MANAGER: &str = "core-provider";

/// What passes need from the process.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Arc<Charts>,
    /// The address of our webhooks and their CA bundle.
    pub(crate) webhooks: Registration,
    /// Leaves the labels of new compositions to the API server's policy; none if it sets them in all versions, because
    /// webhooks are disabled.
    pub(crate) labelling: Option<Labelling>,
    pub(crate) templates: Templates,
    pub(crate) platform: Platform,
    pub(crate) recorder: Recorder,
    pub(crate) telemetry: Telemetry,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) looks: Looks,
    pub(crate) turns: Turns,
    pub(crate) waits: Waits,
    pub(crate) settled: Arc<Settled>,
    pub(crate) placed: Placed,
    /// How often a definition is reconciled in full although nothing has changed.
    pub(crate) sync: Duration,
    pub(crate) scans: Scans,
    pub(crate) namespaces: Namespaces,
    pub(crate) backoff: Backoff<ObjectRef<CompositionDefinition>>,
    /// How often a definition in its desired state is checked again.
    pub(crate) poll_interval: Duration,
}
