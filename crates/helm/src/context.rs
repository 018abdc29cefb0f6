//! The outside world as one render sees it: the time, random bytes, host names and cluster objects.
//!
//! Rendering is pure: whatever Go's template functions would ask the system for is passed in here, and the lookups
//! that could not be answered are returned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gotemplate::string::Str;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Everything that the template functions use besides their arguments; one per render.
///
/// All functions of a render share it, so its mutable parts are behind locks.
pub struct Context {
    /// The result of `now` for the whole render.
    pub now: Timestamp,
    /// Whether this is lint: `required` and `fail` warn instead of ending the render.
    pub lint: bool,
    /// Resolves names for `getHostByName`; without a resolver it returns "", as Helm does unless `--enable-dns` is
    /// given.
    pub resolver: Option<Box<dyn Resolver + Send + Sync>>,
    /// The known answers for `lookup`, and the lookups without one.
    pub lookups: Lookups,
    /// When to abort the render; without a deadline only the steps limit it.
    pub deadline: Option<Deadline>,
    pub(crate) depths: Depths,
    time_zone: LazyLock<TimeZone, Box<dyn FnOnce() -> TimeZone + Send>>,
    random: Mutex<Box<dyn Random + Send>>,
    /// How often random bytes were drawn.
    draws: AtomicU64,
}

impl Context {
    /// A context in UTC, without names and cluster objects, in which `fail` ends the render.
    pub fn new(now: Timestamp, random: impl Random + Send + 'static) -> Self {
        Self {
            now,
            time_zone: LazyLock::new(Box::new(|| TimeZone::UTC)),
            lint: false,
            resolver: None,
            lookups: Lookups::default(),
            deadline: None,
            depths: Depths::default(),
            random: Mutex::new(Box::new(random)),
            draws: AtomicU64::new(0),
        }
    }

    /// Sets the local time zone.
    pub fn with_time_zone(self, time_zone: TimeZone) -> Self {
        self.with_lazy_time_zone(|| time_zone)
    }

    /// Like [`Context::with_time_zone`], but the zone is looked up when a template first needs it, which few do.
    pub fn with_lazy_time_zone(self, find: impl FnOnce() -> TimeZone + Send + 'static) -> Self {
        Self {
            time_zone: LazyLock::new(Box::new(find)),
            ..self
        }
    }

    /// Go's `Local`: the zone in which `date` and `now` print. Images run in UTC.
    pub fn time_zone(&self) -> &TimeZone {
        &self.time_zone
    }

    /// Makes `required` and `fail` not end the render.
    pub fn linting(self) -> Self {
        Self { lint: true, ..self }
    }

    /// Makes `getHostByName` use `resolver`.
    pub fn with_resolver(self, resolver: impl Resolver + Send + Sync + 'static) -> Self {
        Self {
            resolver: Some(Box::new(resolver)),
            ..self
        }
    }

    /// Makes `lookup` answer from `known`.
    pub fn with_lookups(self, known: impl IntoIterator<Item = (LookupKey, Answer)>) -> Self {
        Self {
            lookups: Lookups::new(known),
            ..self
        }
    }

    /// Aborts the render at `deadline`.
    pub fn with_deadline(self, deadline: Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Fills `bytes` from the render's source of randomness.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        self.draws.fetch_add(1, Ordering::Relaxed);
        lock(&self.random).fill(bytes);
    }

    /// How often random bytes were drawn: all results of functions that may differ from call to call depend on some.
    pub(crate) fn draws(&self) -> u64 {
        self.draws.load(Ordering::Relaxed)
    }

