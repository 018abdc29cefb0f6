//! Which group's turn it is: the order in which work of several groups gets workers, so that none starves the others.
//!
//! The group with the fewest objects being worked on comes first; within a group, parked work whose wait is over, then
//! the more urgent, then the older. No group gets all workers, unless there is only one. Parked work has no worker but
//! uses memory: a group may have as many parked passes as there are free parking places, and [`PARKED_IN_ANY_CASE`]
//! always.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use super::Priority;

/// What is grouped: objects, by namespace.
pub trait Grouped {
    /// The name of its group.
    fn group(&self) -> &str;
}

/// The position in its line of work that has not begun.
pub(super) type Position = (Reverse<Priority>, u64);

/// What gets the free worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<K> {
    /// Work that has not begun, wanted since then.
    Begin(K, Instant),
    /// Parked work whose wait is over.
    Return(K),
}

/// Parked passes per worker, of all groups together.
const PARKED_PER_WORKER: usize = 8;

/// Parked passes that a group may always have, even if other groups have used up all parking places.
const PARKED_IN_ANY_CASE: usize = 4;

/// How many objects are worked on at once.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    workers: usize,
}

impl Capacity {
    /// With this many workers; 0 counts as 1.
    pub fn of(workers: u16) -> Self {
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

    /// How many passes can be in flight at once, parked ones included, if no group has more than its share.
    pub fn under_way(self) -> usize {
        self.workers + self.parked()
    }
}

/// The lines of all groups.
pub(super) struct Lines<K> {
    capacity: Capacity,
    groups: HashMap<String, Line<K>>,
    /// The groups that have work and may get another worker, the next one first.
    turns: BTreeSet<(Turn, String)>,
    running: usize,
    parked: usize,
    /// True once nothing new may begin and work that has begun is being finished.
    closed: bool,
}

/// How many objects of a group are worked on, and what is next in its line.
type Turn = (usize, Head);

/// The first entry of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Head {
    /// Parked work whose wait is over, and its number in the order of arrival.
    Return(u64),
    Begin(Position),
}

struct Line<K> {
    /// Parked work whose wait is over, in order of arrival.
    returning: VecDeque<(u64, K)>,
    ready: BTreeMap<Position, (K, Instant)>,
    running: usize,
    parked: usize,
    turn: Option<Turn>,
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            returning: VecDeque::new(),
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
            closed: false,
        }
    }

    /// Nothing begins from now on; work that has begun and waits for a worker still gets one.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// True if no group has work for another worker.
    pub(super) fn nobody_is_next(&self) -> bool {
        self.turns.is_empty()
    }

    /// Inserts a key at a position; `since` is when it was first wanted.
    pub(super) fn insert(&mut self, position: Position, key: K, since: Instant) {
        let group = key.group().to_owned();
        self.change(&group, |line| line.ready.insert(position, (key, since)));
    }

    /// Removes a key of a group from its position.
    pub(super) fn remove(&mut self, group: &str, position: &Position) -> Option<(K, Instant)> {
        self.change(group, |line| line.ready.remove(position))
    }

    /// The next work, which has a worker from now on; none while all workers are busy.
    pub(super) fn next(&mut self) -> Option<Next<K>> {
        let (head, group) = self.first()?;
        match head {
            Head::Begin(_) => self.begin(&group),
            Head::Return(_) => self.go_on(&group),
        }
    }

    /// The same, but none if the next is work that has not begun.
    pub(super) fn next_to_return(&mut self) -> Option<Next<K>> {
        match self.first()? {
            (Head::Begin(_), _) => None,
            (Head::Return(_), group) => self.go_on(&group),
        }
    }

    fn first(&self) -> Option<(Head, String)> {
        if self.running >= self.capacity.workers {
            return None;
        }
        let left = self.capacity.parked().saturating_sub(self.parked);
        let may_park = left.max(PARKED_IN_ANY_CASE);
        let may_have_worker = |((_, head), group): &&(Turn, String)| match head {
            Head::Return(_) => true,
            Head::Begin(_) => {
                !self.closed && self.groups.get(group).is_some_and(|line| line.parked < may_park)
            }
        };
        let ((_, head), group) = self.turns.iter().find(may_have_worker)?;
        Some((*head, group.clone()))
    }

    fn begin(&mut self, group: &str) -> Option<Next<K>> {
        self.running += 1;
        self.change(group, |line| {
            line.running += 1;
            let (_, (key, since)) = line.ready.pop_first()?;
            Some(Next::Begin(key, since))
        })
    }

    fn go_on(&mut self, group: &str) -> Option<Next<K>> {
        self.running += 1;
        self.parked = self.parked.saturating_sub(1);
        self.change(group, |line| {
            line.running += 1;
            line.parked = line.parked.saturating_sub(1);
            line.returning.pop_front().map(|(_, key)| Next::Return(key))
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

    /// The wait of parked work is over: it queues for a worker.
    pub(super) fn line_up_again(&mut self, arrival: u64, key: K) {
        let group = key.group().to_owned();
        self.change(&group, |line| line.returning.push_back((arrival, key)));
    }

    /// Work of a group that had a worker has ended.
    pub(super) fn end(&mut self, group: &str) {
        self.running = self.running.saturating_sub(1);
        self.change(group, |line| line.running = line.running.saturating_sub(1));
    }

    /// Parked work has ended, whether it was queued again or not.
    pub(super) fn end_parked(&mut self, key: &K)
    where
        K: PartialEq,
    {
        self.parked = self.parked.saturating_sub(1);
        self.change(key.group(), |line| {
            line.parked = line.parked.saturating_sub(1);
            line.returning.retain(|(_, returning)| returning != key);
        });
    }

    fn change<T>(&mut self, group: &str, change: impl FnOnce(&mut Line<K>) -> T) -> T {
        let line = self.groups.entry(group.to_owned()).or_default();
        let changed = change(line);
        let may_have_more = line.running < self.capacity.of_group();
        let returns = line.returning.front().map(|(arrival, _)| Head::Return(*arrival));
        let begins = || line.ready.first_key_value().map(|(at, _)| Head::Begin(*at));
        let next = returns.or_else(begins).filter(|_| may_have_more);
        let turn = next.map(|head| (line.running, head));
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
