//! Creates a client from a configuration of [`super::untrusted`] that enforces its limits.
//!
//! kube's own builder connects to whatever a name resolves to, accepts answers of any length and decompresses them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Bytes;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, Client, ClientBuilder, ConfigExt as _};
use kube::config::Config;
use tokio::time::Sleep;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use super::address;
use super::error::shown;
use super::pace::Pace;
use super::{Error, Limits, RefusedAddress};
use crate::client::{Answered, Telling};
use crate::pulse::{Hearing, Pulse, is_watch};

/// TCP keepalive: probes start after this time, this far apart, this many.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// A connection is broken if sent data is not acknowledged for this long; as long as the probes above take.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Longer than the longest requested watch (290 s), so that only a completely silent server is affected.
const SILENCE: Duration = Duration::from_mins(5);

/// Idle connections are closed after this time.
const IDLE: Duration = Duration::from_secs(30);

/// The rate limit for requests to one server, as a burst and per second: a server could cause many by endless lists,
/// or by objects that change all the time. Requests beyond the limit wait, so that other servers get their turn.
const REQUESTS: (u32, u32) = (2000, 500);

/// The rate limit for bytes read from watches, as a burst and per second; each event counts as [`LEAST_EVENT`] more
/// than its size.
const WATCHED: (u32, u32) = (8 << 20, 1 << 20);

/// The cost of reading an event, however small.
const LEAST_EVENT: usize = 2 << 10;

/// A client for the server of an untrusted kubeconfig.
///
/// The addresses that the server's name resolves to are checked for every connection, so a name that resolves to
/// another address later is refused as well. Redirects are errors. Answers and watch events are bounded in size, and
/// nothing is decompressed; requests and watches are rate-limited. A peer that vanishes silently is noticed after
/// about half a minute, on watches, too. Failed requests are not repeated.
///
/// `told` is called for every request when its answer begins.
///
/// The process has to install a rustls provider before it calls this.
///
/// # Errors
///
/// [`Error::Client`] when certificates, keys or headers cannot be used.
pub fn client(
    config: Config,
    limits: &Limits,
    user_agent: &str,
    told: impl Fn(&Answered) + Send + Sync + 'static,
) -> Result<Client, Error> {
    client_heard(config, limits, user_agent, told, &Pulse::default())
}

/// The same, and `pulse` tracks its watches.
///
/// # Errors
///
/// Those of [`client`].
pub fn client_heard(
    mut config: Config,
    limits: &Limits,
    user_agent: &str,
    told: impl Fn(&Answered) + Send + Sync + 'static,
    pulse: &Pulse,
) -> Result<Client, Error> {
    if let Ok(agent) = HeaderValue::from_str(user_agent) {
        config.headers.push((header::USER_AGENT, agent));
    }
    stack(&config, *limits, GaiResolver::new(), told, pulse).map_err(|error| Error::Client(Box::new(error)))
}

fn stack<R>(
    config: &Config,
    limits: Limits,
    resolver: R,
    told: impl Fn(&Answered) + Send + Sync + 'static,
    pulse: &Pulse,
) -> Result<Client, kube::Error>
where
    R: Service<Name, Error = io::Error> + Clone + Send + Sync + 'static,
    R::Response: Iterator<Item = SocketAddr>,
    R::Future: Send + 'static,
{
    let mut http = HttpConnector::new_with_resolver(JudgedResolver { resolver, limits });
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(KEEPALIVE.0));
    http.set_keepalive_interval(Some(KEEPALIVE.1));
    http.set_keepalive_retries(Some(KEEPALIVE.2));
    http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let judged = JudgedConnector { http, limits };
    let https = config.rustls_https_connector_with_connector(judged)?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(Some(limits.connect_timeout));
    connector.set_read_timeout(Some(SILENCE));
    connector.set_write_timeout(Some(UNACKNOWLEDGED));
    // A request on an idle connection restarts the timeout.
    connector.set_reset_reader_on_write(true);
    let client: legacy::Client<_, Body> = legacy::Builder::new(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    let host = config
        .cluster_url
        .authority()
        .map_or("", |authority| authority.as_str());
    let namespace = config.default_namespace.clone();
    let bounding = Bounding {
        limits,
        requests: Arc::new(Mutex::new(Pace::new(REQUESTS.0, REQUESTS.1, Instant::now()))),
    };
    Ok(ClientBuilder::new(service, namespace)
        .with_layer(&bounding)
        .with_layer(&Hearing(pulse.clone()))
        .with_layer(&Telling::new(host, told))
        .build())
}

