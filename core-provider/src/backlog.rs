//! Tracks which definitions wait for a pass, and since when.
//!
//! kube's controller does not expose its queue, so its input and output are mirrored here: every trigger, and every
//! pause that a pass ends with, adds an entry; every pass that begins removes one. It follows the rules of kube's
//! queue: an object is queued once, at the earlier of two times, and one that is being reconciled waits until that
//! ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::CompositionDefinition;
use kube::runtime::reflector::ObjectRef;
use runtime::telemetry::Queue;

type Key = ObjectRef<CompositionDefinition>;

/// The definitions that wait now or after a pause.
pub(crate) struct Backlog {
    wanted: Mutex<HashMap<Key, Wish>>,
    figures: Queue,
}

#[derive(Clone, Copy)]
struct Wish {
    due: Instant,
    /// True when it was counted as added.
    told: bool,
}

impl Backlog {
    /// Reports to the metrics `figures`.
    pub(crate) fn new(figures: Queue) -> Self {
        Self {
            wanted: Mutex::default(),
            figures,
        }
    }

    /// Queues a definition after a pause.
    pub(crate) fn wants(&self, key: &Key, pause: Duration) {
        self.wants_at(key, Instant::now(), pause);
    }

    /// A pass over the definition begins.
    pub(crate) fn begins(&self, key: &Key) {
        self.begins_at(key, Instant::now());
    }

    /// The definition is gone.
    pub(crate) fn forgets(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// How many definitions wait.
    pub(crate) fn depth(&self) -> usize {
        let now = Instant::now();
        self.lock().values().filter(|wish| wish.due <= now).count()
    }

    fn wants_at(&self, key: &Key, now: Instant, pause: Duration) {
        let mut wanted = self.lock();
        let due = now + pause;
        let earlier = wanted.get(key).copied().filter(|earlier| earlier.due <= due);
        let is_news = pause.is_zero() && earlier.is_none();
        if earlier.is_none() {
            wanted.insert(key.clone(), Wish { due, told: is_news });
        }
        if is_news {
            self.figures.added(oldest(&wanted, now));
        }
    }

    fn begins_at(&self, key: &Key, now: Instant) {
        let mut wanted = self.lock();
        let Some(wish) = wanted.get(key).copied() else {
            return;
        };
        if !wish.told {
            // Its pause has ended, so it counts as added now.
            self.figures.added(oldest(&wanted, now));
        }
        wanted.remove(key);
        self.figures
            .begun(now.saturating_duration_since(wish.due), oldest(&wanted, now));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Wish>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the oldest due entry has been due.
fn oldest(wanted: &HashMap<Key, Wish>, now: Instant) -> Duration {
    let waits = wanted
        .values()
        .map(|wish| now.saturating_duration_since(wish.due));
    waits.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use runtime::{Metrics, Telemetry};

    use super::*;

    fn key(name: &str) -> Key {
        ObjectRef::new(name).within("defs")
    }

    fn backlog() -> (Metrics, Backlog) {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "provider_runtime", "compositiondefinitions").unwrap();
        (metrics, Backlog::new(telemetry.queue()))
    }

    fn check(metrics: &Metrics, adds: u64, waited: f64, oldest: f64) {
        let text = metrics.text().unwrap();
        for line in [
            format!(r#"workqueue_adds_total{{name="compositiondefinitions"}} {adds}"#),
            format!("provider_runtime_reconcile_queue_wait_duration_seconds_sum {waited}"),
            format!("provider_runtime_reconcile_queue_oldest_item_age_seconds_sum {oldest}"),
        ] {
            assert!(
                text.contains(&(line.clone() + "\n")),
                "{line} is missing in {text}"
            );
        }
    }

    #[test]
    fn a_definition_waits_from_its_first_trigger_until_its_pass_begins() {
        let (metrics, backlog) = backlog();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        backlog.wants_at(&key("a"), now, Duration::ZERO);
        backlog.wants_at(&key("a"), now + second, Duration::ZERO);
        backlog.wants_at(&key("b"), now + second, Duration::ZERO);
        backlog.begins_at(&key("a"), now + second * 3);
        // It waited three seconds; the oldest entry was zero, one and two seconds old.
        check(&metrics, 2, 3.0, 3.0);
        backlog.begins_at(&key("b"), now + second * 3);
        check(&metrics, 2, 5.0, 3.0);
    }

    #[test]
    fn a_pause_does_not_count_as_waiting_and_a_trigger_cuts_it_short() {
        let (metrics, backlog) = backlog();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        backlog.wants_at(&key("a"), now, second * 60);
        assert_eq!(backlog.depth(), 0);
        backlog.begins_at(&key("a"), now + second * 61);
        check(&metrics, 1, 1.0, 1.0);

        backlog.wants_at(&key("a"), now, second * 60);
        backlog.wants_at(&key("a"), now, Duration::ZERO);
        assert_eq!(backlog.depth(), 1);
        backlog.wants_at(&key("a"), now, second * 60);
        backlog.begins_at(&key("a"), now);
        assert_eq!(backlog.depth(), 0);
        check(&metrics, 2, 1.0, 1.0);
    }

    #[test]
    fn a_definition_that_is_gone_does_not_wait() {
        let (_, backlog) = backlog();
        backlog.wants(&key("a"), Duration::ZERO);
        backlog.forgets(&key("a"));
        assert_eq!(backlog.depth(), 0);
    }
}
