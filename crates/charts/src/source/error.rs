//! Why a chart could not be fetched, and what to do about it.

use std::time::Duration;

use rustls::AlertDescription;
use url::Url;

use super::Transfer;
use super::address::host;
use super::judged::LinkLocal;
use super::limits::Limit;

/// A chart that could not be fetched. No message contains a credential or the query of a URL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP client could not be set up.
    #[error("could not set up the connection to {host}")]
    Connect {
        /// The host.
        host: String,
        /// The client's error.
        source: reqwest::Error,
    },
    /// The host answered, but not with the chart.
    #[error("{host} answered {status} for {path}: {advice}")]
    Answered {
        /// The host that answered.
        host: String,
        /// The requested path.
        path: String,
        /// The HTTP status.
        status: u16,
        /// What to do about it.
        advice: &'static str,
        /// How long the host asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// There was no answer, or an incomplete one.
    #[error("could not get {path} from {host}")]
    Unreachable {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This machine does not trust the host's certificate.
    #[error(
        "{host} shows a certificate that is not trusted here: name its authority in caBundleRef, or set insecureSkipVerifyTLS"
    )]
    Untrusted {
        /// The host.
        host: String,
        /// What is wrong with the certificate.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host requires a client certificate, or another one.
    #[error(
        "{host} refuses the connection because it requires a client certificate that it accepts: set clientCertRef"
    )]
    ClientCertificate {
        /// The host.
        host: String,
        /// The TLS alert that it sent.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A redirect from TLS to plain HTTP.
    #[error(
        "{host} redirects from {path} to {to}, which does not use TLS: it has to redirect to https, or the url has to begin with http"
    )]
    Downgraded {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The target, without query.
        to: String,
    },
    /// An index that was fetched with TLS lists an archive that would be fetched without.
    #[error(
        "{host} lists {archive} in {path}, which does not use TLS: refused, because the archive could be replaced on the network; ask its operator to list it with https, or begin the url with http"
    )]
    InsecureArchive {
        /// The host of the index.
        host: String,
        /// The path of the index.
        path: String,
        /// The archive, without query.
        archive: String,
    },
    /// A redirect, an index or a challenge leads to the link of this machine.
    #[error(
        "{host} leads to {to}, a link-local address or that of a cloud metadata service: refused, because only machines beside this one answer there; ask the operator of {host} to name another address, or use that address as url"
    )]
    LinkLocal {
        /// The host that was asked for.
        host: String,
        /// The other host; for a name, also its address.
        to: String,
    },
    /// Too many redirects.
    #[error(
        "{host} redirects from {path} to another address, and so on, more than {limit} times: check the url"
    )]
    Redirects {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// A redirect led to a host that requires credentials, but they are only for the host of the reference.
    #[error(
        "{host} redirects from {path} to {by}, which requires credentials: ours are only for {host}; ask its operator to redirect to an address that needs none, or use the chart's own address as url"
    )]
    ChallengedElsewhere {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The host that requires credentials, without query.
        by: String,
    },
    /// A token service redirects to another host. Its answer would be sent to the registry as a token.
    #[error(
        "{host} redirects from {path} to {to}: a token service is only asked at its own address; ask the registry's operator to name that address"
    )]
    TokenServiceMoved {
        /// The token service.
        host: String,
        /// The requested path.
        path: String,
        /// The target, without query.
        to: String,
    },
    /// The login for the host is in a credential helper, which is not run.
    #[error(
        "the Docker configuration leaves the login for {host} to the credential helper {helper}, which is a program and is not run: write the login into its auths, or set credentials"
    )]
    Helper {
        /// The host.
        host: String,
        /// The name of the helper.
        helper: String,
    },
    /// The credential helper for the host gave no login.
    #[error(
        "the login for {host} is left to docker-credential-{helper}: {reason}; try it by `echo {host} | docker-credential-{helper} get`"
    )]
    HelperFailed {
        /// The host.
        host: String,
        /// The name of the helper.
        helper: String,
        /// What is wrong.
        reason: String,
    },
    /// The registry names a token service without TLS, which would get the password in plain text.
    #[error(
        "{host} sends logins to {realm}, which does not use TLS: refused, because the password could be read on the network; ask the registry's operator to name a token service with https"
    )]
    InsecureRealm {
        /// The registry.
        host: String,
        /// The token service.
        realm: String,
    },
    /// The registry names a token service at an address that is local to the client.
    #[error(
        "{host} sends logins to {realm}, an address that is local to this machine: refused, because the registry is elsewhere; ask its operator to name a token service that clients can reach"
    )]
    LocalRealm {
        /// The registry.
        host: String,
        /// The token service.
        realm: String,
    },
    /// The registry redirects an upload to another address, which nobody vouches for.
    #[error(
        "{host} wants {path} uploaded to {to}: refused, because uploads go only to the registry itself; ask its operator to make it answer with its own address, behind a proxy by the headers X-Forwarded-Host and X-Forwarded-Proto"
    )]
    UploadElsewhere {
        /// The registry.
        host: String,
        /// The path of the upload.
        path: String,
        /// The address, without query.
        to: String,
    },
    /// A push or a login took too long.
    #[error("{host} was not done with {path} within {} s: check that it is reachable and fast enough", limit.as_secs())]
    Slow {
        /// The registry.
        host: String,
        /// The requested path.
        path: String,
        /// The limit.
        limit: Duration,
    },
    /// The content does not have the pinned digest.
    #[error(
        "{path} at {host} has digest {actual}, not the {expected} that is asked for: it was published again with other content; ask for another version, or check what changed and set digest to the new one"
    )]
    Pinned {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The pinned digest.
        expected: String,
        /// The actual digest.
        actual: String,
    },
    /// A signature is required, and there is none.
    #[error("{path} at {host} is not signed: {advice}")]
    Unsigned {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// There is a signature, but it is not valid.
    #[error("the signature of {path} at {host} is not accepted: {reason}")]
    Signature {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// Why it is not valid.
        reason: String,
    },
    /// The host speaks HTTP without TLS.
    #[error(
        "{host} does not speak TLS: set plainHTTP for a registry, or write http:// for a repository or an archive"
    )]
    NotTls {
        /// The host.
        host: String,
    },
    /// The answer is larger than the limit.
    #[error("{path} from {host} is larger than {limit} bytes, the limit for {what}: {advice}")]
    TooLarge {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The limit.
        limit: u64,
        /// What the limit is for, with its article.
        what: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The time limit was reached.
    #[error("{chart} was not fetched within {} s: check that its host is reachable and fast enough", limit.as_secs())]
    TimedOut {
        /// The chart.
        chart: String,
        /// The limit.
        limit: Duration,
    },
    /// The content does not have the announced digest.
    #[error(
        "{path} from {host} has digest {actual}, {expected} was announced: do not use it, publish it again"
    )]
    Digest {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// The announced digest.
        expected: String,
        /// The actual digest.
        actual: String,
    },
    /// The artifact is not a chart.
    #[error("{path} at {host} is not a chart: {reason}")]
    NotAChart {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// What was found instead.
        reason: String,
    },
    /// The index of a repository cannot be read.
    #[error("could not read {path} of the chart repository at {host}")]
    Index {
        /// The host.
        host: String,
        /// The requested path.
        path: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The repository has no chart of this name.
    #[error("the chart repository at {host} has no chart {chart}: check repo")]
    NoSuchChart {
        /// The host of the repository.
        host: String,
        /// The requested chart.
        chart: String,
    },
    /// The registry has the chart, but no matching version.
    #[error("{host} has no {version} of chart {chart}{}", newest_of(newest))]
    NoSuchTag {
        /// The registry.
        host: String,
        /// The requested chart.
        chart: String,
        /// The requested range, or `stable version`.
        version: String,
        /// A few versions that it has, newest first.
        newest: Vec<String>,
    },
    /// The repository has the chart, but not this version.
    #[error(
        "the chart repository at {host} has no {version} of chart {chart}{}",
        newest_of(newest)
    )]
    NoSuchVersion {
        /// The host of the repository.
        host: String,
        /// The requested chart.
        chart: String,
        /// The requested version, or `stable version`.
        version: String,
        /// A few versions that it has, newest first.
        newest: Vec<String>,
    },
}

