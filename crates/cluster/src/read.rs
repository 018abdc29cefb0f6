//! Reads one object, its metadata, or many objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use kube::core::PartialObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::item;
use crate::request::Call;
use crate::{Attempt, Cluster, Error, Failure, Item, ObjectId, ResourceId, Unreadable};

pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

const LIST_OF_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// How long the cache of a server may be behind a resource version that is asked for. The server itself waits for three
/// seconds, and whoever names the version may have made it up.
const CACHE_CATCHES_UP_WITHIN: Duration = Duration::from_millis(250);

/// The page size for large objects. An API server only limits the number of objects, and each may have more than a
/// MiB. The first page is this small, too, because the sizes are not known yet.
const PAGE_OF_LARGE: u16 = 10;

/// The page size for small objects and metadata. It is not larger, because the next page may have larger objects.
const PAGE: u16 = 50;

/// The size of the next page, after one with this many objects and bytes.
fn next_page(objects: usize, bytes: usize) -> u16 {
    if bytes / objects.max(1) < 128 << 10 {
        PAGE
    } else {
        PAGE_OF_LARGE
    }
}

/// Selects objects of a collection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selector<'a> {
    /// One namespace; `None` for all.
    pub namespace: Option<&'a str>,
    /// A label selector, or none.
    pub labels: Option<&'a str>,
}

