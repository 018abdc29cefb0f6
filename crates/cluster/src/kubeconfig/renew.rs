//! Renews tokens in kubeconfig Secrets before they expire.
//!
//! When a cluster is joined, a `ServiceAccount` is created there that may request tokens for itself, and the Secret
//! notes the token's account and expiry. With that, the token is renewed automatically, and a stolen token is only
//! useful for a limited time, unless the thief renews it, too, which the audit log of the target shows.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::token::{self, Token, TokenError, request_token};
use crate::{Cluster, ObjectId};

/// A new token has to be good for at least this long before it is due for renewal.
const SOONEST: SignedDuration = SignedDuration::from_mins(1);

/// Annotation of a kubeconfig Secret: when its token expires, RFC 3339.
pub const TOKEN_EXPIRES: &str = "mesh.openkcm.io/token-expires";

/// Annotation of a kubeconfig Secret: the lifetime with which its tokens are requested, in seconds.
pub const TOKEN_LIFETIME: &str = "mesh.openkcm.io/token-lifetime";

/// Annotation of a kubeconfig Secret: the account of its token on the target, `<namespace>/<name>`.
pub const SERVICE_ACCOUNT: &str = "mesh.openkcm.io/service-account";

/// A token that could not be renewed. The old one remains in use until it expires.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The annotations do not say what to renew.
    #[error(
        "annotation {annotation} of the kubeconfig Secret is missing or malformed: join the cluster again"
    )]
    Annotation {
        /// The annotation.
        annotation: &'static str,
    },
    /// The Secret no longer contains a kubeconfig.
    #[error("the kubeconfig in the Secret cannot be given another token")]
    Kubeconfig(#[from] super::Error),
    /// The target issued no token.
    #[error("the target issued no token for {account}")]
    Request {
        /// `<namespace>/<name>`.
        account: String,
        /// Why.
        source: TokenError,
    },
    /// The target's token would be due for renewal at once, and so would the next one.
    #[error(
        "the target's token for {account} expires at {expires}, too soon to be renewed in time: compare the target's clock with ours"
    )]
    TooShort {
        /// `<namespace>/<name>`.
        account: String,
        /// When it expires.
        expires: Timestamp,
    },
    /// The Secret could not be written.
    #[error("could not store the renewed token")]
    Store(#[source] crate::Error),
}

/// A renewed token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// When the new token expires.
    pub expires: Timestamp,
}

/// What is noted about the token of a kubeconfig Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Namespace of the `ServiceAccount` on the target.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When the token expires.
    pub expires: Timestamp,
    /// The requested lifetime of tokens.
    pub lifetime: Duration,
}

impl Note {
    /// The note in these annotations; `None` when they do not mention a token at all.
    ///
    /// # Errors
    ///
    /// [`Error::Annotation`] when some of them are missing or malformed.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, Error> {
        let text = |annotation| annotations.get(annotation).map(String::as_str);
        if [TOKEN_EXPIRES, TOKEN_LIFETIME, SERVICE_ACCOUNT]
            .into_iter()
            .all(|annotation| text(annotation).is_none())
        {
            return Ok(None);
        }
        let wrong = |annotation| Error::Annotation { annotation };
        let account = text(SERVICE_ACCOUNT).and_then(|account| account.split_once('/'));
        let (namespace, name) = account.ok_or_else(|| wrong(SERVICE_ACCOUNT))?;
        let expires = text(TOKEN_EXPIRES).and_then(|time| time.parse().ok());
        let seconds = text(TOKEN_LIFETIME).and_then(|seconds| seconds.parse::<u32>().ok());
        Ok(Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            expires: expires.ok_or_else(|| wrong(TOKEN_EXPIRES))?,
            lifetime: seconds
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds.into()))
                .ok_or_else(|| wrong(TOKEN_LIFETIME))?,
        }))
    }

    /// The note about a token that was requested at `now` with the lifetime `asked`. If the server granted much less,
    /// the next one is requested with that, so that it is renewed at half of its real lifetime. The duration of the
    /// request and clock differences do not shorten the lifetime: that would add up from one token to the next.
    pub fn about(namespace: &str, name: &str, token: &Token, asked: Duration, now: Timestamp) -> Self {
        let given = Duration::try_from(token.expires.duration_since(now)).unwrap_or_default();
        let lifetime = if given < asked / 10 * 9 { given } else { asked };
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            expires: token.expires,
            // No server accepts less than ten minutes.
            lifetime: lifetime.max(Duration::from_mins(10)),
        }
    }

    /// The annotations for this note.
    pub fn annotations(&self) -> Value {
        json!({
            TOKEN_EXPIRES: self.expires.to_string(),
            TOKEN_LIFETIME: self.lifetime.as_secs().to_string(),
            SERVICE_ACCOUNT: format!("{}/{}", self.namespace, self.name),
        })
    }

    /// When to renew: after half of the lifetime, so that an unreachable target has the other half to come back.
    pub fn due(&self) -> Timestamp {
        let half = SignedDuration::try_from(self.lifetime / 2).unwrap_or(SignedDuration::ZERO);
        self.expires.checked_sub(half).unwrap_or(Timestamp::MIN)
    }
}