/// A name resolves to a forbidden address.
#[derive(Debug, thiserror::Error)]
#[error("host {host} is {address}, {kind}")]
struct NotConnected {
    host: String,
    address: String,
    kind: RefusedAddress,
}

/// Refuses names for which any address is forbidden: honest names have none.
#[derive(Clone)]
struct JudgedResolver<R> {
    resolver: R,
    limits: Limits,
}

impl<R> Service<Name> for JudgedResolver<R>
where
    R: Service<Name, Error = io::Error>,
    R::Response: Iterator<Item = SocketAddr>,
    R::Future: Send + 'static,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.resolver.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let limits = self.limits;
        let host = shown(name.as_str());
        let resolving = self.resolver.call(name);
        async move {
            let addresses: Vec<SocketAddr> = resolving.await?.collect();
            for address in &addresses {
                address::judge(address.ip(), &limits).map_err(|kind| {
                    io::Error::other(NotConnected {
                        host: host.clone(),
                        address: address.ip().to_string(),
                        kind,
                    })
                })?;
            }
            Ok(addresses.into_iter())
        }
        .boxed()
    }
}

/// Refuses hosts that are forbidden addresses, as they do not go through a resolver.
#[derive(Clone)]
struct JudgedConnector<R> {
    http: HttpConnector<R>,
    limits: Limits,
}

impl<R> Service<Uri> for JudgedConnector<R>
where
    HttpConnector<R>: Service<Uri>,
    <HttpConnector<R> as Service<Uri>>::Response: Send + 'static,
    <HttpConnector<R> as Service<Uri>>::Error: Into<BoxError>,
    <HttpConnector<R> as Service<Uri>>::Future: Send + 'static,
{
    type Response = <HttpConnector<R> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        if let Err(kind) = address::judge_host(host, &self.limits) {
            let refused = NotConnected {
                host: shown(host),
                address: "the server's".to_owned(),
                kind,
            };
            return std::future::ready(Err(refused.into())).boxed();
        }
        let connecting = self.http.call(uri);
        async move { connecting.await.map_err(Into::into) }.boxed()
    }
}

/// An answer of a server that is refused.
#[derive(Debug, thiserror::Error)]
enum NotRead {
    #[error(
        "the server redirects ({status}), which no API server does and is not followed: correct `server` of the kubeconfig"
    )]
    Redirect { status: u16 },
    #[error("the answer has more than {most} bytes")]
    Answer { most: usize },
    #[error("the answer has more than {most} values")]
    Values { most: usize },
    #[error("an event has more than {most} bytes")]
    Event { most: usize },
}

/// A layer that ends answers that are too long, refuses redirects, and enforces the rate limits.
#[derive(Clone)]
struct Bounding {
    limits: Limits,
    requests: Arc<Mutex<Pace>>,
}

impl<S> Layer<S> for Bounding {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded {
            inner,
            bounding: self.clone(),
        }
    }
}

#[derive(Clone)]
struct Bounded<S> {
    inner: S,
    bounding: Bounding,
}

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<BoundedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let room = Room::of(request.uri(), &self.bounding.limits);
        let mut requests = self
            .bounding
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let pause = requests.take(1, Instant::now());
        drop(requests);
        let answering = self.inner.call(request);
        async move {
            tokio::time::sleep(pause).await;
            let answer = answering.await?;
            let status = answer.status();
            if status.is_redirection() {
                return Err(NotRead::Redirect {
                    status: status.as_u16(),
                }
                .into());
            }
            Ok(answer.map(|body| BoundedBody {
                body,
                room,
                pause: None,
            }))
        }
        .boxed()
    }
}

