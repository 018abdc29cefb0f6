//! What passes and clusters need of the process.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Cluster, Pulse};
use runtime::{Recorder, Telemetry};
use tokio::sync::mpsc::UnboundedSender;

use crate::args::Mode;
use crate::claims::Claims;
use crate::engine::Engine;
use crate::figures::Figures;
use crate::registry::{ClusterId, Limits};

/// What is the same for all clusters.
pub(crate) struct Context {
    pub(crate) engine: Engine,
    /// The watch cluster.
    pub(crate) home: Cluster,
    /// When a watch of it said something last.
    pub(crate) home_pulse: Pulse,
    /// Tells of deployments and clusters, at home.
    pub(crate) recorder: Recorder,
    pub(crate) instance: String,
    pub(crate) telemetry: Telemetry,
    pub(crate) figures: Figures,
    pub(crate) mode: Mode,
    /// True when the watch cluster is served by the client of this process.
    pub(crate) serves_self: bool,
    /// The namespace with the Secrets of clusters.
    pub(crate) discovery_namespace: String,
    pub(crate) kubeconfig_key: String,
    /// The namespaces whose objects are served; all when there are none.
    pub(crate) served_namespaces: Vec<String>,
    pub(crate) allow_chart_skip: bool,
    pub(crate) workers: u16,
    pub(crate) limits: Limits,
    pub(crate) check_interval: Duration,
    pub(crate) resync_interval: Duration,
    pub(crate) probe_interval: Duration,
    pub(crate) grace: Duration,
    pub(crate) min_retry: Duration,
    pub(crate) max_retry: Duration,
    /// Which cluster serves tenants that name none.
    pub(crate) claims: Claims,
    /// Told which cluster has come or gone.
    pub(crate) news: UnboundedSender<ClusterId>,
}

impl Context {
    /// True when objects of that namespace are served.
    pub(crate) fn serves(&self, namespace: &str) -> bool {
        let served = &self.served_namespaces;
        served.is_empty() || served.iter().any(|name| name == namespace)
    }
}

/// A context shared by all tasks.
pub(crate) type Shared = Arc<Context>;
