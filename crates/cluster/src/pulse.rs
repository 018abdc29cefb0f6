//! Tracks when data of a watch last arrived.
//!
//! Servers send a bookmark about once a minute, so silence means more than that no object changes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Bytes;
use kube::client::Body;
use tower::{Layer, Service};

/// When data of a watch last arrived; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// How long watches have been silent; `None` when no data ever arrived.
    pub fn silent_for(&self) -> Option<Duration> {
        self.lock().map(|at| at.elapsed())
    }

    fn beat(&self) {
        *self.lock() = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for the request of a watch.
pub(crate) fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

/// A layer that has a pulse track the watches of a service.
#[derive(Clone)]
pub(crate) struct Hearing(pub(crate) Pulse);

impl<S> Layer<S> for Hearing {
    type Service = Heard<S>;

    fn layer(&self, inner: S) -> Heard<S> {
        let Self(pulse) = self;
        Heard {
            inner,
            pulse: pulse.clone(),
        }
    }
}

/// A service whose watches are tracked.
#[derive(Clone)]
pub(crate) struct Heard<S> {
    inner: S,
    pulse: Pulse,
}

impl<S, B> Service<Request<Body>> for Heard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<HeardBody<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pulse = is_watch(request.uri()).then(|| self.pulse.clone());
        let answering = self.inner.call(request);
        async move {
            let answer = answering.await?;
            // The body of a refusal is no data of a watch.
            let pulse = pulse.filter(|_| answer.status().is_success());
            Ok(answer.map(|body| HeardBody { body, pulse }))
        }
        .boxed()
    }
}

pub(crate) struct HeardBody<B> {
    body: B,
    /// Notified when data arrives.
    pulse: Option<Pulse>,
}

impl<B> HttpBody for HeardBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let has_come = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| !data.is_empty());
        if let (Some(pulse), Some(Ok(frame))) = (&self.pulse, &frame)
            && has_come(frame)
        {
            pulse.beat();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::StatusCode;

    use super::*;

    /// Reads the whole answer to a request.
    async fn read(pulse: &Pulse, path: &str) {
        let mut service = Hearing(pulse.clone()).layer(tower::service_fn(async |request: Request<Body>| {
            let words = if request.uri().path() == "/silent" {
                ""
            } else {
                "{}\n"
            };
            let mut answer = Response::new(Body::from(words.as_bytes().to_vec()));
            if request.uri().path() == "/refused" {
                *answer.status_mut() = StatusCode::GONE;
            }
            Ok::<_, Infallible>(answer)
        }));
        let asked = service.call(Request::get(path).body(Body::empty()).unwrap());
        let mut body = asked.await.unwrap().into_body();
        while std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context))
            .await
            .is_some()
        {}
    }

    #[tokio::test]
    async fn a_watch_that_says_something_is_heard_and_no_other_answer_is() {
        let pulse = Pulse::default();
        for unheard in ["/version", "/refused?watch=true", "/silent?watch=true"] {
            read(&pulse, unheard).await;
            assert_eq!(pulse.silent_for(), None, "{unheard}");
        }
        read(&pulse, "/api/v1/pods?limit=1&watch=true").await;
        assert!(pulse.silent_for().is_some());
    }
}
