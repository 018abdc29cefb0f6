//! A cache of objects of bundles that are known to be in their desired state: those whose content is the same as then
//! need no dry run. Their status does not count: the API server and controllers write it after each change of ours.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{ObjectId, content};
use serde_json::Value;

/// The objects that were found in their desired state, by id.
#[derive(Default)]
pub(crate) struct Placed {
    entries: Mutex<HashMap<ObjectId, Entry>>,
    /// Its key is random, so nobody can make up other content with the same hash.
    hasher: RandomState,
}

/// Hashes of a desired state, and of the content of the object that had it.
#[derive(PartialEq, Eq)]
struct Entry {
    wanted: u64,
    content: u64,
}

impl Placed {
    /// True when `live` is known to be as `wanted`.
    pub(super) fn holds(&self, id: &ObjectId, wanted: &Value, live: &Value) -> bool {
        let entry = self.entry(wanted, live);
        self.entries().get(id) == Some(&entry)
    }

    /// Records that `live` is as `wanted`.
    pub(super) fn note(&self, id: &ObjectId, wanted: &Value, live: &Value) {
        let entry = self.entry(wanted, live);
        self.entries().insert(id.clone(), entry);
    }

    /// Forgets an object that is being deleted.
    pub(super) fn forget(&self, id: &ObjectId) {
        self.entries().remove(id);
    }

    fn entry(&self, wanted: &Value, live: &Value) -> Entry {
        Entry {
            wanted: self.hasher.hash_one(wanted),
            content: self.hasher.hash_one(content(live)),
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_known_until_its_content_or_its_desired_state_changes() {
        let id = ObjectId::of::<ConfigMap>(Some("defs"), "web").unwrap();
        let live = json!({
            "metadata": {"uid": "1", "resourceVersion": "7", "generation": 1, "managedFields": []}, "data": {"a": "1"},
        });
        let (wanted, other) = (json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}}));
        let placed = Placed::default();
        assert!(!placed.holds(&id, &wanted, &live));
        placed.note(&id, &wanted, &live);
        assert!(placed.holds(&id, &wanted, &live));
        assert!(!placed.holds(&id, &other, &live), "wanted otherwise");
        let mut written = live.clone();
        written["metadata"]["resourceVersion"] = json!("8");
        written["metadata"]["managedFields"] = json!([{"manager": "another"}]);
        written["status"] = json!({"observedGeneration": 1});
        assert!(
            placed.holds(&id, &wanted, &written),
            "only its status was written"
        );
        for (at, value) in [("/data/a", "2"), ("/metadata/uid", "2")] {
            let mut changed = live.clone();
            *changed.pointer_mut(at).unwrap() = json!(value);
            assert!(!placed.holds(&id, &wanted, &changed), "{at}");
        }
        placed.forget(&id);
        assert!(!placed.holds(&id, &wanted, &live));
    }
}
