//! Limits on the bodies of reviews: their size, the time they may take to arrive, and how many bytes of them are in
//! memory at once. Anyone who reaches the port can send anything, so the limits are enforced before a body is parsed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::WebhookMetrics;
use super::deadlines::Webhook;

/// The unit of the semaphore, which has too few permits to count bytes.
const UNIT: usize = 1 << 10;

/// Size limits for the bodies of some routes, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// The most for one body.
    pub(super) one: usize,
    /// The most for all bodies in memory: those that are arriving, and those being processed.
    pub(super) all: usize,
}

/// Why a review was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the review has more than the {} that are accepted: {}", Size(*.most), remedy(*.webhook))]
    TooLarge { webhook: Webhook, most: usize },
    #[error(
        "other reviews take up all of the {} for reviews in memory, and there was no room within {:?}: try again",
        Size(*.all),
        .within
    )]
    Busy { all: usize, within: Duration },
    #[error(
        "the review did not arrive within {0:?}: check whether the network between API server and core-provider is slow"
    )]
    Slow(Duration),
    #[error("the connection broke before the review had arrived: try again")]
    Broken,
    #[error("the review is not of the expected form, at line {line} column {column}")]
    Malformed { line: usize, column: usize },
    #[error("the review could not be answered within {0:?}: try again")]
    Late(Duration),
    #[error(
        "the objects could not be converted because of a bug in core-provider, which its log describes: please report it"
    )]
    Failed,
}

/// What to do about an object or a list that is too large.
fn remedy(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::Judgement | Webhook::Label => "make the object smaller",
        Webhook::Conversion => "list with a smaller limit",
    }
}

/// A number of bytes in readable form.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 20 {
            0 => write!(f, "{} KiB", self.0 >> 10),
            whole => write!(f, "{whole} MiB"),
        }
    }
}

impl Refused {
    /// The name in metrics.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Busy { .. } => "busy",
            Self::Slow(_) => "slow",
            Self::Broken => "broken",
            Self::Malformed { .. } => "malformed",
            Self::Late(_) => "late",
            Self::Failed => "failed",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy { .. } | Self::Late(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Broken | Self::Malformed { .. } => StatusCode::BAD_REQUEST,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        tracing::debug!(refused = %self, "refused a review");
        let mut response = (self.status(), self.to_string()).into_response();
        // The middleware `hold` counts it.
        response.extensions_mut().insert(self);
        response
    }
}

/// An admitted review: its deadline, and its room, which is held as long as a clone of this exists. Work that continues
/// after the caller has stopped waiting keeps a clone.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) until: Instant,
    _room: Arc<OwnedSemaphorePermit>,
}

/// Room for the bodies of reviews.
#[derive(Clone)]
pub(super) struct Room {
    sizes: Sizes,
    left: Arc<Semaphore>,
    metrics: WebhookMetrics,
}

/// Adds the limits to the routes of a webhook: bodies need room, and have to arrive before its deadline.
pub(super) fn bounded<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    webhook: Webhook,
    room: &Room,
) -> Router<S> {
    routes
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state((webhook, room.clone()), hold))
}

/// Reads a review.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, Refused> {
    // Only the position is kept, because the error's text may quote the review.
    serde_json::from_slice(body).map_err(|error| Refused::Malformed {
        line: error.line(),
        column: error.column(),
    })
}

impl Room {
    /// Room of these sizes; `metrics` counts refused reviews.
    pub(super) fn new(sizes: Sizes, metrics: WebhookMetrics) -> Self {
        Self {
            sizes,
            left: Arc::new(Semaphore::new(sizes.all / UNIT)),
            metrics,
        }
    }

