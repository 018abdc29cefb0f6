//! Sends a request to a host and reads its answer, with limits; our credentials are only sent to their origin.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
};
use reqwest::header::{LAST_MODIFIED, LOCATION, RETRY_AFTER};
use reqwest::{Body, Client, Method, Response, StatusCode};
use url::Url;

use super::address::{host, is_loopback, without_query};
use super::error::Request;
use super::judged::{Judged, Lookup, lookup};
use super::limits::Limit;
use super::{Error, Limits, Trust, Watcher};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest silence during a download.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("krateo-helm-client/", env!("CARGO_PKG_VERSION"));
/// The limit of Go, and so of Helm.
const MAX_REDIRECTS: usize = 10;

/// The HTTP clients of one fetch, each built when a request needs it: reading the authorities of this machine takes
/// milliseconds.
#[derive(Debug)]
pub(super) struct Http {
    /// Shows our certificate.
    own: OnceLock<Client>,
    /// Shows no certificate.
    other: OnceLock<Client>,
    /// Knows no authorities, for plain HTTP to this machine.
    local: OnceLock<Client>,
    /// The first URL of the fetch; our certificate is for its origin.
    url: Url,
    /// Every other host is judged.
    judged: Judged,
    trust: Trust,
    insecure_skip_verify: bool,
    silence: Duration,
    pub(super) limits: Limits,
    watcher: Option<Watcher>,
}

/// A GET request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) url: &'a Url,
    pub(super) accept: &'static str,
    /// For the origin of `url`. It must be marked as sensitive.
    pub(super) authorization: Option<&'a HeaderValue>,
    /// Makes the request conditional: an unchanged previous answer will do.
    pub(super) unless: Option<&'a Validators>,
    pub(super) limit: Limit,
    pub(super) redirects: Redirects,
    pub(super) request: &'a Request,
}

/// A request that writes something. Redirects are not followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel<'a> {
    pub(super) method: &'a Method,
    pub(super) url: &'a Url,
    /// It must be marked as sensitive.
    pub(super) authorization: Option<&'a HeaderValue>,
    pub(super) content: Option<Content<'a>>,
    pub(super) request: &'a Request,
}

/// Content to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) media_type: &'a str,
    pub(super) bytes: &'a Arc<[u8]>,
}

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirects {
    /// To any host, but without credentials.
    Anywhere,
    /// Only within the same origin.
    SameOrigin,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Empty unless the status is 200.
    pub(super) body: Vec<u8>,
}

/// What a host needs to tell whether something has changed since the last request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
}

impl Http {
    /// Clients for the host of `url`; only this host gets our certificate.
    pub(super) fn new(
        url: &Url,
        trust: &Trust,
        insecure_skip_verify: bool,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::silent_for(READ_TIMEOUT, lookup, url, trust, insecure_skip_verify, limits)
    }

    /// The same for uploads: a host may be silent for as long as an upload takes.
    pub(super) fn for_sending(
        url: &Url,
        trust: &Trust,
        insecure_skip_verify: bool,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::silent_for(limits.time, lookup, url, trust, insecure_skip_verify, limits)
    }

    fn silent_for(
        silence: Duration,
        lookup: Lookup,
        url: &Url,
        trust: &Trust,
        insecure_skip_verify: bool,
        limits: Limits,
    ) -> Result<Self, Error> {
        let this = Self {
            own: OnceLock::new(),
            other: OnceLock::new(),
            local: OnceLock::new(),
            url: url.clone(),
            judged: Judged::new(url, lookup),
            trust: trust.clone(),
            insecure_skip_verify,
            silence,
            limits,
            watcher: None,
        };
        this.client(url)?;
        Ok(this)
    }

    /// Reports the progress of bodies to a watcher.
    pub(super) fn watched_by(self, watcher: Option<Watcher>) -> Self {
        Self { watcher, ..self }
    }

    /// Sends the request, following redirects, and reads the body of an answer of status 200.
    ///
    /// An answer of status 401 is from the origin of the URL: no other host may ask for credentials. A 401 from
    /// another host, after a redirect, is an error, so that the caller does not answer its challenge.
    pub(super) async fn get(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        let (response, request) = self.follow(ask).await?;
        answer(response, &request, ask.limit, self.watcher).await
    }