/// How much more may be read.
#[derive(Debug)]
enum Room {
    /// Of one answer.
    Answer {
        left: usize,
        most: usize,
        values: Values,
    },
    /// Of a text, which is returned as it is.
    Text { left: usize, most: usize },
    /// Of a line of a watch, and then of the next; the number of lines is unlimited.
    Event { left: usize, most: usize, pace: Pace },
}

impl Room {
    fn of(uri: &Uri, limits: &Limits) -> Self {
        if is_watch(uri) {
            return Self::Event {
                left: limits.event,
                most: limits.event,
                pace: Pace::new(WATCHED.0, WATCHED.1, Instant::now()),
            };
        }
        let (left, most) = (limits.answer, limits.answer);
        if uri.path().ends_with("/log") {
            return Self::Text { left, most };
        }
        Self::Answer {
            left,
            most,
            values: Values {
                most: limits.values,
                left: limits.values,
                is_quoted: false,
                is_escaped: false,
            },
        }
    }

    /// Takes received data, and returns how long to wait before reading more.
    fn take(&mut self, data: &[u8]) -> Result<Duration, NotRead> {
        match self {
            Self::Answer { left, most, values } => {
                *left = left
                    .checked_sub(data.len())
                    .ok_or(NotRead::Answer { most: *most })?;
                values.take(data)?;
                Ok(Duration::ZERO)
            }
            Self::Text { left, most } => {
                *left = left
                    .checked_sub(data.len())
                    .ok_or(NotRead::Answer { most: *most })?;
                Ok(Duration::ZERO)
            }
            Self::Event { left, most, pace } => {
                let mut cost = data.len();
                for (index, part) in data.split(|byte| *byte == b'\n').enumerate() {
                    if index > 0 {
                        *left = *most;
                        cost += LEAST_EVENT;
                    }
                    *left = left
                        .checked_sub(part.len())
                        .ok_or(NotRead::Event { most: *most })?;
                }
                Ok(pace.take(u32::try_from(cost).unwrap_or(u32::MAX), Instant::now()))
            }
        }
    }
}

/// The number of values that may still be read of a JSON text that arrives in pieces.
#[derive(Debug)]
struct Values {
    most: usize,
    left: usize,
    is_quoted: bool,
    is_escaped: bool,
}

