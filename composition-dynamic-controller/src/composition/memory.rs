//! What a pass over a composition remembers, so that the next one need not ask again.
//!
//! Nothing is decided on memory that a write could make stale: any failure drops it, except for the cache of objects,
//! which says itself when it is stale, and a full comparison runs from time to time anyway.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::Composition;
use api::inspection::Resource;
use composition::permissions::Grant;
use helm_client::records;
use helm_client::release::drift::ObjectCache;
use kube::ResourceExt as _;
use runtime::{Looks, Watches};

use super::held::HELD;
use super::origin::Source;
use super::packed::Packed;
use crate::compositions::Key;
use crate::lookups::Moment;

/// What is remembered of one composition.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The UID of the composition.
    uid: Option<Box<str>>,
    /// What is known about the objects of its release since they were last applied or compared.
    pub(super) cache: Arc<ObjectCache>,
    /// What chart-inspector answered, and a digest of what it was asked.
    pub(super) inspected: Option<(u64, Packed<Resource>)>,
    /// A digest of the last render of which was determined what values chose.
    pub(super) judged: Option<String>,
    /// The granted permissions as last read or written.
    pub(super) granted: Option<Packed<Grant>>,
    /// Objects as last seen.
    pub(super) objects: Looks,
    /// The release's records during a turn, as they were read or as our own writes left them.
    pub(super) records: Option<Box<records::Observed>>,
    /// When this process last wrote the release.
    pub(super) released: Option<Instant>,
    /// Set when a turn ended with records that the next one may start from.
    pub(super) left: Option<Left>,
    /// Set when a pass found nothing to do.
    pub(super) settled: Option<Settled>,
}

/// When a turn left its records, and for which inputs.
#[derive(Debug)]
pub(super) struct Left {
    inputs: u64,
    at: Instant,
}

/// The inputs of a pass that found nothing to do.
#[derive(Debug)]
pub(super) struct Settled {
    inputs: u64,
    at: Instant,
    /// When the watched lookups of the chart were answered; none if there are none.
    answered: Option<Moment>,
}

/// How long a turn's records may be used to check the objects that become ready after it.
const RECORDS_LEFT: Duration = Duration::from_secs(5);

impl Memory {
    /// Starts anew if it is of another composition of the same name, which is gone.
    pub(super) fn belong_to(&mut self, uid: &str) {
        if self.uid.as_deref() != Some(uid) {
            *self = Self {
                uid: Some(uid.into()),
                ..Self::default()
            };
        }
    }

    /// What is left after a failure.
    pub(super) fn after_failure(self) -> Self {
        Self {
            uid: self.uid,
            cache: self.cache,
            ..Self::default()
        }
    }

    /// Leaves the records to the next turn, which follows as soon as an object becomes ready. That turn must not act on
    /// them, since others may write records in between.
    pub(super) fn leave_records(&mut self, inputs: u64) {
        self.left = Some(Left {
            inputs,
            at: Instant::now(),
        });
    }

    /// Drops the records that an earlier turn left if they are old, or if the inputs have changed.
    pub(super) fn recall_records(&mut self, inputs: u64) {
        if let Some(left) = &self.left
            && (left.inputs != inputs || left.at.elapsed() > RECORDS_LEFT)
        {
            self.left = None;
            self.records = None;
        }
    }

    /// How long the status may still wait for objects to become ready, at most `at_most` after the release was written.
    pub(super) fn until_told(&self, at_most: Duration) -> Option<Duration> {
        at_most.checked_sub(self.released?.elapsed())
    }

    /// Records that nothing was left to do.
    pub(super) fn settle(&mut self, inputs: u64, answered: Option<Moment>) {
        self.settled = Some(Settled {
            inputs,
            at: Instant::now(),
            answered,
        });
    }

    /// True while nothing that the last pass saw has changed, and that pass is younger than `max_age`. `is_unmoved`
    /// tells whether nothing that the chart looked up has changed since a moment.
    ///
    /// Secrets are not watched; they are compared when `max_age` is over.
    pub(super) fn is_settled(
        &self,
        inputs: u64,
        watches: &Watches<Key>,
        is_unmoved: impl Fn(Moment) -> bool,
        max_age: Duration,
    ) -> bool {
        self.settled.as_ref().is_some_and(|settled| {
            settled.inputs == inputs
                && settled.at.elapsed() < max_age
                && settled.answered.is_none_or(is_unmoved)
        }) && self.objects.are_current(watches)
    }
}

/// A digest of the inputs of a pass: the composition without its status, and the chart that the definition names. Other
/// changes of the definition, such as the number of its compositions, cause no pass.
///
/// `told` is the digest of the composition's labels and annotations ([`crate::compositions::told`]), some of which may
/// not be kept between passes.
pub(super) fn inputs(composition: &Composition, told: u64, source: Option<&Source>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (
        &composition.uid,
        composition.generation,
        composition.deleting,
        composition.is_held(),
        told,
    )
        .hash(&mut hasher);
    if let Some(Source { chart, definition }) = source {
        let definition = definition.as_ref().and_then(|definition| definition.uid());
        (definition, chart).hash(&mut hasher);
    }
    hasher.finish()
}

/// The memories of all compositions. A turn takes one out and puts it back.
#[derive(Default)]
pub(crate) struct Memories(Mutex<HashMap<Key, Box<Memory>>>);

impl Memories {
    pub(super) fn take(&self, key: &Key) -> Memory {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories
            .remove(key)
            .map_or_else(Memory::default, |memory| *memory)
    }

    pub(super) fn put(&self, key: Key, mut memory: Memory) {
        // Others may write records before the next turn, which may be much later.
        memory.records = memory
            .records
            .filter(|records| memory.left.is_some() && records.holds_at_most(HELD));
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map has empty places as well, which are small in this way.
        memories.insert(key, Box::new(memory));
    }

    pub(crate) fn forget(&self, key: &Key) {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Health, ObjectId};
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[test]
    fn after_a_failure_the_cache_is_left_and_nothing_of_a_former_composition() {
        let looked_at = |mut memory: Memory| {
            let id = ObjectId::of::<ConfigMap>(Some("team"), "a").unwrap();
            let object = json!({"metadata": {"resourceVersion": "1"}});
            memory.objects.look(id, &object, Health::Current);
            memory.settle(0, None);
            memory
        };
        let is_empty = |memory: &Memory| memory.settled.is_none() && memory.objects.not_up().next().is_none();
        let mut memory = Memory::default();
        memory.belong_to("1");
        let mut memory = looked_at(memory);
        let cache = memory.cache.clone();
        memory.belong_to("1");
        assert!(memory.settled.is_some());
        let mut memory = memory.after_failure();
        memory.belong_to("1");
        assert!(is_empty(&memory) && Arc::ptr_eq(&memory.cache, &cache));
        let mut memory = looked_at(memory);
        memory.belong_to("2");
        assert!(is_empty(&memory) && !Arc::ptr_eq(&memory.cache, &cache));
    }
}
