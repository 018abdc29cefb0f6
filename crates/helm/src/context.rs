//! What one render may know of the world: the time, random bytes, host names and cluster objects.
//!
//! Rendering is pure, so whatever Go's template functions would have asked the system for is handed in here, and
//! what `lookup` asked for without an answer comes back out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gotemplate::string::Str;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Everything the template functions may draw on, besides their arguments; one per render.
///
/// It is shared by all functions of a render, which is why its moving parts stand behind locks.
pub struct Context {
    /// What `now` answers, for the whole render.
    pub now: Timestamp,
    /// Go's `Local`: the zone in which `date` and `now` print. Images run in UTC.
    pub time_zone: TimeZone,
    /// True for lint: `required` and `fail` warn instead of ending the render.
    pub lint: bool,
    /// Answers `getHostByName`; without one it answers "", as Helm does unless `--enable-dns` is given.
    pub resolver: Option<Box<dyn Resolver + Send + Sync>>,
    /// What `lookup` may answer and what it could not.
    pub lookups: Lookups,
    /// When the render is cut off; without one it takes as long as its steps do.
    pub deadline: Option<Deadline>,
    pub(crate) depths: Depths,
    random: Mutex<Box<dyn Random + Send>>,
}

impl Context {
    /// A context in UTC, without names and cluster objects, that ends renders on `fail`.
    pub fn new(now: Timestamp, random: impl Random + Send + 'static) -> Self {
        Self {
            now,
            time_zone: TimeZone::UTC,
            lint: false,
            resolver: None,
            lookups: Lookups::default(),
            deadline: None,
            depths: Depths::default(),
            random: Mutex::new(Box::new(random)),
        }
    }

    /// Local time is that of `time_zone`.
    pub fn with_time_zone(self, time_zone: TimeZone) -> Self {
        Self { time_zone, ..self }
    }

    /// `required` and `fail` do not end the render.
    pub fn linting(self) -> Self {
        Self { lint: true, ..self }
    }

    /// `getHostByName` asks `resolver`.
    pub fn with_resolver(self, resolver: impl Resolver + Send + Sync + 'static) -> Self {
        Self {
            resolver: Some(Box::new(resolver)),
            ..self
        }
    }

    /// `lookup` answers from `known`.
    pub fn with_lookups(self, known: impl IntoIterator<Item = (LookupKey, Answer)>) -> Self {
        Self {
            lookups: Lookups::new(known),
            ..self
        }
    }

    /// The render is cut off at `deadline`.
    pub fn with_deadline(self, deadline: Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Fills `bytes` from the render's source of randomness.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        lock(&self.random).fill(bytes);
    }

    /// An evenly distributed number below `bound`, which must not be zero.
    pub fn random_below(&self, bound: u64) -> u64 {
        // Numbers above the last whole multiple of `bound` would favour small answers; draw again.
        let zone = u64::MAX - u64::MAX % bound;
        loop {
            let mut bytes = [0; 8];
            self.fill_random(&mut bytes);
            let drawn = u64::from_le_bytes(bytes);
            if drawn < zone {
                return drawn % bound;
            }
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("now", &self.now)
            .field("lint", &self.lint)
            .field("lookups", &self.lookups)
            .finish_non_exhaustive()
    }
}

/// How deep the render is nested right now.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    /// The names of what is being included, the innermost last.
    includes: Mutex<Vec<Str>>,
    tpl: AtomicUsize,
}

impl Depths {
    /// Notes that a template is included; how often it is now included within itself, this time counted. While that cannot be more than
    /// `cared_for`, it may be said to be less.
    pub(crate) fn enter_include(&self, name: &Str, cared_for: usize) -> usize {
        let mut includes = lock(&self.includes);
        includes.push(name.clone());
        if includes.len() <= cared_for {
            return 1;
        }
        includes.iter().filter(|known| *known == name).count()
    }

    /// Notes that the innermost inclusion is over.
    pub(crate) fn leave_include(&self) {
        lock(&self.includes).pop();
    }

