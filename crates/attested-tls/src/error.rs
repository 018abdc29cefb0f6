//! The errors of a connection.

use std::io;

use attest::{IssueError, Refused};
use rustls::{AlertDescription, CertificateError};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer was verified, and is not accepted for this reason.
    #[error("the peer was refused")]
    Refused(#[source] Refused),
    /// The peer verified this node and refused it; it sends no reason.
    #[error("the peer refused this node's attestation; its log says why")]
    RefusedByPeer,
    /// Clients of this server must attest themselves.
    #[error("the client presented no certificate")]
    NoClientCertificate,
    /// The client does not use this protocol.
    #[error("the server name in the client's hello is not a nonce")]
    NoNonce,
    /// A client that resumes an earlier session, or sends early data, would not be attested afresh.
    #[error("the client offered to resume an earlier session")]
    ResumptionOffered,
    /// The peer sent nothing, or was too slow.
    #[error("the handshake took longer than {} seconds", super::HANDSHAKE_TIMEOUT.as_secs())]
    TimedOut,
    /// This node cannot attest itself.
    #[error("could not attest this node")]
    Issue(#[source] IssueError),
    /// A certificate could not be created.
    #[error("could not create a certificate")]
    Certificate(#[source] rcgen::Error),
    /// rustls refuses the configuration.
    #[error("could not configure TLS")]
    Configure(#[source] rustls::Error),
    /// The system gave no random bytes.
    #[error("could not generate a nonce")]
    Random(#[source] getrandom::Error),
    /// The connection broke, or the peer does not follow TLS 1.3.
    #[error("the handshake failed")]
    Handshake(#[source] io::Error),
}

impl From<io::Error> for Error {
    /// Finds the reason in an error of a TLS stream. A client learns that it was refused only at its first read.
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
