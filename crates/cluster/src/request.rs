//! Sends one request to the API server and reads its answer.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::item;
use crate::{Attempt, Discovery, Error, Failure, ObjectId, Served};

/// Longer than the API server's own limit of 60 seconds, so that its answer arrives in any case.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

/// Longest pause before a request that was turned away is repeated.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connection to an API server, and its cached discovery; cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) transport: Transport,
    discovery: Arc<Discovery>,
}

impl Cluster {
    /// Uses `client`; discovery is requested when first needed.
    pub fn new(client: Client) -> Self {
        let transport = Transport {
            client,
            timeout: REQUEST_TIMEOUT,
            fence: None,
        };
        Self {
            discovery: Arc::new(Discovery::new(transport.clone())),
            transport,
        }
    }

    /// Like [`Cluster::new`] with given discovery data, for tests that are not about discovery.
    pub fn with_served(client: Client, served: Served) -> Self {
        let cluster = Self::new(client);
        cluster.discovery.remember(served);
        cluster
    }

    /// The same, but refuses writes once the fence is down. The kube client itself is not affected.
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.transport.fence = Some(fence);
        self
    }

    /// The kube client, for watches and typed `Api`s.
    pub fn client(&self) -> Client {
        self.transport.client.clone()
    }

    /// What the server serves.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// The object that a manifest describes, its kind looked up by `apiVersion` and `kind`; `namespace` applies when
    /// the manifest has none.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`], [`Error::Unaddressable`], [`Error::Discover`].
    pub async fn locate(&self, manifest: &Value, namespace: Option<&str>) -> Result<ObjectId, Error> {
        let resource = self.discovery.resource_of(manifest).await?;
        ObjectId::in_manifest(resource, manifest, namespace)
    }

    pub(crate) async fn about(
        &self,
        id: &ObjectId,
        attempt: Attempt,
        call: Call,
    ) -> Result<(StatusCode, Value), Error> {
        self.transport.send(call).await.map_err(|failure| {
            let source = if id.resource().is_secret() {
                failure.without_content()
            } else {
                failure
            };
            Error::Request {
                attempt,
                object: Box::new(id.clone()),
                source,
            }
        })
    }
}

/// Whether this process may still write: checked right before every request that is not a read. Cheap to clone.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// A fence that holds while `may_write` returns true.
    pub fn new(may_write: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_write))
    }

    /// True while writing is allowed.
    pub fn holds(&self) -> bool {
        (self.0)()
    }
}

/// The connection, and the time limit for one request.
#[derive(Clone)]
pub(crate) struct Transport {
    client: Client,
    timeout: Duration,
    fence: Option<Fence>,
}

