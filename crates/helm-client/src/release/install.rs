//! Installs a release (Helm's `pkg/action/install.go`).

use cluster::{Apply, ObjectId};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use super::change::{Change, ChangeSpec};
use super::ownership::Owner;
use super::{Action, Deployed, Desired, Error, Releases, apply};
use crate::json;
use crate::records::{MANAGER, Observed};

impl Releases {
    /// Installs a release that has no deployed revision.
    ///
    /// In this order: objects that exist are checked to belong to this release; the namespace is created, if
    /// requested; the pending record is created; the CRDs in `crds/` are created and awaited; pre-install hooks; the
    /// objects, in order; the wait for them; post-install hooks; the record becomes deployed.
    ///
    /// When a hook or an object fails, everything created is removed again, except CRDs and kept objects, unless the
    /// options say to keep it, and the record stays as failed. Before the pending record is created, nothing of the
    /// release is written.
    ///
    /// # Errors
    /// [`Error::Action`] when it failed and was undone; [`Error::Records`] when its end could not be recorded;
    /// otherwise what prevents it, with nothing written.
    pub async fn install(&self, desired: &Desired, observed: &Observed) -> Result<Deployed, Error> {
        if let Some(deployed) = observed.deployed() {
            return Err(Error::NameInUse {
                release: desired.name.clone(),
                revision: deployed.revision(),
            });
        }
        let others: Vec<_> = observed.newest.iter().cloned().collect();
        let spec = ChangeSpec::of(desired, self.owner_of(desired), Action::Install);
        let plan = self.plan_change(&spec, None, &others).await?;
        if self.options.create_namespace {
            self.make_namespace(&desired.namespace).await?;
        }
        let record = self
            .begin_desired(desired, observed, Action::Install, plan.checks.existing.clone())
            .await?;
        self.carry_out(Change {
            action: Action::Install,
            plan,
            record,
            current: None,
            others,
            take_ownership: desired.take_ownership,
            resumed: false,
            complete: desired.described("Install complete"),
        })
        .await
    }

    /// Creates the namespace as Helm does; an existing one is not changed, and none is ever removed.
    pub(super) async fn make_namespace(&self, name: &str) -> Result<(), Error> {
        let failed = Error::objects;
        let id = ObjectId::of::<Namespace>(None, name).map_err(failed("make the namespace of"))?;
        let there = self.cluster.get_metadata(&id).await;
        if there.map_err(failed("look for the namespace of"))?.is_some() {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": name, "labels": {"name": name}}});
        let made = self.cluster.apply(&id, &namespace, &Apply::by(MANAGER)).await;
        made.map(drop).map_err(failed("make the namespace of"))
    }
}

impl Releases {
    /// Creates a namespace that the release itself brings, as in its manifest, so that permissions can be granted
    /// there before the release is installed. It is an object of the release from then on. One that somebody else has
    /// created in the meantime is not changed. False when the release brings no namespace of that name.
    ///
    /// # Errors
    /// [`Error::Parse`] when a document of the manifest is not an object; [`Error::Objects`] when the namespace
    /// cannot be created; [`Error::NotOurs`] when it exists and does not belong to the release.
    pub async fn make_own_namespace(&self, desired: &Desired, name: &str) -> Result<bool, Error> {
        let objects = super::objects::parse(&desired.manifest, "the manifest")?;
        let own = objects.into_iter().find(|object| {
            object["kind"] == "Namespace"
                && object["apiVersion"] == "v1"
                && object["metadata"]["name"] == name
        });
        let Some(mut namespace) = own else {
            return Ok(false);
        };
        let owner = self.owner_of(desired);
        owner.claim(&mut namespace);
        let failed = Error::objects;
        let id = ObjectId::of::<Namespace>(None, name).map_err(failed("make"))?;
        let made = apply::make(&self.cluster, &id, &namespace).await;
        if made.map_err(failed("make"))?.is_some() {
            return Ok(true);
        }
        let live = self.cluster.get_metadata(&id).await.map_err(failed("look for"))?;
        if let Some(live) = live {
            owner
                .check(&json::of(&live))
                .map_err(|reason| apply::not_ours(&id, "install", reason))?;
        }
        Ok(true)
    }
}

impl<'a> ChangeSpec<'a> {
    pub(super) fn of(desired: &'a Desired, owner: Owner, action: Action) -> Self {
        Self {
            action,
            owner,
            manifest: &desired.manifest,
            hooks: &desired.hooks,
            crds: desired.crds.clone(),
            take_ownership: desired.take_ownership,
        }
    }
}
