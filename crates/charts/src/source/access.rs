//! Credentials for a fetch, and whom it trusts.

use std::fmt;

use super::cosign::CosignKey;
use super::credentials::Login;
use super::docker_config::{self, NeedsHelper};
use super::provenance::Keyring;
use super::{Credentials, DockerConfig, Error, Password};

/// Credentials for a fetch, and whom it trusts. By default: none, and whom this machine trusts.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// User name and password for the host of the reference.
    pub credentials: Option<Credentials>,
    /// Logins by host, in order of precedence, used when there are no `credentials`.
    pub docker_configs: Vec<DockerConfig>,
    /// Runs the credential helpers that these name. Without it, a host whose login needs a helper is an error.
    pub credential_helper: Option<CredentialHelper>,
    /// Certificate authorities and client certificates.
    pub trust: Trust,
    /// The signature that the chart must have.
    pub verify: Option<Verify>,
    /// Fetch the provenance file of the chart as well, where there is one.
    pub provenance: bool,
    /// Receives the progress of downloads and uploads.
    pub watcher: Option<Watcher>,
}

/// Called after every few bytes.
pub type Watcher = fn(Transfer<'_>);

/// The progress of a download or an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The remote host.
    pub host: &'a str,
    /// What is fetched or pushed.
    pub path: &'a str,
    /// Number of bytes transferred.
    pub done: u64,
    /// Total number of bytes, if known.
    pub total: Option<u64>,
}

/// Asks a credential helper, by its name, for the login at a server; the error says what is wrong, without secrets.
pub type CredentialHelper = fn(helper: &str, server: &str) -> Result<Option<StoredLogin>, String>;

/// A login from a credential helper.
#[derive(Debug, Clone)]
pub enum StoredLogin {
    /// A user name and a password.
    Credentials(Credentials),
    /// A token that the registry's token service exchanges for one of a single repository.
    IdentityToken(Password),
}

/// The two sides of TLS.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Authorities that are trusted in addition to those of this machine.
    pub ca_bundle: Option<CaBundle>,
    /// The certificate for the host of the reference, shown to no other host.
    pub client_cert: Option<ClientCert>,
}

/// Which signature a chart must have.
#[derive(Debug, Clone)]
pub enum Verify {
    /// By one of these `OpenPGP` keys, as made by `helm package --sign`.
    Provenance(Keyring),
    /// By this key, as made by `cosign sign --key` for artifacts in a registry.
    Cosign(CosignKey),
}

/// Certificates of authorities.
#[derive(Debug, Clone)]
pub struct CaBundle(pub(super) Vec<reqwest::Certificate>);

/// A certificate and its private key.
#[derive(Clone)]
pub struct ClientCert(pub(super) reqwest::Identity);

/// PEM text that lacks what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPem {
    /// There is no certificate in it.
    #[error("it contains no certificate: expected lines from -----BEGIN CERTIFICATE----- to its END")]
    NoCertificate,
    /// There is no certificate with a matching key in it.
    #[error("it contains no certificate with its private key: expected PEM blocks of both")]
    NoIdentity,
}

impl CaBundle {
    /// Reads PEM certificates.
    ///
    /// # Errors
    /// [`InvalidPem`] when there is none.
    pub fn parse(pem: &[u8]) -> Result<Self, InvalidPem> {
        match reqwest::Certificate::from_pem_bundle(pem) {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            _ => Err(InvalidPem::NoCertificate),
        }
    }
}

impl ClientCert {
    /// Reads a PEM certificate, followed by those of its issuers, and its private key.
    ///
    /// # Errors
    /// [`InvalidPem`] when one of them is missing.
    pub fn parse(cert: &[u8], key: &Password) -> Result<Self, InvalidPem> {
        let pem = [cert, b"\n", key.expose().as_bytes()].concat();
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_| InvalidPem::NoIdentity)?;
        Ok(Self(identity))
    }
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCert")
    }
}

impl Access {
    /// The login for `path` on `host`.
    pub(super) fn login(&self, host: &str, path: &str) -> Result<Option<Login>, Error> {
        if let Some(credentials) = &self.credentials {
            return Ok(Some(Login::Basic(credentials.clone())));
        }
        for config in &self.docker_configs {
            let helper = match config.login(host, path) {
                Ok(Some(login)) => return Ok(Some(login.clone())),
                Ok(None) => continue,
                Err(NeedsHelper { helper }) => helper,
            };
            if let Some(login) = self.ask(helper, host)? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }
    fn ask(&self, helper: String, host: &str) -> Result<Option<Login>, Error> {
        let host = host.to_owned();
        let Some(ask) = self.credential_helper else {
            return Err(Error::Helper { host, helper });
        };
        match ask(&helper, docker_config::server(&host)) {
            Ok(kept) => Ok(kept.map(|kept| match kept {
                StoredLogin::Credentials(credentials) => Login::Basic(credentials),
                StoredLogin::IdentityToken(token) => Login::Identity(token),
            })),
            Err(reason) => Err(Error::HelperFailed { host, helper, reason }),
        }
    }
}
