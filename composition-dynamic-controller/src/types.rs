//! Compositions that wait for types which the API server does not serve yet, and the watch that notices when it does.
//!
//! It watches the metadata of all `CustomResourceDefinition`s, and only while a composition waits. A CRD is established
//! a moment before discovery lists its type, so after a CRD changes, discovery is polled for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{Cluster, Item, ResourceId, Served};
use crdgen::CustomResourceDefinition;
use futures::{StreamExt as _, TryStreamExt as _};
use helm_client::release::UnservedType;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, ResourceExt as _};
use runtime::queue::{Priority, Queue};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::compositions::Key;

/// How many CRDs are listed per page.
const PAGE: u32 = 50;

/// How often discovery is polled after a CRD has changed.
const ASKS_EVERY: Duration = Duration::from_millis(500);

/// For how long it is polled.
const ASKS_FOR: Duration = Duration::from_secs(10);

/// The compositions that wait, and the types they wait for.
pub(crate) struct AwaitedTypes {
    cluster: Cluster,
    queue: Arc<Queue<Key>>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    types: HashMap<Key, Vec<UnservedType>>,
    /// Ends the watch.
    watch: Option<DropGuard>,
}

impl AwaitedTypes {
    /// Adds compositions to `queue` when one of their types is served.
    pub(crate) fn new(cluster: Cluster, queue: Arc<Queue<Key>>) -> Self {
        Self {
            cluster,
            queue,
            waiting: Arc::default(),
        }
    }

    /// Sets the types that a composition waits for.
    pub(crate) fn wait(&self, key: &Key, types: &[UnservedType]) {
        let mut waiting = lock(&self.waiting);
        waiting.types.insert(key.clone(), types.to_vec());
        if waiting.watch.is_some() {
            return;
        }
        let ends = CancellationToken::new();
        waiting.watch = Some(ends.clone().drop_guard());
        let (cluster, queue) = (self.cluster.clone(), self.queue.clone());
        let waiting = self.waiting.clone();
        tokio::spawn(async move {
            ends.run_until_cancelled(follow(cluster, queue, waiting)).await;
        });
    }

    /// Marks that a composition waits for no type.
    pub(crate) fn leave(&self, key: &Key) {
        lock(&self.waiting).leave(key);
    }
}

impl Waiting {
    fn leave(&mut self, key: &Key) {
        self.types.remove(key);
        if self.types.is_empty() {
            self.watch = None;
        }
    }

    /// True when a composition waits for a type in the group of this CRD, which is named `<plural>.<group>`.
    fn concerns(&self, definition: &str) -> bool {
        let group = definition.split_once('.').map_or("", |(_, group)| group);
        self.types
            .values()
            .flatten()
            .any(|awaited| awaited.group() == group)
    }

    /// Removes and returns the compositions of which one awaited type is served now.
    fn come(&mut self, served: &Served) -> Vec<Key> {
        let has_come = |awaited: &UnservedType| {
            let (group, version) = awaited
                .api_version
                .split_once('/')
                .unwrap_or(("", &awaited.api_version));
            let kind = GroupVersionKind::gvk(group, version, &awaited.kind);
            served.kind(&kind).is_some()
        };
        let waiting = self.types.iter();
        let come = waiting.filter(|(_, types)| types.iter().any(has_come));
        let come: Vec<Key> = come.map(|(key, _)| key.clone()).collect();
        for key in &come {
            // The pass that follows waits for the other types.
            self.types.remove(key);
        }
        come
    }
}

