//! The clusters that are served: each has a Secret with its kubeconfig, and is engaged and ended independently.

mod engagement;
pub(crate) mod member;
mod secrets;
mod source;
pub(crate) mod state;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::mesh::annotations::CLUSTER_STATE;
use helm::origin::ALLOW_FROM_NAMESPACES;
use jiff::Timestamp;
use runtime::queue::Priority;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use secrets::follow;
pub(crate) use source::{SELF, Source, source};

use self::engagement::Engaged;
use self::member::{Member, lock};
use self::source::is_self;
use self::state::{ClusterState, Standing};
use crate::cluster_id::ClusterId;
use crate::context::Shared;
use crate::engine::Site;
use crate::key::Key;

/// All known clusters.
pub(crate) struct Registry {
    ctx: Shared,
    clusters: Mutex<BTreeMap<ClusterId, Entry>>,
    /// Clusters that are no longer served and have not ended yet.
    ending: Mutex<BTreeMap<ClusterId, JoinHandle<()>>>,
    /// Cancelled once all of them end; then nobody waits for reports any more.
    over: CancellationToken,
}

struct Entry {
    member: Arc<Member>,
    engaged: Engaged,
    digest: [u8; 32],
    /// True while its Secret has the label, or if it is the watch cluster.
    is_discovered: bool,
    /// The deployments that refer to it.
    users: BTreeSet<Key>,
    running: Running,
}

struct Running {
    until: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends it with its passes, watches and connections.
    async fn end(self) {
        self.until.cancel();
        ended(Some(self.task)).await;
    }
}

