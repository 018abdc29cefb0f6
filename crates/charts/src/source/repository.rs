//! Charts at plain URLs: an archive, or a repository whose `index.yaml` lists one.

use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use url::Url;

use super::access::Verify;
use super::address::{host, without_query};
use super::credentials::Login;
use super::error::{Purpose, Request};
use super::http::{self, Answer, Ask, Http, Redirects, Validators};
use super::limits::Limit;
use super::reference::{Repository, archive_name};
use super::{Access, ChartRef, Error, Limits, Resolved, index, provenance, retry};

const INDEX: &str = "application/yaml, text/yaml, application/json, */*";
const ARCHIVE: &str = "application/gzip, application/octet-stream, */*";

const NO_FILE: &str = "there is no such file; check the url";
const NOT_LISTED: &str = "the url must be that of a chart repository, the folder that holds index.yaml";
const NO_PROVENANCE: &str =
    "make its provenance file with helm package --sign, and publish that beside it with .prov at the end";
const LISTED: &str = "the index lists this file, but it is not there; publish it again";

/// A host that serves charts as files.
#[derive(Debug)]
pub(super) struct Source {
    http: Http,
    /// The archive, or the root of the repository.
    root: Url,
    authorization: Option<HeaderValue>,
    /// The advice for a missing archive.
    missing: &'static str,
}

/// What a host has, compared with the previous content.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each fetch, and it is taken apart at once"
)]
pub(super) enum Revalidation<N, T> {
    /// The previous content, and what the caller has for it.
    Same(Resolved, T),
    /// New content.
    New(N),
}

impl Source {
    /// For an archive.
    pub(super) fn of_archive(
        chart: &ChartRef,
        url: &Url,
        access: &Access,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::new(chart, url, access, limits, NO_FILE)
    }

    /// For a repository.
    pub(super) fn of_repository(
        chart: &ChartRef,
        repository: &Repository,
        access: &Access,
        limits: Limits,
    ) -> Result<Self, Error> {
        Self::new(chart, &repository.root, access, limits, LISTED)
    }

    fn new(
        chart: &ChartRef,
        root: &Url,
        access: &Access,
        limits: Limits,
        missing: &'static str,
    ) -> Result<Self, Error> {
        // Registry tokens are not logins here.
        let authorization = match access.login(&host(root), root.path())? {
            Some(Login::Basic(credentials)) => http::basic(&credentials),
            Some(Login::Identity(_) | Login::Bearer(_)) | None => None,
        };
        Ok(Self {
            http: Http::new(root, &access.trust, chart.insecure_skip_verify(), limits)?
                .watched_by(access.watcher),
            root: root.clone(),
            authorization,
            missing,
        })
    }

    /// Finds the wanted version in the index, unless it is still that of `previous`.
    pub(super) async fn resolve<T>(
        &self,
        repository: &Repository,
        pinned: Option<&str>,
        previous: Option<(&Resolved, T)>,
    ) -> Result<Revalidation<Resolved, T>, Error> {
        let url = sibling(&self.root, "index.yaml");
        let request = self.request(&url, NOT_LISTED);
        let unless = previous
            .as_ref()
            .and_then(|(resolved, _)| resolved.validators.as_ref());
        let limit = self.http.limits.of_index();
        let answer = self.get(&url, INDEX, limit, unless, &request).await?;
        if let (StatusCode::NOT_MODIFIED, Some((resolved, known))) = (answer.status, previous) {
            return Ok(Revalidation::Same(resolved.clone(), known));
        }
        let resolved = self.listed(&answer.body, repository, pinned)?;
        Ok(Revalidation::New(Resolved {
            validators: Some(Validators::of(&answer)),
            ..resolved
        }))
    }

    /// The index of the repository.
    pub(super) async fn index(&self) -> Result<Vec<u8>, Error> {
        let url = sibling(&self.root, "index.yaml");
        let request = self.request(&url, NOT_LISTED);
        let limit = self.http.limits.of_index();
        Ok(self.get(&url, INDEX, limit, None, &request).await?.body)
    }

    /// Finds the wanted version in an index.
    pub(super) fn listed(
        &self,
        index: &[u8],
        repository: &Repository,
        pinned: Option<&str>,
    ) -> Result<Resolved, Error> {
        let url = sibling(&self.root, "index.yaml");
        let entry = index::find(index, repository).map_err(|failure| failure.at(&url))?;
        let archive = entry.url(&self.root).map_err(|failure| failure.at(&url))?;
        let digest = entry.digest();
        if let (Some(pinned), Some(announced)) = (pinned, &digest)
            && pinned != announced
        {
            return Err(self.request(&archive, LISTED).pinned(pinned, announced));
        }
        Ok(Resolved {
            version: Some(entry.version),
            digest,
            manifest_digest: None,
            found_at: without_query(&archive),
            signed_by: None,
            archive: Some(archive),
            validators: None,
        })
    }