impl Error {
    /// True when the same fetch can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Answered { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Slow { .. } => true,
            Self::Connect { .. }
            | Self::Untrusted { .. }
            | Self::ClientCertificate { .. }
            | Self::Downgraded { .. }
            | Self::InsecureArchive { .. }
            | Self::LinkLocal { .. }
            | Self::Redirects { .. }
            | Self::ChallengedElsewhere { .. }
            | Self::TokenServiceMoved { .. }
            | Self::Helper { .. }
            | Self::HelperFailed { .. }
            | Self::InsecureRealm { .. }
            | Self::LocalRealm { .. }
            | Self::UploadElsewhere { .. }
            | Self::Pinned { .. }
            | Self::Unsigned { .. }
            | Self::Signature { .. }
            | Self::NotTls { .. }
            | Self::TooLarge { .. }
            | Self::Digest { .. }
            | Self::NotAChart { .. }
            | Self::Index { .. }
            | Self::NoSuchChart { .. }
            | Self::NoSuchTag { .. }
            | Self::NoSuchVersion { .. } => false,
        }
    }

    /// True when the source answered that it does not have this chart, or not this version.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoSuchChart { .. } | Self::NoSuchTag { .. } | Self::NoSuchVersion { .. } => true,
            Self::Answered { status, .. } => matches!(status, 404 | 410),
            _ => false,
        }
    }

    /// True when the chart exists, but its signature is missing or invalid.
    pub fn is_about_signature(&self) -> bool {
        matches!(self, Self::Unsigned { .. } | Self::Signature { .. })
    }

    /// How long the host asks to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answered { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn newest_of(versions: &[String]) -> String {
    if versions.is_empty() {
        return ", nor any other".to_owned();
    }
    format!("; its newest are {}", versions.join(", "))
}

