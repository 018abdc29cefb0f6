//! How one process fetches charts once, keeps them by digest, looks them up again, and uses them while their source
//! is unreachable.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use charts::{Charts, Error};
use cluster::scripted::Script;
use flate2::Compression;
use flate2::write::GzEncoder;
use helm::origin::{ChartSpec, CredentialsSpec, SecretKey};
use serde_json::json;

use super::server::{Artifacts, Server, digest};
use super::{HELM_LAYER, behind_basic_auth, limits};

/// The archive of a chart with one template.
fn chart(name: &str, template: &str) -> Bytes {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    for (path, text) in [("Chart.yaml", metadata.as_str()), ("templates/a.yaml", template)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{name}/{path}"), text.as_bytes())
            .unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap().into()
}

fn charts() -> Charts {
    Charts::new(Script::new("no Secret is read").cluster(), limits())
}

fn spec(url: String, repo: &str) -> ChartSpec {
    ChartSpec {
        url,
        repo: Some(repo.to_owned()),
        version: Some("1.0.0".to_owned()),
        ..ChartSpec::default()
    }
}

/// A repository with charts `one` and `two`, both 1.0.0, that supports conditional requests.
fn repository(request: &Request) -> Response {
    let archive = |name: &str| chart(name, "kind: ConfigMap\n");
    match request.uri().path() {
        "/index.yaml" if request.headers().contains_key(header::IF_NONE_MATCH) => {
            StatusCode::NOT_MODIFIED.into_response()
        }
        "/index.yaml" => {
            let entry = |name: &str| json!([{"version": "1.0.0", "urls": [format!("{name}.tgz")], "digest": digest(&archive(name))}]);
            let index = json!({"apiVersion": "v1", "entries": {"one": entry("one"), "two": entry("two")}});
            ([(header::ETAG, "\"1\"")], index.to_string()).into_response()
        }
        "/one.tgz" => archive("one").into_response(),
        "/two.tgz" => archive("two").into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

#[tokio::test]
async fn charts_of_one_repository_and_version_are_told_apart() {
    let server = Server::answering(repository).await;
    let charts = charts();
    for name in ["one", "two", "one"] {
        let found = charts.get(&spec(server.url("http", ""), name)).await.unwrap();
        assert_eq!(found.chart().name(), name);
        assert_eq!(found.version, "1.0.0");
        assert_eq!(found.digest, digest(&chart(name, "kind: ConfigMap\n")));
    }
    assert_eq!((server.asked("index.yaml"), server.asked(".tgz")), (2, 2));
}

#[tokio::test]
async fn those_who_ask_at_once_share_one_fetch() {
    let server = Server::answering(repository).await;
    let (charts, spec) = (charts(), spec(server.url("http", ""), "one"));
    let all = futures::future::join_all((0..8).map(|_| charts.get(&spec))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!((server.asked("index.yaml"), server.asked(".tgz")), (1, 1));
}

#[tokio::test]
async fn those_who_ask_at_once_share_one_failure() {
    let server = Server::answering(|_| StatusCode::FORBIDDEN.into_response()).await;
    let (charts, spec) = (charts(), spec(server.url("http", ""), "one"));
    let all = futures::future::join_all((0..8).map(|_| charts.get(&spec))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!(server.asked("index.yaml"), 1);
    // A later caller asks again.
    let failure = charts.get(&spec).await.unwrap_err();
    assert!(matches!(failure, Error::Shared(_)) && !failure.is_transient());
    assert_eq!(
        failure.to_string(),
        format!(
            "{} answered 403 for /index.yaml: it is not public; set credentials or dockerConfigRef",
            server.host()
        )
    );
    assert_eq!(server.asked("index.yaml"), 2);
}

#[tokio::test]
async fn what_has_not_changed_is_not_downloaded_again() {
    let server = Server::answering(repository).await;
    let charts = charts().with_fresh_for(Duration::ZERO);
    let spec = spec(server.url("http", ""), "one");
    for _ in 0..3 {
        assert_eq!(charts.get(&spec).await.unwrap().chart().name(), "one");
    }
    assert_eq!((server.asked("index.yaml"), server.asked(".tgz")), (3, 1));
    // The same archive under another reference is downloaded, because the caller may not be allowed to read it there,
    // but not parsed again.
    let direct = ChartSpec {
        url: server.url("http", "/one.tgz"),
        ..ChartSpec::default()
    };
    let (a, b) = (
        charts.get(&spec).await.unwrap(),
        charts.get(&direct).await.unwrap(),
    );
    assert!(Arc::ptr_eq(&a.engine, &b.engine));
    assert_eq!(server.asked(".tgz"), 2);
}

/// A registry whose tag can be moved.
struct Moving {
    server: Server,
    artifacts: Arc<Mutex<Artifacts>>,
    status: Arc<AtomicU16>,
}

impl Moving {
    async fn new() -> Self {
        let artifacts = Arc::new(Mutex::new(Artifacts::default()));
        let status = Arc::new(AtomicU16::new(200));
        let (inside, answering) = (artifacts.clone(), status.clone());
        let server = Server::answering(move |request| match answering.load(Ordering::SeqCst) {
            200 => inside.lock().unwrap().answer(request),
            status => StatusCode::from_u16(status).unwrap().into_response(),
        })
        .await;
        Self {
            server,
            artifacts,
            status,
        }
    }

    fn push(&self, template: &str) -> String {
        let layer = chart("web", template);
        self.artifacts
            .lock()
            .unwrap()
            .push("1.0.0", &[(HELM_LAYER, layer, json!(null))])
    }

    fn spec(&self, digest: Option<String>) -> ChartSpec {
        ChartSpec {
            digest,
            ..spec(self.server.url("oci", "/charts"), "web")
        }
    }
}

#[tokio::test]
async fn a_tag_that_moves_is_followed_unless_a_digest_is_named() {
    let registry = Moving::new().await;
    let first = registry.push("kind: ConfigMap\n");
    let charts = charts().with_fresh_for(Duration::ZERO);
    let old = charts.get(&registry.spec(None)).await.unwrap();
    let new = registry.push("kind: Secret\n");
    let moved = charts.get(&registry.spec(None)).await.unwrap();
    assert_ne!(old.digest, moved.digest);

    // The digests of manifest and archive refer to the old one, which the registry still has.
    for named in [&first, &old.digest] {
        let other = self::charts();
        let found = other.get(&registry.spec(Some(named.clone()))).await.unwrap();
        assert_eq!(found.digest, old.digest);
    }
    // Once it is gone, an error says so.
    {
        let mut artifacts = registry.artifacts.lock().unwrap();
        artifacts.forget(&first);
        artifacts.forget(&old.digest);
    }
    let failure = self::charts()
        .get(&registry.spec(Some(old.digest.clone())))
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        format!(
            "charts/web:1.0.0 at {} has digest {new}, not the {} that is asked for: it was published again with other content; ask for another version, or check what changed and set digest to the new one",
            registry.server.host(),
            old.digest
        )
    );
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn a_source_that_is_away_is_done_without_where_that_is_safe() {
    let registry = Moving::new().await;
    registry.push("kind: ConfigMap\n");
    let charts = charts().with_fresh_for(Duration::ZERO);
    let found = charts.get(&registry.spec(None)).await.unwrap();
    let pinned = registry
        .spec(None)
        .pinned(Some("1.0.0".into()), found.digest.clone());
    charts.get(&pinned).await.unwrap();

    registry.status.store(503, Ordering::SeqCst);
    assert_eq!(
        charts.get(&registry.spec(None)).await.unwrap().digest,
        found.digest
    );
    // A digest need not be looked up again.
    let asked = registry.server.seen().len();
    assert_eq!(charts.get(&pinned).await.unwrap().digest, found.digest);
    assert_eq!(registry.server.seen().len(), asked);
    // Without a valid login there is no chart, and another process has nothing cached yet.
    registry.status.store(403, Ordering::SeqCst);
    assert!(charts.get(&registry.spec(None)).await.is_err());
    registry.status.store(503, Ordering::SeqCst);
    assert!(self::charts().get(&pinned).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_chart_is_given_to_those_only_who_may_read_it() {
    let server = Server::answering(behind_basic_auth(repository)).await;
    let secret = json!({"metadata": {"name": "me"}, "data": {"password": "czNjcmV0"}});
    let script = Script::new("a password").get("/api/v1/namespaces/team/secrets/me", secret);
    let charts = Charts::new(script.cluster(), limits());
    let anonymous = spec(server.url("http", ""), "one");
    let mine = ChartSpec {
        credentials: Some(CredentialsSpec {
            username: "me".into(),
            password: SecretKey {
                namespace: "team".into(),
                name: "me".into(),
                key: "password".into(),
            },
        }),
        ..anonymous.clone()
    };
    let found = charts.get(&mine).await.unwrap();
    assert!(charts.get(&anonymous).await.is_err());
    assert!(
        charts
            .get(&anonymous.pinned(None, found.digest.clone()))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_process_logs_in_as_its_registry_configuration_says() {
    let server = Server::answering(behind_basic_auth(repository)).await;
    let folder = tempfile::tempdir().unwrap();
    let charts = charts().with_registry_config(Some(folder.path().to_owned()));
    let spec = spec(server.url("http", ""), "one");
    assert!(charts.get(&spec).await.is_err());
    let config = json!({"auths": {server.host(): {"username": "me", "password": "s3cret"}}});
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    assert_eq!(charts.get(&spec).await.unwrap().chart().name(), "one");
    std::fs::write(folder.path().join("config.json"), "{").unwrap();
    let other = ChartSpec {
        repo: Some("two".into()),
        ..spec
    };
    let failure = charts.get(&other).await.unwrap_err().to_string();
    assert!(
        failure.starts_with("the registry configuration ") && failure.ends_with("config.json cannot be used"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_dropped_connection_is_tried_again() {
    let is_first = AtomicBool::new(true);
    let server = Server::answering(move |request| {
        let is_archive = request.uri().path() == "/one.tgz";
        if is_archive && is_first.swap(false, Ordering::SeqCst) {
            // Half of the body, then nothing.
            let half = chart("one", "kind: ConfigMap\n").slice(..10);
            let broken = futures::stream::iter([Ok(half), Err(std::io::Error::other("cut"))]);
            return axum::body::Body::from_stream(broken).into_response();
        }
        repository(request)
    })
    .await;
    let found = charts().get(&spec(server.url("http", ""), "one")).await.unwrap();
    assert_eq!(found.chart().name(), "one");
    assert_eq!(server.asked(".tgz"), 2);
}
