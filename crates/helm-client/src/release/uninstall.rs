//! Uninstalls a release (Helm's `pkg/action/uninstall.go`).

use cluster::ObjectId;
use helm::release::Status;
use jiff::Timestamp;

use super::ownership::Owner;
use super::remove::{self, How, Policy};
use super::{Action, Error, Releases, ResourceVersions};
use crate::records::{Observed, Record, Records};

/// What an uninstall did not remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uninstalled {
    /// Objects that are kept: because of their resource policy, or because they no longer belong to this release.
    pub kept: Vec<ObjectId>,
}

impl Releases {
    /// Removes a release with all its records, unless they are to be kept; it is no error if there is none.
    ///
    /// In this order: the record says that it is being uninstalled; pre-delete hooks; the objects of the deployed and
    /// of the newest revision, in reverse order of kinds, and the wait until they are gone; post-delete hooks; the
    /// records, the newest last. When something fails, calling this again continues from there; hooks that succeeded
    /// do not run again.
    ///
    /// A foreign record is only used to find objects: those that belong to the release are removed, and its hooks do
    /// not run.
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
        // A foreign record that says so does not mean that it is gone.
        if *record.status() != Status::Uninstalled || !record.is_authentic() {
            kept = self.carry_out_uninstall(observed, &records, &mut record).await?;
        }
        if self.options.keep_history {
            self.keep(observed, &records, &mut record).await?;
        } else {
            records.delete_all(observed).await.map_err(Error::Records)?;
        }
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

        if *record.status() != Status::Uninstalling {
            record.release.info.status = Status::Uninstalling;
            record.release.info.deleted = Some(Timestamp::now());
            "Deletion in progress (or silently failed)".clone_into(&mut record.release.info.description);
            record.provenance.writer.clone_from(&self.writer);
            self.update(records, record).await?;
        }
        let (before, after) = Action::Uninstall.events();
        let hooks_run = record.is_authentic();
        if hooks_run {
            self.run_hooks(records, record, &before).await?;
        } else {
            tracing::warn!(release = %record.release.name, namespace = %record.release.namespace,
                "somebody else made the newest revision: its hooks do not run, and of its objects those go that are of the release");
        }
        let owner = self.owner(&record.release);
        let ids = targets.iter().filter_map(|target| target.id());
        let known: ResourceVersions = ids
            .filter_map(|id| Some((id.clone(), self.known_as_ours(&owner, id)?)))
            .collect();
        let how = How {
            policy: Policy::OfManifest { known: Some(&known) },
            propagation: self.options.propagation,
        };
        let removed = remove::remove(&self.cluster, &targets, &owner, how, &self.tell()).await?;
        self.patiently(removed.wait(&self.cluster, self.options.timeout))
            .await?;
        self.cache.forget(targets.iter().filter_map(|target| target.id()));
        if hooks_run {
            self.run_hooks(records, record, &after).await?;
        }
        Ok(removed.kept)
    }

    /// The resource version at which an object is known to belong to the release: it has not changed since this client
    /// applied it, or a watch has seen it with the label of the object that the release belongs to.
    fn known_as_ours(&self, owner: &Owner, id: &ObjectId) -> Option<String> {
        let unchanged = self.unchanged.get(id);
        let unchanged = unchanged.filter(|version| self.cache.is_of_release_at(owner, id, version));
        unchanged.cloned().or_else(|| self.seen_as_ours(id))
    }

    /// Marks the release as uninstalled in the records.
    async fn keep(&self, observed: &Observed, records: &Records, record: &mut Record) -> Result<(), Error> {
        if let Some(mut deployed) = observed.older_deployed.clone() {
            deployed.release.info.status = Status::Superseded;
            self.update(records, &mut deployed).await?;
        }
        if *record.status() != Status::Uninstalled {
            record.release.info.status = Status::Uninstalled;
            let description = self.options.description.as_deref();
            description
                .unwrap_or("Uninstallation complete")
                .clone_into(&mut record.release.info.description);
            self.update(records, record).await?;
        }
        Ok(())
    }
}
