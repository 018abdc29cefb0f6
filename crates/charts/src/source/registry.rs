//! Reads and writes manifests, blobs and tags of one repository in an OCI registry (the distribution specification).
//!
//! We do not use `oci-client`: version 0.18 cannot show a client certificate, reads manifests, tokens and error texts
//! of any length, sends passwords to token services without TLS, and drops the status and the `Retry-After` of a
//! refusal. All we need are five GETs and four more requests over the HTTP stack that we already have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{HeaderValue, LINK, LOCATION};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use url::Url;

use super::address::{self, without_query};
use super::challenge::{self, Challenge};
use super::credentials::Login;
use super::error::Request;
use super::http::{self, Answer, Ask, Content, Http, Parcel, Redirects};
use super::limits::Limit;
use super::reference::is_digest;
use super::{Error, Trust, retry};

/// The specification requires registries to accept manifests of this size.
const MANIFEST: Limit = Limit {
    bytes: 4 * 1024 * 1024,
    what: "a manifest",
    advice: "check that the url leads to a chart",
};
/// The total of all pages.
const TAGS: Limit = Limit {
    bytes: 8 * 1024 * 1024,
    what: "a list of tags",
    advice: "ask for an exact version, for which no list is read",
};
/// The most pages of tags, with a thousand tags each.
const MAX_PAGES: usize = 100;
/// A registry's answer to a request for its root.
const WELCOME: Limit = Limit {
    bytes: 1024 * 1024,
    what: "the answer to a login",
    advice: "check that the address is that of a registry",
};
const TOKEN: Limit = Limit {
    bytes: 1024 * 1024,
    what: "the answer of a token service",
    advice: "ask the registry's operator",
};

const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// One repository of a registry, or the registry as a whole.
#[derive(Debug)]
pub(super) struct Registry {
    http: Http,
    /// `https://host/v2/repository/`, or `https://host/v2/`.
    root: Url,
    login: Option<Login>,
    /// `repository:…:pull`, unless the registry asks for something else. Empty for the registry as a whole.
    scope: String,
    /// The last header that was accepted: the answer to a challenge is valid for the requests that follow.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A manifest and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) digest: String,
    pub(super) layers: Vec<Descriptor>,
    /// For an index: the manifests that it lists.
    pub(super) manifests: Vec<Descriptor>,
}

