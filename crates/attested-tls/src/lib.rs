//! TLS connections between attested peers, based on rustls.
//!
//! Each side generates a key and a certificate for every handshake, with a document that is bound to the key and to the
//! nonce of the other side. The client's nonce is in the server name of its `ClientHello`; the server's is an authority
//! in its `CertificateRequest`. TLS 1.3 only, without resumption and without early data.

mod client;
mod credentials;
mod error;
mod hello;
pub mod private_file;
mod server;
pub mod soft_tpm;

pub use client::Client;
pub use error::Error;
pub use server::Server;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use attest::{Nonce, Refused, SeenCertificates, Validator};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError};

/// Time limit of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The protocol inside the connections: gRPC.
const PROTOCOL: &[u8] = b"h2";

/// The peers that a process accepts, on all of its connections.
#[derive(Debug, Clone)]
struct Peers {
    validator: Arc<dyn Validator>,
    seen: Arc<Mutex<SeenCertificates>>,
}

impl Peers {
    fn new(validator: Arc<dyn Validator>) -> Self {
        Self {
            validator,
            seen: Arc::default(),
        }
    }

    /// Verifies the certificate of a handshake in which `nonce` was sent.
    fn verify(&self, certificate: &[u8], nonce: Nonce, now: UnixTime) -> Result<(), rustls::Error> {
        self.judge(certificate, nonce, seconds(now)).map_err(|refused| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refused))))
        })
    }

    fn judge(&self, certificate: &[u8], nonce: Nonce, now: i64) -> Result<(), Refused> {
        let presented = attest::read_certificate(certificate, self.validator.variant(), now)?;
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked before the nonce, which is wrong in a replayed certificate, too: this reason tells the operator more.
        seen().check(&presented, now)?;
        attest::verify(&presented, self.validator.as_ref(), nonce)?;
        seen().remember(&presented, now)
    }
}

/// Seconds since 1970.
fn seconds(time: UnixTime) -> i64 {
    time.as_secs().try_into().unwrap_or(i64::MAX)
}

/// Generates the nonce of one handshake.
fn nonce() -> Result<Nonce, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(Nonce(bytes))
}

/// Verifies that the peer has the private key of its certificate. Attestation covers the public key only, so it is
/// worth nothing without this.
fn verify_signature(
    provider: &CryptoProvider,
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let algorithms = &provider.signature_verification_algorithms;
    rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
}

/// The error for signatures of TLS 1.2, which is never offered.
fn no_tls12() -> rustls::Error {
    rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
