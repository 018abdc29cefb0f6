//! Rolls a release back to an earlier revision (Helm's `pkg/action/rollback.go`).

use helm::hook::HookExecution;
use helm::release::{ApplyMethod, Info, Release};
use jiff::Timestamp;

use super::change::{Change, ChangeSpec};
use super::{Action, Deployed, Error, Releases, Resumed};
use crate::records::{Observed, Provenance, Record};

/// Which revision to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The one before the newest, whatever its status, as in Helm.
    Previous,
    /// This one.
    Revision(i64),
}

impl Releases {
    /// Creates a new revision with the content of an earlier one: its stored manifest, hooks, chart and values.
    ///
    /// In this order: the objects that the deployed revision does not have are checked to be absent or to belong to
    /// this release; the pending record is created; pre-rollback hooks; the objects, in order; objects that the
    /// earlier revision does not have are removed; the wait for the objects; post-rollback hooks; the deployed record
    /// becomes superseded, the new one deployed. CRDs in `crds/` are not changed.
    ///
    /// If the same rollback was interrupted, it is resumed instead. A release that was uninstalled with its history
    /// kept is restored. When something fails, it ends like a failed upgrade.
    ///
    /// # Errors
    /// [`Error::NoRelease`], [`Error::NoRevision`]; [`Error::Action`] when it failed and the deployed revision was
    /// restored; [`Error::Records`] when its end could not be recorded; otherwise what prevents it, with nothing
    /// written.
    pub async fn rollback(&self, to: To, observed: &Observed) -> Result<Deployed, Error> {
        let newest = observed.newest.as_ref().ok_or(Error::NoRelease)?;
        if is_interrupted_rollback(to, observed)
            && let Resumed::Deployed(deployed) = self.resume(observed, None).await?
        {
            return Ok(*deployed);
        }
        let target = self.target(to, newest).await?;
        let current = observed.deployed();
        let others = observed.beside_deployed();
        let (release, provenance) = self.rollback_to(target, observed);
        let spec = ChangeSpec {
            action: Action::Rollback,
            owner: self.owner(&release),
            manifest: &release.manifest.clone(),
            hooks: &release.hooks.clone(),
            crds: Vec::new(),
            take_ownership: false,
        };
        let plan = self.plan_change(&spec, current, &others).await?;
        let provenance = Provenance {
            existing: plan.checks.existing.clone(),
            ..provenance
        };
        let complete = release.info.description.clone();
        let record = self.begin(release, provenance, observed).await?;
        self.carry_out(Change {
            action: Action::Rollback,
            plan,
            record,
            current: current.cloned(),
            others,
            take_ownership: false,
            resumed: false,
            complete,
        })
        .await
    }

    async fn target(&self, to: To, newest: &Record) -> Result<Record, Error> {
        let revision = match to {
            To::Previous => newest.revision() - 1,
            To::Revision(revision) => revision,
        };
        if revision == newest.revision() {
            return Ok(newest.clone());
        }
        let (namespace, name) = (&newest.release.namespace, &newest.release.name);
        let mut found = None;
        if revision > 0 {
            let records = self.records(namespace, name);
            found = records.read(revision).await.map_err(Error::Records)?;
        }
        found.ok_or_else(|| Error::NoRevision {
            release: name.clone(),
            revision,
        })
    }

    /// The next revision, with the content of `target`. Its inputs are those of the target, so that a comparison with
    /// other inputs shows the difference.
    fn rollback_to(&self, target: Record, observed: &Observed) -> (Release, Provenance) {
        let now = Timestamp::now();
        let revision = target.revision();
        let earlier = observed.deployed().or(observed.newest.as_ref());
        let first_deployed = earlier.and_then(|record| record.release.info.first_deployed);
        let mut release = Release {
            version: observed.revision() + 1,
            apply_method: Some(ApplyMethod::ServerSide),
            info: Info {
                first_deployed: first_deployed.or(Some(now)),
                last_deployed: Some(now),
                description: match &self.options.description {
                    Some(description) => description.clone(),
                    None => format!("Rollback to {revision}"),
                },
                status: Action::Rollback.pending(),
                rollback_revision: revision,
                notes: target.release.info.notes.clone(),
                ..Info::default()
            },
            ..target.release
        };
        for hook in &mut release.hooks {
            hook.last_run = HookExecution::default();
        }
        let provenance = Provenance {
            chart_digest: target.provenance.chart_digest,
            environment_digest: target.provenance.environment_digest,
            base_revision: observed.deployed().map(Record::revision),
            writer: self.writer.clone(),
            attempt: None,
            existing: None,
            stage: None,
        };
        (release, provenance)
    }
}

/// True when the newest record is a pending rollback of ours to the same revision.
fn is_interrupted_rollback(to: To, observed: &Observed) -> bool {
    let Some((Action::Rollback, record)) = observed.underway() else {
        return false;
    };
    !record.is_foreign()
        && match to {
            To::Previous => true,
            To::Revision(revision) => record.release.info.rollback_revision == revision,
        }
}
