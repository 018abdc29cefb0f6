//! Compositions that this process has not compared with the cluster yet, and that seem to be in order: they are compared
//! one by one, spread over time.
//!
//! After a restart, thousands would otherwise be compared at once, which is a burst for the API server and delays those
//! that have something to do. Whether one seems to be in order is read from its status. That is a claim: who may write
//! it can delay the comparison of that composition, but not prevent it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Composition;
use api::conditions::{READY, RELEASED, SYNCED};
use helm::origin::ChartSpec;
use runtime::queue::{Priority, Queue};
use tokio::sync::Notify;

use crate::compositions::Key;

/// The longest pause between two comparisons, so that a few compositions do not take as long as thousands.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// True when the status says that a controller found nothing to do for the spec and the chart as they are now, and the
/// annotations ask for no pause that has not begun or not ended.
pub(crate) fn seems_in_order(composition: &Composition, chart: &ChartSpec) -> bool {
    let status = &composition.status;
    let holds = |type_: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| {
            condition.type_ == type_
                && condition.status == "True"
                && condition.observed_generation == composition.generation
        })
    };
    !composition.deleting
        && composition.is_held()
        && !composition.is_paused()
        && composition.is_gracefully_paused() == composition.paused_since().is_some()
        && status.release_revision.is_some()
        && status.helm_chart_url.as_ref() == Some(&chart.url)
        && status.helm_chart_version.is_some()
        && status.helm_chart_version == chart.version
        && [READY, RELEASED, SYNCED].into_iter().all(holds)
}

/// The compositions that wait for their first comparison. Their order differs from process to process, so that each is
/// compared at some time even if no process lives long enough to compare all.
#[derive(Default)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    /// Its order is random in each process.
    keys: HashSet<Key>,
    /// How many have been waiting at most since nothing was.
    most: usize,
}

impl Backlog {
    /// The composition waits.
    pub(crate) fn add(&self, key: Key) {
        let mut waiting = self.lock();
        waiting.keys.insert(key);
        waiting.most = waiting.most.max(waiting.keys.len());
        drop(waiting);
        self.more.notify_one();
    }

    /// The composition does not wait any more: it is gone, or a pass over it has begun.
    pub(crate) fn remove(&self, key: &Key) {
        self.lock().keys.remove(key);
    }