    /// Posts a form. Redirects are not followed, so nobody else gets it.
    pub(super) async fn post(
        &self,
        url: &Url,
        form: String,
        request: &Request,
        limit: Limit,
    ) -> Result<Answer, Error> {
        let post = self
            .client(url)?
            .post(url.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let response = post.send().await.map_err(|failure| request.failed(failure))?;
        answer(response, request, limit, None).await
    }

    /// Sends something once. Only the status and headers of the answer are read.
    pub(super) async fn send(&self, parcel: Parcel<'_>) -> Result<Answer, Error> {
        let Parcel {
            method,
            url,
            authorization,
            content,
            request,
        } = parcel;
        let mut send = self.client(url)?.request(method.clone(), url.clone());
        if let Some(authorization) = authorization {
            send = send.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(Content { media_type, bytes }) = content {
            send = send
                .header(CONTENT_TYPE, media_type)
                .header(CONTENT_LENGTH, bytes.len())
                .body(body(bytes, request, self.watcher));
        } else if *method != Method::HEAD {
            send = send.header(CONTENT_LENGTH, 0_u32);
        }
        let response = send.send().await.map_err(|failure| request.failed(failure))?;
        settled(response, Vec::new(), request)
    }

    /// The client for a URL. Every request asks for it, so here its host is judged.
    fn client(&self, url: &Url) -> Result<&Client, Error> {
        self.judged.check(url)?;
        let shows_certificate = url.origin() == self.url.origin() && self.trust.client_cert.is_some();
        // What is fetched from elsewhere may go through a proxy that speaks TLS.
        let is_local = url.scheme() == "http" && is_of_this_machine(url) && is_of_this_machine(&self.url);
        let (client, roots) = if is_local {
            (&self.local, Roots::Given)
        } else if shows_certificate {
            (&self.own, Roots::Machine)
        } else {
            (&self.other, Roots::Machine)
        };
        if let Some(client) = client.get() {
            return Ok(client);
        }
        // An image may have no CA certificates, and plain HTTP needs none. A redirect to TLS then fails by itself.
        let made = match self.make(shows_certificate, roots) {
            Err(_) if url.scheme() == "http" => self.make(shows_certificate, Roots::Given),
            made => made,
        };
        let made = made.map_err(|source| Error::Connect {
            host: host(url),
            source,
        })?;
        Ok(client.get_or_init(|| made))
    }

    fn make(&self, shows_certificate: bool, roots: Roots) -> reqwest::Result<Client> {
        // Selects the TLS implementation of the process, unless one is selected already; without any, the client would
        // panic.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .dns_resolver(self.judged.clone())
            .read_timeout(self.silence)
            .tls_danger_accept_invalid_certs(self.insecure_skip_verify)
            // HTTP/2 only keeps the text of an error: a TLS refusal could not be told from a broken connection.
            .http1_only()
            // Some servers label a .tgz as gzip-encoded; decompressed in transit it would be another file.
            .no_gzip()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        let given = self.trust.ca_bundle.iter();
        let given = given.flat_map(|bundle| bundle.0.iter().cloned());
        client = match roots {
            Roots::Machine => client.tls_certs_merge(given),
            Roots::Given => client.tls_certs_only(given),
        };
        if shows_certificate && let Some(cert) = &self.trust.client_cert {
            client = client.identity(cert.0.clone());
        }
        // Proxies come from the environment, but as in Go they are never used for this machine.
        if is_of_this_machine(&self.url) {
            client = client.no_proxy();
        }
        client.build()
    }

    async fn follow(&self, ask: Ask<'_>) -> Result<(Response, Request), Error> {
        let mut url = ask.url.clone();
        let mut request = ask.request.clone();
        // Once a redirect has left the origin, credentials are not sent again, not even back to the origin.
        let mut is_trusted = true;
        for _ in 0..=MAX_REDIRECTS {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(ask.accept));
            if is_trusted && let Some(authorization) = ask.authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            if let Some(validators) = ask.unless {
                validators.write(&mut headers);
            }
            let get = self.client(&url)?.get(url.clone()).headers(headers);
            let response = get.send().await.map_err(|failure| request.failed(failure))?;
            let Some(next) = target(&url, &response) else {
                if response.status() == StatusCode::UNAUTHORIZED && !is_trusted {
                    return Err(Error::ChallengedElsewhere {
                        host: ask.request.host.clone(),
                        path: ask.request.path.clone(),
                        by: without_query(&url),
                    });
                }
                return Ok((response, request));
            };
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(Error::Downgraded {
                    host: request.host,
                    path: request.path,
                    to: without_query(&next),
                });
            }
            if ask.redirects == Redirects::SameOrigin && next.origin() != ask.url.origin() {
                return Err(Error::TokenServiceMoved {
                    host: request.host,
                    path: request.path,
                    to: without_query(&next),
                });
            }
            is_trusted &= next.origin() == ask.url.origin();
            request = ask.request.redirected_to(&next);
            request.authenticated &= is_trusted;
            url = next;
        }
        Err(Error::Redirects {
            host: ask.request.host.clone(),
            path: ask.request.path.clone(),
            limit: MAX_REDIRECTS,
        })
    }
}

