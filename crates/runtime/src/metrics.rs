//! The metrics of a process: recorded once, read by Prometheus and pushed by [`crate::otlp`].

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::process_metrics::ProcessCollector;

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The process has as many as it may have.
    Process,
    /// The caller's address has as many as it may have.
    Address,
}

impl Refused {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Address => "address",
        }
    }
}

/// Why we closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The TLS handshake was not complete in time, or failed.
    Handshake,
    /// No request came in time.
    Silent,
    /// No further request came in time.
    Idle,
    /// The client did not read the answer in time.
    Stalled,
    /// All connections were taken, and this one had been idle for longest.
    Evicted,
    /// The process ends, and the caller did not close it.
    Ending,
}

impl Closed {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Silent => "silent",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Evicted => "evicted",
            Self::Ending => "ending",
        }
    }
}

/// The registry of the process, with the metrics that every controller has; cheap to clone.
///
/// The names are those of the contract: `controller_reconcile_total{kind,namespace,result}`,
/// `controller_reconcile_duration_seconds{kind}`, `rest_client_requests_total{code,host,method}`,
/// `leader_election_master_status{name}`, and the usual `process_*`. Ours are `connections_refused_total{reason}` and
/// `connections_closed_total{reason}`.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    /// The name of every metric in Prometheus, with its name everywhere else.
    names: Arc<RwLock<BTreeMap<String, String>>>,
    since: SystemTime,
    requests: IntCounterVec,
    passes: IntCounterVec,
    durations: HistogramVec,
    leading: IntGaugeVec,
    connections_refused: IntCounterVec,
    connections_closed: IntCounterVec,
}

impl Metrics {
    /// A registry with the common metrics.
    ///
    /// # Errors
    ///
    /// If `prometheus` refuses a name, which it does not for these.
    pub fn new() -> Result<Self, prometheus::Error> {
        // From a read that finds everything in place to an install that waits for hooks.
        let buckets = prometheus::exponential_buckets(0.005, 2.5, 12)?;
        let metrics = Self {
            registry: Registry::new(),
            names: Arc::default(),
            since: SystemTime::now(),
            requests: IntCounterVec::new(
                Opts::new(
                    "rest_client_requests_total",
                    "Requests to the API server, by status code",
                ),
                &["code", "host", "method"],
            )?,
            passes: IntCounterVec::new(
                Opts::new("controller_reconcile_total", "Passes over objects, by result"),
                &["kind", "namespace", "result"],
            )?,
            durations: HistogramVec::new(
                HistogramOpts::new("controller_reconcile_duration_seconds", "How long a pass took")
                    .buckets(buckets),
                &["kind"],
            )?,
            leading: IntGaugeVec::new(
                Opts::new(
                    "leader_election_master_status",
                    "1 while this process holds the lease",
                ),
                &["name"],
            )?,
            connections_refused: IntCounterVec::new(
                Opts::new(
                    "connections_refused_total",
                    "Connections that were refused, by the limit that was reached",
                ),
                &["reason"],
            )?,
            connections_closed: IntCounterVec::new(
                Opts::new(
                    "connections_closed_total",
                    "Connections that were closed by the server, by reason",
                ),
                &["reason"],
            )?,
        };
        metrics.register(ProcessCollector::new()?)?;
        metrics.register(metrics.requests.clone())?;
        metrics.register(metrics.passes.clone())?;
        metrics.register(metrics.durations.clone())?;
        metrics.register(metrics.leading.clone())?;
        metrics.register(metrics.connections_refused.clone())?;
        metrics.register(metrics.connections_closed.clone())?;
        Ok(metrics)
    }

