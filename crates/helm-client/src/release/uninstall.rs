//! A release into nothing (Helm's `pkg/action/uninstall.go`).

use cluster::ObjectId;
use helm::hook::{Hook, HookEvent, HookPhase};
use helm::release::Status;
use jiff::Timestamp;

use super::remove::{self, Policy};
use super::{Error, Releases, owner};
use crate::records::{Observed, Record, Records};

/// What an uninstall left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uninstalled {
    /// Objects that stay: their resource policy says so, or they are no longer of this release.
    pub kept: Vec<ObjectId>,
}

impl Releases {
    /// Removes a release with all its records; one that is not there is a success.
    ///
    /// In this order: the record says that it is being uninstalled; pre-delete hooks; the objects of the deployed and
    /// of the newest revision, in reverse order of kinds, and the wait until they are gone; post-delete hooks; the
    /// records. When something fails, the same call continues from there; hooks that ended well do not run again.
    ///
    /// # Errors
    /// [`Error::Hook`], [`Error::Objects`] (also when objects are not gone in time), [`Error::Records`].
    pub async fn uninstall(&self, observed: &Observed) -> Result<Uninstalled, Error> {
        let Some(newest) = &observed.newest else {
            return Ok(Uninstalled::default());
        };
        let records = self.records(&newest.release.namespace, &newest.release.name);
        let mut record = newest.clone();
        let mut kept = Vec::new();
        if *record.status() != Status::Uninstalled {
            kept = self.carry_out_uninstall(observed, &records, &mut record).await?;
        }
        records.delete_all(observed).await.map_err(Error::Records)?;
        tracing::info!(release = %record.release.name, namespace = %record.release.namespace, "uninstalled a release");
        Ok(Uninstalled { kept })
    }

    async fn carry_out_uninstall(
        &self,
        observed: &Observed,
        records: &Records,
        record: &mut Record,
    ) -> Result<Vec<ObjectId>, Error> {
        let mut targets = self.targets_of(record).await?;
        if let Some(deployed) = &observed.older_deployed {
            targets.extend(self.targets_of(deployed).await?);
        }
        let targets = remove::dropped(targets, &[]);

        let now = Timestamp::now();
        if *record.status() != Status::Uninstalling {
            record.release.info.status = Status::Uninstalling;
            record.release.info.deleted = Some(now);
            "Deletion in progress (or silently failed)".clone_into(&mut record.release.info.description);
            records.update(record, now).await.map_err(Error::Records)?;
        }
        let since = record.release.info.deleted;
        let is_due = move |hook: &Hook| {
            let run = &hook.last_run;
            run.phase != HookPhase::Succeeded || run.started_at < since
        };
        let before = record.clone();
        self.run_hooks(records, record, HookEvent::PreDelete, is_due)
            .await?;
        if *record != before {
            records
                .update(record, Timestamp::now())
                .await
                .map_err(Error::Records)?;
        }
        let owner = owner(&record.release);
        let removed = remove::remove(&self.cluster, &targets, &owner, Policy::OfManifest).await?;
        removed.wait(&self.cluster, self.options.timeout).await?;
        self.run_hooks(records, record, HookEvent::PostDelete, is_due)
            .await?;
        Ok(removed.kept)
    }
}
