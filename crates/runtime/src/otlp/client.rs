//! Sends what there is to a collector, and says when it begins and ceases to arrive.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::encoder::export;
use crate::{Metrics, chain};

/// What the end of the process waits for the last push at most.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// Of what a collector says, so many bytes are read.
const LARGEST_ANSWER: usize = 64 << 10;

/// Figures on their way to a collector.
#[derive(Clone, Debug)]
pub struct Push {
    pub(super) url: Url,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) client: reqwest::Client,
}

/// A push that did not arrive.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error("the collector could not be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the collector answered {status}: {said}")]
    Refused {
        status: reqwest::StatusCode,
        said: String,
    },
    #[error("the collector did not take {count} figures: {said}")]
    Rejected { count: i64, said: String },
}

impl Push {
    /// Pushes once in an interval until `ended`, and then once more, for which it takes no longer than a moment.
    ///
    /// It is logged once when the collector is reached, and once when it is not any more.
    pub(crate) async fn run(mut self, metrics: Metrics, instance: &str, ended: CancellationToken) {
        self.attributes.retain(|(name, _)| name != "service.instance.id");
        self.attributes
            .push(("service.instance.id".to_owned(), instance.to_owned()));
        let mut arrives = None;
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while ended.run_until_cancelled(ticks.tick()).await.is_some() {
            let sending = self.send(&metrics, self.timeout);
            // The last push has all that is in one that is given up.
            let Some(outcome) = ended.run_until_cancelled(sending).await else {
                break;
            };
            self.note(&outcome, &mut arrives);
        }
        let outcome = self.send(&metrics, self.timeout.min(LAST_WITHIN)).await;
        self.note(&outcome, &mut arrives);
    }

    async fn send(&self, metrics: &Metrics, within: Duration) -> Result<(), Undelivered> {
        let body = export(metrics, &self.attributes).encode_to_vec();
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
            let said = String::from_utf8_lossy(&said[..said.len().min(500)])
                .trim()
                .to_owned();
            return Err(Undelivered::Refused { status, said });
        }
        // What is no message of OTLP says nothing about figures that were not taken.
        let answer = ExportMetricsServiceResponse::decode(said.as_slice()).unwrap_or_default();
        match answer.partial_success {
            Some(partial) if partial.rejected_data_points > 0 => Err(Undelivered::Rejected {
                count: partial.rejected_data_points,
                said: partial.error_message,
            }),
            _ => Ok(()),
        }
    }

    fn note(&self, outcome: &Result<(), Undelivered>, arrives: &mut Option<bool>) {
        if *arrives == Some(outcome.is_ok()) {
            return;
        }
        *arrives = Some(outcome.is_ok());
        // Without a user and a password, which a URL may have.
        let (collector, path) = (self.url.origin().ascii_serialization(), self.url.path());
        match outcome {
            Ok(()) => tracing::info!(collector, path, "figures are pushed"),
            Err(error) => tracing::warn!(collector, path, error = chain(error), "could not push figures"),
        }
    }
}
