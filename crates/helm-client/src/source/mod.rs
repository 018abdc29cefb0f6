//! A chart reference in, the bytes of the chart archive out.
//!
//! Three forms are understood: an OCI registry (`oci://`), an archive behind a plain URL (`.tgz`), and a chart
//! repository (`index.yaml`). Whatever the form, a fetch is bounded in size, time and tries, the content is
//! checked against the digest that the source announces, and credentials go to nobody but the host they are for.

mod credentials;
mod error;
pub mod folder;
mod http;
mod index;
mod oci;
mod reference;
mod retry;

use std::time::Duration;

pub use credentials::{Credentials, Password};
pub use error::Error;
pub use reference::{ChartRef, InvalidRef};

use reference::Location;

/// A fetched chart: the gzipped tar archive as its publisher made it, not yet unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The bytes of the archive.
    pub bytes: Vec<u8>,
    /// `sha256:` and the hex digest of `bytes`: the identity of the chart, whatever tag or URL it came from.
    pub digest: String,
    /// Where it was found, without credentials and query: `oci://host/path:tag` or the URL of the archive.
    pub found_at: String,
}

impl Archive {
    fn new(bytes: Vec<u8>, found_at: String) -> Self {
        let digest = crate::digest::sha256(&bytes);
        Self {
            bytes,
            digest,
            found_at,
        }
    }
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

/// Fetches the archive of a chart.
///
/// Credentials are sent to the host of the reference (and to the token service it names, as the registry
/// protocol has it) and dropped when a redirect or an index leads to another host, port or scheme.
///
/// # Errors
/// [`Error`] names host, path and status and says what to do. Failures that pass by themselves were already tried
/// again within `limits`.
pub async fn fetch(
    chart: &ChartRef,
    credentials: Option<&Credentials>,
    limits: Limits,
) -> Result<Archive, Error> {
    let fetched = async {
        match chart.location() {
            Location::Oci(image) => oci::fetch(chart, image, credentials, limits).await,
            Location::Archive(url) => http::fetch_archive(chart, url, credentials, limits).await,
            Location::Repository(repository) => {
                http::fetch_from_repository(chart, repository, credentials, limits).await
            }
        }
    };
    tokio::time::timeout(limits.time, fetched)
        .await
        .unwrap_or_else(|_| {
            Err(Error::TimedOut {
                chart: chart.to_string(),
                limit: limits.time,
            })
        })
}
