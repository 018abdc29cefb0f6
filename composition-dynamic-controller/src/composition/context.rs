//! What passes need from the process.

use std::sync::Arc;
use std::time::Duration;

use api::{Composition, annotations, labels};
use charts::Charts;
use cluster::{Cluster, ResourceId};
use composition::approval::is_demanded;
use composition::plan::Growth;
use composition::{Account, Schemas};
use helm_client::authenticity::{Parent, RecordKeys};
use helm_client::release::{Listener, Progress, Releases};
use runtime::queue::{Priority, Queue, Seat};
use runtime::{Backoff, Recorder, Telemetry, Watches, chain};

use super::bound::{BoundCache, OwnBound};
use super::memory::{Memories, Memory};
use super::origin::Origin;
use crate::args::ReadyMeans;
use crate::backlog::{self, Backlog};
use crate::compositions::{Compositions, Key};
use crate::inspector::Inspector;
use crate::lookups::Lookups;
use crate::metrics::{CutOff, PassMetrics};
use crate::release_key::{self, ReleaseKey};
use crate::types::AwaitedTypes;

/// Our field manager for compositions and Roles. Objects of releases have Helm's.
pub(crate) const FIELD_MANAGER: &str = "composition-dynamic-controller";

/// What passes need from the process.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) charts: Charts,
    /// The schemas that compositions are read with.
    pub(crate) schemas: Schemas,
    /// The client for releases, without settings of a composition: [`Context::releases_of`] adds those.
    pub(crate) releases: Releases,
    /// The key that authenticates release records; none when records are trusted whoever wrote them.
    pub(crate) release_key: Option<ReleaseKey>,
    pub(crate) inspector: Inspector,
    pub(crate) recorder: Recorder,
    pub(crate) telemetry: Telemetry,
    pub(crate) parts: PassMetrics,
    /// Counts passes that did not finish.
    pub(crate) cut_off: CutOff,
    pub(crate) bound: BoundCache,
    pub(crate) backoff: Backoff<Key>,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) compositions: Arc<Compositions>,
    /// The compositions that wait for their first comparison.
    pub(crate) backlog: Arc<Backlog>,
    /// Where the charts come from.
    pub(crate) origin: Origin,
    pub(crate) watches: Arc<Watches<Key>>,
    pub(crate) lookups: Lookups,
    pub(crate) types: AwaitedTypes,
    pub(crate) memories: Memories,
    /// The type that is served.
    pub(crate) resource: ResourceId,
    /// The namespace whose compositions are served; all namespaces when none.
    pub(crate) namespace: Option<String>,
    /// The account of this process, to which the permissions of releases are granted.
    pub(crate) account: Account,
    pub(crate) krateo_namespace: String,
    pub(crate) safe_release_name: bool,
    /// Whether additional permissions of all compositions need an approval, whatever definitions say.
    pub(crate) growth: Growth,
    pub(crate) ready_means: ReadyMeans,
    pub(crate) max_history: i64,
    pub(crate) resync_interval: Duration,
    /// How often a composition is compared with the cluster in full although no event arrived.
    pub(crate) comparison_interval: Duration,
}

impl Context {
    /// The client for the releases of a composition: its UID is on their objects, and part of what authenticates their
    /// records.
    pub(super) async fn releases_of(
        &self,
        composition: &Composition,
        memory: &Memory,
    ) -> Result<Releases, release_key::Error> {
        let keys = match &self.release_key {
            Some(key) => Some(key.keys().await?),
            None => None,
        };
        Ok(self.releases_by(keys, composition, memory))
    }

    pub(super) fn releases_by(
        &self,
        keys: Option<Arc<RecordKeys>>,
        composition: &Composition,
        memory: &Memory,
    ) -> Releases {
        let releases = self.releases.clone().cached_in(memory.cache.clone());
        let releases = releases.belonging_to(Parent {
            label: labels::COMPOSITION_ID,
            uid: composition.uid.clone(),
            keys,
        });
        let releases = if annotations::is_true(&composition.annotations, annotations::CONNECTOR_VERBOSE) {
            releases.told_to(verbose(composition))
        } else {
            releases
        };
        let key = Key::of_composition(composition);
        releases.parked_at(Arc::new(Seat::new(&self.queue, &key)))
    }

    /// Whether additional permissions of a composition are granted at once or need an approval.
    pub(super) fn growth_of(&self, composition: &Composition) -> Growth {
        if is_demanded(composition, self.origin.definitions()) {
            Growth::Approved
        } else {
            self.growth
        }
    }

    /// The bound of this controller, and where it is read.
    pub(super) fn own_bound(&self) -> OwnBound<'_> {
        OwnBound {
            cluster: &self.cluster,
            account: &self.account,
            resource: &self.resource,
            krateo_namespace: &self.krateo_namespace,
            may_be_absent: self.origin.is_fixed(),
            cache: &self.bound,
        }
    }

    /// Requests the first pass over a composition that this process knows nothing about: at once, or when its turn comes
    /// if it seems to be in order.
    pub(crate) fn look_first(&self, key: Key) {
        if self.seems_in_order(&key) {
            self.backlog.add(key);
        } else {
            self.queue.add(key, Priority::Low);
        }
    }

    fn seems_in_order(&self, key: &Key) -> bool {
        let Some(seen) = self.compositions.get(key) else {
            return false;
        };
        let (object, true) = seen.object() else {
            return false;
        };
        if seen.has_changed_recently() {
            return false;
        }
        let Ok(composition) = Composition::read(object, &self.resource.api_resource()) else {
            return false;
        };
        let source = self.origin.of(&composition);
        source.is_ok_and(|source| backlog::seems_in_order(&composition, &source.chart))
    }

    /// Forgets a composition that is gone or belongs to another replica.
    pub(crate) fn forget(&self, key: &Key) {
        self.queue.forget(key);
        self.backlog.remove(key);
        self.watches.leave(key);
        self.lookups.leave(key);
        self.types.leave(key);
        self.memories.forget(key);
        self.backoff.succeeded(key);
    }

    /// Stores the answer to a write to a composition, so that the next pass sees it.
    pub(super) fn wrote(&self, composition: serde_json::Value) {
        match serde_json::from_value(composition) {
            Ok(composition) => self.compositions.wrote(composition),
            Err(error) => tracing::debug!(error = chain(&error), "the API server returned no object"),
        }
    }
}

/// Logs every step of an action on a release, except the output of hooks, which may contain passwords.
fn verbose(composition: &Composition) -> Listener {
    let (namespace, name) = (composition.namespace.clone(), composition.name.clone());
    Arc::new(move |progress| {
        if let Some(step) = step(progress) {
            tracing::info!(namespace, composition = name, "{step}");
        }
    })
}

/// The text of a step, if it may be logged.
fn step(progress: &Progress<'_>) -> Option<String> {
    match progress {
        Progress::Output { .. } => None,
        progress => Some(progress.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verbose_log_leaves_out_the_output_of_hooks() {
        let because = "no space";
        assert_eq!(
            step(&Progress::Undoing { because }).as_deref(),
            Some("undoing it: no space")
        );
        let (name, text) = ("migrate", "password: hunter2");
        assert_eq!(step(&Progress::Output { name, text }), None);
    }
}
