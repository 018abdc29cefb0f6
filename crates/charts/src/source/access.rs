//! What a fetch shows of us, and whom it trusts.

use std::fmt;

use super::cosign::CosignKey;
use super::credentials::Login;
use super::provenance::Keyring;
use super::{Credentials, DockerConfig, Error, Password};

/// What a fetch shows of us, and whom it trusts. By default: nothing, and whom this machine trusts.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// User name and password for the host of the reference.
    pub credentials: Option<Credentials>,
    /// Logins by host, in the order in which they are looked at when there are no `credentials`.
    pub docker_configs: Vec<DockerConfig>,
    /// Who proves its identity by what.
    pub trust: Trust,
    /// Whose signature the chart must carry.
    pub verify: Option<Verify>,
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
            let found = config.login(host, path).map_err(|needs| Error::Helper {
                host: host.to_owned(),
                helper: needs.helper,
            })?;
            if let Some(login) = found {
                return Ok(Some(login.clone()));
            }
        }
        Ok(None)
    }
}