/// True when the token of a kubeconfig Secret with these annotations is due for renewal. False if there is no note,
/// or it cannot be read.
pub fn is_due(annotations: &BTreeMap<String, String>, now: Timestamp) -> bool {
    matches!(Note::of(annotations), Ok(Some(note)) if note.due() <= now)
}

/// Requests a new token from the target, with the current one, and writes it to the Secret at home, provided that the
/// Secret has not changed since it was read. The `ServiceAccount` needs `create` on its own `serviceaccounts/token`,
/// and this process `patch` on Secrets in this namespace. `key` is that of the kubeconfig in the Secret's data.
///
/// The target's admin decides how long the token lasts. A token that would be due for renewal at once is refused, so
/// that a target cannot cause constant writes at home.
///
/// # Errors
///
/// [`Error`]; the previous token is still in the Secret, and renewing can be tried again.
pub async fn renew(
    home: &Cluster,
    target: &Cluster,
    secret: &Secret,
    key: &str,
    manager: &str,
    now: Timestamp,
) -> Result<Renewed, Error> {
    let note = Note::of(secret.annotations())?.ok_or(Error::Annotation {
        annotation: SERVICE_ACCOUNT,
    })?;
    let Note {
        namespace,
        name,
        expires: _,
        lifetime,
    } = &note;
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    let kubeconfig = data.map(|data| data.0.as_slice()).unwrap_or_default();
    let token = request_token(target, namespace, name, *lifetime)
        .await
        .map_err(|source| Error::Request {
            account: format!("{namespace}/{name}"),
            source,
        })?;
    let note = Note::about(namespace, name, &token, *lifetime, now);
    if note.due() < now + SOONEST {
        return Err(Error::TooShort {
            account: format!("{namespace}/{name}"),
            expires: token.expires,
        });
    }
    let renewed = token::replace_token(kubeconfig, &token.secret)?;
    let id = ObjectId::of::<Secret>(secret.metadata.namespace.as_deref(), &secret.name_any());
    let id = id.map_err(Error::Store)?;
    let patch = json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": note.annotations(),
        },
        "stringData": {key: renewed},
    });
    home.merge(&id, &patch, manager).await.map_err(Error::Store)?;
    Ok(Renewed {
        expires: token.expires,
    })
}

#[cfg(test)]
mod tests {
    use http::Method;
    use k8s_openapi::ByteString;