impl Transport {
    /// Sends one request and reads its JSON answer.
    pub(crate) async fn send(&self, call: Call) -> Result<(StatusCode, Value), Failure> {
        let metadata_suffices = call.metadata_suffices;
        let (status, body) = self.ask(call).await?;
        if !metadata_suffices {
            let value = serde_json::from_slice(&body).map_err(Failure::unreadable)?;
            return Ok((status, value));
        }
        let raw: &RawValue = serde_json::from_slice(&body).map_err(Failure::unreadable)?;
        let whole = match item::too_large(raw) {
            Some(why) => Err(Failure::UnreadableItem(why)),
            None => serde_json::from_str(raw.get()).map_err(Failure::unreadable),
        };
        match whole {
            Ok(value) => Ok((status, value)),
            Err(failure @ Failure::UnreadableItem(_)) => {
                let head = item::head(raw).ok_or(failure)?;
                let head = serde_json::from_str(head.get()).map_err(Failure::unreadable)?;
                Ok((status, head))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Sends one request and returns the raw answer.
    pub(crate) async fn send_for_bytes(&self, call: Call) -> Result<Vec<u8>, Failure> {
        let (_, body) = self.ask(call).await?;
        Ok(body)
    }

    /// Sends one request.
    ///
    /// If the server turns the request away because it is busy (429, nothing done yet), it is repeated, twice, when
    /// the server says, but within a second at most: a sleeping worker is useless.
    async fn ask(&self, call: Call) -> Result<(StatusCode, Vec<u8>), Failure> {
        let mut patience = [Duration::from_millis(100), Duration::from_millis(400)].into_iter();
        loop {
            let answer = self.exchange_bytes(call.clone()).await;
            let Err(Failure::Refused(status)) = &answer else {
                return answer;
            };
            let (429, Some(pause)) = (status.code, patience.next()) else {
                return answer;
            };
            let asked = status
                .details
                .as_ref()
                .map_or(0, |details| details.retry_after_seconds);
            tokio::time::sleep(pause.max(Duration::from_secs(asked.into())).min(LONGEST_PAUSE)).await;
        }
    }

    async fn exchange_bytes(&self, call: Call) -> Result<(StatusCode, Vec<u8>), Failure> {
        let reads = call.method == Method::GET;
        if !reads && self.fence.as_ref().is_some_and(|fence| !fence.holds()) {
            return Err(Failure::Fenced);
        }
        let exchange = async {
            let answer = self.client.send(call.into_request()?).await.map_err(unanswered)?;
            let status = answer.status();
            let body = answer.into_body().collect_bytes().await.map_err(unanswered)?;
            if status.is_success() {
                Ok((status, body.to_vec()))
            } else {
                Err(Failure::Refused(Box::new(refusal(status, &body))))
            }
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or(Err(Failure::TimedOut(self.timeout)))
    }

    /// Sends one request and reads its answer as text; invalid UTF-8 is replaced.
    pub(crate) async fn send_for_text(&self, call: Call) -> Result<String, Failure> {
        let (_, body) = self.exchange_bytes(call).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends one request and reads its answer into a type.
    pub(crate) async fn send_for<T: DeserializeOwned>(&self, call: Call) -> Result<T, Failure> {
        let (_, answer) = self.send(call).await?;
        serde_json::from_value(answer).map_err(Failure::unreadable)
    }
}

fn unanswered(error: kube::Error) -> Failure {
    Failure::Unanswered(Box::new(error))
}

/// The server's status, or one made from an answer that contains none (a proxy's page, "404 page not found").
fn refusal(code: StatusCode, body: &[u8]) -> Status {
    let stated = serde_json::from_slice::<Status>(body)
        .ok()
        .filter(|status| !status.message.is_empty());
    let mut status = stated.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]);
        let reason = code.canonical_reason().unwrap_or_default();
        Status::failure(
            if text.trim().is_empty() {
                reason
            } else {
                text.trim()
            },
            reason,
        )
    });
    status.code = code.as_u16();
    status
}

/// A request before it is sent.
#[derive(Clone)]
pub(crate) struct Call {
    method: Method,
    url: String,
    headers: Vec<(header::HeaderName, &'static str)>,
    body: Vec<u8>,
    metadata_suffices: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            url: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            metadata_suffices: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn accept(mut self, media_type: &'static str) -> Self {
        self.headers.push((header::ACCEPT, media_type));
        self
    }

    /// If the object in the answer is nested too deeply or too large to be read, its metadata is enough: the write
    /// has succeeded.
    pub(crate) fn metadata_suffices(mut self) -> Self {
        self.metadata_suffices = true;
        self
    }

    pub(crate) fn query(mut self, key: &str, value: &str) -> Self {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        self.url = format!("{}{separator}{key}={}", self.url, crate::resource::encoded(value));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body)
    }

    pub(crate) fn body(mut self, media_type: &'static str, body: &Value) -> Self {
        self.headers.push((header::CONTENT_TYPE, media_type));
        self.body = body.to_string().into_bytes();
        self
    }

    fn into_request(self) -> Result<Request<Body>, Failure> {
        let mut request = Request::builder().method(self.method).uri(self.url);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request
            .body(Body::from(self.body))
            .map_err(|error| unanswered(kube::Error::HttpError(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::scripted::Script;

    #[tokio::test]
    async fn nothing_is_written_past_a_fence_that_is_down() {
        let path = "/api/v1/namespaces/shop/configmaps/web";
        let script = Script::new("write, then read")
            .on(Method::PATCH, path, |_| {}, 200, json!({}))
            .get(path, json!({}));
        let up = Arc::new(AtomicBool::new(true));
        let asked = up.clone();
        let cluster = script
            .cluster()
            .fenced(Fence::new(move || asked.load(Ordering::Relaxed)));
        let id = ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap();
        cluster.merge(&id, &json!({}), "me").await.unwrap();
        up.store(false, Ordering::Relaxed);
        let error = cluster.merge(&id, &json!({}), "me").await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        cluster.get::<Value>(&id).await.unwrap();
        script.finish();
    }

    #[test]
    fn an_answer_without_a_status_is_quoted_in_part() {
        let check = |code: u16, body: &str, message: &str| {
            let status = refusal(StatusCode::from_u16(code).unwrap(), body.as_bytes());
            assert_eq!((status.code, status.message.as_str()), (code, message));
        };
        check(404, "404 page not found\n", "404 page not found");
        check(502, "", "Bad Gateway");
        check(
            403,
            r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#,
            "no",
        );
        check(500, "{}", "{}");
    }
}
