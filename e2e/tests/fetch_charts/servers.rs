//! Servers with problems: temporary ones are retried, others are reported.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use e2e::HttpServer;
use e2e::http_server::Answer;
use serde_json::json;

use super::repositories::{file, repository};
use super::sources::{Sources, chart, fetched, refused};

#[test]
fn a_server_that_has_a_bad_moment_is_asked_again() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("bad-moments")?;
    let bytes = chart("patient", "1.0.0")?.package(platform.site())?.bytes()?;
    let asked = AtomicUsize::new(0);
    let server = HttpServer::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::Status(429),
        1 => Answer::Status(500),
        2 => Answer::Drop(bytes.clone()),
        _ => Answer::Content(bytes.clone()),
    })?;
    let url = server.url("/patient-1.0.0.tgz");
    let definition = fetched(&namespace, "patient", &json!({"url": url}))?;
    assert_eq!(definition["status"]["chart"]["version"], "1.0.0");
    assert!(server.asked().len() >= 4, "{:?}", server.asked());
    Ok(())
}

#[test]
fn a_repository_that_has_bad_moments_is_asked_again_for_index_and_archive() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("bad-repository")?;
    let files = repository(platform.site(), &[("lenient", "1.0.0")])?;
    let asked_before = Mutex::new(BTreeMap::<String, usize>::new());
    let server = HttpServer::start(move |asked| {
        let mut before = asked_before.lock().unwrap();
        let times = before.entry(asked.path.clone()).or_default();
        *times += 1;
        match *times {
            1 => Answer::Status(429),
            2 => Answer::Status(500),
            _ => file(&files, asked),
        }
    })?;
    let chart = json!({"url": server.url("/charts"), "repo": "lenient"});
    let definition = fetched(&namespace, "lenient", &chart)?;
    assert_eq!(definition["status"]["chart"]["version"], "1.0.0");
    Ok(())
}

#[test]
fn what_does_not_pass_is_said() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("bad-servers")?;
    let bytes = chart("unlucky", "1.0.0")?.package(platform.site())?.bytes()?;
    let answers = [
        ("large", Answer::Zeros(101 * 1024 * 1024)),
        ("dropped", Answer::Drop(bytes.clone())),
        ("slow", Answer::Stall(bytes)),
        ("busy", Answer::Status(429)),
        ("broken", Answer::Status(500)),
        ("forbidden", Answer::Status(403)),
    ];
    let server = HttpServer::start(move |asked| {
        let answer = answers.iter().find(|(name, _)| asked.path.contains(name));
        answer.map_or(Answer::Status(404), |(_, answer)| answer.clone())
    })?;
    let host = server.host();
    let check = |name: &str, message: &str| {
        let chart = json!({"url": server.url(&format!("/{name}-1.0.0.tgz"))});
        refused(&namespace, name, &chart, message).map(drop)
    };
    check(
        "large",
        &format!(
            "/large-1.0.0.tgz from {host} is larger than 104857600 bytes, the limit for an archive: remove from the chart what does not belong to it, and publish it again"
        ),
    )?;
    check(
        "dropped",
        &format!(
            "could not get /dropped-1.0.0.tgz from {host}: error sending request: client error (SendRequest): \
             connection closed before message completed"
        ),
    )?;
    check(
        "busy",
        &format!(
            "{host} answered 429 for /busy-1.0.0.tgz: it asks for fewer requests; the fetch is tried again later"
        ),
    )?;
    check(
        "broken",
        &format!(
            "{host} answered 500 for /broken-1.0.0.tgz: it has an internal error; the fetch is tried again later"
        ),
    )?;
    check(
        "forbidden",
        &format!(
            "{host} answered 403 for /forbidden-1.0.0.tgz: it is not public; set credentials or dockerConfigRef"
        ),
    )?;
    check(
        "slow",
        &format!(
            "{} was not fetched within 60 s: check that its host is reachable and fast enough",
            server.url("/slow-1.0.0.tgz")
        ),
    )?;
    Ok(())
}

#[test]
fn nobody_listens() -> Result<()> {
    let namespace = Sources::shared()?.platform.namespace("nobody")?;
    let host = {
        let server = HttpServer::start(|_| Answer::Status(404))?;
        server.host()
    };
    let message = format!(
        "could not get /a-1.0.0.tgz from {host}: error sending request: client error (Connect): tcp connect error: \
         Connection refused (os error 111)"
    );
    refused(
        &namespace,
        "nobody",
        &json!({"url": format!("http://{host}/a-1.0.0.tgz")}),
        &message,
    )
    .map(drop)
}
