//! Applies a desired release to the cluster and writes Helm's record of it; the actions of Helm's `pkg/action`.
//!
//! Each action is a file. It begins with a pending record, which reserves the release and shows a crash afterwards,
//! and ends with a record of the outcome. What to do is decided before, by [`state`].

mod action;
mod apply;
mod change;
mod conflict;
mod crds;
mod desired;
pub mod drift;
mod error;
mod find;
mod hold;
mod hooks;
mod install;
mod labels;
mod managers;
mod migrate;
mod objects;
mod obstacle;
mod options;
mod output;
mod ownership;
mod parking;
mod preview;
mod progress;
mod ready;
mod remove;
mod resume;
mod rollback;
mod state;
mod takeover;
mod testing;
mod touched;
mod uninstall;
mod upgrade;

use std::collections::HashMap;
use std::sync::Arc;

use cluster::{Cluster, LeaseWatch, ObjectId, Parking};
use helm::release::{ApplyMethod, Info, Release, Status};
use jiff::Timestamp;
use serde_json::Value;

pub use action::Action;
pub(crate) use crds::defined_versions;
pub use desired::Desired;
pub use error::{Error, Undone, UnservedType};
pub use find::{Flux, Marks, NamedParent};
pub use hold::{Hold, writer};
pub use objects::same_objects;
pub use options::{CrdPolicy, OnFailure, Options, Retries, Retry, Wait};
pub use preview::{Change, Effect};
pub use progress::{Listener, Progress};
pub use resume::Resumed;
pub use rollback::To;
pub use state::{Moment, Presence, Reason, State, state};
pub use takeover::{ADDED_GLOBALS, drawn_anew};
pub use testing::{TestFilter, TestRun, Tested};
pub use touched::{Role, Touched, touched};
pub use uninstall::Uninstalled;

use crate::authenticity::{Parent, RecordKeys};
use crate::records::{Observed, Provenance, RECORD_SLOTS, Record, Records};
use drift::{DriftedObject, ObjectCache, Revision};
use ownership::Owner;

/// Receives every step.
pub(crate) type Tell<'a> = dyn Fn(&Progress<'_>) + Send + Sync + 'a;

/// The releases of a cluster.
///
/// Every request of an action names its object; nothing is listed or watched. Only one caller at a time should act on
/// a release; a second one is refused when it tries to create or continue the same revision.
///
/// Cheap to clone; clones share what is known about applied objects, unless they are given [another
/// cache](Releases::cached_in) for it.
#[derive(Clone)]
pub struct Releases {
    cluster: Cluster,
    options: Options,
    writer: Option<String>,
    /// Holders of these Leases that this writer has replaced.
    succeeds: Arc<[String]>,
    listener: Option<Listener>,
    /// The object that the release belongs to, if any.
    parent: Option<Arc<Parent>>,
    /// The caller's worker slot, given back during long waits.
    parking: Option<Arc<dyn Parking>>,
    cache: Arc<ObjectCache>,
    /// Objects that have not changed, according to the caller.
    unchanged: Arc<ResourceVersions>,
    /// What the caller's watches have seen of objects.
    sightings: Option<Sightings>,
    leases: Arc<LeaseWatch>,
}

/// The resource versions that objects still have, as far as the caller knows.
pub type ResourceVersions = HashMap<ObjectId, String>;

/// The resource version at which a watch last saw an object, if it had the label of this parent then. A watch may be
/// late.
pub type Sightings = Arc<dyn Fn(&ObjectId, &Parent) -> Option<String> + Send + Sync>;

/// A release that was installed or upgraded.
#[derive(Debug, Clone)]
pub struct Deployed {
    /// The deployed revision.
    pub record: Record,
    /// Its objects in install order, without hooks and without those that were neither written nor read
    /// ([`Releases::with_unchanged`]).
    pub objects: Vec<Live>,
}

/// An object of a release, as it is in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Which object it is.
    pub id: ObjectId,
    /// The server's answer to our apply.
    pub object: Value,
}

