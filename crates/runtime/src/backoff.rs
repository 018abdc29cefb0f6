//! How long to wait before a failing object is retried: longer each time, counted for each object separately.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most failing objects that have a backoff of their own; it bounds the memory.
const CAPACITY: usize = 20_000;

/// Exponential backoff per object, like client-go's `ItemExponentialFailureRateLimiter`: `min`, twice that, and so on
/// up to `max`; back to `min` after a success.
pub struct Backoff<K> {
    min: Duration,
    max: Duration,
    failing: Mutex<HashMap<K, Failing>>,
}

struct Failing {
    times: u32,
    last: Instant,
}

impl<K: Hash + Eq + Clone> Backoff<K> {
    /// Waits from `min` to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max: max.max(min),
            failing: Mutex::default(),
        }
    }

    /// Notes that an object failed again, and returns how long to wait now.
    pub fn failed(&self, key: &K) -> Duration {
        self.failed_at(key, Instant::now())
    }

    /// How often an object failed since its last success.
    pub fn times(&self, key: &K) -> u32 {
        self.lock().get(key).map_or(0, |failing| failing.times)
    }

    /// Notes that an object succeeded, or is gone.
    pub fn succeeded(&self, key: &K) {
        self.lock().remove(key);
    }

    fn failed_at(&self, key: &K, now: Instant) -> Duration {
        let mut failing = self.lock();
        if failing.len() >= CAPACITY && !failing.contains_key(key) {
            self.make_room(&mut failing, now);
        }
        let times = failing.get(key).map_or(0, |entry| entry.times);
        failing.insert(
            key.clone(),
            Failing {
                times: times.saturating_add(1),
                last: now,
            },
        );
        let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
        self.min.saturating_mul(factor).min(self.max)
    }

    /// Forgets objects that last failed so long ago that they must have succeeded or been deleted unnoticed; if there
    /// are none, the one whose last failure is the oldest.
    fn make_room(&self, failing: &mut HashMap<K, Failing>, now: Instant) {
        let patience = self.max.saturating_mul(10);
        failing.retain(|_, entry| now.saturating_duration_since(entry.last) < patience);
        if failing.len() >= CAPACITY
            && let Some(oldest) = failing
                .iter()
                .min_by_key(|(_, entry)| entry.last)
                .map(|(key, _)| key.clone())
        {
            failing.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_restart_after_a_success() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let waits: Vec<u64> = (0..8).map(|_| backoff.failed(&"a").as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((backoff.failed(&"b").as_secs(), backoff.times(&"a")), (1, 8));
        backoff.succeeded(&"a");
        assert_eq!((backoff.times(&"a"), backoff.failed(&"a").as_secs()), (0, 1));
    }

    #[test]
    fn an_object_may_fail_for_ever() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        for _ in 0..100 {
            backoff.failed(&1);
        }
        assert_eq!(backoff.failed(&1), Duration::from_mins(1));
    }

    #[test]
    fn memory_is_bounded() {
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_secs(1));
        let start = Instant::now();
        for key in 0..CAPACITY {
            backoff.failed_at(&key, start + Duration::from_micros(key as u64));
        }
        backoff.failed_at(&CAPACITY, start + Duration::from_secs(1));
        let held = backoff.lock().len();
        assert_eq!((held, backoff.times(&0), backoff.times(&1)), (CAPACITY, 0, 1));
        backoff.failed_at(&(CAPACITY + 1), start + Duration::from_mins(1));
        assert_eq!(backoff.lock().len(), 1, "those of a minute ago are forgotten");
    }
}
