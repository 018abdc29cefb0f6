//! Computes what installing or upgrading to a desired release would change in the cluster; nothing is written.

use cluster::{Apply, Cluster, ObjectId};
use helm::resource_policy::{RESOURCE_POLICY, is_kept_on_upgrade};
use serde_json::Value;

use super::apply::Force;
use super::objects::{self, Target};
use super::ownership::Owner;
use super::{Desired, Error, Releases, remove, told};
use crate::json::{self, Meta};
use crate::records::{MANAGER, Observed};

/// An object, and what would happen to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which object.
    pub id: ObjectId,
    /// What would happen to it.
    pub effect: Effect,
}

/// What would happen to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// It does not exist and would be created.
    Create {
        /// The object afterwards.
        after: Value,
    },
    /// It would be changed.
    Update {
        /// The object now.
        before: Value,
        /// The object afterwards.
        after: Value,
    },
    /// It would be removed.
    Delete,
    /// It is no longer wanted, but kept because of its resource policy or because it does not belong to this release.
    Kept,
    /// Nothing would be changed.
    Unchanged,
    /// The action would fail here.
    Refused {
        /// What the server, or the check of ownership, says.
        why: String,
    },
}

impl Releases {
    /// What installing or upgrading to `desired` would change: its objects in install order, then those that would be
    /// removed. Each is tried on the server as a dry run; hooks and CRDs in `crds/` are left out.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Unserved`], [`Error::Locate`]; [`Error::Objects`] when an object cannot be read. A
    /// refusal by the server is not an error but an [`Effect`].
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
        // An object whose name the server generates is a different one each time.
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
            // Its namespace or its kind will be created first.
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

/// Applies as a dry run, forcing the fields of others that the action would force.
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

/// An object without the fields that a dry run cannot know, and without noise.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    object
}
