//! An HTTP server on this machine with prepared answers, which records the requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex = |byte: u8| [byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap());
    "sha256:"
        .chars()
        .chain(Sha256::digest(bytes).into_iter().flat_map(hex))
        .collect()
}

/// A request: its path and its `Authorization`.
pub(crate) type RecordedRequest = (String, Option<String>);
type Answer = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// A server on a free port of this machine. It gives the answers in `first` in order, then always that of `then`.
pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
}

#[derive(Clone)]
struct Script {
    first: Arc<Mutex<VecDeque<StatusCode>>>,
    then: Arc<Answer>,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Server {
    pub(crate) async fn answering(then: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        Self::failing_first([], then).await
    }

    pub(crate) async fn failing_first(
        first: impl IntoIterator<Item = StatusCode>,
        then: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self::on(listener, port, first, then)
    }

    /// The same with another kind of listener.
    pub(crate) fn on(
        listener: impl axum::serve::Listener<Addr: std::fmt::Debug>,
        port: u16,
        first: impl IntoIterator<Item = StatusCode>,
        then: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::default();
        let script = Script {
            first: Arc::new(Mutex::new(first.into_iter().collect())),
            then: Arc::new(Box::new(then)),
            seen: Arc::clone(&seen),
        };
        let app = Router::new().fallback(answer).with_state(script);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { port, seen }
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// How often something with this in its path was requested.
    pub(crate) fn asked(&self, part: &str) -> usize {
        self.seen().iter().filter(|(path, _)| path.contains(part)).count()
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    let authorization = header.map(|value| value.to_str().unwrap().to_owned());
    script
        .seen
        .lock()
        .unwrap()
        .push((request.uri().path().to_owned(), authorization));
    let first = script.first.lock().unwrap().pop_front();
    first.map_or_else(|| (script.then)(&request), IntoResponse::into_response)
}

/// The content of the repository `charts/web` of a registry.
#[derive(Clone, Default)]
pub(crate) struct Artifacts {
    manifests: BTreeMap<String, String>,
    blobs: BTreeMap<String, Bytes>,
    tags: Vec<String>,
}

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Artifacts {
    /// Adds an artifact under a tag, with layers of these types, contents and annotations. Returns its digest.
    pub(crate) fn push(&mut self, tag: &str, layers: &[(&str, Bytes, serde_json::Value)]) -> String {
        let descriptors: Vec<_> = layers
            .iter()
            .map(|(kind, content, annotations)| {
                serde_json::json!({
                    "mediaType": kind, "digest": digest(content), "size": content.len(), "annotations": annotations,
                })
            })
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest(b"{}"), "size": 2},
            "layers": descriptors,
        });
        for (_, content, _) in layers {
            self.blobs.insert(digest(content), content.clone());
        }
        self.put(tag, &manifest)
    }

    /// Adds a manifest under a tag.
    pub(crate) fn put(&mut self, tag: &str, manifest: &serde_json::Value) -> String {
        let manifest = manifest.to_string();
        let digest = digest(manifest.as_bytes());
        self.manifests.insert(digest.clone(), manifest.clone());
        self.manifests.insert(tag.to_owned(), manifest);
        self.tags.push(tag.to_owned());
        digest
    }

    pub(crate) fn forget(&mut self, reference: &str) {
        self.manifests.remove(reference);
        self.blobs.remove(reference);
    }

    /// Lists two tags per page, like a registry with paging.
    fn page(&self, query: &str) -> Response {
        let last = query.split('&').find_map(|pair| pair.strip_prefix("last="));
        let start = last.map_or(0, |last| last.parse().unwrap());
        let page: Vec<_> = self.tags.iter().skip(start).take(2).collect();
        let body = serde_json::json!({"name": "charts/web", "tags": page}).to_string();
        if start + 2 >= self.tags.len() {
            return body.into_response();
        }
        let next = format!("</v2/charts/web/tags/list?n=2&last={}>; rel=\"next\"", start + 2);
        ([(header::LINK, next)], body).into_response()
    }

    pub(crate) fn answer(&self, request: &Request) -> Response {
        let Some(path) = request.uri().path().strip_prefix("/v2/charts/web/") else {
            return not_in_registry();
        };
        if path == "tags/list" {
            return self.page(request.uri().query().unwrap_or_default());
        }
        if let Some(manifest) = path
            .strip_prefix("manifests/")
            .and_then(|reference| self.manifests.get(reference))
        {
            return ([(header::CONTENT_TYPE, MANIFEST)], manifest.clone()).into_response();
        }
        match path
            .strip_prefix("blobs/")
            .and_then(|digest| self.blobs.get(digest))
        {
            Some(blob) => blob.clone().into_response(),
            None => not_in_registry(),
        }
    }
}

/// A registry with `charts/web:1.2.3`, with layers of these types and contents.
pub(crate) fn registry(layers: Vec<(&'static str, Bytes)>) -> impl Fn(&Request) -> Response + Send + Sync {
    let mut artifacts = Artifacts::default();
    let layers: Vec<_> = layers
        .into_iter()
        .map(|(kind, content)| (kind, content, serde_json::Value::Null))
        .collect();
    artifacts.push("1.2.3", &layers);
    move |request| artifacts.answer(request)
}

fn not_in_registry() -> Response {
    let envelope = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    (StatusCode::NOT_FOUND, envelope).into_response()
}
