//! The HTTP interface: a query in, a list of objects out.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use api::inspection::{Query, Resource};
use axum::extract::rejection::QueryRejection;
use axum::extract::{self, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use helm_client::rendering;
use prometheus::{IntCounterVec, Opts};
use runtime::{Metrics, chain, spans};
use tokio::sync::Semaphore;
use tracing::Span;

use crate::callers::Callers;
use crate::document;
use crate::inspector::Inspector;

/// Timeout of one answer; the same as the write timeout of Krateo's chart-inspector.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(50);

/// The longest query that is accepted, in bytes. All its names together have less than two thousand.
const LONGEST_QUERY: usize = 8 << 10;

/// How many callers are answered at once. Most of them wait for their namespace's turn to render, so the limit is
/// higher than what a few namespaces can have waiting. Refused callers do not count.
const MAX_ANSWERING: usize = 512;

/// The state of the HTTP service.
pub(crate) struct Service {
    pub(crate) inspector: Inspector,
    /// Checks callers; none when everybody may call.
    pub(crate) callers: Option<Callers>,
    answering: Semaphore,
    refused: IntCounterVec,
}

impl Service {
    /// Registers the metric of refused queries.
    pub(crate) fn new(
        inspector: Inspector,
        callers: Option<Callers>,
        metrics: &Metrics,
    ) -> Result<Self, prometheus::Error> {
        let refused = IntCounterVec::new(
            Opts::new(
                "chart_inspector_refused_total",
                "Queries that were answered without objects, by the status of the answer",
            ),
            &["code"],
        )?;
        metrics.register(refused.clone())?;
        Ok(Self {
            inspector,
            callers,
            answering: Semaphore::new(MAX_ANSWERING),
            refused,
        })
    }
}

/// The routes of chart-inspector, without the probes.
pub(crate) fn app(service: Arc<Service>) -> Router {
    Router::new()
        .route("/resources", get(resources))
        .layer(middleware::from_fn(short))
        .layer(middleware::from_fn_with_state(service.clone(), count))
        .layer(middleware::from_fn(spanned))
        .with_state(service)
        .merge(document::routes())
}

/// Answers in a span for the request, within the caller's trace if the request names one.
async fn spanned(request: Request, next: Next) -> Response {
    spans::serve("/resources", request, next).await
}

/// Adds the composition that the caller names to every log line.
fn tell_of(query: &Query) {
    let span = Span::current();
    spans::tell_claim(&span, "object.namespace", &query.composition_namespace);
    spans::tell_claim(&span, "object.name", &query.composition_name);
    let definition = format!(
        "{}/{}",
        query.composition_definition_namespace, query.composition_definition_name
    );
    spans::tell_claim(&span, "definition", &definition);
    let type_ = format!(
        "{}.{}.{}",
        query.composition_resource, query.composition_version, query.composition_group
    );
    spans::tell_claim(&span, "type", &type_);
    if let Some(release) = &query.release_name {
        spans::tell_claim(&span, "release", release);
    }
}

/// Counts the answers without objects.
async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    if !status.is_success() {
        service.refused.with_label_values(&[status.as_str()]).inc();
    }
    response
}

/// Answers 414 to a query that is too long.
async fn short(request: Request, next: Next) -> Result<Response, Refused> {
    let length = request.uri().query().map_or(0, str::len);
    if length > LONGEST_QUERY {
        let why = format!(
            "the query has {length} bytes, more than the {LONGEST_QUERY} that are accepted: send only the names"
        );
        return Err(Refused::new(StatusCode::URI_TOO_LONG, why));
    }
    Ok(next.run(request).await)
}

/// When a caller that found the service busy should ask again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// An answer without objects, with the reason as text.
struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    fn new(status: StatusCode, why: String) -> Self {
        Self { status, why }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.why).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

/// Answers 200 and the objects; 400 when the query lacks a parameter; 401 and 403 when the caller may not ask; 503 with
/// `Retry-After` when too many ask at once, too many charts are being rendered or the answer takes too long; 500 for
/// anything else, with the reason as text.
async fn resources(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    query: Result<extract::Query<Query>, QueryRejection>,
) -> Result<Json<Vec<Resource>>, Refused> {
    let extract::Query(query) =
        query.map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.body_text()))?;
    if let Some(name) = empty_parameter(&query) {
        let why = format!("query parameter {name} is empty");
        return Err(Refused::new(StatusCode::BAD_REQUEST, why));
    }
    tell_of(&query);
    if let Some(callers) = &service.callers {
        let token = bearer(&headers);
        if let Err(refused) = callers.check(token, &query).await {
            tracing::info!(refused = chain(&refused), "refused a caller");
            return Err(Refused::new(refused.status(), chain(&refused)));
        }
    }
    let Ok(_answering) = service.answering.try_acquire() else {
        let busy = format!("{MAX_ANSWERING} others are being answered: try again");
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, busy));
    };
    let name = format!("{}/{}", query.composition_namespace, query.composition_name);
    match tokio::time::timeout(ANSWER_TIMEOUT, service.inspector.inspect(&query)).await {
        Ok(Ok(resources)) => {
            tracing::debug!(composition = name, objects = resources.len(), "inspected");
            Ok(Json(resources))
        }
        Ok(Err(error)) => {
            let said = chain(&error);
            spans::failed(&said);
            tracing::warn!(composition = name, error = said, "could not inspect");
            Err(Refused::new(status(&error), said))
        }
        Err(_) => Err(Refused::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("no answer within {ANSWER_TIMEOUT:?}: try again"),
        )),
    }
}