/// Which authorities are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Roots {
    /// Those of this machine and the given ones.
    Machine,
    /// Only the given ones.
    Given,
}

fn is_of_this_machine(url: &Url) -> bool {
    is_loopback(url.host_str().unwrap_or_default())
}

/// Bytes are sent in pieces of this size.
const CHUNK: usize = 64 * 1024;

/// A body that shares the bytes, because a retried upload needs them again.
fn body(bytes: &Arc<[u8]>, request: &Request, watcher: Option<Watcher>) -> Body {
    let (bytes, request) = (bytes.clone(), request.clone());
    let starts = (0..bytes.len()).step_by(CHUNK);
    Body::wrap_stream(futures::stream::iter(starts.map(move |start| {
        let end = bytes.len().min(start + CHUNK);
        if let Some(watcher) = watcher {
            watcher(request.transfer(end, bytes.len() as u64));
        }
        Ok::<_, std::convert::Infallible>(bytes[start..end].to_vec())
    })))
}

/// The target of a redirect.
fn target(url: &Url, response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let next = url.join(location).ok()?;
    matches!(next.scheme(), "http" | "https").then_some(next)
}

async fn answer(
    mut response: Response,
    request: &Request,
    limit: Limit,
    watcher: Option<Watcher>,
) -> Result<Answer, Error> {
    let mut body = Vec::new();
    if response.status() == StatusCode::OK {
        let announced = response.content_length().unwrap_or_default();
        if announced > limit.bytes {
            return Err(request.too_large(limit));
        }
        // If the buffer grew in steps, a large index would at times be in memory twice.
        body.reserve_exact(usize::try_from(announced).unwrap_or_default());
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|failure| request.failed(failure))?
        {
            if (body.len() + chunk.len()) as u64 > limit.bytes {
                return Err(request.too_large(limit));
            }
            body.extend_from_slice(&chunk);
            if let Some(watcher) = watcher {
                watcher(request.transfer(body.len(), announced));
            }
        }
    }
    settled(response, body, request)
}

fn settled(mut response: Response, body: Vec<u8>, request: &Request) -> Result<Answer, Error> {
    let status = response.status();
    // A failure after a redirect is reported with the host that failed.
    if !status.is_success() && !matches!(status.as_u16(), 304 | 401 | 404) {
        return Err(request.answered(status.as_u16(), retry_after(response.headers())));
    }
    Ok(Answer {
        status,
        headers: std::mem::take(response.headers_mut()),
        body,
    })
}

/// How long a host asks to be left alone: in seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(Timestamp::now())).unwrap_or_default())
}

impl Validators {
    pub(super) fn of(answer: &Answer) -> Self {
        Self {
            etag: answer.headers.get(ETAG).cloned(),
            last_modified: answer.headers.get(LAST_MODIFIED).cloned(),
        }
    }

    fn write(&self, headers: &mut HeaderMap) {
        if let Some(etag) = &self.etag {
            headers.insert(IF_NONE_MATCH, etag.clone());
        } else if let Some(date) = &self.last_modified {
            headers.insert(IF_MODIFIED_SINCE, date.clone());
        }
    }
}

