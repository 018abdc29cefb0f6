//! A known cluster: its name, its state, and what of that is reported on its Secret.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::mesh::annotations::CLUSTER_STATE;
use api::mesh::events;
use cluster::ObjectId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use runtime::events::{Event, Severity};

use super::state::{ClusterState, Standing};
use crate::cluster_id::ClusterId;
use crate::context::Context;
use crate::field_manager::FIELD_MANAGER;
use crate::message::{chain, told};

/// How often a new message about an unchanged state is published.
const SAME_STATE_AGAIN: Duration = Duration::from_mins(1);

/// How long reporting a state may take: the watch cluster may be the one that does not answer.
pub(super) const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// The longest entry about a release that was left behind: three names with words between them.
const LONGEST_ENTRY: usize = 500;

/// A known cluster.
pub(crate) struct Member {
    pub(crate) id: ClusterId,
    /// Its name in the names of releases, conditions and metrics.
    pub(crate) name: String,
    /// True if tenants are reconciled there. They are not if only a deployment names the kubeconfig: its author decides
    /// about that deployment only.
    pub(super) has_tenants: bool,
    pub(super) standing: Mutex<Standing>,
    /// When the state was last reported.
    pub(super) told_at: Mutex<Instant>,
    /// True if the state could not be reported, so that the Secret shows an earlier one.
    pub(super) is_untold: AtomicBool,
    pub(super) annotations: Mutex<BTreeMap<String, String>>,
}

impl Member {
    pub(crate) fn standing(&self) -> Standing {
        lock(&self.standing).clone()
    }

    /// Sets the state of the cluster, and reports it if it is new. A server may give ever different reasons for not
    /// answering: new reasons for the same state are reported only once in a while.
    pub(super) async fn stand(&self, state: ClusterState, message: &str, ctx: &Context) {
        let Some((next, is_other)) = self.note(state, message) else {
            return self.tell_again(ctx).await;
        };
        tracing::info!(cluster = self.name, state = state.as_str(), message, "cluster");
        if is_other {
            ctx.metrics.state(&self.name, Some(state));
            // The receiver is gone once the process ends.
            let _ = ctx.news.send(self.id.clone());
        }
        // The other states last only for a moment.
        if matches!(
            state,
            ClusterState::Engaged | ClusterState::Unreachable | ClusterState::Disengaged
        ) {
            self.tell(&next, message, ctx).await;
        }
    }

    /// The state to report, and whether it differs from the previous one; none if there is nothing new.
    fn note(&self, state: ClusterState, message: &str) -> Option<(Standing, bool)> {
        let mut standing = lock(&self.standing);
        let is_other = standing.state != state;
        if !is_other && lock(&self.told_at).elapsed() < SAME_STATE_AGAIN {
            return None;
        }
        let next = standing.seen(state, message, Timestamp::now())?;
        *standing = next.clone();
        *lock(&self.told_at) = Instant::now();
        Some((next, is_other))
    }

    /// Reports on the Secret, once, what is wrong with a cluster that is nevertheless served.
    pub(super) async fn complain(&self, why: &str, ctx: &Context) {
        let standing = {
            let mut standing = lock(&self.standing);
            if standing.message == why {
                return;
            }
            why.clone_into(&mut standing.message);
            standing.clone()
        };
        tracing::warn!(cluster = self.name, why, "cluster");
        self.tell(&standing, why, ctx).await;
    }

    /// Records on the Secret what an object left behind when it was removed without its release.
    pub(crate) async fn left_behind(&self, what: &str, ctx: &Context) {
        let what = told(&what.chars().take(LONGEST_ENTRY).collect::<String>());
        let standing = {
            let mut standing = lock(&self.standing);
            standing.leave(&what);
            standing.clone()
        };
        self.tell(&standing, &format!("left behind: {what}"), ctx).await;
    }

    /// Reports again what could not be reported.
    pub(super) async fn tell_again(&self, ctx: &Context) {
        if self.is_untold.load(Ordering::Relaxed) {
            let standing = self.standing();
            self.tell(&standing, &standing.message, ctx).await;
        }
    }

    /// Writes it to the Secret, where users see it. It gives up after a time limit, because the caller serves the
    /// cluster and waits for this.
    pub(super) async fn tell(&self, standing: &Standing, news: &str, ctx: &Context) {
        let secret = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.id.namespace.clone()),
            name: Some(self.id.name.clone()),
            ..ObjectReference::default()
        };
        let note = format!("{}: {news}", standing.state.as_str());
        let event = Event {
            severity: match standing.state {
                ClusterState::Unreachable => Severity::Warning,
                ClusterState::Discovered
                | ClusterState::Connecting
                | ClusterState::Engaged
                | ClusterState::Disengaged => Severity::Normal,
            },
            reason: events::CLUSTER_STATE,
            action: standing.state.as_str(),
            note: &note,
        };
        let noting = async {
            let id = ObjectId::of::<Secret>(Some(&self.id.namespace), &self.id.name)?;
            let text = serde_json::to_string(standing).unwrap_or_default();
            let annotation = [(CLUSTER_STATE, Some(text.as_str()))];
            ctx.home.annotate(&id, annotation, FIELD_MANAGER).await
        };
        // If this future is dropped at the time limit, the state counts as not reported.
        self.is_untold.store(true, Ordering::Relaxed);
        // Boxed, because otherwise every future that awaits this would be as large.
        let telling = Box::pin(async {
            let noted = noting.await;
            ctx.recorder.publish(&secret, &event).await;
            noted
        });
        let why = match tokio::time::timeout(TOLD_WITHIN, telling).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) if error.is_not_found() => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(format!("no answer within {} s", TOLD_WITHIN.as_secs())),
        };
        self.is_untold.store(why.is_some(), Ordering::Relaxed);
        if let Some(error) = why {
            tracing::warn!(
                cluster = self.name,
                error,
                "could not note the state of a cluster"
            );
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
