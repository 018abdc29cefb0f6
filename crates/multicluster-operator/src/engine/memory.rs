//! What passes remember about objects, to save requests in the next pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helm_client::release::drift::ObjectCache;
use runtime::Looks;

use super::{Site, Subject};
use crate::key::Key;

/// What is remembered about one object.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What is known about the objects of its release since they were last applied or compared.
    pub(super) cache: Arc<ObjectCache>,
    /// Objects of its release as of the last look.
    pub(crate) looks: Looks,
    /// Set if a pass found nothing to do.
    settled: Option<Settled>,
    /// True once it was reported that nothing has changed since the previous process.
    pub(crate) skip_is_told: bool,
    /// [`Stored::unsettled`] when the current pass began.
    unsettled: u64,
}

#[derive(Debug)]
struct Settled {
    version: String,
    at: Instant,
}

impl Memory {
    /// Notes that this version of the object needs nothing done.
    pub(crate) fn settle(&mut self, version: Option<&str>) {
        self.settled = version.map(|version| Settled {
            version: version.to_owned(),
            at: Instant::now(),
        });
    }

    pub(crate) fn unsettle(&mut self) {
        self.settled = None;
    }

    /// What is kept after a pass: after a failure only the cache, which says itself when it is stale.
    pub(crate) fn after<T, E>(self, outcome: &Result<T, E>) -> Self {
        if outcome.is_ok() {
            return self;
        }
        Self {
            cache: self.cache,
            unsettled: self.unsettled,
            ..Self::default()
        }
    }

    /// How long the last check remains valid, as long as the object has the same version and no object of its release
    /// has changed.
    pub(crate) fn holds_for(
        &self,
        version: Option<&str>,
        site: &Site,
        at_most: Duration,
    ) -> Option<Duration> {
        let settled = self.settled.as_ref()?;
        if Some(settled.version.as_str()) != version || !self.looks.are_current(&site.watches) {
            return None;
        }
        at_most.checked_sub(settled.at.elapsed())
    }
}

/// The memories of all objects on one cluster. A pass takes one out and puts it back.
#[derive(Default)]
pub(crate) struct Memories {
    stored: Mutex<Stored>,
    /// The resource versions of objects as their watch last reported them.
    versions: Mutex<HashMap<Key, String>>,
}

#[derive(Default)]
struct Stored {
    memories: HashMap<Key, Memory>,
    /// How often all of them were unsettled: those that passes have taken out are compared with it on their return.
    unsettled: u64,
}

impl Memories {
    pub(crate) fn take(&self, key: &Key) -> Memory {
        let mut stored = lock(&self.stored);
        let memory = stored.memories.remove(key).unwrap_or_default();
        Memory {
            unsettled: stored.unsettled,
            ..memory
        }
    }

    /// Stores it, unless the object was forgotten meanwhile.
    pub(crate) fn put(&self, key: Key, mut memory: Memory) {
        if !self.knows(&key) {
            return;
        }
        let mut stored = lock(&self.stored);
        if memory.unsettled != stored.unsettled {
            memory.unsettle();
        }
        stored.memories.insert(key, memory);
    }

    /// Makes the next pass over every object a full one, also over those with a pass in flight.
    pub(crate) fn unsettle(&self) {
        let mut stored = lock(&self.stored);
        stored.unsettled += 1;
        stored.memories.values_mut().for_each(Memory::unsettle);
    }

    pub(crate) fn forget(&self, key: &Key) {
        lock(&self.stored).memories.remove(key);
        lock(&self.versions).remove(key);
    }

    /// Notes the version of an object.
    pub(crate) fn saw(&self, key: Key, version: String) {
        lock(&self.versions).insert(key, version);
    }

    /// The last known version of an object.
    pub(crate) fn version(&self, key: &Key) -> Option<String> {
        lock(&self.versions).get(key).cloned()
    }

    /// True if the object is known.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        lock(&self.versions).contains_key(key)
    }

    /// The number of known objects.
    pub(crate) fn number(&self) -> usize {
        lock(&self.versions).len()
    }

    /// The known objects.
    pub(crate) fn keys(&self) -> Vec<Key> {
        lock(&self.versions).keys().cloned().collect()
    }
}

/// The objects whose releases are watched, by the UID in the labels of the releases' objects.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashMap<String, Key>>);

impl Owners {
    pub(crate) fn note(&self, subject: &Subject) {
        let mut owners = lock(&self.0);
        if owners.get(&subject.uid) != Some(&subject.key) {
            owners.insert(subject.uid.clone(), subject.key.clone());
        }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Key> {
        lock(&self.0).get(uid).cloned()
    }

    /// Forgets an object, and returns its UIDs.
    pub(crate) fn forget(&self, key: &Key) -> Vec<String> {
        let mut owners = lock(&self.0);
        let uids: Vec<String> = owners
            .iter()
            .filter(|(_, owner)| *owner == key)
            .map(|(uid, _)| uid.clone())
            .collect();
        owners.retain(|_, owner| owner != key);
        uids
    }
}

impl Site {
    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        for uid in self.owners.forget(key) {
            self.watches.leave(&uid);
        }
        self.memories.forget(key);
        self.claims.forget(&self.server, key, &self.name);
        self.queue.forget(key);
        self.backoff.succeeded(key);
        self.metrics.at(&self.name, key, None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Kind;

    #[test]
    fn a_pass_in_flight_does_not_settle_what_was_unsettled_meanwhile() {
        let memories = Memories::default();
        let key = Key {
            kind: Kind::Tenant,
            namespace: "teams".to_owned(),
            name: "acme".to_owned(),
        };
        memories.saw(key.clone(), "1".to_owned());
        let settle = |meanwhile: &dyn Fn()| {
            let mut memory = memories.take(&key);
            meanwhile();
            memory.settle(Some("1"));
            memories.put(key.clone(), memory);
            memories.take(&key).settled.is_some()
        };
        assert!(settle(&|| {}));
        assert!(!settle(&|| memories.unsettle()));
        assert!(settle(&|| {}));
    }
}
