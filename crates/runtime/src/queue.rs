//! The queue of objects to reconcile: each is in it once, and never with two workers at a time. The most urgent comes
//! first, and no namespace can starve the others ([`lines`]).

mod lines;

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{Parking, parked};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::telemetry;

pub use lines::{Capacity, Grouped};
use lines::{Lines, Next, Position};

/// How urgent a pass over an object is. The reference's numbers are -100, 0 and 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// It may be in its desired state: first seen just now, or due for a resync.
    Low,
    /// It, or an object below it, changed.
    Normal,
    /// A user changed or deleted it.
    High,
}

/// Objects that wait for a worker, by key. Shared by those who find work and those who do it.
///
/// An object that is added while a worker has it is worked on once more afterwards.
///
/// A pass that has to wait for something slow is parked ([`Queue::waiting`]): another pass has its worker until the
/// wait is over.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    more: Notify,
    /// Notified when a pass is parked.
    parks: Notify,
}

struct State<K> {
    /// To be worked on now.
    ready: Lines<K>,
    ready_positions: HashMap<K, Position>,
    /// To be worked on later, by due time.
    later: BTreeMap<(Instant, u64), (K, Priority)>,
    later_positions: HashMap<K, (Instant, u64)>,
    /// With a worker, or parked.
    busy: HashMap<K, Busy>,
    /// Tells a parked pass whose wait is over that it has a worker again.
    returning: HashMap<K, oneshot::Sender<()>>,
    arrivals: u64,
    /// How many objects have been waiting since each time: those that are ready, and those added again while a worker
    /// has them.
    waiting: BTreeMap<Instant, usize>,
    figures: telemetry::Queue,
}

/// An object that is worked on.
#[derive(Default)]
struct Busy {
    /// Priority of another pass, if one is wanted, and since when it is wanted.
    again: Option<(Priority, Instant)>,
    /// Since when a worker has it; none while it is parked.
    since: Option<Instant>,
    /// How long workers had it before.
    worked: Duration,
}

/// The worker of a pass, which is given to another object while this one waits.
pub struct Seat<K> {
    queue: Arc<Queue<K>>,
    key: K,
}

impl<K: Clone> Seat<K> {
    /// The seat of the pass over this object.
    pub fn new(queue: &Arc<Queue<K>>, key: &K) -> Self {
        Self {
            queue: queue.clone(),
            key: key.clone(),
        }
    }
}

impl<K: Hash + Eq + Clone + Grouped + Send + Sync + 'static> Parking for Seat<K> {
    fn park(&self) {
        self.queue.park(&self.key);
    }

    fn unpark(&self) -> BoxFuture<'_, ()> {
        self.queue.unpark(&self.key).boxed()
    }
}

impl<K: Hash + Eq + Clone + Grouped> Queue<K> {
    /// An empty queue that reports to `figures`.
    pub fn new(figures: telemetry::Queue, capacity: Capacity) -> Self {
        Self {
            state: Mutex::new(State {
                ready: Lines::new(capacity),
                ready_positions: HashMap::new(),
                later: BTreeMap::new(),
                later_positions: HashMap::new(),
                busy: HashMap::new(),
                returning: HashMap::new(),
                arrivals: 0,
                waiting: BTreeMap::new(),
                figures,
            }),
            more: Notify::new(),
            parks: Notify::new(),
        }
    }

    /// Requests a pass over an object now. If one is requested already, the higher priority counts.
    pub fn add(&self, key: K, priority: Priority) {
        self.lock().add(key, priority, Instant::now());
        self.more.notify_one();
    }

    /// Requests a pass over an object after a delay, in place of an earlier such request.
    pub fn add_later(&self, key: K, priority: Priority, after: Duration) {
        self.lock().add_later(key, priority, Instant::now() + after);
        self.more.notify_one();
    }

    /// Drops all requests for an object that is gone or belongs to another replica.
    pub fn forget(&self, key: &K) {
        self.lock().forget(key);
    }

    /// How many objects wait for a worker.
    pub fn depth(&self) -> usize {
        self.lock().depth(Instant::now())
    }

