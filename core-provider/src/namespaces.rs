//! Keeps the namespaces with compositions of a type in a `ClusterRole`, which the controller's policies check.
//!
//! A controller may write Roles only there, so a watch on the compositions keeps the list current. A new composition
//! waits a few milliseconds for it if its namespace is new, otherwise not at all. The list is a role and not a
//! parameter of the policies, because roles are in force at once, and a missing one affects only its controller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{CompositionDefinition, finalizers, labels};
use chart_bound::{GRANT, PERMISSIONS, is_protected};
use cluster::{Apply, Cluster, Item, ObjectId, ResourceId};
use futures::StreamExt as _;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource as _};
use runtime::chain;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Our field manager for the rules; the rest of the role belongs to the bundle.
const FIELD_MANAGER: &str = "core-provider-namespaces";

/// The pause after a failed write or watch, and the longest one after several.
///
/// The first watch of a new version usually fails at once, because the API server is still preparing to serve it, and
/// compositions that move to that version wait for their namespaces.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Without a failure for this long, pauses are short again.
const QUIET: Duration = Duration::from_secs(10);

/// Definitions to whose version a composition of another controller was moved.
pub(crate) type Arrivals = UnboundedReceiver<ObjectRef<CompositionDefinition>>;

/// The types whose compositions are followed.
pub(crate) struct Namespaces {
    cluster: Cluster,
    krateo_namespace: String,
    closed: BTreeSet<String>,
    arrivals: UnboundedSender<ObjectRef<CompositionDefinition>>,
    followed: Mutex<HashMap<ObjectId, Followed>>,
}

struct Followed {
    task: AbortHandle,
    look: Arc<Notify>,
}

impl Namespaces {
    /// Compositions in `closed` namespaces do not open them.
    pub(crate) fn new(
        cluster: Cluster,
        krateo_namespace: String,
        closed: BTreeSet<String>,
    ) -> (Self, Arrivals) {
        let (arrivals, received) = mpsc::unbounded();
        let namespaces = Self {
            cluster,
            krateo_namespace,
            closed,
            arrivals,
            followed: Mutex::default(),
        };
        (namespaces, received)
    }

    /// Follows the compositions of a definition's version of the type, and keeps their namespaces in the role. If they
    /// are followed already, checks the role again.
    pub(crate) fn follow(
        &self,
        resource: ResourceId,
        role: ObjectId,
        definition: ObjectRef<CompositionDefinition>,
    ) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = followed.get(&role).filter(|known| !known.task.is_finished()) {
            known.look.notify_one();
            return;
        }
        let look = Arc::new(Notify::new());
        let keeper = Keeper {
            cluster: self.cluster.clone(),
            krateo_namespace: self.krateo_namespace.clone(),
            closed: self.closed.clone(),
            resource,
            role: role.clone(),
            definition,
            arrivals: self.arrivals.clone(),
            look: look.clone(),
            holding: BTreeMap::new(),
            is_complete: false,
            failed: None,
            written: None,
        };
        let task = tokio::spawn(keeper.run()).abort_handle();
        followed.insert(role, Followed { task, look });
    }

    /// Stops following when the role is deleted.
    pub(crate) fn forget(&self, role: &ObjectId) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = followed.remove(role) {
            known.task.abort();
        }
    }
}

/// Keeps one role.
struct Keeper {
    cluster: Cluster,
    krateo_namespace: String,
    closed: BTreeSet<String>,
    resource: ResourceId,
    role: ObjectId,
    definition: ObjectRef<CompositionDefinition>,
    arrivals: UnboundedSender<ObjectRef<CompositionDefinition>>,
    look: Arc<Notify>,
    /// Names of the compositions in each namespace.
    holding: BTreeMap<String, BTreeSet<String>>,
    /// True once all compositions have been seen.
    is_complete: bool,
    /// The last failure, and the pause after it.
    failed: Option<(Instant, Duration)>,
    /// The rules that the role has, as far as is known.
    written: Option<Vec<PolicyRule>>,
}

