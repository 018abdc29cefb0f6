//! Deletes objects, and waits until they are gone.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::request::Call;
use crate::{Attempt, Cluster, Error, Goal, ObjectId, Progress};

/// The pause before an object that still exists is deleted again.
const DELETE_AGAIN: Duration = Duration::from_millis(500);

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector removes them afterwards.
    #[default]
    Background,
    /// They are deleted first, the object last.
    Foreground,
    /// They are kept.
    Orphan,
}

/// How to delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete<'a> {
    propagation: Propagation,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
    grace_seconds: Option<u32>,
    dry_run: bool,
}

impl<'a> Delete<'a> {
    /// With this propagation.
    pub fn with(propagation: Propagation) -> Self {
        Self {
            propagation,
            ..Self::default()
        }
    }

    /// Only the object with this UID, not a successor of the same name.
    pub fn uid(self, uid: &'a str) -> Self {
        Self {
            uid: Some(uid),
            ..self
        }
    }

    /// Only the object as it was read: if it was changed since, that is a conflict.
    pub fn resource_version(self, version: &'a str) -> Self {
        Self {
            resource_version: Some(version),
            ..self
        }
    }

    /// With this grace period instead of the object's own.
    pub fn grace_seconds(self, seconds: u32) -> Self {
        Self {
            grace_seconds: Some(seconds),
            ..self
        }
    }

    /// Changes nothing; only checks whether it would be allowed.
    pub fn dry_run(self) -> Self {
        Self {
            dry_run: true,
            ..self
        }
    }

    fn options(&self) -> Value {
        let mut options = json!({"propagationPolicy": match self.propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }});
        if let Some(uid) = self.uid {
            options["preconditions"]["uid"] = uid.into();
        }
        if let Some(version) = self.resource_version {
            options["preconditions"]["resourceVersion"] = version.into();
        }
        if let Some(seconds) = self.grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}

/// The outcome of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The object does not exist: it never did, it was removed at once, or its name belongs to another object.
    Gone,
    /// The object is being deleted: finalizers, dependents or a grace period keep it for now.
    Going {
        /// Its UID.
        uid: String,
    },
}

