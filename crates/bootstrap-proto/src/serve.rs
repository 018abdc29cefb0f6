//! Attested connections for a gRPC server.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::KEEPALIVE;

/// How many clients may be in the middle of a handshake. Each costs a key, a signature and up to 30 seconds.
const HANDSHAKES: usize = 64;

/// How many calls of one connection are worked on at once.
const CALLS: usize = 4;

/// Accepts connections, and hands on those whose handshake is done, so that a slow client holds up nobody else.
///
/// Dropping it ends the handshakes that are under way, and closes the socket.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<Attested>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Incoming {
    /// Accepts what comes in at this socket. Who is refused, and why, is logged.
    pub fn new(listener: TcpListener, server: attested_tls::Server) -> Self {
        let (sender, accepted) = mpsc::channel(HANDSHAKES);
        let accepting = tokio::spawn(accept(listener, server, sender));
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
    let mut handshakes = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else {
            return;
        };
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // Out of file descriptors, most likely: some are freed in a moment.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (server, sender) = (server.clone(), sender.clone());
        handshakes.spawn(async move {
            match attest(socket, &server).await {
                // It fails when the server has stopped.
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

async fn attest(socket: TcpStream, server: &attested_tls::Server) -> Result<Attested, attested_tls::Error> {
    socket.set_nodelay(true).map_err(attested_tls::Error::Handshake)?;
    let stream = server.accept(socket).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(|certificates| certificates.first());
    let peer = Peer {
        certificate: certificate.map(|certificate| certificate.to_vec().into()),
    };
    let stream = Box::pin(stream);
    Ok(Attested { stream, peer })
}

/// Who is at the other end: an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its certificate, DER, which was verified for this connection; `None` when it was not asked for one.
    pub certificate: Option<Arc<[u8]>>,
}

/// A connection whose handshake is done.
pub struct Attested {
    stream: Pin<Box<dyn Duplex>>,
    peer: Peer,
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
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(context, buffer)
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

/// A gRPC server for attested connections, to which services are added.
pub fn serve() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .concurrency_limit_per_connection(CALLS)
}
