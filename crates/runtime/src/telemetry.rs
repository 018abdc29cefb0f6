//! The metrics that the contract names for every controller: passes and their parts, how long they took and whether
//! they failed, and the queue of objects that wait for a pass.
//!
//! Their names have dots, `provider_runtime.reconcile.duration_seconds`; in Prometheus these are underscores, and
//! counters end in `_total`. The `workqueue_*` metrics of client-go are recorded, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts};

use crate::metrics::{Pulled, prometheus_counter_name, prometheus_name};
use crate::{Metrics, spans};

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object is read.
    Get,
    /// Access to what the object describes is set up.
    Connect,
    /// The actual state is read.
    Observe,
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Our finalizer is added to the object.
    AddFinalizer,
    /// Our finalizer is removed.
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
            Self::Get => "reconcile.get",
            Self::Connect => "external.connect",
            Self::Observe => "external.observe",
            Self::Create => "external.create",
            Self::Update => "external.update",
            Self::Delete => "external.delete",
            Self::AddFinalizer => "finalizer.add",
            Self::RemoveFinalizer => "finalizer.remove",
            Self::UpdateStatus => "status.update",
        }
    }
}

/// When the next pass over an object follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At once.
    Immediately,
    /// After a while, without an error.
    Later,
    /// After a while, because the pass failed.
    AfterError,
    /// When something changes.
    OnChange,
}

/// The metrics; cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    instruments: Arc<Instruments>,
}

struct Instruments {
    metrics: Metrics,
    prefix: &'static str,
    queue_name: String,
    startup: Outcomes,
    passes: Outcomes,
    durations: Histogram,
    worked: [Histogram; 2],
    in_flight: IntGauge,
    running: Arc<Running>,
    requeues: IntCounterVec,
    immediately: IntCounter,
    later: IntCounter,
    after_error: IntCounter,
    retries: IntCounter,
    parts: Vec<(Histogram, IntCounter)>,
    queue: Queue,
}

struct Outcomes {
    success: IntCounter,
    failure: IntCounter,
}

/// The metrics of the queue of objects that wait for a pass; cheap to clone.
#[derive(Clone)]
pub struct Queue {
    added: IntCounter,
    waited: [Histogram; 2],
    oldest: Histogram,
}

impl Queue {
    /// An object begins to wait; the one that has waited longest has waited for `oldest`.
    pub fn added(&self, oldest: Duration) {
        self.added.inc();
        self.oldest.observe(oldest.as_secs_f64());
    }

    /// The pass over an object begins after it has `waited`; the longest wait of the others is `oldest` so far.
    pub fn begun(&self, waited: Duration, oldest: Duration) {
        observe(&self.waited, waited);
        self.oldest.observe(oldest.as_secs_f64());
    }
}

fn observe(histograms: &[Histogram], took: Duration) {
    for histogram in histograms {
        histogram.observe(took.as_secs_f64());
    }
}

impl Telemetry {
    /// Registers the metrics with the prefix `prefix`, `provider_runtime` or `unstructured_runtime`, and those of the
    /// work queue named `queue`.
    ///
    /// # Errors
    ///
    /// If a name is taken.
    pub fn new(metrics: &Metrics, prefix: &'static str, queue: &str) -> Result<Self, prometheus::Error> {
        let register = Register {
            metrics,
            prefix,
            queue,
        };
        let parts = Part::ALL.map(|part| {
            let name = part.name();
            let durations = register.histogram(
                &format!("{name}.duration_seconds"),
                "How long this part of a pass took",
            )?;
            let failures =
                register.counter(&format!("{name}.failure"), "How often this part of a pass failed")?;
            Ok((durations, failures))
        });
        let instruments = Instruments {
            metrics: metrics.clone(),
            prefix,
            queue_name: queue.to_owned(),
            startup: register.outcomes("startup", "Starts of the process")?,
            passes: register.outcomes("reconcile", "Passes")?,
            durations: register.histogram("reconcile.duration_seconds", "How long a pass took")?,
            worked: register.of_queue(
                "reconcile.queue.work.duration_seconds",
                "workqueue_work_duration_seconds",
                "How long a pass over an object took",
            )?,
            in_flight: register.gauge("reconcile.in_flight", "Passes in flight")?,
            running: register.running()?,
            requeues: register.requeues()?,
            immediately: register.counter("reconcile.requeue.immediate", "Objects requeued at once")?,
            later: register.counter("reconcile.requeue.after", "Objects requeued after a delay")?,
            after_error: register
                .counter("reconcile.requeue.error", "Objects requeued after a failed pass")?,
            retries: register.count_of_queue("workqueue_retries_total", "Passes that failed")?,
            parts: parts.into_iter().collect::<Result<_, prometheus::Error>>()?,
            queue: register.queue()?,
        };
        Ok(Self {
            instruments: Arc::new(instruments),
        })
    }

