//! Compares the objects of a deployed release with what was applied.
//!
//! The comparison is with what the server made of our apply, not with the manifest: so `stringData`, `0.5` versus
//! `500m`, defaults and changes by webhooks are no drift. Right after an apply, this is the server's answer; after a
//! restart, one dry run per object finds it out. Only a fingerprint is kept, so that an object nobody touched costs
//! one read, or none if the caller's watches say that it has not changed ([`Releases::with_unchanged`]).

mod cache;
mod differences;
mod drifted;
mod policy;

use std::collections::HashMap;

use cluster::fields::Path;
use cluster::{Apply, Health, ObjectId, health};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

pub use cache::ObjectCache;
pub(super) use cache::Revision;
pub use drifted::{DriftedObject, DriftedPath};
pub use policy::{InvalidPolicy, Mode, Policy};

use super::apply::{self, Force, put_as_is};
use super::managers::is_hand;
use super::migrate;
use super::objects::{AT_ONCE, ObjectRef, Target};
use super::ownership::Owner;
use super::{Error, Live, Progress, Releases};
use crate::json;
use crate::records::{MANAGER, Record};
use cache::{CachedDrift, Print};
use differences::{clashes, differences, taken_over};

/// The objects of a release, as found in the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Each object that was looked at.
    pub objects: Vec<Looked>,
    /// Those that differ from what was applied, except for ignored differences.
    pub drifted: Vec<DriftedObject>,
}

/// An object of a release, as found in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// Which object it is.
    pub id: ObjectId,
    /// Whether it is healthy.
    pub health: Health,
    /// The object; `None` when it does not exist.
    pub live: Option<Value>,
}

impl Releases {
    /// The differences between the objects of a deployed revision and what was applied.
    ///
    /// # Errors
    /// Those of [`Releases::look`].
    pub async fn drift(&self, record: &Record, policy: &Policy) -> Result<Vec<DriftedObject>, Error> {
        Ok(self.look(record, policy).await?.drifted)
    }

    /// Looks at each object of a deployed revision: whether it is healthy, and whether it has drifted. Costs one read
    /// for an object that nobody touched, and an additional dry run for others and for those that are seen for the
    /// first time. Objects that are known not to have changed ([`Releases::with_unchanged`]) are not read and not
    /// returned: their known drift is repeated.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Locate`], [`Error::Objects`].
    pub async fn look(&self, record: &Record, policy: &Policy) -> Result<Look, Error> {
        let deployed = self.revision_of(record);
        let targets = self.targets_of(record).await?;
        self.cache
            .keep_only(&deployed.owner, targets.iter().filter_map(Target::id));
        let (known, unknown): (Vec<_>, Vec<_>) = targets
            .iter()
            .filter_map(|target| Some((target, target.id()?)))
            .map(|(target, id)| (target, id, self.known_drift(&deployed, id)))
            .partition(|(.., drift)| drift.is_some());
        let looks: Vec<_> = unknown
            .into_iter()
            .map(|(target, id, _)| self.look_at(target, id, &deployed, policy).boxed())
            .collect();
        let found: Vec<_> = stream::iter(looks)
            .buffered(AT_ONCE)
            .try_collect()
            .await
            .map_err(Error::objects("look at"))?;
        let mut look = Look::default();
        for (looked, drifted) in found {
            look.objects.push(looked);
            look.drifted.extend(drifted);
        }
        for (_, id, drift) in known {
            look.drifted
                .extend(restricted(id, drift.unwrap_or_default(), policy));
        }
        Ok(look)
    }

    /// What has drifted in an object that has not changed since it was last compared.
    fn known_drift(&self, deployed: &Revision, id: &ObjectId) -> Option<Vec<DriftedPath>> {
        self.cache.drifted_at(deployed, id, self.unchanged.get(id)?)
    }

    async fn look_at(
        &self,
        target: &Target,
        id: &ObjectId,
        deployed: &Revision,
        policy: &Policy,
    ) -> Result<(Looked, Option<DriftedObject>), cluster::Error> {
        let looked = |health, live| Looked {
            id: id.clone(),
            health,
            live,
        };
        let Some(live) = self.cluster.get::<Value>(id).await? else {
            if removes_itself(target) {
                return Ok((looked(Health::Current, None), None));
            }
            let mode = policy.mode(id, &Path::default());
            let drifted = (mode != Mode::Ignore).then(|| DriftedObject {
                object: id.clone(),
                removed: Some(mode),
                paths: Vec::new(),
                ignored: Vec::new(),
            });
            return Ok((looked(Health::NotFound, None), drifted));
        };
        let health = health(&live);
        let mut paths = Vec::new();
        if !matches!(health, Health::Terminating { .. }) {
            paths = self.compare(target, id, deployed, &live).await?;
        }
        let drifted = restricted(id, paths, policy);
        Ok((looked(health, Some(live)), drifted))
    }

