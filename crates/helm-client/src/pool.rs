//! Where templates run: a few at once, on threads of their own, with a deadline, and namespaces take turns.
//!
//! A chart's templates are untrusted programs. On the threads that serve everybody, a slow one would block all
//! others; here it only takes one slot, for as long as it is allowed, and its namespace never has all slots. All
//! namespaces with long renders lately share a limited number of slots, so one is left for quick renders.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helm::context::Deadline;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tracing::Span;

use crate::events::{self, Event};

/// How long templates may run. The limit on steps is reached within half of that, unless the machine is slow.
pub const RENDER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a render waits for a slot, at most.
pub const SLOT_TIMEOUT: Duration = Duration::from_secs(20);

/// How many renders run at once, at most: their memory together is less than a pod has.
pub(crate) const MOST_SLOTS: usize = 3;

/// How many renders of one namespace wait for a slot, at most.
const MOST_WAITING: usize = 100;

/// A namespace counts as heavy when one of its renders took longer than this lately. Many short ones do not count.
const HEAVY: Duration = Duration::from_secs(1);

/// After this time, work yields to all other work of the process, which takes milliseconds.
const BACKGROUND: Duration = Duration::from_millis(250);

/// The nice value for that: a tenth of the weight of a normal thread.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

/// The half-life of the recorded render times.
const HALF_FORGOTTEN: Duration = Duration::from_mins(5);

/// For how many namespaces times are recorded. Beyond that, the most faded ones are dropped.
const MOST_REMEMBERED: usize = 10_000;

/// The party that work is done for: it has a share of its own, such as a namespace or a cluster, and parts, which
/// take turns within that share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a> {
    /// Its name.
    pub name: &'a str,
    /// The part.
    pub part: &'a str,
}

impl<'a> From<&'a str> for Party<'a> {
    /// A party without parts.
    fn from(name: &'a str) -> Self {
        Self { name, part: "" }
    }
}

impl<'a> From<&'a String> for Party<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

/// No slot became free in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// The namespace's turn did not come.
    #[error("no chart or release of {namespace} could be processed within {}s: others are being processed", .waited.as_secs())]
    Waited {
        /// The namespace of the render.
        namespace: String,
        /// How long it waited.
        waited: Duration,
    },
    /// The namespace has too many renders waiting already.
    #[error("{waiting} charts and releases of {namespace} are waiting already")]
    Full {
        /// The namespace of the render.
        namespace: String,
        /// How many wait.
        waiting: usize,
    },
    /// The process is about to end.
    #[error("the process is shutting down before the chart or release could be processed")]
    Ending,
    /// The operating system refused to start a thread, for this reason.
    #[error("there is no thread to process the chart or release: {0}")]
    NoThread(String),
}

fn refusal(busy: &Busy) -> Event {
    Event::Refused(match busy {
        Busy::Waited { .. } => "waited",
        Busy::Full { .. } => "full",
        Busy::Ending => "ending",
        Busy::NoThread(_) => "no_thread",
    })
}

/// A number of slots for CPU-bound work, and the queue for them.
#[derive(Debug, Clone)]
pub struct Pool {
    state: Arc<Mutex<State>>,
    slot_timeout: Duration,
    /// True when its waits are reported as those of renders.
    is_told: bool,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// How many slots a namespace may have.
    most: usize,
    /// The slots that each namespace has, by the parts that use them; namespaces without slots are left out.
    held: HashMap<String, Vec<String>>,
    /// How many slots all heavy namespaces have together.
    held_by_heavy: usize,
    /// The longest render time of each namespace, fading with time.
    spent: HashMap<String, Spent>,
    /// The queue of each namespace: each part's first request, then each part's second, and so on.
    lines: HashMap<String, VecDeque<Turn>>,
    /// The namespaces with waiting requests, the next one first.
    turns: VecDeque<String>,
}

/// A waiting request.
#[derive(Debug)]
struct Turn {
    part: String,
    /// How many requests of the same part had a slot or waited before it.
    round: usize,
    tell: oneshot::Sender<Slot>,
}

