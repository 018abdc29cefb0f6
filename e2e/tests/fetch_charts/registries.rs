//! OCI registries: open, with a password, with tokens, by TLS, with client certificates.

use anyhow::Result;
use e2e::HttpServer;
use e2e::http_server::Answer;
use serde_json::{Value, json};

use super::sources::{PASSWORD, Sources, USER, assert_served, fetched, password, refused, secret};

#[test]
fn a_chart_comes_from_a_registry_of_every_kind() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("registries")?;
    let credentials = password(&namespace)?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (ca, certificate, key) = (
        sources.file("ca.crt"),
        sources.file("client.crt"),
        sources.file("client.key"),
    );
    let by_tls = ["--ca-file", &ca];
    let by_certificate = ["--ca-file", &ca, "--cert-file", &certificate, "--key-file", &key];
    secret(&namespace, "ca", &json!({"ca.crt": sources.pem("ca.crt")?}))?;
    secret(
        &namespace,
        "client",
        &json!({"tls.crt": sources.pem("client.crt")?, "tls.key": sources.pem("client.key")?}),
    )?;
    let docker = json!({"auths": {sources.guarded.as_str(): {"username": USER, "password": PASSWORD}}});
    secret(
        &namespace,
        "docker",
        &json!({".dockerconfigjson": docker.to_string()}),
    )?;

    let check = |name: &str, registry: &str, flags: &[&str], how: Value| -> Result<()> {
        let (url, digest) = sources.push(registry, name, "1.2.3", flags)?;
        let mut chart = json!({"url": url, "version": "1.2.3"});
        chart
            .as_object_mut()
            .unwrap()
            .extend(how.as_object().unwrap().clone());
        let definition = fetched(&namespace, name, &chart)?;
        let resolved = &definition["status"]["chart"];
        assert_eq!(resolved["version"], "1.2.3", "{name}");
        assert_eq!(resolved["digest"], digest, "{name}");
        assert_eq!(
            definition["status"]["packageUrl"],
            format!("{url}:1.2.3"),
            "{name}"
        );
        assert_served(&namespace, &definition)
    };
    check("open", &sources.open, &["--plain-http"], json!({}))?;
    check(
        "guarded",
        &sources.guarded,
        &login,
        json!({"credentials": credentials}),
    )?;
    check(
        "tokens",
        &sources.tokens,
        &login,
        json!({"credentials": credentials}),
    )?;
    check(
        "docker",
        &sources.guarded,
        &login,
        json!({"dockerConfigRef": {"name": "docker"}}),
    )?;
    check(
        "sealed",
        &sources.sealed,
        &by_tls,
        json!({"caBundleRef": {"name": "ca"}}),
    )?;
    check(
        "unchecked",
        &sources.sealed,
        &by_tls,
        json!({"insecureSkipVerifyTLS": true}),
    )?;
    check(
        "mutual",
        &sources.mutual,
        &by_certificate,
        json!({"caBundleRef": {"name": "ca"}, "clientCertRef": {"name": "client"}}),
    )
}