impl Values {
    /// Outside of strings, each value except the first follows a comma or the start of a list or map.
    fn take(&mut self, data: &[u8]) -> Result<(), NotRead> {
        for byte in data {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_quoted,
                b'"' => self.is_quoted = !self.is_quoted,
                b',' | b'[' | b'{' if !self.is_quoted => {
                    self.left = self
                        .left
                        .checked_sub(1)
                        .ok_or(NotRead::Values { most: self.most })?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

struct BoundedBody<B> {
    body: B,
    room: Room,
    /// Nothing is read until then, so that the server has to wait, too.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            std::task::ready!(Future::poll(pause.as_mut(), context));
            this.pause = None;
        }
        Pin::new(&mut this.body).poll_frame(context).map(|frame| {
            frame.map(|frame| {
                let frame = frame.map_err(Into::into)?;
                if let Some(data) = frame.data_ref() {
                    let pause = this.room.take(data)?;
                    if !pause.is_zero() {
                        this.pause = Some(Box::pin(tokio::time::sleep(pause)));
                    }
                }
                Ok(frame)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::net::{IpAddr, Ipv4Addr};

    use kube::client::Client;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::kubeconfig::untrusted;

    const NEAR: Limits = Limits {
        size: 1 << 20,
        loopback: true,
        link_local: false,
        unverified_tls: false,
        plain_http: true,
        connect_timeout: Duration::from_secs(5),
        answer: 1000,
        values: 50,
        event: 100,
    };

    /// Starts a server that gives the same answer to every request, and returns its port.
    async fn server(says: impl Fn(&str) -> Vec<u8> + Send + 'static) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let length = connection.read(&mut request).await.unwrap_or(0);
                let answer = says(&String::from_utf8_lossy(&request[..length]));
                let _ = connection.write_all(&answer).await;
            }
        });
        port
    }

    fn kubeconfig(host: &str, port: u16) -> String {
        json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{host}:{port}/base")}}],
            "users": [{"name": "u", "user": {"token": "t0ken"}}],
        })
        .to_string()
    }

    fn near(port: u16) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = untrusted(kubeconfig("127.0.0.1", port).as_bytes(), &NEAR).unwrap();
        client(config, &NEAR, "test/1", |_: &Answered| {}).unwrap()
    }

    async fn get(client: &Client, path: &str) -> Result<String, String> {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = client.send(request).await.map_err(|error| chain(&error))?;
        let body = answer.into_body().collect_bytes().await;
        let body = body.map_err(|error| chain(&error))?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut link = error.source();
        while let Some(cause) = link {
            text = format!("{text}: {cause}");
            link = cause.source();
        }
        text
    }

    fn ok(body: &str) -> Vec<u8> {
        format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    #[tokio::test]
    async fn a_request_carries_token_path_and_agent_and_asks_for_nothing_packed() {
        let port = server(ok).await;
        let echoed = get(&near(port), "/version").await.unwrap().to_lowercase();
        assert!(echoed.starts_with("get /base/version http/1.1"), "{echoed}");
        assert!(echoed.contains("authorization: bearer t0ken"), "{echoed}");
        assert!(echoed.contains("user-agent: test/1"), "{echoed}");
        assert!(!echoed.contains("accept-encoding"), "{echoed}");
    }

    #[tokio::test]
    async fn a_watch_that_says_something_is_heard_and_no_other_answer_is() {
        let port = server(|asked| {
            if asked.contains("refused") {
                return b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
                    .to_vec();
            }
            ok("{}\n")
        })
        .await;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = untrusted(kubeconfig("127.0.0.1", port).as_bytes(), &NEAR).unwrap();
        let pulse = Pulse::default();
        let client = client_heard(config, &NEAR, "test/1", |_: &Answered| {}, &pulse).unwrap();
        for unheard in ["/version", "/refused?watch=true"] {
            get(&client, unheard).await.unwrap();
            assert_eq!(pulse.silent_for(), None, "{unheard}");
        }
        get(&client, "/api/v1/pods?watch=true").await.unwrap();
        assert!(pulse.silent_for().is_some());
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let elsewhere = server(|_| ok("followed")).await;
        let port = server(move |_| {
            format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n")
                .into_bytes()
        })
        .await;
        let error = get(&near(port), "/version").await.unwrap_err();
        assert!(error.contains("redirects (307)"), "{error}");
    }

    #[tokio::test]
    async fn an_answer_without_end_is_cut_off() {
        let port = server(|_| {
            let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
            answer.extend(vec![b'x'; 100_000]);
            answer
        })
        .await;
        let error = get(&near(port), "/version").await.unwrap_err();
        assert!(error.contains("more than 1000 bytes"), "{error}");
        let error = get(&near(port), "/api/v1/pods?watch=true").await.unwrap_err();
        assert!(error.contains("an event has more than 100 bytes"), "{error}");
    }

    #[tokio::test]
    async fn an_answer_of_many_small_values_is_cut_off() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
        let (fits, does_not) = (list(50), list(51));
        let says = move |asked: &str| ok(if asked.contains("fits") { &fits } else { &does_not });
        let port = server(says).await;
        get(&near(port), "/fits").await.unwrap();
        let error = get(&near(port), "/version").await.unwrap_err();
        assert!(error.contains("more than 50 values"), "{error}");
        // Commas in a string do not count, and a log is not JSON.
        let text = format!("\"{}\\\"{}\"", ",".repeat(100), "[".repeat(100));
        let port = server(move |_| ok(&text)).await;
        get(&near(port), "/version").await.unwrap();
        let port = server(|_| ok(&",".repeat(100))).await;
        get(&near(port), "/api/v1/namespaces/n/pods/p/log").await.unwrap();
        get(&near(port), "/version").await.unwrap_err();
    }

    #[test]
    fn a_watch_that_floods_us_is_read_slowly() {
        let uri: Uri = "/api/v1/pods?watch=true".parse().unwrap();
        let mut room = Room::of(&uri, &NEAR);
        let events = "{}\n".repeat(1 << 10);
        let pauses: Vec<Duration> = (0..6).map(|_| room.take(events.as_bytes()).unwrap()).collect();
        // Each round is two MiB: four rounds at once, the others take two seconds each.
        assert!(pauses[..3].iter().all(Duration::is_zero), "{pauses:?}");
        assert!(pauses[5] > Duration::from_secs(3), "{pauses:?}");
        assert!(pauses[5] < Duration::from_secs(5), "{pauses:?}");
    }

    #[tokio::test]
    async fn a_watch_may_have_any_number_of_events() {
        let events = format!("{}\n", "x".repeat(99)).repeat(100);
        let port = server(move |_| ok(&events)).await;
        let told = get(&near(port), "/api/v1/pods?limit=1&watch=true").await.unwrap();
        assert_eq!(told.len(), 10_000);
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_resolves_to_when_it_is_connected_to() {
        let port = server(|_| ok("reached")).await;
        let config = |limits: &Limits| untrusted(kubeconfig("far.example", port).as_bytes(), limits).unwrap();
        let strict = Limits {
            loopback: false,
            ..NEAR
        };
        let rebound = |addresses: &'static [[u8; 4]]| {
            tower::service_fn(move |_: Name| {
                let addresses = addresses
                    .iter()
                    .map(|octets| SocketAddr::from((IpAddr::from(*octets), 0)));
                std::future::ready(Ok::<_, io::Error>(addresses.collect::<Vec<_>>().into_iter()))
            })
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let told = |_: &Answered| {};
        let pulse = Pulse::default();
        let to_us = stack(&config(&strict), strict, rebound(&[[127, 0, 0, 1]]), told, &pulse).unwrap();
        let error = get(&to_us, "/version").await.unwrap_err();
        assert!(error.contains("host \"far.example\" is 127.0.0.1"), "{error}");
        let to_metadata = stack(
            &config(&NEAR),
            NEAR,
            rebound(&[[198, 18, 0, 1], [169, 254, 169, 254]]),
            told,
            &pulse,
        )
        .unwrap();
        let error = get(&to_metadata, "/version").await.unwrap_err();
        assert!(error.contains("is 169.254.169.254"), "{error}");
        let allowed = stack(&config(&NEAR), NEAR, rebound(&[[127, 0, 0, 1]]), told, &pulse).unwrap();
        assert_eq!(get(&allowed, "/version").await.unwrap(), "reached");
    }

    #[tokio::test]
    async fn a_number_that_the_system_reads_as_an_address_is_judged() {
        let strict = Limits {
            loopback: false,
            ..NEAR
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (host, address) in [
            ("2130706433", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("2852039166", "169.254.169.254"),
        ] {
            let config = untrusted(kubeconfig(host, 1).as_bytes(), &strict).unwrap();
            let client = client(config, &strict, "test/1", |_: &Answered| {}).unwrap();
            let error = get(&client, "/version").await.unwrap_err();
            assert!(error.contains(&format!("is {address}, ")), "{error}");
        }
    }

    #[tokio::test]
    async fn an_address_is_judged_again_when_it_is_connected_to() {
        let port = server(|_| ok("reached")).await;
        let config = untrusted(kubeconfig("127.0.0.1", port).as_bytes(), &NEAR).unwrap();
        let strict = Limits {
            loopback: false,
            ..NEAR
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client(config, &strict, "test/1", |_: &Answered| {}).unwrap();
        let error = get(&client, "/version").await.unwrap_err();
        assert!(error.contains("loopback"), "{error}");
    }

    #[test]
    fn a_key_that_is_none_is_an_error() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut kubeconfig: serde_json::Value = serde_json::from_str(&kubeconfig("198.18.0.1", 1)).unwrap();
        let encode = |text: &str| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(text)
        };
        kubeconfig["users"][0]["user"] = json!({
            "client-certificate-data": encode(include_str!("testdata/ca.pem")), "client-key-data": encode("s3cr3t"),
        });
        let config = untrusted(kubeconfig.to_string().as_bytes(), &NEAR).unwrap();
        let error = client(config, &NEAR, "test/1", |_: &Answered| {}).err().unwrap();
        assert!(
            error.source().is_some() && !chain(&error).contains("s3cr3t"),
            "{}",
            chain(&error)
        );
    }
}
