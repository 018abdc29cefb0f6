//! Resumes an action that was interrupted.

use super::change::{Change, ChangeSpec, recorded_crds};
use super::{Action, Deployed, Desired, Error, Releases, Undone, told};
use crate::records::{Observed, Record};
use helm::release::Status;

/// How a resumed action ended.
#[derive(Debug, Clone)]
pub enum Resumed {
    /// Its revision is deployed.
    Deployed(Box<Deployed>),
    /// The release has been removed.
    Uninstalled(super::Uninstalled),
}

impl Releases {
    /// Resumes the action whose pending record is the newest one: with the manifest and the hooks of the record,
    /// never with a new render. Hooks that succeeded do not run again, and one that is running is awaited. The
    /// revision stays the same, so that the history does not show the interruption.
    ///
    /// The caller has to know that nobody else is working on it ([`super::state`]); of several who try at once, one
    /// succeeds.
    ///
    /// Records contain the `crds/` of the chart itself. Those of subcharts are taken from `desired`, if that is of
    /// the same chart.
    ///
    /// # Errors
    /// [`Error::NotUnderway`]; otherwise those of the action.
    pub async fn resume(&self, observed: &Observed, desired: Option<&Desired>) -> Result<Resumed, Error> {
        let Some((action, newest)) = observed.underway().filter(|(_, record)| record.is_authentic()) else {
            return Err(Error::NotUnderway);
        };
        let mut record = newest.clone();
        let records = self.records(&record.release.namespace, &record.release.name);
        records
            .claim(&mut record, self.writer.as_deref())
            .await
            .map_err(Error::Records)?;
        tracing::info!(release = %record.release.name, namespace = %record.release.namespace,
            revision = record.revision(), "continuing to {action} a release");
        let observed = Observed {
            newest: Some(record.clone()),
            ..observed.clone()
        };
        if action == Action::Uninstall {
            return self.uninstall(&observed).await.map(Resumed::Uninstalled);
        }
        if let Err(failure) = records.prune(record.revision(), &observed).await {
            tracing::warn!(error = told(&failure), release = %record.release.name,
                namespace = %record.release.namespace, "could not remove an old release record");
        }
        let desired =
            desired.filter(|desired| record.provenance.chart_digest.as_ref() == Some(&desired.chart_digest));
        let change = self.change_of(action, record, &observed, desired).await?;
        let deployed = self.carry_out(change).await?;
        Ok(Resumed::Deployed(Box::new(deployed)))
    }

    async fn change_of(
        &self,
        action: Action,
        record: Record,
        observed: &Observed,
        desired: Option<&Desired>,
    ) -> Result<Change, Error> {
        let release = &record.release;
        let crds = match (action, desired) {
            (Action::Rollback | Action::Uninstall, _) => Vec::new(),
            (Action::Install | Action::Upgrade, Some(desired)) => desired.crds.clone(),
            (Action::Install | Action::Upgrade, None) => recorded_crds(&release.chart.files),
        };
        let spec = ChangeSpec {
            action,
            owner: self.owner(release),
            manifest: &release.manifest,
            hooks: &release.hooks,
            crds,
            take_ownership: desired.is_some_and(|desired| desired.take_ownership),
        };
        let current = observed.older_deployed.as_ref();
        let others = self.below(&record, current).await?;
        let plan = match self.plan_change(&spec, current, &others).await {
            Ok(plan) => plan,
            Err(failure) if failure.is_transient() => return Err(failure),
            Err(failure) => return Err(self.end_unplanned(action, record, failure).await),
        };
        let complete = match action {
            Action::Install => "Install complete".to_owned(),
            Action::Upgrade => "Upgrade complete".to_owned(),
            Action::Rollback | Action::Uninstall => release.info.description.clone(),
        };
        Ok(Change {
            action,
            plan,
            take_ownership: spec.take_ownership,
            current: current.cloned(),
            others,
            resumed: true,
            complete,
            record,
        })
    }

    /// The revision right below the pending one, if it is not the deployed one: what it left behind has to be
    /// removed.
    async fn below(&self, record: &Record, current: Option<&Record>) -> Result<Vec<Record>, Error> {
        let revision = record.revision() - 1;
        if revision < 1 || current.is_some_and(|current| current.revision() == revision) {
            return Ok(Vec::new());
        }
        let records = self.records(&record.release.namespace, &record.release.name);
        match records.read(revision).await {
            Ok(found) => Ok(found.into_iter().collect()),
            Err(refused) if refused.is_forbidden() => Ok(Vec::new()),
            Err(failure) => Err(Error::Records(failure)),
        }
    }

    /// An action that cannot be resumed is not tried forever: the next one starts with what is there.
    async fn end_unplanned(&self, action: Action, mut record: Record, failure: Error) -> Error {
        let release = record.release.name.clone();
        let undone = Undone::Not {
            because: "it was interrupted and cannot be continued".to_owned(),
        };
        record.release.info.status = Status::Failed;
        record.release.info.description = format!(
            "{} {release:?} failed: {}; {undone}",
            action.failed_in_words_of_helm(),
            told(&failure)
        );
        let records = self.records(&record.release.namespace, &release);
        if let Err(failure) = self.update(&records, &mut record).await {
            tracing::warn!(error = told(&failure), release, namespace = %record.release.namespace,
                "could not record that an action failed");
        }
        Error::Action {
            action,
            release,
            undone,
            source: Box::new(failure),
        }
    }
}
