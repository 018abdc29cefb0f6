//! The HTTP side: a query in, a list of objects out.

use std::sync::Arc;
use std::time::Duration;

use api::inspection::{Query, Resource};
use axum::extract::rejection::QueryRejection;
use axum::extract::{self, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use helm_client::rendering;
use runtime::chain;

use crate::callers::Callers;
use crate::document;
use crate::inspector::{self, Inspector};

/// Longest time for one answer; the reference's write timeout.
const TIMEOUT: Duration = Duration::from_secs(50);

/// What answers.
pub(crate) struct Service {
    pub(crate) inspector: Inspector,
    /// Who may call; everybody when none.
    pub(crate) callers: Option<Callers>,
}

/// The routes of chart-inspector, probes aside.
pub(crate) fn app(service: Arc<Service>) -> Router {
    Router::new()
        .route("/resources", get(resources))
        .with_state(service)
        .merge(document::routes())
}

/// When to ask again that found all places taken.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// Why there are no objects, as text.
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

/// 200 and the objects; 400 when the query lacks something; 401 and 403 when the caller may not ask; 503 with
/// `Retry-After` when too many charts are being rendered; 500 for anything else, with the reason as text.
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
    if let Some(callers) = &service.callers {
        let token = bearer(&headers);
        if let Err(refused) = callers.check(token, &query).await {
            tracing::info!(refused = chain(&refused), "refused a caller");
            return Err(Refused::new(refused.status(), chain(&refused)));
        }
    }
    let name = format!("{}/{}", query.composition_namespace, query.composition_name);
    match tokio::time::timeout(TIMEOUT, service.inspector.inspect(&query)).await {
        Ok(Ok(resources)) => {
            tracing::debug!(composition = name, objects = resources.len(), "inspected");
            Ok(Json(resources))
        }
        Ok(Err(error)) => {
            let said = chain(&error);
            tracing::warn!(composition = name, error = said, "could not inspect");
            Err(Refused::new(status(&error), said))
        }
        Err(_) => Err(Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("no answer within {TIMEOUT:?}"),
        )),
    }
}

fn status(error: &inspector::Error) -> StatusCode {
    match error {
        inspector::Error::Inspect(inspection::Error::Render(rendering::Error::Busy(_))) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
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