    /// Waits until there is room for a body of the announced size.
    async fn enter(&self, announced: usize) -> Option<OwnedSemaphorePermit> {
        let units = announced.min(self.sizes.one).div_ceil(UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.left.clone().acquire_many_owned(units).await.ok()
    }

    async fn admit(&self, webhook: Webhook, request: Request) -> Result<(Request, Admitted), Refused> {
        let within = webhook.within();
        let until = Instant::now() + within;
        let Sizes { one: most, all } = self.sizes;
        let too_large = Refused::TooLarge { webhook, most };
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
        let announced: usize = announced.unwrap_or(most);
        if announced > most {
            return Err(too_large);
        }
        let Ok(Some(room)) = tokio::time::timeout_at(until, self.enter(announced)).await else {
            return Err(Refused::Busy { all, within });
        };
        let (mut head, body) = request.into_parts();
        // The HTTP server does not deliver more than was announced.
        let body = match tokio::time::timeout_at(until, to_bytes(body, most)).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                let is_too_long = error.into_inner().is::<LengthLimitError>();
                return Err(if is_too_long { too_large } else { Refused::Broken });
            }
            Err(_) => return Err(Refused::Slow(within)),
        };
        let admitted = Admitted {
            until,
            _room: Arc::new(room),
        };
        head.extensions.insert(admitted.clone());
        Ok((Request::from_parts(head, Body::from(body)), admitted))
    }
}

