//! A wanted release and the cluster into what installing or upgrading would change; nothing is written.

use cluster::{Apply, Cluster, ObjectId};
use helm::resource_policy::{RESOURCE_POLICY, is_kept_on_upgrade};
use serde_json::Value;

use super::apply::Force;
use super::objects::{self, Target};
use super::ownership::Owner;
use super::{Desired, Error, Releases, remove, told};
use crate::json::{self, Meta};
use crate::records::{MANAGER, Observed};

/// An object, and what would become of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which object.
    pub id: ObjectId,
    /// What would become of it.
    pub effect: Effect,
}

/// What would become of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// It is not there and would be made.
    Create {
        /// As it would be.
        after: Value,
    },
    /// It would be changed.
    Update {
        /// As it is.
        before: Value,
        /// As it would be.
        after: Value,
    },
    /// It would be removed.
    Delete,
    /// It is no longer wanted, and stays for its resource policy or because it is not of this release.
    Kept,
    /// It is as it should be.
    Unchanged,
    /// The action would fail here.
    Refused {
        /// What the server, or the check of ownership, says.
        why: String,
    },
}

impl Releases {
    /// What installing or upgrading to `desired` would change: its objects in install order, then those that would
    /// go. Each is tried on the server, as a dry run; hooks and definitions in `crds/` are left out.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Unserved`], [`Error::Locate`]; [`Error::Objects`] when an object cannot be read. What the server refuses
    /// is no error but an [`Effect`].
    pub async fn preview(&self, desired: &Desired, observed: &Observed) -> Result<Vec<Change>, Error> {
        let mut definitions = Vec::new();
        for file in &desired.crds {
            definitions.extend(objects::parse(file, "crds/")?);
        }
        let defined = objects::defined_by(&definitions);
        let manifest = objects::parse(&desired.manifest, "the manifest")?;
        let wanted = objects::locate(&self.cluster, manifest, &desired.namespace, &defined).await?;
        let mut deployed = Vec::new();
        if let Some(current) = observed.deployed() {
            deployed = self.targets_of(current).await?;
        }
        let mut earlier = deployed.clone();
        for other in observed.beside_deployed() {
            earlier.extend(self.targets_of(&other).await?);
        }
        let force = if desired.take_ownership || self.options.force_conflicts {
            Force::All
        } else {
            Force::set_in(&deployed)
        };
        let owner = self.owner_of(desired);
        let mut changes = Vec::new();
        for target in &wanted {
            changes.extend(self.written(target, desired, &owner, &force).await?);
        }
        for target in remove::dropped(earlier, &wanted) {
            changes.extend(self.removed(&target, &owner).await?);
        }
        Ok(changes)
    }

    async fn written(
        &self,
        target: &Target,
        desired: &Desired,
        owner: &Owner,
        force: &Force<'_>,
    ) -> Result<Option<Change>, Error> {
        // An object whose name the server makes up is another one each time.
        let Some(id) = target.id() else { return Ok(None) };
        let live = self
            .cluster
            .get::<Value>(id)
            .await
            .map_err(Error::objects("look for"))?;
        let mut object = target.manifest.clone();
        owner.claim(&mut object);
        let tried = try_apply(&self.cluster, target, id, &object, force).await;
        let effect = match (live, tried) {
            (Some(before), _) if !desired.take_ownership && owner.check(&before).is_err() => {
                Effect::Refused {
                    why: owner.check(&before).err().unwrap_or_default(),
                }
            }
            (Some(before), Ok(after)) if essence(&before) == essence(&after) => Effect::Unchanged,
            (Some(before), Ok(after)) => Effect::Update { before, after },
            (None, Ok(after)) => Effect::Create { after },
            // Its namespace or its kind will be made first.
            (None, Err(error)) if error.is_not_found() => Effect::Create { after: object },
            (_, Err(error)) => Effect::Refused { why: told(&error) },
        };
        Ok(Some(Change {
            id: id.clone(),
            effect,
        }))
    }

    async fn removed(&self, target: &Target, owner: &Owner) -> Result<Option<Change>, Error> {
        let Some(id) = target.id() else { return Ok(None) };
        let live = self
            .cluster
            .get::<Value>(id)
            .await
            .map_err(Error::objects("look for"))?;
        let Some(live) = live else { return Ok(None) };
        let is_kept =
            is_kept_on_upgrade(json::meta(&live, Meta::Annotations, RESOURCE_POLICY)) || !owner.owns(&live);
        let effect = if is_kept { Effect::Kept } else { Effect::Delete };
        Ok(Some(Change {
            id: id.clone(),
            effect,
        }))
    }
}

/// Applies as the action would, fields of others taken where it would take them, as a dry run.
async fn try_apply(
    cluster: &Cluster,
    target: &Target,
    id: &ObjectId,
    object: &Value,
    force: &Force<'_>,
) -> Result<Value, cluster::Error> {
    let how = Apply::by(MANAGER).dry_run();
    let applied = match cluster.apply(id, object, &how).await {
        Err(conflict) if conflict.is_conflict() && force.allows(target, &conflict) => {
            cluster.apply(id, object, &how.force()).await
        }
        settled => settled,
    };
    applied.map(|applied| applied.object)
}

/// An object without what a dry run cannot know or nobody asked for.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    object
}
