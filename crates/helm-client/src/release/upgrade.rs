//! A deployed release into a newer revision (Helm's `pkg/action/upgrade.go`, with its rollback on failure).

use std::collections::HashSet;

use helm::hook::HookEvent;
use helm::release::{ApplyMethod, Status};
use jiff::Timestamp;

use super::apply::{self, Force, Written};
use super::objects::{self, Identity, Target};
use super::remove::{self, Policy};
use super::{Deployed, Desired, Error, Releases, Undone, migrate, owner, told};
use crate::records::{Observed, Record, Records};

/// What an upgrade makes and removes.
struct Plan {
    objects: Vec<Target>,
    /// The objects of the deployed revision.
    deployed: Vec<Target>,
    /// Objects of the deployed revision, or of one that failed since, that are not wanted any more.
    dropped: Vec<Target>,
}

impl Releases {
    /// Upgrades a release of which a revision is deployed.
    ///
    /// In this order: the objects that the deployed revision does not have are checked to be absent or of this
    /// release; the pending record is made; pre-upgrade hooks; the objects, in order; objects dropped since are
    /// removed; post-upgrade hooks; the old record becomes superseded, the new one deployed.
    ///
    /// When a hook or an object fails, the manifest of the deployed revision is applied again, what the upgrade made is
    /// removed, and the new record stays as failed; the deployed one stays deployed.
    ///
    /// # Errors
    /// [`Error::Upgrade`] when it failed and was rolled back; [`Error::Records`] when its end could not be recorded;
    /// else what stands in the way, with nothing written.
    pub async fn upgrade(&self, desired: &Desired, observed: &Observed) -> Result<Deployed, Error> {
        let Some(current) = observed.deployed() else {
            return Err(Error::NotDeployed {
                release: desired.name.clone(),
            });
        };
        let plan = self.plan_upgrade(desired, observed, current).await?;
        let records = self.records(&desired.namespace, &desired.name);
        let mut record = self
            .begin(&records, desired, observed, Status::PendingUpgrade)
            .await?;
        tracing::info!(release = %desired.name, namespace = %desired.namespace, revision = record.revision(),
            "upgrading a release");

        let mut written = Written::default();
        let upgraded = self
            .carry_out_upgrade(&plan, desired, &records, &mut record, current, &mut written)
            .await;
        if let Err(failure) = upgraded {
            return Err(self
                .end_failed_upgrade(&plan, written, &records, record, current.clone(), failure)
                .await);
        }
        self.end_upgrade(&records, &mut record, &mut current.clone())
            .await?;
        Ok(Deployed {
            record,
            objects: written.objects,
        })
    }

    async fn plan_upgrade(
        &self,
        desired: &Desired,
        observed: &Observed,
        current: &Record,
    ) -> Result<Plan, Error> {
        let manifest = objects::parse(&desired.manifest, "the manifest")?;
        let objects = objects::locate(&self.cluster, manifest, &desired.namespace, &[]).await?;
        let deployed = self.targets_of(current).await?;
        let mut earlier = deployed.clone();
        if let Some(newest) = observed
            .newest
            .as_ref()
            .filter(|newest| newest.revision() != current.revision())
        {
            earlier.extend(self.targets_of(newest).await?);
        }
        if !desired.take_ownership {
            let known: HashSet<Identity<'_>> = deployed.iter().filter_map(Target::identity).collect();
            let new = objects
                .iter()
                .filter(|t| t.identity().is_some_and(|identity| !known.contains(&identity)));
            apply::check_ownership(&self.cluster, new, &desired.owner(), "update").await?;
        }
        let dropped = remove::dropped(earlier, &objects);
        Ok(Plan {
            objects,
            deployed,
            dropped,
        })
    }

    async fn carry_out_upgrade(
        &self,
        plan: &Plan,
        desired: &Desired,
        records: &Records,
        record: &mut Record,
        current: &Record,
        written: &mut Written,
    ) -> Result<(), Error> {
        let owner = owner(&record.release);
        self.run_hooks(records, record, HookEvent::PreUpgrade, |_| true)
            .await?;
        if current.release.apply_method != Some(ApplyMethod::ServerSide) {
            let ids = plan.objects.iter().filter_map(Target::id);
            migrate::updates_to_applies(&self.cluster, ids).await?;
        }
        let force = if desired.take_ownership {
            Force::All
        } else {
            Force::set_in(&plan.deployed)
        };
        apply::write(&self.cluster, &plan.objects, &owner, &force, written).await?;
        remove::remove(&self.cluster, &plan.dropped, &owner, Policy::OfLive).await?;
        self.run_hooks(records, record, HookEvent::PostUpgrade, |_| true)
            .await
    }

    /// Says in the records that the upgrade is complete. When that fails, nothing is rolled back: the objects are as
    /// wanted, and what the records say now is not known. They are continued from when they are read again.
    async fn end_upgrade(
        &self,
        records: &Records,
        record: &mut Record,
        current: &mut Record,
    ) -> Result<(), Error> {
        current.release.info.status = Status::Superseded;
        let superseded = records.update(current, Timestamp::now()).await;
        superseded.map_err(Error::Records)?;
        record.release.info.status = Status::Deployed;
        "Upgrade complete".clone_into(&mut record.release.info.description);
        let deployed = records.update(record, Timestamp::now()).await;
        deployed.map_err(Error::Records)
    }

    /// Brings back the deployed revision, and says in the record of the failed one how that went.
    async fn end_failed_upgrade(
        &self,
        plan: &Plan,
        written: Written,
        records: &Records,
        mut record: Record,
        mut current: Record,
        failure: Error,
    ) -> Error {
        let release = record.release.name.clone();
        let undone = match self.bring_back(plan, written, &record).await {
            Ok(()) => Undone::RolledBack(current.revision()),
            Err(failure) => Undone::Not {
                because: told(&failure),
            },
        };
        record.release.info.status = Status::Failed;
        record.release.info.description = format!("Upgrade {release:?} failed: {}; {undone}", told(&failure));
        let mut recorded = Ok(());
        if *current.status() != Status::Deployed {
            // An earlier upgrade was cut off between superseding it and becoming deployed itself.
            current.release.info.status = Status::Deployed;
            recorded = records.update(&mut current, Timestamp::now()).await;
        }
        if let Err(failure) = recorded.and(records.update(&mut record, Timestamp::now()).await) {
            tracing::warn!(error = told(&failure), %release, "could not record that an upgrade failed");
        }
        Error::Upgrade {
            release,
            undone,
            source: Box::new(failure),
        }
    }

    async fn bring_back(&self, plan: &Plan, written: Written, record: &Record) -> Result<(), Error> {
        if !written.begun {
            return Ok(());
        }
        let owner = owner(&record.release);
        let force = Force::set_in(&plan.deployed);
        apply::write(
            &self.cluster,
            &plan.deployed,
            &owner,
            &force,
            &mut Written::default(),
        )
        .await?;
        let made = remove::dropped(written.made, &plan.deployed);
        let removed = remove::remove(&self.cluster, &made, &owner, Policy::OfManifest).await?;
        removed.wait(&self.cluster, self.options.timeout).await
    }
}
