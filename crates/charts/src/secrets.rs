//! Reads the Secrets that a chart's origin names, and prepares them for a fetch.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use cluster::{Cluster, ObjectId};
use helm::origin::{ALLOW_FROM_NAMESPACES, ChartSpec, SecretKey, VerifySpec};
use k8s_openapi::api::core::v1::Secret;

use super::Error;
use crate::source::{
    self, Access, CaBundle, ClientCert, CosignKey, Credentials, DockerConfig, Keyring, Password, Trust,
    Verify,
};

/// What a Secret is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `credentials.passwordRef`
    Password,
    /// `dockerConfigRef`
    DockerConfig,
    /// `caBundleRef`
    CaBundle,
    /// `clientCertRef`
    ClientCert,
    /// `verify.keyringRef`
    Keyring,
    /// `verify.cosignKeyRef`
    CosignKey,
}

impl Purpose {
    /// The field that names the Secret.
    pub fn field(self) -> &'static str {
        match self {
            Self::Password => "credentials.passwordRef",
            Self::DockerConfig => "dockerConfigRef",
            Self::CaBundle => "caBundleRef",
            Self::ClientCert => "clientCertRef",
            Self::Keyring => "verify.keyringRef",
            Self::CosignKey => "verify.cosignKeyRef",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Password => "the registry's password",
            Self::DockerConfig => "the Docker configuration",
            Self::CaBundle => "the certificates of authorities",
            Self::ClientCert => "the client certificate",
            Self::Keyring => "the signers' keys",
            Self::CosignKey => "the cosign key",
        })
    }
}

/// Reads what `spec` names. `registry_config` has the lowest precedence.
pub(super) async fn access(
    cluster: &Cluster,
    spec: &ChartSpec,
    registry_config: Option<&Path>,
) -> Result<Access, Error> {
    let secrets = Secrets {
        cluster,
        asking: spec.namespace.as_deref(),
    };
    let mut access = Access::default();
    if let Some(credentials) = &spec.credentials {
        let password = secrets.text(&credentials.password, Purpose::Password).await?;
        access.credentials = Some(Credentials {
            username: credentials.username.clone(),
            password,
        });
    }
    if let Some(key) = &spec.docker_config {
        let config = secrets
            .parsed(key, Purpose::DockerConfig, DockerConfig::parse)
            .await?;
        access.docker_configs.push(config);
    }
    if let Some(path) = registry_config {
        access.docker_configs.extend(DockerConfig::read(path)?);
    }
    access.trust = trust(&secrets, spec).await?;
    access.verify = match &spec.verify {
        None => None,
        Some(VerifySpec::Keyring(key)) => {
            let keyring = secrets.parsed(key, Purpose::Keyring, Keyring::parse).await?;
            Some(Verify::Provenance(keyring))
        }
        Some(VerifySpec::CosignKey(key)) => {
            let key = secrets.parsed(key, Purpose::CosignKey, CosignKey::parse).await?;
            Some(Verify::Cosign(key))
        }
    };
    Ok(access)
}

async fn trust(secrets: &Secrets<'_>, spec: &ChartSpec) -> Result<Trust, Error> {
    let ca_bundle = match &spec.ca_bundle {
        Some(key) => Some(secrets.parsed(key, Purpose::CaBundle, CaBundle::parse).await?),
        None => None,
    };
    let client_cert = match &spec.client_cert {
        Some(pair) => {
            let key = secrets.text(&pair.key(), Purpose::ClientCert).await?;
            let parse = |cert: &[u8]| ClientCert::parse(cert, &key);
            Some(secrets.parsed(&pair.cert(), Purpose::ClientCert, parse).await?)
        }
        None => None,
    };
    Ok(Trust {
        ca_bundle,
        client_cert,
    })
}

/// The Secrets of a cluster that one namespace may use.
struct Secrets<'a> {
    cluster: &'a Cluster,
    asking: Option<&'a str>,
}

