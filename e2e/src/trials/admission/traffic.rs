//! The writes, as dry runs: nothing is stored, but all of admission runs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use local_cluster::ControlPlane;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;

use super::composition;
use crate::proxy::client;

/// How many writers there are.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// As many writers.
    pub writers: usize,
    /// How long each of them pauses between two writes.
    pub pause: Duration,
}

impl Pace {
    /// About forty writes a second, as long as they are answered at once.
    pub const STEADY: Self = Self {
        writers: 8,
        pause: Duration::from_millis(200),
    };
    /// About ten writes a second.
    pub const SLOW: Self = Self {
        writers: 4,
        pause: Duration::from_millis(400),
    };
}

/// A write has failed after this long without an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The results of writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered according to the chart's schema.
    pub right: u64,
    /// Accepted although the schema refuses it: the webhook was not called, or gave the wrong answer.
    pub unchecked: u64,
    /// Refused although the schema accepts it.
    pub wrong: u64,
    /// Not answered.
    pub failed: u64,
}

impl Counts {
    /// All of them.
    pub fn asked(&self) -> u64 {
        self.right + self.unchecked + self.wrong + self.failed
    }

    /// The results since then.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            right: self.right - before.right,
            unchecked: self.unchecked - before.unchecked,
            wrong: self.wrong - before.wrong,
            failed: self.failed - before.failed,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            right,
            unchecked,
            wrong,
            failed,
        } = self;
        let asked = self.asked();
        write!(
            f,
            "{asked} writes: {right} answered rightly, {unchecked} unchecked, {wrong} wrongly refused, {failed} without answer"
        )
    }
}

/// Running writers; they stop when this is dropped.
pub struct Traffic {
    _runtime: Runtime,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    right: AtomicU64,
    unchecked: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    /// The name of the unchecked ones in the audit log.
    unchecked_ids: Mutex<Vec<String>>,
}

/// What a writer writes.
#[derive(Clone)]
struct Writes {
    client: reqwest::Client,
    url: String,
    kind: String,
    namespace: String,
}

/// The API server's answer to a write.
struct Answer {
    taken: bool,
    /// Its name in the audit log.
    id: String,
}

impl Traffic {
    /// Starts to write compositions of a type of [`super::judged_chart`] as admin, alternately one that its schema
    /// accepts and one that it refuses.
    ///
    /// # Errors
    /// When there are no credentials of an admin.
    pub fn start(
        plane: &ControlPlane,
        namespace: &str,
        kind: &str,
        plural: &str,
        pace: Pace,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let counters = Arc::new(Counters::default());
        let writes = Writes {
            client: client(plane, true)?,
            url: format!(
                "{}/apis/composition.krateo.io/v1-0-0/namespaces/{namespace}/{plural}?dryRun=All",
                plane.api_server()
            ),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
        };
        for number in 0..pace.writers {
            runtime.spawn(go_on(writes.clone(), number, pace.pause, counters.clone()));
        }
        Ok(Self {
            _runtime: runtime,
            counters,
        })
    }

    /// The results so far.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Counts {
            right: read(&self.counters.right),
            unchecked: read(&self.counters.unchecked),
            wrong: read(&self.counters.wrong),
            failed: read(&self.counters.failed),
        }
    }
}

/// How the audit log marks a write that was accepted although a webhook did not answer.
const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";

impl Traffic {
    /// How many of the unchecked writes were accepted because the webhook did not answer, according to the audit log.
    ///
    /// # Errors
    /// When there is no audit log.
    pub fn unanswered(&self, plane: &ControlPlane) -> Result<u64> {
        let log = std::fs::read_to_string(plane.folder().join("audit.log")).context("no audit log")?;
        let failed_open: BTreeSet<&str> = log
            .lines()
            .filter(|line| line.contains(FAILED_OPEN))
            .filter_map(|line| line.split_once("\"auditID\":\"")?.1.split('"').next())
            .collect();
        let ids = self.counters.unchecked_ids.lock();
        let ids = ids.unwrap_or_else(PoisonError::into_inner);
        Ok(ids.iter().filter(|id| failed_open.contains(id.as_str())).count() as u64)
    }
}

async fn go_on(writes: Writes, number: usize, pause: Duration, counters: Arc<Counters>) {
    let mut fits = number.is_multiple_of(2);
    // From one write to the next, however long an answer takes.
    let mut turns = tokio::time::interval(pause);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        fits = !fits;
        let counter = match writes.write(number, fits).await {
            Ok(answer) if answer.taken == fits => &counters.right,
            Ok(Answer { taken: true, id }) => {
                let ids = counters.unchecked_ids.lock();
                ids.unwrap_or_else(PoisonError::into_inner).push(id);
                &counters.unchecked
            }
            Ok(Answer { taken: false, .. }) => &counters.wrong,
            Err(error) => {
                crate::progress(format_args!("a write was not answered: {error:#}"));
                &counters.failed
            }
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Writes {
    async fn write(&self, number: usize, fits: bool) -> Result<Answer> {
        let value = if fits { json!(1) } else { json!("text") };
        let name = format!("writer-{number}");
        let object = composition(
            &self.kind,
            &self.namespace,
            &name,
            &json!({"image": "web", "x-a": value}),
        );
        let answer = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .body(object.to_string())
            .timeout(PATIENCE)
            .send()
            .await?;
        let id = answer.headers().get("audit-id").and_then(|id| id.to_str().ok());
        let id = id.unwrap_or_default().to_owned();
        if answer.status().is_success() {
            // Unread data of an answer is an error of its stream, and too many of them end the connection.
            answer.bytes().await?;
            return Ok(Answer { taken: true, id });
        }
        let status = answer.status();
        let said: Value =
            serde_json::from_str(&answer.text().await?).context("no answer of an API server")?;
        let message = said["message"].as_str().unwrap_or_default();
        anyhow::ensure!(message.contains("values don't meet"), "{status}: {message}");
        Ok(Answer { taken: false, id })
    }
}
