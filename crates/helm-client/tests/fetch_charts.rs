#![expect(clippy::unwrap_used, reason = "a test server that fails is a failed test")]
//! Fetching charts from a real HTTP server on this machine, which plays registry, repository and trouble.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use helm_client::source::{Archive, ChartRef, Credentials, Error, Limits, Password, fetch};
use sha2::{Digest as _, Sha256};

const CHART: &[u8] = b"the bytes of a chart archive";
const HELM_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

fn digest(bytes: &[u8]) -> String {
    let hex = |byte: u8| [byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap());
    "sha256:"
        .chars()
        .chain(Sha256::digest(bytes).into_iter().flat_map(hex))
        .collect()
}

/// What was asked: the path and what came as `Authorization`.
type Seen = (String, Option<String>);
type Answer = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// A server on a free port of this machine. It answers with `first` in order, then always by `then`.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone)]
struct Script {
    first: Arc<Mutex<VecDeque<StatusCode>>>,
    then: Arc<Answer>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    async fn answering(then: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        Self::failing_first([], then).await
    }

    async fn failing_first(
        first: impl IntoIterator<Item = StatusCode>,
        then: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::default();
        let script = Script {
            first: Arc::new(Mutex::new(first.into_iter().collect())),
            then: Arc::new(Box::new(then)),
            seen: Arc::clone(&seen),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().fallback(answer).with_state(script);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { port, seen }
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
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

/// A registry that holds one artifact, with layers of these types and contents.
fn registry(layers: Vec<(&'static str, Bytes)>) -> impl Fn(&Request) -> Response + Send + Sync {
    let descriptors: Vec<_> = layers
        .iter()
        .map(|(kind, content)| {
            serde_json::json!({"mediaType": kind, "digest": digest(content), "size": content.len()})
        })
        .collect();
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": descriptors,
    });
    move |request| match request.uri().path() {
        "/v2/" => StatusCode::OK.into_response(),
        "/v2/charts/web/manifests/1.2.3" => (
            [(header::CONTENT_TYPE, "application/vnd.oci.image.manifest.v1+json")],
            manifest.to_string(),
        )
            .into_response(),
        path => {
            let layer = layers
                .iter()
                .find(|(_, content)| path.ends_with(&digest(content)));
            match layer {
                Some((_, content)) => content.clone().into_response(),
                None => not_in_registry(),
            }
        }
    }
}

fn not_in_registry() -> Response {
    let envelope = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    (StatusCode::NOT_FOUND, envelope).into_response()
}

fn chart_layer() -> Vec<(&'static str, Bytes)> {
    vec![(HELM_LAYER, Bytes::from_static(CHART))]
}

fn limits() -> Limits {
    Limits {
        bytes: 1000,
        time: Duration::from_secs(20),
        tries: 3,
        pause: Duration::from_millis(1),
    }
}

fn me() -> Credentials {
    Credentials {
        username: "me".to_owned(),
        password: Password::new("s3cret"),
    }
}

/// `me:s3cret`, as basic authentication sends it.
const MY_HEADER: &str = "Basic bWU6czNjcmV0";

async fn get(url: &str, repo: &str, version: &str) -> Result<Archive, Error> {
    fetch(
        &ChartRef::parse(url, Some(repo), Some(version)).unwrap(),
        None,
        limits(),
    )
    .await
}

async fn get_as_me(url: &str, repo: &str, version: &str) -> Result<Archive, Error> {
    fetch(
        &ChartRef::parse(url, Some(repo), Some(version)).unwrap(),
        Some(&me()),
        limits(),
    )
    .await
}

/// The whole chain of causes, which is what ends in a condition.
fn told(failure: &Error) -> String {
    let chain = std::iter::successors(Some(failure as &dyn std::error::Error), |failure| {
        failure.source()
    });
    let text = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    for given_away in [text.as_str(), &format!("{failure:?}")] {
        assert!(
            !given_away.contains("s3cret") && !given_away.contains("bWU6czNjcmV0"),
            "{given_away}"
        );
    }
    text
}

#[tokio::test]
async fn a_chart_comes_from_a_registry() {
    let server = Server::answering(registry(chart_layer())).await;
    let archive = get(&server.url("oci", "/charts"), "web", "1.2.3").await.unwrap();
    assert_eq!(archive.bytes, CHART);
    assert_eq!(archive.digest, digest(CHART));
    assert_eq!(archive.found_at, server.url("oci", "/charts/web:1.2.3"));
    assert!(
        server
            .seen()
            .iter()
            .all(|(_, authorization)| authorization.is_none())
    );
}

#[tokio::test]
async fn the_chart_layer_is_known_by_its_type_or_by_being_alone() {
    let other = (
        "application/vnd.cncf.helm.chart.provenance.v1.prov",
        Bytes::from_static(b"signature"),
    );
    let plain = |kind| vec![(kind, Bytes::from_static(CHART))];
    for layers in [
        vec![other.clone(), (HELM_LAYER, Bytes::from_static(CHART))],
        vec![other.clone(), ("application/tar+gzip", Bytes::from_static(CHART))],
        plain("application/octet-stream"),
    ] {
        let server = Server::answering(registry(layers)).await;
        let archive = get(&server.url("oci", "/charts/web"), "", "1.2.3").await.unwrap();
        assert_eq!(archive.bytes, CHART);
    }
    let layers = vec![other, ("application/octet-stream", Bytes::from_static(CHART))];
    let server = Server::answering(registry(layers)).await;
    let failure = get(&server.url("oci", "/charts/web"), "", "1.2.3")
        .await
        .unwrap_err();
    assert!(
        told(&failure).contains("push it with helm push"),
        "{}",
        told(&failure)
    );
}

#[tokio::test]
async fn a_missing_tag_is_named_and_not_asked_for_again() {
    let server = Server::answering(registry(chart_layer())).await;
    let failure = get(&server.url("oci", "/charts/web"), "", "9.9.9")
        .await
        .unwrap_err();
    let host = format!("127.0.0.1:{}", server.port);
    assert_eq!(
        told(&failure),
        format!(
            "{host} answered 404 for charts/web:9.9.9: there is no such chart or no such tag; check url, repo and version"
        )
    );
    assert!(!failure.is_transient());
    assert_eq!(
        server
            .seen()
            .iter()
            .filter(|(path, _)| path.contains("manifests"))
            .count(),
        1
    );
}

fn behind_basic_auth(
    inner: impl Fn(&Request) -> Response + Send + Sync,
) -> impl Fn(&Request) -> Response + Send + Sync {
    move |request| {
        let header = request.headers().get(header::AUTHORIZATION);
        if header.is_some_and(|given| given == MY_HEADER) {
            return inner(request);
        }
        (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Basic realm=\"r\"")],
        )
            .into_response()
    }
}

