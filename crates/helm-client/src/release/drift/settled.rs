//! What is known about objects since they were last applied or compared.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ObjectId;
use cluster::fields;
use serde_json::Value;

use super::drifted::DriftedPath;
use crate::records::MANAGER;
use crate::release::Live;
use crate::release::managers::{counted, is_hand};
use crate::release::ownership::{Found, Owner};

/// What had drifted in an object as last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedDrift {
    /// Fingerprint of the compared fields.
    pub(super) print: u64,
    /// What had drifted in it.
    pub(super) drifted: Vec<DriftedPath>,
    /// The release that it belonged to, and the version in which it did.
    owned: Option<(Arc<Owner>, Found)>,
}

impl CachedDrift {
    pub(super) fn new(print: u64, drifted: Vec<DriftedPath>) -> Self {
        Self {
            print,
            drifted,
            owned: None,
        }
    }
}

/// Objects as last seen, without their content.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    cache: Mutex<HashMap<ObjectId, CachedDrift>>,
}

impl Settled {
    /// Notes the server's answers to the applies of a release.
    pub(crate) fn note(&self, owner: &Owner, objects: &[Live]) {
        tracing::trace!(release = %owner.name, objects = objects.len(), "settled");
        let owner = Arc::new(owner.clone());
        let mut cache = self.lock();
        for live in objects {
            let mut drift = CachedDrift::new(fingerprint(&live.object), Vec::new());
            drift.owned = found(&owner, &live.object).map(|found| (owner.clone(), found));
            cache.insert(live.id.clone(), drift);
        }
    }

    /// Notes in which version an object was seen, and whether it belonged to the release.
    pub(super) fn saw(&self, id: &ObjectId, owner: &Owner, live: &Value) {
        let found = found(owner, live);
        if let Some(drift) = self.lock().get_mut(id) {
            let known = drift.owned.take().map(|(known, _)| known);
            drift.owned = found.map(|found| {
                let known = known.filter(|known| **known == *owner);
                (known.unwrap_or_else(|| Arc::new(owner.clone())), found)
            });
        }
    }

    /// The object as last seen, if it belonged to this release. Secrets always have to be looked at: they are not
    /// watched, so that one belongs to somebody else by now would be noticed only by a refused write, after the action
    /// has begun.
    pub(crate) fn owned(&self, id: &ObjectId, owner: &Owner) -> Option<Found> {
        if id.resource().is_secret() {
            return None;
        }
        let cache = self.lock();
        let (of, found) = cache.get(id)?.owned.as_ref()?;
        (**of == *owner).then(|| found.clone())
    }

    /// Forgets objects that no longer exist.
    pub(crate) fn forget<'a>(&self, ids: impl Iterator<Item = &'a ObjectId>) {
        let mut cache = self.lock();
        for id in ids {
            cache.remove(id);
        }
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<CachedDrift> {
        self.lock().get(id).cloned()
    }

    pub(super) fn set(&self, id: &ObjectId, drift: CachedDrift) {
        self.lock().insert(id.clone(), drift);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, CachedDrift>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The object as it is now, if it belongs to this release. Where releases belong to no object, nobody asks.
fn found(owner: &Owner, live: &Value) -> Option<Found> {
    owner.parent.as_ref()?;
    let text = |field: &str| live["metadata"][field].as_str().map(Box::from);
    let found = Found {
        uid: text("uid")?,
        version: Some(text("resourceVersion")?),
    };
    owner.owns(live).then_some(found)
}

/// Hash of the fields that we applied or somebody set by hand, and their values. Any other manager that takes a field
/// over removes it from ours, so the hash changes as well.
pub(super) fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object["metadata"]["uid"].as_str().hash(&mut hasher);
    for entry in fields::entries(object) {
        let is_ours = entry.manager == MANAGER && entry.operation == "Apply";
        if !entry.subresource.is_empty() || !(is_ours || is_hand(entry.manager)) {
            continue;
        }
        entry.manager.hash(&mut hasher);
        for leaf in counted(&entry, object) {
            leaf.path.to_string().hash(&mut hasher);
            leaf.value.map(Value::to_string).hash(&mut hasher);
        }
    }
    hasher.finish()
}