/// A reference to a blob or a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// A blob of which only the digest is known.
    pub(super) fn of_blob(digest: &str) -> Self {
        Self {
            media_type: String::new(),
            digest: digest.to_owned(),
            size: 0,
            annotations: BTreeMap::new(),
        }
    }
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Registry {
    /// The repository below `root`, for reading, with this login.
    pub(super) fn new(http: Http, root: Url, repository: &str, login: Option<Login>) -> Self {
        Self::scoped(http, root, format!("repository:{repository}:pull"), login)
    }

    /// The same, for writing.
    pub(super) fn to_push(http: Http, root: Url, repository: &str, login: Option<Login>) -> Self {
        Self::scoped(http, root, format!("repository:{repository}:pull,push"), login)
    }

    /// The registry at `root` as a whole.
    pub(super) fn to_enter(http: Http, root: Url, login: Option<Login>) -> Self {
        Self::scoped(http, root, String::new(), login)
    }

    fn scoped(http: Http, root: Url, scope: String, login: Option<Login>) -> Self {
        let authorization = match &login {
            // A token that needs no challenge is sent at once.
            Some(Login::Bearer(token)) => http::sensitive(&format!("Bearer {}", token.expose())),
            _ => None,
        };
        Self {
            http,
            root,
            login,
            scope,
            authorization: Mutex::new(authorization),
        }
    }

    /// True when we have a login for it.
    pub(super) fn is_authenticated(&self) -> bool {
        self.login.is_some()
    }

    /// The manifest with this tag or digest; `None` if there is none.
    pub(super) async fn manifest(
        &self,
        reference: &str,
        request: &Request,
    ) -> Result<Option<Manifest>, Error> {
        let url = self.at(&format!("manifests/{reference}"), request)?;
        let Some(answer) = self.get(&url, MANIFESTS, MANIFEST, request).await? else {
            return Ok(None);
        };
        let digest = helm::digest::sha256(&answer.body);
        let announced = answer.headers.get("docker-content-digest");
        let announced = announced.and_then(|digest| digest.to_str().ok());
        let expected = [Some(reference), announced].into_iter().flatten();
        for expected in expected.filter(|expected| expected.starts_with("sha256:")) {
            if expected != digest {
                return Err(request.digest(expected.to_owned(), digest));
            }
        }
        read(&answer.body, digest)
            .map(Some)
            .ok_or_else(|| no_registry(request))
    }

    /// The blob that a descriptor names, with its digest verified.
    pub(super) async fn blob(
        &self,
        blob: &Descriptor,
        limit: Limit,
        request: &Request,
    ) -> Result<Vec<u8>, Error> {
        if !is_digest(&blob.digest) {
            return Err(request.not_a_chart("its layer has a digest of another kind than sha256".to_owned()));
        }
        if blob.size > limit.bytes {
            return Err(request.too_large(limit));
        }
        let url = self.at(&format!("blobs/{}", blob.digest), request)?;
        let answer = self.get(&url, "*/*", limit, request).await?;
        let body = answer.ok_or_else(|| request.answered(404, None))?.body;
        let digest = helm::digest::sha256(&body);
        if digest == blob.digest {
            Ok(body)
        } else {
            Err(request.digest(blob.digest.clone(), digest))
        }
    }

    /// The manifests that refer to the one with this digest: as the registry lists them, or, if it has no such list,
    /// as the clients that pushed them listed them under a tag.
    pub(super) async fn referrers(&self, digest: &str, request: &Request) -> Result<Vec<Descriptor>, Error> {
        let url = self.at(&format!("referrers/{digest}"), request)?;
        if let Some(answer) = self.get(&url, INDEX, MANIFEST, request).await? {
            let index = read(&answer.body, digest.to_owned());
            return index
                .map(|index| index.manifests)
                .ok_or_else(|| no_registry(request));
        }
        let listed = self.manifest(&digest.replace(':', "-"), request).await?;
        Ok(listed.map(|index| index.manifests).unwrap_or_default())
    }

    /// All tags, page by page.
    pub(super) async fn tags(&self, request: &Request) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default, deserialize_with = "null_as_default")]
            tags: Vec<String>,
        }
        let mut tags = Vec::new();
        let mut size = 0;
        let mut next = Some(self.at("tags/list?n=1000", request)?);
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { break };
            let answer = self.get(&url, "application/json", TAGS, request).await?;
            let answer = answer.ok_or_else(|| request.answered(404, None))?;
            size += answer.body.len() as u64;
            if size > TAGS.bytes {
                return Err(request.too_large(TAGS));
            }
            let page: Page = serde_json::from_slice(&answer.body).map_err(|_| no_registry(request))?;
            tags.extend(page.tags);
            next = next_page(&url, &answer);
        }
        Ok(tags)
    }

    /// Checks whether the login is accepted.
    pub(super) async fn enter(&self, request: &Request) -> Result<(), Error> {
        let welcome = self.get(&self.root, "application/json", WELCOME, request).await?;
        welcome.map(drop).ok_or_else(|| request.answered(404, None))
    }

    /// Pushes a blob with this digest to the repository, unless it exists.
    pub(super) async fn put_blob(
        &self,
        bytes: &Arc<[u8]>,
        digest: &str,
        request: &Request,
    ) -> Result<(), Error> {
        if self.has_blob(digest, request).await? {
            return Ok(());
        }
        let uploads = self.at("blobs/uploads/", request)?;
        let attempt = || async {
            let answer = self.send(&Method::POST, &uploads, None, request).await?;
            let target = upload_target(&uploads, &answer, digest, request)?;
            let content = Content {
                media_type: "application/octet-stream",
                bytes,
            };
            self.send(&Method::PUT, &target, Some(content), request).await
        };
        retry::until_settled(self.http.limits, attempt).await.map(drop)
    }

    /// Pushes a manifest under a tag.
    pub(super) async fn put_manifest(
        &self,
        tag: &str,
        content: Content<'_>,
        request: &Request,
    ) -> Result<(), Error> {
        let url = self.at(&format!("manifests/{tag}"), request)?;
        let put = Method::PUT;
        let attempt = || self.send(&put, &url, Some(content), request);
        let answer = retry::until_settled(self.http.limits, attempt).await?;
        let digest = helm::digest::sha256(content.bytes);
        let kept = answer.headers.get("docker-content-digest");
        match kept.and_then(|kept| kept.to_str().ok()) {
            Some(kept) if kept.starts_with("sha256:") && kept != digest => {
                Err(request.digest(digest, kept.to_owned()))
            }
            _ => Ok(()),
        }
    }

    async fn has_blob(&self, digest: &str, request: &Request) -> Result<bool, Error> {
        let url = self.at(&format!("blobs/{digest}"), request)?;
        let attempt = || async {
            match self.sent(&Method::HEAD, &url, None, request).await {
                Ok(answer) if answer.status == StatusCode::OK => Ok(true),
                Ok(answer) if answer.status == StatusCode::NOT_FOUND => Ok(false),
                Ok(answer) => Err(request.answered(answer.status.as_u16(), None)),
                // The registry redirects to where the blob is stored.
                Err(Error::Answered {
                    status: 301..=308, ..
                }) => Ok(true),
                Err(failure) => Err(failure),
            }
        };
        retry::until_settled(self.http.limits, attempt).await
    }

    /// The answer to a request, if it was accepted.
    async fn send(
        &self,
        method: &Method,
        url: &Url,
        content: Option<Content<'_>>,
        request: &Request,
    ) -> Result<Answer, Error> {
        let answer = self.sent(method, url, content, request).await?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(request.answered(answer.status.as_u16(), None))
        }
    }

    /// Sends a request, and repeats it once if authentication is required.
    async fn sent(
        &self,
        method: &Method,
        url: &Url,
        content: Option<Content<'_>>,
        request: &Request,
    ) -> Result<Answer, Error> {
        let parcel = |authorization| Parcel {
            method,
            url,
            authorization,
            content,
            request,
        };
        let known = self.authorization();
        let answer = self.http.send(parcel(known.as_ref())).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let authorization = self.answer_challenge(&answer, request).await?;
        let answer = self.http.send(parcel(Some(&authorization))).await?;
        self.keep(authorization);
        Ok(answer)
    }

    fn at(&self, path: &str, request: &Request) -> Result<Url, Error> {
        self.root.join(path).map_err(|_| no_registry(request))
    }

    /// An answer of status 200; `None` for 404.
    async fn get(
        &self,
        url: &Url,
        accept: &'static str,
        limit: Limit,
        request: &Request,
    ) -> Result<Option<Answer>, Error> {
        let attempt = || async {
            let known = self.authorization();
            let ask = |authorization| Ask {
                url,
                accept,
                authorization,
                unless: None,
                limit,
                redirects: Redirects::Anywhere,
                request,
            };
            let mut answer = self.http.get(ask(known.as_ref())).await?;
            if answer.status == StatusCode::UNAUTHORIZED {
                // A token that was valid before may have expired.
                let authorization = self.answer_challenge(&answer, request).await?;
                answer = self.http.get(ask(Some(&authorization))).await?;
                self.keep(authorization);
            }
            match answer.status {
                StatusCode::OK => Ok(Some(answer)),
                StatusCode::NOT_FOUND => Ok(None),
                status => Err(request.answered(status.as_u16(), None)),
            }
        };
        retry::until_settled(self.http.limits, attempt).await
    }

    fn authorization(&self) -> Option<HeaderValue> {
        let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn keep(&self, authorization: HeaderValue) {
        let mut known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(authorization);
    }

    async fn answer_challenge(&self, refused: &Answer, request: &Request) -> Result<HeaderValue, Error> {
        let unauthorized = || request.answered(401, None);
        match (
            Challenge::of(&refused.headers).ok_or_else(unauthorized)?,
            &self.login,
        ) {
            (Challenge::Basic, Some(Login::Basic(credentials))) => {
                http::basic(credentials).ok_or_else(unauthorized)
            }
            (Challenge::Basic, _) => Err(unauthorized()),
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                },
                login,
            ) => {
                let realm = self.root.join(&realm).map_err(|_| no_registry(request))?;
                let scope = scope.as_deref().unwrap_or(&self.scope);
                self.token(&realm, service.as_deref(), scope, login.as_ref(), request)
                    .await
            }
        }
    }

    /// Checks whether this registry's password may be sent to a token service. It may be on another host, as for
    /// Docker Hub, but not at an address that is local to this machine.
    fn check_realm(&self, realm: &Url, request: &Request) -> Result<(), Error> {
        let is_local = |url: &Url| url.host_str().is_none_or(address::is_local);
        let (host, shown) = (request.host.clone(), without_query(realm));
        if self.root.scheme() == "https" && realm.scheme() != "https" {
            return Err(Error::InsecureRealm { host, realm: shown });
        }
        if is_local(realm) && !is_local(&self.root) {
            return Err(Error::LocalRealm { host, realm: shown });
        }
        Ok(())
    }

    async fn token(
        &self,
        realm: &Url,
        service: Option<&str>,
        scope: &str,
        login: Option<&Login>,
        request: &Request,
    ) -> Result<HeaderValue, Error> {
        self.check_realm(realm, request)?;
        let request = Request {
            missing: "the registry names this token service, but it is not there; ask the registry's operator",
            ..request.redirected_to(realm)
        };
        let url = challenge::token_url(realm, service, scope);
        let authorization = match login {
            Some(Login::Basic(credentials)) => http::basic(credentials),
            _ => None,
        };
        let answer = if let Some(Login::Identity(token)) = login {
            let form = challenge::token_form(service, scope, token);
            self.http.post(realm, form, &request, TOKEN).await?
        } else {
            let ask = Ask {
                url: &url,
                accept: "application/json",
                authorization: authorization.as_ref(),
                unless: None,
                limit: TOKEN,
                redirects: Redirects::SameOrigin,
                request: &request,
            };
            self.http.get(ask).await?
        };
        if answer.status != StatusCode::OK {
            return Err(request.answered(answer.status.as_u16(), None));
        }
        challenge::token(&answer.body)
            .and_then(|token| http::sensitive(&format!("Bearer {}", token.expose())))
            .ok_or_else(|| no_registry(&request))
    }
}

