//! Nothing into a deployed release (Helm's `pkg/action/install.go`).

use std::time::Duration;

use cluster::{Apply, Goal};
use helm::hook::HookEvent;
use helm::release::Status;
use jiff::Timestamp;
use serde_json::Value;

use super::apply::{self, Force, Written};
use super::objects::{self, Target};
use super::remove::{self, Policy};
use super::{Deployed, Desired, Error, Releases, Undone, owner, told};
use crate::records::{MANAGER, Observed, Record, Records};

/// How long a new definition may take until its kind is served; Helm's figure.
const ESTABLISHED_WITHIN: Duration = Duration::from_mins(1);

/// What an install makes.
struct Plan {
    crds: Vec<Target>,
    objects: Vec<Target>,
    /// Objects of a revision that was cut off or whose removal failed.
    leftovers: Vec<Target>,
}

impl Releases {
    /// Installs a release of which no revision is deployed.
    ///
    /// In this order: the objects that exist are checked to be of this release; the pending record is made; the
    /// definitions in `crds/` that are not there are made and awaited; pre-install hooks; the objects, in order;
    /// post-install hooks; the record becomes deployed.
    ///
    /// When a hook or an object fails, what was made is removed again, definitions and kept objects excepted, and the record
    /// stays as failed. Until the pending record is made, nothing is written.
    ///
    /// # Errors
    /// [`Error::Install`] when it failed and was undone; [`Error::Records`] when its end could not be recorded; else
    /// what stands in the way, with nothing written.
    pub async fn install(&self, desired: &Desired, observed: &Observed) -> Result<Deployed, Error> {
        if let Some(deployed) = observed.deployed() {
            return Err(Error::NameInUse {
                release: desired.name.clone(),
                revision: deployed.revision(),
            });
        }
        let plan = self.plan_install(desired, observed).await?;
        let records = self.records(&desired.namespace, &desired.name);
        let mut record = self
            .begin(&records, desired, observed, Status::PendingInstall)
            .await?;
        tracing::info!(release = %desired.name, namespace = %desired.namespace, revision = record.revision(),
            "installing a release");

        let mut written = Written::default();
        let installed = self
            .carry_out_install(&plan, desired, &records, &mut record, &mut written)
            .await;
        if let Err(failure) = installed {
            return Err(self.end_failed_install(written, &records, record, failure).await);
        }
        // When this fails, nothing is removed: the objects are as wanted, and what the record says is not known.
        record.release.info.status = Status::Deployed;
        "Install complete".clone_into(&mut record.release.info.description);
        let deployed = records.update(&mut record, Timestamp::now()).await;
        deployed.map_err(Error::Records)?;
        Ok(Deployed {
            record,
            objects: written.objects,
        })
    }

    async fn plan_install(&self, desired: &Desired, observed: &Observed) -> Result<Plan, Error> {
        let mut definitions = Vec::new();
        for file in &desired.crds {
            definitions.extend(objects::parse(file, "crds/")?);
        }
        let defined = objects::defined_by(&definitions);
        let namespace = &desired.namespace;
        let crds = objects::locate(&self.cluster, definitions, namespace, &[]).await?;
        let manifest = objects::parse(&desired.manifest, "the manifest")?;
        let objects = objects::locate(&self.cluster, manifest, namespace, &defined).await?;
        let mut earlier = Vec::new();
        if let Some(newest) = &observed.newest {
            earlier = self.targets_of(newest).await?;
        }
        let leftovers = remove::dropped(earlier, &objects);
        if !desired.take_ownership {
            let owner = desired.owner();
            apply::check_ownership(&self.cluster, objects.iter(), &owner, "install").await?;
        }
        Ok(Plan {
            crds,
            objects,
            leftovers,
        })
    }

    async fn carry_out_install(
        &self,
        plan: &Plan,
        desired: &Desired,
        records: &Records,
        record: &mut Record,
        written: &mut Written,
    ) -> Result<(), Error> {
        let owner = owner(&record.release);
        self.install_crds(&plan.crds).await?;
        self.run_hooks(records, record, HookEvent::PreInstall, |_| true)
            .await?;
        let force = if desired.take_ownership {
            Force::All
        } else {
            Force::set_in(&[])
        };
        apply::write(&self.cluster, &plan.objects, &owner, &force, written).await?;
        remove::remove(&self.cluster, &plan.leftovers, &owner, Policy::OfLive).await?;
        self.run_hooks(records, record, HookEvent::PostInstall, |_| true)
            .await
    }

    /// Makes the definitions that are not there and waits until they are established. One that is there is left as
    /// it is: it may serve objects of other releases.
    async fn install_crds(&self, crds: &[Target]) -> Result<(), Error> {
        let failed = Error::objects;
        for target in crds {
            let Some(id) = target.id() else { continue };
            if self
                .cluster
                .get::<Value>(id)
                .await
                .map_err(failed("look for"))?
                .is_none()
            {
                let applied = self
                    .cluster
                    .apply(id, &target.manifest, &Apply::by(MANAGER))
                    .await;
                applied.map_err(failed("write"))?;
            }
        }
        for id in crds.iter().filter_map(Target::id) {
            let established = self
                .cluster
                .wait_until(id, Goal::Current, ESTABLISHED_WITHIN, &mut |_| {})
                .await;
            established.map_err(failed("await"))?;
        }
        Ok(())
    }

    /// Removes what a failed install made, and says in the record how it went.
    async fn end_failed_install(
        &self,
        written: Written,
        records: &Records,
        mut record: Record,
        failure: Error,
    ) -> Error {
        let release = record.release.name.clone();
        let made = remove::dropped(written.made, &[]);
        let undone = match self.remove_made(&made, &record).await {
            Ok(()) => Undone::Removed,
            Err(failure) => Undone::Not {
                because: told(&failure),
            },
        };
        record.release.info.status = Status::Failed;
        record.release.info.description = format!("Release {release:?} failed: {}; {undone}", told(&failure));
        if let Err(failure) = records.update(&mut record, Timestamp::now()).await {
            tracing::warn!(error = told(&failure), %release, "could not record that an install failed");
        }
        Error::Install {
            release,
            undone,
            source: Box::new(failure),
        }
    }

    async fn remove_made(&self, made: &[Target], record: &Record) -> Result<(), Error> {
        let owner = owner(&record.release);
        let removed = remove::remove(&self.cluster, made, &owner, Policy::OfManifest).await?;
        // The next attempt must not meet objects that are on their way out.
        removed.wait(&self.cluster, self.options.timeout).await
    }

    /// The objects of a stored revision, as far as they can still be there.
    pub(super) async fn targets_of(&self, record: &Record) -> Result<Vec<Target>, Error> {
        let what = format!("the manifest of revision {}", record.revision());
        let objects = objects::parse(&record.release.manifest, &what)?;
        objects::locate_earlier(&self.cluster, objects, &record.release.namespace).await
    }
}