#[tokio::test]
async fn a_registry_that_asks_for_a_password_gets_the_given_one() {
    let server = Server::answering(behind_basic_auth(registry(chart_layer()))).await;
    let url = server.url("oci", "/charts/web");
    assert_eq!(get_as_me(&url, "", "1.2.3").await.unwrap().bytes, CHART);

    let failure = get(&url, "", "1.2.3").await.unwrap_err();
    assert!(
        told(&failure).ends_with("it asks who we are; set credentials"),
        "{}",
        told(&failure)
    );

    let wrong = Credentials {
        password: Password::new("guess"),
        ..me()
    };
    let chart = ChartRef::parse(&url, None, Some("1.2.3")).unwrap();
    let failure = fetch(&chart, Some(&wrong), limits()).await.unwrap_err();
    assert!(told(&failure).contains("answered 401 for charts/web:1.2.3: the user name or password is wrong"));
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn a_registry_that_asks_for_a_token_gets_one_from_its_token_service() {
    let inner = registry(chart_layer());
    let port = Arc::new(Mutex::new(0));
    let known = Arc::clone(&port);
    let server = Server::answering(move |request| {
        let given = request
            .headers()
            .get(header::AUTHORIZATION)
            .map(|value| value.to_str().unwrap());
        match (request.uri().path(), given) {
            ("/token", Some(MY_HEADER)) => {
                assert!(
                    request
                        .uri()
                        .query()
                        .unwrap()
                        .contains("repository%3Acharts%2Fweb%3Apull")
                );
                r#"{"token":"t0ken"}"#.into_response()
            }
            ("/token", _) => StatusCode::UNAUTHORIZED.into_response(),
            (_, Some("Bearer t0ken")) => inner(request),
            _ => {
                let realm = format!(
                    "Bearer realm=\"http://127.0.0.1:{}/token\",service=\"s\"",
                    known.lock().unwrap()
                );
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, realm)]).into_response()
            }
        }
    })
    .await;
    *port.lock().unwrap() = server.port;
    let url = server.url("oci", "/charts/web");
    assert_eq!(get_as_me(&url, "", "1.2.3").await.unwrap().bytes, CHART);
    let failure = get(&url, "", "1.2.3").await.unwrap_err();
    assert!(told(&failure).contains("answered 401"), "{}", told(&failure));
}

