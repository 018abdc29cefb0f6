//! Admission and conversion webhooks, served by every replica over TLS.
//!
//! As little as possible depends on them: conversion is used only for types whose charts list changes between versions,
//! types whose CRD expresses the whole schema are validated by the API server alone, and if the API server supports
//! mutating policies, one sets the labels, except in versions that it does not know yet.

mod authority;
mod bodies;
mod certificates;
mod conversions;
mod deadlines;
mod mutate;
mod registration;
mod requests;
mod review;
mod tls;
mod trust;
mod validate;

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Extension, MatchedPath, Path, Request, State};
use axum::http::{HeaderName, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};
use runtime::metrics::{prometheus_counter_name, prometheus_name};
use runtime::{Metrics, chain, spans};
use serde_json::Value;
use tracing::Span;

pub(crate) use authority::Terms;
pub(crate) use certificates::{Certificates, Source, Times};
pub(crate) use conversions::{Conversions, path as conversion_path};
pub(crate) use deadlines::Webhook;
pub(crate) use registration::{Address, Registration, of_labels};
pub(crate) use requests::Requests;
pub(crate) use tls::{Shown, tls};
pub(crate) use validate::{Judge, Shares, is_judged};

use bodies::{Admitted, Refused, Room, Sizes, bounded};
use review::{AdmissionReview, ConversionReview, Verdict};

/// An object in the API server has at most 1.5 MiB, and a review contains two. Parsed, it takes up to ten times its
/// size.
const REVIEWS: Sizes = Sizes {
    one: 4 << 20,
    all: 12 << 20,
};

/// A conversion contains a page of a list. Its objects are parsed one by one, so it takes little more than its size and
/// that of the answer. It keeps its room until the answer is sent.
const CONVERSIONS: Sizes = Sizes {
    one: 64 << 20,
    all: 64 << 20,
};

/// The converted objects may have twice the size of the review plus this many bytes.
const SMALL: usize = 16 << 10;

/// Metrics of requests by webhook, operation and outcome, with the names of the contract.
#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    total: IntCounterVec,
    errors: IntCounterVec,
    refused: IntCounterVec,
    durations: HistogramVec,
}

/// The outcome of a review that could not be answered.
const ERROR: &str = "error";

impl WebhookMetrics {
    /// Registers the metrics.
    pub(crate) fn new(registry: &Metrics) -> Result<Self, prometheus::Error> {
        let labels = ["webhook", "operation", "outcome"];
        let [total, errors, refused, durations] = ["total", "errors", "refused", "duration_seconds"]
            .map(|what| format!("core_provider.webhook.request.{what}"));
        let buckets = prometheus::exponential_buckets(0.0005, 2.5, 10)?;
        let metrics = Self {
            total: IntCounterVec::new(
                Opts::new(prometheus_counter_name(&total), "Answered reviews"),
                &labels,
            )?,
            errors: IntCounterVec::new(
                Opts::new(
                    prometheus_counter_name(&errors),
                    "Reviews that could not be answered",
                ),
                &labels[..2],
            )?,
            refused: IntCounterVec::new(
                Opts::new(
                    prometheus_counter_name(&refused),
                    "Reviews that were not read, by why",
                ),
                &["webhook", "reason"],
            )?,
            durations: HistogramVec::new(
                HistogramOpts::new(prometheus_name(&durations), "How long answers took").buckets(buckets),
                &labels,
            )?,
        };
        registry.register_as(&total, metrics.total.clone())?;
        registry.register_as(&errors, metrics.errors.clone())?;
        registry.register_as(&refused, metrics.refused.clone())?;
        registry.register_as(&durations, metrics.durations.clone())?;
        Ok(metrics)
    }

    fn refuse(&self, webhook: Webhook, refused: Refused) {
        let labels = [webhook.as_str(), refused.reason()];
        self.refused.with_label_values(&labels).inc();
    }

    /// Label values are our own constants: values that a caller could choose would accumulate without limit.
    fn count(&self, webhook: Webhook, operation: &'static str, outcome: &'static str, since: Instant) {
        let labels = [webhook.as_str(), operation, outcome];
        self.total.with_label_values(&labels).inc();
        if outcome == ERROR {
            self.errors.with_label_values(&labels[..2]).inc();
        }
        self.durations
            .with_label_values(&labels)
            .observe(since.elapsed().as_secs_f64());
    }
}

