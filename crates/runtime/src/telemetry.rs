//! The figures that the contract names for every controller: passes and their parts, by how long they took and whether
//! they failed.
//!
//! The contract writes them with dots (`provider_runtime.reconcile.duration_seconds`); here they are as Prometheus has
//! them, with underscores, and counts end in `_total`.

use std::sync::Arc;
use std::time::Instant;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};

use crate::Metrics;

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object is read.
    Get,
    /// What the object stands for is made reachable.
    Connect,
    /// What there is of it is looked at.
    Observe,
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is removed.
    Delete,
    /// Our finalizer is put on the object.
    AddFinalizer,
    /// It is taken off.
    RemoveFinalizer,
    /// The status is written.
    UpdateStatus,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Get,
        Self::Connect,
        Self::Observe,
        Self::Create,
        Self::Update,
        Self::Delete,
        Self::AddFinalizer,
        Self::RemoveFinalizer,
        Self::UpdateStatus,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Get => "reconcile_get",
            Self::Connect => "external_connect",
            Self::Observe => "external_observe",
            Self::Create => "external_create",
            Self::Update => "external_update",
            Self::Delete => "external_delete",
            Self::AddFinalizer => "finalizer_add",
            Self::RemoveFinalizer => "finalizer_remove",
            Self::UpdateStatus => "status_update",
        }
    }
}

/// When an object is looked at again after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At once.
    Immediately,
    /// After a while, with nothing wrong.
    Later,
    /// After a while, because the pass failed.
    AfterError,
    /// When something changes.
    OnChange,
}

/// The figures; cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    figures: Arc<Figures>,
}

struct Figures {
    startup: Outcomes,
    passes: Outcomes,
    durations: Histogram,
    work: Histogram,
    in_flight: IntGauge,
    requeues: IntCounter,
    immediately: IntCounter,
    later: IntCounter,
    after_error: IntCounter,
    parts: Vec<(Histogram, IntCounter)>,
}

struct Outcomes {
    success: IntCounter,
    failure: IntCounter,
}

impl Telemetry {
    /// Registers the figures under `prefix`, `provider_runtime` or `unstructured_runtime`.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub fn new(metrics: &Metrics, prefix: &str) -> Result<Self, prometheus::Error> {
        let register = Register { metrics, prefix };
        let parts = Part::ALL.map(|part| {
            let name = part.name();
            let durations = register.histogram(&format!("{name}_duration_seconds"), "How long it took")?;
            let failures = register.counter(&format!("{name}_failure_total"), "How often it failed")?;
            Ok((durations, failures))
        });
        let figures = Figures {
            startup: register.outcomes("startup", "Starts of the process")?,
            passes: register.outcomes("reconcile", "Passes")?,
            durations: register.histogram("reconcile_duration_seconds", "How long a pass took")?,
            work: register.histogram(
                "reconcile_queue_work_duration_seconds",
                "How long an object was worked on",
            )?,
            in_flight: register.gauge("reconcile_in_flight", "Passes under way")?,
            requeues: register.counter("reconcile_queue_requeues_total", "Objects to be looked at again")?,
            immediately: register.counter("reconcile_requeue_immediate_total", "Those at once")?,
            later: register.counter("reconcile_requeue_after_total", "Those after a while")?,
            after_error: register.counter("reconcile_requeue_error_total", "Those after a failed pass")?,
            parts: parts.into_iter().collect::<Result<_, prometheus::Error>>()?,
        };
        Ok(Self {
            figures: Arc::new(figures),
        })
    }

    /// The process works from now on, or could not begin to.
    pub fn started(&self, well: bool) {
        self.figures.startup.count(well);
    }

    /// Counts and times one pass, and what comes after it.
    pub async fn pass<T, E>(
        &self,
        pass: impl Future<Output = Result<T, E>>,
        again: impl Fn(&T) -> Again,
    ) -> Result<T, E> {
        let figures = &self.figures;
        let (start, _under_way) = (Instant::now(), UnderWay::begin(&figures.in_flight));
        let outcome = pass.await;
        let took = start.elapsed().as_secs_f64();
        figures.durations.observe(took);
        figures.work.observe(took);
        figures.passes.count(outcome.is_ok());
        self.requeued(outcome.as_ref().map_or(Again::AfterError, again));
        outcome
    }

    /// Times one part of a pass.
    pub async fn time<T, E>(&self, part: Part, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let start = Instant::now();
        let outcome = work.await;
        let known = Part::ALL.iter().position(|known| *known == part);
        if let Some((durations, failures)) = known.and_then(|known| self.figures.parts.get(known)) {
            durations.observe(start.elapsed().as_secs_f64());
            failures.inc_by(u64::from(outcome.is_err()));
        }
        outcome
    }

    fn requeued(&self, again: Again) {
        let figures = &self.figures;
        let counter = match again {
            Again::Immediately => &figures.immediately,
            Again::Later => &figures.later,
            Again::AfterError => &figures.after_error,
            Again::OnChange => return,
        };
        counter.inc();
        figures.requeues.inc();
    }
}

