//! A chart reference in, the bytes of the chart archive out.
//!
//! Three forms are understood: an OCI registry (`oci://`), an archive behind a plain URL (`.tgz`), and a chart
//! repository (`index.yaml`). Whatever the form, a fetch is bounded in size, time and tries, the content is
//! checked against the digest that the source announces, and credentials go to nobody but the host they are for.

mod access;
mod challenge;
mod cosign;
mod credentials;
pub mod dependencies;
mod docker_config;
mod error;
pub mod folder;
mod http;
mod index;
mod oci;
mod openpgp;
pub mod package;
mod provenance;
pub mod push;
mod reference;
mod registry;
mod repository;
mod retry;
mod versions;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

pub use access::{
    Access, CaBundle, ClientCert, CredentialHelper, InvalidPem, Kept, Transfer, Trust, Verify, Watcher,
};
pub use cosign::{CosignKey, InvalidCosignKey};
pub use credentials::{Credentials, Password};
pub use docker_config::{DockerConfig, Malformed, Unreadable, server};
pub use error::Error;
pub use index::{Index, InvalidIndex};
pub use provenance::{
    BadSignature, CannotSign, ChartSigner, InvalidKeyring, Keyring, LockedKey, SecretKeyring, Signature,
};
pub use reference::{ChartRef, InvalidRef, shown};

use http::{Limit, Validators};
use reference::{Image, Location};
use repository::Found;

/// A fetched chart: the gzipped tar archive as its publisher made it, not yet unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The bytes of the archive.
    pub bytes: Vec<u8>,
    /// `sha256:` and the hex digest of `bytes`: the identity of the chart, whatever tag or URL it came from.
    pub digest: String,
    /// What the reference led to.
    pub resolved: Resolved,
    /// Its provenance file, where that was asked for and there is one.
    pub provenance: Option<Vec<u8>>,
}

/// What a reference leads to at the moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The version by which the source lists the chart. An archive behind a plain URL and what is named by a digest
    /// alone have none.
    pub version: Option<String>,
    /// Digest of the archive: what was fetched, or what the source announces.
    pub digest: Option<String>,
    /// Digest of the manifest, in a registry.
    pub manifest_digest: Option<String>,
    /// Where it was found, without credentials and query: `oci://host/path:tag` or the URL of the archive.
    pub found_at: String,
    /// Whose signature was checked: the name and fingerprint of an `OpenPGP` key, or `the cosign key`.
    pub signed_by: Option<String>,
    /// The address of the archive, which may hold a signature in its query.
    archive: Option<Url>,
    validators: Option<Validators>,
}

impl Resolved {
    /// What Helm calls the archive: `web-1.2.3.tgz`.
    pub fn file_name(&self) -> String {
        reference::file_name(&self.found_at)
    }
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved")
            .field("version", &self.version)
            .field("digest", &self.digest)
            .field("manifest_digest", &self.manifest_digest)
            .field("found_at", &self.found_at)
            .field("signed_by", &self.signed_by)
            .finish_non_exhaustive()
    }
}

/// What became of a fetch by one who may have the chart already.
#[derive(Debug)]
pub enum Fetched<T> {
    /// The source has what the caller has.
    Known(Resolved, T),
    /// Something else.
    Archive(Archive),
}

/// How much a fetch may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes that one download may have.
    pub bytes: u64,
    /// Longest time that a fetch may take, all tries and pauses included.
    pub time: Duration,
    /// How often a request that fails for a passing reason is made in all.
    pub tries: u32,
    /// The pause after the first failure; it doubles with each further one, up to eight times this.
    pub pause: Duration,
}

impl Default for Limits {
    /// 100 MB, 60 s, 5 tries, pauses from 250 ms to 2 s.
    fn default() -> Self {
        Self {
            bytes: 100 * 1024 * 1024,
            time: Duration::from_mins(1),
            tries: 5,
            pause: Duration::from_millis(250),
        }
    }
}

impl Limits {
    fn of_archive(self) -> Limit {
        Limit {
            bytes: self.bytes,
            what: "an archive",
            advice: "take out of the chart what is no part of it, and publish it again",
        }
    }

    fn of_index(self) -> Limit {
        Limit {
            bytes: self.bytes,
            what: "an index",
            advice: "take old versions out of it, or use the address of the archive as url",
        }
    }
}

/// Fetches the archive of a chart.
///
/// Credentials are sent to the host of the reference (and to the token service it names, as the registry
/// protocol has it) and dropped when a redirect or an index leads to another host, port or scheme.
///
/// # Errors
/// [`Error`] names host, path and status and says what to do. Failures that pass by themselves were already tried
/// again within `limits`.
pub async fn fetch(chart: &ChartRef, access: &Access, limits: Limits) -> Result<Archive, Error> {
    let nothing = |_: &Resolved| None::<std::convert::Infallible>;
    match fetch_unless_known(chart, access, limits, None, nothing).await? {
        Fetched::Archive(archive) => Ok(archive),
        Fetched::Known(_, never) => match never {},
    }
}

