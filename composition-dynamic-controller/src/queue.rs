//! Which object is worked on next: the most urgent first, each once, and never by two workers at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How urgent a look at an object is. The reference's numbers are -100, 0 and 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Priority {
    /// It may be as it should be: it was seen for the first time, or a while ago.
    Low,
    /// Something about it, or below it, moved.
    Normal,
    /// Somebody wants it otherwise, or gone.
    High,
}

/// Objects that wait for a worker, by key. Shared by who finds work and who does it.
///
/// An object that is added while a worker has it is worked on once more afterwards.
pub(crate) struct Queue<K> {
    state: Mutex<State<K>>,
    more: Notify,
}

/// Where an object stands in a line: what comes first is taken first.
type Place<P> = (P, u64);

struct State<K> {
    /// To be worked on now.
    ready: BTreeMap<Place<Reverse<Priority>>, (K, Instant)>,
    ready_places: HashMap<K, Place<Reverse<Priority>>>,
    /// To be worked on at some time.
    later: BTreeMap<Place<Instant>, (K, Priority)>,
    later_places: HashMap<K, Place<Instant>>,
    /// With a worker, and how urgent a further look is, if one is wanted.
    busy: HashMap<K, Option<Priority>>,
    arrivals: u64,
    /// How many wishes there were.
    added: u64,
}