impl Releases {
    /// The releases of `cluster`.
    pub fn new(cluster: Cluster, options: Options) -> Self {
        let leases = Arc::new(LeaseWatch::new(cluster.clone()));
        Self {
            cluster,
            options,
            writer: None,
            succeeds: Arc::default(),
            listener: None,
            parent: None,
            parking: None,
            cache: Arc::default(),
            unchanged: Arc::default(),
            sightings: None,
            leases,
        }
    }

    /// The same with other options.
    pub fn with_options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The same, with the writer ([`writer`]) that holds this Lease, so that others can tell when nobody works on a
    /// pending record any more.
    pub fn written_by(self, writer: impl Into<String>) -> Self {
        let writer = Some(writer.into());
        Self { writer, ..self }
    }

    /// The same, as the successor of the writers under these Leases: for replicas that share work, one of which at a
    /// time owns a release. What they left pending is continued without checking their Leases.
    pub fn in_place_of(self, writers: impl IntoIterator<Item = String>) -> Self {
        let succeeds = writers.into_iter().collect();
        Self { succeeds, ..self }
    }

    /// The same, for the release of this object. Its records are signed, and only trusted with a signature; no object
    /// that names another owner is written or removed.
    pub fn belonging_to(self, parent: Parent) -> Self {
        let parent = Some(Arc::new(parent));
        Self { parent, ..self }
    }

    /// The keys that authenticate the records of this object's release.
    pub fn keys(&self) -> Option<Arc<RecordKeys>> {
        self.parent.as_ref()?.keys.clone()
    }

    /// The same, for a caller that watches objects: those that still have these resource versions, and were compared
    /// or applied at them, are not read again. A write or a deletion names the version, so the API server refuses it if
    /// the watch was late; then the object is read. An object that an upgrade leaves out is not checked at all.
    pub fn with_unchanged(self, unchanged: ResourceVersions) -> Self {
        let unchanged = Arc::new(unchanged);
        Self { unchanged, ..self }
    }

    /// The same, for a caller that watches objects by the label of the object that a release belongs to: those that a
    /// watch has seen with that label are not read to find out whose they are. A write or a deletion names the
    /// resource version that was seen, as in [`Releases::with_unchanged`].
    pub fn seen_by(self, sightings: Sightings) -> Self {
        let sightings = Some(sightings);
        Self { sightings, ..self }
    }

    /// The resource version at which an object was seen that names the object that the release belongs to.
    fn seen_as_ours(&self, id: &ObjectId) -> Option<String> {
        let (sightings, parent) = self.sightings.as_ref().zip(self.parent.as_deref())?;
        sightings(id, parent).filter(|version| !self.cache.doubts(id, version))
    }

    /// The same, with the cache of one release: for a caller that keeps one for each release while it looks after it.
    pub fn cached_in(self, cache: Arc<ObjectCache>) -> Self {
        Self { cache, ..self }
    }

    /// The same, with a listener for every step.
    pub fn told_to(self, listener: Listener) -> Self {
        let listener = Some(listener);
        Self { listener, ..self }
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Reads the stored records of a release: the newest revision and the deployed one.
    ///
    /// `hint` is the newest revision of the last observation, 0 when there was none. Newer ones, which others may
    /// have made, are found by probing upwards.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn observe(&self, namespace: &str, name: &str, hint: i64) -> Result<Observed, Error> {
        self.records(namespace, name)
            .observe(hint)
            .await
            .map_err(Error::Records)
    }

