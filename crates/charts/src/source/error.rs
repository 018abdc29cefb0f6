//! Why a chart could not be fetched, and what to do about it.

use std::time::Duration;

use rustls::AlertDescription;
use url::Url;

use super::Transfer;
use super::http::{Limit, host};

/// A chart that could not be fetched. No text of it holds a credential or the query of a URL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP client could not be set up.
    #[error("could not set up the connection to {host}")]
    Connect {
        /// The host to ask.
        host: String,
        /// What the client said.
        source: reqwest::Error,
    },
    /// The host answered, but not with the chart.
    #[error("{host} answered {status} for {path}: {advice}")]
    Answered {
        /// Who answered.
        host: String,
        /// What it was asked for.
        path: String,
        /// The HTTP status.
        status: u16,
        /// What to do about it.
        advice: &'static str,
        /// For how long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// No answer, or one that broke off.
    #[error("could not get {path} from {host}")]
    Unreachable {
        /// The host to ask.
        host: String,
        /// What it was asked for.
        path: String,
        /// What broke.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host's certificate is not one that this machine trusts.
    #[error(
        "{host} shows a certificate that is not trusted here: name its authority in caBundleRef, or set insecureSkipVerifyTLS"
    )]
    Untrusted {
        /// The host that was asked.
        host: String,
        /// What is wrong with the certificate.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host wants to see a certificate of ours, or another one.
    #[error(
        "{host} refuses the connection for want of a client certificate that it accepts: set clientCertRef"
    )]
    ClientCertificate {
        /// The host that was asked.
        host: String,
        /// The alert that it sent.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A redirect from TLS to plain HTTP.
    #[error(
        "{host} leads from {path} to {to}, which is no TLS: it must stay with https, or be asked by http from the start"
    )]
    Downgraded {
        /// The host that was asked.
        host: String,
        /// What it was asked for.
        path: String,
        /// Where it leads, without query.
        to: String,
    },
    /// A redirect to a redirect, and so on.
    #[error("{host} leads from {path} to another address, and so on, more than {limit} times: check the url")]
    Redirects {
        /// The host that was asked.
        host: String,
        /// What it was asked for.
        path: String,
        /// The bound.
        limit: usize,
    },
    /// A redirect led to somebody who asks for credentials, which are for the host that was asked alone.
    #[error(
        "{host} leads from {path} to {by}, which asks who we are: credentials are for {host} alone; tell who runs it to lead to an address that needs none, or use the address that has the chart as url"
    )]
    ChallengedElsewhere {
        /// The host that was asked.
        host: String,
        /// What it was asked for.
        path: String,
        /// Who asks for credentials, without query.
        by: String,
    },
    /// A token service redirects to another host. What that answers would be sent to the registry as a token.
    #[error(
        "{host} leads from {path} to {to}: a token service is asked at its own address only; tell who runs the registry to name that address"
    )]
    TokenServiceMoved {
        /// The token service.
        host: String,
        /// What it was asked for.
        path: String,
        /// Where it leads, without query.
        to: String,
    },
    /// The login for the host is kept by a program.
    #[error(
        "the Docker configuration leaves the login for {host} to the credential helper {helper}, which is a program and is not run: write the login into its auths, or set credentials"
    )]
    Helper {
        /// The host.
        host: String,
        /// The name of the helper.
        helper: String,
    },
    /// The program that keeps the login for the host gave none.
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
    /// The registry names a token service that would get the password in plain text.
    #[error(
        "{host} sends those who log in to {realm}, which is no TLS: refused, for a password would be readable on the way; tell who runs the registry to name a token service with https"
    )]
    InsecureRealm {
        /// The registry.
        host: String,
        /// The token service.
        realm: String,
    },
    /// The registry names a token service at an address that is another machine for everybody who uses it.
    #[error(
        "{host} sends those who log in to {realm}, an address of this machine or its link only: refused, for the registry is elsewhere; tell who runs it to name a token service that others reach"
    )]
    LocalRealm {
        /// The registry.
        host: String,
        /// The token service.
        realm: String,
    },
    /// The registry wants what is pushed at another address. Whoever gets it there is nobody that was asked.
    #[error(
        "{host} wants {path} at {to}: refused, for what is pushed goes to the registry alone; tell who runs it to answer with its own address, behind a proxy by the headers X-Forwarded-Host and X-Forwarded-Proto"
    )]
    UploadElsewhere {
        /// The registry.
        host: String,
        /// What is pushed.
        path: String,
        /// The address, without query.
        to: String,
    },
    /// A push or a login took too long.
    #[error("{host} was not done with {path} within {} s: check that it is reachable and fast enough", limit.as_secs())]
    Slow {
        /// The registry.
        host: String,
        /// What it was asked for.
        path: String,
        /// The bound.
        limit: Duration,
    },
    /// Another content than the pinned one.
    #[error(
        "{path} at {host} has digest {actual}, not the {expected} that is asked for: it was published again with other content; ask for another version, or check what changed and set digest to the new one"
    )]
    Pinned {
        /// Where it is.
        host: String,
        /// What was asked for.
        path: String,
        /// The digest that the reference asks for.
        expected: String,
        /// The digest that is there.
        actual: String,
    },
    /// A signature is asked for, and there is none.
    #[error("{path} at {host} is not signed: {advice}")]
    Unsigned {
        /// Where it is.
        host: String,
        /// What was asked for.
        path: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// There is a signature, but it proves nothing.
    #[error("the signature of {path} at {host} is not accepted: {reason}")]
    Signature {
        /// Where it is.
        host: String,
        /// What was asked for.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The host speaks HTTP where TLS was expected.
    #[error(
        "{host} does not speak TLS: set plainHTTP for a registry, or write http:// for a repository or an archive"
    )]
    NotTls {
        /// The host that was asked.
        host: String,
    },
    /// More bytes than a fetch may have.
    #[error("{path} from {host} is larger than {limit} bytes, the limit for {what}: {advice}")]
    TooLarge {
        /// The host that was asked.
        host: String,
        /// What it was asked for.
        path: String,
        /// The bound.
        limit: u64,
        /// What is bounded, with its article.
        what: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The bound in time was reached.
    #[error("{chart} was not fetched within {} s: check that its host is reachable and fast enough", limit.as_secs())]
    TimedOut {
        /// The chart.
        chart: String,
        /// The bound.
        limit: Duration,
    },
    /// The bytes are not those that were announced.
    #[error(
        "{path} from {host} has digest {actual}, {expected} was announced: do not use it, publish it again"
    )]
    Digest {
        /// Who sent it.
        host: String,
        /// What it was asked for.
        path: String,
        /// What was announced.
        expected: String,
        /// What came.
        actual: String,
    },
    /// An artifact, but not of a chart.
    #[error("{path} at {host} is not a chart: {reason}")]
    NotAChart {
        /// Where it is.
        host: String,
        /// What it was asked for.
        path: String,
        /// What was found instead.
        reason: String,
    },
    /// The index of a repository cannot be read.
    #[error("could not read {path} of the chart repository at {host}")]
    Index {
        /// Where it is.
        host: String,
        /// What it was asked for.
        path: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The repository has no chart of this name.
    #[error("the chart repository at {host} has no chart {chart}: check repo")]
    NoSuchChart {
        /// Where the repository is.
        host: String,
        /// The chart that was asked for.
        chart: String,
    },
    /// The registry has the chart, but no version that fits.
    #[error("{host} has no {version} of chart {chart}{}", newest_of(newest))]
    NoSuchTag {
        /// Where the registry is.
        host: String,
        /// The chart that was asked for.
        chart: String,
        /// The range that was asked for, or `stable version`.
        version: String,
        /// A few versions that it has, newest first.
        newest: Vec<String>,
    },
    /// The repository has the chart, but not in this version.
    #[error(
        "the chart repository at {host} has no {version} of chart {chart}{}",
        newest_of(newest)
    )]
    NoSuchVersion {
        /// Where the repository is.
        host: String,
        /// The chart that was asked for.
        chart: String,
        /// The version that was asked for, or `stable version`.
        version: String,
        /// A few versions that it has, newest first.
        newest: Vec<String>,
    },
}

