//! Upgrades a release (Helm's `pkg/action/upgrade.go`, with its rollback on failure).

use super::change::{Change, ChangeSpec};
use super::{Action, Deployed, Desired, Error, Releases};
use crate::records::Observed;

impl Releases {
    /// Upgrades a release that has a deployed revision.
    ///
    /// In this order: the objects that the deployed revision does not have are checked to be absent or to belong to
    /// this release; the pending record is created; CRDs in `crds/`, according to the policy; pre-upgrade hooks; the
    /// objects, in order; dropped objects are removed; the wait for the objects; post-upgrade hooks; the old record
    /// becomes superseded, the new one deployed.
    ///
    /// When a hook or an object fails (because a field cannot be changed, say), the manifest of the deployed revision
    /// is applied again, what the upgrade created is removed unless the options say to keep it, and the new record
    /// stays as failed; the deployed one stays deployed.
    ///
    /// # Errors
    /// [`Error::Action`] when it failed and was rolled back; [`Error::Records`] when its end could not be recorded;
    /// otherwise what prevents it, with nothing written.
    pub async fn upgrade(&self, desired: &Desired, observed: &Observed) -> Result<Deployed, Error> {
        let Some(current) = observed.deployed() else {
            return Err(Error::NotDeployed {
                release: desired.name.clone(),
            });
        };
        let others = observed.beside_deployed();
        let spec = ChangeSpec::of(desired, self.owner_of(desired), Action::Upgrade);
        let plan = self.plan_change(&spec, Some(current), &others).await?;
        let record = self
            .begin_desired(desired, observed, Action::Upgrade, plan.checks.existing.clone())
            .await?;
        self.carry_out(Change {
            action: Action::Upgrade,
            plan,
            record,
            current: Some(current.clone()),
            others,
            take_ownership: desired.take_ownership,
            resumed: false,
            complete: desired.described("Upgrade complete"),
        })
        .await
    }
}
