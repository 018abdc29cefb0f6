//! Publishes what happened to an object as `events.k8s.io/v1` events.
//!
//! kube's own recorder counts repetitions with a write for each, and keeps only the first message of a reason. Here the
//! same note about the same object is published only once in a while, and a new note at once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::events;
use cluster::{Cluster, ObjectId};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// How long the same note is not repeated, by default.
pub const SILENCE: Duration = Duration::from_mins(5);

/// The API server's limit for a note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// How many different notes are remembered.
const CAPACITY: usize = 20_000;

/// Whether an event reports a success or a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// It went as it should.
    Normal,
    /// It needs a look.
    Warning,
}

/// One event about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event<'a> {
    /// Good news or not.
    pub severity: Severity,
    /// Reason, one word in camel case, such as `CompositionCreated`.
    pub reason: &'a str,
    /// What was being done, one word in camel case.
    pub action: &'a str,
    /// The message for the user.
    pub note: &'a str,
}

impl Event<'static> {
    /// Reconciliation of an object was paused by its annotation.
    pub const PAUSED: Self = Self {
        severity: Severity::Normal,
        reason: events::RECONCILIATION_PAUSED,
        action: events::OBSERVE,
        note: "Reconciliation is paused by annotation krateo.io/paused",
    };
}

/// Publishes events as a controller; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    cluster: Cluster,
    controller: Arc<str>,
    instance: Arc<str>,
    silence: Duration,
    told: Arc<Mutex<HashMap<u64, Instant>>>,
}

impl Recorder {
    /// For a controller; `instance` identifies this process (the name of its pod).
    pub fn new(cluster: Cluster, controller: &str, instance: &str) -> Self {
        Self {
            cluster,
            controller: controller.into(),
            instance: instance.into(),
            silence: SILENCE,
            told: Arc::default(),
        }
    }

    /// With a different time during which the same note is not repeated.
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Publishes that something happened to an object.
    ///
    /// Events are best effort: if one cannot be published, the log has a warning and the pass does not fail.
    pub async fn publish(&self, regarding: &ObjectReference, event: &Event<'_>) {
        if !self.is_news(regarding, event) {
            return;
        }
        if let Err(error) = self.create(regarding, event).await {
            tracing::warn!(
                reason = event.reason,
                object = regarding.name,
                namespace = regarding.namespace,
                error = &error as &dyn std::error::Error,
                "could not publish an event"
            );
        }
    }

    async fn create(&self, regarding: &ObjectReference, event: &Event<'_>) -> Result<(), cluster::Error> {
        let now = Timestamp::now();
        // Events about cluster-scoped objects are in `default`, where kubectl looks for them.
        let namespace = regarding
            .namespace
            .as_deref()
            .filter(|n| !n.is_empty())
            .unwrap_or("default");
        let name = event_name(regarding.name.as_deref().unwrap_or(&self.controller), now);
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now),
            "regarding": regarding,
            "type": match event.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            },
            "reason": event.reason,
            "action": event.action,
            "note": cut(event.note, LONGEST_NOTE),
            "reportingController": &*self.controller,
            "reportingInstance": cut(&self.instance, 128),
        });
        let id = ObjectId::of::<EventObject>(Some(namespace), &name)?;
        self.cluster
            .create(&id, &event, &self.controller)
            .await
            .map(|_| ())
    }

    /// True if this note about this object was not published within the silence; it then counts as published.
    fn is_news(&self, regarding: &ObjectReference, event: &Event<'_>) -> bool {
        let mut hasher = DefaultHasher::new();
        (
            &regarding.kind,
            &regarding.namespace,
            &regarding.name,
            &regarding.uid,
            event,
        )
            .hash(&mut hasher);
        let (key, now) = (hasher.finish(), Instant::now());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told
            .get(&key)
            .is_some_and(|at| now.duration_since(*at) < self.silence)
        {
            return false;
        }
        if told.len() >= CAPACITY {
            told.retain(|_, at| now.duration_since(*at) < self.silence);
        }
        if told.len() >= CAPACITY {
            told.clear(); // rather repeat some notes than use unbounded memory
        }
        told.insert(key, now);
        true
    }
}