impl Cluster {
    /// An object, as JSON or as a type; `None` when it, its namespace or its kind does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get<T: DeserializeOwned>(&self, id: &ObjectId) -> Result<Option<T>, Error> {
        self.get_by(id, Call::get(id.path()), bounded).await
    }

    /// An object that is at least as new as this resource version, which the server may read from its cache; `None` like
    /// [`Cluster::get`]. If the server does not have the version in a moment, as after a restore of its data, the newest is
    /// read.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get_at_least<T: DeserializeOwned>(
        &self,
        id: &ObjectId,
        resource_version: &str,
    ) -> Result<Option<T>, Error> {
        // The server would take 0 for any version.
        if resource_version == "0" {
            return self.get(id).await;
        }
        let call = Call::get(id.path()).query("resourceVersion", resource_version);
        let read = self.get_by(id, call, bounded);
        match tokio::time::timeout(CACHE_CATCHES_UP_WITHIN, read).await {
            Err(_) => self.get(id).await,
            Ok(Err(Error::Request {
                source: Failure::Refused(refusal),
                ..
            })) if matches!(refusal.code, 400 | 504) => self.get(id).await,
            Ok(read) => read,
        }
    }

    /// An object without its `spec`, for objects whose spec cannot be read; only its metadata, if the rest cannot be
    /// read either.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get_without_spec<T: DeserializeOwned>(&self, id: &ObjectId) -> Result<Option<T>, Error> {
        self.get_by(id, Call::get(id.path()), |raw| {
            let text = item::without_spec(raw);
            match bounded(text.as_deref().unwrap_or(raw)) {
                // The rest is too large as well.
                Err(failure @ Failure::UnreadableItem(_)) => bounded(&item::head(raw).ok_or(failure)?),
                read => read,
            }
        })
        .await
    }

    /// The metadata of an object; the server sends nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::Request`].
    pub async fn get_metadata(&self, id: &ObjectId) -> Result<Option<PartialObjectMeta>, Error> {
        self.get_by(
            id,
            Call::get(id.path()).accept(METADATA_ONLY),
            |raw| match Item::read_metadata(raw) {
                Item::Read(metadata) => Ok(metadata),
                Item::Unreadable(unreadable) => Err(Failure::UnreadableItem(unreadable.why)),
            },
        )
        .await
    }

    /// All selected objects, each with its `apiVersion` and `kind` (which servers leave out in lists).
    ///
    /// # Errors
    ///
    /// [`Error::Collection`]; [`Error::Request`] for an object that cannot be read: leaving it out would mean that it
    /// does not exist.
    pub async fn list<T: DeserializeOwned>(
        &self,
        resource: &ResourceId,
        selector: Selector<'_>,
    ) -> Result<Vec<T>, Error> {
        let items = self.list_items(resource, selector).await?;
        all_read(resource, items)
    }

    /// The same, but objects that cannot be read are represented by their metadata, and the caller decides about
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Collection`].
    pub async fn list_items<T: DeserializeOwned>(
        &self,
        resource: &ResourceId,
        selector: Selector<'_>,
    ) -> Result<Vec<Item<T>>, Error> {
        self.pages(resource, selector).rest().await
    }

    /// The same, page by page, if not all are needed at once: together they may not fit into memory.
    pub fn pages<'a, T>(&'a self, resource: &'a ResourceId, selector: Selector<'a>) -> Pages<'a, T> {
        Pages {
            cluster: self,
            resource,
            selector,
            media_type: None,
            limit: PAGE_OF_LARGE,
            next: Some(String::new()),
            items: PhantomData,
        }
    }

    /// The metadata of all selected objects, without `managedFields`; the server sends nothing else. No object is
    /// left out because of its other content.
    ///
    /// Labels and annotations of all of them are in memory at once: if others can write those, use
    /// [`Cluster::map_metadata`].
    ///
    /// # Errors
    ///
    /// Those of [`Cluster::list`].
    pub async fn list_metadata(
        &self,
        resource: &ResourceId,
        selector: Selector<'_>,
    ) -> Result<Vec<PartialObjectMeta>, Error> {
        self.map_metadata(resource, selector, |metadata| metadata).await
    }

    /// Applies `map` to the metadata of each selected object, one after the other, and keeps only the results.
    ///
    /// # Errors
    ///
    /// Those of [`Cluster::list`].
    pub async fn map_metadata<T>(
        &self,
        resource: &ResourceId,
        selector: Selector<'_>,
        map: impl Fn(PartialObjectMeta) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut pages: Pages<'_, PartialObjectMeta> = Pages {
            media_type: Some(LIST_OF_METADATA),
            limit: PAGE,
            ..self.pages(resource, selector)
        };
        let mut mapped = Vec::new();
        while let Some(page) = pages.next().await? {
            for item in page {
                mapped.push(map(item.or_error(resource)?));
            }
        }
        Ok(mapped)
    }

    async fn get_by<T>(
        &self,
        id: &ObjectId,
        call: Call,
        read: impl FnOnce(&RawValue) -> Result<T, Failure>,
    ) -> Result<Option<T>, Error> {
        let body = match self.transport.send_for_bytes(call).await {
            Err(Failure::Refused(status)) if status.code == 404 => return Ok(None),
            body => body,
        };
        let object = body.and_then(|body| {
            let raw: &RawValue = serde_json::from_slice(&body).map_err(Failure::unreadable)?;
            read(raw)
        });
        object.map(Some).map_err(|failure| Error::Request {
            attempt: Attempt::Get,
            object: Box::new(id.clone()),
            source: if id.resource().is_secret() {
                failure.without_content()
            } else {
                failure
            },
        })
    }
}

/// Reads an object, unless it is larger than the limits.
fn bounded<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Failure> {
    if let Some(why) = item::too_large(raw) {
        return Err(Failure::UnreadableItem(why));
    }
    // Parsed into a value first, so that duplicate keys are handled the same way for every type.
    let object: Value = serde_json::from_str(raw.get()).map_err(Failure::unreadable)?;
    serde_json::from_value(object).map_err(Failure::unreadable)
}

/// A collection that is read page by page; see [`Cluster::pages`].
pub struct Pages<'a, T> {
    cluster: &'a Cluster,
    resource: &'a ResourceId,
    selector: Selector<'a>,
    media_type: Option<&'static str>,
    limit: u16,
    /// Where the next page begins; `None` after the last one.
    next: Option<String>,
    items: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Pages<'_, T> {
    /// The next page, each object with its `apiVersion` and `kind`; `None` after the last one. A page may be empty.
    /// Objects are parsed one at a time: parsed values of a whole page would take ten times the memory of their text
    /// or more.
    ///
    /// # Errors
    ///
    /// [`Error::Collection`].
    pub async fn next(
        &mut self,
    ) -> Result<Option<impl ExactSizeIterator<Item = Item<T>> + Send + use<T>>, Error> {
        let Some(begin) = self.next.take() else {
            return Ok(None);
        };
        let page = self.read(&begin).await.map_err(|failure| self.failed(failure))?;
        let is_metadata = self.media_type.is_some();
        Ok(Some(page.into_iter().map(move |text| {
            if is_metadata {
                Item::read_metadata(&text)
            } else {
                Item::read(&text)
            }
        })))
    }

    /// All remaining objects.
    async fn rest(mut self) -> Result<Vec<Item<T>>, Error> {
        let mut found = Vec::new();
        while let Some(page) = self.next().await? {
            found.extend(page);
        }
        Ok(found)
    }

    async fn read(&mut self, begin: &str) -> Result<Vec<Box<RawValue>>, Failure> {
        let Selector { namespace, labels } = self.selector;
        let mut call = Call::get(self.resource.collection(namespace)).query("limit", &self.limit.to_string());
        if let Some(media_type) = self.media_type {
            call = call.accept(media_type);
        }
        if let Some(labels) = labels {
            call = call.query("labelSelector", labels);
        }
        if !begin.is_empty() {
            call = call.query("continue", begin);
        }
        let body = self.cluster.transport.send_for_bytes(call).await?;
        let page: Page = serde_json::from_slice(&body).map_err(Failure::unreadable)?;
        let (version, kind) = (self.resource.api_version(), &self.resource.kind);
        let types = [("apiVersion", &version), ("kind", kind)]
            .map(|(field, text)| Some((field, to_raw_value(text).ok()?)));
        let items = page.items.unwrap_or_default();
        self.limit = next_page(items.len(), body.len());
        self.next = page.metadata.next.filter(|token| !token.is_empty());
        items
            .into_iter()
            .map(|item| item.with(types.iter().flatten()))
            .collect::<Result<_, _>>()
            .map_err(Failure::unreadable)
    }

    fn failed(&self, failure: Failure) -> Error {
        Error::Collection {
            attempt: Attempt::List,
            resource: Box::new(self.resource.clone()),
            namespace: self.selector.namespace.map(str::to_owned),
            source: if self.resource.is_secret() {
                failure.without_content()
            } else {
                failure
            },
        }
    }
}

/// A part of a list. Its items are kept as text, so that each can be read on its own.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<Fields<'a>>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// An object whose fields are not parsed.
#[derive(Deserialize)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Fields<'a> {
    fn with(
        mut self,
        others: impl Iterator<Item = &'a (&'static str, Box<RawValue>)>,
    ) -> Result<Box<RawValue>, serde_json::Error> {
        self.0
            .extend(others.map(|(field, value)| (Cow::Borrowed(*field), &**value)));
        to_raw_value(&self.0)
    }
}

fn all_read<T>(resource: &ResourceId, items: Vec<Item<T>>) -> Result<Vec<T>, Error> {
    items.into_iter().map(|item| item.or_error(resource)).collect()
}

impl<T> Item<T> {
    /// The object, for a caller that cannot go on without it.
    ///
    /// # Errors
    ///
    /// [`Error::Request`] for an object of `resource` that cannot be read.
    pub fn or_error(self, resource: &ResourceId) -> Result<T, Error> {
        match self {
            Self::Read(object) => Ok(object),
            Self::Unreadable(why) => Err(unreadable(resource, *why)),
        }
    }
}

fn unreadable(resource: &ResourceId, unreadable: Unreadable) -> Error {
    let Unreadable { metadata, why, .. } = unreadable;
    let name = metadata.name.unwrap_or_default();
    match ObjectId::new(resource.clone(), metadata.namespace.as_deref(), &name) {
        Ok(object) => Error::Request {
            attempt: Attempt::Get,
            object: Box::new(object),
            source: Failure::UnreadableItem(why),
        },
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
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
    async fn an_object_is_read_anew_if_the_server_does_not_know_the_version() {
        let at = format!("{PATH}?resourceVersion=7");
        let found = json!({"metadata": {"name": "web", "resourceVersion": "8"}});
        let script = Script::new("get a known, a missing, two unknown and a forbidden one")
            .get(&at, found.clone())
            .absent(&at)
            .refuse(http::Method::GET, &at, 400, "BadRequest", "invalid")
            .get(PATH, found.clone())
            .refuse(
                http::Method::GET,
                &at,
                504,
                "Timeout",
                "Too large resource version",
            )
            .get(PATH, found.clone())
            .refuse(http::Method::GET, &at, 403, "Forbidden", "no");
        let cluster = script.cluster();
        let read = async || cluster.get_at_least::<Value>(&web(), "7").await;
        assert_eq!(read().await.unwrap(), Some(found.clone()));
        assert_eq!(read().await.unwrap(), None);
        assert_eq!(read().await.unwrap(), Some(found.clone()));
        assert_eq!(read().await.unwrap(), Some(found.clone()));
        assert!(read().await.unwrap_err().is_forbidden());
        script.finish();

        let script = Script::new("0 would be any version").get(PATH, found.clone());
        let read = script.cluster().get_at_least::<Value>(&web(), "0").await;
        assert_eq!(read.unwrap(), Some(found));
        script.finish();
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_server_waits_for_is_not_waited_for() {
        let server = tower::service_fn(async |request: http::Request<Body>| {
            if request.uri().query().is_some() {
                std::future::pending::<()>().await;
            }
            let web = json!({"metadata": {"name": "web"}});
            Ok::<_, kube::Error>(http::Response::new(Body::from(web.to_string().into_bytes())))
        });
        let cluster = Cluster::new(kube::Client::new(server, "default"));
        let read = cluster.get_at_least::<Value>(&web(), "999999999999").await;
        assert_eq!(read.unwrap().unwrap()["metadata"]["name"], "web");
    }

    /// An object with more values than the limit.
    fn of_many_values() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "uid": "1"},
            "spec": vec![0; item::READABLE_VALUES], "status": {"a": 1},
        })
    }

    #[tokio::test]
    async fn an_object_of_many_values_is_not_read_and_can_be_written_and_removed() {
        let script = Script::new("get, get without spec, write, twice")
            .get(PATH, of_many_values())
            .get(PATH, of_many_values())
            .on(http::Method::PATCH, PATH, |_| {}, 200, of_many_values());
        let cluster = script.cluster();
        let error = cluster.get::<Value>(&web()).await.unwrap_err();
        assert!(error.is_unreadable() && !error.is_transient());
        let rest: Value = cluster.get_without_spec(&web()).await.unwrap().unwrap();
        assert_eq!(rest["status"], json!({"a": 1}));
        let written = cluster.merge(&web(), &json!({}), "me").await.unwrap();
        assert_eq!(written["metadata"]["uid"], "1");
        assert_eq!(written.get("spec"), None);
        script.finish();

        let mut object = of_many_values();
        object["status"] = object["spec"].clone();
        let script = Script::new("a status of many values").get(PATH, object);
        let rest: Value = script.cluster().get_without_spec(&web()).await.unwrap().unwrap();
        assert_eq!(rest["metadata"]["uid"], "1");
        assert_eq!(rest.get("status"), None);
        script.finish();
    }

    #[tokio::test]
    async fn no_number_of_labels_hides_an_object_from_a_list_of_metadata() {
        let labels: std::collections::BTreeMap<String, &str> = (0..item::READABLE_VALUES)
            .map(|number| (number.to_string(), ""))
            .collect();
        let list = json!({"metadata": {}, "items": [{"metadata": {"name": "web", "labels": labels}}]});
        let script = Script::new("a list of metadata").get("/api/v1/configmaps?limit=50", list);
        let maps = ResourceId::of::<ConfigMap>();
        let found = script.cluster().list_metadata(&maps, Selector::default()).await;
        assert_eq!(found.unwrap()[0].metadata.name.as_deref(), Some("web"));
        script.finish();
    }

    #[tokio::test]
    async fn a_list_of_metadata_holds_no_managed_fields_and_what_it_is_mapped_to() {
        let managed = json!([{"manager": "m", "fieldsV1": {"f:a": {}}}]);
        let object =
            |name: &str| json!({"metadata": {"name": name, "managedFields": managed, "labels": {"a": "b"}}});
        let list = |name: &str, next: &str| json!({"metadata": {"continue": next}, "items": [object(name)]});
        let path = "/api/v1/configmaps?limit=50";
        let script = Script::new("two lists, one of two pages")
            .get(path, list("web", ""))
            .get(path, list("web", "more"))
            .get("/api/v1/configmaps?limit=50&continue=more", list("db", ""));
        let maps = ResourceId::of::<ConfigMap>();
        let cluster = script.cluster();
        let found = cluster.list_metadata(&maps, Selector::default()).await.unwrap();
        assert_eq!(found[0].metadata.managed_fields, None);
        assert_eq!(found[0].metadata.labels.as_ref().unwrap()["a"], "b");
        let name = |found: PartialObjectMeta| found.metadata.name;
        let names = cluster.map_metadata(&maps, Selector::default(), name).await;
        assert_eq!(names.unwrap(), [Some("web".to_owned()), Some("db".to_owned())]);
        script.finish();
    }

    #[test]
    fn a_page_is_the_smaller_the_larger_its_objects_are() {
        assert_eq!(next_page(50, 50 << 15), PAGE);
        assert_eq!(next_page(50, 50 << 20), PAGE_OF_LARGE);
        assert_eq!(next_page(0, 100), PAGE);
    }

    #[tokio::test]
    async fn lists_are_read_to_their_end_and_items_know_their_kind() {
        let script = Script::new("two pages")
            .get(
                "/api/v1/namespaces/shop/configmaps?limit=10&labelSelector=a%3Db",
                json!({"metadata": {"continue": "n/e+xt"}, "items": [{"metadata": {"name": "one"}}]}),
            )
            .get(
                "/api/v1/namespaces/shop/configmaps?limit=50&labelSelector=a%3Db&continue=n%2Fe%2Bxt",
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

    #[tokio::test]
    async fn a_page_is_read_when_it_is_asked_for() {
        let url = "/api/v1/configmaps?limit=10";
        let script = Script::new("the first of two pages").get(
            url,
            json!({"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "one"}}]}),
        );
        let (cluster, maps) = (script.cluster(), ResourceId::of::<ConfigMap>());
        let mut pages = cluster.pages::<ConfigMap>(&maps, Selector::default());
        let page = pages.next().await.unwrap().unwrap();
        assert_eq!(page.len(), 1);
        // No second request was sent.
        script.finish();

        let script = Script::new("an empty list").get(url, json!({"metadata": {}, "items": null}));
        let cluster = script.cluster();
        let mut pages = cluster.pages::<ConfigMap>(&maps, Selector::default());
        assert_eq!(pages.next().await.unwrap().unwrap().len(), 0);
        assert!(pages.next().await.unwrap().is_none());
        script.finish();
    }
}