impl Secrets<'_> {
    async fn parsed<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        key: &SecretKey,
        purpose: Purpose,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, Error> {
        let bytes = self.bytes(key, purpose).await?;
        parse(&bytes).map_err(|source| Error::Unusable {
            secret: key.to_string(),
            key: key.key.clone(),
            purpose,
            source: source.into(),
        })
    }

    async fn text(&self, key: &SecretKey, purpose: Purpose) -> Result<Password, Error> {
        let bytes = self.bytes(key, purpose).await?;
        let text = String::from_utf8(bytes).map_err(|_| Error::NotText {
            secret: key.to_string(),
            key: key.key.clone(),
            purpose,
        })?;
        Ok(Password::new(text))
    }

    async fn bytes(&self, key: &SecretKey, purpose: Purpose) -> Result<Vec<u8>, Error> {
        let unread = |source| Error::ReadSecret {
            secret: key.to_string(),
            purpose,
            source: Box::new(source),
        };
        let id = ObjectId::of::<Secret>(Some(&key.namespace), &key.name).map_err(unread)?;
        let found: Option<Secret> = self.cluster.get(&id).await.map_err(unread)?;
        let secret = self.consented(found, key, purpose)?;
        let mut data = secret.data.unwrap_or_default();
        match data.remove(&key.key) {
            Some(bytes) => Ok(bytes.0),
            None => Err(Error::NoKey {
                secret: key.to_string(),
                key: key.key.clone(),
                purpose,
                keys: listed(&data),
            }),
        }
    }

    /// The Secret, if the asking namespace may use it. For a Secret of another namespace, not even its existence is
    /// revealed.
    fn consented(&self, found: Option<Secret>, key: &SecretKey, purpose: Purpose) -> Result<Secret, Error> {
        let foreign = self.asking.filter(|asking| *asking != key.namespace);
        match (found, foreign) {
            (Some(secret), None) => Ok(secret),
            (Some(secret), Some(asking)) if allows(&secret, asking) => Ok(secret),
            (None, None) => Err(Error::NoSecret {
                secret: key.to_string(),
                purpose,
            }),
            (_, Some(asking)) => Err(Error::ForeignSecret {
                secret: key.to_string(),
                purpose,
                namespace: asking.to_owned(),
            }),
        }
    }
}

fn allows(secret: &Secret, namespace: &str) -> bool {
    let annotations = secret.metadata.annotations.as_ref();
    let allowed = annotations.and_then(|annotations| annotations.get(ALLOW_FROM_NAMESPACES));
    allowed.is_some_and(|allowed| {
        let mut names = allowed.split(',').map(str::trim);
        names.any(|name| name == namespace || name == "*")
    })
}

fn listed<T>(data: &BTreeMap<String, T>) -> String {
    if data.is_empty() {
        return "it has none".to_owned();
    }
    let keys: Vec<_> = data.keys().map(String::as_str).collect();
    format!("its keys are {}", keys.join(", "))
}

