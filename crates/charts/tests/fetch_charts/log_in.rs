//! Logging in at registries, and which hosts get the login.

use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use charts::source::{Access, DockerConfig, Error};

use super::server::{Server, registry};
use super::{CHART, MY_HEADER, behind_basic_auth, chart_layer, fetched, me, told};

fn docker_config(text: &str) -> Access {
    Access {
        docker_configs: vec![DockerConfig::parse(text.as_bytes()).unwrap()],
        ..Access::default()
    }
}

/// A registry whose token service requires `who`, in the header or in the form.
async fn with_token_service(
    who: impl Fn(&Request) -> bool + Send + Sync + 'static,
    challenge: impl Fn(u16) -> String + Send + Sync + 'static,
) -> Server {
    let inner = registry(chart_layer());
    let port = Arc::new(Mutex::new(0));
    let known = Arc::clone(&port);
    let server = Server::answering(move |request| {
        let given = request.headers().get(header::AUTHORIZATION);
        match request.uri().path() {
            "/token" if who(request) => r#"{"access_token":"t0ken","expires_in":60}"#.into_response(),
            "/token" => StatusCode::UNAUTHORIZED.into_response(),
            _ if given.is_some_and(|given| given == "Bearer t0ken") => inner(request),
            _ => {
                let challenge = challenge(*known.lock().unwrap());
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            }
        }
    })
    .await;
    *port.lock().unwrap() = server.port;
    server
}

