//! Assigns deployments to their clusters. They are declared on the watch cluster and reconciled by workers of the
//! target, so that a cluster that does not answer delays no other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::mesh::{self, KryptonDeployment, conditions, events};
use cluster::{Item, ObjectId, ResourceId};
use futures::StreamExt as _;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use runtime::queue::{Capacity, Priority, Queue};
use runtime::{Backoff, spans};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::object::{Object, Outcome};
use super::resolve::{self, resolve};
use super::{Error, is_held};
use crate::cluster_id::ClusterId;
use crate::context::{Context, Shared};
use crate::key::{Key, Kind};
use crate::message::chain;
use crate::pass;
use crate::registry::Registry;
use crate::registry::state::ClusterState;

/// How many deployments are routed concurrently.
const WORKERS: u16 = 8;

/// Page size of lists: only metadata is listed.
const PAGE: u32 = 100;

/// When a deployment without a cluster is checked again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// All deployments, and where they are assigned.
struct Router {
    registry: Arc<Registry>,
    ctx: Shared,
    queue: Queue<Key>,
    backoff: Backoff<Key>,
    assignments: Mutex<HashMap<Key, Assignment>>,
}

#[derive(Default)]
struct Assignment {
    version: String,
    /// Its cluster, once it is known.
    target: Option<ClusterId>,
}

/// Routes deployments until `until`; `changes` receives the clusters that have come or gone.
pub(crate) async fn route(
    registry: Arc<Registry>,
    ctx: Shared,
    mut changes: UnboundedReceiver<ClusterId>,
    until: CancellationToken,
) {
    if !ctx.mode.has_deployments() {
        until.cancelled().await;
        return;
    }
    let router = Arc::new(Router {
        registry,
        queue: Queue::new(ctx.telemetry.queue(), Capacity::of(WORKERS)),
        backoff: Backoff::new(ctx.min_retry, ctx.max_retry),
        ctx,
        assignments: Mutex::default(),
    });
    let hearing = async {
        while let Some(id) = until.run_until_cancelled(changes.recv()).await.flatten() {
            router.cluster_changed(&id);
        }
    };
    tokio::join!(router.watch(&until), router.clone().dispatch(&until), hearing);
}