    /// The archive that an index lists, checked against the digest that it announces.
    pub(super) async fn download(&self, resolved: &Resolved) -> Result<Vec<u8>, Error> {
        let url = resolved.archive.as_ref().unwrap_or(&self.root);
        let request = self.request(url, self.missing);
        let answer = self
            .get(url, ARCHIVE, self.http.limits.of_archive(), None, &request)
            .await?;
        let digest = helm::digest::sha256(&answer.body);
        match &resolved.digest {
            Some(announced) if *announced != digest => Err(request.digest(announced.clone(), digest)),
            _ => Ok(answer.body),
        }
    }

    /// The archive itself, unless it is still that of `previous`.
    pub(super) async fn fetch<T>(
        &self,
        previous: Option<(&Resolved, T)>,
    ) -> Result<Revalidation<(Resolved, Vec<u8>), T>, Error> {
        let request = self.request(&self.root, self.missing);
        let unless = previous
            .as_ref()
            .and_then(|(resolved, _)| resolved.validators.as_ref());
        let answer = self
            .get(
                &self.root,
                ARCHIVE,
                self.http.limits.of_archive(),
                unless,
                &request,
            )
            .await?;
        if let (StatusCode::NOT_MODIFIED, Some((resolved, known))) = (answer.status, previous) {
            return Ok(Revalidation::Same(resolved.clone(), known));
        }
        let resolved = Resolved {
            version: None,
            digest: Some(helm::digest::sha256(&answer.body)),
            manifest_digest: None,
            found_at: without_query(&self.root),
            signed_by: None,
            archive: Some(self.root.clone()),
            validators: Some(Validators::of(&answer)),
        };
        Ok(Revalidation::New((resolved, answer.body)))
    }

    /// Verifies who signed the archive, by the provenance file next to it.
    pub(super) async fn verify(
        &self,
        resolved: &Resolved,
        digest: &str,
        by: &Verify,
        now: u64,
    ) -> Result<String, Error> {
        let archive = resolved.archive.as_ref().unwrap_or(&self.root);
        let named = self.request(archive, self.missing);
        let Verify::Provenance(keyring) = by else {
            return Err(
                named.unsigned("cosign signs what is in a registry; here, use keyringRef and a .prov file")
            );
        };
        let signed = self.provenance(resolved).await?;
        let signed = signed.ok_or_else(|| named.unsigned(NO_PROVENANCE))?;
        let file = archive_name(archive.path());
        keyring
            .verify(&signed, Some(&file), digest, now)
            .map_err(|reason| named.bad_signature(reason))
    }

    /// The provenance file beside the archive, if there is one.
    pub(super) async fn provenance(&self, resolved: &Resolved) -> Result<Option<Vec<u8>>, Error> {
        let mut url = resolved.archive.as_ref().unwrap_or(&self.root).clone();
        url.set_path(&format!("{}.prov", url.path()));
        let request = self.request(&url, NO_PROVENANCE);
        match self.get(&url, "*/*", provenance::LIMIT, None, &request).await {
            Err(Error::Answered { status: 404, .. }) => Ok(None),
            answer => Ok(Some(answer?.body)),
        }
    }

    /// Compares the digest of an archive with the pinned one.
    pub(super) fn check_pin(
        &self,
        resolved: &Resolved,
        pinned: Option<&str>,
        digest: &str,
    ) -> Result<(), Error> {
        match pinned {
            Some(pinned) if pinned != digest => {
                let url = resolved.archive.as_ref().unwrap_or(&self.root);
                Err(self.request(url, self.missing).pinned(pinned, digest))
            }
            _ => Ok(()),
        }
    }

    async fn get(
        &self,
        url: &Url,
        accept: &'static str,
        limit: Limit,
        unless: Option<&Validators>,
        request: &Request,
    ) -> Result<Answer, Error> {
        let ask = Ask {
            url,
            accept,
            // A repository may list archives on any host; only its own gets the credentials.
            authorization: self.authorization.as_ref().filter(|_| self.is_own(url)),
            unless,
            limit,
            redirects: Redirects::Anywhere,
            request,
        };
        let attempt = || async {
            let answer = self.http.get(ask).await?;
            match answer.status {
                StatusCode::OK => Ok(answer),
                StatusCode::NOT_MODIFIED if unless.is_some() => Ok(answer),
                status => Err(request.answered(status.as_u16(), None)),
            }
        };
        retry::until_settled(self.http.limits, attempt).await
    }

    fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.root.origin()
    }

    fn request(&self, url: &Url, missing: &'static str) -> Request {
        Request {
            host: host(url),
            path: url.path().to_owned(),
            missing,
            authenticated: self.authorization.is_some() && self.is_own(url),
            purpose: Purpose::Fetch,
        }
    }
}

/// `name` below the root of a repository. The query of the root is kept, as in Helm: some need a token there.
fn sibling(root: &Url, name: &str) -> Url {
    let mut url = root.clone();
    url.set_path(&format!("{}{name}", root.path()));
    url
}
