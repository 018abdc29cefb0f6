//! Pushes artifacts to a registry, and checks logins.

use std::sync::Arc;

use url::Url;

use super::credentials::Login;
use super::error::{Purpose, Request};
use super::http::{Content, Http};
use super::registry::{self, Registry};
use super::{Access, Credentials, Error, Limits, Trust};

/// A registry, and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: String,
    is_loopback: bool,
    plain_http: bool,
    insecure_skip_verify: bool,
}

/// A text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a registry: expected its host, with a port where it needs one, as in registry.example.com:5000"
)]
pub struct InvalidHost {
    given: String,
}

/// What is pushed: blobs, and the manifest that names them.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// The blobs, in the order in which they are pushed.
    pub blobs: Vec<Arc<[u8]>>,
    /// The text of the manifest.
    pub manifest: Arc<[u8]>,
    /// Its media type.
    pub media_type: &'static str,
}

impl Host {
    /// Reads a host with or without a port.
    ///
    /// # Errors
    /// [`InvalidHost`] for anything else, such as a URL or a path.
    pub fn parse(given: &str) -> Result<Self, InvalidHost> {
        // The part before an @ may be a password.
        let invalid = || InvalidHost {
            given: given.rsplit('@').next().unwrap_or_default().to_owned(),
        };
        let url = Url::parse(&format!("https://{given}/")).map_err(|_| invalid())?;
        let host = url.host_str().ok_or_else(invalid)?;
        // It must be only a host: no user, no path, no query.
        let is_host = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && !given.ends_with(['/', ':']);
        if !is_host {
            return Err(invalid());
        }
        Ok(Self {
            name: given.to_owned(),
            is_loopback: super::address::is_loopback(host),
            plain_http: false,
            insecure_skip_verify: false,
        })
    }

    /// Uses HTTP without TLS. A registry on this machine is always accessed that way.
    pub fn with_plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// Accepts any certificate of the host.
    pub fn with_insecure_skip_verify(self, insecure_skip_verify: bool) -> Self {
        Self {
            insecure_skip_verify,
            ..self
        }
    }

    fn root(&self, repository: &str, trust: &Trust) -> Result<Url, Error> {
        let is_plain =
            self.plain_http || (self.is_loopback && !registry::wants_tls(trust, self.insecure_skip_verify));
        let request = || self.request(repository.to_owned(), false, Purpose::Push);
        registry::root(&self.name, repository, is_plain).ok_or_else(|| request().answered(404, None))
    }

    fn request(&self, path: String, authenticated: bool, purpose: Purpose) -> Request {
        Request {
            host: self.name.clone(),
            path,
            missing: match purpose {
                Purpose::Login => "it does not answer as a registry does; check the host",
                Purpose::Push | Purpose::Fetch => {
                    "it has no such repository and makes none by a push; create it there, or check the address"
                }
            },
            authenticated,
            purpose,
        }
    }
}

/// Checks a login. It is sent to the registry, and to the token service that it names.
///
/// # Errors
/// [`Error`] names the host and says what to do.
pub async fn login(
    host: &Host,
    credentials: Credentials,
    trust: &Trust,
    limits: Limits,
) -> Result<(), Error> {
    let root = host.root("", trust)?;
    let request = host.request(root.path().to_owned(), true, Purpose::Login);
    let http = Http::new(&root, trust, host.insecure_skip_verify, limits)?;
    let registry = Registry::to_enter(http, root, Some(Login::Basic(credentials)));
    within(limits, &request, registry.enter(&request)).await
}

/// Pushes an artifact under a tag of a repository.
///
/// Blobs that exist already are not sent again. The manifest is sent last, so that the tag never refers to an
/// incomplete artifact. Everything is sent to the registry only: an upload address must be on its own host.
///
/// # Errors
/// [`Error`] names host, repository and status and says what to do.
pub async fn push(
    host: &Host,
    repository: &str,
    tag: &str,
    artifact: &Artifact,
    access: &Access,
    limits: Limits,
) -> Result<(), Error> {
    let root = host.root(repository, &access.trust)?;
    let login = access.login(&host.name, repository)?;
    let http = Http::for_sending(&root, &access.trust, host.insecure_skip_verify, limits)?;
    let http = http.watched_by(access.watcher);
    let request = host.request(format!("{repository}:{tag}"), login.is_some(), Purpose::Push);
    let registry = Registry::to_push(http, root, repository, login);
    let work = async {
        for blob in &artifact.blobs {
            let digest = helm::digest::sha256(blob);
            registry.put_blob(blob, &digest, &request).await?;
        }
        let manifest = Content {
            media_type: artifact.media_type,
            bytes: &artifact.manifest,
        };
        registry.put_manifest(tag, manifest, &request).await
    };
    within(limits, &request, work).await
}

async fn within(
    limits: Limits,
    request: &Request,
    work: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    tokio::time::timeout(limits.time, work).await.unwrap_or_else(|_| {
        Err(Error::Slow {
            host: request.host.clone(),
            path: request.path.clone(),
            limit: limits.time,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_nothing_but_a_host() {
        for host in [
            "ghcr.io",
            "localhost:5000",
            "127.0.0.1",
            "[::1]:5000",
            "registry.example.com",
        ] {
            assert!(Host::parse(host).is_ok(), "{host}");
        }
        for text in [
            "",
            "oci://ghcr.io",
            "ghcr.io/charts",
            "ghcr.io/",
            "me@ghcr.io",
            "me:s3cret@ghcr.io",
            "ghcr.io?a",
            "ghcr.io#a",
            "ghcr.io:",
            "ghcr.io:port",
            "gh cr.io",
        ] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }
}
