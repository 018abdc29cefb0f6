//! Nothing into a deployed release (Helm's `pkg/action/install.go`).

use cluster::{Apply, ObjectId};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use super::change::{Change, Wanted};
use super::ownership::Owner;
use super::{Action, Deployed, Desired, Error, Releases, apply};
use crate::json;
use crate::records::{MANAGER, Observed};

impl Releases {
    /// Installs a release of which no revision is deployed.
    ///
    /// In this order: the objects that exist are checked to be of this release; the namespace is made, if that is
    /// asked for; the pending record is made; the definitions in `crds/` are made and awaited; pre-install hooks; the
    /// objects, in order; the wait for them; post-install hooks; the record becomes deployed.
    ///
    /// When a hook or an object fails, what was made is removed again, definitions and kept objects excepted, unless it
    /// is to be kept, and the record stays as failed. Until the pending record is made, nothing of the release is
    /// written.
    ///
    /// # Errors
    /// [`Error::Action`] when it failed and was undone; [`Error::Records`] when its end could not be recorded; else
    /// what stands in the way, with nothing written.
    pub async fn install(&self, desired: &Desired, observed: &Observed) -> Result<Deployed, Error> {
        if let Some(deployed) = observed.deployed() {
            return Err(Error::NameInUse {
                release: desired.name.clone(),
                revision: deployed.revision(),
            });
        }
        let others: Vec<_> = observed.newest.iter().cloned().collect();
        let wanted = Wanted::of(desired, self.owner_of(desired), Action::Install);
        let plan = self.plan_change(&wanted, None, &others).await?;
        if self.options.create_namespace {
            self.make_namespace(&desired.namespace).await?;
        }
        let record = self
            .begin_desired(desired, observed, Action::Install, plan.existing.clone())
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

    /// Makes the namespace as Helm does; one that is there stays as it is, and none is ever removed.
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

/// With this version an object is made and never changed: the store counts from 1 before its first object, so none that is
/// there has it. A plain creation cannot be allowed by name.
const NEW: &str = "1";

impl Releases {
    /// Makes a namespace that the release itself brings, as its manifest has it, so that permissions can be granted there
    /// before the release is installed. It is an object of the release from then on. One that somebody else made in the
    /// meantime is left as it is. False when the release brings none of that name.
    ///
    /// # Errors
    /// [`Error::Parse`] when a document of the manifest is no object; [`Error::Objects`] when the namespace cannot be made;
    /// [`Error::NotOurs`] when it is there and not of the release.
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
        namespace["metadata"]["resourceVersion"] = NEW.into();
        match self.cluster.apply(&id, &namespace, &Apply::by(MANAGER)).await {
            Err(taken) if taken.is_conflict() => {}
            made => return made.map(|_| true).map_err(failed("make")),
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

impl<'a> Wanted<'a> {
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
