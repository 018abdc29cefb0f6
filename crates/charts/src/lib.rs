//! Fetches charts from folders, repositories and registries.
//!
//! [`source`] fetches an archive, checks its digest, provenance and signature, and unpacks it. [`Charts`] turns a
//! definition's chart reference into a [`LoadedChart`]: it reads the Secrets, fetches the archive and parses the
//! templates. It keeps the result, because many objects ask for the same chart.
//!
//! ```no_run
//! use charts::source::Limits;
//! use charts::Charts;
//! use helm::origin::ChartSpec;
//!
//! # async fn load(cluster: cluster::Cluster) -> Result<(), Box<dyn std::error::Error>> {
//! let charts = Charts::new(cluster, Limits::default());
//! let spec = ChartSpec {
//!     url: "oci://registry.example/charts/web".to_owned(),
//!     version: Some("^1.2".to_owned()),
//!     ..ChartSpec::default()
//! };
//! let chart = charts.get(&spec).await?;
//! println!("{} {}, {}", chart.chart().name(), chart.version, chart.digest);
//! # Ok(())
//! # }
//! ```

mod cache;
mod secrets;
pub mod source;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::Cluster;
use futures::FutureExt as _;
use helm::chart::{self, Chart};
use helm::engine::Engine;
use helm::origin::{ALLOW_FROM_NAMESPACES, ChartSpec};

pub use secrets::Purpose;

use crate::source::{Archive, ChartRef, Fetched, InvalidRef, Limits, Resolved};
use cache::{Cache, Origin};

/// A chart, ready to be rendered.
#[derive(Debug, Clone)]
pub struct LoadedChart {
    /// The reference that was requested.
    pub spec: ChartSpec,
    /// The chart with its parsed templates.
    pub engine: Arc<Engine>,
    /// The version in its source's list, or that of the chart where the source lists none.
    pub version: String,
    /// Digest of its archive: `sha256:…`.
    pub digest: String,
    /// Where it was found, without credentials.
    pub found_at: String,
    /// Whose signature was verified, if verification was requested.
    pub signed_by: Option<String>,
}

impl LoadedChart {
    /// The chart.
    pub fn chart(&self) -> &Chart {
        self.engine.chart()
    }

    fn new(spec: &ChartSpec, resolved: &Resolved, engine: Arc<Engine>) -> Self {
        let listed = resolved.version.clone();
        Self {
            spec: spec.clone(),
            version: listed.unwrap_or_else(|| engine.chart().metadata().version.clone()),
            engine,
            digest: resolved.digest.clone().unwrap_or_default(),
            found_at: resolved.found_at.clone(),
            signed_by: resolved.signed_by.clone(),
        }
    }
}

/// A chart could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The definition's chart reference is invalid.
    #[error("the chart's url is not usable")]
    Reference(#[from] InvalidRef),
    /// A Secret could not be read.
    #[error("could not read {purpose} from Secret {secret}")]
    ReadSecret {
        /// Namespace and name.
        secret: String,
        /// What it was read for.
        purpose: Purpose,
        /// Why.
        source: Box<cluster::Error>,
    },
    /// There is no such Secret.
    #[error("Secret {secret} with {purpose} does not exist: create it, or correct {}", purpose.field())]
    NoSecret {
        /// Namespace and name.
        secret: String,
        /// What it was read for.
        purpose: Purpose,
    },
    /// A Secret of another namespace does not allow its use, or does not exist.
    #[error(
        "Secret {secret} with {purpose} does not exist or does not allow its use from namespace {namespace}: annotate it with {ALLOW_FROM_NAMESPACES}: {namespace}, or name one of that namespace in {}",
        purpose.field()
    )]
    ForeignSecret {
        /// Namespace and name.
        secret: String,
        /// What it was read for.
        purpose: Purpose,
        /// The namespace of the definition.
        namespace: String,
    },
    /// The Secret has no such key.
    #[error("Secret {secret} has no key {key} with {purpose}: {keys}")]
    NoKey {
        /// Namespace and name.
        secret: String,
        /// The key that was requested.
        key: String,
        /// What it was read for.
        purpose: Purpose,
        /// The keys that it has.
        keys: String,
    },
    /// A value that must be text is not.
    #[error("key {key} of Secret {secret} is not UTF-8 text, which {purpose} has to be")]
    NotText {
        /// Namespace and name.
        secret: String,
        /// The key.
        key: String,
        /// What it was read for.
        purpose: Purpose,
    },
    /// The value in the Secret is invalid.
    #[error("key {key} of Secret {secret} cannot be used as {purpose}")]
    Unusable {
        /// Namespace and name.
        secret: String,
        /// The key.
        key: String,
        /// What it was read for.
        purpose: Purpose,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The registry configuration of this process could not be read.
    #[error(transparent)]
    RegistryConfig(source::Unreadable),
    /// The archive could not be fetched.
    #[error(transparent)]
    Fetch(#[from] source::Error),
    /// The archive is not a chart.
    #[error("what was fetched from {found_at} is not a usable chart")]
    Load {
        /// Where it was found.
        found_at: String,
        /// Why.
        source: chart::Error,
    },
    /// The chart was published without charts that it depends on.
    #[error(
        "the chart at {found_at} cannot be used without its dependencies: found in Chart.yaml, but missing in charts/ directory: {missing}; run kco dependency build or helm dependency build, then publish it again"
    )]
    MissingDependencies {
        /// Where it was found.
        found_at: String,
        /// Their names.
        missing: String,
    },
    /// A fetch that several callers shared has failed.
    #[error(transparent)]
    Shared(Arc<Error>),
}

