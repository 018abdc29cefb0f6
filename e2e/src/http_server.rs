//! An HTTP server on loopback that records all requests, and that can misbehave.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Response, StatusCode};
use futures::{Stream, StreamExt as _, stream};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A request, with the parts that tests look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// The query, empty without one.
    pub query: String,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// True if any header contains something that looks like a credential: a cookie, or `authorization` of a proxy.
    pub other_credentials: bool,
}

/// What is answered.
#[derive(Debug, Clone)]
pub enum Answer {
    /// 200 with these bytes.
    Content(Vec<u8>),
    /// This status, without a body.
    Status(u16),
    /// This status, with these bytes.
    Refusal(u16, Vec<u8>),
    /// 401, asking for a password.
    AskPassword,
    /// 401, asking for a token of the service at this URL.
    AskToken(String),
    /// 302 to this URL.
    Redirect(String),
    /// 200 and this many zeros, sent as fast as they are read.
    Zeros(u64),
    /// 200 and a few of these bytes; then nothing, and the connection stays open.
    Stall(Vec<u8>),
    /// The connection is closed in the middle of the answer, which consists of these bytes.
    Drop(Vec<u8>),
}

type Decide = dyn Fn(&Asked) -> Answer + Send + Sync;

/// The server; it ends with this value.
pub struct HttpServer {
    scheme: &'static str,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Ends all connections when it is dropped.
    runtime: Option<Runtime>,
}

#[derive(Clone)]
struct Shared {
    asked: Arc<Mutex<Vec<Asked>>>,
    decide: Arc<Decide>,
}

impl HttpServer {
    /// Starts a server that answers as `decide` says.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, decide)
    }

    /// The same on another address of this host.
    ///
    /// # Errors
    /// As [`HttpServer::start`].
    pub fn start_at(
        host: Ipv4Addr,
        decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::listen(host, None, decide)
    }

    /// The same with TLS, with the certificate and the key in these PEM files.
    ///
    /// # Errors
    /// When a file cannot be used, or no port is free.
    pub fn start_tls(
        certificate: &Path,
        key: &Path,
        decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        let tls = TlsAcceptor::from(Arc::new(config));
        Self::listen(Ipv4Addr::LOCALHOST, Some(tls), decide)
    }

    fn listen(
        host: Ipv4Addr,
        tls: Option<TlsAcceptor>,
        decide: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("could not start the threads of a server")?;
        let listener = runtime
            .block_on(TcpListener::bind((host, 0)))
            .context("no port is free")?;
        let address = listener.local_addr()?;
        let asked = Arc::default();
        let shared = Shared {
            asked: Arc::clone(&asked),
            decide: Arc::new(decide),
        };
        let app = Router::new().fallback(answer).with_state(shared);
        let scheme = if tls.is_some() { "https" } else { "http" };
        match tls {
            Some(acceptor) => {
                let listener = TlsListener { listener, acceptor };
                runtime.spawn(async move { axum::serve(listener, app).await })
            }
            None => runtime.spawn(async move { axum::serve(listener, app).await }),
        };
        Ok(Self {
            scheme,
            address,
            asked,
            runtime: Some(runtime),
        })
    }

    /// `http://host:port`, or `https://…`, and the path.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// `host:port`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        locked(&self.asked).clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Connections on which the TLS handshake has begun; those on which it fails are dropped.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, address)) = self.listener.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let asked = asked(&request);
    let answer = (shared.decide)(&asked);
    locked(&shared.asked).push(asked);
    response(answer).unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

fn asked(request: &Request) -> Asked {
    let headers: &HeaderMap = request.headers();
    Asked {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        authorization: headers
            .get(AUTHORIZATION)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        other_credentials: ["cookie", "proxy-authorization"]
            .iter()
            .any(|name| headers.contains_key(*name)),
    }
}

fn response(answer: Answer) -> Result<Response<Body>, axum::http::Error> {
    let ok = Response::builder().status(StatusCode::OK);
    match answer {
        Answer::Content(bytes) => ok.body(Body::from(bytes)),
        Answer::Status(code) => Response::builder().status(code).body(Body::empty()),
        Answer::Refusal(code, bytes) => Response::builder().status(code).body(Body::from(bytes)),
        Answer::AskPassword => Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(WWW_AUTHENTICATE, "Basic realm=\"e2e\"")
            .body(Body::empty()),
        Answer::AskToken(realm) => Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(
                WWW_AUTHENTICATE,
                format!("Bearer realm=\"{realm}\",service=\"e2e\""),
            )
            .body(Body::empty()),
        Answer::Redirect(to) => Response::builder()
            .status(StatusCode::FOUND)
            .header(LOCATION, to)
            .body(Body::empty()),
        Answer::Zeros(count) => ok.body(zeros(count)),
        Answer::Stall(bytes) => {
            let length = bytes.len();
            let body = start_of(bytes, 8).chain(stream::pending());
            ok.header(CONTENT_LENGTH, length).body(Body::from_stream(body))
        }
        Answer::Drop(bytes) => {
            let length = bytes.len();
            let broken = stream::once(async { Err(std::io::Error::other("dropped on purpose")) });
            let body = start_of(bytes, length / 2).chain(broken);
            ok.header(CONTENT_LENGTH, length).body(Body::from_stream(body))
        }
    }
}

fn start_of(bytes: Vec<u8>, length: usize) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::iter([Ok(Bytes::from(bytes).slice(..length))])
}

/// In pieces, so that the whole answer is never in memory.
fn zeros(count: u64) -> Body {
    const PIECE: Bytes = Bytes::from_static(&[0; 1 << 16]);
    let length = PIECE.len() as u64;
    let pieces = (0..count.div_ceil(length)).map(move |piece| {
        let left = count - piece * length;
        let taken = usize::try_from(left.min(length)).unwrap_or_default();
        Ok::<_, std::io::Error>(PIECE.slice(..taken))
    });
    Body::from_stream(stream::iter(pieces))
}

fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
