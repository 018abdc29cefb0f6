//! Why there is no connection.

use std::io;

use attest::{IssueError, Refused};
use rustls::{AlertDescription, CertificateError};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer was judged, and this is why it is not accepted.
    #[error("the peer was refused")]
    Refused(#[source] Refused),
    /// The peer judged this node; it says no more than that.
    #[error("the peer refused this node's attestation; its log says why")]
    RefusedByPeer,
    /// A client must attest itself here.
    #[error("the client presented no certificate")]
    NoClientCertificate,
    /// A client that is not of this protocol.
    #[error("the server name of the client's hello is no nonce")]
    NoNonce,
    /// A client that wants to continue an earlier session, or to send data early, would not be attested afresh.
    #[error("the client offered to resume an earlier session")]
    ResumptionOffered,
    /// The peer was silent, or slow.
    #[error("the handshake took longer than {} seconds", super::HANDSHAKE_TIMEOUT.as_secs())]
    TimedOut,
    /// This node cannot attest itself.
    #[error("could not attest this node")]
    Issue(#[source] IssueError),
    /// A certificate could not be made.
    #[error("could not create a certificate")]
    Certificate(#[source] rcgen::Error),
    /// rustls does not take the configuration.
    #[error("could not configure TLS")]
    Configure(#[source] rustls::Error),
    /// The system gave no random bytes.
    #[error("could not generate a nonce")]
    Random(#[source] getrandom::Error),
    /// The connection broke, or the peer does not speak TLS 1.3 as it should.
    #[error("the handshake failed")]
    Handshake(#[source] io::Error),
}

impl From<io::Error> for Error {
    /// Finds the reason in an error of a TLS stream. A client learns only when it first reads that it was refused.
    fn from(error: io::Error) -> Self {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) => {
                match other.0.downcast_ref::<Refused>() {
                    Some(refused) => Self::Refused(refused.clone()),
                    None => Self::Handshake(error),
                }
            }
            Some(rustls::Error::NoCertificatesPresented) => Self::NoClientCertificate,
            Some(rustls::Error::AlertReceived(
                AlertDescription::CertificateUnknown
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateRequired,
            )) => Self::RefusedByPeer,
            _ => Self::Handshake(error),
        }
    }
}
