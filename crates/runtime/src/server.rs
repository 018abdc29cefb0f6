//! HTTP, plain or with TLS, for anyone who can reach the port: a connection is closed if no request arrives on it in
//! time.
//!
//! Every listening socket of the programs is served here. Opening a connection needs no authentication, so one that
//! sends nothing, or a byte at a time, must not keep a slot that others need.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::Metrics;
use crate::connections::{Bounded, Connections, MAX_UNREAD, Slot};
use crate::metrics::Closed;

/// How long a connection may stay open without a request in flight.
///
/// hyper's own time limit for headers does not distinguish the first one from later ones. How long a request may take
/// is up to its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Until the TLS handshake is over.
    pub handshake: Duration,
    /// From then until the header of the first request has arrived.
    pub first_request: Duration,
    /// From an answer until the header of the next request has arrived. The client also has to read the answer in this
    /// time.
    pub idle: Duration,
    /// While an answer is sent: until the client reads more of it.
    pub write: Duration,
    /// From announcing the end of the connection until it is cut off.
    pub farewell: Duration,
}

impl Times {
    /// For probes and metrics, which are requested at once and answered at once: 2 s until the first header, and 15 s
    /// from an answer to the next header.
    pub fn short() -> Self {
        Self {
            first_request: Duration::from_secs(2),
            idle: Duration::from_secs(15),
            ..Self::default()
        }
    }
}

impl Default for Times {
    /// 5 s, 10 s, 2 minutes, 10 s, 10 s. Go's clients and reqwest's drop idle connections after 90 s: ours have to stay
    /// open longer, so that clients never use a connection that is just being closed.
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            first_request: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            write: Duration::from_secs(10),
            farewell: Duration::from_secs(10),
        }
    }
}

/// Serves HTTP/1.1.
///
/// Not HTTP/2: there, all requests of a connection share one receive window. A body that waits for room would block the
/// other bodies on its connection, even one whose end would make room.
pub struct Server {
    connections: Connections,
    times: Times,
    tls: Option<TlsAcceptor>,
    metrics: Metrics,
}

/// Listens on an address; port 0 picks a free port, which the listener reports.
///
/// # Errors
///
/// If the address is in use or not ours.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