    /// Waits for the next object and for a free worker. [`Queue::done`] gives both back.
    pub async fn take(&self) -> K {
        loop {
            let more = self.more.notified();
            let next = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some(taken) = state.take(Instant::now()) {
                    if !state.ready.nobody_is_next() {
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

    /// Awaits something that may take long, in a pass over an object: if it does, another object has the worker
    /// meanwhile.
    pub async fn waiting<T>(self: &Arc<Self>, key: &K, wait: impl Future<Output = T>) -> T
    where
        K: Send + Sync + 'static,
    {
        parked(&Seat::new(self, key), wait).await
    }

    /// Parks the pass over an object: it is about to wait, and needs no worker for that.
    pub fn park(&self, key: &K) {
        self.lock().park(key, Instant::now());
        self.more.notify_one();
        self.parks.notify_waiters();
    }

    /// Waits until the pass over an object is parked or over.
    pub async fn parked(&self, key: &K) {
        loop {
            let parks = self.parks.notified();
            if self.lock().busy.get(key).is_none_or(|busy| busy.since.is_none()) {
                return;
            }
            parks.await;
        }
    }

    /// The wait of a parked pass is over: returns once it has a worker again. It goes before work of its group that has
    /// not begun.
    pub async fn unpark(&self, key: &K) {
        let turn = self.lock().unpark(key, Instant::now());
        self.more.notify_one();
        if let Some(turn) = turn {
            // If the sender is dropped, the pass was ended (`done`).
            let _ = turn.await;
        }
    }

    /// How long workers have had an object in this pass.
    pub fn worked(&self, key: &K) -> Duration {
        let state = self.lock();
        state.busy.get(key).map_or(Duration::ZERO, |busy| {
            busy.worked + busy.since.map_or(Duration::ZERO, |since| since.elapsed())
        })
    }

    /// The work on an object has ended.
    pub fn done(&self, key: &K) {
        self.lock().done(key, Instant::now());
        self.more.notify_one();
    }

    /// Nothing begins from now on. Work that has begun continues, and gets a worker again after each wait.
    pub fn close(&self) {
        let mut state = self.lock();
        state.ready.close();
        state.give_back_workers(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone + Grouped> State<K> {
    /// `since` is when the pass was first wanted.
    fn add(&mut self, key: K, priority: Priority, since: Instant) {
        if let Some(busy) = self.busy.get_mut(&key) {
            if let Some((wanted, _)) = &mut busy.again {
                *wanted = priority.max(*wanted);
            } else {
                busy.again = Some((priority, since));
                self.comes(since);
            }
            return;
        }
        let since = match self.ready_positions.get(&key).copied() {
            Some(position) if position.0.0 >= priority => return,
            Some(position) => {
                let earlier = self.ready.remove(key.group(), &position);
                earlier.map_or(since, |(_, earlier)| earlier)
            }
            None => {
                self.comes(since);
                since
            }
        };
        self.line_up(key, priority, since);
    }

    fn line_up(&mut self, key: K, priority: Priority, since: Instant) {
        let position = (Reverse(priority), self.arrival());
        self.ready_positions.insert(key.clone(), position);
        self.ready.insert(position, key, since);
    }

    /// One more object waits.
    fn comes(&mut self, since: Instant) {
        *self.waiting.entry(since).or_default() += 1;
        self.figures.added(self.oldest(Instant::now()));
    }

    /// One of the waiting objects no longer waits.
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

    /// Includes objects that have become due while no worker was free to notice.
    fn depth(&self, now: Instant) -> usize {
        let is_wanted_anyway = |key: &K| {
            self.ready_positions.contains_key(key)
                || self.busy.get(key).is_some_and(|busy| busy.again.is_some())
        };
        let due = self.later.range(..=(now, u64::MAX));
        let due = due.filter(|(_, (key, _))| !is_wanted_anyway(key)).count();
        self.waiting.values().sum::<usize>() + due
    }

    fn add_later(&mut self, key: K, priority: Priority, due: Instant) {
        self.drop_later(&key);
        let position = (due, self.arrival());
        self.later_positions.insert(key.clone(), position);
        self.later.insert(position, (key, priority));
    }

    fn forget(&mut self, key: &K) {
        self.drop_later(key);
        if let Some(position) = self.ready_positions.remove(key)
            && let Some((_, since)) = self.ready.remove(key.group(), &position)
        {
            self.goes(since);
        }
        let again = self.busy.get_mut(key).and_then(|busy| busy.again.take());
        if let Some((_, since)) = again {
            self.goes(since);
        }
    }

    fn drop_later(&mut self, key: &K) {
        if let Some(position) = self.later_positions.remove(key) {
            self.later.remove(&position);
        }
    }

    /// Moves what has become due to the ready objects.
    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            let due = entry.key().0;
            if due > now {
                return;
            }
            let (key, priority) = entry.remove();
            self.later_positions.remove(&key);
            self.add(key, priority, due);
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        loop {
            match self.ready.next()? {
                Next::Return(key) => self.give_back_worker(&key, now),
                Next::Begin(key, since) => {
                    self.begin(key.clone(), since, now);
                    return Some(key);
                }
            }
        }
    }

    fn begin(&mut self, key: K, since: Instant, now: Instant) {
        self.ready_positions.remove(&key);
        self.goes(since);
        self.figures
            .begun(now.saturating_duration_since(since), self.oldest(now));
        // The pass that begins now decides when the next one is due.
        self.drop_later(&key);
        let begun = Busy {
            since: Some(now),
            ..Busy::default()
        };
        self.busy.insert(key, begun);
    }

    fn park(&mut self, key: &K, now: Instant) {
        let Some(busy) = self.busy.get_mut(key) else {
            return;
        };
        if let Some(since) = busy.since.take() {
            busy.worked += now.saturating_duration_since(since);
            self.ready.park(key.group());
            self.give_back_workers(now);
        }
    }

    /// None if there is nothing to wait for.
    fn unpark(&mut self, key: &K, now: Instant) -> Option<oneshot::Receiver<()>> {
        if self.busy.get(key)?.since.is_some() {
            return None;
        }
        let (turn, waits) = oneshot::channel();
        if self.returning.insert(key.clone(), turn).is_none() {
            let arrival = self.arrival();
            self.ready.line_up_again(arrival, key.clone());
        }
        self.give_back_workers(now);
        Some(waits)
    }

    /// Gives free workers to parked work whose wait is over, until work that has not begun is next.
    fn give_back_workers(&mut self, now: Instant) {
        while let Some(Next::Return(key)) = self.ready.next_to_return() {
            self.give_back_worker(&key, now);
        }
    }

    fn give_back_worker(&mut self, key: &K, now: Instant) {
        if let Some(busy) = self.busy.get_mut(key) {
            busy.since = Some(now);
        }
        if let Some(turn) = self.returning.remove(key) {
            let _ = turn.send(());
        }
    }

    fn done(&mut self, key: &K, now: Instant) {
        let Some(busy) = self.busy.remove(key) else { return };
        if busy.since.is_some() {
            self.ready.end(key.group());
        } else {
            self.ready.end_parked(key);
            self.returning.remove(key);
        }
        if let Some((priority, since)) = busy.again {
            self.line_up(key.clone(), priority, since);
        }
        self.give_back_workers(now);
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
    use cluster::SOON;
    use futures::FutureExt as _;

    use super::*;
    use crate::{Metrics, Telemetry};

    /// Grouped by the part before the slash, as by namespace; a key without a slash is its own group.
    impl Grouped for &'static str {
        fn group(&self) -> &str {
            self.split_once('/').map_or(self, |(group, _)| group)
        }
    }

    fn queue() -> Queue<&'static str> {
        told_queue().1
    }

    fn told_queue() -> (Metrics, Queue<&'static str>) {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "webs").unwrap();
        (metrics, Queue::new(telemetry.queue(), Capacity::of(8)))
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
        state.done(&"a", begun);

        let due = due + Duration::from_mins(3);
        state.add_later("a", Priority::Low, due);
        state.add("a", Priority::High, begun);
        assert_eq!(take(&mut state, begun), Some("a"));
        state.done(&"a", begun);
        assert_eq!(take(&mut state, due), None);
    }

    #[tokio::test]
    async fn a_forgotten_object_is_not_worked_on() {
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
    fn waiting_is_measured_from_the_first_request_even_while_a_worker_has_the_object() {
        let (metrics, queue) = told_queue();
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut state = queue.lock();
        state.add("a", Priority::Low, begun);
        state.add("a", Priority::High, begun + second * 2);
        assert_eq!(state.take(begun + second * 3), Some("a"));
        // Requested again twice while it is worked on.
        state.add("a", Priority::Low, begun + second * 4);
        state.add("a", Priority::Normal, begun + second * 5);
        assert_eq!(state.depth(begun + second * 5), 1);
        state.done(&"a", begun);
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
    fn a_due_object_counts_as_waiting_since_it_became_due() {
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

    fn all_now(queue: &Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| now(queue)).collect()
    }

    #[tokio::test]
    async fn no_group_has_all_workers_and_the_one_with_the_fewest_comes_first() {
        let queue = queue();
        let busy = ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8"];
        for key in &busy {
            queue.add(key, Priority::High);
        }
        assert_eq!(all_now(&queue), &busy[..6], "three quarters of eight");
        queue.add("b/1", Priority::Low);
        queue.add("b/2", Priority::Low);
        assert_eq!(all_now(&queue), ["b/1", "b/2"]);
        queue.add("c/1", Priority::Low);
        queue.done(&"a/1");
        queue.done(&"a/2");
        assert_eq!(all_now(&queue), ["c/1", "a/7"], "none of c is worked on");
    }

    #[tokio::test]
    async fn parked_work_frees_its_worker_and_returns_before_new_work() {
        let queue = queue();
        let first = ["a/1", "b/1", "c/1", "d/1", "e/1", "f/1", "g/1", "h/1"];
        for key in &first {
            queue.add(key, Priority::Low);
        }
        assert_eq!(all_now(&queue), first);
        queue.add("i/1", Priority::High);
        queue.add("j/1", Priority::High);
        assert_eq!(now(&queue), None);
        queue.park(&"a/1");
        assert_eq!(now(&queue), Some("i/1"));
        let mut back = std::pin::pin!(queue.unpark(&"a/1"));
        assert_eq!(
            back.as_mut().now_or_never(),
            None,
            "all workers have something to do"
        );
        queue.done(&"b/1");
        assert_eq!(back.now_or_never(), Some(()));
        assert_eq!(now(&queue), None, "j waits on");
        queue.done(&"a/1");
        assert_eq!(now(&queue), Some("j/1"));
    }

    #[tokio::test]
    async fn returning_work_does_not_starve_a_group_without_workers() {
        let queue = Queue::new(told_queue().1.lock().figures.clone(), Capacity::of(3));
        for key in ["a/1", "a/2"] {
            queue.add(key, Priority::Low);
            assert_eq!(now(&queue), Some(key));
            queue.park(&key);
        }
        for key in ["b/1", "b/2", "c/1"] {
            queue.add(key, Priority::Low);
        }
        assert_eq!(all_now(&queue), ["b/1", "c/1", "b/2"]);
        let (mut first, mut second) = (
            std::pin::pin!(queue.unpark(&"a/1")),
            std::pin::pin!(queue.unpark(&"a/2")),
        );
        assert_eq!(
            (first.as_mut().now_or_never(), second.as_mut().now_or_never()),
            (None, None)
        );
        queue.add("d/1", Priority::Low);
        queue.done(&"b/1");
        assert_eq!(
            first.now_or_never(),
            Some(()),
            "of a as few are worked on as of d"
        );
        queue.done(&"b/2");
        assert_eq!(
            second.as_mut().now_or_never(),
            None,
            "of d fewer are worked on than of a"
        );
        assert_eq!(now(&queue), Some("d/1"));
        queue.done(&"c/1");
        assert_eq!(second.now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn a_closed_queue_begins_nothing_and_lets_begun_work_end() {
        let queue = Queue::new(told_queue().1.lock().figures.clone(), Capacity::of(1));
        queue.add("a/1", Priority::Low);
        assert_eq!(now(&queue), Some("a/1"));
        queue.park(&"a/1");
        queue.add("b/1", Priority::High);
        assert_eq!(now(&queue), Some("b/1"));
        queue.add("c/1", Priority::High);
        let mut back = std::pin::pin!(queue.unpark(&"a/1"));
        assert_eq!(back.as_mut().now_or_never(), None);
        queue.close();
        queue.done(&"b/1");
        assert_eq!(back.now_or_never(), Some(()));
        queue.done(&"a/1");
        assert_eq!(now(&queue), None);
    }

    #[tokio::test]
    async fn whether_a_pass_is_parked_can_be_waited_for() {
        let queue = queue();
        queue.add("a/1", Priority::Low);
        assert_eq!(now(&queue), Some("a/1"));
        let mut parked = std::pin::pin!(queue.parked(&"a/1"));
        assert_eq!(parked.as_mut().now_or_never(), None);
        queue.park(&"a/1");
        assert_eq!(parked.now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn a_pass_that_ends_while_it_is_parked_leaves_nothing_behind() {
        let queue = queue();
        queue.add("a/1", Priority::Low);
        assert_eq!(now(&queue), Some("a/1"));
        queue.park(&"a/1");
        queue.park(&"a/1");
        {
            let back = queue.unpark(&"a/1");
            queue.done(&"a/1");
            assert_eq!(back.now_or_never(), Some(()));
        }
        queue.done(&"a/1");
        let keys = ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"];
        for key in &keys {
            queue.add(key, Priority::Low);
        }
        assert_eq!(all_now(&queue).len(), 6);
    }

    #[tokio::test]
    async fn a_group_that_parks_all_it_can_leaves_room_for_others() {
        let queue = Queue::new(told_queue().1.lock().figures.clone(), Capacity::of(2));
        let of = |group: &str| -> Vec<&'static str> {
            let keys = (0..20).map(|number| format!("{group}/{number}"));
            keys.map(|key| &*key.leak()).collect()
        };
        let park = |group: &str| {
            for key in of(group) {
                queue.add(key, Priority::Low);
            }
            let mut parked = 0;
            while let Some(key) = now(&queue) {
                queue.park(&key);
                parked += 1;
            }
            parked
        };
        assert_eq!((park("a"), park("b"), park("c"), park("d")), (8, 4, 4, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_time_is_not_counted_as_work() {
        let queue = Arc::new(queue());
        let second = Duration::from_secs(1);
        queue.add("a", Priority::Low);
        assert_eq!(now(&queue), Some("a"));
        tokio::time::advance(second).await;
        queue.waiting(&"a", tokio::time::sleep(second * 60)).await;
        tokio::time::advance(second).await;
        assert_eq!(queue.worked(&"a"), second * 2 + SOON);
    }
}