/// 503 when a limit on concurrent work was reached, wherever in the chain of causes; otherwise 500.
fn status(error: &(dyn Error + 'static)) -> StatusCode {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let is_busy = |cause: &(dyn Error + 'static)| {
        // This variant is transparent, so its `Busy` is not among the causes.
        let render = cause.downcast_ref::<rendering::Error>();
        cause.is::<rendering::Busy>() || matches!(render, Some(rendering::Error::Busy(_)))
    };
    if causes.any(is_busy) {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// The token of an `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn empty_parameter(query: &Query) -> Option<&'static str> {
    [
        ("compositionName", &query.composition_name),
        ("compositionNamespace", &query.composition_namespace),
        ("compositionVersion", &query.composition_version),
        ("compositionResource", &query.composition_resource),
        ("compositionDefinitionName", &query.composition_definition_name),
        (
            "compositionDefinitionNamespace",
            &query.composition_definition_namespace,
        ),
    ]
    .into_iter()
    .find(|(_, value)| value.is_empty())
    .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use charts::Charts;
    use charts::source::Limits;
    use cluster::Cluster;
    use cluster::scripted::Script;
    use helm_client::release;
    use tower::ServiceExt as _;

    use super::*;
    use crate::definitions::Definitions;
    use crate::inspector;

    const QUERY: &str = "compositionName=web&compositionNamespace=shop&compositionVersion=v1-0-0\
        &compositionResource=webs&compositionDefinitionName=d&compositionDefinitionNamespace=s";

    fn service(script: &Script) -> Arc<Service> {
        service_of(&script.cluster())
    }

    fn service_of(cluster: &Cluster) -> Arc<Service> {
        let inspector = Inspector {
            cluster: cluster.clone(),
            charts: Charts::new(cluster.clone(), Limits::default()),
            schemas: composition::Schemas::default(),
            krateo_namespace: "krateo-system".to_owned(),
            definitions: Definitions::default(),
        };
        Arc::new(Service::new(inspector, None, &Metrics::new().unwrap()).unwrap())
    }

    /// How many answers without objects had this status.
    fn counted(service: &Service, status: StatusCode) -> u64 {
        service.refused.with_label_values(&[status.as_str()]).get()
    }

    async fn ask(service: &Arc<Service>, query: &str) -> (StatusCode, String) {
        let request = Request::get(format!("/resources?{query}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = app(service.clone()).oneshot(request).await.unwrap();
        let status = answer.status();
        let again = answer.headers().contains_key(header::RETRY_AFTER);
        assert_eq!(again, status == StatusCode::SERVICE_UNAVAILABLE);
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_long_query_is_not_read() {
        let service = service(&Script::new("no request"));
        let long = format!("{QUERY}&releaseName={}", "x".repeat(LONGEST_QUERY));
        let (status, text) = ask(&service, &long).await;
        assert_eq!(status, StatusCode::URI_TOO_LONG);
        assert!(text.contains("more than the 8192 that are accepted"), "{text}");
        assert_eq!(counted(&service, status), 1);
    }

    #[test]
    fn a_caller_is_told_to_retry_whichever_limit_was_reached() {
        let busy = || rendering::Busy::Ending;
        let check = |error: inspection::Error, expected: StatusCode| {
            assert_eq!(status(&inspector::Error::Inspect(error)), expected);
        };
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        check(rendering::Error::Busy(busy()).into(), unavailable);
        check(release::Error::Busy(busy()).into(), unavailable);
        check(
            release::Error::NoRelease.into(),
            StatusCode::INTERNAL_SERVER_ERROR,
        );
    }

    #[tokio::test]
    async fn the_number_of_concurrent_answers_is_limited() {
        let script = Script::new("served").from_then_on(|_, _, _| (404, serde_json::json!({})));
        let service = service(&script);
        let all = u32::try_from(MAX_ANSWERING).unwrap();
        let held = service.answering.acquire_many(all).await.unwrap();
        let (status, text) = ask(&service, QUERY).await;
        assert_eq!(
            (status, text.as_str()),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "512 others are being answered: try again"
            )
        );
        assert_eq!(counted(&service, status), 1);
        drop(held);
        assert_eq!(ask(&service, QUERY).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_told_to_retry_after_a_timeout() {
        let silent = tower::service_fn(|_: axum::http::Request<kube::client::Body>| {
            std::future::pending::<Result<axum::http::Response<kube::client::Body>, kube::Error>>()
        });
        let service = service_of(&Cluster::new(kube::Client::new(silent, "default")));
        let (status, text) = ask(&service, QUERY).await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "no answer within 50s: try again")
        );
    }

    /// What the program itself takes, including small caches.
    const PROGRAM: usize = 40 << 20;

    #[test]
    fn the_most_memory_that_callers_can_cause_fits_into_the_pod() {
        const VALUES: &str = include_str!("../../charts/core-provider/values.yaml");
        let (_, own) = VALUES.split_once("\nchartInspector:").unwrap();
        let (_, limit) = own.split_once("limits: {memory: ").unwrap();
        let (limit, _) = limit.split_once("Mi").unwrap();
        let limit = limit.parse::<usize>().unwrap() << 20;
        let most = helm_client::rendering::most_memory(MAX_ANSWERING)
            + runtime::connections::Connections::default().most_memory()
            + charts::KEPT_BYTES;
        assert!(most + PROGRAM <= limit, "{} MiB", (most + PROGRAM) >> 20);
    }
}