impl Server {
    /// Serves plain HTTP with the default limits, and counts the connections that it closes because of them.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            connections: Connections::default(),
            times: Times::default(),
            tls: None,
            metrics,
        }
    }

    /// With a different limit on connections.
    pub fn with_connections(self, connections: Connections) -> Self {
        Self { connections, ..self }
    }

    /// With different timeouts.
    pub fn with_times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// Serves with TLS. Clients that could also use HTTP/2 learn from ALPN that they have to use HTTP/1.1, which an API
    /// server uses for its webhooks in any case.
    pub fn with_tls(self, mut config: ServerConfig) -> Self {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            tls: Some(TlsAcceptor::from(Arc::new(config))),
            ..self
        }
    }

    /// Serves until the token is cancelled, then finishes the requests in flight. Callers are told that connections
    /// close.
    pub async fn serve<L>(self, listener: L, router: Router, until: CancellationToken)
    where
        L: Listener<Addr = SocketAddr>,
    {
        let mut listener = Bounded::new(listener, self.connections, self.metrics.clone());
        let server = Arc::new(self);
        let open = TaskTracker::new();
        while let Some((io, caller)) = until.run_until_cancelled(listener.accept()).await {
            let (server, router, until) = (server.clone(), router.clone(), until.clone());
            let slot = io.slot();
            open.spawn(async move {
                if let Err(reason) = server.connection(io, &slot, router, &until).await {
                    tracing::debug!(%caller, reason = reason.as_str(), "closed a connection");
                    server.metrics.closed(reason);
                }
            });
        }
        drop(listener);
        open.close();
        open.wait().await;
    }

    /// Serves one connection until either side ends it; an error is our reason for closing it.
    async fn connection(
        &self,
        io: impl Stream,
        slot: &Slot,
        router: Router,
        until: &CancellationToken,
    ) -> Result<(), Closed> {
        let Some(acceptor) = &self.tls else {
            return self.requests(io, slot, router, until).await;
        };
        match tokio::time::timeout(self.times.handshake, acceptor.accept(io)).await {
            Ok(Ok(io)) => self.requests(io, slot, router, until).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the TLS handshake failed");
                Err(Closed::Handshake)
            }
            Err(_) => Err(Closed::Handshake),
        }
    }

    async fn requests(
        &self,
        io: impl Stream,
        slot: &Slot,
        router: Router,
        until: &CancellationToken,
    ) -> Result<(), Closed> {
        let (activity, mut changes) = watch::channel(Activity::begin());
        let activity = Arc::new(activity);
        let counted = activity.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let under_way = UnderWay::begin(&counted);
            let answer = router.clone().oneshot(request.map(Body::new));
            async move {
                let answer = answer.await;
                drop(under_way);
                answer
            }
        });
        let builder = builder();
        let mut io = TimeoutWriter::new(io);
        io.set_timeout(Some(self.times.write));
        let mut connection = pin!(builder.serve_connection(TokioIo::new(Box::pin(io)), service));
        let mut farewell: Option<Farewell> = None;
        loop {
            let now = *changes.borrow_and_update();
            slot.set_idle(now.under_way == 0);
            let (deadline, reason) = now.deadline(&self.times, farewell.as_ref());
            tokio::select! {
                outcome = connection.as_mut() => {
                    if let Err(error) = outcome {
                        if is_stalled(&error) {
                            return Err(Closed::Stalled);
                        }
                        tracing::debug!(%error, "a connection broke");
                    }
                    return farewell.and_then(|farewell| farewell.reason).map_or(Ok(()), Err);
                }
                // Never an error: `activity` is still alive.
                _ = changes.changed() => {}
                () = slot.evicted(), if now.under_way == 0 => return Err(Closed::Evicted),
                () = until.cancelled(), if farewell.is_none() => {
                    farewell = Some(Farewell::now(None));
                    connection.as_mut().graceful_shutdown();
                }
                () = tokio::time::sleep_until(deadline), if now.under_way == 0 => {
                    if farewell.is_some() || reason == Closed::Silent {
                        return Err(reason);
                    }
                    farewell = Some(Farewell::now(Some(reason)));
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// The byte stream of a connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// True if the client did not read any of an answer in time.
fn is_stalled(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    source.is_some_and(|source: &io::Error| source.kind() == io::ErrorKind::TimedOut)
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // It would also apply between two requests: see `Times`.
        .header_read_timeout(None)
        .max_buf_size(MAX_UNREAD);
    builder
}

/// The state of a connection.
#[derive(Debug, Clone, Copy)]
struct Activity {
    /// How many requests are being answered.
    under_way: usize,
    /// True from the first request on.
    has_asked: bool,
    /// When the last answer was complete; before the first, when the connection began.
    since: Instant,
}

impl Activity {
    fn begin() -> Self {
        Self {
            under_way: 0,
            has_asked: false,
            since: Instant::now(),
        }
    }

    /// When the connection will have been without a request for too long, and the reason it is then closed for.
    fn deadline(&self, times: &Times, farewell: Option<&Farewell>) -> (Instant, Closed) {
        match farewell {
            Some(farewell) => (
                self.since.max(farewell.since) + times.farewell,
                farewell.reason.unwrap_or(Closed::Ending),
            ),
            None if self.has_asked => (self.since + times.idle, Closed::Idle),
            None => (self.since + times.first_request, Closed::Silent),
        }
    }
}

/// The caller was told that the connection ends.
#[derive(Debug)]
struct Farewell {
    since: Instant,
    /// The timeout that the caller missed; none if the process ends.
    reason: Option<Closed>,
}

impl Farewell {
    fn now(reason: Option<Closed>) -> Self {
        Self {
            since: Instant::now(),
            reason,
        }
    }
}

/// A request that is being answered, until it is dropped.
struct UnderWay(Arc<watch::Sender<Activity>>);

impl UnderWay {
    fn begin(activity: &Arc<watch::Sender<Activity>>) -> Self {
        activity.send_modify(|activity| {
            activity.under_way += 1;
            activity.has_asked = true;
        });
        Self(activity.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|activity| {
            activity.under_way -= 1;
            activity.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::routing::get;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::sync::{Notify, mpsc};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::process::choose_crypto;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    /// Callers of a server, without a network: time can be paused and advanced.
    struct Callers {
        connecting: mpsc::Sender<DuplexStream>,
        metrics: Metrics,
        until: CancellationToken,
        serving: JoinHandle<()>,
    }

    struct Pipes(mpsc::Receiver<DuplexStream>);

    impl Listener for Pipes {
        type Io = DuplexStream;
        type Addr = SocketAddr;

        async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
            match self.0.recv().await {
                Some(pipe) => (pipe, self.local_addr().unwrap()),
                None => std::future::pending().await,
            }
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Ok(([198, 18, 0, 1], 1).into())
        }
    }

    impl Callers {
        fn of(router: Router, tls: Option<ServerConfig>) -> Self {
            let with_tls = |server: Server| match tls {
                Some(config) => server.with_tls(config),
                None => server,
            };
            Self::served(with_tls, router)
        }

        fn served(set: impl FnOnce(Server) -> Server, router: Router) -> Self {
            let (connecting, pipes) = mpsc::channel(9);
            let (metrics, until) = (Metrics::new().unwrap(), CancellationToken::new());
            let server = set(Server::new(metrics.clone()));
            let serving = tokio::spawn(server.serve(Pipes(pipes), router, until.clone()));
            Self {
                connecting,
                metrics,
                until,
                serving,
            }
        }

        async fn connect(&self) -> DuplexStream {
            let (ours, theirs) = tokio::io::duplex(1 << 10);
            self.connecting.send(theirs).await.unwrap();
            ours
        }

        fn check_closed(&self, reason: &str, times: u32) {
            let text = self.metrics.text().unwrap();
            let line = format!("connections_closed_total{{reason=\"{reason}\"}} {times}");
            assert!(text.contains(&line), "{line} is missing in {text}");
        }
    }

    fn router() -> Router {
        Router::new().route("/", get(async || "ok"))
    }

    /// Sends a request, and reads the answer.
    async fn ask(pipe: &mut DuplexStream) -> String {
        pipe.write_all(REQUEST).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok") {
            let read = pipe.read_buf(&mut answer).await.unwrap();
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        }
        String::from_utf8(answer).unwrap()
    }

    /// True if nothing more comes.
    async fn is_closed(pipe: &mut DuplexStream) -> bool {
        pipe.read(&mut [0; 64]).await.unwrap_or(0) == 0
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_closed() {
        let callers = Callers::of(router(), None);
        let mut silent = callers.connect().await;
        assert!(is_closed(&mut silent).await);
        callers.check_closed("silent", 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_dribbles_a_header_is_closed() {
        let callers = Callers::of(router(), None);
        let mut slow = callers.connect().await;
        slow.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
        let (mut read, mut write) = tokio::io::split(slow);
        let dribbling = async {
            // The write fails once the other side has closed.
            while write.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let mut rest = Vec::new();
        let (read, ()) = tokio::join!(read.read_to_end(&mut rest), dribbling);
        read.unwrap();
        callers.check_closed("silent", 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_honest_connection_goes_on_until_it_is_idle_for_long() {
        let callers = Callers::of(router(), None);
        let mut pipe = callers.connect().await;
        for _ in 0..5 {
            let answer = ask(&mut pipe).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            tokio::time::sleep(Times::default().idle * 9 / 10).await;
        }
        assert!(is_closed(&mut pipe).await);
        callers.check_closed("idle", 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_under_way_is_not_idle() {
        let go_on = Arc::new(Notify::new());
        let wait = go_on.clone();
        let slow = get(async move || {
            wait.notified().await;
            "ok"
        });
        let callers = Callers::of(Router::new().route("/", slow), None);
        let mut pipe = callers.connect().await;
        let asking = tokio::spawn(async move { ask(&mut pipe).await });
        tokio::time::sleep(Times::default().idle * 3).await;
        go_on.notify_one();
        assert!(asking.await.unwrap().starts_with("HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answer_is_closed() {
        let callers = Callers::of(Router::new().route("/", get(async || vec![b'x'; 1 << 20])), None);
        let mut slow = callers.connect().await;
        slow.write_all(REQUEST).await.unwrap();
        for _ in 0..5 {
            slow.read_exact(&mut [0; 1 << 10]).await.unwrap();
            tokio::time::sleep(Times::default().write * 9 / 10).await;
        }
        assert!(!callers.metrics.text().unwrap().contains("stalled"));
        tokio::time::sleep(Times::default().write).await;
        callers.check_closed("stalled", 1);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_of_others_do_not_keep_a_probe_out() {
        let few = Connections {
            most: 2,
            replaces_idle: true,
            ..Connections::default()
        };
        let callers = Callers::served(|server| server.with_connections(few), router());
        let mut silent = [callers.connect().await, callers.connect().await];
        assert!(
            ask(&mut callers.connect().await)
                .await
                .starts_with("HTTP/1.1 200")
        );
        assert!(is_closed(&mut silent[0]).await);
        callers.check_closed("evicted", 1);
    }

    #[tokio::test(start_paused = true)]
    async fn http_2_is_not_spoken() {
        let callers = Callers::of(router(), None);
        let mut pipe = callers.connect().await;
        pipe.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        assert!(is_closed(&mut pipe).await);
        choose_crypto();
        let config = ServerConfig::builder().with_no_client_auth();
        let server =
            Server::new(callers.metrics.clone()).with_tls(config.with_cert_resolver(Arc::new(NoCertificate)));
        assert_eq!(server.tls.unwrap().config().alpn_protocols, [b"http/1.1"]);
    }

    #[derive(Debug)]
    struct NoCertificate;

    impl ResolvesServerCert for NoCertificate {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_begin_tls_is_closed() {
        choose_crypto();
        let config = ServerConfig::builder().with_no_client_auth();
        let callers = Callers::of(router(), Some(config.with_cert_resolver(Arc::new(NoCertificate))));
        let mut silent = callers.connect().await;
        assert!(is_closed(&mut silent).await);
        callers.check_closed("handshake", 1);
        let mut plain = callers.connect().await;
        plain.write_all(REQUEST).await.unwrap();
        let mut said = Vec::new();
        plain.read_to_end(&mut said).await.unwrap();
        assert!(!said.starts_with(b"HTTP"));
        callers.check_closed("handshake", 2);
    }

    #[tokio::test(start_paused = true)]
    async fn serving_ends_with_the_token_once_all_is_answered() {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (begun.clone(), go_on.clone());
        let slow = get(async move || {
            tell.notify_one();
            wait.notified().await;
            "ok"
        });
        let callers = Callers::of(Router::new().route("/", slow), None);
        let mut silent = callers.connect().await;
        let mut busy = callers.connect().await;
        let asking = tokio::spawn(async move {
            let answer = ask(&mut busy).await;
            assert!(is_closed(&mut busy).await);
            answer
        });
        begun.notified().await;
        callers.until.cancel();
        assert!(is_closed(&mut silent).await);
        tokio::time::sleep(Times::default().farewell * 2).await;
        assert!(!callers.serving.is_finished());
        go_on.notify_one();
        assert!(asking.await.unwrap().contains("connection: close"));
        callers.serving.await.unwrap();
    }
}