impl Keeper {
    async fn run(mut self) {
        let governed = format!("{}={}", labels::COMPOSITION_VERSION, self.resource.version);
        let compositions: Api<Item<PartialObjectMeta<DynamicObject>>> =
            self.resource.api(self.cluster.client(), None);
        let config = watcher::Config::default().labels(&governed);
        let mut events = watcher(compositions, config).boxed();
        let mut initial = BTreeMap::new();
        let look = self.look.clone();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => initial = BTreeMap::new(),
                    Some(Ok(Event::InitApply(object))) => {
                        self.tell_of(object.meta());
                        add(&mut initial, object.meta());
                    }
                    Some(Ok(Event::InitDone)) => {
                        self.holding = std::mem::take(&mut initial);
                        self.is_complete = true;
                    }
                    Some(Ok(Event::Apply(object))) => {
                        self.tell_of(object.meta());
                        add(&mut self.holding, object.meta());
                    }
                    Some(Ok(Event::Delete(object))) => remove(&mut self.holding, object.meta()),
                    Some(Err(error)) => {
                        tracing::debug!(error = chain(&error), resource = self.resource.plural, "watch ended");
                        self.pause().await;
                    }
                    None => return,
                },
                () = look.notified() => self.written = None,
            }
            // Before all compositions are known, a write would remove namespaces that are still needed.
            if self.is_complete
                && let Err(error) = self.write().await
            {
                tracing::warn!(error = chain(&error), object = %self.role, "could not update the role with the namespaces of compositions");
                self.pause().await;
                self.look.notify_one();
            }
        }
    }

    /// Waits after a failure.
    async fn pause(&mut self) {
        let pause = match self.failed {
            Some((at, pause)) if at.elapsed() < QUIET => (2 * pause).min(LONGEST_PAUSE),
            _ => PAUSE,
        };
        self.failed = Some((Instant::now(), pause));
        tokio::time::sleep(pause).await;
    }

    /// Reports a composition that is new here but already has a controller's finalizer: it was moved from another
    /// version.
    fn tell_of(&self, metadata: &ObjectMeta) {
        if self.is_complete && is_arrival(&self.holding, metadata) {
            // There is no receiver any more when the process ends.
            let _ = self.arrivals.unbounded_send(self.definition.clone());
        }
    }

    async fn write(&mut self) -> Result<(), cluster::Error> {
        // Protected namespaces need the admin's consent; a composition does not open them.
        let open = self
            .holding
            .keys()
            .filter(|name| !is_protected(name, &self.krateo_namespace) && !self.closed.contains(*name));
        let wanted = rules(&self.resource, open.cloned().collect());
        if self.written.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let live: Option<ClusterRole> = self.cluster.get(&self.role).await?;
        let Some(live) = live else { return Ok(()) };
        if live.rules.clone().unwrap_or_default() != wanted {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                // With the UID, a role that was deleted meanwhile is not created again.
                "metadata": {"name": self.role.name(), "uid": live.metadata.uid},
                "rules": wanted,
            });
            self.cluster
                .apply(&self.role, &object, &Apply::by(FIELD_MANAGER).force())
                .await?;
        }
        self.written = Some(wanted);
        Ok(())
    }
}

/// The rules for these namespaces; none for an empty list, because a rule without names would cover all of them.
fn rules(resource: &ResourceId, namespaces: Vec<String>) -> Vec<PolicyRule> {
    if namespaces.is_empty() {
        return Vec::new();
    }
    vec![PolicyRule {
        api_groups: Some(vec![resource.group.clone()]),
        resources: Some(vec![format!("{}/{PERMISSIONS}", resource.plural)]),
        resource_names: Some(namespaces),
        verbs: vec![GRANT.to_owned()],
        ..PolicyRule::default()
    }]
}

fn is_arrival(holding: &BTreeMap<String, BTreeSet<String>>, metadata: &ObjectMeta) -> bool {
    let (namespace, name) = place(metadata);
    let is_known = holding.get(&namespace).is_some_and(|names| names.contains(&name));
    let held = metadata.finalizers.as_deref().unwrap_or_default();
    !is_known && held.iter().any(|held| held == finalizers::COMPOSITION)
}

fn place(metadata: &ObjectMeta) -> (String, String) {
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}

fn add(holding: &mut BTreeMap<String, BTreeSet<String>>, metadata: &ObjectMeta) {
    let (namespace, name) = place(metadata);
    holding.entry(namespace).or_default().insert(name);
}

fn remove(holding: &mut BTreeMap<String, BTreeSet<String>>, metadata: &ObjectMeta) {
    let (namespace, name) = place(metadata);
    if let Some(names) = holding.get_mut(&namespace) {
        names.remove(&name);
        if names.is_empty() {
            holding.remove(&namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_from_failure_to_failure() {
        let cluster = cluster::scripted::Script::new("no request").cluster();
        let (namespaces, _arrivals) = Namespaces::new(cluster, "krateo-system".to_owned(), BTreeSet::new());
        let mut keeper = Keeper {
            cluster: namespaces.cluster.clone(),
            krateo_namespace: namespaces.krateo_namespace.clone(),
            closed: BTreeSet::new(),
            resource: ResourceId::of::<ClusterRole>(),
            role: ObjectId::of::<ClusterRole>(None, "webs-namespaces").unwrap(),
            definition: ObjectRef::new("webs"),
            arrivals: namespaces.arrivals.clone(),
            look: Arc::default(),
            holding: BTreeMap::new(),
            is_complete: false,
            failed: None,
            written: None,
        };
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let begun = Instant::now();
            keeper.pause().await;
            pauses.push(begun.elapsed().as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        tokio::time::sleep(QUIET).await;
        let begun = Instant::now();
        keeper.pause().await;
        assert_eq!(begun.elapsed().as_millis(), 50);
    }

    #[test]
    fn a_composition_with_a_controllers_finalizer_that_is_new_here_is_an_arrival() {
        let metadata = |finalizer: &str| ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("web".into()),
            finalizers: Some(vec![finalizer.to_owned()]),
            ..ObjectMeta::default()
        };
        let moved = metadata(finalizers::COMPOSITION);
        let mut holding = BTreeMap::new();
        assert!(is_arrival(&holding, &moved));
        assert!(
            !is_arrival(&holding, &metadata("example.org/other")),
            "created just now"
        );
        add(&mut holding, &moved);
        assert!(!is_arrival(&holding, &moved), "here already");
    }
}