    /// True while the composition waits.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.lock().keys.contains(key)
    }

    /// Queues those that wait, so that all have had their turn after `within`, or earlier if they are few. Never returns.
    pub(crate) async fn work_off(&self, queue: &Queue<Key>, within: Duration) {
        loop {
            match self.next(within) {
                Some((key, pause)) => {
                    queue.add(key, Priority::Low);
                    tokio::time::sleep(pause).await;
                }
                // If one has come meanwhile, this returns at once.
                None => self.more.notified().await,
            }
        }
    }

    /// The next one, and the pause after it.
    fn next(&self, within: Duration) -> Option<(Key, Duration)> {
        let mut waiting = self.lock();
        let Some(key) = waiting.keys.iter().next().cloned() else {
            // The memory for thousands is given back.
            *waiting = Waiting::default();
            return None;
        };
        waiting.keys.remove(&key);
        let most = u32::try_from(waiting.most).unwrap_or(u32::MAX).max(1);
        Some((key, (within / most).min(LONGEST_PAUSE)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::annotations;
    use kube::core::{ApiResource, GroupVersionKind};
    use runtime::queue::Capacity;
    use runtime::{Metrics, Telemetry};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    fn key(number: usize) -> Key {
        Key {
            namespace: "team".into(),
            name: number.to_string(),
        }
    }

    fn composition(change: impl FnOnce(&mut Value)) -> Composition {
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "True", "reason": "Fine", "message": "", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let mut object = json!({
            "metadata": {
                "name": "web", "namespace": "team", "uid": "42", "generation": 3,
                "finalizers": [api::finalizers::COMPOSITION],
            },
            "spec": {},
            "status": {
                "conditions": [condition("Ready"), condition("Synced"), condition("Released")],
                "releaseName": "web", "releaseRevision": 1,
                "helmChartUrl": "oci://host/web", "helmChartVersion": "1.0.0",
            },
        });
        change(&mut object);
        let kind = GroupVersionKind::gvk("composition.krateo.io", "v1-0-0", "Web");
        let resource = ApiResource::from_gvk_with_plural(&kind, "webs");
        Composition::read(serde_json::from_value(object).unwrap(), &resource).unwrap()
    }

    fn chart(version: Option<&str>) -> ChartSpec {
        ChartSpec {
            url: "oci://host/web".to_owned(),
            version: version.map(str::to_owned),
            ..ChartSpec::default()
        }
    }

    #[test]
    fn only_a_composition_that_was_found_as_it_is_now_seems_in_order() {
        let check = |expected: bool, change: fn(&mut Value)| {
            let composition = composition(change);
            let seems = seems_in_order(&composition, &chart(Some("1.0.0")));
            assert_eq!(seems, expected, "{composition:?}");
        };
        check(true, |_| {});
        check(false, |object| object["metadata"]["generation"] = json!(4));
        check(false, |object| object["metadata"]["finalizers"] = json!([]));
        check(false, |object| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        check(false, |object| object["status"] = Value::Null);
        check(false, |object| object["status"]["releaseRevision"] = Value::Null);
        check(false, |object| {
            object["status"]["helmChartUrl"] = json!("oci://host/other");
        });
        check(false, |object| {
            object["status"]["helmChartVersion"] = json!("0.9.0");
        });
        for condition in 0..3 {
            let mut is_false = composition(|_| {});
            "False".clone_into(&mut is_false.status.conditions[condition].status);
            assert!(!seems_in_order(&is_false, &chart(Some("1.0.0"))));
            let mut is_missing = composition(|_| {});
            is_missing.status.conditions.remove(condition);
            assert!(!seems_in_order(&is_missing, &chart(Some("1.0.0"))));
        }
    }

    #[test]
    fn a_pause_that_has_not_begun_or_not_ended_is_not_in_order() {
        let seems = |annotations: Value| {
            let composition = composition(|object| object["metadata"]["annotations"] = annotations);
            seems_in_order(&composition, &chart(Some("1.0.0")))
        };
        let (asked, since) = (
            annotations::GRACEFULLY_PAUSED,
            annotations::GRACEFULLY_PAUSED_TIME,
        );
        assert!(!seems(json!({annotations::PAUSED: "true"})));
        assert!(!seems(json!({asked: "true"})));
        assert!(!seems(json!({since: "2026-01-01T00:00:00Z"})));
        assert!(seems(json!({asked: "true", since: "2026-01-01T00:00:00Z"})));
    }

    #[test]
    fn a_chart_of_another_version_or_of_any_is_looked_at_at_once() {
        for version in [Some("1.0.1"), Some("1.x"), None] {
            assert!(
                !seems_in_order(&composition(|_| {}), &chart(version)),
                "{version:?}"
            );
        }
        let unknown = composition(|object| object["status"]["helmChartVersion"] = Value::Null);
        assert!(!seems_in_order(&unknown, &chart(None)));
    }

    #[test]
    fn each_waits_once_and_not_after_a_pass() {
        let backlog = Backlog::default();
        for number in [1, 2, 1, 3] {
            backlog.add(key(number));
        }
        backlog.remove(&key(2));
        assert!(backlog.contains(&key(1)) && !backlog.contains(&key(2)));
        let next = || backlog.next(Duration::ZERO).map(|(key, _)| key);
        let both: HashSet<Key> = [next(), next()].into_iter().flatten().collect();
        assert_eq!((both, next()), (HashSet::from([key(1), key(3)]), None));
        backlog.add(key(2));
        assert_eq!(backlog.next(Duration::ZERO), Some((key(2), Duration::ZERO)));
    }

    #[test]
    fn the_order_differs_from_process_to_process() {
        // Each backlog has a random order of its own, as each process has.
        let order = || {
            let backlog = Backlog::default();
            (0..100).for_each(|number| backlog.add(key(number)));
            std::iter::from_fn(|| backlog.next(Duration::ZERO)).collect::<Vec<_>>()
        };
        assert_ne!(order(), order());
    }

    #[test]
    fn the_pause_depends_on_how_many_there_were() {
        let check = |count: usize, expected: Duration| {
            let backlog = Backlog::default();
            (0..count).for_each(|number| backlog.add(key(number)));
            let within = Duration::from_mins(30);
            for _ in 0..count.min(3) {
                let pause = backlog.next(within).map(|(_, pause)| pause);
                assert_eq!(pause, Some(expected), "of {count}");
            }
        };
        check(1, LONGEST_PAUSE);
        check(9_000, LONGEST_PAUSE);
        check(10_000, Duration::from_millis(180));
        check(36_000, Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_queued_one_by_one_behind_what_changes() {
        let telemetry = Telemetry::new(&Metrics::new().unwrap(), "unstructured_runtime", "webs").unwrap();
        let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
        let backlog = Arc::new(Backlog::default());
        tokio::spawn({
            let (queue, backlog) = (queue.clone(), backlog.clone());
            async move { backlog.work_off(&queue, Duration::from_secs(10)).await }
        });
        let begun = Instant::now();
        (0..100).for_each(|number| backlog.add(key(number)));
        let changed = key(1_000);
        let mut taken = Vec::new();
        for number in 0..100 {
            let next = queue.take().await;
            if number == 50 {
                queue.add(changed.clone(), Priority::High);
            }
            queue.done(&next);
            taken.push(next);
        }
        assert_eq!(taken[51], changed);
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 100, "{taken:?}");
        let took = begun.elapsed();
        assert!(
            took > Duration::from_secs(9) && took < Duration::from_secs(11),
            "{took:?}"
        );
    }
}