impl Error {
    /// True when the same fetch can succeed later although nobody changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Answered { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Slow { .. } => true,
            Self::Connect { .. }
            | Self::Untrusted { .. }
            | Self::ClientCertificate { .. }
            | Self::Downgraded { .. }
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

    /// True when the source answered that it has no such chart, or not in this version.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoSuchChart { .. } | Self::NoSuchTag { .. } | Self::NoSuchVersion { .. } => true,
            Self::Answered { status, .. } => matches!(status, 404 | 410),
            _ => false,
        }
    }

    /// True when the chart is there, but nobody vouches for it who should.
    pub fn is_about_signature(&self) -> bool {
        matches!(self, Self::Unsigned { .. } | Self::Signature { .. })
    }

    /// For how long the host asks to be left alone.
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

/// Who was asked for what, by whom: the part that every error of one request shares.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) host: String,
    pub(super) path: String,
    /// What to say about a 404.
    pub(super) missing: &'static str,
    /// Whether credentials were given for it.
    pub(super) authenticated: bool,
    pub(super) purpose: Purpose,
}

/// What somebody is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To give something.
    Fetch,
    /// To take something.
    Push,
    /// To let us in.
    Login,
}

impl Request {
    /// How far its body is; a total of 0 is not known.
    pub(super) fn transfer(&self, done: usize, total: u64) -> Transfer<'_> {
        Transfer {
            host: &self.host,
            path: &self.path,
            done: done as u64,
            total: (total > 0).then_some(total),
        }
    }

    /// The same question, asked of whom a redirect leads to.
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
            (401, false) => "it asks who we are; set credentials or dockerConfigRef",
            (403, true) => "this user may not read it; give the user access, or set other credentials",
            (403, false) => "it is not public; set credentials or dockerConfigRef",
            (404 | 410, _) => self.missing,
            (429, _) => "it asks for fewer requests; the fetch is tried again later",
            (500.., _) => "it has a problem of its own; the fetch is tried again later",
            _ => "this is no answer to a download; check the url",
        };
        Error::Answered {
            host: self.host.clone(),
            path: self.path.clone(),
            status,
            advice,
            retry_after,
        }
    }

    /// What somebody at a terminal can do.
    fn advice(&self, status: u16) -> &'static str {
        match (status, self.purpose, self.authenticated) {
            (401, Purpose::Login, _) => "the user name or password is wrong; check them",
            (401, _, true) => {
                "the user name or password is wrong; check them, or log in again by kco registry login"
            }
            (401, _, false) => "it asks who we are; log in by kco registry login",
            (403, Purpose::Login, _) => "this user is not let in; log in as another",
            (403, _, _) => "this user may not push there; give the user access, or log in as another",
            (404 | 410, _, _) => self.missing,
            (405, _, _) => "it takes no pushes; push elsewhere",
            (413, _, _) => "this is more than it takes; take out of the chart what is no part of it",
            (429, _, _) => "it asks for fewer requests; try again later",
            (500.., _, _) => "it has a problem of its own; try again later",
            _ => "this is no answer of a registry; check the address",
        }
    }

    pub(super) fn failed(&self, failure: reqwest::Error) -> Error {
        // The URL may hold a signature, and host and path are named by this layer.
        let failure = failure.without_url();
        match tls_failure(&failure) {
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

/// The TLS failure below an HTTP failure. An I/O error's `source` skips the error it wraps, hence the two ways down.
fn tls_failure<'a>(failure: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = failure.downcast_ref() {
        return Some(found);
    }
    match failure
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(wrapped) => tls_failure(wrapped),
        None => tls_failure(failure.source()?),
    }
}