    /// Notes that `tpl` is called; how many calls are under way, this one counted.
    pub(crate) fn enter_tpl(&self) -> usize {
        self.tpl.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a call of `tpl` is over.
    pub(crate) fn leave_tpl(&self) {
        self.tpl.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When a render has to be done; asked many times each millisecond.
pub struct Deadline {
    allowed: Duration,
    is_over: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Deadline {
    /// The end of `allowed` time, which `is_over` tells.
    pub fn new(allowed: Duration, is_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            allowed,
            is_over: Box::new(is_over),
        }
    }

    /// How much time there is in all.
    pub fn allowed(&self) -> Duration {
        self.allowed
    }

    /// True when it has passed.
    pub fn is_over(&self) -> bool {
        (self.is_over)()
    }
}

impl std::fmt::Debug for Deadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deadline")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

/// A source of random bytes: the system's in a process, a fixed one in a test.
pub trait Random {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<F: FnMut(&mut [u8])> Random for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// Finds the addresses of a host.
pub trait Resolver {
    /// The addresses of `host` as text; empty when it has none.
    fn addresses(&self, host: &str) -> Vec<String>;
}

/// What `lookup` was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupKey {
    /// `v1`, `apps/v1` …, as the template says it.
    pub api_version: String,
    /// `Secret` …
    pub kind: String,
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub namespace: String,
    /// Empty: a list of all objects.
    pub name: String,
}

/// What is known about a [`LookupKey`].
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object, or for an empty name the list object with its `items`. It is shared by all renders that it is handed to.
    Found(Arc<serde_json::Value>),
    /// The cluster has no such object; the template gets an empty map.
    NotFound,
    /// The question itself failed (a kind that is not served, access denied …): the render fails with this text.
    Failed(String),
}

/// The most objects and lists that the templates of a render look up: each is a request.
pub const MOST_LOOKUPS: usize = 1000;

/// The answers that `lookup` has, and the questions for which it had none.
#[derive(Debug, Default)]
pub struct Lookups {
    known: BTreeMap<LookupKey, Answer>,
    missing: Mutex<BTreeSet<LookupKey>>,
}

impl Lookups {
    /// Lookups that know the given answers.
    pub fn new(known: impl IntoIterator<Item = (LookupKey, Answer)>) -> Self {
        Self {
            known: known.into_iter().collect(),
            missing: Mutex::default(),
        }
    }

    /// The answer to `key`. An unknown key is remembered as missing and meanwhile answered as "not there"; a render may ask
    /// for [`MOST_LOOKUPS`].
    pub fn ask(&self, key: LookupKey) -> Answer {
        if let Some(answer) = self.known.get(&key) {
            return answer.clone();
        }
        let mut missing = lock(&self.missing);
        if self.known.len() + missing.len() >= MOST_LOOKUPS && !missing.contains(&key) {
            return Answer::Failed(format!(
                "the templates look up more than {MOST_LOOKUPS} objects and lists"
            ));
        }
        missing.insert(key);
        Answer::NotFound
    }

    /// The keys that were asked for and unknown, in order: fetch them and render again.
    pub fn missing(&self) -> BTreeSet<LookupKey> {
        lock(&self.missing).clone()
    }
}

/// A render that panicked leaves nothing half written here, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LookupKey {
        LookupKey {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: "prod".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_render_asks_for_so_much_and_no_more() {
        let lookups = Lookups::default();
        for number in 0..MOST_LOOKUPS {
            assert!(matches!(lookups.ask(key(&number.to_string())), Answer::NotFound));
        }
        assert!(matches!(lookups.ask(key("one more")), Answer::Failed(_)));
        assert!(matches!(lookups.ask(key("0")), Answer::NotFound));
        assert_eq!(lookups.missing().len(), MOST_LOOKUPS);
    }

    #[test]
    fn an_unknown_lookup_is_answered_not_there_and_comes_back_as_missing() {
        let lookups = Lookups::new([(key("known"), Answer::Found(serde_json::json!({"a": 1}).into()))]);
        assert_eq!(
            lookups.ask(key("known")),
            Answer::Found(serde_json::json!({"a": 1}).into())
        );
        assert_eq!(lookups.ask(key("unknown")), Answer::NotFound);
        assert_eq!(
            lookups.missing().into_iter().collect::<Vec<_>>(),
            [key("unknown")]
        );
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut next = 0_u8;
        let context = Context::new(Timestamp::UNIX_EPOCH, move |bytes: &mut [u8]| {
            for byte in bytes {
                next = next.wrapping_mul(57).wrapping_add(91);
                *byte = next;
            }
        });
        assert!((0..1000).all(|_| context.random_below(7) < 7));
    }
}
