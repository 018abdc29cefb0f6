//! Requests tokens of `ServiceAccount`s, and writes kubeconfigs with them.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::Error;
use super::current_context::{CurrentContext, parse};
use super::inline::{inline_authority, written};
use crate::request::Call;
use crate::{Attempt, ClientOptions, Cluster, ObjectId};

/// The longest token that is accepted, in bytes, because it is stored in a Secret together with other data. Tokens of
/// API servers have about a thousand bytes.
const LONGEST_TOKEN: usize = 16 << 10;

/// A token of a ServiceAccount.
#[derive(Clone)]
pub struct Token {
    /// The bearer token.
    pub secret: SecretString,
    /// When it expires.
    pub expires: Timestamp,
}

/// A token could not be obtained.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] crate::Error),
    /// The answer has no token, or no expiry.
    #[error("the API server's answer to a request for a token of service account {0} contains none")]
    Malformed(String),
    /// The token is longer than those of any real API server.
    #[error(
        "the token of service account {account} has {length} bytes, and at most {LONGEST_TOKEN} are allowed"
    )]
    TooLong {
        /// `<namespace>/<name>`.
        account: String,
        /// Its length.
        length: usize,
    },
}

/// Requests a token for a `ServiceAccount` with this lifetime; the server may have a maximum of its own, so
/// [`Token::expires`] is what counts.
///
/// # Errors
///
/// [`TokenError`]; no message contains a token.
pub async fn request_token(
    cluster: &Cluster,
    namespace: &str,
    service_account: &str,
    lifetime: Duration,
) -> Result<Token, TokenError> {
    let account = ObjectId::of::<ServiceAccount>(Some(namespace), service_account)?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": lifetime.as_secs()},
    });
    let call = Call::new(Method::POST, format!("{}/token", account.path())).json(&request);
    let (_, answer) = cluster
        .transport
        .send(call)
        .await
        .map_err(|failure| crate::Error::Request {
            attempt: Attempt::RequestToken,
            object: Box::new(account.clone()),
            source: failure.without_content(),
        })?;
    let malformed = || TokenError::Malformed(format!("{namespace}/{service_account}"));
    let status = &answer["status"];
    let token = status["token"].as_str().filter(|token| !token.is_empty());
    let expires = status["expirationTimestamp"].as_str();
    let token = token.ok_or_else(malformed)?;
    if token.len() > LONGEST_TOKEN {
        return Err(TokenError::TooLong {
            account: format!("{namespace}/{service_account}"),
            length: token.len(),
        });
    }
    Ok(Token {
        secret: token.to_owned().into(),
        expires: expires.and_then(|time| time.parse().ok()).ok_or_else(malformed)?,
    })
}

/// A kubeconfig for the server that a process with these options would use, with this token as the only credential.
/// `server`, if given, replaces the server's address.
///
/// # Errors
///
/// When there is no such kubeconfig, it has no usable context, or its certificate authority cannot be read.
pub fn with_token(
    options: &ClientOptions,
    server: Option<&str>,
    name: &str,
    token: &SecretString,
) -> Result<String, Error> {
    let kubeconfig = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    // The message may quote the file.
    let mut kubeconfig = kubeconfig.map_err(|_| Error::Unreadable { line: 0, column: 0 })?;
    if options.context.is_some() {
        kubeconfig.current_context.clone_from(&options.context);
    }
    let current = CurrentContext::of(kubeconfig)?;
    let mut cluster = inline_authority(current.cluster)?;
    if let Some(server) = server {
        cluster.server = Some(server.to_owned());
    }
    cluster.extensions = None;
    let user = json!({"token": token.expose_secret()});
    Ok(written(name, None, &cluster, &user))
}

/// The same kubeconfig with another token for its user.
pub(super) fn replace_token(kubeconfig: &[u8], token: &SecretString) -> Result<String, Error> {
    let current = CurrentContext::of(parse(kubeconfig)?)?;
    let user = json!({"token": token.expose_secret()});
    let namespace = current.context.namespace.as_deref();
    Ok(written(&current.context_name, namespace, &current.cluster, &user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::{Limits, untrusted};
    use crate::scripted::Script;

    const TOKENS: &str = "/api/v1/namespaces/ops/serviceaccounts/far/token";

    #[tokio::test]
    async fn a_token_lasts_as_long_as_the_server_says() {
        let script = Script::new("a token").on(
            Method::POST,
            TOKENS,
            |body| assert_eq!(body["spec"]["expirationSeconds"], 600),
            201,
            json!({"status": {"token": "t0ken", "expirationTimestamp": "2026-01-01T00:10:00Z"}}),
        );
        let token = request_token(&script.cluster(), "ops", "far", Duration::from_mins(10))
            .await
            .unwrap();
        assert_eq!(token.secret.expose_secret(), "t0ken");
        assert_eq!(token.expires.to_string(), "2026-01-01T00:10:00Z");
        script.finish();
    }

    #[tokio::test]
    async fn a_refusal_names_the_account_and_an_empty_answer_is_none() {
        let script = Script::new("refused")
            .refuse(Method::POST, TOKENS, 403, "Forbidden", "no")
            .on(
                Method::POST,
                TOKENS,
                |_| {},
                201,
                json!({"status": {"token": "t0ken"}}),
            );
        let ask = async || {
            let asked = request_token(&script.cluster(), "ops", "far", Duration::from_mins(10)).await;
            asked.err().unwrap().to_string()
        };
        let refused = ask().await;
        assert!(
            refused.contains("request a token of") && refused.contains("far"),
            "{refused}"
        );
        let empty = ask().await;
        assert!(
            empty.contains("contains none") && !empty.contains("t0ken"),
            "{empty}"
        );
        script.finish();
    }

    #[test]
    fn a_kubeconfig_of_a_token_holds_the_server_and_nothing_else_of_the_users() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), include_str!("testdata/ca.pem")).unwrap();
        let file = folder.path().join("config");
        std::fs::write(
            &file,
            "current-context: near\ncontexts:\n- {name: near, context: {cluster: near, user: admin}}\n\
             - {name: far, context: {cluster: far, user: admin}}\nclusters:\n- {name: near, cluster: {server: 'https://near'}}\n\
             - {name: far, cluster: {server: 'https://198.18.0.1:6443', certificate-authority: ca.pem}}\n\
             users:\n- {name: admin, user: {exec: {command: s3cr3t}, token: s3cr3t}}\n",
        )
        .unwrap();
        let options = ClientOptions {
            kubeconfig: Some(file),
            context: Some("far".to_owned()),
            user_agent: String::new(),
        };
        let written = with_token(&options, None, "edge", &"t0ken".to_owned().into()).unwrap();
        assert!(!written.contains("s3cr3t"), "{written}");
        let config = untrusted(written.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://198.18.0.1:6443/");
        assert_eq!(config.root_cert.unwrap().len(), 1);
        let elsewhere = with_token(
            &options,
            Some("https://far.example"),
            "edge",
            &"t".to_owned().into(),
        )
        .unwrap();
        assert!(elsewhere.contains("https://far.example"), "{elsewhere}");
        let renewed = replace_token(written.as_bytes(), &"newer".to_owned().into()).unwrap();
        assert_eq!(renewed, written.replace("t0ken", "newer"));
    }
}
