//! What is known about objects since they were last applied or compared.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ObjectId;
use cluster::fields;
use serde_json::Value;

use super::drifted::DriftedPath;
use crate::records::{MANAGER, Record};
use crate::release::Live;
use crate::release::managers::{counted, is_hand};

/// What had drifted in an object as last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedDrift {
    /// Fingerprint of the compared fields.
    pub(super) print: u64,
    /// What had drifted in it.
    pub(super) drifted: Vec<DriftedPath>,
    /// The revision whose apply left it like that, or would change nothing.
    pub(super) as_applied: Option<i64>,
}

/// Objects as last seen; a few bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    cache: Mutex<HashMap<ObjectId, CachedDrift>>,
}

impl Settled {
    /// Notes the server's answer to an apply.
    pub(crate) fn note(&self, record: &Record, objects: &[Live]) {
        tracing::trace!(release = %record.release.name, objects = objects.len(), "settled");
        let mut cache = self.lock();
        for live in objects {
            let drifted = Vec::new();
            let print = fingerprint(&live.object);
            let as_applied = Some(record.revision());
            let cached = CachedDrift {
                print,
                drifted,
                as_applied,
            };
            cache.insert(live.id.clone(), cached);
        }
    }

    /// True if it is known what the apply of a revision makes of an object.
    pub(in crate::release) fn knows(&self, revision: i64, id: &ObjectId) -> bool {
        let cache = self.lock();
        cache
            .get(id)
            .is_some_and(|cached| cached.as_applied == Some(revision))
    }

    /// True if applying the object of this revision again would not change it.
    pub(in crate::release) fn is_as_applied(&self, revision: i64, live: &Live) -> bool {
        let print = fingerprint(&live.object);
        let cache = self.lock();
        let cached = cache.get(&live.id);
        cached.is_some_and(|cached| cached.as_applied == Some(revision) && cached.print == print)
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
