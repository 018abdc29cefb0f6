//! What is known of objects since they were last applied or compared.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ObjectId;
use cluster::fields;
use serde_json::Value;

use super::{DriftedPath, counted, is_hand};
use crate::records::{MANAGER, Record};
use crate::release::Live;

/// An object as it was last seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Of the fields that count.
    pub(super) print: u64,
    /// What differed in it then.
    pub(super) drifted: Vec<DriftedPath>,
}

/// Objects as they were last seen; some bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    known: Mutex<HashMap<ObjectId, Known>>,
}

impl Settled {
    /// Notes what the server returned to an apply.
    pub(crate) fn note(&self, record: &Record, objects: &[Live]) {
        tracing::trace!(release = %record.release.name, objects = objects.len(), "settled");
        let mut known = self.lock();
        for live in objects {
            let drifted = Vec::new();
            let print = fingerprint(&live.object);
            known.insert(live.id.clone(), Known { print, drifted });
        }
    }

    /// Forgets objects that are gone.
    pub(crate) fn forget<'a>(&self, ids: impl Iterator<Item = &'a ObjectId>) {
        let mut known = self.lock();
        for id in ids {
            known.remove(id);
        }
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<Known> {
        self.lock().get(id).cloned()
    }

    pub(super) fn set(&self, id: &ObjectId, known: Known) {
        self.lock().insert(id.clone(), known);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the fields that we applied or somebody set by hand, and of what they hold. Whoever else takes a field over takes
/// it out of ours, so that the print changes as well.
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