/// The longest time that was spent, which fades gradually.
#[derive(Debug, Clone, Copy)]
struct Spent {
    time: Duration,
    noted: Instant,
}

impl Spent {
    /// How much of it is left.
    fn left(self, now: Instant) -> Duration {
        let halvings = now.duration_since(self.noted).as_secs_f64() / HALF_FORGOTTEN.as_secs_f64();
        self.time.mul_f64((-halvings).exp2())
    }
}

/// Passes its slot to the next in line when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    state: Arc<Mutex<State>>,
    namespace: String,
    part: String,
    since: Instant,
    is_heavy: bool,
}

static OF_PROCESS: LazyLock<Pool> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Pool::new(processors.clamp(2, MOST_SLOTS), SLOT_TIMEOUT).told()
});

impl Pool {
    /// A pool of `slots`; work waits at most `slot_timeout` for one. A namespace may have all but one, or the only
    /// one; all heavy namespaces (with work of more than a second lately) together may not have more than that.
    pub fn new(slots: usize, slot_timeout: Duration) -> Self {
        let slots = slots.max(1);
        Self {
            state: Arc::new(Mutex::new(State {
                free: slots,
                most: slots.saturating_sub(1).max(1),
                held: HashMap::new(),
                held_by_heavy: 0,
                spent: HashMap::new(),
                lines: HashMap::new(),
                turns: VecDeque::new(),
            })),
            slot_timeout,
            is_told: false,
        }
    }

    /// The same, but its waits are reported ([`events::tell_events`]).
    pub(crate) fn told(self) -> Self {
        let is_told = true;
        Self { is_told, ..self }
    }

    /// The pool of this process, whose memory all renders share: one slot per processor, at least 2 and at most 3.
    pub fn of_process() -> &'static Self {
        &OF_PROCESS
    }

    /// How many slots one namespace may have: fewer than there are, so that one is left for others.
    pub fn share(&self) -> usize {
        lock(&self.state).most
    }

    /// Does `work` for a namespace, or a part of it, on a thread of its own, within the `allowed` time. The deadline
    /// is also over once nobody waits for the outcome, that is, when the future was dropped. Work that checks its
    /// deadline is lowered in priority below all other threads of the process after a quarter of a second, and from
    /// the start for a heavy namespace.
    ///
    /// # Errors
    /// When no slot becomes free in time, or no thread can be started.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T, F>(&self, party: impl Into<Party<'_>>, allowed: Duration, work: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(Deadline) -> T + Send + 'static,
    {
        let slot = self.slot(party).await?;
        let given_up = GivenUp::default();
        let is_given_up = given_up.0.clone();
        let (tell, outcome) = oneshot::channel();
        let (runtime, span) = (Handle::current(), Span::current());
        let run = move || {
            let _inside = runtime.enter();
            let begun = Instant::now();
            let background = Background::after(if slot.is_heavy { Duration::ZERO } else { BACKGROUND });
            let is_over = move || {
                let so_far = begun.elapsed();
                background.reach(so_far);
                is_given_up.load(Ordering::Relaxed) || so_far >= allowed
            };
            let work = || work(Deadline::new(allowed, is_over));
            let outcome = span.in_scope(|| catch_unwind(AssertUnwindSafe(work)));
            // A span lasts until it is dropped everywhere: the waiting caller should drop it last, not a thread that
            // may end late.
            drop(span);
            drop(slot);
            // Nobody may be waiting any more.
            drop(tell.send(outcome));
        };
        // Not one of the runtime's blocking threads: other work would inherit the lowered priority.
        let thread = std::thread::Builder::new().name("render".to_owned()).spawn(run);
        thread.map_err(|error| Busy::NoThread(error.to_string()))?;
        match outcome.await {
            Ok(outcome) => Ok(outcome.unwrap_or_else(|panic| resume_unwind(panic))),
            Err(_) => Err(Busy::Ending),
        }
    }

    /// Does `work` for a namespace on the current thread, blocking it; on a multi-threaded runtime, other tasks move
    /// to other threads. For short work on borrowed data.
    ///
    /// # Errors
    /// When no slot becomes free in time.
    pub(crate) async fn run_here<T>(&self, namespace: &str, work: impl FnOnce() -> T) -> Result<T, Busy> {
        let _slot = self.slot(namespace).await?;
        Ok(match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
            _ => work(),
        })
    }

    /// A slot for a namespace, until it is dropped.
    pub(crate) async fn slot(&self, party: impl Into<Party<'_>>) -> Result<Slot, Busy> {
        let Party {
            name: namespace,
            part,
        } = party.into();
        let turn = {
            let mut state = lock(&self.state);
            if state.can_have(namespace, Instant::now()) {
                return Ok(state.take(namespace.to_owned(), part.to_owned(), &self.state));
            }
            let refused = |busy: &Busy| self.tell(refusal(busy));
            state.line_up(namespace, part).inspect_err(refused)?
        };
        let mut waiting = Waiting {
            pool: self,
            since: Instant::now(),
            refusal: Some(events::LEFT),
        };
        let slot = match tokio::time::timeout(self.slot_timeout, turn).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(Busy::Ending),
            Err(_) => Err(Busy::Waited {
                namespace: namespace.to_owned(),
                waited: self.slot_timeout,
            }),
        };
        waiting.refusal = slot.as_ref().err().map(refusal);
        slot
    }

    fn tell(&self, event: Event) {
        if self.is_told {
            events::happened(event);
        }
    }
}

