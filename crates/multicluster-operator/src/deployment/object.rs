//! A deployment on the watch cluster: its status, its events, its finalizer.

use api::conditions::Verdict;
use api::mesh::{
    self, KryptonDeployment, KryptonDeploymentStatus, Phase, ReleaseStatus, annotations, conditions, events,
};
use cluster::ObjectId;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use runtime::events::{Event, Severity};
use serde_json::json;

use super::Error;
use crate::context::Context;
use crate::field_manager::FIELD_MANAGER;
use crate::key::Key;
use crate::message::told;

/// A deployment as it was read.
pub(super) struct Object<'a> {
    pub(super) key: &'a Key,
    pub(super) id: ObjectId,
    pub(super) deployment: KryptonDeployment,
    /// The status as last written.
    pub(super) status: KryptonDeploymentStatus,
    pub(super) ctx: &'a Context,
}

/// The state of a deployment.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) phase: Phase,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// The release and its place, if they are newly known.
    pub(super) release: Option<ReleaseStatus>,
}

impl Outcome {
    pub(super) fn pending(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Pending,
            reason,
            // The message may quote other people's servers.
            message: told(&message.into()),
            release: None,
        }
    }

    pub(super) fn error(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Error,
            ..Self::pending(reason, message)
        }
    }

    pub(super) fn ready(message: impl Into<String>) -> Self {
        Self {
            phase: Phase::Ready,
            ..Self::pending(conditions::DEPLOYED, message)
        }
    }
}

/// The status updated with an outcome.
fn with(
    before: &KryptonDeploymentStatus,
    outcome: Outcome,
    generation: Option<i64>,
    now: &Time,
) -> KryptonDeploymentStatus {
    let mut status = before.clone();
    let verdict = if outcome.phase == Phase::Ready {
        Verdict::yes(conditions::READY, outcome.reason, outcome.message.clone())
    } else {
        Verdict::no(conditions::READY, outcome.reason, outcome.message.clone())
    };
    api::conditions::set(&mut status.conditions, &verdict, generation, now);
    status.phase = Some(outcome.phase);
    status.last_message = Some(outcome.message);
    if let Some(release) = outcome.release {
        status.last_applied_chart.clone_from(&release.chart);
        status.release = Some(release);
    }
    status
}

impl Object<'_> {
    pub(super) fn is_deleting(&self) -> bool {
        self.deployment.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_forced(&self) -> bool {
        api::annotations::is_true(self.deployment.annotations(), annotations::FORCE_DELETE)
    }

    /// Writes the status, if it changes.
    pub(super) async fn report(&mut self, outcome: Outcome) -> Result<(), Error> {
        let (now, generation) = (Time(Timestamp::now()), self.deployment.metadata.generation);
        let is_ready = outcome.phase == Phase::Ready;
        let status = with(&self.status, outcome, generation, &now);
        if status == self.status {
            return Ok(());
        }
        let writing = self
            .ctx
            .home
            .merge_status(&self.id, &json!(status), FIELD_MANAGER)
            .await;
        match writing {
            Ok(_) => {}
            // The object was deleted when its last finalizer was removed.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => {
                self.warn(events::STATUS_UPDATE_FAILED, &crate::message::chain(&error))
                    .await;
                return Err(Error::Report(error));
            }
        }
        if is_ready && self.status.phase != Some(Phase::Ready) {
            let message = status.last_message.clone().unwrap_or_default();
            self.say(events::READY, &message).await;
        }
        self.status = status;
        Ok(())
    }

    /// Publishes what stays behind when the object is deleted although its release could not be removed.
    pub(super) async fn orphan(&self, why: &str) -> String {
        let release = self.status.release.as_ref();
        let what = release.map_or_else(
            || "nothing that is known".to_owned(),
            |release| {
                format!(
                    "release {} in namespace {} of cluster {}",
                    release.name, release.namespace, release.cluster
                )
            },
        );
        let note = format!(
            "the object was removed although its release could not be removed ({why}); what stays: {what}"
        );
        tracing::warn!(object = %self.key, "{note}");
        self.warn(events::RELEASES_ORPHANED, &note).await;
        what
    }

    pub(super) async fn say(&self, reason: &str, note: &str) {
        self.publish(Severity::Normal, reason, note).await;
    }

    pub(super) async fn warn(&self, reason: &str, note: &str) {
        self.publish(Severity::Warning, reason, note).await;
    }

    async fn publish(&self, severity: Severity, reason: &str, note: &str) {
        let event = Event {
            severity,
            reason,
            action: reason,
            note,
        };
        let regarding = ObjectReference {
            api_version: Some(format!("{}/v1alpha1", mesh::GROUP)),
            kind: Some("KryptonDeployment".to_owned()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(self.key.name.clone()),
            uid: self.deployment.uid(),
            ..ObjectReference::default()
        };
        self.ctx.recorder.publish(&regarding, &event).await;
    }
}
