//! The definitions and compositions in a platform's namespace: read once, or followed by watches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::conditions::{READY, SYNCED};
use api::{CompositionDefinition, labels};
use cluster::{Cluster, ObjectId, ResourceId, Selector};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::components::List;
use super::graph::{ObjectStatus, Snapshot};
use super::names::{INSTALLER, KIND};

/// The `ConfigMap` in which the umbrella stores the Installer that it will create, and its namespace unless that is the
/// components' own.
const SELF: &str = "installer-self-cr";
const PLATFORM: &str = "krateo-platform";
const SELF_KEY: &str = "installer.yaml";

/// Events that arrive within this time are shown together.
const AT_ONCE: Duration = Duration::from_millis(150);

/// A platform as last read.
#[derive(Default)]
pub(super) struct World {
    namespace: String,
    /// The objects of each type by name, including definitions.
    objects: BTreeMap<ResourceId, BTreeMap<String, Value>>,
    /// The same for watches whose first list is not complete yet.
    listing: BTreeMap<ResourceId, BTreeMap<String, Value>>,
    /// The last known components: they are still shown while the Installer is being removed.
    list: Option<List>,
}

impl World {
    /// Reads it once.
    ///
    /// # Errors
    /// If definitions or compositions cannot be read.
    pub(super) async fn read(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let mut world = Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        };
        let selector = Selector {
            namespace: Some(namespace),
            labels: None,
        };
        let definitions = ResourceId::of::<CompositionDefinition>();
        let mut missing = vec![definitions];
        while let Some(resource) = missing.pop() {
            let found: Vec<Value> = match cluster.list(&resource, selector).await {
                // The type is being removed, or the cluster has no platform.
                Err(error) if error.is_not_found() => Vec::new(),
                found => found?,
            };
            let named = found.into_iter().map(|object| (name(&object), object));
            world.objects.insert(resource, named.collect());
            if world.objects.len() == 1 {
                missing.extend(world.types());
            }
        }
        world.learn(cluster).await?;
        Ok(world)
    }

    /// Follows it, and calls `shown` at the beginning and after each change.
    ///
    /// # Errors
    /// If it cannot be read at the beginning, or `shown` fails.
    pub(super) async fn follow(
        cluster: &Cluster,
        namespace: &str,
        mut shown: impl FnMut(&Self) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut world = Self::read(cluster, namespace).await?;
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut watches: HashMap<ResourceId, AbortHandle> = HashMap::new();
        loop {
            let mut wanted = world.types();
            wanted.insert(ResourceId::of::<CompositionDefinition>());
            watches.retain(|resource, watch| {
                let stays = wanted.contains(resource);
                if !stays {
                    watch.abort();
                }
                stays
            });
            world.objects.retain(|resource, _| wanted.contains(resource));
            for resource in wanted {
                watches
                    .entry(resource.clone())
                    .or_insert_with(|| watch_type(cluster, &resource, namespace, tell.clone()));
            }
            world.learn(cluster).await?;
            if shown(&world)?.is_break() {
                return Ok(());
            }
            // The sender lives as long as this function, so `recv` never returns none.
            if let Some((resource, event)) = told.recv().await {
                world.change(resource, event);
            }
            while let Ok(Some((resource, event))) = timeout(AT_ONCE, told.recv()).await {
                world.change(resource, event);
            }
        }
    }

    /// Its components; none if there is no installer.
    pub(super) fn list(&self) -> Option<&List> {
        self.list.as_ref()
    }

    /// The definition of installers and the Installer, one line each.
    pub(super) fn roots(&self) -> Vec<String> {
        let each = [
            ("definition", self.definitions().get(INSTALLER)),
            ("Installer", self.installer()),
        ];
        each.into_iter()
            .map(|(what, object)| match object {
                Some(object) => {
                    let status = status_of(object);
                    let state = match (status.is_going, status.is_ready) {
                        (true, _) => "is being removed",
                        (false, true) => "ready",
                        (false, false) => "not ready yet",
                    };
                    let why = if status.why.is_empty() {
                        String::new()
                    } else {
                        format!(": {}", status.why)
                    };
                    format!("{what} {}/{INSTALLER}: {state}{why}", self.namespace)
                }
                None => format!("{what} {}/{INSTALLER}: not there", self.namespace),
            })
            .collect()
    }

    /// True if there is neither a definition of installers nor an Installer.
    pub(super) fn is_bare(&self) -> bool {
        self.definitions().get(INSTALLER).is_none() && self.installer().is_none()
    }

    /// The state of the components.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for component in self.list.iter().flat_map(|list| &list.components) {
            if let Some(definition) = self.definitions().get(&component.name) {
                snapshot
                    .definitions
                    .insert(component.name.clone(), status_of(definition));
            }
            if let Some(object) = self.object(&component.kind, &component.name) {
                snapshot.objects.insert(component.name.clone(), status_of(object));
            }
        }
        snapshot
    }

    fn definitions(&self) -> &BTreeMap<String, Value> {
        static NONE: BTreeMap<String, Value> = BTreeMap::new();
        self.objects
            .get(&ResourceId::of::<CompositionDefinition>())
            .unwrap_or(&NONE)
    }

    fn installer(&self) -> Option<&Value> {
        self.object(KIND, INSTALLER)
    }

    fn object(&self, kind: &str, name: &str) -> Option<&Value> {
        let mut of_kind = self
            .objects
            .iter()
            .filter(|(resource, _)| resource.group == api::COMPOSITION_GROUP && resource.kind == kind);
        of_kind.find_map(|(_, objects)| objects.get(name))
    }

    /// The types that the definitions serve.
    fn types(&self) -> BTreeSet<ResourceId> {
        self.definitions().values().filter_map(served_type).collect()
    }

    /// Applies an event of a watch. The first list of a watch counts once it is complete.
    fn change(&mut self, resource: ResourceId, event: Event<DynamicObject>) {
        let text = |object: &DynamicObject| object.metadata.name.clone().unwrap_or_default();
        let value = |object: &DynamicObject| serde_json::to_value(object).unwrap_or_default();
        match event {
            Event::Init => {
                self.listing.insert(resource, BTreeMap::new());
            }
            Event::InitApply(object) => {
                let listed = self.listing.entry(resource).or_default();
                listed.insert(text(&object), value(&object));
            }
            Event::InitDone => {
                let listed = self.listing.remove(&resource).unwrap_or_default();
                self.objects.insert(resource, listed);
            }
            Event::Apply(object) => {
                let objects = self.objects.entry(resource).or_default();
                objects.insert(text(&object), value(&object));
            }
            Event::Delete(object) => {
                if let Some(objects) = self.objects.get_mut(&resource) {
                    objects.remove(&text(&object));
                }
            }
        }
    }

    /// Finds out which components are wanted: from the Installer or, before it exists, from the umbrella.
    async fn learn(&mut self, cluster: &Cluster) -> Result<()> {
        let spec = match self.installer() {
            Some(installer) => installer.get("spec").cloned(),
            None if self.list.is_none() => self.planned(cluster).await?,
            None => None,
        };
        if let Some(Value::Object(spec)) = spec {
            self.list = Some(list(&spec));
        }
        Ok(())
    }

    /// The Installer that the umbrella is about to create.
    async fn planned(&self, cluster: &Cluster) -> Result<Option<Value>> {
        for namespace in [PLATFORM, &self.namespace] {
            let id = ObjectId::of::<ConfigMap>(Some(namespace), SELF)?;
            let found = match cluster.get::<ConfigMap>(&id).await {
                // Whoever may read compositions need not have access to the controllers' namespace.
                Err(error) if error.is_forbidden() => None,
                found => found?,
            };
            let Some(found) = found else { continue };
            let text = found
                .data
                .unwrap_or_default()
                .remove(SELF_KEY)
                .unwrap_or_default();
            let manifest = helm::yaml::parse_typed(text.as_bytes())
                .with_context(|| format!("key {SELF_KEY} of {id} is not a manifest"))?;
            return Ok(manifest.get("spec").cloned());
        }
        Ok(None)
    }
}