/// Reports how long a request waited when it is dropped, and why it got no slot.
struct Waiting<'a> {
    pool: &'a Pool,
    since: Instant,
    /// `None` once it has its slot.
    refusal: Option<Event>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pool.tell(Event::Waited(self.since.elapsed()));
        if let Some(refusal) = self.refusal {
            self.pool.tell(refusal);
        }
    }
}

/// Lowers the priority of the current thread, once.
struct Background {
    after: Duration,
    is_reached: AtomicBool,
}

impl Background {
    fn after(after: Duration) -> Self {
        Self {
            after,
            is_reached: AtomicBool::new(false),
        }
    }

    fn reach(&self, so_far: Duration) {
        if so_far >= self.after && !self.is_reached.swap(true, Ordering::Relaxed) {
            step_back();
        }
    }
}

/// Reduces the weight of the current thread to a tenth, which matters when processors are busy. It cannot be undone.
#[cfg(target_os = "linux")]
fn step_back() {
    // On Linux this affects one thread. Lowering the priority needs no rights, and if it fails, everything still
    // works.
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BACKGROUND_NICE)
    {
        tracing::debug!(%error, "could not lower the priority of a render");
    }
}

#[cfg(not(target_os = "linux"))]
fn step_back() {}

/// Notes when it is dropped that nobody waits any more.
#[derive(Debug, Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl State {
    fn is_heavy(&self, namespace: &str, now: Instant) -> bool {
        let spent = self.spent.get(namespace);
        spent.is_some_and(|spent| spent.left(now) > HEAVY)
    }

    fn can_have(&self, namespace: &str, now: Instant) -> bool {
        self.free > 0
            && self.held.get(namespace).is_none_or(|held| held.len() < self.most)
            && (self.held_by_heavy < self.most || !self.is_heavy(namespace, now))
    }

    fn take(&mut self, namespace: String, part: String, state: &Arc<Mutex<State>>) -> Slot {
        let now = Instant::now();
        let is_heavy = self.is_heavy(&namespace, now);
        self.free -= 1;
        self.held_by_heavy += usize::from(is_heavy);
        let held = self.held.entry(namespace.clone()).or_default();
        held.push(part.clone());
        Slot {
            state: state.clone(),
            namespace,
            part,
            since: now,
            is_heavy,
        }
    }

    fn give_back(&mut self, slot: &Slot) {
        let now = Instant::now();
        self.free += 1;
        self.held_by_heavy -= usize::from(slot.is_heavy);
        if let Some(held) = self.held.get_mut(&slot.namespace) {
            if let Some(at) = held.iter().position(|part| *part == slot.part) {
                held.swap_remove(at);
            }
            if held.is_empty() {
                self.held.remove(&slot.namespace);
            }
        }
        self.charge(&slot.namespace, now.duration_since(slot.since), now);
    }

    fn charge(&mut self, namespace: &str, time: Duration, now: Instant) {
        let before = self
            .spent
            .get(namespace)
            .map_or(Duration::ZERO, |spent| spent.left(now));
        let spent = Spent {
            time: before.max(time),
            noted: now,
        };
        self.spent.insert(namespace.to_owned(), spent);
        if self.spent.len() > MOST_REMEMBERED {
            self.spent.retain(|_, spent| spent.left(now) > HEAVY / 10);
        }
    }

    fn line_up(&mut self, namespace: &str, part: &str) -> Result<oneshot::Receiver<Slot>, Busy> {
        let line = self.lines.entry(namespace.to_owned()).or_default();
        line.retain(|waiting| !waiting.tell.is_closed());
        if line.len() >= MOST_WAITING {
            return Err(Busy::Full {
                namespace: namespace.to_owned(),
                waiting: line.len(),
            });
        }
        let (tell, receiver) = oneshot::channel();
        let held = self.held.get(namespace).into_iter().flatten();
        let before = line.iter().map(|waiting| &waiting.part).chain(held);
        let round = before.filter(|known| *known == part).count();
        let at = line.partition_point(|waiting| waiting.round <= round);
        let part = part.to_owned();
        line.insert(at, Turn { part, round, tell });
        if !self.turns.iter().any(|known| known == namespace) {
            self.turns.push_back(namespace.to_owned());
        }
        Ok(receiver)
    }

    /// The next in line, if any: among the waiting requests of namespaces that may have another slot, those of
    /// namespaces that are not heavy come first.
    fn next(&mut self) -> Option<(String, Turn)> {
        let now = Instant::now();
        let may = |state: &Self, namespace: &str| state.can_have(namespace, now);
        let is_light = |state: &Self, namespace: &str| !state.is_heavy(namespace, now);
        while let Some(at) = self
            .turns
            .iter()
            .position(|namespace| may(self, namespace) && is_light(self, namespace))
            .or_else(|| self.turns.iter().position(|namespace| may(self, namespace)))
        {
            let namespace = self.turns.remove(at)?;
            let mut line = self.lines.remove(&namespace).unwrap_or_default();
            let waiting = std::iter::from_fn(|| line.pop_front()).find(|waiting| !waiting.tell.is_closed());
            if !line.is_empty() {
                self.lines.insert(namespace.clone(), line);
                self.turns.push_back(namespace.clone());
            }
            if let Some(waiting) = waiting {
                return Some((namespace, waiting));
            }
        }
        None
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut state = lock(&self.state);
            state.give_back(self);
            state
                .next()
                .map(|(namespace, Turn { part, tell, .. })| (tell, state.take(namespace, part, &self.state)))
        };
        // If the receiver gives up at this moment, the slot is dropped here, which must not happen under the lock.
        if let Some((tell, slot)) = next {
            drop(tell.send(slot));
        }
    }
}

