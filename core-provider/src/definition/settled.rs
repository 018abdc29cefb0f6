//! Which definitions are as they should be, so that a poll needs no look at the cluster.
//!
//! Every object of every bundle is watched, by its labels. As long as none of them changes, nor the definition, there
//! is nothing to be seen that was not seen before.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::CompositionDefinition;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

type Key = ObjectRef<CompositionDefinition>;

/// What is remembered of definitions.
#[derive(Default)]
pub(crate) struct Settled {
    known: Mutex<HashMap<Key, Known>>,
}

#[derive(Default)]
struct Known {
    /// How often something changed.
    changes: u64,
    settled: Option<State>,
}

struct State {
    since: Instant,
    inputs: u64,
    plural: String,
}

/// The moment at which a pass began.
#[derive(Clone, Copy)]
pub(super) struct Beginning(u64);

impl Settled {
    /// True when the definition was as it should be at most `sync` ago, and nothing changed since.
    pub(super) fn holds(&self, key: &Key, inputs: u64, sync: Duration) -> bool {
        let known = self.known();
        let state = known.get(key).and_then(|known| known.settled.as_ref());
        state.is_some_and(|state| state.inputs == inputs && state.since.elapsed() < sync)
    }

    /// A pass begins: what changes from now on, it may not see.
    pub(super) fn begin(&self, key: &Key) -> Beginning {
        let mut known = self.known();
        let known = known.entry(key.clone()).or_default();
        known.settled = None;
        Beginning(known.changes)
    }

    /// The pass found the definition as it should be, and its type's name is this.
    pub(super) fn note(&self, key: &Key, began: Beginning, inputs: u64, plural: &str) {
        if let Some(known) = self.known().get_mut(key)
            && known.changes == began.0
        {
            known.settled = Some(State {
                since: Instant::now(),
                inputs,
                plural: plural.to_owned(),
            });
        }
    }

    /// Something of the definition changed.
    pub(crate) fn forget(&self, key: &Key) {
        let mut known = self.known();
        let known = known.entry(key.clone()).or_default();
        known.changes += 1;
        known.settled = None;
    }

    /// The type changed: whose it is has to look again.
    pub(crate) fn forget_type(&self, plural: &str) -> Vec<Key> {
        let is_of = |known: &Known| known.settled.as_ref().is_some_and(|state| state.plural == plural);
        let keys: Vec<_> = self
            .known()
            .iter()
            .filter(|(_, known)| is_of(known))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.forget(key);
        }
        keys
    }

    /// The definition is gone.
    pub(super) fn gone(&self, key: &Key) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pass depends on, apart from what is watched: the definition without its status, and whom callers trust.
pub(super) fn inputs(definition: &CompositionDefinition, trusted: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = &definition.metadata;
    (
        metadata.generation,
        definition.annotations(),
        definition.finalizers(),
        metadata.deletion_timestamp.is_some(),
        trusted,
    )
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn key() -> Key {
        ObjectRef::new("web").within("defs")
    }

    #[test]
    fn a_settled_definition_stays_so_until_something_changes() {
        let settled = Settled::default();
        assert!(!settled.holds(&key(), 1, LONG));
        let began = settled.begin(&key());
        settled.note(&key(), began, 1, "webs");
        assert!(settled.holds(&key(), 1, LONG));
        assert!(!settled.holds(&key(), 2, LONG), "another spec");
        assert!(!settled.holds(&key(), 1, Duration::ZERO), "too long ago");
        assert_eq!(settled.forget_type("webs"), [key()]);
        assert!(!settled.holds(&key(), 1, LONG));
    }

    #[test]
    fn what_changes_during_a_pass_is_looked_at_by_the_next() {
        let settled = Settled::default();
        let began = settled.begin(&key());
        settled.forget(&key());
        settled.note(&key(), began, 1, "webs");
        assert!(!settled.holds(&key(), 1, LONG));
    }
}