/// One object, handed to a worker.
#[derive(Debug)]
pub(crate) struct Taken<K> {
    pub(crate) key: K,
    /// How long it was ready before a worker was free.
    pub(crate) waited: Duration,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                ready: BTreeMap::new(),
                ready_places: HashMap::new(),
                later: BTreeMap::new(),
                later_places: HashMap::new(),
                busy: HashMap::new(),
                arrivals: 0,
                added: 0,
            }),
            more: Notify::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Queue<K> {
    /// Wants a look at an object now. The more urgent of two wishes holds.
    pub(crate) fn add(&self, key: K, priority: Priority) {
        self.lock().add(key, priority);
        self.more.notify_one();
    }

    /// Wants a look at an object after a while, instead of an earlier such wish.
    pub(crate) fn add_later(&self, key: K, priority: Priority, after: Duration) {
        self.lock().add_later(key, priority, Instant::now() + after);
        self.more.notify_one();
    }

    /// Drops all wishes about an object that is gone, or another's.
    pub(crate) fn forget(&self, key: &K) {
        self.lock().forget(key);
    }

    /// How many objects are ready and wait for a worker.
    pub(crate) fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    /// How many wishes for a look there were so far.
    pub(crate) fn added(&self) -> u64 {
        self.lock().added
    }

    /// Waits for the most urgent object that no worker has. [`Queue::done`] gives it back.
    pub(crate) async fn take(&self) -> Taken<K> {
        loop {
            let more = self.more.notified();
            let next = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some(taken) = state.take(Instant::now()) {
                    if !state.ready.is_empty() {
                        self.more.notify_one();
                    }
                    return taken;
                }
                state.next_due()
            };
            match next {
                Some(due) => {
                    tokio::select! {
                        () = more => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                None => more.await,
            }
        }
    }

    /// A worker is through with an object.
    pub(crate) fn done(&self, key: &K) {
        self.lock().done(key);
        self.more.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone> State<K> {
    fn add(&mut self, key: K, priority: Priority) {
        self.added += 1;
        if let Some(again) = self.busy.get_mut(&key) {
            *again = Some(again.map_or(priority, |wanted| wanted.max(priority)));
            return;
        }
        let mut since = Instant::now();
        if let Some(place) = self.ready_places.get(&key).copied() {
            if place.0.0 >= priority {
                return;
            }
            if let Some((_, earlier)) = self.ready.remove(&place) {
                since = earlier;
            }
        }
        let place = (Reverse(priority), self.arrival());
        self.ready_places.insert(key.clone(), place);
        self.ready.insert(place, (key, since));
    }

    fn add_later(&mut self, key: K, priority: Priority, due: Instant) {
        self.drop_later(&key);
        let place = (due, self.arrival());
        self.later_places.insert(key.clone(), place);
        self.later.insert(place, (key, priority));
    }

    fn forget(&mut self, key: &K) {
        self.drop_later(key);
        if let Some(place) = self.ready_places.remove(key) {
            self.ready.remove(&place);
        }
        if let Some(again) = self.busy.get_mut(key) {
            *again = None;
        }
    }

    fn drop_later(&mut self, key: &K) {
        if let Some(place) = self.later_places.remove(key) {
            self.later.remove(&place);
        }
    }

    /// Moves what has become due to what is ready.
    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let (key, priority) = entry.remove();
            self.later_places.remove(&key);
            self.add(key, priority);
        }
    }

    fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let (_, (key, since)) = self.ready.pop_first()?;
        self.ready_places.remove(&key);
        // The pass that begins now decides when the next one is due.
        self.drop_later(&key);
        self.busy.insert(key.clone(), None);
        Some(Taken {
            key,
            waited: now.saturating_duration_since(since),
        })
    }

    fn done(&mut self, key: &K) {
        if let Some(Some(priority)) = self.busy.remove(key) {
            self.add(key.clone(), priority);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn now(queue: &Queue<&'static str>) -> Option<&'static str> {
        queue.take().now_or_never().map(|taken| taken.key)
    }

    #[tokio::test]
    async fn the_most_urgent_is_taken_first_and_each_once() {
        let queue = Queue::default();
        for (key, priority) in [
            ("resync", Priority::Low),
            ("moved", Priority::Normal),
            ("changed", Priority::High),
            ("resync", Priority::Low),
            ("other", Priority::Low),
        ] {
            queue.add(key, priority);
        }
        assert_eq!(queue.depth(), 4);
        let order: Vec<_> = std::iter::from_fn(|| now(&queue)).collect();
        assert_eq!(order, ["changed", "moved", "resync", "other"]);
    }

    #[tokio::test]
    async fn a_more_urgent_wish_overtakes() {
        let queue = Queue::default();
        queue.add("a", Priority::Low);
        queue.add("b", Priority::Low);
        queue.add("b", Priority::High);
        assert_eq!(
            (now(&queue), now(&queue), now(&queue)),
            (Some("b"), Some("a"), None)
        );
    }

    #[tokio::test]
    async fn no_two_workers_have_the_same_object() {
        let queue = Queue::default();
        queue.add("a", Priority::Low);
        assert_eq!(now(&queue), Some("a"));
        queue.add("a", Priority::High);
        assert_eq!(now(&queue), None);
        queue.done(&"a");
        assert_eq!(now(&queue), Some("a"));
        queue.done(&"a");
        assert_eq!(now(&queue), None);
    }

    #[test]
    fn a_later_look_comes_when_it_is_due_and_a_pass_replaces_it() {
        let queue = Queue::default();
        let mut state = queue.lock();
        let begun = Instant::now();
        let due = begun + Duration::from_mins(3);
        let take = |state: &mut State<_>, now| {
            state.promote(now);
            state.take(now).map(|taken| taken.key)
        };
        state.add_later("a", Priority::Low, due);
        assert_eq!(take(&mut state, begun), None);
        assert_eq!(state.next_due(), Some(due));
        assert_eq!(take(&mut state, due), Some("a"));
        state.done(&"a");

        let due = due + Duration::from_mins(3);
        state.add_later("a", Priority::Low, due);
        state.add("a", Priority::High);
        assert_eq!(take(&mut state, begun), Some("a"));
        state.done(&"a");
        assert_eq!(take(&mut state, due), None);
    }

    #[tokio::test]
    async fn what_is_forgotten_is_not_worked_on() {
        let queue = Queue::default();
        queue.add("a", Priority::High);
        queue.add_later("b", Priority::Low, Duration::ZERO);
        queue.forget(&"a");
        queue.forget(&"b");
        assert_eq!(now(&queue), None);
    }

    #[tokio::test]
    async fn every_waiting_worker_gets_one() {
        let queue = std::sync::Arc::new(Queue::default());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take().await.key })
            })
            .collect();
        tokio::task::yield_now().await;
        for key in ["a", "b", "c"] {
            queue.add(key, Priority::Low);
        }
        let mut taken = futures::future::try_join_all(workers).await.unwrap();
        taken.sort_unstable();
        assert_eq!(taken, ["a", "b", "c"]);
    }
}