/// An answer together with the room of its review, which is freed once the answer is sent.
struct Answer {
    text: Bytes,
    _admitted: Admitted,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Makes the answer hold the room until all of it is sent, because the answer to a conversion is as large as the
/// review.
async fn holding(response: Response, admitted: Admitted) -> Response {
    let (head, body) = response.into_parts();
    // The body is in memory in one piece, so this neither fails nor copies.
    let text = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let answer = Answer {
        text,
        _admitted: admitted,
    };
    Response::from_parts(head, Body::from(Bytes::from_owner(answer)))
}

async fn hold(State((webhook, room)): State<(Webhook, Room)>, request: Request, next: Next) -> Response {
    let response = match room.admit(webhook, request).await {
        Ok((request, admitted)) => holding(next.run(request).await, admitted).await,
        Err(refused) => refused.into_response(),
    };
    if let Some(refused) = response.extensions().get::<Refused>() {
        room.metrics.refuse(webhook, *refused);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::extract::Extension;
    use axum::routing::post;
    use futures::stream;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::super::convert;
    use super::*;

    const SIZES: Sizes = Sizes {
        one: 4 * UNIT,
        all: 6 * UNIT,
    };

    fn room() -> Room {
        let metrics = runtime::Metrics::new().unwrap();
        Room::new(SIZES, WebhookMetrics::new(&metrics).unwrap())
    }

    fn length(webhook: Webhook) -> Router {
        let routes = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        bounded(routes, webhook, &room())
    }

    fn request(body: Body, announced: Option<usize>) -> Request {
        let request = Request::post("/");
        let request = match announced {
            Some(announced) => request.header(header::CONTENT_LENGTH, announced),
            None => request,
        };
        request.body(body).unwrap()
    }

    async fn answer(routes: Router, request: Request) -> (StatusCode, String) {
        let answer = routes.oneshot(request).await.unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_body_above_the_limit_is_refused_with_or_without_an_announced_length() {
        let body = |size: usize| Body::from(vec![b'x'; size]);
        let refused = (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the review has more than the 4 KiB that are accepted: make the object smaller".to_owned(),
        );
        let most = SIZES.one;
        assert_eq!(
            answer(length(Webhook::Label), request(body(most), Some(most))).await,
            (StatusCode::OK, most.to_string())
        );
        assert_eq!(
            answer(length(Webhook::Label), request(body(0), Some(most + 1))).await,
            refused
        );
        assert_eq!(
            answer(length(Webhook::Label), request(body(most + 1), None)).await,
            refused
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_being_processed_takes_room_that_others_wait_for() {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (begun.clone(), go_on.clone());
        let handler = async move |_: Bytes| {
            tell.notify_one();
            wait.notified().await;
        };
        let routes = Router::new().route("/", post(handler));
        let routes = bounded(routes, Webhook::Label, &room());
        let ask = || answer(routes.clone(), request(Body::from("x"), Some(SIZES.one)));
        let first = tokio::spawn(ask());
        begun.notified().await;
        // 2 KiB are left, and 4 are needed.
        let (status, text) = ask().await;
        assert_eq!(
            (status, text.as_str()),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "other reviews take up all of the 6 KiB for reviews in memory, and there was no room within 4s: try again"
            )
        );
        let third = tokio::spawn(ask());
        go_on.notify_one();
        assert_eq!(first.await.unwrap().0, StatusCode::OK);
        begun.notified().await;
        go_on.notify_one();
        assert_eq!(third.await.unwrap().0, StatusCode::OK);
    }

    /// A body of that many bytes, one per second.
    fn slow(bytes: usize) -> Body {
        let dribble = stream::unfold(bytes, async |left| {
            let left = left.checked_sub(1)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), left))
        });
        Body::from_stream(dribble)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_waited_for_as_long_as_the_api_server_waits() {
        let (status, text) = answer(length(Webhook::Label), request(slow(20), Some(20))).await;
        assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
        assert!(
            text.starts_with("the review did not arrive within 4s: "),
            "{text}"
        );
        let converted = answer(length(Webhook::Conversion), request(slow(20), Some(20))).await;
        assert_eq!(converted, (StatusCode::OK, "20".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_room_leaves_less_time_to_arrive() {
        let room = room();
        let routes = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        let routes = bounded(routes, Webhook::Label, &room);
        let all = room.enter(SIZES.one).await;
        let asked = tokio::spawn(answer(routes, request(slow(3), Some(SIZES.one))));
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(all);
        assert_eq!(asked.await.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn a_broken_body_is_not_reported_as_too_large_and_is_counted() {
        let metrics = runtime::Metrics::new().unwrap();
        let room = Room::new(SIZES, WebhookMetrics::new(&metrics).unwrap());
        let routes = Router::new().route("/", post(async |_: Bytes| ()));
        let broken = stream::iter([Ok(Bytes::from_static(b"x")), Err(std::io::Error::other("gone"))]);
        let request = request(Body::from_stream(broken), Some(10));
        let (status, text) = answer(bounded(routes, Webhook::Label, &room), request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.starts_with("the connection broke"), "{text}");
        let counted = r#"core_provider_webhook_request_refused_total{reason="broken",webhook="mutating"} 1"#;
        let text = metrics.text().unwrap();
        assert!(text.contains(counted), "{text}");
    }

    #[tokio::test]
    async fn an_answer_takes_room_until_it_is_sent() {
        let room = room();
        let routes = Router::new().route("/", post(async |body: Bytes| body));
        let routes = bounded(routes, Webhook::Conversion, &room);
        let answer = routes.oneshot(request(Body::from("x"), Some(SIZES.one)));
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let text = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        assert_eq!(room.left.available_permits(), 2);
        drop(text);
        assert_eq!(room.left.available_permits(), SIZES.all / UNIT);
    }

    const CONVERSION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "request": {
        "uid": "u", "desiredAPIVersion": "g/v2", "objects": [{"apiVersion": "g/v1", "metadata": {}}]}}"#;

    #[tokio::test]
    async fn an_abandoned_conversion_keeps_its_room_until_it_ends() {
        let room = room();
        let all = SIZES.all / UNIT;
        let (tell, begun) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let metrics = room.metrics.clone();
        let handler = async move |Extension(admitted): Extension<Admitted>, body: Bytes| {
            let work = move |_: &mut serde_json::Value, _: &str| {
                tell.send(()).unwrap();
                wait.lock().unwrap().recv().unwrap();
                Ok(())
            };
            convert(&metrics, admitted, body, work).await.map(|_| ())
        };
        let routes = bounded(
            Router::new().route("/", post(handler)),
            Webhook::Conversion,
            &room,
        );
        let asked = tokio::spawn(answer(routes, request(Body::from(CONVERSION), Some(UNIT))));
        let begun = tokio::task::spawn_blocking(move || begun.recv());
        begun.await.unwrap().unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        assert_eq!(room.left.available_permits(), all - 1);
        go_on.send(()).unwrap();
        let _all = room.left.acquire_many(u32::try_from(all).unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_in_a_conversion_is_not_reported_as_a_timeout() {
        let room = room();
        let metrics = room.metrics.clone();
        let handler = async move |Extension(admitted): Extension<Admitted>, body: Bytes| {
            convert(&metrics, admitted, body, |_, _| panic!("no")).await
        };
        let routes = Router::new().route("/", post(handler));
        let routes = bounded(routes, Webhook::Conversion, &room);
        let (status, text) = answer(routes, request(Body::from(CONVERSION), Some(UNIT))).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(
            text.starts_with("the objects could not be converted because of a bug"),
            "{text}"
        );
    }

    #[test]
    fn a_parse_error_quotes_nothing_of_the_review() {
        let body = Bytes::from_static(br#"{"uid": {"a": "hunter2"}}"#);
        let refused = read::<std::collections::BTreeMap<String, u8>>(&body).unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