fn list(spec: &Map<String, Value>) -> List {
    // The API server has accepted it; entries that cannot be parsed are ignored.
    List::read(spec).0
}

/// The type that a definition serves, in the definition's version.
fn served_type(definition: &Value) -> Option<ResourceId> {
    let status = &definition["status"];
    let text = |key: &str| status[key].as_str();
    let (group, version) = text("apiVersion")?.split_once('/')?;
    Some(ResourceId {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("kind")?.to_owned(),
        plural: text("resource")?.to_owned(),
        namespaced: true,
    })
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn status_of(object: &Value) -> ObjectStatus {
    let conditions = object["status"]["conditions"].as_array();
    let condition = |type_: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == type_)
    };
    let is_so = |type_: &str| condition(type_).is_some_and(|condition| condition["status"] == "True");
    let is_ready = is_so(READY);
    // A failed pass explains more than a condition that is not True.
    let telling = [SYNCED, READY]
        .into_iter()
        .filter(|type_| !is_so(type_))
        .find_map(condition)
        .filter(|_| !is_ready || !is_so(SYNCED));
    let why = telling.map(|condition| {
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        let message = text("message").lines().next().unwrap_or_default();
        printable(if message.is_empty() {
            text("reason")
        } else {
            message
        })
    });
    let versions = object["status"]["managed"]["versionInfo"].as_array();
    ObjectStatus {
        is_ready,
        why: why.unwrap_or_default(),
        is_going: object["metadata"]["deletionTimestamp"].is_string(),
        version: object["metadata"]["labels"][labels::COMPOSITION_VERSION]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        served: versions
            .into_iter()
            .flatten()
            .filter(|version| version["served"] == true)
            .filter_map(|version| version["version"].as_str().map(str::to_owned))
            .collect(),
    }
}

