//! Chart repositories and archives by TLS, and where their redirects may lead.

use anyhow::Result;
use e2e::HttpServer;
use e2e::http_server::Answer;
use serde_json::{Value, json};

use super::repositories::{Files, file, known, repository};
use super::sources::{Sources, chart, credentials, fetched, password, refused, secret};

fn with(chart: Value, more: &Value) -> Value {
    let mut chart = chart;
    chart
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    chart
}

#[test]
fn a_chart_comes_by_tls_from_a_repository_or_straight_from_its_address() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("https")?;
    secret(&namespace, "ca", &json!({"ca.crt": sources.pem("ca.crt")?}))?;
    let files = repository(
        sources.platform.site(),
        &[("sealed-shelf", "1.0.0"), ("sealed-shelf", "1.1.0")],
    )?;
    let server = sources.serve_tls(move |asked| file(&files, asked))?;
    let by_index = json!({"url": server.url("/charts"), "repo": "sealed-shelf", "version": "~1.0"});
    let direct = json!({"url": server.url("/charts/sealed-shelf-1.1.0.tgz")});
    let ca = json!({"caBundleRef": {"name": "ca"}});
    let check = |name: &str, chart: Value, version: &str| -> Result<()> {
        let definition = fetched(&namespace, name, &chart)?;
        assert_eq!(definition["status"]["chart"]["version"], version, "{name}");
        // The next one is of the same type.
        namespace
            .kubectl(&["delete", "compositiondefinition", name, "--timeout=60s"])
            .map(drop)
    };
    check("by-index", with(by_index.clone(), &ca), "1.0.0")?;
    check("direct", with(direct.clone(), &ca), "1.1.0")?;
    check(
        "unchecked",
        with(direct.clone(), &json!({"insecureSkipVerifyTLS": true})),
        "1.1.0",
    )?;

    let untrusted = format!(
        "{} shows a certificate that is not trusted here: name its authority in caBundleRef, or set insecureSkipVerifyTLS: \
         error sending request: client error (Connect): invalid peer certificate: UnknownIssuer",
        server.host()
    );
    refused(&namespace, "untrusted", &direct, &untrusted)?;
    refused(&namespace, "untrusted-index", &by_index, &untrusted)?;
    let plain = HttpServer::start(|_| Answer::Status(404))?;
    let url = plain.url("/none-1.0.0.tgz").replace("http://", "https://");
    let message = format!(
        "{} does not speak TLS: set plainHTTP for a registry, or write http:// for a repository or an archive",
        plain.host()
    );
    refused(&namespace, "no-tls", &json!({"url": url}), &message).map(drop)
}

#[test]
fn what_is_asked_for_by_tls_stays_there_and_leaves_credentials_and_certificates_behind() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("https-redirects")?;
    let credentials = password(&namespace)?;
    secret(&namespace, "ca", &json!({"ca.crt": sources.pem("ca.crt")?}))?;
    let bytes = chart("led-by-tls", "1.0.0")?
        .package(sources.platform.site())?
        .bytes()?;
    let files = Files::from([("/led-by-tls-1.0.0.tgz".to_owned(), bytes)]);
    let copy = files.clone();
    let other = sources.serve_tls(move |asked| file(&copy, asked))?;
    let plain = HttpServer::start(move |asked| file(&files, asked))?;
    let (there, down) = (
        other.url("/led-by-tls-1.0.0.tgz"),
        plain.url("/led-by-tls-1.0.0.tgz?token=t"),
    );
    let first = sources.serve_tls(move |asked| match &asked.authorization {
        Some(authorization) if *authorization == known() && asked.path == "/away-1.0.0.tgz" => {
            Answer::Redirect(there.clone())
        }
        Some(authorization) if *authorization == known() => Answer::Redirect(down.clone()),
        _ => Answer::AskPassword,
    })?;
    let from = |path: &str| json!({"url": first.url(path), "credentials": credentials, "caBundleRef": {"name": "ca"}});
    fetched(&namespace, "led-by-tls", &from("/away-1.0.0.tgz"))?;
    let seen = other.asked();
    assert!(!seen.is_empty());
    for asked in &seen {
        assert!(
            asked.authorization.is_none() && !asked.other_credentials,
            "{asked:?}"
        );
    }
    let downgraded = format!(
        "{} redirects from /down-1.0.0.tgz to {}, which does not use TLS: it has to redirect to https, or the url has to begin with http",
        first.host(),
        plain.url("/led-by-tls-1.0.0.tgz")
    );
    refused(&namespace, "led-down", &from("/down-1.0.0.tgz"), &downgraded)?;
    assert_eq!(plain.asked(), [], "nobody was asked without TLS");
    Ok(())
}

#[test]
fn a_repository_that_asks_for_a_password_says_when_it_is_wrong() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("https-passwords")?;
    secret(&namespace, "wrong", &json!({"password": "wrong"}))?;
    let wrong = credentials("https-passwords", "wrong", "password");
    let server = HttpServer::start(|asked| match &asked.authorization {
        Some(authorization) if *authorization == known() => Answer::Status(404),
        _ => Answer::AskPassword,
    })?;
    let (listed, direct) = (server.url("/charts"), server.url("/charts/web-1.0.0.tgz"));
    let answered = |path: &str, advice: &str| format!("{} answered 401 for {path}: {advice}", server.host());
    let (index, archive) = ("/charts/index.yaml", "/charts/web-1.0.0.tgz");
    let is_wrong = "the user name or password is wrong; check credentials, or the entry for this host in the Docker \
                    configuration";
    let who = "it requires credentials; set credentials or dockerConfigRef";
    let check =
        |name: &str, chart: Value, message: String| refused(&namespace, name, &chart, &message).map(drop);
    let login = json!({"credentials": wrong});
    let by_index = json!({"url": listed, "repo": "web"});
    let by_address = json!({"url": direct});
    check(
        "wrong-for-index",
        with(by_index.clone(), &login),
        answered(index, is_wrong),
    )?;
    check(
        "wrong-for-archive",
        with(by_address.clone(), &login),
        answered(archive, is_wrong),
    )?;
    check("none-for-index", by_index, answered(index, who))?;
    check("none-for-archive", by_address, answered(archive, who))
}
