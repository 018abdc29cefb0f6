//! The serving certificate for TLS, which can be replaced while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The current serving certificate.
#[derive(Debug, Default)]
pub(crate) struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Replaces the certificate for new connections; open ones keep theirs.
    pub(crate) fn set(&self, certificate: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certificate));
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A TLS configuration without client certificates that serves the certificate in `shown`.
pub(crate) fn tls(shown: Arc<Shown>) -> ServerConfig {
    ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(shown)
}