/// Watches CRDs until the task ends. CRDs in the first list count as changed, since they may have been created before
/// the watch began.
async fn follow(cluster: Cluster, queue: Arc<Queue<Key>>, waiting: Arc<Mutex<Waiting>>) {
    let definitions = ResourceId::of::<CustomResourceDefinition>();
    let definitions: Api<Item<PartialObjectMeta<DynamicObject>>> = definitions.api(cluster.client(), None);
    let events = watch(definitions, watcher::Config::default().page_size(PAGE))
        .default_backoff()
        .inspect_err(|error| {
            tracing::debug!(error = error as &dyn std::error::Error, "watch of CRDs failed");
        });
    tokio::pin!(events);
    // When discovery is polled next, and until when.
    let mut asks: Option<(Instant, Instant)> = None;
    loop {
        let due = async {
            match asks {
                Some((next, _)) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.next() => {
                let moved = match event {
                    Some(Ok(Event::InitApply(moved) | Event::Apply(moved))) => moved,
                    Some(_) => continue,
                    None => return,
                };
                if lock(&waiting).concerns(&moved.name_any()) {
                    let now = Instant::now();
                    let next = asks.map_or(now, |(next, _)| next);
                    asks = Some((next, now + ASKS_FOR));
                }
            }
            () = due => {
                match cluster.discovery().served(Duration::ZERO).await {
                    Ok(served) => {
                        let come = lock(&waiting).come(&served);
                        for key in come {
                            queue.add(key, Priority::Normal);
                        }
                    }
                    Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "discovery"),
                }
                let next = Instant::now() + ASKS_EVERY;
                asks = asks.filter(|(_, until)| next <= *until).map(|(_, until)| (next, until));
                let mut waiting = lock(&waiting);
                if waiting.types.is_empty() {
                    // Ends this task.
                    waiting.watch = None;
                }
            }
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use futures::FutureExt as _;
    use runtime::{Metrics, Telemetry};
    use serde_json::{Value, json};

    use super::*;
    use runtime::queue::Capacity;

    fn key(name: &str) -> Key {
        Key {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    fn shop(version: &str) -> UnservedType {
        UnservedType {
            api_version: format!("example.org/{version}"),
            kind: "Shop".to_owned(),
        }
    }

    fn served(version: &str) -> Served {
        Served::of([ResourceId {
            group: "example.org".to_owned(),
            version: version.to_owned(),
            kind: "Shop".to_owned(),
            plural: "shops".to_owned(),
            namespaced: true,
        }])
    }

    #[test]
    fn a_composition_is_requeued_once_when_the_awaited_version_is_served() {
        let mut waiting = Waiting::default();
        waiting.types.insert(key("a"), vec![shop("v2")]);
        waiting.types.insert(key("b"), vec![shop("v1"), shop("v3")]);
        assert!(waiting.concerns("shops.example.org"));
        assert!(waiting.concerns("fairs.example.org"));
        assert!(!waiting.concerns("shops.example.com"));
        assert_eq!(waiting.come(&served("v4")), []);
        assert_eq!(waiting.come(&served("v3")), [key("b")]);
        assert_eq!(waiting.come(&served("v3")), []);
        waiting.leave(&key("a"));
        assert!(!waiting.concerns("shops.example.org"));
    }

    /// An API server that has the CRD of shops, and lists their version `v1` in discovery from the `since`th request
    /// on.
    fn server(since: usize) -> Script {
        let mut asked = 0;
        Script::new("definitions").from_then_on(move |_, url, _| {
            let answer = match url.split('?').next().unwrap_or_default() {
                "/api" => json!({"items": []}),
                "/apis" => {
                    asked += 1;
                    let shops = json!({"metadata": {"name": "example.org"}, "versions": [{"version": "v1", "resources": [
                        {"resource": "shops", "responseKind": {"kind": "Shop"}, "scope": "Namespaced", "verbs": ["get"]}]}]});
                    let items: Vec<Value> = (asked >= since).then_some(shops).into_iter().collect();
                    json!({"items": items})
                }
                "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "",
                    "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
                _ if url.contains("watch=true") => return (500, json!({})),
                _ => json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {"resourceVersion": "5"},
                    "items": [{"metadata": {"name": "shops.example.org", "resourceVersion": "5"}}],
                }),
            };
            (200, answer)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_composition_is_requeued_as_soon_as_discovery_lists_its_type() {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "webs").unwrap();
        let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
        let types = AwaitedTypes::new(server(3).cluster(), queue.clone());
        types.wait(&key("a"), &[shop("v1")]);
        let told = tokio::time::timeout(ASKS_FOR, queue.take()).await;
        assert_eq!(told.unwrap(), key("a"));
        tokio::task::yield_now().await;
        assert!(lock(&types.waiting).watch.is_none(), "no composition waits");
        assert!(queue.take().now_or_never().is_none());
    }
}