/// What the webhooks need to answer.
#[derive(Clone)]
pub(crate) struct Webhooks {
    pub(crate) judge: Arc<Judge>,
    pub(crate) conversions: Arc<Conversions>,
    pub(crate) metrics: WebhookMetrics,
}

/// The routes of the webhooks.
pub(crate) fn app(webhooks: Webhooks) -> Router {
    let room = |sizes| Room::new(sizes, webhooks.metrics.clone());
    let (reviews, pages) = (room(REVIEWS), room(CONVERSIONS));
    let judgements = Router::new().route("/validate", post(validated));
    let labels = Router::new().route("/mutate", post(mutated));
    let conversions = Router::new()
        .route("/convert", post(copied))
        .route("/convert/{plural}/{digest}", post(converted));
    bounded(judgements, Webhook::Judgement, &reviews)
        .merge(bounded(labels, Webhook::Label, &reviews))
        .merge(bounded(conversions, Webhook::Conversion, &pages))
        .layer(middleware::from_fn(spanned))
        .with_state(webhooks)
}

/// Answers in a span for the request.
async fn spanned(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    spans::serve(route, request, next).await
}

/// Adds the reviewed object to every log line.
fn tell_of(review: &AdmissionReview) {
    let (span, request) = (Span::current(), &review.request);
    for (field, said) in [
        ("object.kind", &request.kind.kind),
        ("object.namespace", &request.namespace),
        ("object.name", &request.name),
    ] {
        spans::tell_claim(&span, field, said);
    }
}

async fn validated(
    State(webhooks): State<Webhooks>,
    Extension(admitted): Extension<Admitted>,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let since = Instant::now();
    let review: AdmissionReview = bodies::read(&body)?;
    tell_of(&review);
    let verdict = webhooks.judge.judge(&review.request, &admitted).await;
    Ok(answer(&webhooks, Webhook::Judgement, &review, &verdict, since))
}

async fn mutated(State(webhooks): State<Webhooks>, body: Bytes) -> Result<Json<Value>, Refused> {
    let since = Instant::now();
    let review: AdmissionReview = bodies::read(&body)?;
    tell_of(&review);
    let verdict = mutate::mutate(&review.request);
    Ok(answer(&webhooks, Webhook::Label, &review, &verdict, since))
}

fn answer(
    webhooks: &Webhooks,
    webhook: Webhook,
    review: &AdmissionReview,
    verdict: &Verdict,
    since: Instant,
) -> Json<Value> {
    let operation = review.request.operation.as_str();
    webhooks
        .metrics
        .count(webhook, operation, verdict.outcome(), since);
    Json(verdict.to_review(&review.request.uid))
}

