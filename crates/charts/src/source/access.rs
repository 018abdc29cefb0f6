//! What a fetch shows of us, and whom it trusts.

use std::fmt;

use super::cosign::CosignKey;
use super::credentials::Login;
use super::docker_config::{self, NeedsHelper};
use super::provenance::Keyring;
use super::{Credentials, DockerConfig, Error, Password};

/// What a fetch shows of us, and whom it trusts. By default: nothing, and whom this machine trusts.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// User name and password for the host of the reference.
    pub credentials: Option<Credentials>,
    /// Logins by host, in the order in which they are looked at when there are no `credentials`.
    pub docker_configs: Vec<DockerConfig>,
    /// Runs the credential helpers that these name. Without it, a host whose login is left to one is an error.
    pub credential_helper: Option<CredentialHelper>,
    /// Who proves its identity by what.
    pub trust: Trust,
    /// Whose signature the chart must carry.
    pub verify: Option<Verify>,
    /// Fetch the provenance file of the chart as well, where there is one.
    pub provenance: bool,
    /// Who is told how far downloads and uploads are.
    pub watcher: Option<Watcher>,
}

/// Is told after every few bytes.
pub type Watcher = fn(Transfer<'_>);

/// How far a download or an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The other side.
    pub host: &'a str,
    /// What is fetched or pushed.
    pub path: &'a str,
    /// So many bytes are through.
    pub done: u64,
    /// Of so many, where that is known.
    pub total: Option<u64>,
}

/// Asks a credential helper, by its name, for the login at a server; the error says what is wrong, without a secret.
pub type CredentialHelper = fn(helper: &str, server: &str) -> Result<Option<Kept>, String>;

/// What a credential helper keeps.
#[derive(Debug, Clone)]
pub enum Kept {
    /// A user name and a password.
    Credentials(Credentials),
    /// A token that the registry's token service exchanges for one of a single repository.
    IdentityToken(Password),
}

/// The two sides of TLS.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Authorities that are trusted besides those of this machine.
    pub ca_bundle: Option<CaBundle>,
    /// What we show to the host of the reference, and to no other.
    pub client_cert: Option<ClientCert>,
}

/// Whose signature a chart must carry.
#[derive(Debug, Clone)]
pub enum Verify {
    /// One of these `OpenPGP` keys, as `helm package --sign` signs.
    Provenance(Keyring),
    /// This key, as `cosign sign --key` signs what is in a registry.
    Cosign(CosignKey),
}

/// Certificates of authorities.
#[derive(Debug, Clone)]
pub struct CaBundle(pub(super) Vec<reqwest::Certificate>);

/// A certificate and its private key.
#[derive(Clone)]
pub struct ClientCert(pub(super) reqwest::Identity);

/// PEM text without what is needed of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPem {
    /// No certificate in it.
    #[error("no certificate is in it: expected are lines from -----BEGIN CERTIFICATE----- to its END")]
    NoCertificate,
    /// No pair of certificate and key.
    #[error("no certificate with its private key is in it: expected are PEM blocks of both")]
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
    /// Reads a PEM certificate, with those of its issuers behind it, and its private key.
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
    /// How we log in for what lies at `path` of `host`.
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
                Kept::Credentials(credentials) => Login::Basic(credentials),
                Kept::IdentityToken(token) => Login::Identity(token),
            })),
            Err(reason) => Err(Error::HelperFailed { host, helper, reason }),
        }
    }
}
