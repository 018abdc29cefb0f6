//! Sends metrics and spans to a collector, and logs when they begin to arrive and when they stop.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prometheus::{IntCounterVec, Opts};
use prost::Message as _;
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::encoder;
use super::messages::{ExportTraceServiceResponse, Span};
use super::settings::Ignored;
use crate::excerpt::excerpt;
use crate::{Metrics, chain, spans};

/// How long the end of the process waits for the last push, at most.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// The most bytes that are read of a collector's answer.
const LARGEST_ANSWER: usize = 64 << 10;

/// How much of the answer is logged, in bytes.
const LONGEST_WORDS: usize = 500;

/// The most spans in one push; OpenTelemetry's own default.
const SPANS_AT_ONCE: usize = 512;

/// What is pushed to a collector.
#[derive(Clone, Debug, Default)]
pub struct Push {
    pub(super) metrics: Option<MetricsPush>,
    pub(super) traces: Option<Traces>,
    /// The attributes of the process.
    pub(super) attributes: Vec<(String, String)>,
    /// Settings that were given but cannot be read.
    pub(super) ignored: Vec<Ignored>,
}

/// Metrics on their way to a collector.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPush {
    pub(super) delivery: Delivery,
    pub(super) interval: Duration,
}

/// Which spans are recorded, and how they get to a collector.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    pub(super) delivery: Delivery,
    pub(super) delay: Duration,
    pub(super) longest_queue: usize,
    pub(super) sampler: spans::Sampler,
}

/// Recorded spans on their way to a collector.
pub(crate) struct Recorded {
    traces: Traces,
    attributes: Vec<(String, String)>,
    queue: Receiver<Span>,
    dropped: IntCounterVec,
}

/// What the messages of a delivery carry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Metrics,
    Spans,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Spans => "spans",
        }
    }

    /// How many items the collector rejected, and why. An answer that is not an OTLP message rejects nothing.
    fn rejected(self, answer: &[u8]) -> Option<(i64, String)> {
        let (count, said) = match self {
            Self::Metrics => {
                let partial = ExportMetricsServiceResponse::decode(answer)
                    .ok()?
                    .partial_success?;
                (partial.rejected_data_points, partial.error_message)
            }
            Self::Spans => {
                let partial = ExportTraceServiceResponse::decode(answer).ok()?.partial_success?;
                (partial.rejected_spans, partial.error_message)
            }
        };
        (count > 0).then(|| (count, excerpt(&said, LONGEST_WORDS)))
    }
}

/// A push that did not arrive.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undelivered {
    #[error("the collector could not be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the collector answered {status}: {said}")]
    Refused {
        status: reqwest::StatusCode,
        said: String,
    },
    #[error("the collector did not take {count} {kind}: {said}")]
    Rejected {
        count: i64,
        kind: &'static str,
        said: String,
    },
}

impl Push {
    /// Names this instance of the process in the attributes.
    pub(crate) fn of_instance(mut self, instance: &str) -> Self {
        self.attributes.retain(|(name, _)| name != "service.instance.id");
        self.attributes
            .push(("service.instance.id".to_owned(), instance.to_owned()));
        self
    }

    /// Warns about the settings that cannot be read, once there is a log.
    pub(crate) fn warn(&self) {
        for Ignored { variable, why } in &self.ignored {
            tracing::warn!(variable, why, "ignored a setting that cannot be read");
        }
    }

    /// The layer that records spans for the log's subscriber, and the task that sends them; none if traces are off.
    ///
    /// # Errors
    ///
    /// If the metric of dropped spans is already registered.
    pub(crate) fn record(
        &self,
        metrics: &Metrics,
    ) -> Result<Option<(spans::Traces, Recorded)>, prometheus::Error> {
        let Some(traces) = self.traces.clone() else {
            return Ok(None);
        };
        let dropped = IntCounterVec::new(
            Opts::new(
                "trace_spans_dropped_total",
                "Spans that did not reach the collector, by reason: the queue was full, or they were not delivered",
            ),
            &["reason"],
        )?;
        metrics.register(dropped.clone())?;
        let (sender, queue) = mpsc::channel(traces.longest_queue);
        let recording = spans::Traces {
            sampler: traces.sampler,
            queue: sender,
            dropped: dropped.with_label_values(&["full"]),
        };
        let recorded = Recorded {
            traces,
            attributes: self.attributes.clone(),
            queue,
            dropped,
        };
        Ok(Some((recording, recorded)))
    }