#[tokio::test]
async fn trouble_that_passes_is_waited_out_but_not_for_ever() {
    use StatusCode as S;
    let passing = [S::SERVICE_UNAVAILABLE, S::TOO_MANY_REQUESTS];
    let server = Server::failing_first(passing, |_| CHART.into_response()).await;
    assert_eq!(
        get(&server.url("http", "/web.tgz"), "", "").await.unwrap().bytes,
        CHART
    );
    assert_eq!(server.seen().len(), 3);

    // The registry protocol starts with a question whose answer does not matter here.
    let server = Server::failing_first([S::OK, S::BAD_GATEWAY], registry(chart_layer())).await;
    assert_eq!(
        get(&server.url("oci", "/charts/web"), "", "1.2.3")
            .await
            .unwrap()
            .bytes,
        CHART
    );

    let server = Server::answering(|_| StatusCode::BAD_GATEWAY.into_response()).await;
    let failure = get(&server.url("http", "/web.tgz"), "", "").await.unwrap_err();
    assert!(failure.is_transient());
    assert!(
        told(&failure).contains("answered 502 for /web.tgz"),
        "{}",
        told(&failure)
    );
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn an_archive_comes_from_a_plain_url() {
    let server = Server::answering(|request| match request.uri().query() {
        // The label is wrong, as some servers have it; the file must arrive as it is.
        Some("signature=s3cret") => ([(header::CONTENT_ENCODING, "gzip")], CHART).into_response(),
        _ => StatusCode::FORBIDDEN.into_response(),
    })
    .await;
    let archive = get(&server.url("http", "/a/web-1.2.3.tgz?signature=s3cret"), "", "")
        .await
        .unwrap();
    assert_eq!(archive.bytes, CHART);
    assert_eq!(archive.found_at, server.url("http", "/a/web-1.2.3.tgz"));
    let failure = get(&server.url("http", "/a/web-1.2.3.tgz?signature=s3cretx"), "", "")
        .await
        .unwrap_err();
    assert!(told(&failure).ends_with("answered 403 for /a/web-1.2.3.tgz: it is not public; set credentials"));
}

fn index(url: &str, sha256: &str) -> String {
    format!(
        "apiVersion: v1\nentries:\n  web:\n  - version: 1.3.0-rc.1\n    urls: [web-1.3.0-rc.1.tgz]\n  - version: 1.2.3\n    urls: [{url}]\n    digest: {sha256}\n"
    )
}

#[tokio::test]
async fn a_chart_comes_from_a_repository() {
    let text = index("files/web-1.2.3.tgz", &digest(CHART));
    let server = Server::answering(behind_basic_auth(move |request| match request.uri().path() {
        "/stable/index.yaml" => text.clone().into_response(),
        "/stable/files/web-1.2.3.tgz" => CHART.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }))
    .await;
    for version in ["1.2.3", "latest", ""] {
        let archive = get_as_me(&server.url("http", "/stable"), "web", version)
            .await
            .unwrap();
        assert_eq!(archive.digest, digest(CHART));
        assert_eq!(
            archive.found_at,
            server.url("http", "/stable/files/web-1.2.3.tgz")
        );
    }
    let failure = get_as_me(&server.url("http", "/stable"), "web", "7.0.0")
        .await
        .unwrap_err();
    assert!(
        told(&failure).contains("its newest are 1.3.0-rc.1, 1.2.3"),
        "{}",
        told(&failure)
    );
    let failure = get_as_me(&server.url("http", "/"), "web", "7.0.0")
        .await
        .unwrap_err();
    assert!(
        told(&failure).contains("answered 404 for /index.yaml: the url must be that of a chart repository")
    );
}

#[tokio::test]
async fn an_archive_with_another_digest_than_the_index_announces_is_refused() {
    let text = index("web.tgz", &digest(b"another"));
    let server = Server::answering(move |request| match request.uri().path() {
        "/index.yaml" => text.clone().into_response(),
        _ => CHART.into_response(),
    })
    .await;
    let failure = get(&server.url("http", ""), "web", "1.2.3").await.unwrap_err();
    assert!(
        matches!(&failure, Error::Digest { actual, .. } if *actual == digest(CHART)),
        "{failure:?}"
    );
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn a_layer_with_another_digest_than_the_manifest_announces_is_refused() {
    let inner = registry(chart_layer());
    let server = Server::answering(move |request| {
        let is_blob = request.uri().path().contains("/blobs/");
        if is_blob {
            "something else".into_response()
        } else {
            inner(request)
        }
    })
    .await;
    let failure = get(&server.url("oci", "/charts/web"), "", "1.2.3")
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, Error::Digest { expected, .. } if *expected == digest(CHART)),
        "{failure:?}"
    );
}

