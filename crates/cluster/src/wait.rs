//! Waits, with a time limit, for an object to reach a state.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::readiness::{Completion, completion};
use crate::{Cluster, Error, Health, ObjectId, health};

/// Called for every change in the health of the awaited object.
pub type Progress<'a> = &'a mut (dyn FnMut(&Health) + Send);

/// The state that an object should reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// It exists and is [`Health::Current`]; for a CRD this means established.
    Current,
    /// It is a Job or a Pod, and done.
    Complete,
    /// It does not exist.
    Gone,
    /// The object with this UID does not exist; a successor of its name may.
    GoneOf(String),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::Complete => "complete",
            Self::Gone | Self::GoneOf(_) => "gone",
        })
    }
}

/// How far an object is from a goal.
enum Distance {
    Reached,
    Underway,
    OutOfReach { why: String },
}

/// The first check is immediate, the next follows soon, later ones are further apart.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl Cluster {
    /// Waits until an object reaches a state, and returns it (`None` when it is gone).
    ///
    /// Only `get` is needed. A request that fails for a transient reason is repeated until the time is over.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] as soon as the object cannot get there any more; [`Error::Wait`] after `timeout`;
    /// [`Error::Request`].
    pub async fn wait_until(
        &self,
        id: &ObjectId,
        goal: Goal,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<Option<Value>, Error> {
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        let mut last: Option<Health> = None;
        loop {
            let looked = self.get::<Value>(id).await;
            if let Ok(object) = looked {
                let now = object.as_ref().map_or(Health::NotFound, health);
                let distance = goal.distance(object.as_ref(), &now);
                if matches!(distance, Distance::Reached) {
                    return Ok(object);
                }
                if last.as_ref() != Some(&now) {
                    progress(&now);
                }
                last = Some(now);
                if let Distance::OutOfReach { why } = distance {
                    return Err(Error::Failed {
                        object: Box::new(id.clone()),
                        why,
                    });
                }
            } else if let Err(error) = looked
                && (!error.is_transient() || Instant::now() + pause >= deadline)
            {
                return Err(error);
            }
            if Instant::now() + pause >= deadline {
                let last = last.map_or_else(|| "not seen".to_owned(), |health| health.to_string());
                return Err(Error::Wait {
                    object: Box::new(id.clone()),
                    goal,
                    within: timeout,
                    last,
                });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Goal {
    fn distance(&self, object: Option<&Value>, now: &Health) -> Distance {
        match self {
            Self::Gone if object.is_none() => Distance::Reached,
            Self::GoneOf(uid) if object.is_none_or(|object| object["metadata"]["uid"] != uid.as_str()) => {
                Distance::Reached
            }
            Self::Gone | Self::GoneOf(_) => Distance::Underway,
            Self::Current => match now {
                Health::Current => Distance::Reached,
                Health::Failed { why } => Distance::OutOfReach { why: why.clone() },
                // It may be a predecessor that is being deleted, or not created yet.
                Health::Progressing { .. } | Health::Terminating { .. } | Health::NotFound => {
                    Distance::Underway
                }
            },
            Self::Complete => match object.map(completion) {
                Some(Completion::Succeeded) => Distance::Reached,
                Some(Completion::Failed { why }) => Distance::OutOfReach { why },
                Some(Completion::Running) => Distance::Underway,
                None => Distance::OutOfReach {
                    why: "it was removed before it was through".to_owned(),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::json;

    use super::*;
    use crate::scripted::Script;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_definition_is_awaited_through_a_passing_fault() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.example.org";
        let crd = |status: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                   "status": {"conditions": [{"type": "Established", "status": status, "reason": "Installing"}]}})
        };
        let script = Script::new("established at the fourth look")
            .absent(path)
            .refuse(Method::GET, path, 503, "ServiceUnavailable", "starting")
            .get(path, crd("False"))
            .get(path, crd("True"));
        let id = ObjectId::of::<CustomResourceDefinition>(None, "shops.example.org").unwrap();
        let mut seen = Vec::new();
        let mut progress = |health: &Health| seen.push(health.to_string());
        let found = script
            .cluster()
            .wait_until(&id, Goal::Current, SOON, &mut progress)
            .await
            .unwrap();
        assert_eq!(found, Some(crd("True")));
        assert_eq!(
            seen,
            ["not found", "progressing: the definition is not established"]
        );
        script.finish();
    }

    #[tokio::test]
    async fn a_job_that_gave_up_is_not_awaited_further() {
        let path = "/apis/batch/v1/namespaces/shop/jobs/migrate";
        let job = |condition: &str| {
            json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"startTime": "t", "conditions": [
                {"type": condition, "status": "True", "reason": "BackoffLimitExceeded"}]}})
        };
        let script = Script::new("runs, then fails")
            .get(path, job("None"))
            .get(path, job("Failed"));
        let id = ObjectId::of::<Job>(Some("shop"), "migrate").unwrap();
        let error = script
            .cluster()
            .wait_until(&id, Goal::Complete, SOON, &mut |_| {})
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "Job.batch shop/migrate failed: BackoffLimitExceeded"
        );
        assert!(!error.is_transient());
        script.finish();
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_not_awaited() {
        let path = "/apis/batch/v1/namespaces/shop/jobs/migrate";
        let script = Script::new("forbidden").refuse(Method::GET, path, 403, "Forbidden", "no");
        let id = ObjectId::of::<Job>(Some("shop"), "migrate").unwrap();
        let error = script
            .cluster()
            .wait_until(&id, Goal::Current, SOON, &mut |_| {})
            .await
            .unwrap_err();
        assert!(error.is_forbidden());
        script.finish();
    }
}
