#![expect(clippy::unwrap_used, reason = "a test server that fails is a failed test")]
//! Fetches charts from a real HTTP server on this machine, which acts as a registry, a repository and a faulty
//! server.

mod keep;
mod log_in;
mod push;
mod server;
mod sign;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use charts::source::{Access, Archive, ChartRef, Credentials, Error, Limits, Password, fetch};
use server::{Artifacts, Server, digest, registry};

const CHART: &[u8] = b"the bytes of a chart archive";
const HELM_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

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

fn me() -> Access {
    with_password("s3cret")
}

fn with_password(password: &str) -> Access {
    Access {
        credentials: Some(Credentials {
            username: "me".to_owned(),
            password: Password::new(password),
        }),
        ..Access::default()
    }
}

/// `me:s3cret` in basic authentication.
const MY_HEADER: &str = "Basic bWU6czNjcmV0";

async fn fetched(url: &str, repo: &str, version: &str, access: &Access) -> Result<Archive, Error> {
    let chart = ChartRef::parse(url, Some(repo), Some(version)).unwrap();
    fetch(&chart, access, limits()).await
}

async fn get(url: &str, repo: &str, version: &str) -> Result<Archive, Error> {
    fetched(url, repo, version, &Access::default()).await
}

async fn get_as_me(url: &str, repo: &str, version: &str) -> Result<Archive, Error> {
    fetched(url, repo, version, &me()).await
}

/// The whole chain of causes, as it gets into conditions.
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
    assert_eq!(archive.resolved.found_at, server.url("oci", "/charts/web:1.2.3"));
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
        told(&failure).ends_with("it requires credentials; set credentials or dockerConfigRef"),
        "{}",
        told(&failure)
    );

    let wrong = with_password("guess");
    let chart = ChartRef::parse(&url, None, Some("1.2.3")).unwrap();
    let failure = fetch(&chart, &wrong, limits()).await.unwrap_err();
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

    let server = Server::failing_first([S::BAD_GATEWAY], registry(chart_layer())).await;
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
        // The label is wrong, as with some servers; the file must arrive unchanged.
        Some("signature=s3cret") => ([(header::CONTENT_ENCODING, "gzip")], CHART).into_response(),
        _ => StatusCode::FORBIDDEN.into_response(),
    })
    .await;
    let archive = get(&server.url("http", "/a/web-1.2.3.tgz?signature=s3cret"), "", "")
        .await
        .unwrap();
    assert_eq!(archive.bytes, CHART);
    assert_eq!(archive.resolved.found_at, server.url("http", "/a/web-1.2.3.tgz"));
    let failure = get(&server.url("http", "/a/web-1.2.3.tgz?signature=s3cretx"), "", "")
        .await
        .unwrap_err();
    assert!(told(&failure).ends_with(
        "answered 403 for /a/web-1.2.3.tgz: it is not public; set credentials or dockerConfigRef"
    ));
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
            archive.resolved.found_at,
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
    // By a redirect of an archive.
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

    // By an index that lists an archive on another host.
    let text = index(&target, &digest(CHART));
    let repository = Server::answering(move |_| text.clone().into_response()).await;
    assert_eq!(
        get_as_me(&repository.url("http", ""), "web", "1.2.3")
            .await
            .unwrap()
            .bytes,
        CHART
    );

    // By a redirect of a blob, as with registries that store blobs in an object store.
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

/// That these sources are refused for leading there, and asked for nothing more. That they may lead to other hosts is
/// checked above.
#[tokio::test]
async fn nobody_but_the_user_names_a_link_local_address() {
    const METADATA: &str = "http://169.254.169.254/latest/web-1.2.3.tgz";
    let redirecting = Server::answering(|_| Redirect::temporary(METADATA).into_response()).await;
    let text = index(METADATA, &digest(CHART));
    let listing = Server::answering(move |_| text.clone().into_response()).await;
    let inner = registry(chart_layer());
    let storing = Server::answering(move |request| {
        if request.uri().path().contains("/blobs/") {
            Redirect::temporary(METADATA).into_response()
        } else {
            inner(request)
        }
    })
    .await;
    for (server, url) in [
        (&redirecting, redirecting.url("http", "/web.tgz")),
        (&listing, listing.url("http", "")),
        (&storing, storing.url("oci", "/charts")),
    ] {
        let failure = get(&url, "web", "1.2.3").await.unwrap_err();
        assert_eq!(
            told(&failure),
            format!(
                "{} leads to 169.254.169.254, a link-local address or that of a cloud metadata service: refused, because \
                 only machines beside this one answer there; ask the operator of {0} to name another address, or use that \
                 address as url",
                server.host()
            )
        );
    }
}

