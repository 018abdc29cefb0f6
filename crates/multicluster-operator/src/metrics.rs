//! Metrics of clusters and of the objects on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::mesh::Phase;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};
use runtime::Metrics;

use crate::key::{Key, Kind};
use crate::registry::state::ClusterState;

/// The metrics of all clusters; cheap to clone.
#[derive(Clone)]
pub(crate) struct OperatorMetrics {
    states: IntGaugeVec,
    passes: HistogramVec,
    failures: IntCounterVec,
    phases: IntGaugeVec,
    /// The last known phase of each object.
    placed: Arc<Mutex<HashMap<(String, Key), Phase>>>,
}

impl OperatorMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a name is taken.
    pub(crate) fn new(registry: &Metrics) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.005, 2.0, 16)?;
        let metrics = Self {
            states: IntGaugeVec::new(
                Opts::new(
                    "multicluster_cluster_state",
                    "1 for the current state of a cluster",
                ),
                &["cluster", "state"],
            )?,
            passes: HistogramVec::new(
                HistogramOpts::new(
                    "multicluster_pass_duration_seconds",
                    "How long a pass took, by cluster",
                )
                .buckets(buckets),
                &["cluster", "kind"],
            )?,
            failures: IntCounterVec::new(
                Opts::new("multicluster_pass_failures_total", "Passes that failed"),
                &["cluster", "kind"],
            )?,
            phases: IntGaugeVec::new(
                Opts::new("multicluster_objects", "Objects in each phase"),
                &["cluster", "kind", "phase"],
            )?,
            placed: Arc::default(),
        };
        registry.register(metrics.states.clone())?;
        registry.register(metrics.passes.clone())?;
        registry.register(metrics.failures.clone())?;
        registry.register(metrics.phases.clone())?;
        Ok(metrics)
    }

    /// Sets the state of a cluster; none if it is no longer known.
    pub(crate) fn state(&self, cluster: &str, state: Option<ClusterState>) {
        for each in ClusterState::ALL {
            let labels = [cluster, each.as_str()];
            match state {
                Some(state) => self.states.with_label_values(&labels).set((state == each).into()),
                None => drop(self.states.remove_label_values(&labels)),
            }
        }
    }

    /// Records the duration of a pass.
    pub(crate) fn pass(&self, cluster: &str, kind: &str, took: Duration, succeeded: bool) {
        self.passes
            .with_label_values(&[cluster, kind])
            .observe(took.as_secs_f64());
        if !succeeded {
            self.failures.with_label_values(&[cluster, kind]).inc();
        }
    }

    /// Sets the phase of an object on a cluster; none if it is gone.
    pub(crate) fn at(&self, cluster: &str, key: &Key, phase: Option<Phase>) {
        let gauge = |phase: Phase| {
            let phase = phase.to_string();
            self.phases
                .with_label_values(&[cluster, key.kind.as_str(), phase.as_str()])
        };
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (cluster.to_owned(), key.clone());
        let before = match phase {
            Some(phase) => placed.insert(place, phase),
            None => placed.remove(&place),
        };
        if before != phase {
            if let Some(before) = before {
                gauge(before).dec();
            }
            if let Some(phase) = phase {
                gauge(phase).inc();
            }
        }
    }

    /// Drops the phases of all objects on a cluster.
    pub(crate) fn vacate(&self, cluster: &str) {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        placed.retain(|(known, _), _| known != cluster);
        for kind in [Kind::Tenant, Kind::Deployment].map(Kind::as_str) {
            for phase in Phase::ALL {
                let labels = [cluster, kind, &phase.to_string()];
                drop(self.phases.remove_label_values(&labels));
            }
        }
    }

    /// Drops all metrics about a cluster that is no longer served.
    pub(crate) fn forget(&self, cluster: &str) {
        self.vacate(cluster);
        for kind in [Kind::Tenant, Kind::Deployment].map(Kind::as_str) {
            drop(self.passes.remove_label_values(&[cluster, kind]));
            drop(self.failures.remove_label_values(&[cluster, kind]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Key {
        Key {
            kind: Kind::Tenant,
            namespace: "teams".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn an_object_counts_in_its_last_phase_until_it_or_its_cluster_is_gone() {
        let registry = Metrics::new().unwrap();
        let metrics = OperatorMetrics::new(&registry).unwrap();
        let told = |series: &str, number: &str| {
            let text = registry.text().unwrap();
            let line = format!("multicluster_{series} {number}");
            assert!(text.lines().any(|told| told == line), "{line}\n{text}");
        };
        for phase in [Phase::Pending, Phase::Ready, Phase::Ready] {
            metrics.at("edge", &tenant("acme"), Some(phase));
        }
        metrics.at("edge", &tenant("beta"), Some(Phase::Error));
        told(r#"objects{cluster="edge",kind="Tenant",phase="Pending"}"#, "0");
        told(r#"objects{cluster="edge",kind="Tenant",phase="Ready"}"#, "1");
        told(r#"objects{cluster="edge",kind="Tenant",phase="Error"}"#, "1");
        metrics.at("edge", &tenant("beta"), None);
        told(r#"objects{cluster="edge",kind="Tenant",phase="Error"}"#, "0");

        metrics.pass("edge", "Tenant", Duration::from_secs(1), false);
        told(r#"pass_failures_total{cluster="edge",kind="Tenant"}"#, "1");
        metrics.state("edge", Some(ClusterState::Connecting));
        metrics.state("edge", Some(ClusterState::Engaged));
        told(r#"cluster_state{cluster="edge",state="Engaged"}"#, "1");
        told(r#"cluster_state{cluster="edge",state="Connecting"}"#, "0");
        metrics.forget("edge");
        metrics.state("edge", None);
        let text = registry.text().unwrap();
        assert!(!text.contains("cluster=\"edge\""), "{text}");
        // An object that was dropped with its cluster is not subtracted a second time.
        metrics.at("edge", &tenant("acme"), None);
        let text = registry.text().unwrap();
        assert!(!text.lines().any(|line| line.ends_with(" -1")), "{text}");
    }
}
