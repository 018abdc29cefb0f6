//! Where a chart comes from, in the words of those who ask for it; checked by those who fetch it.

use std::fmt;

/// Annotation on a Secret: the namespaces, separated by commas, whose definitions may use it for their charts; `*` is
/// all of them.
/// Without it a Secret serves the definitions of its own namespace.
pub const ALLOW_FROM_NAMESPACES: &str = "krateo.io/allow-from-namespaces";

/// A chart's origin as users write it in `spec.chart`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ChartSpec {
    /// Namespace of the definition that asks. A Secret of another namespace must allow it by
    /// [`ALLOW_FROM_NAMESPACES`]. `None` asks no Secret for its consent.
    pub namespace: Option<String>,
    /// `oci://…`, an archive's URL, or the root of a chart repository.
    pub url: String,
    /// Appended to an `oci://` path, or the chart's name in a repository.
    pub repo: Option<String>,
    /// An exact version, a range, or nothing or `latest` for the newest release.
    pub version: Option<String>,
    /// `sha256:…` that the archive, or in a registry its manifest, must have.
    pub digest: Option<String>,
    /// Speak HTTP without TLS to a registry.
    pub plain_http: bool,
    /// Take any certificate.
    pub insecure_skip_verify: bool,
    /// Who we are there.
    pub credentials: Option<CredentialsSpec>,
    /// Who we are at several hosts: a Docker configuration.
    pub docker_config: Option<SecretKey>,
    /// PEM certificates of authorities that are trusted besides those of this machine.
    pub ca_bundle: Option<SecretKey>,
    /// The certificate by which we show who we are.
    pub client_cert: Option<ClientCertSpec>,
    /// Whose signature the chart must carry.
    pub verify: Option<VerifySpec>,
}

impl ChartSpec {
    /// The same chart in the version and with the digest that were found for it: it stays what it is, whatever its
    /// source offers later.
    pub fn pinned(self, version: Option<String>, digest: String) -> Self {
        Self {
            version: version.or(self.version),
            digest: Some(digest),
            ..self
        }
    }

    /// The keys of Secrets that are read to fetch the chart.
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

/// A user name, and where its password is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialsSpec {
    /// The user name.
    pub username: String,
    /// Where the password is kept.
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
    /// Where the certificate is kept, with those of its issuers behind it.
    pub fn cert(&self) -> SecretKey {
        self.key_named("tls.crt")
    }

    /// Where its private key is kept.
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

/// Whose signature a chart must carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VerifySpec {
    /// One of the `OpenPGP` keys in this keyring, as `helm package --sign` signs.
    Keyring(SecretKey),
    /// This PEM public key, as `cosign sign --key` signs what is in a registry.
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
