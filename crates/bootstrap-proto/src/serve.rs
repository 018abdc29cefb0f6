//! Attested connections for a gRPC server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use attest::Variant;
use attest::soft_tpm::{self, Document};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::KEEPALIVE;

/// How many handshakes may be in progress. Each costs a key, a signature and up to 30 seconds.
const HANDSHAKES: usize = 64;

/// How many connections may be open, during or after the handshake. Each costs a file descriptor, of which a process
/// usually has 1024.
const CONNECTIONS: usize = 256;

/// How many of them may come from one address. Nodes behind a Service may all have the address of the node that
/// forwards their connections.
const CONNECTIONS_OF_ONE: usize = 32;

/// How many calls of one connection are processed concurrently.
const CALLS: usize = 4;

/// How long a call may take until its answer begins.
const CALL_LIMIT: Duration = Duration::from_mins(1);

/// After this time a connection accepts no further call, and is closed once the calls in flight have ended.
const AGE: Duration = Duration::from_mins(2);

/// A peer that has sent nothing for this long is gone: it would have answered a [`KEEPALIVE`].
const SILENCE: Duration = Duration::from_mins(1);

/// The longest life of a connection, even with calls in flight. Creating a cluster takes at most 18 minutes.
const LONGEST: Duration = Duration::from_mins(30);

/// Accepts connections, and returns those whose handshake is complete, so that a slow client blocks no other.
///
/// Dropping it aborts the handshakes in progress, and closes the socket.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<Attested>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Incoming {
    /// Accepts connections on this socket. Refused clients are logged with the reason.
    pub fn new(listener: TcpListener, server: attested_tls::Server) -> Self {
        Self::until(listener, server, pending())
    }

    /// Accepts connections until `closed` returns. Then the socket is closed and handshakes are aborted; connections
    /// that were returned earlier continue.
    pub fn until(
        listener: TcpListener,
        server: attested_tls::Server,
        closed: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (sender, accepted) = mpsc::channel(HANDSHAKES);
        let accepting = tokio::spawn(async move {
            tokio::select! {
                () = closed => {}
                () = accept(listener, server, sender.clone()) => {}
            }
            // If the stream ended, the server would end its connections as well.
            sender.closed().await;
        });
        Self { accepted, accepting }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Stream for Incoming {
    type Item = Result<Attested, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(context).map(|accepted| accepted.map(Ok))
    }
}

async fn accept(listener: TcpListener, server: attested_tls::Server, sender: mpsc::Sender<Attested>) {
    let free = Arc::new(Semaphore::new(HANDSHAKES));
    let connections = Connections::default();
    let mut handshakes = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else {
            return;
        };
        let Ok(slot) = connections.free.clone().acquire_owned().await else {
            return;
        };
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // Probably out of file descriptors: some will soon be free.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(slot) = connections.slot(address.ip(), slot) else {
            tracing::debug!(%address, "refused a connection: its address has too many open");
            continue;
        };
        let (server, sender) = (server.clone(), sender.clone());
        handshakes.spawn(async move {
            match attest(socket, address, slot, &server).await {
                // Sending fails if the server has stopped.
                Ok(attested) => drop(sender.send(attested).await),
                Err(error) => {
                    let reason = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%address, %error, reason, "connection refused");
                }
            }
            drop(permit);
        });
        while handshakes.try_join_next().is_some() {}
    }
}

/// The open connections.
#[derive(Debug)]
struct Connections {
    free: Arc<Semaphore>,
    /// The number of connections per address.
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            free: Arc::new(Semaphore::new(CONNECTIONS)),
            of: Arc::default(),
        }
    }
}

impl Connections {
    /// A slot for a connection from this address, unless it has too many.
    fn slot(&self, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Slot> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of.entry(address).or_default();
        if *count >= CONNECTIONS_OF_ONE {
            return None;
        }
        *count += 1;
        Some(Slot {
            of: self.of.clone(),
            address,
            _permit: permit,
        })
    }
}

/// The slot of one connection, until it is dropped.
struct Slot {
    of: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = of.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                of.remove(&self.address);
            }
        }
    }
}

async fn attest(
    socket: TcpStream,
    address: SocketAddr,
    slot: Slot,
    server: &attested_tls::Server,
) -> Result<Attested, attested_tls::Error> {
    socket.set_nodelay(true).map_err(attested_tls::Error::Handshake)?;
    let stream = server.accept(socket).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|certificates| certificates.first());
    let peer = Peer {
        address,
        certificate: certificate.map(|certificate| certificate.to_vec().into()),
    };
    Ok(Attested {
        stream: Box::pin(stream),
        peer,
        silence: Box::pin(sleep(SILENCE)),
        end: Box::pin(sleep(LONGEST)),
        _slot: slot,
    })
}

/// The other end of a connection: an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate in DER, which was verified for this connection; `None` if it was not asked for one.
    pub certificate: Option<Arc<[u8]>>,
}

/// The peer has not attested itself as expected.
#[derive(Debug, thiserror::Error)]
pub enum Unattested {
    /// It was not asked for a certificate.
    #[error("the peer presented no certificate")]
    NoCertificate,
    /// The certificate is not one of `soft-tpm`, because the server accepts another variant.
    #[error("the peer's certificate contains no readable attestation document")]
    Unreadable(#[source] attest::Refused),
}

impl Peer {
    /// The verified attestation document of a peer of the variant `soft-tpm`. Its certificate may have expired since.
    pub fn attested(&self) -> Result<Document, Unattested> {
        let certificate = self.certificate.as_deref().ok_or(Unattested::NoCertificate)?;
        let document = attest::document(certificate, Variant::SoftTpm).map_err(Unattested::Unreadable)?;
        soft_tpm::read(&document).map_err(Unattested::Unreadable)
    }
}

/// A connection whose handshake is complete.
pub struct Attested {
    stream: Pin<Box<dyn Duplex>>,
    peer: Peer,
    /// When a silent peer counts as gone.
    silence: Pin<Box<Sleep>>,
    /// When the connection ends in any case.
    end: Pin<Box<Sleep>>,
    _slot: Slot,
}

trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

impl std::fmt::Debug for Attested {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Attested")
    }
}

impl Connected for Attested {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Attested {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if let Poll::Ready(read) = this.stream.as_mut().poll_read(context, buffer) {
            this.silence.as_mut().reset(Instant::now() + SILENCE);
            return Poll::Ready(read);
        }
        ready!(this.silence.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Attested {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(context)
    }
}

/// A gRPC server for attested connections; add services to it.
pub fn serve() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .concurrency_limit_per_connection(CALLS)
        .timeout(CALL_LIMIT)
        .max_connection_age(AGE)
}
