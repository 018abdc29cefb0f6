//! Whom a fetch trusts, and the certificate that it shows itself.

use std::fmt;

use super::Password;

/// The two sides of TLS.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Authorities that are trusted in addition to those of this machine.
    pub ca_bundle: Option<CaBundle>,
    /// The certificate for the host of the reference, shown to no other host.
    pub client_cert: Option<ClientCert>,
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