    use super::*;
    use crate::kubeconfig::KEY;
    use crate::scripted::Script;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn noted() -> BTreeMap<String, String> {
        [
            (TOKEN_EXPIRES, "2026-01-08T00:00:00Z"),
            (TOKEN_LIFETIME, "604800"),
            (SERVICE_ACCOUNT, "ops/far"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    #[test]
    fn a_token_is_renewed_after_half_of_its_time() {
        assert!(!is_due(&noted(), time("2026-01-04T11:59:59Z")));
        assert!(is_due(&noted(), time("2026-01-04T12:00:00Z")));
        assert!(is_due(&noted(), time("2026-02-01T00:00:00Z")));
        assert!(!is_due(&BTreeMap::new(), time("2026-02-01T00:00:00Z")));
    }

    #[test]
    fn notes_are_read_whole_or_not_at_all() {
        assert_eq!(Note::of(&BTreeMap::new()).unwrap(), None);
        for annotation in [TOKEN_EXPIRES, TOKEN_LIFETIME, SERVICE_ACCOUNT] {
            for bad in [None, Some(""), Some("x"), Some("0")] {
                let mut annotations = noted();
                annotations.remove(annotation);
                annotations.extend(bad.map(|bad| (annotation.to_owned(), bad.to_owned())));
                let error = Note::of(&annotations).unwrap_err().to_string();
                assert!(error.contains(annotation), "{error}");
            }
        }
    }

    #[test]
    fn a_shorter_token_than_was_asked_for_is_renewed_at_half_of_what_it_has() {
        let now = time("2026-01-01T00:00:00Z");
        let token = Token {
            secret: "t".to_owned().into(),
            expires: time("2026-01-01T01:00:00Z"),
        };
        let note = Note::about("ops", "far", &token, Duration::from_hours(168), now);
        assert_eq!(note.due(), time("2026-01-01T00:30:00Z"));
        let annotations: BTreeMap<String, String> = serde_json::from_value(note.annotations()).unwrap();
        assert_eq!(Note::of(&annotations).unwrap(), Some(note));
    }

    #[test]
    fn a_token_that_is_renewed_again_and_again_does_not_last_shorter_each_time() {
        let now = time("2026-01-01T00:00:00Z");
        let mut lifetime = Duration::from_hours(168);
        for _ in 0..1000 {
            let given = SignedDuration::try_from(lifetime).unwrap() - SignedDuration::from_secs(30);
            let token = Token {
                secret: "t".to_owned().into(),
                expires: now + given,
            };
            lifetime = Note::about("ops", "far", &token, lifetime, now).lifetime;
        }
        assert_eq!(lifetime, Duration::from_hours(168));
    }

    fn secret() -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("far".to_owned());
        secret.metadata.namespace = Some("home".to_owned());
        secret.metadata.resource_version = Some("7".to_owned());
        secret.metadata.annotations = Some(noted());
        let kubeconfig = json!({
            "current-context": "far", "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
            "clusters": [{"name": "far", "cluster": {"server": "https://far.example"}}],
            "users": [{"name": "far", "user": {"token": "older"}}],
        });
        let data = (
            super::super::KEY.to_owned(),
            ByteString(kubeconfig.to_string().into_bytes()),
        );
        secret.data = Some([data].into());
        secret
    }

    const TOKENS: &str = "/api/v1/namespaces/ops/serviceaccounts/far/token";
    const SECRET: &str = "/api/v1/namespaces/home/secrets/far";

    #[tokio::test]
    async fn the_new_token_takes_the_place_of_the_old_one() {
        let target = Script::new("target").on(
            Method::POST,
            TOKENS,
            |body| assert_eq!(body["spec"]["expirationSeconds"], 604_800),
            201,
            json!({"status": {"token": "newer", "expirationTimestamp": "2026-01-11T12:00:00Z"}}),
        );
        let home = Script::new("home").on(
            Method::PATCH,
            SECRET,
            |body| {
                assert_eq!(body["metadata"]["resourceVersion"], "7");
                assert_eq!(
                    body["metadata"]["annotations"][TOKEN_EXPIRES],
                    "2026-01-11T12:00:00Z"
                );
                let kubeconfig = body["stringData"]["kubeconfig"].as_str().unwrap();
                assert!(
                    kubeconfig.contains("newer") && !kubeconfig.contains("older"),
                    "{kubeconfig}"
                );
                assert!(kubeconfig.contains("https://far.example"), "{kubeconfig}");
            },
            200,
            json!({"kind": "Secret"}),
        );
        let now = time("2026-01-04T12:00:00Z");
        let renewed = renew(&home.cluster(), &target.cluster(), &secret(), KEY, "test", now)
            .await
            .unwrap();
        assert_eq!(renewed.expires, time("2026-01-11T12:00:00Z"));
        target.finish();
        home.finish();
    }

    #[tokio::test]
    async fn the_kubeconfig_may_be_under_another_key() {
        let mut secret = secret();
        let data = secret.data.take().unwrap();
        secret.data = data
            .into_values()
            .map(|data| ("config".to_owned(), data))
            .next()
            .map(|one| [one].into());
        let target = Script::new("target").on(
            Method::POST,
            TOKENS,
            |_| {},
            201,
            json!({"status": {"token": "newer", "expirationTimestamp": "2026-01-11T12:00:00Z"}}),
        );
        let home = Script::new("home").on(
            Method::PATCH,
            SECRET,
            |body| {
                let data = body["stringData"].as_object().unwrap();
                assert_eq!(data.keys().collect::<Vec<_>>(), ["config"]);
                assert!(data["config"].as_str().unwrap().contains("newer"));
            },
            200,
            json!({"kind": "Secret"}),
        );
        let now = time("2026-01-04T12:00:00Z");
        renew(&home.cluster(), &target.cluster(), &secret, "config", "test", now)
            .await
            .unwrap();
        target.finish();
        home.finish();
    }

    #[tokio::test]
    async fn a_target_cannot_have_home_written_to_all_the_time_or_at_length() {
        let long = "x".repeat(20_000);
        for (token, expires, names) in [
            ("newer", "2026-01-01T00:00:00Z", "expires at 2026-01-01"),
            ("newer", "2026-01-04T12:00:01Z", "expires at 2026-01-04"),
            ("newer", "2026-01-04T12:05:30Z", "expires at 2026-01-04"),
            (&*long, "2026-01-11T12:00:00Z", "20000 bytes"),
        ] {
            let target = Script::new("target").on(
                Method::POST,
                TOKENS,
                |_| {},
                201,
                json!({"status": {"token": token, "expirationTimestamp": expires}}),
            );
            let home = Script::new("home");
            let now = time("2026-01-04T12:00:00Z");
            let error = renew(&home.cluster(), &target.cluster(), &secret(), KEY, "test", now)
                .await
                .unwrap_err();
            let mut told = error.to_string();
            if let Some(source) = std::error::Error::source(&error) {
                told += &source.to_string();
            }
            assert!(told.contains(names) && !told.contains("xxx"), "{told}");
            target.finish();
            home.finish();
        }
    }

    #[tokio::test]
    async fn a_target_that_refuses_leaves_the_secret_alone() {
        let target = Script::new("target").refuse(Method::POST, TOKENS, 401, "Unauthorized", "no");
        let home = Script::new("home");
        let now = time("2026-01-04T12:00:00Z");
        let error = renew(&home.cluster(), &target.cluster(), &secret(), KEY, "test", now)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Request { .. }), "{error}");
        target.finish();
        home.finish();
    }
}
