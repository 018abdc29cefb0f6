//! `kco cluster list`: the clusters that the operator was given, and their state.

use anyhow::Result;
use api::mesh::annotations::CLUSTER_STATE;
use cluster::kubeconfig::{self, Limits, renew};
use cluster::{ResourceId, Selector};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};

use super::args::List;
use super::home;
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session;
use crate::release::table::{Cell, table};

/// What the operator wrote about a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Noted {
    state: String,
    since: String,
    message: String,
    left_behind: Vec<String>,
}

/// A cluster.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    server: String,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// What is left on the cluster of objects that were removed by force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_behind: Vec<String>,
}

/// Prints the clusters sorted by name.
pub(super) fn run(args: List) -> Result<()> {
    let (rows, screen) = session::run(&home(args.connection), async |session| {
        let labels = format!("{}=true", kubeconfig::LABEL);
        let selector = Selector {
            namespace: Some(&session.namespace),
            labels: Some(&labels),
        };
        let found: Vec<Secret> = session
            .cluster
            .list(&ResourceId::of::<Secret>(), selector)
            .await?;
        let now = Timestamp::now();
        let mut rows: Vec<Row> = found
            .iter()
            .map(|secret| row(secret, &args.kubeconfig_key, now))
            .collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((rows, session.screen))
    })?;
    output::print(args.output.output, &rows, || text(&rows, screen))
}

fn row(secret: &Secret, key: &str, now: Timestamp) -> Row {
    let annotations = secret.metadata.annotations.clone().unwrap_or_default();
    let noted: Noted = annotations
        .get(CLUSTER_STATE)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let Noted {
        mut state,
        since,
        mut message,
        left_behind,
    } = noted;
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    // The operator decides which addresses are allowed, so all are accepted here.
    let limits = Limits {
        loopback: true,
        link_local: true,
        unverified_tls: true,
        plain_http: true,
        ..Limits::default()
    };
    let read = kubeconfig::untrusted(data.map(|data| data.0.as_slice()).unwrap_or_default(), &limits);
    let server = match &read {
        Ok(config) => config.cluster_url.to_string(),
        Err(_) => "-".to_owned(),
    };
    if let (true, Err(error)) = (message.is_empty(), &read) {
        message = error.to_string();
    }
    if state.is_empty() {
        // The operator has not seen it yet.
        "-".clone_into(&mut state);
    }
    let token_expires = renew::Note::of(&annotations)
        .ok()
        .flatten()
        .map(|note| note.expires);
    if message.is_empty() && token_expires.is_some_and(|expires| expires <= now) {
        "the token has expired: join the cluster again".clone_into(&mut message);
    }
    Row {
        name: secret.metadata.name.clone().unwrap_or_default(),
        server,
        state: plain(&state),
        since: plain(&since),
        token_expires,
        message: plain(&message),
        left_behind: left_behind.iter().map(|left| plain(left)).collect(),
    }
}

/// Replaces control characters, which others may have written into an annotation.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn text(rows: &[Row], screen: Screen) -> String {
    let headers = ["NAME", "STATE", "SINCE", "SERVER", "TOKEN UNTIL", "MESSAGE"];
    let mut cells: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    cells.extend(rows.iter().map(|row| {
        let Row {
            name,
            server,
            state,
            since,
            token_expires,
            message,
            left_behind,
        } = row;
        vec![
            name.as_str().into(),
            screen.cell(paint(state), state.clone()),
            since.as_str().into(),
            server.as_str().into(),
            token_expires
                .map_or_else(|| "-".to_owned(), |time| time.to_string())
                .into(),
            told(message, left_behind).into(),
        ]
    }));
    table(&cells)
}

/// The message about a cluster.
fn told(message: &str, left_behind: &[String]) -> String {
    let left = left_behind.join(", ");
    match (message.is_empty(), left.is_empty()) {
        (_, true) => message.to_owned(),
        (true, false) => format!("left behind: {left}"),
        (false, false) => format!("{message}; left behind: {left}"),
    }
}

fn paint(state: &str) -> Paint {
    match state {
        "Engaged" => Paint::Good,
        "Unreachable" | "Refused" => Paint::Bad,
        "Discovered" | "Connecting" => Paint::Busy,
        _ => Paint::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn secret(kubeconfig: &str, annotations: &[(&str, &str)]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("edge".to_owned());
        let owned = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        secret.metadata.annotations = Some(owned.collect());
        secret.data = Some([(kubeconfig::KEY.to_owned(), ByteString(kubeconfig.into()))].into());
        secret
    }

    fn kubeconfig() -> String {
        json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "users": [{"name": "u", "user": {"token": "s3cr3t"}}],
        })
        .to_string()
    }

    #[test]
    fn a_cluster_is_shown_with_what_the_operator_says() {
        let state = r#"{"state":"Unreachable","since":"2026-01-01T00:00:00Z","message":"no\u001banswer"}"#;
        let noted = [
            (CLUSTER_STATE, state),
            (renew::TOKEN_EXPIRES, "2026-01-08T00:00:00Z"),
            (renew::TOKEN_LIFETIME, "604800"),
            (renew::SERVICE_ACCOUNT, "ops/edge"),
        ];
        let shown = row(
            &secret(&kubeconfig(), &noted),
            kubeconfig::KEY,
            "2026-01-02T00:00:00Z".parse().unwrap(),
        );
        assert_eq!(
            (shown.state.as_str(), shown.message.as_str()),
            ("Unreachable", "no answer")
        );
        assert_eq!(shown.server, "https://127.0.0.1:6443/");
        assert_eq!(shown.token_expires.unwrap().to_string(), "2026-01-08T00:00:00Z");
    }

    #[test]
    fn what_was_left_behind_is_shown_with_the_state() {
        let state = r#"{"state":"Engaged","since":"","message":"it answers again","leftBehind":["release a","release b"]}"#;
        let shown = row(
            &secret(&kubeconfig(), &[(CLUSTER_STATE, state)]),
            kubeconfig::KEY,
            "2026-01-02T00:00:00Z".parse().unwrap(),
        );
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["leftBehind"], json!(["release a", "release b"]));
        assert_eq!(
            told(&shown.message, &shown.left_behind),
            "it answers again; left behind: release a, release b"
        );
        assert_eq!(told("", &shown.left_behind), "left behind: release a, release b");
        assert_eq!(told("no answer", &[]), "no answer");
    }

    #[test]
    fn a_cluster_that_cannot_be_used_says_why() {
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        let bad = row(&secret("s3cr3t", &[]), kubeconfig::KEY, now);
        assert_eq!((bad.state.as_str(), bad.server.as_str()), ("-", "-"));
        assert!(
            bad.message.contains("cannot be read") && !bad.message.contains("s3cr3t"),
            "{}",
            bad.message
        );
        let expired = [
            (renew::TOKEN_EXPIRES, "2026-01-08T00:00:00Z"),
            (renew::TOKEN_LIFETIME, "604800"),
            (renew::SERVICE_ACCOUNT, "ops/edge"),
        ];
        assert!(
            row(&secret(&kubeconfig(), &expired), kubeconfig::KEY, now)
                .message
                .contains("expired")
        );
        // The operator was configured with another key.
        let elsewhere = row(&secret(&kubeconfig(), &[]), "config", now);
        assert_eq!(elsewhere.server, "-");
    }
}