/// Counted while it lives, also when a pass is dropped half way.
struct UnderWay<'g>(&'g IntGauge);

impl<'g> UnderWay<'g> {
    fn begin(gauge: &'g IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Outcomes {
    fn count(&self, well: bool) {
        if well {
            self.success.inc();
        } else {
            self.failure.inc();
        }
    }
}

/// Makes figures of one prefix.
struct Register<'m> {
    metrics: &'m Metrics,
    prefix: &'m str,
}

impl Register<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let counter = IntCounter::new(self.named(name), help)?;
        self.metrics.register(counter.clone())?;
        Ok(counter)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        let gauge = IntGauge::new(self.named(name), help)?;
        self.metrics.register(gauge.clone())?;
        Ok(gauge)
    }

    fn histogram(&self, name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
        // From one read to an installation that waits for hooks.
        let buckets = prometheus::exponential_buckets(0.002, 2.5, 13)?;
        let options = HistogramOpts::new(self.named(name), help).buckets(buckets);
        let histogram = Histogram::with_opts(options)?;
        self.metrics.register(histogram.clone())?;
        Ok(histogram)
    }

    fn outcomes(&self, name: &str, help: &str) -> Result<Outcomes, prometheus::Error> {
        Ok(Outcomes {
            success: self.counter(
                &format!("{name}_success_total"),
                &format!("{help} that went well"),
            )?,
            failure: self.counter(&format!("{name}_failure_total"), &format!("{help} that failed"))?,
        })
    }

    fn named(&self, name: &str) -> String {
        format!("{}_{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn passes_and_their_parts_are_counted_under_the_names_of_the_contract() {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "provider_runtime").unwrap();
        telemetry.started(true);
        let observed = telemetry.time(Part::Observe, async { Err::<(), _>("no") });
        let failed = telemetry.pass(observed, |()| Again::Later).await;
        assert_eq!(failed, Err("no"));
        let written = telemetry.time(Part::UpdateStatus, async { Ok::<_, &str>(()) });
        telemetry.pass(written, |()| Again::Immediately).await.unwrap();
        let text = metrics.text().unwrap();
        for line in [
            "provider_runtime_startup_success_total 1",
            "provider_runtime_reconcile_success_total 1",
            "provider_runtime_reconcile_failure_total 1",
            "provider_runtime_reconcile_duration_seconds_count 2",
            "provider_runtime_reconcile_queue_work_duration_seconds_count 2",
            "provider_runtime_reconcile_in_flight 0",
            "provider_runtime_reconcile_requeue_error_total 1",
            "provider_runtime_reconcile_requeue_immediate_total 1",
            "provider_runtime_reconcile_queue_requeues_total 2",
            "provider_runtime_external_observe_failure_total 1",
            "provider_runtime_status_update_duration_seconds_count 1",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