    /// The process works from now on, or failed to start.
    pub fn started(&self, well: bool) {
        self.instruments.startup.count(well);
    }

    /// The metrics that the queue reports to.
    pub fn queue(&self) -> Queue {
        self.instruments.queue.clone()
    }

    /// Registers the number of waiting objects, which `depth` counts when the metrics are read.
    ///
    /// # Errors
    ///
    /// If it is registered already.
    pub fn tell_depth(
        &self,
        depth: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let (instruments, depth) = (&self.instruments, Arc::new(depth));
        let name = format!("{}.reconcile.queue.depth", instruments.prefix);
        let help = "Objects that wait for a worker";
        let read = depth.clone();
        let own = Pulled::new(Opts::new(prometheus_name(&name), help), move || read() as f64)?;
        instruments.metrics.register_as(&name, own)?;
        let options = Opts::new("workqueue_depth", help).const_label("name", &instruments.queue_name);
        instruments
            .metrics
            .register(Pulled::new(options, move || depth() as f64)?)
    }

    /// Counts and times one pass over an object of this kind and namespace, and counts how it is requeued.
    pub async fn pass<T, E>(
        &self,
        kind: &str,
        namespace: &str,
        pass: impl Future<Output = Result<T, E>>,
        again: impl Fn(&T) -> Again,
    ) -> Result<T, E> {
        let instruments = &self.instruments;
        let under_way = UnderWay::begin(instruments);
        let outcome = pass.await;
        let took = under_way.since.elapsed();
        instruments.durations.observe(took.as_secs_f64());
        observe(&instruments.worked, took);
        instruments.passes.count(outcome.is_ok());
        instruments.metrics.count(kind, namespace, outcome.is_ok(), took);
        self.requeued(outcome.as_ref().map_or(Again::AfterError, again));
        outcome
    }

    /// Times one part of a pass, in a span below that of the pass.
    pub async fn time<T, E>(&self, part: Part, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let start = Instant::now();
        let outcome = spans::within(spans::part(part.name()), work).await;
        let known = Part::ALL.iter().position(|known| *known == part);
        if let Some((durations, failures)) = known.and_then(|known| self.instruments.parts.get(known)) {
            durations.observe(start.elapsed().as_secs_f64());
            failures.inc_by(u64::from(outcome.is_err()));
        }
        outcome
    }

    fn requeued(&self, again: Again) {
        let instruments = &self.instruments;
        let (counter, reason) = match again {
            Again::Immediately => (&instruments.immediately, "immediate"),
            Again::Later => (&instruments.later, "after"),
            Again::AfterError => (&instruments.after_error, "error"),
            Again::OnChange => return,
        };
        counter.inc();
        instruments.requeues.with_label_values(&[reason]).inc();
        instruments.retries.inc_by(u64::from(again == Again::AfterError));
    }
}

/// When each pass in flight began.
#[derive(Default)]
struct Running(Mutex<BTreeMap<u64, Instant>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seconds(&self) -> Vec<f64> {
        self.lock()
            .values()
            .map(|since| since.elapsed().as_secs_f64())
            .collect()
    }
}

/// Counted while it exists, and no longer when a pass is dropped half-way.
struct UnderWay<'f> {
    instruments: &'f Instruments,
    place: u64,
    since: Instant,
}

