//! Which object is worked on next: the most urgent first, each once, and never by two workers at a time.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::telemetry;
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
    /// With a worker, and how urgent a further look is, if one is wanted, and since when.
    busy: HashMap<K, Option<(Priority, Instant)>>,
    arrivals: u64,
    /// Since when those wait that are ready, or wanted again while a worker has them: how many at each time.
    waiting: BTreeMap<Instant, usize>,
    figures: telemetry::Queue,
}

impl<K> Queue<K> {
    /// An empty queue that tells `figures`.
    pub(crate) fn new(figures: telemetry::Queue) -> Self {
        Self {
            state: Mutex::new(State {
                ready: BTreeMap::new(),
                ready_places: HashMap::new(),
                later: BTreeMap::new(),
                later_places: HashMap::new(),
                busy: HashMap::new(),
                arrivals: 0,
                waiting: BTreeMap::new(),
                figures,
            }),
            more: Notify::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Queue<K> {
    /// Wants a look at an object now. The more urgent of two wishes holds.
    pub(crate) fn add(&self, key: K, priority: Priority) {
        self.lock().add(key, priority, Instant::now());
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

    /// How many objects wait for a worker.
    pub(crate) fn depth(&self) -> usize {
        self.lock().depth(Instant::now())
    }

    /// Waits for the most urgent object that no worker has. [`Queue::done`] gives it back.
    pub(crate) async fn take(&self) -> K {
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
    /// What is wanted since `since`.
    fn add(&mut self, key: K, priority: Priority, since: Instant) {
        if let Some(again) = self.busy.get_mut(&key) {
            if let Some((wanted, _)) = again {
                *wanted = priority.max(*wanted);
            } else {
                *again = Some((priority, since));
                self.comes(since);
            }
            return;
        }
        let since = match self.ready_places.get(&key).copied() {
            Some(place) if place.0.0 >= priority => return,
            Some(place) => self.ready.remove(&place).map_or(since, |(_, earlier)| earlier),
            None => {
                self.comes(since);
                since
            }
        };
        self.line_up(key, priority, since);
    }

    fn line_up(&mut self, key: K, priority: Priority, since: Instant) {
        let place = (Reverse(priority), self.arrival());
        self.ready_places.insert(key.clone(), place);
        self.ready.insert(place, (key, since));
    }

    /// Another one waits.
    fn comes(&mut self, since: Instant) {
        *self.waiting.entry(since).or_default() += 1;
        self.figures.added(self.oldest(Instant::now()));
    }

    /// One of those does not wait any more.
    fn goes(&mut self, since: Instant) {
        if let Entry::Occupied(mut count) = self.waiting.entry(since) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn oldest(&self, now: Instant) -> Duration {
        let first = self.waiting.first_key_value();
        first.map_or(Duration::ZERO, |(since, _)| now.saturating_duration_since(*since))
    }

    /// With those that have become due while no worker was free to see it.
    fn depth(&self, now: Instant) -> usize {
        let is_wanted_anyway =
            |key: &K| self.ready_places.contains_key(key) || self.busy.get(key).is_some_and(Option::is_some);
        let due = self.later.range(..=(now, u64::MAX));
        let due = due.filter(|(_, (key, _))| !is_wanted_anyway(key)).count();
        self.waiting.values().sum::<usize>() + due
    }

    fn add_later(&mut self, key: K, priority: Priority, due: Instant) {
        self.drop_later(&key);
        let place = (due, self.arrival());
        self.later_places.insert(key.clone(), place);
        self.later.insert(place, (key, priority));
    }

    fn forget(&mut self, key: &K) {
        self.drop_later(key);
        if let Some(place) = self.ready_places.remove(key)
            && let Some((_, since)) = self.ready.remove(&place)
        {
            self.goes(since);
        }
        if let Some((_, since)) = self.busy.get_mut(key).and_then(Option::take) {
            self.goes(since);
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
            let due = entry.key().0;
            if due > now {
                return;
            }
            let (key, priority) = entry.remove();
            self.later_places.remove(&key);
            self.add(key, priority, due);
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        let (_, (key, since)) = self.ready.pop_first()?;
        self.ready_places.remove(&key);
        self.goes(since);
        self.figures
            .begun(now.saturating_duration_since(since), self.oldest(now));
        // The pass that begins now decides when the next one is due.
        self.drop_later(&key);
        self.busy.insert(key.clone(), None);
        Some(key)
    }

    fn done(&mut self, key: &K) {
        if let Some(Some((priority, since))) = self.busy.remove(key) {
            self.line_up(key.clone(), priority, since);
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
    use runtime::{Metrics, Telemetry};

    use super::*;

    fn queue() -> Queue<&'static str> {
        told_queue().1
    }

    fn told_queue() -> (Metrics, Queue<&'static str>) {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "webs").unwrap();
        (metrics, Queue::new(telemetry.queue()))
    }

    fn now(queue: &Queue<&'static str>) -> Option<&'static str> {
        queue.take().now_or_never()
    }

    #[tokio::test]
    async fn the_most_urgent_is_taken_first_and_each_once() {
        let queue = queue();
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
        let queue = queue();
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
        let queue = queue();
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
        let queue = queue();
        let mut state = queue.lock();
        let begun = Instant::now();
        let due = begun + Duration::from_mins(3);
        let take = |state: &mut State<_>, now| {
            state.promote(now);
            state.take(now)
        };
        state.add_later("a", Priority::Low, due);
        assert_eq!(take(&mut state, begun), None);
        assert_eq!(state.next_due(), Some(due));
        assert_eq!(take(&mut state, due), Some("a"));
        state.done(&"a");

        let due = due + Duration::from_mins(3);
        state.add_later("a", Priority::Low, due);
        state.add("a", Priority::High, begun);
        assert_eq!(take(&mut state, begun), Some("a"));
        state.done(&"a");
        assert_eq!(take(&mut state, due), None);
    }

    #[tokio::test]
    async fn what_is_forgotten_is_not_worked_on() {
        let queue = queue();
        queue.add("a", Priority::High);
        queue.add_later("b", Priority::Low, Duration::ZERO);
        queue.forget(&"a");
        queue.forget(&"b");
        assert_eq!(now(&queue), None);
    }

    #[tokio::test]
    async fn every_waiting_worker_gets_one() {
        let queue = std::sync::Arc::new(queue());
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take().await })
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

    #[test]
    fn waiting_is_measured_from_the_first_wish_also_of_what_a_worker_has() {
        let (metrics, queue) = told_queue();
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut state = queue.lock();
        state.add("a", Priority::Low, begun);
        state.add("a", Priority::High, begun + second * 2);
        assert_eq!(state.take(begun + second * 3), Some("a"));
        // Wanted again while it is worked on, twice.
        state.add("a", Priority::Low, begun + second * 4);
        state.add("a", Priority::Normal, begun + second * 5);
        assert_eq!(state.depth(begun + second * 5), 1);
        state.done(&"a");
        assert_eq!(state.depth(begun + second * 6), 1);
        assert_eq!(state.take(begun + second * 6), Some("a"));
        assert_eq!((state.depth(begun + second * 6), state.waiting.len()), (0, 0));
        drop(state);
        let text = metrics.text().unwrap();
        for line in [
            r#"workqueue_adds_total{name="webs"} 2"#,
            "unstructured_runtime_reconcile_queue_wait_duration_seconds_sum 5",
            "unstructured_runtime_reconcile_queue_wait_duration_seconds_count 2",
            "unstructured_runtime_reconcile_queue_oldest_item_age_seconds_count 4",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }

    #[test]
    fn what_became_due_counts_as_waiting_since_then() {
        let (metrics, queue) = told_queue();
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut state = queue.lock();
        state.add_later("a", Priority::Low, begun + second);
        assert_eq!(state.depth(begun), 0);
        assert_eq!(state.depth(begun + second * 3), 1);
        state.add("a", Priority::Low, begun + second * 2);
        assert_eq!(state.depth(begun + second * 3), 1);
        state.forget(&"a");
        assert_eq!((state.depth(begun + second * 3), state.waiting.len()), (0, 0));
        state.add_later("a", Priority::Low, begun + second);
        state.promote(begun + second * 3);
        assert_eq!(state.take(begun + second * 3), Some("a"));
        drop(state);
        let text = metrics.text().unwrap();
        let line = "unstructured_runtime_reconcile_queue_wait_duration_seconds_sum 2";
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}