fn no_registry(request: &Request) -> Error {
    request.not_a_chart("the host does not answer as an OCI registry does; check the url".to_owned())
}

fn read(text: &[u8], digest: String) -> Option<Manifest> {
    #[derive(Deserialize)]
    struct Read {
        #[serde(default, deserialize_with = "null_as_default")]
        layers: Vec<Descriptor>,
        #[serde(default, deserialize_with = "null_as_default")]
        manifests: Vec<Descriptor>,
    }
    let Read { layers, manifests } = serde_json::from_slice(text).ok()?;
    Some(Manifest {
        digest,
        layers,
        manifests,
    })
}

/// The upload address for a blob: it has to be on the registry's own host, because it gets our credentials.
fn upload_target(uploads: &Url, answer: &Answer, digest: &str, request: &Request) -> Result<Url, Error> {
    let location = answer.headers.get(LOCATION).and_then(|text| text.to_str().ok());
    let mut target = location
        .and_then(|location| uploads.join(location).ok())
        .ok_or_else(|| no_registry(request))?;
    if target.origin() != uploads.origin() {
        return Err(Error::UploadElsewhere {
            host: request.host.clone(),
            path: request.path.clone(),
            to: without_query(&target),
        });
    }
    target.query_pairs_mut().append_pair("digest", digest);
    Ok(target)
}