impl Cluster {
    /// Deletes an object; it is no error if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn delete(&self, id: &ObjectId, how: &Delete<'_>) -> Result<Deleted, Error> {
        let call = Call::new(Method::DELETE, id.path())
            .json(&how.options())
            .metadata_suffices();
        match self.about(id, Attempt::Delete, call).await {
            // The server answers with the object while it still exists, and with a status once it is gone.
            Ok((_, answer)) if answer["metadata"]["deletionTimestamp"].is_string() => {
                let uid = answer["metadata"]["uid"].as_str().unwrap_or_default();
                Ok(Deleted::Going { uid: uid.to_owned() })
            }
            Ok(_) => Ok(Deleted::Gone),
            Err(error) if error.is_not_found() => Ok(Deleted::Gone),
            Err(error) if error.is_conflict() && self.is_succeeded(id, how.uid).await? => Ok(Deleted::Gone),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object and waits until it is gone; it is no error if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Request`]; [`Error::Wait`] says what still blocks the deletion after `timeout`.
    pub async fn delete_and_wait(
        &self,
        id: &ObjectId,
        how: &Delete<'_>,
        timeout: Duration,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        match self.delete(id, how).await? {
            Deleted::Gone => Ok(()),
            Deleted::Going { .. } => match how.uid {
                Some(uid) => {
                    self.wait_until(id, Goal::GoneOf(uid.to_owned()), timeout, progress)
                        .await
                }
                None => self.wait_until(id, Goal::Gone, timeout, progress).await,
            }
            .map(|_| ()),
        }
    }

    /// The same for an object that may be deleted but not read: it is deleted again until it no longer exists.
    ///
    /// # Errors
    ///
    /// Those of [`Cluster::delete_and_wait`].
    pub async fn delete_until_gone(
        &self,
        id: &ObjectId,
        how: &Delete<'_>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let begun = tokio::time::Instant::now();
        while matches!(self.delete(id, how).await?, Deleted::Going { .. }) {
            if begun.elapsed() > timeout {
                return Err(Error::Wait {
                    object: Box::new(id.clone()),
                    goal: Goal::Gone,
                    within: timeout,
                    last: "still going".to_owned(),
                });
            }
            tokio::time::sleep(DELETE_AGAIN).await;
        }
        Ok(())
    }

    /// True when the name now belongs to another object than that of `uid`, or to none.
    async fn is_succeeded(&self, id: &ObjectId, uid: Option<&str>) -> Result<bool, Error> {
        let Some(uid) = uid else { return Ok(false) };
        Ok(self
            .get_metadata(id)
            .await?
            .is_none_or(|now| now.metadata.uid.as_deref() != Some(uid)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::scripted::Script;

    const PATH: &str = "/api/v1/namespaces/shop/configmaps/web";

    fn web() -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap()
    }

    fn object(uid: &str, going: bool) -> Value {
        let mut object = json!({"metadata": {"name": "web", "uid": uid}});
        if going {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            object["metadata"]["finalizers"] = json!(["example.org/hold"]);
        }
        object
    }

    #[tokio::test]
    async fn gone_is_success() {
        let script = Script::new("three ways to be gone")
            .refuse(Method::DELETE, PATH, 404, "NotFound", "no")
            .on(Method::DELETE, PATH, |_| {}, 200, json!({"kind": "Status", "status": "Success"}))
            .on(
                Method::DELETE,
                PATH,
                |sent| assert_eq!(*sent, json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "u1"}})),
                409,
                json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "Precondition failed: UID"}),
            )
            .get(PATH, object("u2", false));
        let cluster = script.cluster();
        let plain = Delete::default();
        assert_eq!(cluster.delete(&web(), &plain).await.unwrap(), Deleted::Gone);
        assert_eq!(cluster.delete(&web(), &plain).await.unwrap(), Deleted::Gone);
        let precise = Delete::with(Propagation::Foreground).uid("u1");
        assert_eq!(cluster.delete(&web(), &precise).await.unwrap(), Deleted::Gone);
        script.finish();
    }

    #[tokio::test]
    async fn a_conflict_about_the_same_object_is_an_error() {
        let script = Script::new("still the same")
            .refuse(Method::DELETE, PATH, 409, "Conflict", "try again")
            .get(PATH, object("u1", false));
        let error = script
            .cluster()
            .delete(&web(), &Delete::default().uid("u1"))
            .await
            .unwrap_err();
        assert!(error.is_transient());
        script.finish();
    }

    #[tokio::test]
    async fn waiting_ends_when_the_object_or_its_successor_shows() {
        let script = Script::new("finalizer, then a successor")
            .on(Method::DELETE, PATH, |_| {}, 200, object("u1", true))
            .get(PATH, object("u1", true))
            .get(PATH, object("u2", false));
        let how = Delete::default().uid("u1");
        let mut seen = Vec::new();
        script
            .cluster()
            .delete_and_wait(&web(), &how, Duration::from_secs(5), &mut |health| {
                seen.push(health.to_string());
            })
            .await
            .unwrap();
        assert_eq!(seen, ["terminating, held by example.org/hold"]);
        script.finish();
    }

    #[tokio::test]
    async fn waiting_in_vain_names_what_holds_the_object() {
        let mut script = Script::new("held").on(Method::DELETE, PATH, |_| {}, 200, object("u1", true));
        for _ in 0..3 {
            script = script.get(PATH, object("u1", true));
        }
        let timeout = Duration::from_millis(200);
        let error = script
            .cluster()
            .delete_and_wait(&web(), &Delete::default(), timeout, &mut |_| {})
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "ConfigMap shop/web is not gone after 200ms: terminating, held by example.org/hold"
        );
    }
}
