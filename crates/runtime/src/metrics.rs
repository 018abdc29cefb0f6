//! Figures for Prometheus: the process, the passes, who leads.

use std::time::{Duration, Instant};

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

/// The process's registry, with the figures that every controller has; cheap to clone.
///
/// The names are those of the contract: `controller_reconcile_total{kind,namespace,result}`,
/// `controller_reconcile_duration_seconds{kind}`, `leader_election_master_status{name}`, and the usual `process_*`.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    passes: IntCounterVec,
    durations: HistogramVec,
    leading: IntGaugeVec,
}

impl Metrics {
    /// A registry with the common figures.
    ///
    /// # Errors
    ///
    /// When `prometheus` refuses a name, which it does not for those here.
    pub fn new() -> Result<Self, prometheus::Error> {
        // From a read that finds all in place to an install that waits for hooks.
        let buckets = prometheus::exponential_buckets(0.005, 2.5, 12)?;
        let metrics = Self {
            registry: Registry::new(),
            passes: IntCounterVec::new(
                Opts::new(
                    "controller_reconcile_total",
                    "Passes over objects, by how they ended",
                ),
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
        };
        metrics.register(ProcessCollector::for_self())?;
        metrics.register(metrics.passes.clone())?;
        metrics.register(metrics.durations.clone())?;
        metrics.register(metrics.leading.clone())?;
        Ok(metrics)
    }

    /// Adds a program's own figures.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn register(&self, collector: impl Collector + 'static) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(collector))
    }

    /// Counts and times one pass over an object.
    pub async fn pass<T, E>(
        &self,
        kind: &str,
        namespace: &str,
        pass: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let start = Instant::now();
        let outcome = pass.await;
        self.count(kind, namespace, outcome.is_ok(), start.elapsed());
        outcome
    }

    /// Says whether this process holds a lease.
    pub fn set_leading(&self, lease: &str, leading: bool) {
        self.leading.with_label_values(&[lease]).set(leading.into());
    }

    /// All figures in Prometheus' text format.
    ///
    /// # Errors
    ///
    /// When a figure cannot be written as text.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    fn count(&self, kind: &str, namespace: &str, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        self.passes.with_label_values(&[kind, namespace, result]).inc();
        self.durations
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn passes_are_counted_by_how_they_ended() {
        let metrics = Metrics::new().unwrap();
        for outcome in [Ok(()), Err("no"), Ok(())] {
            let _ = metrics.pass("Shop", "default", async { outcome }).await;
        }
        metrics.set_leading("leader", true);
        let text = metrics.text().unwrap();
        for line in [
            r#"controller_reconcile_total{kind="Shop",namespace="default",result="success"} 2"#,
            r#"controller_reconcile_total{kind="Shop",namespace="default",result="error"} 1"#,
            r#"controller_reconcile_duration_seconds_count{kind="Shop"} 3"#,
            r#"leader_election_master_status{name="leader"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        assert!(text.contains("process_resident_memory_bytes"), "{text}");
    }
}