/// Fetches the archive of a chart, unless it still is what was found the last time, `previous`, or what `known` has
/// for what the reference leads to. A signature that is asked for is checked in each of these cases.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_unless_known<T>(
    chart: &ChartRef,
    access: &Access,
    limits: Limits,
    previous: Option<(&Resolved, T)>,
    known: impl FnOnce(&Resolved) -> Option<T>,
) -> Result<Fetched<T>, Error> {
    let fetched = async {
        match chart.location() {
            Location::Oci(image) => from_registry(chart, image, access, limits, known).await,
            Location::Repository(repository) => {
                let source = repository::Source::of_repository(chart, repository, access, limits)?;
                let found = source.resolve(repository, chart.digest(), previous).await?;
                let fetched = match found {
                    Found::Same(resolved, known) => Fetched::Known(resolved, known),
                    Found::New(resolved) => match known(&resolved) {
                        Some(known) => Fetched::Known(resolved, known),
                        None => Fetched::Archive(Archive::new(source.download(&resolved).await?, resolved)),
                    },
                };
                checked(&source, chart, access, fetched).await
            }
            Location::Archive(url) => {
                let source = repository::Source::of_archive(chart, url, access, limits)?;
                let fetched = match source.fetch(previous).await? {
                    Found::Same(resolved, known) => Fetched::Known(resolved, known),
                    Found::New((resolved, bytes)) => Fetched::Archive(Archive::new(bytes, resolved)),
                };
                checked(&source, chart, access, fetched).await
            }
        }
    };
    within(chart, limits, fetched).await
}

/// Fetches the archive of a chart that a repository lists, by an index of it that is here already.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_listed(
    chart: &ChartRef,
    index: &[u8],
    access: &Access,
    limits: Limits,
) -> Result<Archive, Error> {
    let Location::Repository(repository) = chart.location() else {
        return fetch(chart, access, limits).await;
    };
    let fetched = async {
        let source = repository::Source::of_repository(chart, repository, access, limits)?;
        let resolved = source.listed(index, repository, chart.digest())?;
        let archive = Archive::new(source.download(&resolved).await?, resolved);
        checked(
            &source,
            chart,
            access,
            Fetched::<std::convert::Infallible>::Archive(archive),
        )
        .await
    };
    match within(chart, limits, fetched).await? {
        Fetched::Archive(archive) => Ok(archive),
        Fetched::Known(_, never) => match never {},
    }
}

/// The index of the repository at this address, as it is: [`Index::parse`] reads it.
///
/// # Errors
/// As [`fetch`].
pub async fn fetch_index(repository: &ChartRef, access: &Access, limits: Limits) -> Result<Vec<u8>, Error> {
    let fetched = async {
        let Location::Repository(place) = repository.location() else {
            return Err(Error::NoSuchChart {
                host: repository.to_string(),
                chart: "index.yaml".to_owned(),
            });
        };
        let source = repository::Source::of_repository(repository, place, access, limits)?;
        source.index().await
    };
    within(repository, limits, fetched).await
}

/// What a reference leads to at the moment. Of an archive behind a plain URL nothing is known before it is fetched.
///
/// # Errors
/// As [`fetch`].
pub async fn resolve(chart: &ChartRef, access: &Access, limits: Limits) -> Result<Option<Resolved>, Error> {
    let resolved = async {
        match chart.location() {
            Location::Oci(image) => {
                let source = oci::Source::new(chart, image, access, limits)?;
                let (resolved, _) = source.resolve(chart.digest()).await?;
                Ok(Some(resolved))
            }
            Location::Repository(repository) => {
                let source = repository::Source::of_repository(chart, repository, access, limits)?;
                let nothing: Option<(&Resolved, ())> = None;
                match source.resolve(repository, chart.digest(), nothing).await? {
                    Found::New(resolved) | Found::Same(resolved, ()) => Ok(Some(resolved)),
                }
            }
            Location::Archive(_) => Ok(None),
        }
    };
    within(chart, limits, resolved).await
}

async fn from_registry<T>(
    chart: &ChartRef,
    image: &Image,
    access: &Access,
    limits: Limits,
    known: impl FnOnce(&Resolved) -> Option<T>,
) -> Result<Fetched<T>, Error> {
    let source = oci::Source::new(chart, image, access, limits)?;
    let (mut resolved, artifact) = source.resolve(chart.digest()).await?;
    if let Some(by) = &access.verify {
        resolved.signed_by = Some(source.verify(&resolved, &artifact, by, now()).await?);
    }
    if let Some(known) = known(&resolved) {
        return Ok(Fetched::Known(resolved, known));
    }
    let provenance = if access.provenance {
        source.provenance(&resolved, &artifact).await?
    } else {
        None
    };
    let bytes = source.download(&resolved, &artifact, limits).await?;
    Ok(Fetched::Archive(Archive {
        provenance,
        ..Archive::new(bytes, resolved)
    }))
}

/// Holds what came as a file against pin and signature.
async fn checked<T>(
    source: &repository::Source,
    chart: &ChartRef,
    access: &Access,
    mut fetched: Fetched<T>,
) -> Result<Fetched<T>, Error> {
    let resolved = match &mut fetched {
        Fetched::Known(resolved, _) => resolved,
        Fetched::Archive(archive) => &mut archive.resolved,
    };
    let digest = resolved.digest.clone().unwrap_or_default();
    source.check_pin(resolved, chart.digest(), &digest)?;
    if let Some(by) = &access.verify {
        resolved.signed_by = Some(source.verify(resolved, &digest, by, now()).await?);
    }
    if let (true, Fetched::Archive(archive)) = (access.provenance, &mut fetched) {
        archive.provenance = source.provenance(&archive.resolved).await?;
    }
    Ok(fetched)
}

async fn within<T>(
    chart: &ChartRef,
    limits: Limits,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limits.time, work).await.unwrap_or_else(|_| {
        Err(Error::TimedOut {
            chart: chart.to_string(),
            limit: limits.time,
        })
    })
}

/// Seconds since 1970, by which keys and signatures expire.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or_default()
}

impl Archive {
    fn new(bytes: Vec<u8>, resolved: Resolved) -> Self {
        let digest = helm::digest::sha256(&bytes);
        Self {
            bytes,
            resolved: Resolved {
                digest: Some(digest.clone()),
                ..resolved
            },
            digest,
            provenance: None,
        }
    }
}
