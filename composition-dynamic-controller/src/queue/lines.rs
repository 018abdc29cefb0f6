//! Whose turn it is: work of several groups, in an order in which no group keeps the others waiting.
//!
//! The group of which the fewest are worked on comes first, then the more urgent work, then the earlier one. A group never
//! has all workers, unless there is one: where several groups have all of them, the next that is free goes to the group that
//! has the fewest. What is parked has no worker, but takes memory: the parked work of one group is never more than what could
//! still be parked, except for a few passes that every group may have.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::Instant;

use super::Priority;

/// What waits as one: the objects of a namespace.
pub(crate) trait Grouped {
    /// The name of its group.
    fn group(&self) -> &str;
}

/// Where something stands in its line.
pub(super) type Place = (Reverse<Priority>, u64);

/// Parked passes for each worker, of all groups together.
const PARKED_PER_WORKER: usize = 8;

/// Parked passes that a group may have although others have parked all that may be parked.
const PARKED_IN_ANY_CASE: usize = 4;

/// How many objects are worked on at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    workers: usize,
}

impl Capacity {
    /// With so many workers; none counts as one.
    pub(crate) fn of(workers: u16) -> Self {
        Self {
            workers: usize::from(workers).max(1),
        }
    }

    /// The workers that one group may have: three quarters, rounded down, so that others find one.
    fn of_group(self) -> usize {
        (self.workers * 3 / 4).max(1)
    }

    fn parked(self) -> usize {
        self.workers * PARKED_PER_WORKER
    }
}

/// The lines of all groups.
pub(super) struct Lines<K> {
    capacity: Capacity,
    groups: HashMap<String, Line<K>>,
    /// The groups that have work and a worker left, the next one first.
    turns: BTreeSet<(Turn, String)>,
    running: usize,
    parked: usize,
}

/// How many of a group are worked on, and the place of what is next.
type Turn = (usize, Place);

struct Line<K> {
    ready: BTreeMap<Place, (K, Instant)>,
    running: usize,
    parked: usize,
    turn: Option<Turn>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            ready: BTreeMap::new(),
            running: 0,
            parked: 0,
            turn: None,
        }
    }
}

impl<K: Grouped> Lines<K> {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            groups: HashMap::new(),
            turns: BTreeSet::new(),
            running: 0,
            parked: 0,
        }
    }

    /// True when nothing is ready of a group that may have another worker.
    pub(super) fn nothing_may_begin(&self) -> bool {
        self.turns.is_empty()
    }

    /// Puts a key at a place, wanted since then.
    pub(super) fn insert(&mut self, place: Place, key: K, since: Instant) {
        let group = key.group().to_owned();
        self.change(&group, |line| line.ready.insert(place, (key, since)));
    }

    /// Takes a key of a group out of its place.
    pub(super) fn remove(&mut self, group: &str, place: &Place) -> Option<(K, Instant)> {
        self.change(group, |line| line.ready.remove(place))
    }

    /// What is next, which has a worker from now on; none while all have something to do.
    pub(super) fn begin(&mut self) -> Option<(K, Instant)> {
        if self.running >= self.capacity.workers {
            return None;
        }
        let left = self.capacity.parked().saturating_sub(self.parked);
        let may_park = left.max(PARKED_IN_ANY_CASE);
        let may_begin =
            |(_, group): &&(Turn, String)| self.groups.get(group).is_some_and(|line| line.parked < may_park);
        let group = self.turns.iter().find(may_begin)?.1.clone();
        self.running += 1;
        self.change(&group, |line| {
            line.running += 1;
            line.ready.pop_first().map(|(_, taken)| taken)
        })
    }

    /// Work of a group waits without a worker.
    pub(super) fn park(&mut self, group: &str) {
        self.running = self.running.saturating_sub(1);
        self.parked += 1;
        self.change(group, |line| {
            line.running = line.running.saturating_sub(1);
            line.parked += 1;
        });
    }

    /// Gives parked work of a group a worker again; false when it has to wait for one.
    pub(super) fn unpark(&mut self, group: &str) -> bool {
        let has_worker = self.running < self.capacity.workers
            && self
                .groups
                .get(group)
                .is_none_or(|line| line.running < self.capacity.of_group());
        if has_worker {
            self.running += 1;
            self.parked = self.parked.saturating_sub(1);
            self.change(group, |line| {
                line.running += 1;
                line.parked = line.parked.saturating_sub(1);
            });
        }
        has_worker
    }

    /// Work of a group that had a worker has ended.
    pub(super) fn end(&mut self, group: &str) {
        self.running = self.running.saturating_sub(1);
        self.change(group, |line| line.running = line.running.saturating_sub(1));
    }

    /// Work of a group that was parked has ended.
    pub(super) fn end_parked(&mut self, group: &str) {
        self.parked = self.parked.saturating_sub(1);
        self.change(group, |line| line.parked = line.parked.saturating_sub(1));
    }

    fn change<T>(&mut self, group: &str, change: impl FnOnce(&mut Line<K>) -> T) -> T {
        let line = self.groups.entry(group.to_owned()).or_default();
        let changed = change(line);
        let may_have_more = line.running < self.capacity.of_group();
        let next = line.ready.first_key_value().filter(|_| may_have_more);
        let turn = next.map(|(place, _)| (line.running, *place));
        if turn != line.turn {
            if let Some(former) = line.turn.take() {
                self.turns.remove(&(former, group.to_owned()));
            }
            if let Some(turn) = turn {
                self.turns.insert((turn, group.to_owned()));
            }
            line.turn = turn;
        }
        if line.ready.is_empty() && line.running == 0 && line.parked == 0 {
            self.groups.remove(group);
        }
        changed
    }
}