/// `web.1869a0…`: the object's name and the time, the way client-go names events.
fn event_name(object: &str, now: Timestamp) -> String {
    let suffix = format!("{:x}", now.as_nanosecond());
    // RBAC names may contain characters that names of events may not.
    let clean = |c: char| {
        if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let object: String = cut(object, 253 - 1 - suffix.len()).chars().map(clean).collect();
    format!("{}.{suffix}", object.trim_matches(['-', '.']))
}

/// At most this many bytes of a text, cut at a character boundary.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use http::Method;

    use super::*;

    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/shop/events";

    fn web() -> ObjectReference {
        ObjectReference {
            kind: Some("Shop".into()),
            namespace: Some("shop".into()),
            name: Some("web".into()),
            uid: Some("u1".into()),
            ..ObjectReference::default()
        }
    }

    fn created(note: &str) -> Event<'_> {
        Event {
            severity: Severity::Normal,
            reason: "CompositionCreated",
            action: "CreateEvent",
            note,
        }
    }

    #[tokio::test]
    async fn the_same_note_is_published_once_and_another_at_once() {
        let script = Script::new("two different notes")
            .on(
                Method::POST,
                EVENTS,
                |sent| {
                    assert_eq!(
                        [&sent["apiVersion"], &sent["kind"]],
                        ["events.k8s.io/v1", "Event"]
                    );
                    assert!(sent["metadata"]["name"].as_str().unwrap().starts_with("web."));
                    assert_eq!(sent["regarding"]["uid"], "u1");
                    assert_eq!(
                        [&sent["type"], &sent["reason"], &sent["action"], &sent["note"]],
                        ["Normal", "CompositionCreated", "CreateEvent", "one"]
                    );
                    assert_eq!(
                        [&sent["reportingController"], &sent["reportingInstance"]],
                        ["cdc", "pod-1"]
                    );
                },
                201,
                json!({}),
            )
            .on(
                Method::POST,
                EVENTS,
                |sent| assert_eq!(sent["note"], "two"),
                201,
                json!({}),
            );
        let recorder = Recorder::new(script.cluster(), "cdc", "pod-1");
        for note in ["one", "one", "two", "one"] {
            recorder.publish(&web(), &created(note)).await;
        }
        script.finish();
    }

    #[tokio::test]
    async fn the_same_note_is_published_again_after_the_silence() {
        let script =
            Script::new("once, for a silence of an hour").on(Method::POST, EVENTS, |_| {}, 201, json!({}));
        let recorder = Recorder::new(script.cluster(), "cdc", "pod-1").with_silence(Duration::from_hours(1));
        recorder.publish(&web(), &created("one")).await;
        recorder.publish(&web(), &created("one")).await;
        script.finish();
        let script = Script::new("twice")
            .on(Method::POST, EVENTS, |_| {}, 201, json!({}))
            .on(Method::POST, EVENTS, |_| {}, 201, json!({}));
        let recorder = Recorder::new(script.cluster(), "cdc", "pod-1").with_silence(Duration::ZERO);
        recorder.publish(&web(), &created("one")).await;
        recorder.publish(&web(), &created("one")).await;
        script.finish();
    }

    #[tokio::test]
    async fn a_refused_event_fails_nothing_and_cluster_scoped_objects_have_a_place() {
        let script = Script::new("forbidden").refuse(
            Method::POST,
            "/apis/events.k8s.io/v1/namespaces/default/events",
            403,
            "Forbidden",
            "no",
        );
        let node = ObjectReference {
            name: Some("node".into()),
            ..ObjectReference::default()
        };
        Recorder::new(script.cluster(), "cdc", "pod-1")
            .publish(&node, &created("one"))
            .await;
        script.finish();
    }

    #[test]
    fn names_and_notes_fit_the_server() {
        let now = Timestamp::from_nanosecond(0x1869_a0ff).unwrap();
        assert_eq!(event_name("web", now), "web.1869a0ff");
        assert_eq!(
            event_name("composition:shops:a:b", now),
            "composition-shops-a-b.1869a0ff"
        );
        assert_eq!(event_name(&"x".repeat(300), now).len(), 253);
        assert_eq!(cut("aé", 2), "a");
    }
}
