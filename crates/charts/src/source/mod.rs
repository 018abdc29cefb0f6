//! Fetches the archive of a chart by its reference.
//!
//! There are three forms: an OCI registry (`oci://`), an archive at a plain URL (`.tgz`), and a chart repository
//! (`index.yaml`). For all of them, a fetch is limited in size, time and tries, the content is checked against the
//! digest that the source announces, and credentials are only sent to the host they are for.

mod access;
mod address;
mod challenge;
mod cosign;
mod credentials;
pub mod dependencies;
mod docker_config;
mod error;
pub mod folder;
mod http;
mod index;
mod judged;
mod limits;
mod oci;
mod openpgp;
pub mod package;
mod provenance;
pub mod push;
mod reference;
mod registry;
mod repository;
mod retry;
mod transfer;
mod trust;
mod versions;

use std::fmt;

use jiff::Timestamp;
use url::Url;

pub use access::{Access, CredentialHelper, StoredLogin, Verify};
pub use address::shown;
pub use cosign::{CosignKey, InvalidCosignKey};
pub use credentials::{Credentials, Password};
pub use docker_config::{DockerConfig, Malformed, Unreadable, server};
pub use error::Error;
pub use index::{Index, InvalidIndex};
pub use limits::Limits;
pub use provenance::{
    BadSignature, CannotSign, ChartSigner, InvalidKeyring, Keyring, LockedKey, SecretKeyring, Signature,
};
pub use reference::{ChartRef, InvalidRef};
pub use transfer::{Transfer, Watcher};
pub use trust::{CaBundle, ClientCert, InvalidPem, Trust};

use http::Validators;
use reference::{Image, Location};
use repository::Revalidation;

/// A fetched chart: the gzipped tar archive as its publisher made it, not yet unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The bytes of the archive.
    pub bytes: Vec<u8>,
    /// `sha256:` and the hex digest of `bytes`: the identity of the chart, whatever tag or URL it came from.
    pub digest: String,
    /// What the reference resolved to.
    pub resolved: Resolved,
    /// Its provenance file, where that was asked for and there is one.
    pub provenance: Option<Vec<u8>>,
}

/// What a reference currently resolves to.
#[derive(Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The version under which the source lists the chart. An archive at a plain URL and a reference by digest alone
    /// have none.
    pub version: Option<String>,
    /// Digest of the archive: that of the fetched bytes, or the one that the source announces.
    pub digest: Option<String>,
    /// Digest of the manifest, in a registry.
    pub manifest_digest: Option<String>,
    /// Where it was found, without credentials and query: `oci://host/path:tag` or the URL of the archive.
    pub found_at: String,
    /// Whose signature was verified: the name and fingerprint of an `OpenPGP` key, or `the cosign key`.
    pub signed_by: Option<String>,
    /// The address of the archive, which may have a signature in its query.
    archive: Option<Url>,
    validators: Option<Validators>,
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

/// The result of a fetch by a caller that may already have the chart.
#[derive(Debug)]
pub enum Fetched<T> {
    /// The source has the chart that the caller already has.
    Known(Resolved, T),
    /// The source has another chart.
    Archive(Archive),
}

/// Fetches the archive of a chart.
///
/// Credentials are sent to the host of the reference (and to the token service it names, according to the registry
/// protocol) and dropped when a redirect or an index leads to another host, port or scheme.
///
/// # Errors
/// [`Error`] names host, path and status and says what to do. Transient failures have already been retried within
/// `limits`.
pub async fn fetch(chart: &ChartRef, access: &Access, limits: Limits) -> Result<Archive, Error> {
    let nothing = |_: &Resolved| None::<std::convert::Infallible>;
    match fetch_unless_known(chart, access, limits, None, nothing).await? {
        Fetched::Archive(archive) => Ok(archive),
        Fetched::Known(_, never) => match never {},
    }
}

/// Fetches the archive of a chart, unless it is unchanged since the last time, `previous`, or `known` returns
/// something for what the reference resolves to. A required signature is verified in each of these cases.
///
/// # Errors
/// Those of [`fetch`].
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
                    Revalidation::Same(resolved, known) => Fetched::Known(resolved, known),
                    Revalidation::New(resolved) => match known(&resolved) {
                        Some(known) => Fetched::Known(resolved, known),
                        None => Fetched::Archive(Archive::new(source.download(&resolved).await?, resolved)),
                    },
                };
                checked(&source, chart, access, fetched).await
            }
            Location::Archive(url) => {
                let source = repository::Source::of_archive(chart, url, access, limits)?;
                let fetched = match source.fetch(previous).await? {
                    Revalidation::Same(resolved, known) => Fetched::Known(resolved, known),
                    Revalidation::New((resolved, bytes)) => Fetched::Archive(Archive::new(bytes, resolved)),
                };
                checked(&source, chart, access, fetched).await
            }
        }
    };
    within(chart, limits, fetched).await
}

/// Fetches the archive of a chart that a repository lists, using an index that was already fetched.
///
/// # Errors
/// Those of [`fetch`].
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

/// The index of the repository at this address, unparsed: [`Index::parse`] reads it.
///
/// # Errors
/// Those of [`fetch`].
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

/// What a reference currently resolves to. For an archive at a plain URL, this is not known before it is fetched.
///
/// # Errors
/// Those of [`fetch`].
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
                    Revalidation::New(resolved) | Revalidation::Same(resolved, ()) => Ok(Some(resolved)),
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

/// Checks the digest and signature of an archive that was fetched as a file.
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

/// Seconds since 1970, for the expiry of keys and signatures.
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