impl<'f> UnderWay<'f> {
    fn begin(instruments: &'f Instruments) -> Self {
        let since = Instant::now();
        let mut running = instruments.running.lock();
        let place = running.last_key_value().map_or(0, |(last, _)| last + 1);
        running.insert(place, since);
        instruments.in_flight.inc();
        Self {
            instruments,
            place,
            since,
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.instruments.running.lock().remove(&self.place);
        self.instruments.in_flight.dec();
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

/// Creates the metrics of one prefix and one queue.
struct Register<'m> {
    metrics: &'m Metrics,
    prefix: &'static str,
    queue: &'m str,
}

impl Register<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let name = self.named(name);
        self.kept(&name, IntCounter::new(prometheus_counter_name(&name), help)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        let name = self.named(name);
        self.kept(&name, IntGauge::new(prometheus_name(&name), help)?)
    }

    fn histogram(&self, name: &str, help: &str) -> Result<Histogram, prometheus::Error> {
        let name = self.named(name);
        let options = HistogramOpts::new(prometheus_name(&name), help).buckets(buckets()?);
        self.kept(&name, Histogram::with_opts(options)?)
    }

    fn outcomes(&self, name: &str, help: &str) -> Result<Outcomes, prometheus::Error> {
        Ok(Outcomes {
            success: self.counter(&format!("{name}.success"), &format!("{help} that succeeded"))?,
            failure: self.counter(&format!("{name}.failure"), &format!("{help} that failed"))?,
        })
    }

    fn requeues(&self) -> Result<IntCounterVec, prometheus::Error> {
        let name = self.named("reconcile.queue.requeues");
        let options = Opts::new(prometheus_counter_name(&name), "Objects requeued, by reason");
        self.kept(&name, IntCounterVec::new(options, &["reason"])?)
    }

    fn queue(&self) -> Result<Queue, prometheus::Error> {
        Ok(Queue {
            added: self.count_of_queue("workqueue_adds_total", "Objects added to the queue")?,
            waited: self.of_queue(
                "reconcile.queue.wait.duration_seconds",
                "workqueue_queue_duration_seconds",
                "How long an object waited for a worker",
            )?,
            oldest: self.histogram(
                "reconcile.queue.oldest_item_age_seconds",
                "How long the oldest object in the queue has waited, observed when one is added or taken",
            )?,
        })
    }

    fn running(&self) -> Result<Arc<Running>, prometheus::Error> {
        let running = Arc::new(Running::default());
        let read = running.clone();
        let options = self.options(
            "workqueue_unfinished_work_seconds",
            "How long the passes in flight have taken so far, in total",
        );
        let unfinished = Pulled::new(options, move || {
            read.seconds().into_iter().fold(0.0, |all, each| all + each)
        })?;
        self.metrics.register(unfinished)?;
        let read = running.clone();
        let options = self.options(
            "workqueue_longest_running_processor_seconds",
            "How long the longest pass in flight has taken so far",
        );
        let longest = Pulled::new(options, move || read.seconds().into_iter().fold(0.0, f64::max))?;
        self.metrics.register(longest)?;
        Ok(running)
    }

    /// The same metric under our name and under client-go's.
    fn of_queue(&self, name: &str, theirs: &str, help: &str) -> Result<[Histogram; 2], prometheus::Error> {
        let options = HistogramOpts::from(self.options(theirs, help)).buckets(buckets()?);
        let theirs = Histogram::with_opts(options)?;
        self.metrics.register(theirs.clone())?;
        Ok([self.histogram(name, help)?, theirs])
    }

    fn count_of_queue(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        let counter = IntCounter::with_opts(self.options(name, help))?;
        self.metrics.register(counter.clone())?;
        Ok(counter)
    }

    fn options(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_label("name", self.queue)
    }

    fn kept<C: Collector + Clone + 'static>(&self, name: &str, collector: C) -> Result<C, prometheus::Error> {
        self.metrics.register_as(name, collector.clone())?;
        Ok(collector)
    }

    fn named(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }
}

