//! Reading objects: one, its metadata, or many.

use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::request::Call;
use crate::{Attempt, Cluster, Error, Failure, ObjectId, ResourceId};

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// As many objects as one answer holds; client-go's default.
const PAGE: &str = "500";

/// Which objects of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selector<'a> {
    /// One namespace, or all.
    pub namespace: Option<&'a str>,
    /// A label selector, or none.
    pub labels: Option<&'a str>,
}

impl Cluster {
    /// An object, as it is or as a type; none when it, its namespace or its kind is not there.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get<T: DeserializeOwned>(&self, id: &ObjectId) -> Result<Option<T>, Error> {
        self.get_as(id, Call::get(id.path())).await
    }

    /// The metadata of an object, which is all that the server sends.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get_metadata(&self, id: &ObjectId) -> Result<Option<PartialObjectMeta>, Error> {
        self.get_as(id, Call::get(id.path()).accept(METADATA_ONLY)).await
    }

    /// All objects that are selected, each with its `apiVersion` and `kind` (which servers leave out in lists).
    ///
    /// # Errors
    ///
    /// [`Error::Collection`].
    pub async fn list<T: DeserializeOwned>(
        &self,
        resource: &ResourceId,
        selector: Selector<'_>,
    ) -> Result<Vec<T>, Error> {
        let failed = |failure: Failure| Error::Collection {
            attempt: Attempt::List,
            resource: Box::new(resource.clone()),
            namespace: selector.namespace.map(str::to_owned),
            source: if resource.is_secret() {
                failure.without_content()
            } else {
                failure
            },
        };
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let mut call = Call::get(resource.collection(selector.namespace)).query("limit", PAGE);
            if let Some(labels) = selector.labels {
                call = call.query("labelSelector", labels);
            }
            if !next.is_empty() {
                call = call.query("continue", &next);
            }
            let (_, mut page) = self.transport.send(call).await.map_err(failed)?;
            if let Value::Array(items) = page["items"].take() {
                for mut item in items {
                    item["apiVersion"] = resource.api_version().into();
                    item["kind"] = resource.kind.clone().into();
                    found.push(
                        serde_json::from_value(item)
                            .map_err(Failure::Unreadable)
                            .map_err(failed)?,
                    );
                }
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => token.clone_into(&mut next),
                _ => return Ok(found),
            }
        }
    }

    async fn get_as<T: DeserializeOwned>(&self, id: &ObjectId, call: Call) -> Result<Option<T>, Error> {
        match self.about(id, Attempt::Get, call).await {
            Ok((_, object)) => serde_json::from_value(object)
                .map(Some)
                .map_err(|error| Error::Request {
                    attempt: Attempt::Get,
                    object: Box::new(id.clone()),
                    source: Failure::Unreadable(error),
                }),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::scripted::Script;

    const PATH: &str = "/api/v1/namespaces/shop/configmaps/web";

    fn web() -> ObjectId {
        ObjectId::of::<ConfigMap>(Some("shop"), "web").unwrap()
    }

    #[tokio::test]
    async fn what_is_not_there_is_no_error_but_what_is_forbidden_is() {
        let script = Script::new("get three times")
            .absent(PATH)
            .refuse(http::Method::GET, PATH, 403, "Forbidden", "no")
            .get(PATH, json!({"metadata": {"name": "web"}, "data": {"a": "b"}}));
        let cluster = script.cluster();
        assert!(cluster.get::<Value>(&web()).await.unwrap().is_none());
        assert!(cluster.get::<Value>(&web()).await.unwrap_err().is_forbidden());
        let typed: ConfigMap = cluster.get(&web()).await.unwrap().unwrap();
        assert_eq!(typed.data.unwrap()["a"], "b");
        script.finish();
    }

    #[tokio::test]
    async fn lists_are_read_to_their_end_and_items_know_their_kind() {
        let script = Script::new("two pages")
            .get(
                "/api/v1/namespaces/shop/configmaps?limit=500&labelSelector=a%3Db",
                json!({"metadata": {"continue": "n/e+xt"}, "items": [{"metadata": {"name": "one"}}]}),
            )
            .get(
                "/api/v1/namespaces/shop/configmaps?limit=500&labelSelector=a%3Db&continue=n%2Fe%2Bxt",
                json!({"metadata": {}, "items": [{"metadata": {"name": "two"}}]}),
            );
        let selector = Selector {
            namespace: Some("shop"),
            labels: Some("a=b"),
        };
        let found: Vec<Value> = script
            .cluster()
            .list(&ResourceId::of::<ConfigMap>(), selector)
            .await
            .unwrap();
        assert_eq!(
            found[1],
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}})
        );
        assert_eq!(found.len(), 2);
        script.finish();
    }
}
