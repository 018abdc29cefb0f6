//! Probes and metrics over HTTP: `/healthz`, `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Metrics;

/// How long `/readyz` waits for a process that is not ready yet: less than the second after which a kubelet gives up.
/// Answered at once, a probe that comes while a process starts would only be repeated at its next period.
const READY_WITHIN: Duration = Duration::from_millis(700);

/// Whether the process can do its work, reported by `/readyz`; not ready at first. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<watch::Sender<bool>>);

impl Readiness {
    /// Sets the readiness.
    pub fn set(&self, ready: bool) {
        self.0.send_replace(ready);
    }

    /// Whether the process is ready.
    pub fn is_ready(&self) -> bool {
        *self.0.borrow()
    }

    /// Whether the process is ready now, or becomes ready in this time.
    async fn is_ready_within(&self, time: Duration) -> bool {
        let mut ready = self.0.subscribe();
        let becomes = timeout(time, ready.wait_for(|ready| *ready)).await;
        becomes.is_ok_and(|ready| ready.is_ok())
    }
}

/// The four endpoints; a program may add its own.
pub fn router(readiness: Readiness, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(figures).with_state(metrics))
}

async fn ready(State(readiness): State<Readiness>) -> Response {
    if readiness.is_ready_within(READY_WITHIN).await {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready").into_response()
    }
}

async fn figures(State(metrics): State<Metrics>) -> Response {
    const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_lives_from_the_start_and_is_ready_when_it_says_so() {
        let readiness = Readiness::default();
        let router = router(readiness.clone(), Metrics::new().unwrap());
        for path in ["/healthz", "/livez"] {
            assert_eq!(get(&router, path).await, (StatusCode::OK, "ok".to_owned()));
        }
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        readiness.set(true);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
        assert_eq!(get(&router, "/else").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_waits_for_a_process_that_is_starting() {
        let readiness = Readiness::default();
        let router = router(readiness.clone(), Metrics::new().unwrap());
        let started = async {
            tokio::time::sleep(READY_WITHIN / 2).await;
            readiness.set(true);
        };
        let (answer, ()) = tokio::join!(get(&router, "/readyz"), started);
        assert_eq!(answer.0, StatusCode::OK);
        readiness.set(false);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn metrics_are_served_as_text() {
        let metrics = Metrics::new().unwrap();
        metrics.set_leading("leader", false);
        let (status, text) = get(&router(Readiness::default(), metrics), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            text.contains("leader_election_master_status{name=\"leader\"} 0"),
            "{text}"
        );
    }
}
