//! Admission and conversion, answered by every replica over TLS.
//!
//! Nothing that is stored depends on it: reads never come here, a type without a rest of its schema has no webhook at
//! all, and where the API server has policies of its own, they set the labels.

mod authority;
mod certificates;
mod mutate;
mod registration;
mod requests;
mod review;
mod tls;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use runtime::Metrics;
use serde_json::Value;

pub(crate) use authority::Terms;
pub(crate) use certificates::{Certificates, Source, Times};
pub(crate) use registration::{Address, Registration};
pub(crate) use requests::Requests;
pub(crate) use tls::{Shown, TlsListener};
pub(crate) use validate::{Judge, is_judged};

use review::{AdmissionReview, ConversionReview, Verdict};

/// An object of an API server has at most 1.5 MiB, and a review holds two; a conversion holds a page of them.
const LARGEST_REVIEW: usize = 64 << 20;

/// Requests by webhook, operation and outcome, as the contract names them.
#[derive(Clone)]
pub(crate) struct Figures {
    total: IntCounterVec,
    durations: HistogramVec,
}

impl Figures {
    /// Registers them.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let labels = ["webhook", "operation", "outcome"];
        let total = Opts::new("core_provider_webhook_request_total", "Answered reviews");
        let durations = HistogramOpts::new(
            "core_provider_webhook_request_duration_seconds",
            "How long answers took",
        )
        .buckets(prometheus::exponential_buckets(0.0005, 2.5, 10)?);
        let figures = Self {
            total: IntCounterVec::new(total, &labels)?,
            durations: HistogramVec::new(durations, &labels)?,
        };
        metrics.register(figures.total.clone())?;
        metrics.register(figures.durations.clone())?;
        Ok(figures)
    }

    fn count(&self, webhook: &str, operation: &str, outcome: &str, since: Instant) {
        let labels = [webhook, operation, outcome];
        self.total.with_label_values(&labels).inc();
        self.durations
            .with_label_values(&labels)
            .observe(since.elapsed().as_secs_f64());
    }
}

/// What answering takes.
#[derive(Clone)]
pub(crate) struct Webhooks {
    pub(crate) judge: Arc<Judge>,
    pub(crate) figures: Figures,
}

/// The three webhooks.
pub(crate) fn app(webhooks: Webhooks) -> Router {
    Router::new()
        .route("/validate", post(validated))
        .route("/mutate", post(mutated))
        .route("/convert", post(converted))
        .layer(DefaultBodyLimit::max(LARGEST_REVIEW))
        .with_state(webhooks)
}

async fn validated(State(webhooks): State<Webhooks>, Json(review): Json<AdmissionReview>) -> Json<Value> {
    let since = Instant::now();
    let verdict = webhooks.judge.judge(&review.request).await;
    answer(&webhooks, "validate", &review, &verdict, since)
}

async fn mutated(State(webhooks): State<Webhooks>, Json(review): Json<AdmissionReview>) -> Json<Value> {
    let since = Instant::now();
    let verdict = mutate::mutate(&review.request);
    answer(&webhooks, "mutate", &review, &verdict, since)
}

fn answer(
    webhooks: &Webhooks,
    webhook: &str,
    review: &AdmissionReview,
    verdict: &Verdict,
    since: Instant,
) -> Json<Value> {
    let operation = &review.request.operation;
    webhooks
        .figures
        .count(webhook, operation, verdict.outcome(), since);
    Json(verdict.to_review(&review.request.uid))
}

async fn converted(State(webhooks): State<Webhooks>, Json(review): Json<ConversionReview>) -> Json<Value> {
    let since = Instant::now();
    let answer = review.answer();
    let outcome = if answer["response"]["result"]["status"] == "Success" {
        "allowed"
    } else {
        "error"
    };
    webhooks.figures.count("convert", "CONVERT", outcome, since);
    Json(answer)
}
