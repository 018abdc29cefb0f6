//! The connecting side.

use std::sync::{Arc, Mutex, PoisonError};

use attest::{Issuer, Nonce, Validator};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{
    Error, HANDSHAKE_TIMEOUT, PROTOCOL, Peers, credentials, no_tls12, nonce, provider, verify_signature,
};

/// Connects to attested servers.
#[derive(Debug, Clone)]
pub struct Client {
    servers: Peers,
    issuer: Option<Arc<dyn Issuer>>,
    clock: Arc<dyn TimeProvider>,
    provider: Arc<CryptoProvider>,
}

impl Client {
    /// A client that accepts the servers that `servers` accepts, and does not attest itself.
    pub fn new(servers: Arc<dyn Validator>) -> Self {
        Self {
            servers: Peers::new(servers),
            issuer: None,
            clock: Arc::new(DefaultTimeProvider),
            provider: provider(),
        }
    }

    /// Attests itself to servers that ask for it.
    pub fn with_issuer(mut self, issuer: Arc<dyn Issuer>) -> Self {
        self.issuer = Some(issuer);
        self
    }

    /// Uses another clock.
    pub fn with_clock(mut self, clock: Arc<dyn TimeProvider>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the server at the other end of `io`, and returns once the server has been verified.
    ///
    /// In TLS 1.3 the server verifies this side only afterwards: its verdict arrives with the first read, as an
    /// `io::Error` that [`Error::from`] recognizes.
    pub async fn connect<IO>(&self, io: IO) -> Result<TlsStream<IO>, Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let nonce = nonce()?;
        let name = ServerName::try_from(nonce.to_server_name())
            .map_err(|error| Error::Configure(rustls::Error::General(error.to_string())))?;
        let identity = Arc::new(Identity {
            client: self.clone(),
            failed: Mutex::new(None),
        });
        let connector = TlsConnector::from(Arc::new(self.configuration(nonce, identity.clone())?));
        let connected = timeout(HANDSHAKE_TIMEOUT, connector.connect(name, io)).await;
        if let Some(failed) = identity
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(failed);
        }
        Ok(connected.map_err(|_| Error::TimedOut)??)
    }

    /// The configuration for one connection.
    fn configuration(&self, nonce: Nonce, identity: Arc<Identity>) -> Result<ClientConfig, Error> {
        let verifier = AttestedServer {
            servers: self.servers.clone(),
            nonce,
            provider: self.provider.clone(),
        };
        let mut configuration = ClientConfig::builder_with_details(self.provider.clone(), self.clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Configure)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(identity);
        configuration.resumption = Resumption::disabled();
        configuration.enable_early_data = false;
        configuration.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(configuration)
    }
}

/// Verifies the server of one connection.
#[derive(Debug)]
struct AttestedServer {
    servers: Peers,
    nonce: Nonce,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AttestedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.servers.verify(end_entity, self.nonce, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(&self.provider, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// Attests this side in one connection, once the server has sent its nonce.
#[derive(Debug)]
struct Identity {
    client: Client,
    /// Why there is no certificate. rustls cannot return this error.
    failed: Mutex<Option<Error>>,
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, authorities: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let issuer = self.client.issuer.as_ref()?;
        let nonce = authorities.iter().find_map(|name| Nonce::from_authority(name))?;
        let now = self.client.clock.current_time()?;
        match credentials::make(issuer.as_ref(), nonce, now, &self.client.provider) {
            Ok(certified) => Some(certified),
            Err(error) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        }
    }

    fn has_certs(&self) -> bool {
        self.client.issuer.is_some()
    }
}