/// The parts of a request that all of its errors share.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) host: String,
    pub(super) path: String,
    /// The advice for a 404.
    pub(super) missing: &'static str,
    /// Whether it had credentials.
    pub(super) authenticated: bool,
    pub(super) purpose: Purpose,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To read something.
    Fetch,
    /// To write something.
    Push,
    /// To check a login.
    Login,
}

impl Request {
    /// The progress of the body; a total of 0 means unknown.
    pub(super) fn transfer(&self, done: usize, total: u64) -> Transfer<'_> {
        Transfer {
            host: &self.host,
            path: &self.path,
            done: done as u64,
            total: (total > 0).then_some(total),
        }
    }

    /// The same request, sent to the target of a redirect.
    pub(super) fn redirected_to(&self, url: &Url) -> Self {
        Self {
            host: host(url),
            path: url.path().to_owned(),
            ..self.clone()
        }
    }

    pub(super) fn answered(&self, status: u16, retry_after: Option<Duration>) -> Error {
        let advice = match (status, self.authenticated) {
            _ if self.purpose != Purpose::Fetch => self.advice(status),
            (401, true) => {
                "the user name or password is wrong; check credentials, or the entry for this host in the Docker configuration"
            }
            (401, false) => "it requires credentials; set credentials or dockerConfigRef",
            (403, true) => "this user may not read it; give the user access, or set other credentials",
            (403, false) => "it is not public; set credentials or dockerConfigRef",
            (404 | 410, _) => self.missing,
            (429, _) => "it asks for fewer requests; the fetch is tried again later",
            (500.., _) => "it has an internal error; the fetch is tried again later",
            _ => "this is not an answer to a download; check the url",
        };
        Error::Answered {
            host: self.host.clone(),
            path: self.path.clone(),
            status,
            advice,
            retry_after,
        }
    }

    /// Advice for users of the command line.
    fn advice(&self, status: u16) -> &'static str {
        match (status, self.purpose, self.authenticated) {
            (401, Purpose::Login, _) => "the user name or password is wrong; check them",
            (401, _, true) => {
                "the user name or password is wrong; check them, or log in again by kco registry login"
            }
            (401, _, false) => "it requires credentials; log in by kco registry login",
            (403, Purpose::Login, _) => "this user may not log in; log in as another",
            (403, _, _) => "this user may not push there; give the user access, or log in as another",
            (404 | 410, _, _) => self.missing,
            (405, _, _) => "it does not accept pushes; push to another registry",
            (413, _, _) => "this is larger than it accepts; remove from the chart what does not belong to it",
            (429, _, _) => "it asks for fewer requests; try again later",
            (500.., _, _) => "it has an internal error; try again later",
            _ => "this is not an answer of a registry; check the address",
        }
    }

    pub(super) fn failed(&self, failure: reqwest::Error) -> Error {
        // The URL may contain a signature; host and path are in our own error.
        let failure = failure.without_url();
        if let Some(judged) = cause::<LinkLocal>(&failure) {
            return judged.clone().into();
        }
        match cause(&failure) {
            Some(rustls::Error::InvalidCertificate(_)) => Error::Untrusted {
                host: self.host.clone(),
                source: failure.into(),
            },
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                Error::NotTls {
                    host: self.host.clone(),
                }
            }
            Some(rustls::Error::AlertReceived(alert)) if is_about_our_certificate(*alert) => {
                Error::ClientCertificate {
                    host: self.host.clone(),
                    source: failure.into(),
                }
            }
            _ => self.broken(failure.into()),
        }
    }

    pub(super) fn broken(&self, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::Unreachable {
            host: self.host.clone(),
            path: self.path.clone(),
            source,
        }
    }

    pub(super) fn too_large(&self, limit: Limit) -> Error {
        Error::TooLarge {
            host: self.host.clone(),
            path: self.path.clone(),
            limit: limit.bytes,
            what: limit.what,
            advice: limit.advice,
        }
    }

    pub(super) fn not_a_chart(&self, reason: String) -> Error {
        Error::NotAChart {
            host: self.host.clone(),
            path: self.path.clone(),
            reason,
        }
    }

    pub(super) fn pinned(&self, expected: &str, actual: &str) -> Error {
        Error::Pinned {
            host: self.host.clone(),
            path: self.path.clone(),
            expected: expected.to_owned(),
            actual: actual.to_owned(),
        }
    }

    pub(super) fn unsigned(&self, advice: &'static str) -> Error {
        Error::Unsigned {
            host: self.host.clone(),
            path: self.path.clone(),
            advice,
        }
    }

    pub(super) fn bad_signature(&self, reason: String) -> Error {
        Error::Signature {
            host: self.host.clone(),
            path: self.path.clone(),
            reason,
        }
    }

    pub(super) fn digest(&self, expected: String, actual: String) -> Error {
        Error::Digest {
            host: self.host.clone(),
            path: self.path.clone(),
            expected,
            actual,
        }
    }
}

fn is_about_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure
    )
}

/// The error of a kind below an HTTP error. An I/O error's `source` skips the error that it wraps, so both ways are tried.
fn cause<'a, E: std::error::Error + 'static>(
    failure: &'a (dyn std::error::Error + 'static),
) -> Option<&'a E> {
    if let Some(found) = failure.downcast_ref() {
        return Some(found);
    }
    match failure
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(wrapped) => cause(wrapped),
        None => cause(failure.source()?),
    }
}
