//! Pushing artifacts, and which hosts get the login.

use std::sync::{Arc, Mutex};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use charts::source::push::{Artifact, Host, login, push};
use charts::source::{Access, Credentials, Error, Password, Trust};

use super::server::{MANIFEST, Server, digest};
use super::{MY_HEADER, behind_basic_auth, limits, me, told};

const BLOB: &[u8] = b"the bytes of a chart archive";

fn artifact() -> Artifact {
    Artifact {
        blobs: vec![Arc::from(BLOB), Arc::from(&b"{}"[..])],
        manifest: Arc::from(&b"{\"schemaVersion\":2}"[..]),
        media_type: MANIFEST,
    }
}

async fn pushed(server: &Server, access: &Access) -> Result<(), Error> {
    let host = Host::parse(&server.host()).unwrap();
    push(&host, "charts/web", "1.2.3", &artifact(), access, limits()).await
}

/// A registry that has the blobs in `there`, and sends uploads to `location`.
fn taking(
    there: Arc<Mutex<Vec<String>>>,
    location: impl Fn() -> String + Send + Sync + 'static,
) -> impl Fn(&axum::extract::Request) -> Response + Send + Sync + 'static {
    move |request| {
        let path = request.uri().path().to_owned();
        let mut there = there.lock().unwrap();
        match (request.method().as_str(), path.rsplit('/').next().unwrap()) {
            ("HEAD", digest) if there.contains(&digest.to_owned()) => {
                [(header::CONTENT_LENGTH, "1000000000000")].into_response()
            }
            ("HEAD", _) => StatusCode::NOT_FOUND.into_response(),
            ("POST", "") => (StatusCode::ACCEPTED, [(header::LOCATION, location())]).into_response(),
            ("PUT", name) => {
                let query = request.uri().query().unwrap_or_default().replace("%3A", ":");
                assert!(request.headers().contains_key(header::CONTENT_LENGTH));
                if let Some((state, digest)) = query.split_once("digest=") {
                    assert_eq!(state, "state=s%26t&", "the registry's own query is kept");
                    there.push(digest.to_owned());
                } else {
                    assert_eq!(request.headers()[header::CONTENT_TYPE], MANIFEST);
                    there.push(name.to_owned());
                }
                StatusCode::CREATED.into_response()
            }
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        }
    }
}

#[tokio::test]
async fn blobs_go_first_and_once() {
    let there = Arc::new(Mutex::new(Vec::new()));
    let location = || "/v2/charts/web/blobs/uploads/1?state=s%26t".to_owned();
    let server = Server::answering(taking(there.clone(), location)).await;
    let expected = [digest(BLOB), digest(b"{}"), "1.2.3".to_owned()];
    pushed(&server, &Access::default()).await.unwrap();
    assert_eq!(*there.lock().unwrap(), expected);
    let asked = server.seen().len();
    // An existing blob is not sent again, whatever size is reported.
    pushed(&server, &Access::default()).await.unwrap();
    assert_eq!(there.lock().unwrap()[3..], ["1.2.3"]);
    assert_eq!(server.seen().len() - asked, 3);
}