#[tokio::test]
async fn a_chart_that_is_too_large_is_not_downloaded() {
    let big = Bytes::from(vec![0_u8; 1001]);
    // Announced by its length, by the manifest, or not at all.
    let announced = big.clone();
    let server = Server::answering(move |_| announced.clone().into_response()).await;
    let failure = get(&server.url("http", "/web.tgz"), "", "").await.unwrap_err();
    assert!(
        told(&failure).ends_with(
            "is larger than 1000 bytes, the limit for an archive: remove from the chart what does not belong to it, and \
             publish it again"
        ),
        "{}",
        told(&failure)
    );

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
async fn what_leads_to_a_chart_is_bounded_as_well() {
    let large = |bytes: usize| Bytes::from(vec![b' '; bytes]);
    let check = async |body: Bytes, url: (&str, &str), repo: &str, version: &str, expected: &str| {
        let server = Server::answering(move |_| body.clone().into_response()).await;
        let failure = get(&server.url(url.0, url.1), repo, version).await.unwrap_err();
        assert!(told(&failure).contains(expected), "{}", told(&failure));
    };
    let repository = ("http", "/charts");
    check(
        large(1001),
        repository,
        "web",
        "",
        "larger than 1000 bytes, the limit for an index",
    )
    .await;
    let registry = ("oci", "/charts/web");
    let manifest = large(4 * 1024 * 1024 + 1);
    check(
        manifest,
        registry,
        "",
        "1.2.3",
        "larger than 4194304 bytes, the limit for a manifest",
    )
    .await;
    let tags = large(8 * 1024 * 1024 + 1);
    check(
        tags,
        registry,
        "",
        "^1",
        "larger than 8388608 bytes, the limit for a list of tags",
    )
    .await;
}

#[tokio::test]
async fn pages_of_tags_are_bounded_together() {
    // Each page is small enough, but there is always a next one.
    let mut page = br#"{"tags": ["1.2.3"]}"#.to_vec();
    page.resize(5 * 1024 * 1024, b' ');
    let page = Bytes::from(page);
    let server = Server::answering(move |_| {
        let next = [(header::LINK, "</v2/charts/web/tags/list?last=1>; rel=\"next\"")];
        (next, page.clone()).into_response()
    })
    .await;
    let failure = get(&server.url("oci", "/charts/web"), "", "^1")
        .await
        .unwrap_err();
    assert!(
        told(&failure)
            .contains("larger than 8388608 bytes, the limit for a list of tags: ask for an exact version"),
        "{}",
        told(&failure)
    );
    assert_eq!(server.asked("tags"), 2);
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
    let failure = fetch(&chart, &Access::default(), limits).await.unwrap_err();
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

/// A registry with several versions of the chart, and tags that are not versions.
fn versions(versions: &[&str]) -> Artifacts {
    let mut artifacts = Artifacts::default();
    for version in versions {
        let content = Bytes::from(format!("the archive of {version}"));
        artifacts.push(version, &[(HELM_LAYER, content, serde_json::Value::Null)]);
    }
    artifacts
}

#[tokio::test]
async fn a_range_leads_to_the_newest_tag_that_fits() {
    let artifacts = versions(&[
        "1.2.3",
        "latest",
        "1.10.0",
        "v1.11.0",
        "2.0.0-rc.1",
        "1.2.4_b.1",
        "sha256-00.sig",
        "0.9.0",
    ]);
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let url = server.url("oci", "/charts/web");
    for (version, expected) in [
        ("", "1.10.0"),
        ("latest", "1.10.0"),
        ("~1.2", "1.2.4+b.1"),
        (">=1.2 <1.10 || <1", "1.2.4+b.1"),
        (">1.10-0", "2.0.0-rc.1"),
        ("1.2.4+b.1", "1.2.4+b.1"),
        // Not listed as versions, as in Helm, but found when requested.
        ("v1.11.0", "v1.11.0"),
    ] {
        let archive = get(&url, "", version).await.unwrap();
        let tag = expected.replace('+', "_");
        assert_eq!(
            archive.bytes,
            format!("the archive of {tag}").as_bytes(),
            "{version}"
        );
        assert_eq!(archive.resolved.version.as_deref(), Some(expected));
        assert_eq!(archive.resolved.found_at, format!("{url}:{tag}"));
    }
    let failure = get(&url, "", ">=3").await.unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} has no version that fits >=3 of chart charts/web; its newest are 2.0.0-rc.1, 1.10.0, 1.2.4+b.1, 1.2.3, 0.9.0",
            server.host()
        )
    );
    assert!(!failure.is_transient());
    let failure = get(&server.url("oci", "/charts/absent"), "", "")
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} answered 404 for charts/absent: there is no such chart; check url and repo",
            server.host()
        )
    );
}