fn bearer(port: u16) -> String {
    format!(r#"Bearer realm="http://127.0.0.1:{port}/token",service="s",scope="repository:charts/web:pull""#)
}

#[tokio::test]
async fn a_docker_configuration_logs_in_where_it_names_the_host() {
    let server = Server::answering(behind_basic_auth(registry(chart_layer()))).await;
    let url = server.url("oci", "/charts/web");
    let config = format!(
        r#"{{"auths": {{"{}": {{"auth": "bWU6czNjcmV0"}}}}}}"#,
        server.host()
    );
    let archive = fetched(&url, "", "1.2.3", &docker_config(&config)).await.unwrap();
    assert_eq!(archive.bytes, CHART);

    let elsewhere = docker_config(r#"{"auths": {"127.0.0.1": {"auth": "bWU6czNjcmV0"}}}"#);
    let failure = fetched(&url, "", "1.2.3", &elsewhere).await.unwrap_err();
    assert!(told(&failure).ends_with("it requires credentials; set credentials or dockerConfigRef"));
    assert!(
        server
            .seen()
            .iter()
            .filter_map(|(_, given)| given.as_deref())
            .all(|given| given == MY_HEADER)
    );

    let helper = docker_config(r#"{"credsStore": "secretservice"}"#);
    assert_eq!(
        told(&fetched(&url, "", "1.2.3", &helper).await.unwrap_err()),
        format!(
            "the Docker configuration leaves the login for {} to the credential helper secretservice, which is a program and is not run: write the login into its auths, or set credentials",
            server.host()
        )
    );
}

#[tokio::test]
async fn a_docker_configuration_logs_in_at_a_repository_as_well() {
    let server = Server::answering(behind_basic_auth(|_| CHART.into_response())).await;
    let config = format!(
        r#"{{"auths": {{"{}": {{"username": "me", "password": "s3cret"}}}}}}"#,
        server.host()
    );
    let archive = fetched(&server.url("http", "/web.tgz"), "", "", &docker_config(&config)).await;
    assert_eq!(archive.unwrap().bytes, CHART);
}

#[tokio::test]
async fn tokens_of_a_docker_configuration_are_used() {
    let is_post = |request: &Request| request.method() == "POST" && request.uri().query().is_none();
    let server = with_token_service(is_post, bearer).await;
    let config = format!(
        r#"{{"auths": {{"{}": {{"identitytoken": "s3cret"}}}}}}"#,
        server.host()
    );
    let url = server.url("oci", "/charts/web");
    assert_eq!(
        fetched(&url, "", "1.2.3", &docker_config(&config))
            .await
            .unwrap()
            .bytes,
        CHART
    );
    // The token is valid for the blob as well.
    assert_eq!(server.asked("/token"), 1);

    let config = format!(
        r#"{{"auths": {{"{}": {{"registrytoken": "t0ken"}}}}}}"#,
        server.host()
    );
    assert_eq!(
        fetched(&url, "", "1.2.3", &docker_config(&config))
            .await
            .unwrap()
            .bytes,
        CHART
    );
    assert_eq!(server.asked("/token"), 1);
}

/// 401 with this challenge.
fn challenged(challenge: &str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, challenge.to_owned())];
    (StatusCode::UNAUTHORIZED, challenge).into_response()
}

#[tokio::test]
async fn a_token_service_on_another_host_gets_the_password() {
    let service = Server::answering(|_| r#"{"token":"t0ken"}"#.into_response()).await;
    let realm = format!(r#"Bearer realm="{}",service="s""#, service.url("http", "/token"));
    let inner = registry(chart_layer());
    let server = Server::answering(move |request| {
        let given = request.headers().get(header::AUTHORIZATION);
        if given.is_some_and(|given| given == "Bearer t0ken") {
            inner(request)
        } else {
            challenged(&realm)
        }
    })
    .await;
    let url = server.url("oci", "/charts/web");
    assert_eq!(fetched(&url, "", "1.2.3", &me()).await.unwrap().bytes, CHART);
    assert_eq!(
        service.seen(),
        [("/token".to_owned(), Some(MY_HEADER.to_owned()))]
    );
}

#[tokio::test]
async fn whoever_a_redirect_leads_to_gets_no_answer_to_its_challenge() {
    let thief = Server::answering(|_| r#"{"token":"t0ken"}"#.into_response()).await;
    let bearer = format!(r#"Bearer realm="{}",service="s""#, thief.url("http", "/token"));
    for challenge in [bearer.as_str(), "Basic realm=\"r\""] {
        let asks = challenge.to_owned();
        let storage = Server::answering(move |_| challenged(&asks)).await;
        let target = storage.url("http", "/blob?signature=s3cret");
        let registry = Server::answering(move |_| Redirect::temporary(&target).into_response()).await;
        let failure = fetched(&registry.url("oci", "/charts/web"), "", "1.2.3", &me())
            .await
            .unwrap_err();
        assert_eq!(
            thief.seen(),
            [],
            "the password was sent where a redirect's target said: {challenge}"
        );
        assert_eq!(storage.seen(), [("/blob".to_owned(), None)], "{challenge}");
        // No other host may request the password either.
        assert!(
            registry
                .seen()
                .iter()
                .all(|(_, authorization)| authorization.is_none()),
            "{challenge}: {:?}",
            registry.seen()
        );
        assert_eq!(
            told(&failure),
            format!(
                "{} redirects from charts/web:1.2.3 to {}, which requires credentials: ours are only for {}; ask its operator to redirect to an address that needs none, or use the chart's own address as url",
                registry.host(),
                storage.url("http", "/blob"),
                registry.host()
            )
        );
        assert!(!failure.is_transient());
    }
}

#[tokio::test]
async fn a_challenge_on_the_way_back_from_another_host_is_not_met() {
    let port = Arc::new(Mutex::new(0));
    let known = Arc::clone(&port);
    let other = Server::answering(move |_| {
        let back = format!("http://127.0.0.1:{}/v2/charts/web/back", known.lock().unwrap());
        Redirect::temporary(&back).into_response()
    })
    .await;
    let away = other.url("http", "/on");
    let inner = behind_basic_auth(registry(chart_layer()));
    let first = Server::answering(move |request| match request.uri().path() {
        path if path.ends_with("/manifests/1.2.3") => Redirect::temporary(&away).into_response(),
        _ => inner(request),
    })
    .await;
    *port.lock().unwrap() = first.port;
    let failure = fetched(&first.url("oci", "/charts/web"), "", "1.2.3", &me())
        .await
        .unwrap_err();
    assert!(
        first.seen().iter().all(|(_, given)| given.is_none()),
        "{:?}",
        first.seen()
    );
    assert!(
        told(&failure).contains("which requires credentials"),
        "{}",
        told(&failure)
    );
}

#[tokio::test]
async fn a_repository_whose_redirect_ends_at_a_host_that_asks_is_named_as_that() {
    let storage = Server::answering(|_| challenged("Basic")).await;
    let target = storage.url("http", "/web.tgz?signature=s3cret");
    let first = Server::answering(move |_| Redirect::temporary(&target).into_response()).await;
    let failure = fetched(&first.url("http", "/web.tgz"), "", "", &me())
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, Error::ChallengedElsewhere { by, .. } if *by == storage.url("http", "/web.tgz")),
        "{}",
        told(&failure)
    );
}

#[tokio::test]
async fn a_token_service_is_asked_at_its_own_address_only() {
    // The answer of another host would be sent to the registry as a token.
    let other = Server::answering(|_| r#"{"token":"t0ken"}"#.into_response()).await;
    let target = other.url("http", "/metadata?signature=s3cret");
    let service = Server::answering(move |_| Redirect::temporary(&target).into_response()).await;
    let realm = format!(r#"Bearer realm="{}""#, service.url("http", "/token"));
    let server = Server::answering(move |_| challenged(&realm)).await;
    let url = server.url("oci", "/charts/web");
    let failure = fetched(&url, "", "1.2.3", &me()).await.unwrap_err();
    assert_eq!(other.seen(), []);
    assert_eq!(
        told(&failure),
        format!(
            "{} redirects from /token to {}: a token service is only asked at its own address; ask the registry's operator to name that address",
            service.host(),
            other.url("http", "/metadata")
        )
    );
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn the_answer_of_a_token_service_is_bounded() {
    let server = Server::answering(|request| match request.uri().path() {
        "/token" => vec![b' '; 1024 * 1024 + 1].into_response(),
        _ => challenged(r#"Bearer realm="/token""#),
    })
    .await;
    let url = server.url("oci", "/charts/web");
    let failure = fetched(&url, "", "1.2.3", &me()).await.unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "/token from {} is larger than 1048576 bytes, the limit for the answer of a token service: ask the registry's operator",
            server.host()
        )
    );
}

#[tokio::test]
async fn a_token_service_that_says_no_is_named() {
    let server = with_token_service(|_| false, bearer).await;
    let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &me())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} answered 401 for /token: the user name or password is wrong; check credentials, or the entry for this host in the Docker configuration",
            server.host()
        )
    );
    assert_eq!(server.asked("/token"), 1);
}

#[tokio::test]
async fn a_token_is_asked_for_again_when_it_has_run_out() {
    let inner = registry(chart_layer());
    let used = Mutex::new(0);
    let port = Arc::new(Mutex::new(0));
    let known = Arc::clone(&port);
    let server = Server::answering(move |request| {
        let given = request.headers().get(header::AUTHORIZATION);
        if request.uri().path() == "/token" {
            let mut used = used.lock().unwrap();
            *used += 1;
            return format!(r#"{{"token":"t{used}"}}"#).into_response();
        }
        // Each token is valid for one kind of request.
        let wanted = if request.uri().path().contains("/blobs/") {
            "Bearer t2"
        } else {
            "Bearer t1"
        };
        if given.is_some_and(|given| given == wanted) {
            return inner(request);
        }
        let challenge = bearer(*known.lock().unwrap());
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
    })
    .await;
    *port.lock().unwrap() = server.port;
    let archive = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &me())
        .await
        .unwrap();
    assert_eq!(archive.bytes, CHART);
    assert_eq!(server.asked("/token"), 2);
}

#[tokio::test]
async fn a_host_that_was_left_is_not_trusted_again() {
    // First → other → first: credentials for the first host are not sent on the way back either.
    let port = Arc::new(Mutex::new(0));
    let known = Arc::clone(&port);
    let other = Server::answering(move |_| {
        let back = format!("http://127.0.0.1:{}/back.tgz", known.lock().unwrap());
        Redirect::temporary(&back).into_response()
    })
    .await;
    let away = other.url("http", "/on.tgz");
    let first = Server::answering(move |request| match request.uri().path() {
        "/back.tgz" => CHART.into_response(),
        _ => Redirect::permanent(&away).into_response(),
    })
    .await;
    *port.lock().unwrap() = first.port;
    let archive = fetched(&first.url("http", "/web.tgz"), "", "", &me())
        .await
        .unwrap();
    assert_eq!(archive.bytes, CHART);
    let mine = Some(MY_HEADER.to_owned());
    assert_eq!(
        first.seen(),
        [("/web.tgz".to_owned(), mine), ("/back.tgz".to_owned(), None)]
    );
    assert_eq!(other.seen(), [("/on.tgz".to_owned(), None)]);
}

#[tokio::test]
async fn a_redirect_within_the_host_keeps_the_login_and_circles_end() {
    let server = Server::answering(behind_basic_auth(|request| match request.uri().path() {
        "/web.tgz" => Redirect::temporary("moved/web.tgz").into_response(),
        "/moved/web.tgz" => CHART.into_response(),
        _ => Redirect::temporary("/circle.tgz").into_response(),
    }))
    .await;
    assert_eq!(
        fetched(&server.url("http", "/web.tgz"), "", "", &me())
            .await
            .unwrap()
            .bytes,
        CHART
    );
    let failure = fetched(&server.url("http", "/circle.tgz"), "", "", &me())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} redirects from /circle.tgz to another address, and so on, more than 10 times: check the url",
            server.host()
        )
    );
    assert!(!failure.is_transient());
}

#[tokio::test]
async fn a_host_that_a_redirect_leads_to_is_named_when_it_fails() {
    let other = Server::answering(|_| StatusCode::FORBIDDEN.into_response()).await;
    let target = other.url("http", "/blob?signature=s3cret");
    let first = Server::answering(move |_| Redirect::temporary(&target).into_response()).await;
    let failure = fetched(&first.url("http", "/web.tgz"), "", "", &me())
        .await
        .unwrap_err();
    assert_eq!(
        told(&failure),
        format!(
            "{} answered 403 for /blob: it is not public; set credentials or dockerConfigRef",
            other.host()
        )
    );
}

#[tokio::test]
async fn what_a_registry_asks_for_in_vain_is_an_error() {
    for challenge in [
        "Negotiate",
        "Bearer realm=\"no url : at all\"",
        "Basic realm=\"r\"",
    ] {
        let server = Server::answering(move |_| -> Response {
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
        })
        .await;
        let failure = fetched(&server.url("oci", "/charts/web"), "", "1.2.3", &me())
            .await
            .unwrap_err();
        assert!(
            told(&failure).contains("answered 401"),
            "{challenge}: {}",
            told(&failure)
        );
        assert!(!failure.is_transient());
    }
}