#[test]
fn a_registry_that_does_not_give_the_chart_is_quoted_with_what_to_do() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("registries-refuse")?;
    password(&namespace)?;
    secret(&namespace, "wrong", &json!({"password": "wrong"}))?;
    secret(&namespace, "ca", &json!({"ca.crt": sources.pem("ca.crt")?}))?;
    secret(&namespace, "no-ca", &json!({"ca.crt": "no certificate"}))?;
    secret(
        &namespace,
        "client",
        &json!({"tls.crt": sources.pem("client.crt")?, "tls.key": sources.pem("client.key")?}),
    )?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (open, _) = sources.push(&sources.open, "refused-open", "1.0.0", &["--plain-http"])?;
    let (guarded, _) = sources.push(&sources.guarded, "refused-guarded", "1.0.0", &login)?;
    let (tokens, _) = sources.push(&sources.tokens, "refused-tokens", "1.0.0", &login)?;
    let wrong = super::sources::credentials(namespace.namespace(), "wrong", "password");
    let check =
        |name: &str, chart: Value, message: String| refused(&namespace, name, &chart, &message).map(drop);

    let wrong_password = "the user name or password is wrong; check credentials, or the entry for this host in the \
                          Docker configuration";
    check(
        "wrong-password",
        json!({"url": guarded, "version": "1.0.0", "credentials": wrong}),
        format!(
            "{} answered 401 for charts/refused-guarded:1.0.0: {wrong_password}",
            sources.guarded
        ),
    )?;
    check(
        "wrong-password-token",
        json!({"url": tokens, "version": "1.0.0", "credentials": wrong}),
        format!(
            "{} answered 401 for /token: {wrong_password}",
            sources.service.host()
        ),
    )?;
    check(
        "no-password",
        json!({"url": guarded, "version": "1.0.0"}),
        format!(
            "{} answered 401 for charts/refused-guarded:1.0.0: it requires credentials; set credentials or dockerConfigRef",
            sources.guarded
        ),
    )?;
    check(
        "missing-tag",
        json!({"url": open, "version": "9.9.9"}),
        format!(
            "{} answered 404 for charts/refused-open:9.9.9: there is no such chart or no such tag; check url, repo and \
             version",
            sources.open
        ),
    )?;
    check(
        "missing-range",
        json!({"url": open, "version": "^9"}),
        format!(
            "{} has no version that fits ^9 of chart charts/refused-open; its newest are 1.0.0",
            sources.open
        ),
    )?;
    check(
        "untrusted",
        json!({"url": format!("oci://{}/charts/none", sources.sealed), "version": "1.0.0", "clientCertRef": {"name": "client"}}),
        format!(
            "{} shows a certificate that is not trusted here: name its authority in caBundleRef, or set \
                 insecureSkipVerifyTLS: error sending request: client error (Connect): invalid peer certificate: UnknownIssuer",
            sources.sealed
        ),
    )?;
    check(
        "no-certificate",
        json!({
            "url": format!("oci://{}/charts/none", sources.mutual),
            "version": "1.0.0",
            "caBundleRef": {"name": "ca"},
        }),
        format!(
            "{} refuses the connection because it requires a client certificate that it accepts: set clientCertRef: error \
             sending request: client error (SendRequest): connection error: received fatal alert: CertificateRequired",
            sources.mutual
        ),
    )?;
    check(
        "no-ca",
        json!({"url": format!("oci://{}/charts/none", sources.sealed), "version": "1.0.0", "caBundleRef": {"name": "no-ca"}}),
        "key ca.crt of Secret registries-refuse/no-ca cannot be used as the certificates of authorities: it contains no certificate: expected lines from \
         -----BEGIN CERTIFICATE----- to its END".to_owned(),
    )
}

#[test]
fn a_token_is_asked_for_with_the_password_of_the_registry_alone() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("tokens")?;
    let credentials = password(&namespace)?;
    let login = ["--username", USER, "--password", PASSWORD, "--plain-http"];
    let (url, _) = sources.push(&sources.tokens, "token-asked", "1.0.0", &login)?;
    fetched(
        &namespace,
        "token-asked",
        &json!({"url": url, "version": "1.0.0", "credentials": credentials}),
    )?;
    let asked = sources.service.asked();
    let scope = "repository%3Acharts%2Ftoken-asked%3Apull";
    assert!(
        asked
            .iter()
            .any(|asked| asked.query.contains(scope)
                || asked.query.contains("repository:charts/token-asked:pull")),
        "{asked:?}"
    );
    Ok(())
}

#[test]
fn the_password_of_a_registry_is_for_its_own_challenge_alone() -> Result<()> {
    let namespace = Sources::shared()?.platform.namespace("challenges")?;
    let credentials = password(&namespace)?;
    let thief = HttpServer::start(|_| Answer::Content(br#"{"token": "taken"}"#.to_vec()))?;
    for (name, challenge) in [
        ("token-elsewhere", Answer::AskToken(thief.url("/token"))),
        ("password-elsewhere", Answer::AskPassword),
    ] {
        let storage = HttpServer::start(move |_| challenge.clone())?;
        let target = storage.url("/blob");
        let registry = HttpServer::start(move |_| Answer::Redirect(target.clone()))?;
        let host = registry.host();
        let message = format!(
            "{host} redirects from charts/web:1.0.0 to {}, which requires credentials: ours are only for {host}; ask its operator to redirect to an address that needs none, or use the chart's own address as url",
            storage.url("/blob")
        );
        let chart = json!({"url": format!("oci://{host}/charts/web"), "version": "1.0.0", "credentials": credentials});
        refused(&namespace, name, &chart, &message)?;
        for asked in [registry.asked(), storage.asked()].concat() {
            assert_eq!(asked.authorization, None, "{name}: {asked:?}");
        }
    }
    assert_eq!(thief.asked(), [], "nobody was sent to the thief");
    Ok(())
}