    /// Registers a program's own metrics, which have the same name everywhere.
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), prometheus::Error> {
        let names: Vec<_> = collector.desc().iter().map(|desc| desc.fq_name.clone()).collect();
        self.registry.register(Box::new(collector))?;
        let mut known = self.names.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(names.into_iter().map(|name| (name.clone(), name)));
        Ok(())
    }

    /// Registers a metric that is called `name`, with dots, everywhere but in Prometheus: see [`prometheus_name`] and
    /// [`prometheus_counter_name`].
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn register_as(
        &self,
        name: &str,
        collector: impl Collector + 'static,
    ) -> Result<(), prometheus::Error> {
        let prometheus: Vec<_> = collector.desc().iter().map(|desc| desc.fq_name.clone()).collect();
        self.register(collector)?;
        let mut known = self.names.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(prometheus.into_iter().map(|each| (each, name.to_owned())));
        Ok(())
    }

    /// True if Prometheus can find a series with this name here, once it has a value.
    pub fn has(&self, series: &str) -> bool {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let whole = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| series.strip_suffix(part));
        names.contains_key(series) || whole.is_some_and(|whole| names.contains_key(whole))
    }

    /// The name of the metric everywhere but in Prometheus.
    pub(crate) fn name_of(&self, figure: &str) -> String {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(figure).cloned().unwrap_or_else(|| figure.to_owned())
    }

    /// All metrics with their current values.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// When counting began.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// Counts an answer of the API server, or a request that got none.
    pub(crate) fn answered(&self, code: &str, host: &str, method: &str) {
        self.requests.with_label_values(&[code, host, method]).inc();
    }

    /// Counts a refused connection.
    pub(crate) fn refused(&self, reason: Refused) {
        self.connections_refused
            .with_label_values(&[reason.as_str()])
            .inc();
    }

    /// Counts a connection that we closed.
    pub(crate) fn closed(&self, reason: Closed) {
        self.connections_closed
            .with_label_values(&[reason.as_str()])
            .inc();
    }

    /// Sets whether this process holds a lease.
    pub fn set_leading(&self, lease: &str, leading: bool) {
        self.leading.with_label_values(&[lease]).set(leading.into());
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    ///
    /// If a metric cannot be written as text.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.gather())
    }

    /// Counts and times one pass over an object.
    pub(crate) fn count(&self, kind: &str, namespace: &str, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        self.passes.with_label_values(&[kind, namespace, result]).inc();
        self.durations
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
    }
}

/// A metric's name with underscores in place of dots, which Prometheus does not allow.
pub fn prometheus_name(name: &str) -> String {
    name.replace('.', "_")
}

/// The same for counters, whose names end in `_total` in Prometheus.
pub fn prometheus_counter_name(name: &str) -> String {
    let name = prometheus_name(name);
    if name.ends_with("_total") {
        name
    } else {
        name + "_total"
    }
}

/// A gauge whose value is computed when the metrics are read.
pub(crate) struct Pulled {
    gauge: Gauge,
    read: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl Pulled {
    pub(crate) fn new(
        options: Opts,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<Self, prometheus::Error> {
        Ok(Self {
            gauge: Gauge::with_opts(options)?,
            read: Box::new(read),
        })
    }
}

impl Collector for Pulled {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set((self.read)());
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_counted_by_how_they_ended_and_requests_by_their_answers() {
        let metrics = Metrics::new().unwrap();
        for succeeded in [true, false, true] {
            metrics.count("Shop", "default", succeeded, Duration::from_millis(3));
        }
        metrics.answered("409", "10.0.0.1", "PATCH");
        metrics.set_leading("leader", true);
        let text = metrics.text().unwrap();
        for line in [
            r#"controller_reconcile_total{kind="Shop",namespace="default",result="success"} 2"#,
            r#"controller_reconcile_total{kind="Shop",namespace="default",result="error"} 1"#,
            r#"controller_reconcile_duration_seconds_count{kind="Shop"} 3"#,
            r#"leader_election_master_status{name="leader"} 1"#,
            r#"rest_client_requests_total{code="409",host="10.0.0.1",method="PATCH"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }

    #[test]
    fn a_metric_is_found_by_its_series_in_prometheus() {
        let metrics = Metrics::new().unwrap();
        for series in [
            "controller_reconcile_total",
            "controller_reconcile_duration_seconds_bucket",
            "process_resident_memory_bytes",
        ] {
            assert!(metrics.has(series), "{series}");
        }
        assert!(!metrics.has("controller_reconcile") && !metrics.has("invented_total"));
    }
}