/// True when TLS options were given; otherwise registries on this machine use plain HTTP.
pub(super) fn wants_tls(trust: &Trust, insecure_skip_verify: bool) -> bool {
    insecure_skip_verify || trust.ca_bundle.is_some() || trust.client_cert.is_some()
}

/// The next page that the registry names; it must be on the same host.
fn next_page(url: &Url, answer: &Answer) -> Option<Url> {
    let link = answer.headers.get(LINK)?.to_str().ok()?;
    let (target, relation) = link.strip_prefix('<')?.split_once('>')?;
    if !relation.replace('"', "").contains("rel=next") {
        return None;
    }
    url.join(target).ok().filter(|next| next.origin() == url.origin())
}

/// The address of a repository in a registry; for an empty name, that of the registry.
pub(super) fn root(host: &str, repository: &str, plain_http: bool) -> Option<Url> {
    let slash = if repository.is_empty() { "" } else { "/" };
    let scheme = if plain_http { "http" } else { "https" };
    // Docker Hub's registry has another host name than users write.
    let host = match host {
        "docker.io" | "index.docker.io" => "registry-1.docker.io",
        host => host,
    };
    Url::parse(&format!("{scheme}://{host}/v2/{repository}{slash}")).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Limits;
    use super::super::address::host;
    use super::super::error::Purpose;
    use super::*;

    /// The result when a registry at `root` names `realm`.
    fn asked(root: &str, realm: &str) -> Result<(), String> {
        let root = Url::parse(root).unwrap();
        let http = Http::new(&root, &Trust::default(), false, Limits::default()).unwrap();
        let request = Request {
            host: host(&root),
            path: "web:1.2.3".to_owned(),
            missing: "",
            authenticated: true,
            purpose: Purpose::Fetch,
        };
        let registry = Registry::new(http, root, "web", None);
        let realm = registry.root.join(realm).unwrap();
        registry
            .check_realm(&realm, &request)
            .map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_token_service_may_be_elsewhere_but_not_on_this_machine_nor_without_tls() {
        let hub = "https://registry-1.docker.io/v2/library/web/";
        let plain = "http://registry.example.com/v2/web/";
        let here = "http://127.0.0.1:5000/v2/web/";
        for (root, realm) in [
            (hub, "https://auth.docker.io/token"),
            (hub, "/token"),
            (hub, "https://10.0.0.1/token"),
            (plain, "https://auth.example.com/token"),
            (plain, "http://auth.example.com/token"),
            (here, "http://127.0.0.1:5001/token"),
            (here, "http://localhost:5001/token"),
            (here, "https://auth.docker.io/token"),
        ] {
            assert_eq!(asked(root, realm), Ok(()), "{root} {realm}");
        }
        assert_eq!(
            asked(hub, "http://auth.docker.io/token?account=me"),
            Err(
                "registry-1.docker.io sends logins to http://auth.docker.io/token, which does not use TLS: refused, \
                 because the password could be read on the network; ask the registry's operator to name a token service with \
                 https"
                    .to_owned()
            )
        );
        let local = [
            "http://169.254.169.254/latest/meta-data",
            "https://localhost:10250/",
            "https://127.1/",
            "https://2130706433/",
            "https://[::ffff:127.0.0.1]/",
        ];
        for (root, realm) in local.map(|realm| (plain, realm)) {
            let refused = asked(root, realm).unwrap_err();
            assert!(
                refused.contains("an address that is local to this machine"),
                "{realm}: {refused}"
            );
        }
        assert!(asked(hub, "https://127.0.0.1/token").is_err());
    }
}