impl Error {
    /// True when the same attempt can succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::ReadSecret { source, .. } => source.is_transient(),
            Self::Fetch(error) => error.is_transient(),
            Self::Shared(error) => error.is_transient(),
            Self::Reference(_)
            | Self::NoSecret { .. }
            | Self::ForeignSecret { .. }
            | Self::NoKey { .. }
            | Self::NotText { .. }
            | Self::Unusable { .. }
            | Self::RegistryConfig(_)
            | Self::Load { .. }
            | Self::MissingDependencies { .. } => false,
        }
    }

    /// True when permission to use the chart may have been withdrawn: the consent of a Secret, or a signing key.
    pub fn is_withdrawn(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_about_signature(),
            Self::Shared(error) => error.is_withdrawn(),
            other => other.is_without_consent(),
        }
    }

    /// True when the source answered that it does not have this chart, or not this version.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_missing(),
            Self::Shared(error) => error.is_missing(),
            _ => false,
        }
    }

    /// True when a Secret of another namespace does not allow its use, or no longer does.
    pub fn is_without_consent(&self) -> bool {
        match self {
            Self::ForeignSecret { .. } => true,
            Self::Shared(error) => error.is_without_consent(),
            Self::Reference(_)
            | Self::ReadSecret { .. }
            | Self::NoSecret { .. }
            | Self::NoKey { .. }
            | Self::NotText { .. }
            | Self::Unusable { .. }
            | Self::RegistryConfig(_)
            | Self::Fetch(_)
            | Self::Load { .. }
            | Self::MissingDependencies { .. } => false,
        }
    }
}

/// How long the result for a tag is used before it is looked up again.
const FRESH_FOR: Duration = Duration::from_mins(5);

/// How long an unreachable source is left alone while its previous chart is used.
const STALE_FOR: Duration = Duration::from_secs(30);

/// The most bytes of files of the charts that are kept.
pub const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// The most origins that are remembered.
const MAX_SLOTS: usize = 4096;

/// Charts by their origin, for all controllers of a process.
///
/// A chart is fetched once, however many callers ask for it at the same time, and kept by digest. A tag or an index
/// entry is looked up again after five minutes, without a download if it is unchanged; a digest never changes. While
/// a source cannot be reached, its previous chart is used.
pub struct Charts {
    cluster: Cluster,
    limits: Limits,
    registry_config: Option<PathBuf>,
    fresh_for: Duration,
    slots: Mutex<HashMap<ChartSpec, Arc<Slot>>>,
    cache: Mutex<Cache>,
}

/// One origin. The lock's holder fetches; the others wait for the result.
type Slot = tokio::sync::Mutex<CachedResolution>;

/// What an origin was last resolved to, or why that failed.
#[derive(Default)]
struct CachedResolution {
    resolved: Option<Resolved>,
    fresh_until: Option<Instant>,
    failed: Option<(Instant, Arc<Error>)>,
}

impl Charts {
    /// Reads Secrets through `cluster` and fetches within `limits`.
    pub fn new(cluster: Cluster, limits: Limits) -> Self {
        Self {
            cluster,
            limits,
            registry_config: None,
            fresh_for: FRESH_FOR,
            slots: Mutex::default(),
            cache: Mutex::new(Cache::new(KEPT_BYTES)),
        }
    }

    /// Uses the logins of the Docker configuration at this path, a file or a folder with one, if a definition gives
    /// none. It is read for each fetch, because such files are rotated.
    pub fn with_registry_config(self, path: Option<PathBuf>) -> Self {
        Self {
            registry_config: path,
            ..self
        }
    }