impl Registry {
    pub(crate) fn new(ctx: Shared) -> Self {
        Self {
            ctx,
            clusters: Mutex::default(),
            ending: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// The Secret of a cluster was found: engages it, or engages it again if its source has changed.
    pub(crate) fn discovered(&self, id: &ClusterId, source: Source) {
        self.keep(id, source, None);
    }

    /// A deployment refers to a cluster.
    pub(crate) fn used_by(&self, user: &Key, id: &ClusterId, source: Source) {
        let source = if is_self(id, &self.ctx) {
            Source::Home
        } else {
            source
        };
        self.keep(id, source, Some(user));
    }

    /// A Secret is gone or has lost its label and is no longer used. Deployments that name it resolve their cluster
    /// again.
    pub(crate) fn lost(&self, id: &ClusterId) {
        let mut clusters = lock(&self.clusters);
        let was_discovered = |entry: &Entry| entry.is_discovered;
        if clusters.get(id).is_some_and(was_discovered)
            && let Some(entry) = clusters.remove(id)
        {
            self.leave(id, entry, "its Secret is gone");
        }
    }

    /// A deployment refers to no cluster any more, or only to `except`.
    pub(crate) fn left_by(&self, user: &Key, except: Option<&ClusterId>) {
        let mut clusters = lock(&self.clusters);
        for (id, entry) in clusters.iter_mut() {
            if Some(id) != except {
                entry.users.remove(user);
            }
        }
        let is_unneeded = |_: &ClusterId, entry: &mut Entry| !entry.is_discovered && entry.users.is_empty();
        let unneeded: Vec<(ClusterId, Entry)> = clusters.extract_if(.., is_unneeded).collect();
        for (id, entry) in unneeded {
            self.leave(&id, entry, "no deployment names it");
        }
    }

    /// A cluster, if it is known.
    pub(crate) fn member(&self, id: &ClusterId) -> Option<Arc<Member>> {
        lock(&self.clusters).get(id).map(|entry| entry.member.clone())
    }

    /// Access to the releases of a cluster, while it is engaged.
    pub(crate) fn site(&self, id: &ClusterId) -> Option<Arc<Site>> {
        let engaged = lock(&self.clusters).get(id)?.engaged.clone();
        lock(&engaged).clone()
    }

    /// Makes the next pass over every object on every cluster a full one.
    pub(crate) fn look_again(&self) {
        let clusters = lock(&self.clusters);
        let sites: Vec<Arc<Site>> = clusters
            .values()
            .filter_map(|entry| lock(&entry.engaged).clone())
            .collect();
        drop(clusters);
        for site in sites {
            site.memories.unsettle();
            for key in site.memories.keys() {
                site.queue.add(key, Priority::Low);
            }
        }
    }

    /// The clusters whose Secrets were found by label.
    pub(crate) fn discovered_ids(&self) -> Vec<ClusterId> {
        let clusters = lock(&self.clusters);
        let discovered = clusters.iter().filter(|(_, entry)| entry.is_discovered);
        discovered.map(|(id, _)| id.clone()).collect()
    }

    /// Ends all of them; passes in flight have their grace period.
    pub(crate) async fn end(&self) {
        self.over.cancel();
        let entries = std::mem::take(&mut *lock(&self.clusters));
        for entry in entries.values() {
            entry.running.until.cancel();
        }
        for entry in entries.into_values() {
            entry.running.end().await;
        }
        let ending = std::mem::take(&mut *lock(&self.ending));
        for task in ending.into_values() {
            ended(Some(task)).await;
        }
    }

    /// True if a cluster is served because its Secret was found by label; such Secrets are watched.
    pub(crate) fn is_discovered(&self, id: &ClusterId) -> bool {
        lock(&self.clusters)
            .get(id)
            .is_some_and(|entry| entry.is_discovered)
    }

    /// Serves a cluster for a deployment, or because its Secret was found.
    fn keep(&self, id: &ClusterId, source: Source, user: Option<&Key>) {
        let digest = source.digest();
        let mut clusters = lock(&self.clusters);
        let former = clusters.remove(id);
        let is_discovered = user.is_none() || former.as_ref().is_some_and(|former| former.is_discovered);
        let has_tenants = is_discovered && self.ctx.mode.has_tenants();
        let mut entry = match former {
            Some(entry) if entry.digest == digest && entry.member.has_tenants == has_tenants => {
                if let Source::Kubeconfig { annotations, .. } = source {
                    self.note(&entry.member, annotations);
                }
                entry
            }
            former => self.begin(id, source, former, has_tenants),
        };
        entry.is_discovered = is_discovered;
        entry.users.extend(user.cloned());
        clusters.insert(id.clone(), entry);
    }

    /// Stores the annotations of a Secret. If they change which namespaces may use it, the deployments concerned are
    /// routed again.
    fn note(&self, member: &Arc<Member>, annotations: BTreeMap<String, String>) {
        let mut known = lock(&member.annotations);
        let is_other = known.get(ALLOW_FROM_NAMESPACES) != annotations.get(ALLOW_FROM_NAMESPACES);
        if known.contains_key(CLUSTER_STATE) && !annotations.contains_key(CLUSTER_STATE) {
            // The user has removed the annotation, so the list of what was left behind starts again.
            lock(&member.standing).left_behind.clear();
            let (member, ctx) = (member.clone(), self.ctx.clone());
            tokio::spawn(async move {
                let standing = member.standing();
                let news = "the list of what was left behind starts again";
                member.tell(&standing, news, &ctx).await;
            });
        }
        *known = annotations;
        if is_other {
            // The receiver is gone once the process ends.
            let _ = self.ctx.news.send(member.id.clone());
        }
    }

    /// Ends a cluster. Its releases stay as they are.
    fn leave(&self, id: &ClusterId, entry: Entry, why: &'static str) {
        let (ctx, over) = (self.ctx.clone(), self.over.clone());
        let mut ending = lock(&self.ending);
        ending.retain(|_, task| !task.is_finished());
        let before = ending.remove(id);
        let task = tokio::spawn(async move {
            ended(before).await;
            entry.running.end().await;
            let standing = entry.member.stand(ClusterState::Disengaged, why, &ctx);
            over.run_until_cancelled(standing).await;
            ctx.metrics.forget(&entry.member.name);
            ctx.metrics.state(&entry.member.name, None);
        });
        ending.insert(id.clone(), task);
    }

    /// Serves a cluster from now on; what was served under that id ends first.
    fn begin(&self, id: &ClusterId, source: Source, former: Option<Entry>, has_tenants: bool) -> Entry {
        let name = if id.namespace == self.ctx.discovery_namespace {
            id.name.clone()
        } else {
            format!("{}.{}", id.namespace, id.name)
        };
        let annotations = match &source {
            Source::Kubeconfig { annotations, .. } => annotations.clone(),
            Source::Home => BTreeMap::new(),
        };
        let known = former.as_ref().map(|former| former.member.standing());
        let left = known.map_or_else(|| state::left_behind(&annotations), |known| known.left_behind);
        let standing = Standing::new(ClusterState::Discovered, "", Timestamp::now()).leaving(left);
        let member = Arc::new(Member {
            id: id.clone(),
            name,
            has_tenants,
            standing: Mutex::new(standing),
            told_at: Mutex::new(Instant::now()),
            is_untold: AtomicBool::new(false),
            annotations: Mutex::new(annotations),
        });
        let digest = source.digest();
        let (is_discovered, users, former) = match former {
            Some(former) => (former.is_discovered, former.users, Some(former.running)),
            None => (false, BTreeSet::new(), None),
        };
        let until = CancellationToken::new();
        let engaged = Engaged::default();
        let serving = engagement::run(
            member.clone(),
            engaged.clone(),
            source,
            self.ctx.clone(),
            until.clone(),
        );
        let ending = lock(&self.ending).remove(id);
        let (ctx, name) = (self.ctx.clone(), member.name.clone());
        let task = tokio::spawn(async move {
            if let Some(former) = former {
                former.end().await;
            }
            ended(ending).await;
            ctx.metrics.state(&name, Some(ClusterState::Discovered));
            serving.await;
        });
        Entry {
            member,
            engaged,
            digest,
            is_discovered,
            users,
            running: Running { until, task },
        }
    }
}

/// Waits until a task has ended.
async fn ended(task: Option<JoinHandle<()>>) {
    if let Some(task) = task
        && let Err(error) = task.await
    {
        tracing::error!(%error, "a cluster's task failed");
    }
}