/// From a single read to an install that waits for hooks.
fn buckets() -> Result<Vec<f64>, prometheus::Error> {
    prometheus::exponential_buckets(0.002, 2.5, 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry() -> (Metrics, Telemetry) {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "provider_runtime", "shops").unwrap();
        (metrics, telemetry)
    }

    fn check(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text().unwrap();
        for line in lines {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }

    #[tokio::test]
    async fn passes_and_their_parts_are_counted_under_the_names_of_the_contract() {
        let (metrics, telemetry) = telemetry();
        telemetry.started(true);
        let observed = telemetry.time(Part::Observe, async { Err::<(), _>("no") });
        let failed = telemetry.pass("Shop", "default", observed, |()| Again::Later);
        assert_eq!(failed.await, Err("no"));
        let written = telemetry.time(Part::UpdateStatus, async { Ok::<_, &str>(()) });
        let passed = telemetry.pass("Shop", "default", written, |()| Again::Immediately);
        passed.await.unwrap();
        check(
            &metrics,
            &[
                "provider_runtime_startup_success_total 1",
                "provider_runtime_reconcile_success_total 1",
                "provider_runtime_reconcile_failure_total 1",
                "provider_runtime_reconcile_duration_seconds_count 2",
                "provider_runtime_reconcile_queue_work_duration_seconds_count 2",
                r#"workqueue_work_duration_seconds_count{name="shops"} 2"#,
                r#"workqueue_retries_total{name="shops"} 1"#,
                "provider_runtime_reconcile_in_flight 0",
                r#"workqueue_unfinished_work_seconds{name="shops"} 0"#,
                "provider_runtime_reconcile_requeue_error_total 1",
                "provider_runtime_reconcile_requeue_immediate_total 1",
                r#"provider_runtime_reconcile_queue_requeues_total{reason="error"} 1"#,
                "provider_runtime_external_observe_failure_total 1",
                "provider_runtime_status_update_duration_seconds_count 1",
                r#"controller_reconcile_total{kind="Shop",namespace="default",result="error"} 1"#,
            ],
        );
    }

    #[tokio::test]
    async fn a_pass_in_flight_is_counted_and_a_dropped_one_is_not() {
        let (metrics, telemetry) = telemetry();
        let endless = telemetry.pass(
            "Shop",
            "default",
            std::future::pending::<Result<(), ()>>(),
            |()| Again::Later,
        );
        let mut endless = Box::pin(endless);
        assert!(futures_are_pending(&mut endless).await);
        check(&metrics, &["provider_runtime_reconcile_in_flight 1"]);
        let text = metrics.text().unwrap();
        assert!(!text.contains(
            r#"workqueue_longest_running_processor_seconds{name="shops"} 0
"#
        ));
        drop(endless);
        check(
            &metrics,
            &[
                "provider_runtime_reconcile_in_flight 0",
                r#"workqueue_longest_running_processor_seconds{name="shops"} 0"#,
            ],
        );
    }

    async fn futures_are_pending(future: &mut (impl Future + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = std::future::ready(()) => true,
        }
    }

    #[test]
    fn the_queue_is_measured_by_additions_removals_and_depth() {
        let (metrics, telemetry) = telemetry();
        telemetry.tell_depth(|| 3).unwrap();
        let queue = telemetry.queue();
        queue.added(Duration::ZERO);
        queue.added(Duration::from_secs(4));
        queue.begun(Duration::from_secs(5), Duration::from_secs(1));
        check(
            &metrics,
            &[
                "provider_runtime_reconcile_queue_depth 3",
                r#"workqueue_depth{name="shops"} 3"#,
                r#"workqueue_adds_total{name="shops"} 2"#,
                "provider_runtime_reconcile_queue_wait_duration_seconds_sum 5",
                r#"workqueue_queue_duration_seconds_sum{name="shops"} 5"#,
                "provider_runtime_reconcile_queue_oldest_item_age_seconds_sum 5",
                "provider_runtime_reconcile_queue_oldest_item_age_seconds_count 3",
            ],
        );
    }
}