    /// Pushes the metrics once per interval until `ended`, then once more within [`LAST_WITHIN`].
    ///
    /// Logs once when the collector becomes reachable, and once when it stops being reachable.
    pub(crate) async fn run(self, registry: Metrics, ended: CancellationToken) {
        let Self {
            metrics,
            traces: _,
            attributes,
            ignored: _,
        } = self;
        let Some(MetricsPush {
            mut delivery,
            interval,
        }) = metrics
        else {
            return;
        };
        let mut ticks = interval_at(Instant::now() + interval, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let body = || encoder::metrics(&registry, &attributes).encode_to_vec();
        while ended.run_until_cancelled(ticks.tick()).await.is_some() {
            let sending = delivery.send(body(), delivery.timeout);
            // A push can be cancelled here: the last one includes everything in it.
            let Some(outcome) = ended.run_until_cancelled(sending).await else {
                break;
            };
            delivery.note(&outcome);
        }
        let outcome = delivery.send(body(), delivery.timeout.min(LAST_WITHIN)).await;
        delivery.note(&outcome);
    }
}

impl Recorded {
    /// Pushes spans as they end, several at once, until `ended`; those left by then are pushed within [`LAST_WITHIN`].
    ///
    /// Spans that do not arrive are counted and dropped: newer ones are worth more.
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let late = async {
            ended.cancelled().await;
            tokio::time::sleep(LAST_WITHIN).await;
        };
        tokio::select! {
            () = self.work(&ended) => {}
            () = late => {}
        }
    }

    async fn work(&mut self, ended: &CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let filling = fill(&mut self.queue, &mut batch, self.traces.delay);
            let is_over = ended.run_until_cancelled(filling).await.is_none();
            if is_over {
                while let Ok(span) = self.queue.try_recv() {
                    batch.push(span);
                }
            }
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(SPANS_AT_ONCE));
                self.send(std::mem::replace(&mut batch, rest)).await;
            }
            if is_over {
                return;
            }
        }
    }

    async fn send(&mut self, batch: Vec<Span>) {
        let all = batch.len() as u64;
        let body = encoder::spans(batch, &self.attributes).encode_to_vec();
        let delivery = &mut self.traces.delivery;
        let outcome = delivery.send(body, delivery.timeout).await;
        delivery.note(&outcome);
        let lost = match outcome {
            Ok(()) => return,
            Err(Undelivered::Rejected { count, .. }) => u64::try_from(count).unwrap_or_default().min(all),
            Err(Undelivered::Unreachable(_) | Undelivered::Refused { .. }) => all,
        };
        self.dropped.with_label_values(&["undelivered"]).inc_by(lost);
    }
}

/// Waits for a span, then collects the following ones until the delay has passed or there are enough for a push.
async fn fill(queue: &mut Receiver<Span>, batch: &mut Vec<Span>, delay: Duration) {
    let Some(first) = queue.recv().await else {
        // Nothing is recorded: something else has set up the log of this process.
        return std::future::pending().await;
    };
    batch.push(first);
    let following = async {
        while batch.len() < SPANS_AT_ONCE && queue.recv_many(batch, SPANS_AT_ONCE - batch.len()).await > 0 {}
    };
    // Spans that arrived before the timeout are in the batch.
    let _ = tokio::time::timeout(delay, following).await;
}

/// Delivers to one URL of a collector.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    kind: Kind,
    url: Url,
    timeout: Duration,
    client: reqwest::Client,
    /// Whether the last message arrived.
    arrives: Option<bool>,
}

impl Delivery {
    pub(super) fn new(kind: Kind, url: Url, timeout: Duration, client: reqwest::Client) -> Self {
        Self {
            kind,
            url,
            timeout,
            client,
            arrives: None,
        }
    }

    async fn send(&self, body: Vec<u8>, within: Duration) -> Result<(), Undelivered> {
        let request = self.client.post(self.url.clone()).timeout(within).body(body);
        let unreachable = |error: reqwest::Error| Undelivered::Unreachable(error.without_url());
        let mut answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let mut said = Vec::new();
        while said.len() < LARGEST_ANSWER
            && let Some(piece) = answer.chunk().await.map_err(unreachable)?
        {
            said.extend_from_slice(&piece);
        }
        if !status.is_success() {
            let said = excerpt(&String::from_utf8_lossy(&said), LONGEST_WORDS);
            return Err(Undelivered::Refused { status, said });
        }
        match self.kind.rejected(&said) {
            Some((count, said)) => Err(Undelivered::Rejected {
                count,
                kind: self.kind.as_str(),
                said,
            }),
            None => Ok(()),
        }
    }

    fn note(&mut self, outcome: &Result<(), Undelivered>) {
        if self.arrives == Some(outcome.is_ok()) {
            return;
        }
        self.arrives = Some(outcome.is_ok());
        // Without the user and password that a URL may contain.
        let (collector, path) = (self.url.origin().ascii_serialization(), self.url.path());
        let kind = self.kind.as_str();
        match outcome {
            Ok(()) => tracing::info!(collector, path, "{kind} are pushed"),
            Err(error) => tracing::warn!(collector, path, error = chain(error), "could not push {kind}"),
        }
    }
}