    /// A uniformly distributed number below `bound`, which must not be zero.
    pub fn random_below(&self, bound: u64) -> u64 {
        // Numbers above the last whole multiple of `bound` would favour small results, so they are rejected.
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

/// The current nesting of the render.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    /// The names of the templates being included, innermost last.
    includes: Mutex<Vec<Str>>,
    tpl: AtomicUsize,
}

impl Depths {
    /// Registers an include and returns how many times the template is now included within itself, counting this one.
    /// As long as the total nesting is at most `cared_for`, it just returns 1.
    pub(crate) fn enter_include(&self, name: &Str, cared_for: usize) -> usize {
        let mut includes = lock(&self.includes);
        includes.push(name.clone());
        if includes.len() <= cared_for {
            return 1;
        }
        includes.iter().filter(|known| *known == name).count()
    }

    /// Ends the innermost include.
    pub(crate) fn leave_include(&self) {
        lock(&self.includes).pop();
    }

    /// Registers a call of `tpl` and returns how many calls are active, counting this one.
    pub(crate) fn enter_tpl(&self) -> usize {
        self.tpl.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends a call of `tpl`.
    pub(crate) fn leave_tpl(&self) {
        self.tpl.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When a render has to be finished; checked many times each millisecond.
pub struct Deadline {
    allowed: Duration,
    is_over: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Deadline {
    /// A deadline after `allowed` time; `is_over` says whether it has passed.
    pub fn new(allowed: Duration, is_over: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            allowed,
            is_over: Box::new(is_over),
        }
    }

    /// The total time allowed.
    pub fn allowed(&self) -> Duration {
        self.allowed
    }

    /// Whether it has passed.
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

/// Resolves host names.
pub trait Resolver {
    /// The addresses of `host` as text; empty if it has none.
    fn addresses(&self, host: &str) -> Vec<String>;
}

/// An object or list that `lookup` asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupKey {
    /// `v1`, `apps/v1` …, as written in the template.
    pub api_version: String,
    /// `Secret` …
    pub kind: String,
    /// Empty for all namespaces, or for a cluster-scoped kind.
    pub namespace: String,
    /// Empty for a list of all objects.
    pub name: String,
}

/// The answer to a [`LookupKey`].
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object, or for an empty name the list object with its `items`. All renders that get it share it.
    Found(Arc<serde_json::Value>),
    /// The cluster has no such object; the template gets an empty map.
    NotFound,
    /// The lookup failed (the kind is not served, access was denied …): the render fails with this text.
    Failed(String),
}

/// How many objects and lists the templates of a render may look up: each one is a request.
pub const MOST_LOOKUPS: usize = 1000;

/// The known answers for `lookup`, and the lookups without an answer.
#[derive(Debug, Default)]
pub struct Lookups {
    known: BTreeMap<LookupKey, Answer>,
    missing: Mutex<BTreeSet<LookupKey>>,
}

impl Lookups {
    /// Lookups with the given answers.
    pub fn new(known: impl IntoIterator<Item = (LookupKey, Answer)>) -> Self {
        Self {
            known: known.into_iter().collect(),
            missing: Mutex::default(),
        }
    }

    /// The answer to `key`. An unknown key is recorded as missing and answered with "not found"; a render may ask for
    /// at most [`MOST_LOOKUPS`] objects and lists.
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

    /// The unknown keys that were asked for, in order: fetch them and render again.
    pub fn missing(&self) -> BTreeSet<LookupKey> {
        lock(&self.missing).clone()
    }
}

/// A render that panicked leaves no partial changes here, so a poisoned lock can be used.
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
    fn a_render_may_look_up_only_so_many_objects() {
        let lookups = Lookups::default();
        for number in 0..MOST_LOOKUPS {
            assert!(matches!(lookups.ask(key(&number.to_string())), Answer::NotFound));
        }
        assert!(matches!(lookups.ask(key("one more")), Answer::Failed(_)));
        assert!(matches!(lookups.ask(key("0")), Answer::NotFound));
        assert_eq!(lookups.missing().len(), MOST_LOOKUPS);
    }

    #[test]
    fn an_unknown_lookup_is_answered_not_found_and_returned_as_missing() {
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