impl Router {
    async fn watch(&self, until: &CancellationToken) {
        let home = self.ctx.home.client();
        let api: Api<Metadata> = ResourceId::of::<KryptonDeployment>().api(home, None);
        let events = watcher(api, watcher::Config::default().page_size(PAGE))
            .default_backoff()
            .take_until(until.cancelled());
        tokio::pin!(events);
        let mut listing = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listing.clear(),
                Ok(Event::InitApply(deployment)) => {
                    listing.insert(key_of(&deployment));
                    self.saw(&deployment, Priority::Low);
                }
                Ok(Event::InitDone) => {
                    let known: Vec<Key> = lock(&self.assignments).keys().cloned().collect();
                    let gone = known.iter().filter(|key| !listing.contains(key));
                    gone.for_each(|key| self.gone(key));
                }
                Ok(Event::Apply(deployment)) => self.saw(&deployment, Priority::High),
                Ok(Event::Delete(deployment)) => self.gone(&key_of(&deployment)),
                Err(error) => {
                    tracing::warn!(error = chain(&error), "could not watch the KryptonDeployments");
                }
            }
        }
    }

    fn saw(&self, deployment: &Metadata, priority: Priority) {
        let key = key_of(deployment);
        if !self.ctx.serves(&key.namespace) {
            return;
        }
        let version = deployment.resource_version().unwrap_or_default();
        let mut assignments = lock(&self.assignments);
        let entry = assignments.entry(key.clone()).or_default();
        if entry.version != version {
            entry.version = version;
            self.queue.add(key, priority);
        }
    }

    fn gone(&self, key: &Key) {
        let former = lock(&self.assignments).remove(key);
        let target = former.and_then(|former| former.target);
        self.queue.forget(key);
        self.backoff.succeeded(key);
        let site = target.and_then(|target| self.registry.site(&target));
        if let Some(site) = site {
            site.forget(key);
        }
        self.registry.left_by(key, None);
    }

    /// Requeues the deployments of a cluster, and those that have none.
    fn cluster_changed(&self, id: &ClusterId) {
        let assignments = lock(&self.assignments);
        let concerned = assignments
            .iter()
            .filter(|(_, entry)| entry.target.as_ref().is_none_or(|target| target == id));
        for (key, _) in concerned {
            self.queue.add(key.clone(), Priority::Normal);
        }
    }

    async fn dispatch(self: Arc<Self>, until: &CancellationToken) {
        let mut routing = JoinSet::new();
        while let Some(key) = until.run_until_cancelled(self.queue.take()).await {
            let this = self.clone();
            let span = pass::span(&key, "");
            let work = async move { this.work(key).await };
            routing.spawn(work.instrument(span));
            while routing.try_join_next().is_some() {}
        }
        routing.shutdown().await;
    }

    async fn work(&self, key: Key) {
        let routed = Box::pin(self.route(&key)).await;
        self.queue.done(&key);
        match routed {
            Ok(None) => self.backoff.succeeded(&key),
            Ok(Some(pause)) => {
                self.backoff.succeeded(&key);
                self.queue.add_later(key, Priority::Low, pause);
            }
            Err(error) => {
                let pause = self.backoff.failed(&key);
                let why = chain(&error);
                spans::failed(&why);
                tracing::warn!(object = %key, error = why, retry_in = ?pause, "could not route");
                self.queue.add_later(key, Priority::Low, pause);
            }
        }
    }

    /// Assigns a deployment to its cluster; if there is none, returns when to check again.
    async fn route(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let ctx = &self.ctx;
        let Some(mut object) = Object::read(key, ctx).await? else {
            return Ok(None);
        };
        let deleting = object.is_deleting();
        if deleting && !is_held(&object.deployment) {
            return Ok(None);
        }
        if !deleting && object.deployment.spec.account.name.trim().is_empty() {
            let why = "spec.account.name must be set";
            object.warn(events::ACCOUNT_MISSING, why).await;
            object
                .report(Outcome::error(conditions::ACCOUNT_MISSING, why))
                .await?;
            return Ok(None);
        }
        if !deleting && !is_held(&object.deployment) {
            self.hold(&object).await?;
        }
        if deleting && object.status.release.is_none() {
            // Nothing was ever written for it.
            self.let_go(&object).await?;
            return Ok(None);
        }
        let spec = &object.deployment.spec;
        let resolving = resolve(&key.namespace, spec, &object.status, deleting, ctx);
        let (id, source) = match resolving.await {
            Ok(found) => found,
            Err(error @ resolve::Error::TargetChanged { .. }) => {
                self.withdraw(key);
                let outcome = Outcome::pending(conditions::TARGET_CHANGED, chain(&error));
                object.report(outcome).await?;
                return Ok(None);
            }
            Err(error) => {
                if matches!(error, resolve::Error::NoneUsable(_)) {
                    self.withdraw(key);
                }
                return self.unavailable(&mut object, None, &chain(&error)).await;
            }
        };
        // Changes of Secrets that are not watched, or of their consent, are noticed at the resync only.
        let again = (!self.registry.is_discovered(&id)).then_some(ctx.resync_interval);
        self.registry.left_by(key, Some(&id));
        self.registry.used_by(key, &id, source);
        if let Some(assignment) = lock(&self.assignments).get_mut(key) {
            assignment.target = Some(id.clone());
        }
        let site = self.registry.site(&id);
        let standing = self.registry.member(&id).map(|member| member.standing());
        match (site, standing) {
            (Some(site), Some(standing)) if standing.state == ClusterState::Engaged => {
                let version = object.deployment.resource_version().unwrap_or_default();
                site.memories.saw(key.clone(), version);
                site.queue.add(key.clone(), Priority::Normal);
                Ok(again)
            }
            // It is just being connected; the outcome will be reported.
            (_, Some(standing))
                if matches!(
                    standing.state,
                    ClusterState::Discovered | ClusterState::Connecting
                ) =>
            {
                Ok(Some(LOOK_AGAIN))
            }
            (_, standing) => {
                let why = standing.map_or_else(String::new, |standing| {
                    format!("since {}: {}", standing.since, standing.message)
                });
                self.unavailable(&mut object, Some(&id), &why).await
            }
        }
    }

    /// Stops working on a deployment at its previous cluster, which it may not use now.
    fn withdraw(&self, key: &Key) {
        let target = lock(&self.assignments)
            .get_mut(key)
            .and_then(|assignment| assignment.target.take());
        let site = target.and_then(|target| self.registry.site(&target));
        if let Some(site) = site {
            site.forget(key);
        }
        self.registry.left_by(key, None);
    }

    async fn hold(&self, object: &Object<'_>) -> Result<(), Error> {
        let holding = self.ctx.home.add_finalizer(
            &object.id,
            &object.deployment.metadata,
            mesh::DEPLOYMENT_FINALIZER,
        );
        let is_new = holding.await.map_err(Error::Mark)?;
        if is_new {
            let note = format!("account {} validated", object.deployment.spec.account.name);
            object.say(events::ACCOUNT_VALIDATED, &note).await;
            object
                .say(
                    events::FINALIZER_ADDED,
                    "the release is removed before the object",
                )
                .await;
        }
        Ok(())
    }

    /// There is no cluster, or it does not answer. An object that is being deleted waits for it, unless its removal is
    /// forced.
    async fn unavailable(
        &self,
        object: &mut Object<'_>,
        id: Option<&ClusterId>,
        why: &str,
    ) -> Result<Option<Duration>, Error> {
        let cluster = id.map_or_else(
            || format!("the cluster of region {}", object.deployment.spec.region.name),
            |id| format!("cluster {id}"),
        );
        let message = format!("{cluster} is not available: {why}");
        if object.is_deleting() && object.is_forced() {
            let what = object.orphan(&message).await;
            if let Some(member) = id.and_then(|id| self.registry.member(id)) {
                member.left_behind(&what, &self.ctx).await;
            }
            self.let_go(object).await?;
            tracing::info!(object = %object.key, "removed the finalizer by force");
            return Ok(None);
        }
        object.warn(events::EDGE_UNAVAILABLE, &message).await;
        object
            .report(Outcome::pending(conditions::EDGE_UNAVAILABLE, message))
            .await?;
        Ok(Some(LOOK_AGAIN))
    }

    async fn let_go(&self, object: &Object<'_>) -> Result<(), Error> {
        let letting_go = self.ctx.home.remove_finalizer(
            &object.id,
            &object.deployment.metadata,
            mesh::DEPLOYMENT_FINALIZER,
        );
        if letting_go.await.map_err(Error::Mark)? {
            let note = "the object is removed";
            object.say(events::FINALIZER_REMOVED, note).await;
        }
        Ok(())
    }
}

fn key_of(deployment: &Metadata) -> Key {
    Key {
        kind: Kind::Deployment,
        namespace: deployment.namespace().unwrap_or_default(),
        name: deployment.name_any(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Object<'_> {
    /// Reads a deployment; none if it does not exist.
    pub(super) async fn read<'a>(key: &'a Key, ctx: &'a Context) -> Result<Option<Object<'a>>, Error> {
        let id = ObjectId::of::<KryptonDeployment>(Some(&key.namespace), &key.name).map_err(Error::Read)?;
        let deployment = ctx
            .home
            .get::<KryptonDeployment>(&id)
            .await
            .map_err(Error::Read)?;
        Ok(deployment.map(|deployment| Object {
            key,
            id,
            status: deployment.status.clone().unwrap_or_default(),
            deployment,
            ctx,
        }))
    }
}
