//! What an API server serves: maps kinds to resources and back, and makes the lists that Helm shows to charts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::client::{APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery};
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde_json::Value;
use tokio::time::Instant;

use crate::request::{Call, Transport};
use crate::resource::api_version;
use crate::{Error, Failure, ResourceId};

/// The aggregated list, stable since Kubernetes 1.30: one request instead of one per group and version.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A cached list of what the server serves.
///
/// It is read when first needed, and again when an unknown kind is requested: a CRD may have been installed since.
/// Callers that miss at the same time share one request.
pub struct Discovery {
    transport: Transport,
    cached: RwLock<Option<CachedList>>,
    reading: tokio::sync::Mutex<()>,
}

/// A list as last read.
#[derive(Clone)]
struct CachedList {
    served: Arc<Served>,
    asked: Instant,
}

impl Discovery {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            cached: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Everything the server serves; the list is at most `max_age` old.
    ///
    /// # Errors
    ///
    /// [`Error::Discover`].
    pub async fn served(&self, max_age: Duration) -> Result<Arc<Served>, Error> {
        let now = Instant::now();
        // `None` when the clock does not go back that far.
        let earliest = now.checked_sub(max_age);
        let is_young = |cached: &CachedList| earliest.is_none_or(|earliest| cached.asked >= earliest);
        if let Some(cached) = self.load().filter(is_young) {
            return Ok(cached.served);
        }
        let _turn = self.reading.lock().await;
        self.asked_since(earliest.unwrap_or(now)).await
    }

    /// The resource of a kind.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`] when the server does not serve it at this moment; [`Error::Discover`].
    pub async fn resource(&self, gvk: &GroupVersionKind) -> Result<ResourceId, Error> {
        let found = self
            .find(|served| served.kind(gvk).map(|found| found.id.clone()))
            .await?;
        found.ok_or_else(|| unknown(gvk))
    }

    /// The resource of a plural name.
    ///
    /// # Errors
    ///
    /// Those of [`Discovery::resource`].
    pub async fn resource_of_plural(&self, gvr: &GroupVersionResource) -> Result<ResourceId, Error> {
        let found = self
            .find(|served| served.plural(gvr).map(|found| found.id.clone()))
            .await?;
        found.ok_or_else(|| Error::UnknownKind {
            api_version: api_version(&gvr.group, &gvr.version),
            kind: gvr.resource.clone(),
        })
    }

    /// The resource of a manifest's `apiVersion` and `kind`.
    ///
    /// # Errors
    ///
    /// Those of [`Discovery::resource`].
    pub async fn resource_of(&self, manifest: &Value) -> Result<ResourceId, Error> {
        self.resource(&kind_of(manifest)).await
    }

    /// The same from a list that is at most `max_age` old: a kind that is missing there is not requested again.
    ///
    /// # Errors
    ///
    /// Those of [`Discovery::resource`].
    pub async fn resource_of_within(&self, manifest: &Value, max_age: Duration) -> Result<ResourceId, Error> {
        let gvk = kind_of(manifest);
        let served = self.served(max_age).await?;
        let found = served.kind(&gvk).map(|found| found.id.clone());
        found.ok_or_else(|| unknown(&gvk))
    }

