//! Writes other than server-side apply: create, replace, merge patches of an object and of its status.

use http::Method;
use serde_json::{Value, json};

use crate::read::METADATA_ONLY;
use crate::request::Call;
use crate::{Attempt, Cluster, Error, Failure, ObjectId, ResourceId};

const MERGE_PATCH: &str = "application/merge-patch+json";

impl Cluster {
    /// Creates an object that must not exist yet, and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Request`], with [`Error::is_already_exists`] when the name is taken.
    pub async fn create(&self, id: &ObjectId, object: &Value, manager: &str) -> Result<Value, Error> {
        let call = creation(id.resource(), id.namespace(), object, manager);
        self.about(id, Attempt::Create, call)
            .await
            .map(|(_, created)| created)
    }

    /// Creates an object that the server names, by its `generateName`, and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Collection`].
    pub async fn create_named_by_server(
        &self,
        resource: &ResourceId,
        namespace: Option<&str>,
        object: &Value,
        manager: &str,
    ) -> Result<Value, Error> {
        let answer = self
            .transport
            .send(creation(resource, namespace, object, manager))
            .await;
        answer
            .map(|(_, created)| created)
            .map_err(|failure: Failure| Error::Collection {
                attempt: Attempt::Create,
                resource: Box::new(resource.clone()),
                namespace: namespace.map(str::to_owned),
                source: if resource.is_secret() {
                    failure.without_content()
                } else {
                    failure
                },
            })
    }

    /// Replaces an object. If it has a `resourceVersion`, only that version is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Request`], with [`Error::is_conflict`] when the version is outdated.
    pub async fn replace(&self, id: &ObjectId, object: &Value, manager: &str) -> Result<Value, Error> {
        let call = Call::new(Method::PUT, id.path())
            .query("fieldManager", manager)
            .json(object);
        self.about(id, Attempt::Replace, call)
            .await
            .map(|(_, replaced)| replaced)
    }

    /// Merges fields into an object; `null` removes one. Returns the object, or its metadata if it cannot be read.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn merge(&self, id: &ObjectId, patch: &Value, manager: &str) -> Result<Value, Error> {
        let call = merging(id, patch, manager);
        self.about(id, Attempt::Patch, call)
            .await
            .map(|(_, patched)| patched)
    }

    /// Merges fields into an object like [`Cluster::merge`], and returns only its metadata: for a large object, that
    /// costs the server less.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn merge_returning_metadata(
        &self,
        id: &ObjectId,
        patch: &Value,
        manager: &str,
    ) -> Result<Value, Error> {
        let call = merging(id, patch, manager).accept(METADATA_ONLY);
        self.about(id, Attempt::Patch, call)
            .await
            .map(|(_, patched)| patched)
    }

    /// Merges annotations into an object; `None` removes one. Returns the object.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn annotate<'a>(
        &self,
        id: &ObjectId,
        annotations: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
        manager: &str,
    ) -> Result<Value, Error> {
        let annotations = object_of(annotations);
        self.merge(id, &json!({"metadata": {"annotations": annotations}}), manager)
            .await
    }

    /// Merges labels into an object; `None` removes one. Returns the object.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn label<'a>(
        &self,
        id: &ObjectId,
        labels: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
        manager: &str,
    ) -> Result<Value, Error> {
        let labels = object_of(labels);
        self.merge(id, &json!({"metadata": {"labels": labels}}), manager)
            .await
    }

    /// Merges fields into the status of an object; `null` removes one. Returns the object, or its metadata if it
    /// cannot be read.
    ///
    /// Fields that are not named are not changed. Lists, such as conditions, are replaced as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn merge_status(&self, id: &ObjectId, status: &Value, manager: &str) -> Result<Value, Error> {
        let call = Call::new(Method::PATCH, format!("{}/status", id.path()))
            .query("fieldManager", manager)
            .body(MERGE_PATCH, &json!({"status": status}))
            .metadata_suffices();
        self.about(id, Attempt::PatchStatus, call)
            .await
            .map(|(_, patched)| patched)
    }
}

fn merging(id: &ObjectId, patch: &Value, manager: &str) -> Call {
    Call::new(Method::PATCH, id.path())
        .query("fieldManager", manager)
        .body(MERGE_PATCH, patch)
        .metadata_suffices()
}

fn creation(resource: &ResourceId, namespace: Option<&str>, object: &Value, manager: &str) -> Call {
    Call::new(Method::POST, resource.collection(namespace))
        .query("fieldManager", manager)
        .json(object)
}

fn object_of<'a>(entries: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Value {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    use super::*;
    use crate::scripted::Script;

    const COLLECTION: &str = "/api/v1/namespaces/shop/configmaps";

    fn web() -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap()
    }

    #[tokio::test]
    async fn a_name_that_is_taken_is_told_from_other_refusals() {
        let script = Script::new("create twice")
            .on(
                Method::POST,
                COLLECTION,
                |_| {},
                201,
                json!({"metadata": {"name": "web"}}),
            )
            .refuse(Method::POST, COLLECTION, 409, "AlreadyExists", "taken");
        let cluster = script.cluster();
        cluster
            .create(&web(), &json!({"metadata": {"name": "web"}}), "me")
            .await
            .unwrap();
        let error = cluster.create(&web(), &json!({}), "me").await.unwrap_err();
        assert!(error.is_already_exists() && !error.is_transient());
        script.finish();
    }

    #[tokio::test]
    async fn patches_name_only_what_they_change() {
        let annotated = json!({"metadata": {"annotations": {"a": "b", "gone": null}}});
        let script = Script::new("annotate, then status")
            .on(
                Method::PATCH,
                &format!("{COLLECTION}/web"),
                move |sent| assert_eq!(*sent, annotated),
                200,
                json!({}),
            )
            .on(
                Method::PATCH,
                &format!("{COLLECTION}/web/status?fieldManager=me"),
                |sent| assert_eq!(*sent, json!({"status": {"digest": "x"}})),
                200,
                json!({}),
            );
        let cluster = script.cluster();
        cluster
            .annotate(&web(), [("a", Some("b")), ("gone", None)], "me")
            .await
            .unwrap();
        cluster
            .merge_status(&web(), &json!({"digest": "x"}), "me")
            .await
            .unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn a_refused_secret_is_not_quoted() {
        let path = "/api/v1/namespaces/shop/secrets";
        let script =
            Script::new("bad secret").refuse(Method::POST, path, 400, "BadRequest", "got \"hunter2\"");
        let id = ObjectId::of::<Secret>(Some("shop"), "web").unwrap();
        let error = script.cluster().create(&id, &json!({}), "me").await.unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
        script.finish();
    }
}
