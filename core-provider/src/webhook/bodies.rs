//! The bodies of reviews: how large one may be, how long it may take to arrive, and how many bytes of them are held at
//! once. Whoever reaches the port can send any, so that is settled before anything of them is read.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a body may wait for room, and then take to arrive. The API server waits two seconds for a judgement, five for a
/// label and thirty for a conversion.
const WITHIN: Duration = Duration::from_secs(4);

/// What is counted: a semaphore has too few permits for bytes.
const UNIT: usize = 1 << 10;

/// What the bodies of a few routes may have, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// One of them.
    pub(super) one: usize,
    /// All that are held at once: those that arrive, and those that are worked on.
    pub(super) all: usize,
}

/// Why a review is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the review has more than {0} bytes, which is the most that is read")]
    TooLarge(usize),
    #[error("other reviews have the {0} bytes that are held at once: try again")]
    Busy(usize),
    #[error("the review did not arrive within {} seconds", WITHIN.as_secs())]
    Slow,
    #[error("the review is not of the expected form, at line {line} column {column}")]
    Malformed { line: usize, column: usize },
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed { .. } => StatusCode::BAD_REQUEST,
        };
        tracing::debug!(refused = %self, "refused a review");
        (status, self.to_string()).into_response()
    }
}

/// The routes, with bodies of these sizes.
pub(super) fn bounded<S: Clone + Send + Sync + 'static>(routes: Router<S>, sizes: Sizes) -> Router<S> {
    let room = Arc::new(Room {
        sizes,
        left: Semaphore::new(sizes.all / UNIT),
    });
    routes
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(room, hold))
}

/// Reads a review.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, Refused> {
    // What the error says beside the place may quote the review.
    serde_json::from_slice(body).map_err(|error| Refused::Malformed {
        line: error.line(),
        column: error.column(),
    })
}

struct Room {
    sizes: Sizes,
    left: Semaphore,
}

impl Room {
    /// Waits until there is room for a body of the announced size.
    async fn enter(&self, announced: usize) -> Result<SemaphorePermit<'_>, Refused> {
        let Sizes { one, all } = self.sizes;
        let units = u32::try_from(announced.min(one).div_ceil(UNIT)).unwrap_or(u32::MAX);
        match tokio::time::timeout(WITHIN, self.left.acquire_many(units)).await {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Refused::Busy(all)),
        }
    }
}

async fn hold(State(room): State<Arc<Room>>, request: Request, next: Next) -> Response {
    match arrived(&room, request).await {
        Ok((request, _place)) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

async fn arrived(room: &Room, request: Request) -> Result<(Request, SemaphorePermit<'_>), Refused> {
    let most = room.sizes.one;
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let announced: usize = announced.unwrap_or(most);
    if announced > most {
        return Err(Refused::TooLarge(most));
    }
    let place = room.enter(announced).await?;
    let (head, body) = request.into_parts();
    // More than is announced does not arrive: HTTP sees to that.
    let body = match tokio::time::timeout(WITHIN, to_bytes(body, most)).await {
        Ok(body) => body.map_err(|_| Refused::TooLarge(most))?,
        Err(_) => return Err(Refused::Slow),
    };
    Ok((Request::from_parts(head, Body::from(body)), place))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::routing::post;
    use futures::stream;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;

    const SIZES: Sizes = Sizes {
        one: 4 * UNIT,
        all: 6 * UNIT,
    };

    fn length() -> Router {
        bounded(
            Router::new().route("/", post(async |body: Bytes| body.len().to_string())),
            SIZES,
        )
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
    async fn a_body_above_the_limit_is_refused_whether_it_says_so_or_not() {
        let body = |size: usize| Body::from(vec![b'x'; size]);
        let refused = (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the review has more than 4096 bytes, which is the most that is read".to_owned(),
        );
        let most = SIZES.one;
        assert_eq!(
            answer(length(), request(body(most), Some(most))).await,
            (StatusCode::OK, most.to_string())
        );
        assert_eq!(answer(length(), request(body(0), Some(most + 1))).await, refused);
        assert_eq!(answer(length(), request(body(most + 1), None)).await, refused);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_worked_on_takes_room_that_others_wait_for() {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (begun.clone(), go_on.clone());
        let handler = async move |_: Bytes| {
            tell.notify_one();
            wait.notified().await;
        };
        let routes = bounded(Router::new().route("/", post(handler)), SIZES);
        let ask = || answer(routes.clone(), request(Body::from("x"), Some(SIZES.one)));
        let first = tokio::spawn(ask());
        begun.notified().await;
        // 2 KiB are left, and 4 are wanted.
        let (status, text) = ask().await;
        assert_eq!(
            (status, text.as_str()),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "other reviews have the 6144 bytes that are held at once: try again"
            )
        );
        let third = tokio::spawn(ask());
        go_on.notify_one();
        assert_eq!(first.await.unwrap().0, StatusCode::OK);
        begun.notified().await;
        go_on.notify_one();
        assert_eq!(third.await.unwrap().0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_not_waited_for() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let (status, text) = answer(length(), request(body, Some(10))).await;
        assert_eq!(
            (status, text.as_str()),
            (
                StatusCode::REQUEST_TIMEOUT,
                "the review did not arrive within 4 seconds"
            )
        );
    }

    #[test]
    fn nothing_of_what_cannot_be_read_is_told() {
        let body = Bytes::from_static(br#"{"uid": {"a": "hunter2"}}"#);
        let refused = read::<std::collections::BTreeMap<String, u8>>(&body).unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