    async fn compare(
        &self,
        target: &Target,
        id: &ObjectId,
        deployed: &Revision,
        live: &Value,
    ) -> Result<Vec<DriftedPath>, cluster::Error> {
        let print = Print::of(live);
        let version = json::resource_version(live);
        if let Some(drifted) = self.cache.drifted_with(deployed, id, &print, version) {
            return Ok(drifted);
        }
        let mut wanted = target.manifest.clone();
        deployed.owner.claim(&mut wanted);
        let how = Apply::by(MANAGER).force().dry_run();
        let mut is_as_applied = false;
        let drifted = match self.cluster.apply(id, &wanted, &how).await {
            Ok(applied) => {
                is_as_applied = print.is_as_applied(&applied.object);
                let mut drifted = differences(id, &applied.object, live);
                // A version of the kind that is served now may lack fields of the one that was applied.
                if !target.is_outdated {
                    drifted.extend(taken_over(id, &applied.object, live));
                }
                drifted
            }
            // An admission webhook with side effects refuses dry runs; the object then counts as unchanged.
            Err(refused) if refused.status().is_some_and(|s| s.message.contains("dry run")) => Vec::new(),
            // The served version of the kind may not know fields of the version that the object was applied in.
            Err(refused) if target.is_outdated && !refused.is_transient() && !refused.is_forbidden() => {
                Vec::new()
            }
            Err(refused) if refused.is_invalid() => {
                let clashes = clashes(id, &refused, &wanted, live);
                if clashes.is_empty() {
                    return Err(refused);
                }
                clashes
            }
            Err(error) => return Err(error),
        };
        let cached = CachedDrift {
            print,
            version: version.into(),
            revision: deployed.clone(),
            drifted: drifted.clone(),
            is_as_applied,
        };
        self.cache.set(id, cached);
        Ok(drifted)
    }

    /// Corrects these objects so that they match the deployed revision; no new revision is made. Fields with another
    /// mode are not changed.
    ///
    /// Fields that somebody added by hand are taken over first, so that the apply, which does not name them, removes
    /// them; so are fields of any manager that the server refuses together with ours.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Locate`], [`Error::Objects`]; transient when somebody wrote in the meantime.
    pub async fn correct(&self, record: &Record, drifted: &[DriftedObject]) -> Result<Vec<Live>, Error> {
        let owner = self.owner(&record.release);
        let targets = self.targets_of(record).await?;
        let to_be_corrected = drifted.iter().filter(|drifted| drifted.is_to_be_corrected());
        let to_be_corrected: HashMap<&ObjectId, &DriftedObject> = to_be_corrected
            .map(|drifted| (&drifted.object, drifted))
            .collect();
        let mut corrected = Vec::new();
        for target in &targets {
            let Some(id) = target.id() else { continue };
            let Some(drifted) = to_be_corrected.get(id) else {
                continue;
            };
            let (live, created) = self.correct_one(target, id, &owner, drifted).await?;
            self.tell()(&Progress::Applied { id, created });
            tracing::info!(object = %id, "corrected: {drifted}");
            corrected.push(live);
        }
        // One of which something is left alone is not as the revision has it.
        let (partly, wholly): (Vec<_>, Vec<_>) = corrected.iter().partition(|live| {
            to_be_corrected
                .get(&live.id)
                .is_some_and(|drifted| drifted.leaves_some())
        });
        self.cache.note(&self.revision_of(record), wholly);
        self.cache.forget(partly.into_iter().map(|live| &live.id));
        Ok(corrected)
    }

    async fn correct_one(
        &self,
        target: &Target,
        id: &ObjectId,
        owner: &Owner,
        drifted: &DriftedObject,
    ) -> Result<(Live, bool), Error> {
        let failed = Error::objects("correct");
        let mut object = target.manifest.clone();
        owner.claim(&mut object);
        let of_mode = |mode: Mode| drifted.paths.iter().filter(move |path| path.mode == mode);
        let added: Vec<&Path> = of_mode(Mode::Correct)
            .filter(|path| path.wanted.is_none())
            .map(|path| &path.path)
            .collect();
        let left = of_mode(Mode::Warn).map(|path| &path.path).chain(&drifted.ignored);
        if let Some(live) = self.cluster.get::<Value>(id).await.map_err(failed)? {
            if owner.parent.is_some() {
                // A release that belongs to no object is corrected whatever owner its objects name, as Helm applies
                // it.
                owner
                    .check(&live)
                    .map_err(|reason| apply::not_ours(id, "update", reason))?;
                object["metadata"]["uid"] = live["metadata"]["uid"].clone();
            }
            if !added.is_empty() {
                let taking = migrate::take_over(&self.cluster, id, &live, is_hand, &added).await;
                taking.map_err(failed)?;
            }
            for path in left {
                if path.get(&target.manifest).is_some() {
                    path.set(&mut object, path.get(&live));
                }
            }
        }
        let target = Target {
            reference: ObjectRef::Named(id.clone()),
            ..target.clone()
        };
        // If the object was missing when it was looked at, nothing is forced: somebody else may have created one
        // since.
        let force = if drifted.removed.is_some() && owner.parent.is_some() {
            Force::set_in(&[])
        } else {
            Force::All
        };
        let put = put_as_is(&self.cluster, &target, &object, &force).await;
        put.map_err(failed)
    }
}

/// What the policy says about the differences of an object; `None` if it ignores all of them.
fn restricted(id: &ObjectId, differences: Vec<DriftedPath>, policy: &Policy) -> Option<DriftedObject> {
    let (mut paths, mut ignored) = (Vec::new(), Vec::new());
    for mut path in differences {
        path.mode = policy.mode(id, &path.path);
        match path.mode {
            Mode::Ignore => ignored.push(path.path),
            Mode::Warn | Mode::Correct => paths.push(path),
        }
    }
    (!paths.is_empty()).then(|| DriftedObject {
        object: id.clone(),
        removed: None,
        paths,
        ignored,
    })
}

/// True for a Job that is removed some time after it ended: it is no drift when it is missing.
fn removes_itself(target: &Target) -> bool {
    target.kind() == "Job" && !target.manifest["spec"]["ttlSecondsAfterFinished"].is_null()
}