#[tokio::test]
async fn credentials_stay_with_the_host_they_are_for() {
    // By redirect of an archive.
    let other = Server::answering(|_| CHART.into_response()).await;
    let target = other.url("http", "/web.tgz");
    let redirect = target.clone();
    let first = Server::answering(move |_| Redirect::temporary(&redirect).into_response()).await;
    assert_eq!(
        get_as_me(&first.url("http", "/web.tgz"), "", "")
            .await
            .unwrap()
            .bytes,
        CHART
    );
    assert_eq!(
        first.seen(),
        [("/web.tgz".to_owned(), Some(MY_HEADER.to_owned()))]
    );

    // By an index that lists an archive elsewhere.
    let text = index(&target, &digest(CHART));
    let repository = Server::answering(move |_| text.clone().into_response()).await;
    assert_eq!(
        get_as_me(&repository.url("http", ""), "web", "1.2.3")
            .await
            .unwrap()
            .bytes,
        CHART
    );

    // By redirect of a blob, as registries do that keep theirs in an object store.
    let inner = behind_basic_auth(registry(chart_layer()));
    let registry = Server::answering(move |request| {
        let is_blob = request.uri().path().contains("/blobs/");
        if is_blob {
            Redirect::temporary(&target).into_response()
        } else {
            inner(request)
        }
    })
    .await;
    assert_eq!(
        get_as_me(&registry.url("oci", "/charts/web"), "", "1.2.3")
            .await
            .unwrap()
            .bytes,
        CHART
    );

    assert_eq!(other.seen().len(), 3);
    assert!(
        other
            .seen()
            .iter()
            .all(|(_, authorization)| authorization.is_none()),
        "{:?}",
        other.seen()
    );
}

#[tokio::test]
async fn a_chart_that_is_too_large_is_not_downloaded() {
    let big = Bytes::from(vec![0_u8; 1001]);
    // Announced by its length, by the manifest, or not at all.
    let announced = big.clone();
    let server = Server::answering(move |_| announced.clone().into_response()).await;
    let failure = get(&server.url("http", "/web.tgz"), "", "").await.unwrap_err();
    assert!(told(&failure).contains("larger than 1000 bytes"));

    let chunks = [big.slice(..600), big.slice(600..)];
    let chunks =
        move || Body::from_stream(futures::stream::iter(chunks.clone().map(Ok::<_, std::io::Error>)));
    let server = Server::answering(move |_| chunks().into_response()).await;
    let failure = get(&server.url("http", "/web.tgz"), "", "").await.unwrap_err();
    assert!(
        matches!(failure, Error::TooLarge { limit: 1000, .. }),
        "{failure:?}"
    );

    let server = Server::answering(registry(vec![(HELM_LAYER, big)])).await;
    let failure = get(&server.url("oci", "/charts/web"), "", "1.2.3")
        .await
        .unwrap_err();
    assert!(
        matches!(failure, Error::TooLarge { limit: 1000, .. }),
        "{failure:?}"
    );
    assert!(!server.seen().iter().any(|(path, _)| path.contains("/blobs/")));
}

#[tokio::test]
async fn a_slow_host_costs_no_more_than_the_limit() {
    let server = Server::answering(|_| {
        Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()).into_response()
    })
    .await;
    let chart = ChartRef::parse(&server.url("http", "/web.tgz?signature=s3cret"), None, None).unwrap();
    let limits = Limits {
        time: Duration::from_millis(200),
        ..limits()
    };
    let failure = fetch(&chart, None, limits).await.unwrap_err();
    assert!(matches!(failure, Error::TimedOut { .. }), "{failure:?}");
    assert!(failure.is_transient());
    told(&failure);
}

#[tokio::test]
async fn a_host_that_is_not_there_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for (url, version) in [
        (format!("oci://127.0.0.1:{port}/web"), "1.0.0"),
        (format!("http://127.0.0.1:{port}/web.tgz?s3cret"), ""),
    ] {
        let failure = get(&url, "", version).await.unwrap_err();
        assert!(
            told(&failure).contains(&format!("from 127.0.0.1:{port}")),
            "{}",
            told(&failure)
        );
        assert!(failure.is_transient());
    }
}

#[tokio::test]
async fn a_host_without_tls_is_told_from_one_that_is_down() {
    let server = Server::answering(|_| CHART.into_response()).await;
    let failure = get(&server.url("https", "/web.tgz"), "", "").await.unwrap_err();
    assert!(matches!(failure, Error::NotTls { .. }), "{}", told(&failure));
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn a_web_page_is_not_a_registry() {
    let server = Server::answering(|_| "<html>hello</html>".into_response()).await;
    let failure = get(&server.url("oci", "/charts/web"), "", "1.2.3")
        .await
        .unwrap_err();
    assert!(
        told(&failure).contains("does not answer as an OCI registry does"),
        "{}",
        told(&failure)
    );
    let failure = get(&server.url("http", "/charts"), "web", "1.2.3")
        .await
        .unwrap_err();
    assert!(
        told(&failure).contains("could not read /charts/index.yaml"),
        "{}",
        told(&failure)
    );
}
