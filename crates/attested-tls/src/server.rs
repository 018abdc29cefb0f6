//! The accepting side.

use std::sync::Arc;

use attest::{Issuer, Nonce, Validator};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{Acceptor, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::hello::{self, Recorded};
use crate::{
    Error, HANDSHAKE_TIMEOUT, PROTOCOL, Peers, credentials, no_tls12, nonce, provider, verify_signature,
};

/// Accepts connections, and attests this node to each client.
#[derive(Debug, Clone)]
pub struct Server {
    issuer: Arc<dyn Issuer>,
    clients: Option<Peers>,
    clock: Arc<dyn TimeProvider>,
    provider: Arc<CryptoProvider>,
}

impl Server {
    /// A server that does not ask its clients for attestation.
    pub fn new(issuer: Arc<dyn Issuer>) -> Self {
        Self {
            issuer,
            clients: None,
            clock: Arc::new(DefaultTimeProvider),
            provider: provider(),
        }
    }

    /// Accepts only clients that attest themselves, and that `clients` accepts.
    pub fn with_clients(mut self, clients: Arc<dyn Validator>) -> Self {
        self.clients = Some(Peers::new(clients));
        self
    }

    /// Uses another clock.
    pub fn with_clock(mut self, clock: Arc<dyn TimeProvider>) -> Self {
        self.clock = clock;
        self
    }

    /// Accepts the client at the other end of `io`: it has been verified when this returns.
    pub async fn accept<IO>(
        &self,
        io: IO,
    ) -> Result<TlsStream<impl AsyncRead + AsyncWrite + Unpin + use<IO>>, Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = timeout(HANDSHAKE_TIMEOUT, self.handshake(io)).await;
        accepted.map_err(|_| Error::TimedOut)?
    }

    async fn handshake<IO>(&self, io: IO) -> Result<TlsStream<Recorded<IO>>, Error>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut started = LazyConfigAcceptor::new(Acceptor::default(), Recorded::new(io)).await?;
        if hello::asks_to_resume(&started.io.take()) {
            return Err(Error::ResumptionOffered);
        }
        let client = started
            .client_hello()
            .server_name()
            .and_then(Nonce::from_server_name);
        let configuration = self.configuration(client.ok_or(Error::NoNonce)?)?;
        Ok(started.into_stream(Arc::new(configuration)).await?)
    }

    /// The configuration for one connection with a client that sent this nonce.
    fn configuration(&self, client: Nonce) -> Result<ServerConfig, Error> {
        let now = self
            .clock
            .current_time()
            .ok_or(Error::Configure(rustls::Error::FailedToGetCurrentTime))?;
        let certified: Arc<CertifiedKey> =
            credentials::make(self.issuer.as_ref(), client, now, &self.provider)?;
        let builder = ServerConfig::builder_with_details(self.provider.clone(), self.clock.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Configure)?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let nonce = nonce()?;
                builder.with_client_cert_verifier(Arc::new(AttestedClient {
                    clients: clients.clone(),
                    nonce,
                    authorities: [DistinguishedName::from(nonce.to_authority())],
                    provider: self.provider.clone(),
                }))
            }
        };
        let mut configuration = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        configuration.session_storage = Arc::new(NoServerSessionStorage {});
        configuration.send_tls13_tickets = 0;
        configuration.max_early_data_size = 0;
        configuration.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(configuration)
    }
}

/// Verifies the client of one connection.
#[derive(Debug)]
struct AttestedClient {
    clients: Peers,
    nonce: Nonce,
    authorities: [DistinguishedName; 1],
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AttestedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.clients.verify(end_entity, self.nonce, now)?;
        Ok(ClientCertVerified::assertion())
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