/// User name and password for basic authentication.
pub(super) fn basic(credentials: &super::Credentials) -> Option<HeaderValue> {
    use base64::Engine as _;
    let pair = format!("{}:{}", credentials.username, credentials.password.expose());
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
    sensitive(&format!("Basic {encoded}"))
}

/// A header that the client neither logs nor indexes for compression.
pub(super) fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_read_only_for_requests_that_may_need_them() {
        let url = Url::parse("http://127.0.0.1:5000/index.yaml").unwrap();
        let http = Http::new(&url, &Trust::default(), false, Limits::default()).unwrap();
        assert!(http.local.get().is_some() && http.other.get().is_none());
        // The host may redirect to another one, which is verified by this machine's authorities.
        let elsewhere = Url::parse("https://charts.example.org/web.tgz").unwrap();
        http.client(&elsewhere).unwrap();
        assert!(http.other.get().is_some() && http.own.get().is_none());
    }

    /// A server on this machine that redirects every request but those for an archive.
    async fn redirecting(to: &str) -> u16 {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let location = to.replace("PORT", &port.to_string());
        tokio::spawn(async move {
            loop {
                let (mut peer, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4096];
                let length = peer.read(&mut asked).await.unwrap();
                let answer = if asked[..length].starts_with(b"GET /web.tgz") {
                    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nchart".to_owned()
                } else {
                    format!(
                        "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                };
                peer.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        port
    }

    /// What a redirect leads to, where every name is this machine but one, which has both its address and a
    /// link-local one.
    async fn redirected(to: &str) -> Result<Vec<u8>, String> {
        let names: Lookup = |name| {
            let mut addresses = vec![([127, 0, 0, 1], 0).into()];
            if name == "metadata.example" {
                addresses.push(([169, 254, 169, 254], 0).into());
            }
            Box::pin(std::future::ready(Ok(addresses)))
        };
        let port = redirecting(to).await;
        let url = Url::parse(&format!("http://127.0.0.1:{port}/from")).unwrap();
        let limits = Limits::default();
        let http = Http::silent_for(READ_TIMEOUT, names, &url, &Trust::default(), false, limits).unwrap();
        let request = Request {
            host: "charts".to_owned(),
            path: "/from".to_owned(),
            missing: "",
            authenticated: false,
            purpose: super::super::error::Purpose::Fetch,
        };
        let ask = Ask {
            url: &url,
            accept: "*/*",
            authorization: None,
            unless: None,
            limit: limits.of_archive(),
            redirects: Redirects::Anywhere,
            request: &request,
        };
        let answer = http.get(ask).await;
        let told = |refused: Error| refused.to_string().replace(&port.to_string(), "PORT");
        answer.map(|answer| answer.body).map_err(told)
    }

    #[tokio::test]
    async fn a_redirect_does_not_lead_to_a_link_local_address() {
        // The addresses are judged when they are connected to.
        for (to, shown) in [
            (
                "http://metadata.example:PORT/web.tgz",
                "metadata.example (169.254.169.254)",
            ),
            ("http://169.254.169.254/web.tgz", "169.254.169.254"),
            ("http://[::ffff:a9fe:a9fe]/web.tgz", "[::ffff:a9fe:a9fe]"),
        ] {
            let refused = redirected(to).await.unwrap_err();
            let expected = format!("127.0.0.1:PORT leads to {shown}, a link-local address");
            assert!(refused.starts_with(&expected), "{refused}");
        }
        for to in ["http://storage.example:PORT/web.tgz", "/web.tgz"] {
            assert_eq!(redirected(to).await, Ok(b"chart".to_vec()), "{to}");
        }
    }

    #[test]
    fn a_host_asks_for_seconds_or_until_a_date() {
        let wanted = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                RETRY_AFTER,
                HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(wanted("7"), Some(Duration::from_secs(7)));
        assert_eq!(wanted("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(wanted("Tue, 31 Dec 2199 23:59:59 GMT").unwrap() > Duration::from_hours(24));
        assert_eq!(wanted("soon"), None);
    }
}
