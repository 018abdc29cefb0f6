//! What passes and clusters need from the process.

use std::sync::Arc;
use std::time::Duration;

use charts::Charts;
use cluster::kubeconfig::Limits;
use cluster::{Cluster, Pulse};
use runtime::{Recorder, Telemetry};
use tokio::sync::mpsc::UnboundedSender;

use crate::args::Mode;
use crate::chart::ProcessChart;
use crate::claims::Claims;
use crate::cluster_id::ClusterId;
use crate::metrics::OperatorMetrics;
use crate::release_key::Keys;

/// What all clusters share.
pub(crate) struct Context {
    pub(crate) engine: Engine,
    /// The watch cluster.
    pub(crate) home: Cluster,
    /// When a watch on it last received something.
    pub(crate) home_pulse: Pulse,
    /// Publishes events about deployments and clusters, on the watch cluster.
    pub(crate) recorder: Recorder,
    pub(crate) instance: String,
    pub(crate) telemetry: Telemetry,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) mode: Mode,
    /// True if this process's own client also serves the watch cluster as a member.
    pub(crate) serves_self: bool,
    /// The namespace with the Secrets of clusters.
    pub(crate) discovery_namespace: String,
    pub(crate) kubeconfig_key: String,
    /// The namespaces whose objects are reconciled; all if empty.
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
    /// Decides which cluster serves tenants that name none.
    pub(crate) claims: Claims,
    /// Sends the ids of clusters that have come or gone.
    pub(crate) news: UnboundedSender<ClusterId>,
}

impl Context {
    /// True if objects in that namespace are reconciled.
    pub(crate) fn serves(&self, namespace: &str) -> bool {
        let served = &self.served_namespaces;
        served.is_empty() || served.iter().any(|name| name == namespace)
    }
}

/// A context shared by all tasks.
pub(crate) type Shared = Arc<Context>;

/// What passes on all clusters need from the process.
pub(crate) struct Engine {
    pub(crate) chart: ProcessChart,
    pub(crate) charts: Charts,
    /// Authenticates the records of releases.
    pub(crate) keys: Keys,
    /// Distinguishes this process from others that act on releases.
    pub(crate) identity: String,
    pub(crate) max_history: i64,
    pub(crate) install_crds: bool,
    /// Namespaces, besides its own, in which a release may have objects.
    pub(crate) open_namespaces: Vec<String>,
}

/// For tests: a process that reconciles deployments, with this cluster as its watch cluster, and its metrics.
#[cfg(test)]
pub(crate) fn for_tests(home: Cluster) -> (Shared, runtime::Metrics) {
    use charts::source;
    use helm::origin::ChartSpec;

    let metrics = runtime::Metrics::new().unwrap();
    let second = Duration::from_secs(1);
    let context = Context {
        engine: Engine {
            chart: ProcessChart {
                repo: "https://charts.example".to_owned(),
                name: "shop".to_owned(),
                version: "1.0.0".to_owned(),
                digest: String::new(),
                plain_http: false,
                access: ChartSpec::default(),
            },
            charts: Charts::new(home.clone(), source::Limits::default()),
            keys: Keys::for_tests(),
            identity: "test".to_owned(),
            max_history: 10,
            install_crds: true,
            open_namespaces: Vec::new(),
        },
        recorder: Recorder::new(home.clone(), api::mesh::events::OPERATOR, "test"),
        home,
        home_pulse: Pulse::default(),
        instance: "test".to_owned(),
        telemetry: Telemetry::new(&metrics, "multicluster", "test").unwrap(),
        metrics: OperatorMetrics::new(&metrics).unwrap(),
        mode: Mode::Deployment,
        serves_self: true,
        discovery_namespace: "clusters".to_owned(),
        kubeconfig_key: "kubeconfig".to_owned(),
        served_namespaces: Vec::new(),
        allow_chart_skip: false,
        workers: 1,
        limits: Limits::default(),
        check_interval: second * 60,
        resync_interval: second * 600,
        probe_interval: second * 30,
        grace: second * 4,
        min_retry: second,
        max_retry: second * 60,
        claims: Claims::default(),
        news: tokio::sync::mpsc::unbounded_channel().0,
    };
    (Arc::new(context), metrics)
}
