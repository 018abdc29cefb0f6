//! A wanted release in, objects in the cluster and Helm's record of them out; the actions of Helm's `pkg/action`.
//!
//! An action is a file. Each begins with a pending record, which reserves the release and is the mark from which a
//! crash is recognised, and ends with a record that says how it went. What to do is decided before, by [`state`].

mod apply;
mod conflict;
mod desired;
mod error;
mod hooks;
mod install;
mod labels;
mod migrate;
mod objects;
mod ownership;
mod remove;
mod state;
mod touched;
mod uninstall;
mod upgrade;

use std::time::Duration;

use cluster::{Cluster, ObjectId};
use helm::release::{ApplyMethod, Info, Release, Status};
use jiff::Timestamp;
use serde_json::Value;

pub use desired::Desired;
pub use error::{Error, Undone};
pub use state::{Moment, Reason, State, state};
pub use touched::{Role, Touched, touched};
pub use uninstall::Uninstalled;

use crate::records::{Observed, Provenance, Record, Records};
use ownership::Owner;

/// How releases are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many revisions of a release are kept; 0 keeps all. Helm's `HELM_MAX_HISTORY`.
    pub max_history: i64,
    /// The longest wait for one hook, or for the objects of a release to be gone. Helm's `--timeout`.
    pub timeout: Duration,
}

impl Default for Options {
    /// As Helm has it: 10 revisions, 5 minutes.
    fn default() -> Self {
        Self {
            max_history: 10,
            timeout: Duration::from_mins(5),
        }
    }
}

/// The releases of a cluster.
///
/// Every request names its object; nothing is listed or watched. One release is to be acted on by one caller at a
/// time; a second one is turned away when it tries to make the same revision.
#[derive(Clone)]
pub struct Releases {
    cluster: Cluster,
    options: Options,
}

/// A release that was installed or upgraded.
#[derive(Debug, Clone)]
pub struct Deployed {
    /// The deployed revision.
    pub record: Record,
    /// Its objects in install order, hooks aside.
    pub objects: Vec<Live>,
}

/// An object of a release, as it is in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Which object it is.
    pub id: ObjectId,
    /// What the server returned to our apply.
    pub object: Value,
}

impl Releases {
    /// The releases of `cluster`.
    pub fn new(cluster: Cluster, options: Options) -> Self {
        Self { cluster, options }
    }

    /// Reads what is stored of a release: the newest revision and the deployed one.
    ///
    /// `hint` is the revision that was the newest when it was last observed, 0 when there was none. Newer ones, which
    /// others may have made, are found by probing upwards.
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
    /// # Errors
    /// As [`Releases::install`] and [`Releases::upgrade`].
    pub async fn install_or_upgrade(
        &self,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<Deployed, Error> {
        match observed.deployed() {
            Some(_) => self.upgrade(desired, observed).await,
            None => self.install(desired, observed).await,
        }
    }

    fn records(&self, namespace: &str, name: &str) -> Records {
        Records::new(self.cluster.clone(), namespace, name, self.options.max_history)
    }

    /// Makes the pending record of the next revision, and removes one that is too old.
    async fn begin(
        &self,
        records: &Records,
        desired: &Desired,
        observed: &Observed,
        status: Status,
    ) -> Result<Record, Error> {
        let now = Timestamp::now();
        if let Some(interrupted) = observed
            .newest
            .as_ref()
            .filter(|record| is_underway(record.status()))
        {
            self.give_up(records, interrupted.clone()).await?;
        }
        let deployed = observed.deployed().map(Record::revision);
        let revision = observed.revision() + 1;
        let release = pending(desired, observed, status, revision, now);
        let provenance = Provenance {
            chart_digest: Some(desired.chart_digest.clone()),
            environment_digest: desired.environment_digest.clone(),
            base_revision: deployed,
            writer: desired.writer.clone(),
        };
        let record = records
            .create(release, provenance, now)
            .await
            .map_err(Error::Records)?;
        if let Err(failure) = records.prune(revision, deployed).await {
            // One record too many is no reason to leave a release half done.
            tracing::warn!(error = told(&failure), release = %desired.name, namespace = %desired.namespace,
                "could not remove an old release record");
        }
        Ok(record)
    }

    /// Ends a revision whose action was cut off, as Helm never does: it would refuse to touch the release again.
    async fn give_up(&self, records: &Records, mut record: Record) -> Result<(), Error> {
        let was = record.status().clone();
        record.release.info.status = Status::Failed;
        record.release.info.description = format!(
            "Release {:?} failed: it was interrupted while {was}",
            record.release.name
        );
        records
            .update(&mut record, Timestamp::now())
            .await
            .map_err(Error::Records)
    }
}

/// True while an action is underway, or was cut off.
fn is_underway(status: &Status) -> bool {
    status.is_pending() || *status == Status::Uninstalling
}

fn pending(desired: &Desired, observed: &Observed, status: Status, revision: i64, now: Timestamp) -> Release {
    let description = match status {
        Status::PendingInstall => "Initial install underway",
        _ => "Preparing upgrade",
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

fn owner(release: &Release) -> Owner {
    Owner {
        name: release.name.clone(),
        namespace: release.namespace.clone(),
    }
}

/// An error with its causes, in one line, for the description of a record.
fn told(failure: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(failure), |failure| failure.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
