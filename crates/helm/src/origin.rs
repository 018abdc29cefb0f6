//! The origin of a chart, as users specify it; it is checked when the chart is fetched.

use std::fmt;

/// Annotation on a Secret: the namespaces, separated by commas, whose definitions may use it for their charts; `*`
/// means all of them. Without it, only definitions in the Secret's own namespace may use it.
pub const ALLOW_FROM_NAMESPACES: &str = "krateo.io/allow-from-namespaces";

/// A chart's origin as users write it in `spec.chart`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ChartSpec {
    /// Namespace of the definition. A Secret in another namespace must allow it by [`ALLOW_FROM_NAMESPACES`]. `None`
    /// skips that check.
    pub namespace: Option<String>,
    /// `oci://…`, an archive's URL, or the root of a chart repository.
    pub url: String,
    /// Appended to an `oci://` path, or the chart's name in a repository.
    pub repo: Option<String>,
    /// An exact version, a range, or nothing or `latest` for the newest release.
    pub version: Option<String>,
    /// The digest (`sha256:…`) that the archive, or in a registry its manifest, must have.
    pub digest: Option<String>,
    /// Use HTTP without TLS for a registry.
    pub plain_http: bool,
    /// Accept any certificate.
    pub insecure_skip_verify: bool,
    /// User name and password.
    pub credentials: Option<CredentialsSpec>,
    /// Credentials for several hosts: a Docker configuration.
    pub docker_config: Option<SecretKey>,
    /// PEM certificates of authorities that are trusted in addition to those of this machine.
    pub ca_bundle: Option<SecretKey>,
    /// The client certificate.
    pub client_cert: Option<ClientCertSpec>,
    /// The signature that the chart must have.
    pub verify: Option<VerifySpec>,
}

impl ChartSpec {
    /// The same chart, pinned to the version and digest that were resolved, so that it stays the same whatever its
    /// source offers later.
    pub fn pinned(self, version: Option<String>, digest: String) -> Self {
        Self {
            version: version.or(self.version),
            digest: Some(digest),
            ..self
        }
    }

    /// The keys of Secrets that are needed to fetch the chart.
    pub fn secret_keys(&self) -> Vec<SecretKey> {
        let Self {
            namespace: _,
            url: _,
            repo: _,
            version: _,
            digest: _,
            plain_http: _,
            insecure_skip_verify: _,
            credentials,
            docker_config,
            ca_bundle,
            client_cert,
            verify,
        } = self;
        let verify = verify.as_ref().map(|verify| match verify {
            VerifySpec::Keyring(key) | VerifySpec::CosignKey(key) => key,
        });
        let single = [
            credentials.as_ref().map(|credentials| &credentials.password),
            docker_config.as_ref(),
            ca_bundle.as_ref(),
            verify,
        ];
        let mut keys: Vec<SecretKey> = single.into_iter().flatten().cloned().collect();
        keys.extend(client_cert.iter().flat_map(|pair| [pair.cert(), pair.key()]));
        keys
    }
}

/// A user name and a reference to its password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialsSpec {
    /// The user name.
    pub username: String,
    /// The reference to the password.
    pub password: SecretKey,
}

/// One key of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretKey {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the Secret's data.
    pub key: String,
}

/// Namespace and name of the Secret.
impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Secret of type `kubernetes.io/tls`: a certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertSpec {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

impl ClientCertSpec {
    /// The key of the certificate, which is followed by those of its issuers.
    pub fn cert(&self) -> SecretKey {
        self.key_named("tls.crt")
    }

    /// The key of its private key.
    pub fn key(&self) -> SecretKey {
        self.key_named("tls.key")
    }

    fn key_named(&self, key: &str) -> SecretKey {
        SecretKey {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            key: key.to_owned(),
        }
    }
}

/// How the signature of a chart is verified.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VerifySpec {
    /// By one of the `OpenPGP` keys in this keyring, as `helm package --sign` signs.
    Keyring(SecretKey),
    /// By this PEM public key, as `cosign sign --key` signs artifacts in a registry.
    CosignKey(SecretKey),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_that_is_read_is_listed() {
        let key = |name: &str| SecretKey {
            namespace: "vault".to_owned(),
            name: name.to_owned(),
            key: "k".to_owned(),
        };
        let spec = ChartSpec {
            credentials: Some(CredentialsSpec {
                username: "robot".to_owned(),
                password: key("password"),
            }),
            docker_config: Some(key("docker")),
            ca_bundle: Some(key("ca")),
            client_cert: Some(ClientCertSpec {
                namespace: "vault".to_owned(),
                name: "client".to_owned(),
            }),
            verify: Some(VerifySpec::Keyring(key("keyring"))),
            ..ChartSpec::default()
        };
        let listed: Vec<_> = spec
            .secret_keys()
            .iter()
            .map(|key| format!("{key} {}", key.key))
            .collect();
        assert_eq!(
            listed,
            [
                "vault/password k",
                "vault/docker k",
                "vault/ca k",
                "vault/keyring k",
                "vault/client tls.crt",
                "vault/client tls.key"
            ]
        );
    }
}
