//! A cache of objects of bundles that are known to be in their desired state: those that have not been written since
//! need no dry run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ObjectId;
use serde_json::Value;

/// The objects that were found in their desired state, by id.
#[derive(Default)]
pub(crate) struct Placed {
    entries: Mutex<HashMap<ObjectId, Entry>>,
}

/// A desired state, and the resource version of the object that had it.
#[derive(PartialEq, Eq)]
struct Entry {
    wanted: u64,
    resource_version: String,
}

impl Entry {
    /// None without a resource version: such an object could not be distinguished from a later state.
    fn new(wanted: &Value, live: &Value) -> Option<Self> {
        let resource_version = live["metadata"]["resourceVersion"].as_str()?.to_owned();
        let mut hasher = DefaultHasher::new();
        wanted.hash(&mut hasher);
        Some(Self {
            wanted: hasher.finish(),
            resource_version,
        })
    }
}

impl Placed {
    /// True when `live` is known to be as `wanted`.
    pub(super) fn holds(&self, id: &ObjectId, wanted: &Value, live: &Value) -> bool {
        let entry = Entry::new(wanted, live);
        entry.is_some() && self.entries().get(id) == entry.as_ref()
    }

    /// Records that `live` is as `wanted`.
    pub(super) fn note(&self, id: &ObjectId, wanted: &Value, live: &Value) {
        if let Some(entry) = Entry::new(wanted, live) {
            self.entries().insert(id.clone(), entry);
        }
    }

    /// Forgets an object that is being deleted.
    pub(super) fn forget(&self, id: &ObjectId) {
        self.entries().remove(id);
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
    fn an_object_is_known_until_it_or_its_desired_state_changes() {
        let id = ObjectId::of::<ConfigMap>(Some("defs"), "web").unwrap();
        let live = |version: &str| json!({"metadata": {"resourceVersion": version}, "data": {"a": "1"}});
        let (wanted, other) = (json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}}));
        let placed = Placed::default();
        assert!(!placed.holds(&id, &wanted, &live("7")));
        placed.note(&id, &wanted, &live("7"));
        assert!(placed.holds(&id, &wanted, &live("7")));
        assert!(!placed.holds(&id, &wanted, &live("8")), "written since");
        assert!(!placed.holds(&id, &other, &live("7")), "wanted otherwise");
        placed.forget(&id);
        assert!(!placed.holds(&id, &wanted, &live("7")));
    }

    #[test]
    fn an_object_without_a_version_is_never_known() {
        let id = ObjectId::of::<ConfigMap>(Some("defs"), "web").unwrap();
        let (wanted, live) = (json!({}), json!({"metadata": {}}));
        let placed = Placed::default();
        placed.note(&id, &wanted, &live);
        assert!(!placed.holds(&id, &wanted, &live));
    }
}
