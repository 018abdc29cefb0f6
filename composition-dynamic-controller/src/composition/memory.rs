//! What passes over a composition remember, so that the next one does not ask again.
//!
//! Nothing is decided on memory that a write could make wrong: whatever fails wipes it, and a full look comes now
//! and then all the same.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::Composition;
use api::inspection::Resource;
use composition::permissions::Grant;
use helm_client::records;
use kube::ResourceExt as _;
use runtime::{Looks, Watches};

use super::held::HELD;
use super::origin::Source;
use crate::compositions::Key;
use crate::lookups::Moment;

/// What is remembered of one composition.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What chart-inspector answered, and a digest of what it was asked.
    pub(super) inspected: Option<(u64, Vec<Resource>)>,
    /// The permissions that are there, as they were read or written last.
    pub(super) granted: Option<Vec<Grant>>,
    /// Objects as they were looked at last.
    pub(super) objects: Looks,
    /// The release's records while a turn lasts, as they were read or as our own writes left them.
    pub(super) records: Option<records::Observed>,
    /// When this process wrote the release last.
    pub(super) released: Option<Instant>,
    /// Set when a turn ended with records that the next one may begin with.
    pub(super) left: Option<Left>,
    /// Set when a pass found nothing to do.
    pub(super) settled: Option<Settled>,
}

/// With what a turn ended.
#[derive(Debug)]
pub(super) struct Left {
    inputs: u64,
    at: Instant,
}

/// What a pass that found nothing to do was made from.
#[derive(Debug)]
pub(super) struct Settled {
    inputs: u64,
    at: Instant,
    /// When the chart's lookups were answered that are watched.
    answered: Option<Moment>,
}

/// As long as the records of a turn are good for a look at objects that come up after it.
const RECORDS_LEFT: Duration = Duration::from_secs(5);

impl Memory {
    /// Leaves the records to the next turn, which follows as soon as an object has come up. It must not act by them:
    /// others may write some in between.
    pub(super) fn leave_records(&mut self, inputs: u64) {
        self.left = Some(Left {
            inputs,
            at: Instant::now(),
        });
    }

    /// Drops records of an earlier turn that are old, or of another composition than there is now.
    pub(super) fn recall_records(&mut self, inputs: u64) {
        if let Some(left) = &self.left
            && (left.inputs != inputs || left.at.elapsed() > RECORDS_LEFT)
        {
            self.left = None;
            self.records = None;
        }
    }

    /// How long the status may still wait for objects to come up, for `at_most` after the release was written.
    pub(super) fn until_told(&self, at_most: Duration) -> Option<Duration> {
        at_most.checked_sub(self.released?.elapsed())
    }

    /// Notes that nothing was left to do.
    pub(super) fn settle(&mut self, inputs: u64, answered: Option<Moment>) {
        self.settled = Some(Settled {
            inputs,
            at: Instant::now(),
            answered,
        });
    }

    /// True while all that the last pass saw is as it was, and that pass is younger than `max_age`; `is_unmoved` says whether
    /// nothing of what the chart looked up has moved since then.
    ///
    /// Secrets are not watched, so they are compared when `max_age` is over.
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

/// A digest of what a pass is made from: the composition without its status, and the chart that the definition
/// names. What else the definition says of itself, as how many compositions it has, is no reason to look.
///
/// `told` is that of the composition's labels and annotations ([`crate::compositions::told`]), of which not all may be kept
/// between passes.
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

/// The memories of all compositions. A pass takes one out and puts it back.
#[derive(Default)]
pub(crate) struct Memories(Mutex<HashMap<Key, Memory>>);

impl Memories {
    pub(super) fn take(&self, key: &Key) -> Memory {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.remove(key).unwrap_or_default()
    }

    pub(super) fn put(&self, key: Key, mut memory: Memory) {
        // Others may write some before the next turn, which may be long after.
        let is_little = |records: &records::Observed| records.holds_at_most(HELD);
        memory.records = memory
            .records
            .filter(|records| memory.left.is_some() && is_little(records));
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memories.insert(key, memory);
    }

    /// Drops what is remembered of a composition that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.take(key);
    }
}
