//! Metrics of the parts of a pass, with the names of the contract: `composition_helm_install_duration_seconds`,
//! `_total` and `_errors`, and the same for the other parts.

use std::time::Instant;

use prometheus::{Histogram, HistogramOpts, IntCounter};
use runtime::{Metrics, spans};

/// A part of a pass that is counted and timed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    ChartInspector,
    RbacGeneration,
    RbacApply,
    HelmInstall,
    HelmUpgrade,
    HelmUninstall,
}

impl Part {
    /// In declaration order, because [`PassMetrics`] is indexed by it.
    const ALL: [Self; 6] = [
        Self::ChartInspector,
        Self::RbacGeneration,
        Self::RbacApply,
        Self::HelmInstall,
        Self::HelmUpgrade,
        Self::HelmUninstall,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ChartInspector => "chart_inspector",
            Self::RbacGeneration => "rbac_generation",
            Self::RbacApply => "rbac_apply",
            Self::HelmInstall => "helm_install",
            Self::HelmUpgrade => "helm_upgrade",
            Self::HelmUninstall => "helm_uninstall",
        }
    }
}

/// The metrics of all parts of a pass.
pub(crate) struct PassMetrics(Vec<PartMetrics>);

struct PartMetrics {
    seconds: Histogram,
    total: IntCounter,
    errors: IntCounter,
}

impl PassMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let parts = Part::ALL.map(|part| PartMetrics::new(metrics, part.name()));
        Ok(Self(parts.into_iter().collect::<Result<_, _>>()?))
    }

    /// Counts and times one run of a part, in a span of its own within the pass's span.
    pub(crate) async fn time<T, E>(
        &self,
        part: Part,
        go: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let outcome = spans::within(spans::part(part.name()), go).await;
        self.note(part, begun, outcome.is_ok());
        outcome
    }

    /// The same for a part that can neither fail nor wait.
    pub(crate) fn timed<T>(&self, part: Part, go: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = go();
        self.note(part, begun, true);
        outcome
    }

    fn note(&self, part: Part, begun: Instant, succeeded: bool) {
        let Some(metrics) = self.0.get(part as usize) else {
            return;
        };
        metrics.seconds.observe(begun.elapsed().as_secs_f64());
        metrics.total.inc();
        if !succeeded {
            metrics.errors.inc();
        }
    }
}

/// Counts passes that did not finish.
pub(crate) struct CutOff {
    overdue: IntCounter,
    panicked: IntCounter,
}

impl CutOff {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let new = Self {
            overdue: IntCounter::new(
                "composition_pass_overdue_total",
                "Passes cut off at their deadline",
            )?,
            panicked: IntCounter::new("composition_pass_panics_total", "Passes ended by a panic")?,
        };
        metrics.register(new.overdue.clone())?;
        metrics.register(new.panicked.clone())?;
        Ok(new)
    }

    /// Counts a pass that reached its deadline.
    pub(crate) fn overdue(&self) {
        self.overdue.inc();
    }

    /// Counts a pass that panicked.
    pub(crate) fn panicked(&self) {
        self.panicked.inc();
    }
}

impl PartMetrics {
    fn new(metrics: &Metrics, part: &str) -> Result<Self, prometheus::Error> {
        let name = |what: &str| format!("composition_{part}_{what}");
        // From the computation of permissions (fast) to an install that waits for hooks (slow).
        let buckets = prometheus::exponential_buckets(0.000_5, 4.0, 11)?;
        let options = HistogramOpts::new(name("duration_seconds"), format!("How long {part} took"));
        let new = Self {
            seconds: Histogram::with_opts(options.buckets(buckets))?,
            total: IntCounter::new(name("total"), format!("How often {part} was tried"))?,
            errors: IntCounter::new(name("errors"), format!("How often {part} failed"))?,
        };
        metrics.register(new.seconds.clone())?;
        metrics.register(new.total.clone())?;
        metrics.register(new.errors.clone())?;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use runtime::Telemetry;

    use super::*;

    #[tokio::test]
    async fn each_part_is_counted_under_its_own_name() {
        let metrics = Metrics::new().unwrap();
        let parts = PassMetrics::new(&metrics).unwrap();
        for part in Part::ALL {
            let _ = parts.time(part, async { Err::<(), _>("no") }).await;
        }
        parts.timed(Part::HelmUninstall, || ());
        let text = metrics.text().unwrap();
        for part in Part::ALL {
            let name = part.name();
            let line = format!("composition_{name}_errors 1");
            assert!(text.contains(&line), "{line} is missing in {text}");
        }
        assert!(text.contains("composition_helm_uninstall_total 2"), "{text}");
        assert!(
            text.contains("composition_helm_uninstall_duration_seconds_count 2"),
            "{text}"
        );
    }

    /// Metrics that only core-provider has are checked where they are registered.
    const FAMILIES: [&str; 8] = [
        "composition_",
        "controller_",
        "leader_election_",
        "process_",
        "provider_runtime_",
        "rest_client_",
        "unstructured_runtime_",
        "workqueue_",
    ];

    #[test]
    fn the_dashboard_names_only_metrics_that_exist() {
        const DASHBOARD: &str = include_str!("../../charts/core-provider/dashboards/compositions.json");
        let metrics = Metrics::new().unwrap();
        let _parts = PassMetrics::new(&metrics).unwrap();
        let _shards = crate::shards::ShardMetrics::new(&metrics).unwrap();
        for (prefix, queue) in [("unstructured_runtime", "a"), ("provider_runtime", "b")] {
            let telemetry = Telemetry::new(&metrics, prefix, queue).unwrap();
            telemetry.tell_depth(|| 0).unwrap();
        }
        let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap());
        for target in targets {
            let asked = target["expr"].as_str().unwrap();
            let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let names: Vec<_> = asked
                .split(|letter| !is_of_name(letter))
                .filter(|word| FAMILIES.iter().any(|family| word.starts_with(family)))
                .collect();
            assert!(!names.is_empty() || asked.contains("core_provider_"), "{asked}");
            for name in names {
                assert!(metrics.has(name), "{name} is not exported: {asked}");
            }
        }
    }
}
