//! A gRPC channel over one attested connection.

use std::io;
use std::sync::{Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{KEEPALIVE, Peer};

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there, or the host cannot be reached.
    #[error("could not connect")]
    Dial(#[source] io::Error),
    /// One of the two sides refused the other, or the handshake broke.
    #[error("could not attest the connection")]
    Attest(#[source] attested_tls::Error),
    /// The peer does not speak HTTP/2.
    #[error("could not use gRPC over the connection")]
    Http(#[source] tonic::transport::Error),
}

impl ConnectError {
    /// True if the same attempt can succeed later without any change: the peer is not up yet.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dial(_)
            | Self::Attest(attested_tls::Error::TimedOut | attested_tls::Error::Handshake(_))
            | Self::Http(_) => true,
            Self::Attest(_) => false,
        }
    }
}

/// Connects to an attested server.
///
/// The channel uses this connection only: when it ends, calls fail, because a new connection could lead to another
/// server and would have to be attested. Both sides have verified each other when this returns.
pub async fn connect(
    client: &attested_tls::Client,
    address: impl ToSocketAddrs,
) -> Result<Channel, ConnectError> {
    connect_to_peer(client, address).await.map(|(channel, _)| channel)
}

/// Like [`connect`], but also returns the server's address and certificate.
pub async fn connect_to_peer(
    client: &attested_tls::Client,
    address: impl ToSocketAddrs,
) -> Result<(Channel, Peer), ConnectError> {
    let dialled = timeout(attested_tls::HANDSHAKE_TIMEOUT, TcpStream::connect(address)).await;
    let socket = dialled
        .map_err(|_| ConnectError::Dial(io::ErrorKind::TimedOut.into()))?
        .map_err(ConnectError::Dial)?;
    socket.set_nodelay(true).map_err(ConnectError::Dial)?;
    let address = socket.peer_addr().map_err(ConnectError::Dial)?;
    let stream = client.connect(socket).await.map_err(ConnectError::Attest)?;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|certificates| certificates.first());
    let peer = Peer {
        address,
        certificate: certificate.map(|certificate| certificate.to_vec().into()),
    };
    let mut stream = BufReader::new(stream);
    // In TLS 1.3 the server verifies this side after the handshake. An HTTP/2 server sends first, so what arrives is
    // either its settings or its refusal, which HTTP/2 would turn into an unspecific error of the first call.
    let answered = timeout(attested_tls::HANDSHAKE_TIMEOUT, stream.fill_buf()).await;
    let first = answered
        .map_err(|_| ConnectError::Attest(attested_tls::Error::TimedOut))?
        .map_err(|error| ConnectError::Attest(error.into()))?;
    if first.is_empty() {
        let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(ConnectError::Attest(attested_tls::Error::Handshake(closed)));
    }
    let once = Mutex::new(Some(TokioIo::new(stream)));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        async { stream.ok_or_else(|| io::Error::other("the attested connection has ended")) }
    });
    // The name has no meaning: peers are identified by their attestation.
    let channel = Endpoint::from_static("http://attested.internal")
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(ConnectError::Http)?;
    Ok((channel, peer))
}