#[tokio::test]
async fn a_push_that_fails_is_tried_again() {
    let there = Arc::new(Mutex::new(Vec::new()));
    let location = || "1?state=s%26t".to_owned();
    let busy = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY];
    let server = Server::failing_first(busy, taking(there.clone(), location)).await;
    pushed(&server, &Access::default()).await.unwrap();
    assert_eq!(there.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn the_login_is_for_the_registry_alone() {
    let other = Server::answering(|_| StatusCode::CREATED.into_response()).await;
    let elsewhere = other.url("http", "/uploads/1?secret=s");
    let there = Arc::new(Mutex::new(Vec::new()));
    let server = Server::answering(behind_basic_auth(taking(there.clone(), move || {
        elsewhere.clone()
    })))
    .await;
    let refused = pushed(&server, &me()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "{} wants charts/web:1.2.3 uploaded to {}: refused, because uploads go only to the registry itself; ask its operator to make it answer with its own address, behind a proxy by the headers X-Forwarded-Host and X-Forwarded-Proto",
            server.host(),
            other.url("http", "/uploads/1"),
        )
    );
    assert!(other.seen().is_empty() && there.lock().unwrap().is_empty());
    // Redirects of uploads are never followed.
    let target = other.url("http", "/");
    let server = Server::answering(behind_basic_auth(move |request| {
        match request.method().as_str() {
            "HEAD" => StatusCode::NOT_FOUND.into_response(),
            _ => (
                StatusCode::TEMPORARY_REDIRECT,
                [(header::LOCATION, target.clone())],
            )
                .into_response(),
        }
    }))
    .await;
    let refused = told(&pushed(&server, &me()).await.unwrap_err());
    assert!(refused.contains("answered 307"), "{refused}");
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn what_a_registry_refuses_is_said_to_people() {
    for (status, expected) in [
        (401, "it requires credentials; log in by kco registry login"),
        (
            403,
            "this user may not push there; give the user access, or log in as another",
        ),
        (405, "it does not accept pushes; push to another registry"),
        (
            413,
            "this is larger than it accepts; remove from the chart what does not belong to it",
        ),
    ] {
        let server = Server::answering(move |request| match request.method().as_str() {
            "HEAD" => StatusCode::NOT_FOUND.into_response(),
            _ => StatusCode::from_u16(status).unwrap().into_response(),
        })
        .await;
        let refused = told(&pushed(&server, &Access::default()).await.unwrap_err());
        assert!(refused.ends_with(expected), "{refused}");
    }
    let changed = Server::answering(|request| match request.method().as_str() {
        "HEAD" => StatusCode::OK.into_response(),
        _ => (
            StatusCode::CREATED,
            [("docker-content-digest", format!("sha256:{}", "0".repeat(64)))],
        )
            .into_response(),
    })
    .await;
    let refused = told(&pushed(&changed, &Access::default()).await.unwrap_err());
    assert!(refused.contains("has digest sha256:0000"), "{refused}");
}

#[tokio::test]
async fn a_login_is_tried_before_it_is_kept() {
    let server = Server::answering(behind_basic_auth(|_| "{}".into_response())).await;
    let tried = async |password: &str| {
        let credentials = Credentials {
            username: "me".to_owned(),
            password: Password::new(password),
        };
        let host = Host::parse(&server.host()).unwrap();
        login(&host, credentials, &Trust::default(), limits()).await
    };
    tried("s3cret").await.unwrap();
    let asked = server.seen();
    assert_eq!(
        asked.last().unwrap(),
        &("/v2/".to_owned(), Some(MY_HEADER.to_owned()))
    );
    let refused = told(&tried("wrong").await.unwrap_err());
    assert!(
        refused.ends_with("/v2/: the user name or password is wrong; check them"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_token_is_asked_for_what_is_done() {
    let there = Arc::new(Mutex::new(Vec::new()));
    let registry = taking(there.clone(), || "1?state=s%26t".to_owned());
    let scopes = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&scopes);
    let server = Server::answering(move |request| {
        let given = request.headers().get(header::AUTHORIZATION);
        match request.uri().path() {
            "/token" => {
                assert!(given.is_some_and(|given| given == MY_HEADER));
                let query = request.uri().query().unwrap().to_owned();
                asked.lock().unwrap().push(query);
                r#"{"token":"t0ken"}"#.into_response()
            }
            "/v2/" if given.is_some_and(|given| given == "Bearer t0ken") => "{}".into_response(),
            _ if given.is_some_and(|given| given == "Bearer t0ken") => registry(request),
            _ => {
                let challenge = "Bearer realm=\"/token\",service=\"s\"";
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
            }
        }
    })
    .await;
    pushed(&server, &me()).await.unwrap();
    let host = Host::parse(&server.host()).unwrap();
    login(&host, me().credentials.unwrap(), &Trust::default(), limits())
        .await
        .unwrap();
    assert_eq!(there.lock().unwrap().len(), 3);
    assert_eq!(
        *scopes.lock().unwrap(),
        [
            "service=s&scope=repository%3Acharts%2Fweb%3Apull%2Cpush",
            "service=s"
        ]
    );
}