    /// Installs the release, or upgrades it when a revision is deployed.
    ///
    /// When the same action with the same inputs was interrupted, it is resumed instead.
    ///
    /// # Errors
    /// Those of [`Releases::install`], [`Releases::upgrade`] and [`Releases::resume`].
    pub async fn install_or_upgrade(
        &self,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<Deployed, Error> {
        if state::is_interrupted_attempt_at(desired, observed) {
            return match self.resume(observed, Some(desired)).await? {
                Resumed::Deployed(deployed) => Ok(*deployed),
                // Unreachable: an uninstall is no attempt at a desired release.
                Resumed::Uninstalled(_) => Err(Error::NotUnderway),
            };
        }
        match observed.deployed() {
            Some(_) => self.upgrade(desired, observed).await,
            None => self.install(desired, observed).await,
        }
    }

    /// Decides the current state of a release ([`state`]). If somebody's action is in progress, their Lease is
    /// checked.
    ///
    /// `drifted` is what [`Releases::drift`] found, or empty.
    ///
    /// # Errors
    /// [`Error::Hold`] when that Lease cannot be read.
    pub async fn state(
        &self,
        desired: &Desired,
        observed: &Observed,
        drifted: Vec<DriftedObject>,
    ) -> Result<State, Error> {
        let moment = self.moment(observed).await?;
        self.state_at(&moment, desired, observed, drifted).await
    }

    /// The same for a given moment.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub async fn state_at(
        &self,
        moment: &Moment,
        desired: &Desired,
        observed: &Observed,
        drifted: Vec<DriftedObject>,
    ) -> Result<State, Error> {
        let records = observed.newest.iter().chain(&observed.older_deployed);
        let recorded: usize = records.map(|record| record.release.manifest.len()).sum();
        let decide = || state(desired, observed, drifted, moment);
        at_length(&desired.namespace, desired.manifest.len() + recorded, decide).await
    }

    /// The current moment: the time, and whether somebody is working on the release.
    ///
    /// # Errors
    /// Those of [`Releases::state`].
    pub async fn moment(&self, observed: &Observed) -> Result<Moment, Error> {
        Ok(Moment {
            now: Timestamp::now(),
            timeout: self.options.timeout,
            retries: self.options.retries,
            writer: self.presence(observed).await?,
        })
    }

    /// Whether the writer of a pending record may still be working.
    async fn presence(&self, observed: &Observed) -> Result<Presence, Error> {
        let Some((_, record)) = observed.underway() else {
            return Ok(Presence::Gone);
        };
        let Some(writer) = &record.provenance.writer else {
            return Ok(Presence::Unknown);
        };
        if self.writer.as_ref() == Some(writer) || self.succeeds.contains(writer) {
            // Only one at a time acts under a Lease, and that is this one.
            return Ok(Presence::Gone);
        }
        let Some((namespace, lease)) = writer.split_once('/') else {
            return Ok(Presence::Unknown);
        };
        match self.leases.is_free(namespace, lease).await {
            Ok(true) => Ok(Presence::Gone),
            Ok(false) => Ok(Presence::There),
            Err(refused) if refused.is_forbidden() => Ok(Presence::Unknown),
            Err(source) => Err(Error::Hold {
                release: record.release.name.clone(),
                source: Box::new(source),
            }),
        }
    }

    fn records(&self, namespace: &str, name: &str) -> Records {
        let Options {
            driver, max_history, ..
        } = self.options;
        Records::new(self.cluster.clone(), driver, namespace, name, max_history).of(self.parent.clone())
    }

    /// The release of a record, in the form in which its objects name it.
    fn owner(&self, release: &Release) -> Owner {
        Owner::new(&release.namespace, &release.name, self.parent.as_deref())
    }

    fn owner_of(&self, desired: &Desired) -> Owner {
        Owner::new(&desired.namespace, &desired.name, self.parent.as_deref())
    }

    fn revision_of(&self, record: &Record) -> Revision {
        Revision {
            owner: Arc::new(self.owner(&record.release)),
            number: record.revision(),
        }
    }

