//! The certificate of connections with TLS: it can change while connections go on.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate that is shown to callers now.
#[derive(Debug, Default)]
pub(crate) struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows another one from now on; connections that are there keep theirs.
    pub(crate) fn set(&self, certificate: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certificate));
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// TLS for callers that have no certificate, showing what `shown` has.
pub(crate) fn tls(shown: Arc<Shown>) -> ServerConfig {
    ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(shown)
}
