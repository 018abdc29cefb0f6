//! Adds and removes one finalizer of an object, and leaves others alone.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::request::Call;
use crate::{Attempt, Cluster, Error, ObjectId};

const JSON_PATCH: &str = "application/json-patch+json";

/// How often a patch is tried after somebody else was faster.
const ROUNDS: usize = 5;

impl Cluster {
    /// Adds a finalizer to an object; true when that was a change.
    ///
    /// `seen` is the metadata as the caller knows it. The patch applies only while the list of finalizers is
    /// unchanged; otherwise the metadata is read again and the patch retried. Other finalizers keep their positions.
    /// An object that is being deleted, or has another `uid` by now, gets none (false): the server would refuse it.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn add_finalizer(&self, id: &ObjectId, seen: &ObjectMeta, name: &str) -> Result<bool, Error> {
        self.edit_finalizers(id, seen, |now| adding(now, name)).await
    }

    /// Removes a finalizer from an object; true when that was a change. Nothing is done for an object that is gone.
    ///
    /// `seen` is the metadata as the caller knows it, as for [`Cluster::add_finalizer`].
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn remove_finalizer(
        &self,
        id: &ObjectId,
        seen: &ObjectMeta,
        name: &str,
    ) -> Result<bool, Error> {
        self.edit_finalizers(id, seen, |now| removing(now, name)).await
    }

    async fn edit_finalizers(
        &self,
        id: &ObjectId,
        seen: &ObjectMeta,
        edit: impl Fn(&ObjectMeta) -> Option<Value>,
    ) -> Result<bool, Error> {
        let mut now = seen.clone();
        for round in 1.. {
            let Some(patch) = edit(&now) else { return Ok(false) };
            let call = Call::new(Method::PATCH, id.path())
                .body(JSON_PATCH, &patch)
                .metadata_suffices();
            let error = match self.about(id, Attempt::Finalize, call).await {
                Ok(_) => return Ok(true),
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => error,
            };
            // A JSON patch whose test fails is 422 `Invalid`; a write in between is 409.
            if round == ROUNDS || !(error.is_invalid() || error.is_conflict()) {
                return Err(error);
            }
            match self.get_metadata(id).await? {
                Some(read) if read.metadata.uid == seen.uid || seen.uid.is_none() => now = read.metadata,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}

fn adding(now: &ObjectMeta, name: &str) -> Option<Value> {
    let finalizers = now.finalizers.as_deref().unwrap_or_default();
    if now.deletion_timestamp.is_some() || finalizers.iter().any(|held| held == name) {
        return None;
    }
    let add = if finalizers.is_empty() {
        json!({"op": "add", "path": "/metadata/finalizers", "value": [name]})
    } else {
        json!({"op": "add", "path": "/metadata/finalizers/-", "value": name})
    };
    Some(guarded(now, add))
}

fn removing(now: &ObjectMeta, name: &str) -> Option<Value> {
    let finalizers = now.finalizers.as_deref().unwrap_or_default();
    let place = finalizers.iter().position(|held| held == name)?;
    Some(guarded(
        now,
        json!({"op": "remove", "path": format!("/metadata/finalizers/{place}")}),
    ))
}

/// The change, on condition that the list is the one it was made for.
fn guarded(now: &ObjectMeta, change: Value) -> Value {
    let mut patch = Vec::new();
    if let Some(uid) = &now.uid {
        patch.push(json!({"op": "test", "path": "/metadata/uid", "value": uid}));
    }
    match now.finalizers.as_deref() {
        // A missing list cannot be tested; the resource version is tested instead.
        None | Some([]) => patch.extend(
            now.resource_version
                .as_ref()
                .map(|version| json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})),
        ),
        Some(held) => patch.push(json!({"op": "test", "path": "/metadata/finalizers", "value": held})),
    }
    patch.push(change);
    Value::Array(patch)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::scripted::Script;

    const PATH: &str = "/api/v1/namespaces/shop/configmaps/web";
    const OURS: &str = "example.org/ours";

    fn web() -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap()
    }

    fn meta(version: &str, finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("u1".into()),
            resource_version: Some(version.into()),
            finalizers: (!finalizers.is_empty())
                .then(|| finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        }
    }

    fn stored(meta: &ObjectMeta) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": meta})
    }

    #[test]
    fn a_patch_holds_only_for_the_list_it_was_made_for() {
        assert_eq!(
            adding(&meta("7", &[]), OURS),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u1"},
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/metadata/finalizers", "value": [OURS]},
            ]))
        );
        assert_eq!(
            adding(&meta("7", &["a"]), OURS),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u1"},
                {"op": "test", "path": "/metadata/finalizers", "value": ["a"]},
                {"op": "add", "path": "/metadata/finalizers/-", "value": OURS},
            ]))
        );
        assert_eq!(
            removing(&meta("7", &["a", OURS, "b"]), OURS),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u1"},
                {"op": "test", "path": "/metadata/finalizers", "value": ["a", OURS, "b"]},
                {"op": "remove", "path": "/metadata/finalizers/1"},
            ]))
        );
        assert_eq!(adding(&meta("7", &[OURS]), OURS), None);
        assert_eq!(removing(&meta("7", &["a"]), OURS), None);
    }

    #[tokio::test]
    async fn nothing_to_change_costs_no_request() {
        let script = Script::new("no request");
        let cluster = script.cluster();
        assert!(
            !cluster
                .add_finalizer(&web(), &meta("1", &[OURS]), OURS)
                .await
                .unwrap()
        );
        assert!(
            !cluster
                .remove_finalizer(&web(), &meta("1", &["a"]), OURS)
                .await
                .unwrap()
        );
        script.finish();
    }

    #[tokio::test]
    async fn somebody_elses_finalizer_in_between_is_kept() {
        let script = Script::new("another controller was faster")
            .refuse(
                Method::PATCH,
                PATH,
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
            .get(PATH, stored(&meta("2", &["theirs", OURS])))
            .on(
                Method::PATCH,
                PATH,
                |sent| assert_eq!(sent[2], json!({"op": "remove", "path": "/metadata/finalizers/1"})),
                200,
                json!({}),
            );
        assert!(
            script
                .cluster()
                .remove_finalizer(&web(), &meta("1", &[OURS]), OURS)
                .await
                .unwrap()
        );
        script.finish();
    }

    #[tokio::test]
    async fn an_object_that_is_gone_or_another_needs_none() {
        let mut successor = meta("9", &[OURS]);
        successor.uid = Some("u2".into());
        let script = Script::new("gone, then a successor")
            .refuse(Method::PATCH, PATH, 404, "NotFound", "no")
            .refuse(Method::PATCH, PATH, 422, "Invalid", "test failed")
            .get(PATH, stored(&successor));
        let cluster = script.cluster();
        assert!(
            !cluster
                .remove_finalizer(&web(), &meta("1", &[OURS]), OURS)
                .await
                .unwrap()
        );
        assert!(
            !cluster
                .remove_finalizer(&web(), &meta("1", &[OURS]), OURS)
                .await
                .unwrap()
        );
        script.finish();
    }

    #[tokio::test]
    async fn a_refusal_that_stays_is_reported_after_some_rounds() {
        let mut script = Script::new("always invalid");
        for round in 0..ROUNDS {
            script = script.refuse(Method::PATCH, PATH, 422, "Invalid", "no such finalizer name");
            if round + 1 < ROUNDS {
                script = script.get(PATH, stored(&meta("2", &[])));
            }
        }
        let error = script
            .cluster()
            .add_finalizer(&web(), &meta("1", &[]), OURS)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not set the finalizers of ConfigMap shop/web"
        );
        script.finish();
    }
}