    /// Reports to the listener, if any.
    fn tell(&self) -> impl Fn(&Progress<'_>) + Send + Sync + '_ {
        |progress| {
            if let Some(listener) = &self.listener {
                listener(progress);
            }
        }
    }

    /// Creates the pending record of the next revision of what is desired.
    async fn begin_desired(
        &self,
        desired: &Desired,
        observed: &Observed,
        action: Action,
        existing: Option<Vec<String>>,
    ) -> Result<Record, Error> {
        let revision = observed.revision() + 1;
        let release = pending(desired, observed, action.pending(), revision, Timestamp::now());
        let provenance = Provenance {
            chart_digest: Some(desired.chart_digest.clone()),
            environment_digest: desired.environment_digest.clone(),
            base_revision: observed.deployed().map(Record::revision),
            writer: self.writer.clone(),
            attempt: Some(state::attempt(desired, observed)),
            existing,
            stage: None,
        };
        self.begin(release, provenance, observed).await
    }

    /// Creates the pending record of the next revision, and removes those that are too old.
    async fn begin(
        &self,
        release: Release,
        provenance: Provenance,
        observed: &Observed,
    ) -> Result<Record, Error> {
        let records = self.records(&release.namespace, &release.name);
        if let Some((_, interrupted)) = observed.underway() {
            self.give_up(&records, interrupted.clone()).await?;
        }
        let record = records
            .create(release, provenance, Timestamp::now())
            .await
            .map_err(Error::Records)?;
        self.tell()(&Progress::Recorded {
            revision: record.revision(),
            status: record.status(),
        });
        if let Err(failure) = records.prune(record.revision(), observed).await {
            // One record too many is no reason to leave a release half done.
            tracing::warn!(error = told(&failure), release = %record.release.name,
                namespace = %record.release.namespace, "could not remove an old release record");
        }
        Ok(record)
    }

    /// Ends a revision whose action was interrupted. Helm never does: it would refuse to touch the release again.
    async fn give_up(&self, records: &Records, mut record: Record) -> Result<(), Error> {
        let was = record.status().clone();
        record.release.info.status = Status::Failed;
        record.release.info.description = format!(
            "Release {:?} failed: it was interrupted while {was}",
            record.release.name
        );
        self.update(records, &mut record).await
    }
}

impl Observed {
    /// The action that is in progress or was interrupted, and its record.
    pub fn underway(&self) -> Option<(Action, &Record)> {
        let newest = self.newest.as_ref()?;
        Some((Action::underway(newest.status())?, newest))
    }

    /// True when the writer of the pending record holds the release's own Lease, as interactive tools do.
    pub fn is_under_its_own_lease(&self) -> bool {
        self.underway().is_some_and(|(_, record)| {
            let (namespace, name) = (&record.release.namespace, &record.release.name);
            let own = hold::writer(namespace, &helm::release::lease_name(name));
            record.provenance.writer.as_ref() == Some(&own)
        })
    }

    /// The revisions other than the deployed one that tell about objects in the cluster: the newest, and our deployed
    /// revision below a foreign deployed one.
    fn beside_deployed(&self) -> Vec<Record> {
        let deployed = self.deployed().map(Record::revision);
        let known = self.newest.iter().chain(&self.older_deployed);
        let others = known.filter(|known| Some(known.revision()) != deployed);
        others.cloned().collect()
    }
}

fn pending(desired: &Desired, observed: &Observed, status: Status, revision: i64, now: Timestamp) -> Release {
    let description = if status == Status::PendingInstall {
        "Initial install underway"
    } else {
        "Preparing upgrade"
    };
    let earlier = observed.deployed().or(observed.newest.as_ref());
    let first_deployed = earlier.and_then(|record| record.release.info.first_deployed);
    Release {
        name: desired.name.clone(),
        namespace: desired.namespace.clone(),
        version: revision,
        info: Info {
            first_deployed: first_deployed.or(Some(now)),
            last_deployed: Some(now),
            description: description.to_owned(),
            status,
            notes: desired.notes.clone(),
            ..Info::default()
        },
        chart: desired.chart.clone(),
        config: desired.config.clone(),
        manifest: desired.manifest.clone(),
        hooks: desired.hooks.clone(),
        apply_method: Some(ApplyMethod::ServerSide),
        labels: desired.labels.clone(),
        ..Release::default()
    }
}

/// Up to this many bytes of text are parsed directly: it takes a few milliseconds.
const SHORT: usize = 64 << 10;

/// Processes this many bytes of manifests. For long ones, namespaces take turns, and other tasks are not blocked.
async fn at_length<T>(namespace: &str, bytes: usize, work: impl FnOnce() -> T) -> Result<T, Error> {
    if bytes <= SHORT {
        return Ok(work());
    }
    let worked = RECORD_SLOTS.run_here(namespace, work).await;
    worked.map_err(Error::Busy)
}

/// An error with its causes, in one line, for the description of a record.
fn told(failure: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(failure), |failure| failure.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