    /// The chart that `spec` names.
    ///
    /// # Errors
    /// [`Error`] names Secret, host and path, and says what to do.
    pub async fn get(&self, spec: &ChartSpec) -> Result<Arc<LoadedChart>, Error> {
        let asked = Instant::now();
        let slot = self.slot(spec);
        let mut cached = slot.lock().await;
        if let Some(chart) = self.fresh(spec, &cached) {
            return Ok(chart);
        }
        // A caller that waited for a fetch that failed meanwhile need not repeat it.
        if let Some((at, failure)) = cached.failed.as_ref().filter(|(at, _)| *at > asked) {
            tracing::trace!(waited = ?at.duration_since(asked), "a fetch for several has failed");
            return Err(Error::Shared(failure.clone()));
        }
        match self.load(spec, cached.resolved.as_ref()).await {
            Ok((resolved, engine)) => {
                let chart = Arc::new(LoadedChart::new(spec, &resolved, engine));
                *cached = CachedResolution {
                    resolved: Some(resolved),
                    fresh_until: Some(Instant::now() + self.fresh_for),
                    failed: None,
                };
                Ok(chart)
            }
            Err(error) => {
                if let Some(chart) = self.stale(spec, &cached, &error) {
                    cached.fresh_until = Some(Instant::now() + STALE_FOR.min(self.fresh_for));
                    return Ok(chart);
                }
                let error = Arc::new(error);
                cached.failed = Some((Instant::now(), error.clone()));
                Err(Error::Shared(error))
            }
        }
    }

    /// Looks up tags and index entries again after this time. The default is five minutes.
    pub fn with_fresh_for(self, fresh_for: Duration) -> Self {
        Self { fresh_for, ..self }
    }

    fn slot(&self, spec: &ChartSpec) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_SLOTS && !slots.contains_key(spec) {
            // Entries that nobody waits for are only a shortcut.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        slots.entry(spec.clone()).or_default().clone()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self, resolved: &Resolved) -> Option<Arc<Engine>> {
        self.cache().get(resolved.digest.as_deref()?)
    }

    /// A kept chart that need not be looked up again.
    fn fresh(&self, spec: &ChartSpec, cached: &CachedResolution) -> Option<Arc<LoadedChart>> {
        let resolved = cached.resolved.as_ref()?;
        // Keys can be revoked, so signatures are checked again.
        let is_final = spec.digest.is_some() && spec.verify.is_none();
        if !is_final && cached.fresh_until.is_none_or(|end| end <= Instant::now()) {
            return None;
        }
        let engine = self.kept(resolved)?;
        Some(Arc::new(LoadedChart::new(spec, resolved, engine)))
    }

    /// The previous chart, if the source cannot be reached at the moment.
    fn stale(
        &self,
        spec: &ChartSpec,
        cached: &CachedResolution,
        failure: &Error,
    ) -> Option<Arc<LoadedChart>> {
        let resolved = cached.resolved.as_ref().filter(|_| failure.is_transient())?;
        let engine = self.kept(resolved)?;
        tracing::warn!(
            found_at = resolved.found_at,
            digest = resolved.digest,
            error = %failure,
            "the source of a chart cannot be asked; what it had before is used"
        );
        Some(Arc::new(LoadedChart::new(spec, resolved, engine)))
    }

    async fn load(
        &self,
        spec: &ChartSpec,
        before: Option<&Resolved>,
    ) -> Result<(Resolved, Arc<Engine>), Error> {
        let reference = ChartRef::parse(&spec.url, spec.repo.as_deref(), spec.version.as_deref())?
            .with_digest(spec.digest.as_deref())?
            .with_plain_http(spec.plain_http)
            .with_insecure_skip_verify(spec.insecure_skip_verify);
        let access = secrets::access(&self.cluster, spec, self.registry_config.as_deref()).await?;
        let before = before.and_then(|resolved| Some((resolved, self.kept(resolved)?)));
        let known = |resolved: &Resolved| {
            let digest = resolved.digest.as_deref()?;
            self.cache().get_from(&origin(spec, resolved), digest)
        };
        // The state of a fetch is large, and most callers find the chart in the cache.
        let fetched = source::fetch_unless_known(&reference, &access, self.limits, before, known);
        let fetched = fetched.boxed().await?;
        let (resolved, engine) = match fetched {
            Fetched::Known(resolved, engine) => (resolved, engine),
            Fetched::Archive(archive) => self.parsed(archive)?,
        };
        let digest = resolved.digest.clone().unwrap_or_default();
        self.cache().keep(origin(spec, &resolved), &digest, &engine);
        Ok((resolved, engine))
    }

    fn parsed(&self, archive: Archive) -> Result<(Resolved, Arc<Engine>), Error> {
        let Archive {
            bytes,
            digest,
            resolved,
            provenance: _,
        } = archive;
        // The bytes have been fetched, so the parsed chart of the same bytes may be used.
        if let Some(engine) = self.cache().get(&digest) {
            return Ok((resolved, engine));
        }
        let chart =
            Chart::from_foreign_archive(&bytes, &chart::Limits::default()).map_err(|source| Error::Load {
                found_at: resolved.found_at.clone(),
                source,
            })?;
        let missing = chart.missing_dependencies();
        if !missing.is_empty() {
            return Err(Error::MissingDependencies {
                missing: missing.join(", "),
                found_at: resolved.found_at,
            });
        }
        Ok((resolved, Arc::new(Engine::new(chart))))
    }
}

fn origin(spec: &ChartSpec, resolved: &Resolved) -> Origin {
    Origin {
        url: spec.url.clone(),
        repo: spec.repo.clone(),
        version: resolved.version.clone(),
    }
}
