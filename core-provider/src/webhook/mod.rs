//! Admission and conversion, answered by every replica over TLS.
//!
//! As little as can be depends on it: reads come here only for types whose charts list changes between their versions, a
//! type without a rest of its schema is judged by the API server alone, and where that has policies of its own, they set
//! the labels.

mod authority;
mod certificates;
mod conversions;
mod mutate;
mod registration;
mod requests;
mod review;
mod tls;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::routing::post;
use axum::{Json, Router};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use runtime::{Metrics, chain};
use serde_json::Value;

pub(crate) use authority::Terms;
pub(crate) use certificates::{Certificates, Source, Times};
pub(crate) use conversions::{Conversions, path as conversion_path};
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
    pub(crate) conversions: Arc<Conversions>,
    pub(crate) figures: Figures,
}

/// The webhooks.
pub(crate) fn app(webhooks: Webhooks) -> Router {
    Router::new()
        .route("/validate", post(validated))
        .route("/mutate", post(mutated))
        .route("/convert", post(copied))
        .route("/convert/{plural}/{digest}", post(converted))
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

/// Conversion of types whose versions differ only in name.
async fn copied(State(webhooks): State<Webhooks>, Json(review): Json<ConversionReview>) -> Json<Value> {
    let since = Instant::now();
    let answer = review.answer(&|object, desired| {
        object["apiVersion"] = Value::from(desired);
        Ok(())
    });
    count_conversion(&webhooks, &answer, since);
    Json(answer)
}

/// Conversion by the changes that a type's charts list.
async fn converted(
    State(webhooks): State<Webhooks>,
    Path((plural, digest)): Path<(String, String)>,
    Json(review): Json<ConversionReview>,
) -> Json<Value> {
    let since = Instant::now();
    let conversion = webhooks.conversions.of(&plural, &digest).await;
    let conversion = conversion.map_err(|error| chain(&error));
    let answer = review.answer(&|object, desired| {
        let conversion = conversion.as_ref().map_err(Clone::clone)?;
        let version = desired.rsplit_once('/').map_or(desired, |(_, version)| version);
        conversion
            .convert(object, version)
            .map_err(|error| error.to_string())
    });
    count_conversion(&webhooks, &answer, since);
    Json(answer)
}

fn count_conversion(webhooks: &Webhooks, answer: &Value, since: Instant) {
    let outcome = if answer["response"]["result"]["status"] == "Success" {
        "allowed"
    } else {
        "error"
    };
    webhooks.figures.count("convert", "CONVERT", outcome, since);
}