    /// Waits until a kind is served: a new CRD is `Established` a moment before discovery lists it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKind`] after `timeout`; [`Error::Discover`].
    pub async fn wait_until_served(
        &self,
        gvk: &GroupVersionKind,
        timeout: Duration,
    ) -> Result<ResourceId, Error> {
        const PAUSE: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + timeout;
        loop {
            match self.resource(gvk).await {
                Err(Error::UnknownKind { .. }) if Instant::now() + PAUSE < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// Drops the cached list, so that the server is asked again.
    pub fn forget(&self) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn remember(&self, served: Served) {
        self.store(CachedList {
            served: Arc::new(served),
            asked: Instant::now(),
        });
    }

    async fn find(&self, pick: impl Fn(&Served) -> Option<ResourceId>) -> Result<Option<ResourceId>, Error> {
        let held = || self.load().and_then(|cached| pick(&cached.served));
        let now = Instant::now();
        if let Some(found) = held() {
            return Ok(Some(found));
        }
        let _turn = self.reading.lock().await;
        match held() {
            Some(found) => Ok(Some(found)),
            None => Ok(pick(&*self.asked_since(now).await?)),
        }
    }

    /// What the server answered at `earliest` or later; the caller holds the lock for asking.
    async fn asked_since(&self, earliest: Instant) -> Result<Arc<Served>, Error> {
        if let Some(cached) = self.load()
            && cached.asked >= earliest
        {
            return Ok(cached.served);
        }
        let asked = Instant::now();
        let served = Arc::new(self.read().await.map_err(|source| Error::Discover { source })?);
        self.store(CachedList {
            served: served.clone(),
            asked,
        });
        Ok(served)
    }

    async fn read(&self) -> Result<Served, Failure> {
        let core: APIGroupDiscoveryList = self
            .transport
            .send_for(Call::get("/api").accept(AGGREGATED))
            .await?;
        let rest: APIGroupDiscoveryList = self
            .transport
            .send_for(Call::get("/apis").accept(AGGREGATED))
            .await?;
        let version: Info = self.transport.send_for(Call::get("/version")).await?;
        Ok(Served::new(version, core.items.into_iter().chain(rest.items)))
    }

    fn load(&self) -> Option<CachedList> {
        self.cached.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, cached: CachedList) {
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(cached);
    }
}

fn kind_of(manifest: &Value) -> GroupVersionKind {
    let text = |key: &str| manifest[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    GroupVersionKind::gvk(group, version, text("kind"))
}

fn unknown(gvk: &GroupVersionKind) -> Error {
    Error::UnknownKind {
        api_version: gvk.api_version(),
        kind: gvk.kind.clone(),
    }
}

/// One resource that the server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Its names and scope.
    pub id: ResourceId,
    /// The verbs it supports.
    pub verbs: Vec<String>,
    /// Names of its subresources, such as `status` and `scale`.
    pub subresources: Vec<String>,
}

/// What an API server serves at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Served {
    version: Info,
    group_versions: Vec<(String, String)>,
    resources: Vec<ServedResource>,
    by_kind: HashMap<(String, String, String), usize>,
    api_versions: Vec<String>,
}

impl Served {
    /// From the server's version and its discovery documents, in the server's order of preference.
    pub fn new(version: Info, groups: impl IntoIterator<Item = APIGroupDiscovery>) -> Self {
        let mut served = Self {
            version,
            ..Self::default()
        };
        let mut api_versions = BTreeSet::new();
        for group in groups {
            let name = group
                .metadata
                .and_then(|metadata| metadata.name)
                .unwrap_or_default();
            for part in group.versions {
                let version = part.version.unwrap_or_default();
                let api_version = api_version(&name, &version);
                for resource in part.resources {
                    api_versions.extend(kinds(&resource).map(|kind| format!("{api_version}/{kind}")));
                    served.add(&name, &version, resource);
                }
                api_versions.insert(api_version);
                served.group_versions.push((name.clone(), version));
            }
        }
        served.api_versions = api_versions.into_iter().collect();
        served
    }

    /// A server that serves only these resources, with every verb; for tests that are not about discovery.
    pub fn of(resources: impl IntoIterator<Item = ResourceId>) -> Self {
        let mut served = Self::default();
        for id in resources {
            let group_version = (id.group.clone(), id.version.clone());
            if !served.group_versions.contains(&group_version) {
                served.group_versions.push(group_version);
            }
            served
                .api_versions
                .extend([id.api_version(), format!("{}/{}", id.api_version(), id.kind)]);
            let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
            let verbs = verbs.map(str::to_owned).to_vec();
            served.push(ServedResource {
                id,
                verbs,
                subresources: vec!["status".to_owned()],
            });
        }
        served.api_versions.sort();
        served.api_versions.dedup();
        served
    }

    /// The server's version.
    pub fn version(&self) -> &Info {
        &self.version
    }

    /// The resource of a kind; subresources are not included.
    pub fn kind(&self, gvk: &GroupVersionKind) -> Option<&ServedResource> {
        let key = (gvk.group.clone(), gvk.version.clone(), gvk.kind.clone());
        self.by_kind.get(&key).map(|index| &self.resources[*index])
    }

    /// The resource of a plural name.
    pub fn plural(&self, gvr: &GroupVersionResource) -> Option<&ServedResource> {
        self.resources.iter().find(|served| {
            served.id.plural == gvr.resource
                && served.id.group == gvr.group
                && served.id.version == gvr.version
        })
    }

    /// The resource of a kind in the version that the server prefers.
    pub fn preferred(&self, group: &str, kind: &str) -> Option<&ServedResource> {
        self.resources
            .iter()
            .find(|served| served.id.group == group && served.id.kind == kind)
    }

    /// All resources; within a group the preferred version first.
    pub fn resources(&self) -> impl Iterator<Item = &ServedResource> {
        self.resources.iter()
    }

    /// All groups and versions, even those whose resources the server cannot list at the moment (an unavailable
    /// aggregated API).
    pub fn group_versions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.group_versions
            .iter()
            .map(|(group, version)| (group.as_str(), version.as_str()))
    }

    /// Helm's `.Capabilities.APIVersions`: every `group/version` and `group/version/Kind`, sorted, including kinds
    /// that only subresources use (`v1/Eviction`, `apps/v1/Scale`), as in Helm's `GetVersionSet`.
    pub fn api_versions(&self) -> &[String] {
        &self.api_versions
    }

    fn add(&mut self, group: &str, version: &str, resource: APIResourceDiscovery) {
        let (Some(plural), Some(kind)) = (resource.resource, resource.response_kind.and_then(|gvk| gvk.kind))
        else {
            return; // a parent that exists only for its subresources
        };
        let id = ResourceId {
            group: group.to_owned(),
            version: version.to_owned(),
            kind,
            plural,
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
        };
        let subresources = resource
            .subresources
            .into_iter()
            .filter_map(|sub| sub.subresource)
            .collect();
        self.push(ServedResource {
            id,
            verbs: resource.verbs,
            subresources,
        });
    }

    fn push(&mut self, served: ServedResource) {
        let key = (
            served.id.group.clone(),
            served.id.version.clone(),
            served.id.kind.clone(),
        );
        self.by_kind.entry(key).or_insert(self.resources.len());
        self.resources.push(served);
    }
}

/// The kinds that a resource and its subresources use.
fn kinds(resource: &APIResourceDiscovery) -> impl Iterator<Item = &str> {
    let own = resource.response_kind.iter();
    let subs = resource
        .subresources
        .iter()
        .filter_map(|sub| sub.response_kind.as_ref());
    own.chain(subs)
        .filter_map(|gvk| gvk.kind.as_deref())
        .filter(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Cluster;
    use crate::scripted::Script;

    fn core() -> Value {
        json!({"items": [{"metadata": {"name": ""}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "pods", "responseKind": {"group": "", "version": "v1", "kind": "Pod"}, "scope": "Namespaced",
             "verbs": ["get", "list"],
             "subresources": [
                {"subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"}, "verbs": ["create"]},
                {"subresource": "status", "responseKind": {"group": "", "version": "v1", "kind": "Pod"}, "verbs": ["get"]}]},
            {"resource": "namespaces", "responseKind": {"group": "", "version": "v1", "kind": "Namespace"}, "scope": "Cluster", "verbs": ["get"]}]}]}]})
    }

    fn groups(with_shops: bool) -> Value {
        let hpa = |version: &str| {
            json!({"version": version, "resources": [{"resource": "horizontalpodautoscalers", "scope": "Namespaced",
                "responseKind": {"group": "", "version": "", "kind": "HorizontalPodAutoscaler"}, "verbs": ["get"]}]})
        };
        let mut items = json!([
            {"metadata": {"name": "autoscaling"}, "versions": [hpa("v2"), hpa("v1")]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]}]);
        if with_shops {
            let shop = json!({"metadata": {"name": "example.org"}, "versions": [{"version": "v1", "resources": [
                {"resource": "shops", "responseKind": {"kind": "Shop"}, "scope": "Namespaced", "verbs": ["get"]}]}]});
            items.as_array_mut().unwrap().push(shop);
        }
        json!({"items": items})
    }

    fn version() -> Value {
        json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
               "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
    }

    fn read(script: Script, with_shops: bool) -> Script {
        script
            .get("/api", core())
            .get("/apis", groups(with_shops))
            .get("/version", version())
    }

    #[tokio::test]
    async fn kinds_and_plurals_lead_to_the_same_resource() {
        let script = read(Script::new("discovery"), false);
        let cluster = script.cluster();
        let pod = cluster
            .discovery()
            .resource(&GroupVersionKind::gvk("", "v1", "Pod"))
            .await
            .unwrap();
        assert_eq!((pod.plural.as_str(), pod.namespaced), ("pods", true));
        let served = cluster.discovery().served(Duration::from_mins(1)).await.unwrap();
        let by_plural = served
            .plural(&GroupVersionResource::gvr("", "v1", "pods"))
            .unwrap();
        assert_eq!(
            (&by_plural.id, by_plural.subresources.join(" ")),
            (&pod, "eviction status".to_owned())
        );
        assert!(!served.preferred("", "Namespace").unwrap().id.namespaced);
        assert_eq!(
            served
                .preferred("autoscaling", "HorizontalPodAutoscaler")
                .unwrap()
                .id
                .version,
            "v2"
        );
        assert_eq!(served.version().git_version, "v1.36.0");
        script.finish();
    }

    #[tokio::test]
    async fn charts_see_groups_versions_and_kinds() {
        let script = read(Script::new("capabilities"), false);
        let served = script.cluster().discovery().served(Duration::ZERO).await.unwrap();
        assert_eq!(
            served.api_versions(),
            [
                "autoscaling/v1",
                "autoscaling/v1/HorizontalPodAutoscaler",
                "autoscaling/v2",
                "autoscaling/v2/HorizontalPodAutoscaler",
                "metrics.k8s.io/v1beta1",
                "v1",
                "v1/Eviction",
                "v1/Namespace",
                "v1/Pod",
            ]
        );
    }

    #[tokio::test]
    async fn a_missing_kind_is_asked_for_once_more() {
        let script = read(read(Script::new("a CRD arrives"), false), true);
        let cluster: Cluster = script.cluster();
        let shop = GroupVersionKind::gvk("example.org", "v1", "Shop");
        cluster.discovery().served(Duration::from_mins(1)).await.unwrap();
        assert_eq!(cluster.discovery().resource(&shop).await.unwrap().plural, "shops");
        script.finish();
    }

    #[tokio::test]
    async fn a_kind_that_does_not_arrive_is_named() {
        let script = read(read(Script::new("no CRD"), false), false);
        let shop = GroupVersionKind::gvk("example.org", "v1", "Shop");
        let cluster = script.cluster();
        cluster.discovery().served(Duration::from_mins(1)).await.unwrap();
        let error = cluster.discovery().resource(&shop).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the API server serves no kind Shop in example.org/v1"
        );
        script.finish();
    }

    #[tokio::test]
    async fn callers_that_miss_together_share_one_reading() {
        let script = read(Script::new("ten at once"), true);
        let cluster = script.cluster();
        let shop = GroupVersionKind::gvk("example.org", "v1", "Shop");
        let asked = (0..10).map(|_| cluster.discovery().resource(&shop));
        assert!(futures::future::join_all(asked).await.iter().all(Result::is_ok));
        script.finish();
    }
}