/// The data is consistent at each step, so a poisoned lock is no problem.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};

    use tracing::Instrument as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn pool(slots: usize) -> Pool {
        Pool::new(slots, Duration::from_secs(20))
    }

    /// Which of the waiting requests have a slot now.
    fn arrived<F>(waiting: &mut Vec<(&'static str, std::pin::Pin<Box<F>>)>) -> Vec<(&'static str, Slot)>
    where
        F: Future<Output = Result<Slot, Busy>>,
    {
        let mut context = Context::from_waker(Waker::noop());
        let mut found = Vec::new();
        waiting.retain_mut(|(name, turn)| match turn.as_mut().poll(&mut context) {
            Poll::Ready(slot) => {
                found.push((*name, slot.unwrap()));
                false
            }
            Poll::Pending => true,
        });
        found
    }

    fn names(slots: &[(&'static str, Slot)]) -> Vec<&'static str> {
        slots.iter().map(|(name, _)| *name).collect()
    }

    #[tokio::test]
    async fn a_namespace_has_all_slots_but_one() {
        let pool = pool(3);
        let mut waiting: Vec<_> = ["a", "a", "a", "b", "c"]
            .into_iter()
            .map(|name| (name, Box::pin(pool.slot(name))))
            .collect();
        let mut held = arrived(&mut waiting);
        assert_eq!(names(&held), ["a", "a", "b"]);
        // A slot that `a` gives back goes to the next in line, which may be `a` again.
        held.remove(0);
        let more = arrived(&mut waiting);
        assert_eq!(names(&more), ["a"]);
        held.remove(1);
        assert_eq!(names(&arrived(&mut waiting)), ["c"]);
    }

    #[tokio::test]
    async fn namespaces_take_turns() {
        let pool = pool(2);
        let mut waiting: Vec<_> = ["a", "z", "a", "a", "a", "b", "b", "c"]
            .into_iter()
            .map(|name| (name, Box::pin(pool.slot(name))))
            .collect();
        let mut held = arrived(&mut waiting);
        assert_eq!(names(&held), ["a", "z"]);
        let mut order = Vec::new();
        while !held.is_empty() {
            held.remove(0);
            let more = arrived(&mut waiting);
            order.extend(names(&more));
            held.extend(more);
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test]
    async fn parts_of_a_cluster_take_turns_at_its_share() {
        let pool = pool(2);
        let of = |part: &'static str| Party { name: "edge", part };
        let mut waiting: Vec<_> = ["greedy", "greedy", "greedy", "modest", "greedy", "modest"]
            .into_iter()
            .map(|part| (part, Box::pin(pool.slot(of(part)))))
            .collect();
        let mut held = arrived(&mut waiting);
        assert_eq!(names(&held), ["greedy"], "one cluster has all slots but one");
        let mut order = Vec::new();
        while !held.is_empty() {
            held.remove(0);
            let more = arrived(&mut waiting);
            order.extend(names(&more));
            held.extend(more);
        }
        assert_eq!(order, ["modest", "greedy", "modest", "greedy", "greedy"]);
    }

    #[tokio::test]
    async fn those_that_took_long_leave_a_slot_to_others() {
        let pool = pool(2);
        let charge = |namespace: &str, time: Duration| {
            lock(&pool.state).charge(namespace, time, Instant::now());
        };
        charge("a", HEAVY * 2);
        charge("b", HEAVY * 2);
        charge("c", HEAVY / 2);
        let mut waiting: Vec<_> = ["a", "b", "c", "d"]
            .into_iter()
            .map(|name| (name, Box::pin(pool.slot(name))))
            .collect();
        let mut held = arrived(&mut waiting);
        assert_eq!(names(&held), ["a", "c"]);
        held.remove(0);
        assert_eq!(
            names(&arrived(&mut waiting)),
            ["d"],
            "b waits longer, and has taken long"
        );
        held.clear();
        assert_eq!(names(&arrived(&mut waiting)), ["b"]);
    }

    #[test]
    fn what_was_spent_is_forgotten() {
        let now = Instant::now();
        let spent = Spent {
            time: HEAVY * 4,
            noted: now,
        };
        assert!(spent.left(now + HALF_FORGOTTEN) > HEAVY);
        assert!(spent.left(now + HALF_FORGOTTEN * 3) < HEAVY);
    }

    #[tokio::test]
    async fn a_slot_is_not_lost_with_one_who_gives_up() {
        let pool = pool(1);
        let held = pool.slot("a").await.unwrap();
        let mut waiting = vec![("a", Box::pin(pool.slot("a"))), ("b", Box::pin(pool.slot("b")))];
        assert!(arrived(&mut waiting).is_empty());
        drop(waiting.remove(0));
        drop(held);
        // `b` was given the slot, and gives up before it takes it.
        waiting.clear();
        assert!(pool.slot("c").await.is_ok());
        let state = lock(&pool.state);
        assert_eq!(state.free, 1);
        assert!(state.held.is_empty() && state.lines.is_empty() && state.turns.is_empty());
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_so() {
        let pool = Pool::new(1, Duration::from_millis(1));
        let _held = pool.slot("a").await.unwrap();
        let waited = Busy::Waited {
            namespace: "b".to_owned(),
            waited: Duration::from_millis(1),
        };
        assert_eq!(pool.slot("b").await.unwrap_err(), waited);
    }

    #[tokio::test]
    async fn a_namespace_has_so_many_waiting_and_no_more() {
        let pool = pool(2);
        let _held = pool.slot("a").await.unwrap();
        let mut waiting: Vec<_> = (0..MOST_WAITING)
            .map(|_| ("a", Box::pin(pool.slot("a"))))
            .collect();
        assert!(arrived(&mut waiting).is_empty());
        let full = Busy::Full {
            namespace: "a".to_owned(),
            waiting: MOST_WAITING,
        };
        assert_eq!(pool.slot("a").await.unwrap_err(), full);
        assert!(pool.slot("b").await.is_ok());
        // Requests that were given up do not count.
        drop(waiting.remove(0));
        let mut one_more = vec![("a", Box::pin(pool.slot("a")))];
        assert!(arrived(&mut one_more).is_empty());
    }

    #[tokio::test]
    async fn work_is_told_that_nobody_waits_for_it() {
        let pool = pool(1);
        let (start, started) = std::sync::mpsc::channel();
        let work = move |deadline: Deadline| {
            start.send(()).unwrap();
            while !deadline.is_over() {
                std::thread::yield_now();
            }
        };
        let task = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run("a", Duration::from_hours(1), work).await }
        });
        tokio::task::spawn_blocking(move || started.recv().unwrap())
            .await
            .unwrap();
        task.abort();
        // The slot is free again, and not before the work ends.
        pool.run("b", Duration::from_secs(1), |_| ()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_on_the_thread_that_asks_keeps_no_other_task_waiting() {
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()).unwrap() });
        let work = tokio::spawn(async move {
            let pool = pool(1);
            // If this thread were the only one for tasks, nobody would send.
            pool.run_here("a", move || told.recv().unwrap()).await.unwrap();
        });
        work.await.unwrap();
        other.await.unwrap();
    }

    /// Counts the spans that have ended.
    #[derive(Clone, Default)]
    struct Ended(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Ended {
        fn on_close(&self, _: tracing::Id, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_span_ends_with_who_waits_and_not_with_the_thread() {
        let ended = Ended::default();
        let subscriber = tracing_subscriber::registry().with(ended.clone());
        let _until = tracing::subscriber::set_default(subscriber);
        let pool = pool(1);
        for times in 1..=500 {
            let span = tracing::info_span!("external.observe");
            let work = pool.run("a", Duration::from_secs(1), |_| Span::current().is_none());
            work.instrument(span).await.unwrap();
            assert_eq!(ended.0.load(Ordering::Relaxed), times);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_that_takes_long_gives_way_and_other_threads_do_not() {
        fn nice() -> i32 {
            rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
        }
        let before = nice();
        let pool = pool(1);
        let work = move |deadline: Deadline| {
            let begun = Instant::now();
            let first = (deadline.is_over(), nice());
            while begun.elapsed() < BACKGROUND {
                std::thread::yield_now();
            }
            (first, (deadline.is_over(), nice()))
        };
        let (first, later) = pool.run("a", Duration::from_hours(1), work).await.unwrap();
        assert_eq!(first, (false, before));
        assert_eq!(later, (false, BACKGROUND_NICE.max(before)));
        assert_eq!(nice(), before);
        lock(&pool.state).charge("a", HEAVY * 2, Instant::now());
        let work = |deadline: Deadline| (deadline.is_over(), nice());
        let heavy = pool.run("a", Duration::from_hours(1), work).await.unwrap();
        assert_eq!(heavy, (false, BACKGROUND_NICE.max(before)));
    }

    #[tokio::test]
    async fn a_panic_leaves_the_slot_to_others() {
        let pool = pool(1);
        let task = tokio::spawn({
            let pool = pool.clone();
            async move {
                pool.run("a", Duration::from_secs(1), |_| panic!("as a template would not"))
                    .await
            }
        });
        let outcome: Result<Result<(), _>, _> = task.await;
        assert!(outcome.unwrap_err().is_panic());
        pool.run("b", Duration::from_secs(1), |_| ()).await.unwrap();
    }
}
