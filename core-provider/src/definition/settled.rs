//! Tracks definitions for which nothing has to be read: those in their desired state, and those whose controller is
//! starting.
//!
//! Every object of every bundle is watched, by its labels. As long as none of them changes, and the definition does not
//! either, reading them again would show nothing new.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::CompositionDefinition;
use cluster::Cluster;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use super::admission::{self, Probe};

type Key = ObjectRef<CompositionDefinition>;

/// What is remembered about definitions.
#[derive(Default)]
pub(crate) struct Settled {
    entries: Mutex<HashMap<Key, Entry>>,
}

#[derive(Default)]
struct Entry {
    /// The number of changes seen.
    changes: u64,
    settled: Option<SettledDefinition>,
}

struct SettledDefinition {
    since: Instant,
    inputs: u64,
    plural: String,
    reason: SettledReason,
}

/// Why nothing has to be read for a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettledReason {
    /// It is in its desired state.
    Ready,
    /// Its controller is starting, which the watch reports. New objects of the type may not pass admission yet, which
    /// has to be polled.
    Starting { unadmitted: Option<Probe> },
}

/// A definition that rests, and since when.
pub(super) struct Resting {
    reason: SettledReason,
    waited: Duration,
}

impl Resting {
    /// How long nothing has to be read; `None` when it is time for a full pass.
    pub(super) async fn pause(
        &self,
        cluster: &Cluster,
        poll_interval: Duration,
    ) -> Result<Option<Duration>, cluster::Error> {
        match &self.reason {
            SettledReason::Starting {
                unadmitted: Some(probe),
            } if probe.passes(cluster).await? => Ok(None),
            reason => Ok(Some(reason.pause(self.waited, poll_interval))),
        }
    }
}

impl SettledReason {
    /// The pause until the next check, after waiting for `waited` already.
    pub(super) fn pause(&self, waited: Duration, poll_interval: Duration) -> Duration {
        match self {
            Self::Ready | Self::Starting { unadmitted: None } => poll_interval,
            Self::Starting { unadmitted: Some(_) } => admission::pause(waited),
        }
    }
}

/// The number of changes at the start of a pass.
#[derive(Clone, Copy)]
pub(super) struct Beginning(u64);

impl Settled {
    /// Why nothing has to be read, as a pass at most `sync` ago found, if nothing has changed since.
    pub(super) fn resting(&self, key: &Key, inputs: u64, sync: Duration) -> Option<Resting> {
        let entries = self.entries();
        let settled = entries.get(key).and_then(|entry| entry.settled.as_ref())?;
        let waited = settled.since.elapsed();
        (settled.inputs == inputs && waited < sync).then(|| Resting {
            reason: settled.reason.clone(),
            waited,
        })
    }

    /// A pass begins; it may not see changes from now on.
    pub(super) fn begin(&self, key: &Key) -> Beginning {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone()).or_default();
        entry.settled = None;
        Beginning(entry.changes)
    }

    /// Records that the pass found that the definition may rest. `plural` names its type.
    pub(super) fn note(&self, key: &Key, began: Beginning, inputs: u64, plural: &str, reason: SettledReason) {
        if let Some(entry) = self.entries().get_mut(key)
            && entry.changes == began.0
        {
            entry.settled = Some(SettledDefinition {
                since: Instant::now(),
                inputs,
                plural: plural.to_owned(),
                reason,
            });
        }
    }

    /// Something about the definition has changed.
    pub(crate) fn forget(&self, key: &Key) {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone()).or_default();
        entry.changes += 1;
        entry.settled = None;
    }

    /// The type has changed: wakes its definitions, and returns them.
    pub(crate) fn forget_type(&self, plural: &str) -> Vec<Key> {
        let is_of = |entry: &Entry| entry.settled.as_ref().is_some_and(|state| state.plural == plural);
        let keys: Vec<_> = self
            .entries()
            .iter()
            .filter(|(_, entry)| is_of(entry))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.forget(key);
        }
        keys
    }

    /// The definition is gone.
    pub(super) fn gone(&self, key: &Key) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A digest of what a pass depends on besides watched objects: the definition without its status, and the CA bundle.
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

    fn holds(settled: &Settled, inputs: u64, sync: Duration) -> bool {
        settled.resting(&key(), inputs, sync).is_some()
    }

    #[test]
    fn a_settled_definition_stays_so_until_something_changes() {
        let settled = Settled::default();
        assert!(!holds(&settled, 1, LONG));
        let began = settled.begin(&key());
        settled.note(&key(), began, 1, "webs", SettledReason::Ready);
        assert!(holds(&settled, 1, LONG));
        assert!(!holds(&settled, 2, LONG), "another spec");
        assert!(!holds(&settled, 1, Duration::ZERO), "too long ago");
        assert_eq!(settled.forget_type("webs"), [key()]);
        assert!(!holds(&settled, 1, LONG));
    }

    #[test]
    fn a_change_during_a_pass_causes_another() {
        let settled = Settled::default();
        let began = settled.begin(&key());
        settled.forget(&key());
        settled.note(&key(), began, 1, "webs", SettledReason::Ready);
        assert!(!holds(&settled, 1, LONG));
    }

    #[test]
    fn while_a_controller_starts_only_admission_is_asked_again() {
        let poll = Duration::from_mins(5);
        let probe = Probe {
            resource: cluster::ResourceId::of::<k8s_openapi::api::core::v1::ConfigMap>(),
            namespace: "defs".into(),
        };
        let known = SettledReason::Starting { unadmitted: None };
        let unknown = SettledReason::Starting {
            unadmitted: Some(probe),
        };
        assert_eq!(known.pause(Duration::ZERO, poll), poll);
        assert!(unknown.pause(Duration::ZERO, poll) < Duration::from_secs(1));
    }
}