/// The text without characters that move the cursor or change colours: messages may quote charts and registries.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Watches the objects of a type in a namespace.
fn watch_type(
    cluster: &Cluster,
    resource: &ResourceId,
    namespace: &str,
    tell: mpsc::UnboundedSender<(ResourceId, Event<DynamicObject>)>,
) -> AbortHandle {
    let objects: Api<DynamicObject> = resource.api(cluster.client(), Some(namespace));
    let resource = resource.clone();
    tokio::spawn(async move {
        let mut events = watch(objects, watcher::Config::default())
            .default_backoff()
            .boxed();
        while let Some(event) = events.next().await {
            // A failed watch is restarted after a while.
            let Ok(event) = event else { continue };
            if tell.send((resource.clone(), event)).is_err() {
                return;
            }
        }
    })
    .abort_handle()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_ready_by_its_condition_and_tells_what_failed() {
        let object =
            |conditions: Value| json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
        let ready = json!({"type": "Ready", "status": "True"});
        let synced = json!({"type": "Synced", "status": "True"});
        let creating = json!({"type": "Ready", "status": "False", "reason": "Creating", "message": ""});
        let failed =
            json!({"type": "Synced", "status": "False", "reason": "ReconcileError", "message": "no\nmore"});
        let hostile = json!({"type": "Synced", "status": "False", "message": "\u{1b}[2Jready"});
        for (conditions, is_ready, why) in [
            (json!([ready, synced]), true, ""),
            (json!([creating, synced]), false, "Creating"),
            (json!([creating, failed]), false, "no"),
            (json!([creating, hostile]), false, "\u{fffd}[2Jready"),
            (json!([]), false, ""),
        ] {
            let status = status_of(&object(conditions.clone()));
            assert_eq!(
                (status.is_ready, status.why.as_str()),
                (is_ready, why),
                "{conditions}"
            );
        }
    }

    #[test]
    fn a_definition_tells_its_type_and_the_versions_served() {
        let definition = json!({"status": {
            "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Authn", "resource": "authns",
            "managed": {"versionInfo": [{"version": "v1-0-0", "served": true}, {"version": "vacuum", "served": false}]},
        }});
        let resource = served_type(&definition).unwrap();
        assert_eq!(
            (resource.version.as_str(), resource.plural.as_str()),
            ("v1-0-0", "authns")
        );
        assert_eq!(status_of(&definition).served, ["v1-0-0"]);
        assert_eq!(served_type(&json!({"status": {}})), None);
    }
}