impl From<source::Unreadable> for Error {
    fn from(unreadable: source::Unreadable) -> Self {
        Self::RegistryConfig(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use helm::origin::CredentialsSpec;
    use serde_json::json;

    use super::*;

    const SECRET: &str = "/api/v1/namespaces/vault/secrets/registry";

    fn spec(from: &str) -> ChartSpec {
        ChartSpec {
            namespace: Some(from.to_owned()),
            credentials: Some(CredentialsSpec {
                username: "robot".into(),
                password: key("password"),
            }),
            ..ChartSpec::default()
        }
    }

    fn key(key: &str) -> SecretKey {
        SecretKey {
            namespace: "vault".into(),
            name: "registry".into(),
            key: key.into(),
        }
    }

    async fn read(script: Script, spec: &ChartSpec) -> Result<Access, String> {
        let found = access(&script.cluster(), spec, None).await;
        script.finish();
        found.map_err(|error| {
            assert!(!error.is_transient(), "{error}");
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        })
    }

    fn password() -> serde_json::Value {
        json!({"metadata": {"name": "registry"}, "data": {"password": "czNjcmV0"}})
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_secret_is_said() {
        let missing = Script::new("no secret").absent(SECRET);
        assert_eq!(
            read(missing, &spec("vault")).await.unwrap_err(),
            "Secret vault/registry with the registry's password does not exist: create it, or correct credentials.passwordRef"
        );
        let other = json!({"metadata": {"name": "registry"}, "data": {"token": "eA==", "user": "eQ=="}});
        assert_eq!(
            read(Script::new("other keys").get(SECRET, other), &spec("vault"))
                .await
                .unwrap_err(),
            "Secret vault/registry has no key password with the registry's password: its keys are token, user"
        );
        let empty = json!({"metadata": {"name": "registry"}});
        assert_eq!(
            read(Script::new("no keys").get(SECRET, empty), &spec("vault"))
                .await
                .unwrap_err(),
            "Secret vault/registry has no key password with the registry's password: it has none"
        );
        let binary = json!({"metadata": {"name": "registry"}, "data": {"password": "/w=="}});
        assert_eq!(
            read(Script::new("not text").get(SECRET, binary), &spec("vault"))
                .await
                .unwrap_err(),
            "key password of Secret vault/registry is not UTF-8 text, which the registry's password has to be"
        );
    }

    #[tokio::test]
    async fn a_secret_of_another_namespace_must_agree() {
        let refused = "Secret vault/registry with the registry's password does not exist or does not allow its use from \
             namespace tenant: annotate it with krateo.io/allow-from-namespaces: tenant, or name one of that namespace \
             in credentials.passwordRef";
        let missing = Script::new("no secret").absent(SECRET);
        assert_eq!(read(missing, &spec("tenant")).await.unwrap_err(), refused);
        let silent = Script::new("does not agree").get(SECRET, password());
        assert_eq!(read(silent, &spec("tenant")).await.unwrap_err(), refused);

        let mut agreed = password();
        agreed["metadata"]["annotations"] = json!({ALLOW_FROM_NAMESPACES: "other, tenant"});
        for (from, fits) in [("tenant", true), ("other", true), ("ten", false), ("vault", true)] {
            let script = Script::new("agrees").get(SECRET, agreed.clone());
            assert_eq!(read(script, &spec(from)).await.is_ok(), fits, "{from}");
        }
        let trusted = ChartSpec {
            namespace: None,
            ..spec("")
        };
        assert!(
            read(Script::new("trusted").get(SECRET, password()), &trusted)
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named_but_not_shown() {
        let own = |spec: ChartSpec| ChartSpec {
            namespace: Some("vault".into()),
            ..spec
        };
        let cases = [
            (
                own(ChartSpec {
                    docker_config: Some(key("password")),
                    ..ChartSpec::default()
                }),
                "key password of Secret vault/registry cannot be used as the Docker configuration: it is not a Docker configuration: invalid JSON in line 1, column 1",
            ),
            (
                own(ChartSpec {
                    ca_bundle: Some(key("password")),
                    ..ChartSpec::default()
                }),
                "key password of Secret vault/registry cannot be used as the certificates of authorities: it contains no certificate: expected lines from -----BEGIN CERTIFICATE----- to its END",
            ),
            (
                own(ChartSpec {
                    verify: Some(VerifySpec::Keyring(key("password"))),
                    ..ChartSpec::default()
                }),
                "key password of Secret vault/registry cannot be used as the signers' keys: it contains no OpenPGP key that can sign: expected the output of gpg --export, with keys of RSA, Ed25519, or ECDSA on the curves P-256 and P-384",
            ),
            (
                own(ChartSpec {
                    verify: Some(VerifySpec::CosignKey(key("password"))),
                    ..ChartSpec::default()
                }),
                "key password of Secret vault/registry cannot be used as the cosign key: it is not a usable public key: expected lines from -----BEGIN PUBLIC KEY----- to its END with an ECDSA P-256, RSA or Ed25519 key, as in cosign.pub",
            ),
        ];
        for (spec, expected) in cases {
            let script = Script::new("not usable").get(SECRET, password());
            assert_eq!(read(script, &spec).await.unwrap_err(), expected);
        }
    }
}
