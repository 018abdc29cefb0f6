//! Connections with TLS, under a certificate that can change while connections go on.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use runtime::connections::{Bounded, Connections, Counted};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a caller may take until it is known what it speaks.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// As many connections wait for being served.
const WAITING: usize = 128;

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

/// What is encrypted.
type Tcp = Counted<TcpStream>;

/// Accepts connections with TLS.
pub(crate) struct TlsListener {
    connections: mpsc::Receiver<(TlsStream<Tcp>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    /// Listens on an address, showing what `shown` has.
    pub(crate) async fn bind(address: SocketAddr, shown: Arc<Shown>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(shown);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = Bounded::new(listener, Connections::default());
        let (sender, connections) = mpsc::channel(WAITING);
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), sender));
        Ok(Self { connections, address })
    }
}

/// One slow caller keeps nobody else waiting: each handshake is a task. Ends with its listener.
async fn accept(
    mut listener: Bounded<TcpListener>,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<(TlsStream<Tcp>, SocketAddr)>,
) {
    loop {
        let (stream, caller) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = sender.closed() => return,
        };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    // An error says that nobody listens any more.
                    let _ = sender.send((stream, caller)).await;
                }
                Ok(Err(error)) => tracing::debug!(%caller, %error, "no TLS"),
                Err(_) => tracing::debug!(%caller, "no TLS in time"),
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Tcp>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