#[tokio::test]
async fn a_digest_in_the_url_or_beside_it_is_held_to() {
    let mut artifacts = Artifacts::default();
    let manifest = artifacts.push(
        "1.2.3",
        &[(HELM_LAYER, Bytes::from_static(CHART), serde_json::Value::Null)],
    );
    let server = Server::answering(move |request| match request.uri().path() {
        "/web.tgz" => CHART.into_response(),
        "/index.yaml" => index("web.tgz", &digest(CHART)).into_response(),
        "/v2/charts/web/manifests/lies" => "{}".into_response(),
        _ => artifacts.answer(request),
    })
    .await;
    let url = server.url("oci", "/charts/web");
    for (url, repo, version, pinned) in [
        (format!("{url}@{manifest}"), "", "", String::new()),
        (format!("{url}:1.2.3@{manifest}"), "", "", String::new()),
        (url.clone(), "", "1.2.3", manifest.clone()),
        (url.clone(), "", "", digest(CHART)),
        (server.url("http", "/web.tgz"), "", "", digest(CHART)),
        (server.url("http", ""), "web", "^1.2", digest(CHART)),
    ] {
        let chart = ChartRef::parse(&url, Some(repo), Some(version)).unwrap();
        let chart = chart.with_digest(Some(&pinned)).unwrap();
        let archive = fetch(&chart, &Access::default(), limits()).await.unwrap();
        assert_eq!(archive.bytes, CHART, "{url}");
    }
    let other = digest(b"other");
    for (url, repo, actual) in [
        (url.clone(), "", &manifest),
        (server.url("http", "/web.tgz"), "", &digest(CHART)),
        (server.url("http", ""), "web", &digest(CHART)),
    ] {
        let chart = ChartRef::parse(&url, Some(repo), Some("1.2.3")).unwrap();
        let chart = chart.with_digest(Some(&other)).unwrap();
        let failure = fetch(&chart, &Access::default(), limits()).await.unwrap_err();
        let expected = format!("has digest {actual}, not the {other} that is asked for");
        assert!(told(&failure).contains(&expected), "{}", told(&failure));
    }
}

#[tokio::test]
async fn a_host_that_asks_for_patience_is_given_it_within_the_limit() {
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::answering(move |request| {
        let wait = if request.uri().path() == "/long.tgz" {
            "3600"
        } else {
            "1"
        };
        if wait == "1" && !is_first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return CHART.into_response();
        }
        (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, wait)]).into_response()
    })
    .await;
    assert_eq!(
        get(&server.url("http", "/web.tgz"), "", "").await.unwrap().bytes,
        CHART
    );
    assert_eq!(server.asked("/web.tgz"), 2);
    let failure = get(&server.url("http", "/long.tgz"), "", "").await.unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} answered 429 for /long.tgz: it asks for fewer requests; the fetch is tried again later",
            server.host()
        )
    );
    assert_eq!(server.asked("/long.tgz"), 1);
    assert!(failure.is_transient());
}

#[tokio::test]
async fn an_index_of_one_manifest_is_a_wrapper_and_of_several_is_none() {
    let mut artifacts = versions(&["inner"]);
    let inner = artifacts.put(
        "again",
        &serde_json::json!({"layers": [
            {"mediaType": HELM_LAYER, "digest": digest(b"the archive of inner"), "size": 20}
        ]}),
    );
    let entry = serde_json::json!({"mediaType": server::MANIFEST, "digest": inner, "size": 1});
    artifacts.put("1.0.0", &serde_json::json!({"manifests": [entry]}));
    artifacts.put("2.0.0", &serde_json::json!({"manifests": [entry, entry]}));
    let server = Server::answering(move |request| artifacts.answer(request)).await;
    let url = server.url("oci", "/charts/web");
    assert_eq!(
        get(&url, "", "1.0.0").await.unwrap().bytes,
        b"the archive of inner"
    );
    assert_eq!(
        told(&get(&url, "", "2.0.0").await.unwrap_err()),
        format!(
            "charts/web:2.0.0 at {} is not a chart: it is an index of several images",
            server.host()
        )
    );
}
