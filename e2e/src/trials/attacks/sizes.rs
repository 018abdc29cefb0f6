//! Inputs that are too large or nested too deep must not keep others from being served.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::Certificate;
use serde_json::{Value, json};

use super::stage::Type;
use super::{Actor, Attack, Outcome, Stage};
use crate::host_platform::free_port;
use crate::platform::NAMESPACE;
use crate::{ChartFolder, Namespace};

/// A text that must not appear in any log.
const TELL_TALE: &str = "tell-tale-of-deep";

/// Far deeper than any parser of the platform goes.
const DEPTH: usize = 1000;

/// Memory at which its pod would be killed: 640 Mi, minus a margin.
const MOST: u64 = 570 << 20;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new(
            "size-deep-composition",
            Actor::Tenant,
            "nests a composition deeper than JSON is parsed, and waits for the controller to restart",
            deep,
        ),
        Attack::new(
            "size-review",
            Actor::Peer,
            "sends reviews of many MiB to the webhooks, many at once",
            reviews,
        ),
    ]
}

/// Nested objects, with a text in the middle.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"text": TELL_TALE}), |inner, _| json!({"a": inner}))
}

fn deep(stage: &Stage) -> Result<Outcome> {
    let chart = ChartFolder::copy("bazaar", "depth", "1.0.0")?;
    let schema = json!({
        "type": "object",
        "properties": {"greeting": {"type": "string"}, "anything": {"type": "object", "additionalProperties": true}},
    });
    chart.write("values.schema.json", &schema.to_string())?;
    let type_ = stage.define(stage.catalog(), &chart, "depth", &json!({}))?;
    stage.run_often(&type_)?;
    let a = stage.platform().namespace("size-deep-a")?;
    let b = stage.platform().namespace("size-deep-b")?;
    let tenant = stage.person(a.namespace(), "tenant", "edit")?;
    greet(&b, &type_, "before")?;

    let deep = json!({"anything": nested(DEPTH)});
    let composition = type_.composition(a.namespace(), "mine", &deep);
    let answer = tenant.write(&composition, &["create", "--validate=false"])?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "nothing is stored"));
    }
    stage
        .platform()
        .kill_controller_in(&type_.home, &type_.plural, &type_.version)?;
    stage.run_often(&type_)?;
    if greet(&b, &type_, "after").is_err() {
        return Ok(Outcome::got_through(
            "the victim's composition is not worked on any more",
        ));
    }
    let said = said(&a, &type_)?;
    a.kubectl(&["delete", &type_.resource(), "mine", "--wait=false"])?;
    if !is_gone(&a, &type_)? {
        return Ok(Outcome::got_through("the composition cannot be removed"));
    }
    Ok(match stage.logged(TELL_TALE)? {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            said,
            "the victim's composition is released after the restart; the text is in no log",
        ),
    })
}

/// Sets the greeting of the composition `web`, and waits until its object has it.
fn greet(namespace: &Namespace, type_: &Type, greeting: &str) -> Result<()> {
    let composition = type_.composition(namespace.namespace(), "web", &json!({"greeting": greeting}));
    namespace.wait_until("the composition", || match namespace.apply(&composition) {
        Ok(()) => Ok(Some(())),
        // Admission knows a new type a moment after it is served.
        Err(error) if error.to_string().contains("There can be a delay") => Ok(None),
        Err(error) => Err(error),
    })?;
    let greets = |object: &Value| object["data"]["greeting"] == greeting;
    namespace.wait("configmaps", "web-settings", greets).map(drop)
}

/// What the controller reports of the deep composition. It is searched as text, because the test cannot parse it
/// either.
fn said(namespace: &Namespace, type_: &Type) -> Result<String> {
    let path = r#"--output=jsonpath={.status.conditions[?(@.type=="Synced")].message}"#;
    namespace.wait_until("what the controller says", || {
        let said = namespace.kubectl(&["get", &type_.resource(), "mine", path])?;
        Ok(Some(said).filter(|said| !said.is_empty()))
    })
}

fn is_gone(namespace: &Namespace, type_: &Type) -> Result<bool> {
    let begun = Instant::now();
    let words = [
        "get",
        &type_.resource(),
        "mine",
        "--ignore-not-found",
        "--output=name",
    ];
    while begun.elapsed() < Duration::from_mins(1) {
        if namespace.kubectl(&words)?.trim().is_empty() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(false)
}

fn reviews(stage: &Stage) -> Result<Outcome> {
    let port = free_port()?;
    let name = stage.platform().run_webhooks(port)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let secret = Namespace::of(NAMESPACE, stage.platform().site());
    let trusted = secret.wait("secrets", "core-provider-webhook-certificates", |secret| {
        secret["data"]["ca.crt"].is_string()
    })?;
    let trusted = BASE64_STANDARD.decode(trusted["data"]["ca.crt"].as_str().unwrap_or_default())?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([Certificate::from_pem(&trusted)?])
        .build()?;
    let honest = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": "composition.krateo.io/v2", "objects": []},
    })
    .to_string();
    let send = |path: &'static str, body: Vec<u8>| {
        let url = format!("https://{}:{port}{path}", Ipv4Addr::LOCALHOST);
        let request = client
            .post(url)
            .header("content-type", "application/json")
            .body(body);
        async move {
            let answer = request.send().await?;
            let status = answer.status().as_u16();
            Ok::<_, reqwest::Error>((status, answer.text().await?))
        }
    };
    runtime.block_on(async {
        // Wait until it listens.
        let begun = Instant::now();
        while send("/convert", honest.clone().into_bytes()).await.is_err() {
            anyhow::ensure!(begun.elapsed() < Duration::from_mins(1), "the webhooks do not answer");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Small values need the most memory per byte.
        let full = |bytes: usize| {
            let head = br#"{"apiVersion":"v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"v2","objects":["#;
            let mut body = head.to_vec();
            // As many objects of this size as a conversion may contain.
            let spec = ["[]"; 70].join(",");
            while body.len() < bytes {
                let object = format!(r#"{{"apiVersion":"v1","metadata":{{}},"spec":[{spec}]}},"#);
                body.extend_from_slice(object.as_bytes());
            }
            body.extend_from_slice(br#"{"apiVersion":"v1","metadata":{}}]}}"#);
            body
        };
        let mut said = String::new();
        for (path, bytes) in [("/validate", 5 << 20), ("/mutate", 5 << 20), ("/convert", 65 << 20)] {
            match send(path, full(bytes)).await {
                Ok((413, text)) => said = text,
                Ok((status, _)) => {
                    return Ok(Outcome::got_through(format!("{bytes} bytes to {path} are answered {status}")));
                }
                // The connection is closed before everything is sent.
                Err(error) => said = format!("{path}: {error:#}"),
            }
        }
        let large = full(60 << 20);
        let at_once = (0..6).map(|_| send("/convert", large.clone()));
        let medium = full(3 << 20);
        let beside = (0..20).map(|_| send("/validate", medium.clone()));
        let (_, _) = tokio::join!(
            futures::future::join_all(at_once),
            futures::future::join_all(beside)
        );
        let (status, text) = send("/convert", honest.into_bytes())
            .await
            .context("the webhooks do not answer any more")?;
        if status != 200 {
            return Ok(Outcome::got_through(format!("a small review is answered {status}: {text}")));
        }
        let peak = stage.platform().plane().usage(&name)?.peak;
        if peak > MOST {
            return Ok(Outcome::got_through(format!("core-provider took {} MiB", peak >> 20)));
        }
        Ok(Outcome::refused(
            said,
            format!("core-provider took {} MiB at most, and answers", peak >> 20),
        ))
    })
}