/// The body of an answer to a conversion, and its content type.
type Converted = ([(HeaderName, &'static str); 1], Vec<u8>);

/// Converts types whose versions differ only in name.
async fn copied(
    State(webhooks): State<Webhooks>,
    Extension(admitted): Extension<Admitted>,
    body: Bytes,
) -> Result<Converted, Refused> {
    let rename = |object: &mut Value, desired: &str| {
        object["apiVersion"] = Value::from(desired);
        Ok(())
    };
    convert(&webhooks.metrics, admitted, body, rename).await
}

/// Converts by the changes that a type's charts list.
async fn converted(
    State(webhooks): State<Webhooks>,
    Path((plural, digest)): Path<(String, String)>,
    Extension(admitted): Extension<Admitted>,
    body: Bytes,
) -> Result<Converted, Refused> {
    let conversion = webhooks.conversions.of(&plural, &digest);
    let Ok(conversion) = tokio::time::timeout_at(admitted.until, conversion).await else {
        return Err(Refused::Late(Webhook::Conversion.within()));
    };
    let conversion = conversion.map_err(|error| chain(&error));
    convert(&webhooks.metrics, admitted, body, move |object, desired| {
        let conversion = conversion.as_ref().map_err(Clone::clone)?;
        let version = desired.rsplit_once('/').map_or(desired, |(_, version)| version);
        conversion
            .convert(object, version)
            .map_err(|error| error.to_string())
    })
    .await
}

/// Converts the objects on a blocking thread, because a page of a list takes a while. When the API server stops
/// waiting, the work keeps its room and ends after the current object.
async fn convert(
    metrics: &WebhookMetrics,
    admitted: Admitted,
    body: Bytes,
    convert: impl Fn(&mut Value, &str) -> Result<(), String> + Send + 'static,
) -> Result<Converted, Refused> {
    let since = Instant::now();
    let within = Webhook::Conversion.within();
    let work = move || {
        // Move the whole value: a closure captures only the fields that it uses, and the room is not one of them.
        let admitted = admitted;
        let review: ConversionReview<'_> = bodies::read(&body)?;
        let answer = review.answer(2 * body.len() + SMALL, &|object, desired| {
            if tokio::time::Instant::now() > admitted.until {
                return Err(format!("the objects could not be converted within {within:?}"));
            }
            convert(object, desired)
        });
        // Freed before the answer is written, which would be the third buffer of that size.
        drop(body);
        Ok((answer.is_success(), answer.text()))
    };
    let span = Span::current();
    let work = move || span.in_scope(work);
    let answer = tokio::task::spawn_blocking(work).await.map_err(|error| {
        if error.is_panic() {
            tracing::error!(%error, "a conversion failed because of a bug in core-provider");
            metrics.count(Webhook::Conversion, "convert", ERROR, since);
            return Refused::Failed;
        }
        // The runtime is shutting down.
        Refused::Late(within)
    });
    let (is_success, text) = answer??;
    let outcome = if is_success { "success" } else { ERROR };
    metrics.count(Webhook::Conversion, "convert", outcome, since);
    Ok(([(header::CONTENT_TYPE, "application/json")], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times its size a parsed review takes at most.
    const READ_TAKES: usize = 10;

    #[test]
    fn requests_are_counted_with_the_attributes_of_the_contract() {
        let registry = Metrics::new().unwrap();
        let metrics = WebhookMetrics::new(&registry).unwrap();
        metrics.count(Webhook::Label, "create", "success", Instant::now());
        metrics.count(Webhook::Conversion, "convert", ERROR, Instant::now());
        let text = registry.text().unwrap();
        for line in [
            r#"core_provider_webhook_request_total{operation="create",outcome="success",webhook="mutating"} 1"#,
            r#"core_provider_webhook_request_errors_total{operation="convert",webhook="conversion"} 1"#,
            r#"core_provider_webhook_request_duration_seconds_count{operation="convert",outcome="error",webhook="conversion"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }

    #[test]
    fn the_dashboard_names_only_webhook_metrics_that_exist() {
        const DASHBOARD: &str = include_str!("../../../charts/core-provider/dashboards/compositions.json");
        let registry = Metrics::new().unwrap();
        let _metrics = WebhookMetrics::new(&registry).unwrap();
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let names: Vec<_> = DASHBOARD
            .split(|letter| !is_of_name(letter))
            .filter(|word| word.starts_with("core_provider_"))
            .collect();
        assert!(!names.is_empty());
        for name in names {
            assert!(registry.has(name), "{name} is not exported");
        }
    }

    /// What the program itself takes, including small caches.
    const PROGRAM: usize = 40 << 20;

    #[test]
    fn the_most_memory_that_callers_can_cause_fits_into_the_pod() {
        const VALUES: &str = include_str!("../../../charts/core-provider/values.yaml");
        let (_, own) = VALUES.split_once("\ncoreProvider:").unwrap();
        let (_, limit) = own.split_once("limits: {memory: ").unwrap();
        let (limit, _) = limit.split_once("Mi").unwrap();
        let limit = limit.parse::<usize>().unwrap() << 20;
        // The objects of an answer are in memory together with its text, and may have twice the size of the review.
        let most = REVIEWS.all * READ_TAKES
            + CONVERSIONS.all * 4
            + runtime::connections::Connections::default().most_memory()
            + runtime::connections::Connections::few().most_memory()
            + charts::KEPT_BYTES;
        assert!(most + PROGRAM <= limit, "{} MiB", (most + PROGRAM) >> 20);
    }
}
