//! The clusters that are served: each has a Secret with its kubeconfig, and is engaged and ended independently.

mod engagement;
mod secrets;
mod state;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::mesh::annotations::CLUSTER_STATE;
use api::mesh::events;
use cluster::ObjectId;
pub(crate) use cluster::kubeconfig::Limits;
use helm::origin::ALLOW_FROM_NAMESPACES;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use runtime::events::{Event, Severity};
use runtime::queue::Priority;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use secrets::{follow, source};
pub(crate) use state::{ClusterState, Standing};

use crate::context::{Context, Shared};
use crate::engine::{FIELD_MANAGER, Site};
use crate::key::Key;
use crate::message::{chain, told};

/// The name under which the watch cluster itself is served.
pub(crate) const SELF: &str = "self-cluster";

/// How often a new message about an unchanged state is published.
const SAME_STATE_AGAIN: Duration = Duration::from_mins(1);

/// How long reporting a state may take: the watch cluster may be the one that does not answer.
const TOLD_WITHIN: Duration = Duration::from_secs(5);

/// The longest entry about a release that was left behind: three names with words between them.
const LONGEST_ENTRY: usize = 500;

/// The id of a cluster: the Secret with its kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterId {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for ClusterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How to connect to a cluster.
#[derive(Clone)]
pub(crate) enum Source {
    /// With this process's own client: it is the watch cluster.
    Home,
    /// With a kubeconfig, whose author may be malicious; if it is empty, the cluster cannot be reached.
    Kubeconfig {
        text: Arc<[u8]>,
        /// Annotations of its Secret, which say whether its token is renewed.
        annotations: BTreeMap<String, String>,
    },
}

impl Source {
    /// A digest that is the same for sources of the same connection.
    fn digest(&self) -> [u8; 32] {
        match self {
            Self::Home => [0; 32],
            Self::Kubeconfig { text, .. } => Sha256::digest(text).into(),
        }
    }
}

/// A known cluster.
pub(crate) struct Member {
    pub(crate) id: ClusterId,
    /// Its name in the names of releases, conditions and metrics.
    pub(crate) name: String,
    /// True if tenants are reconciled there. They are not if only a deployment names the kubeconfig: its author decides
    /// about that deployment only.
    has_tenants: bool,
    site: Mutex<Option<Arc<Site>>>,
    standing: Mutex<Standing>,
    /// When the state was last reported.
    told_at: Mutex<Instant>,
    /// True if the state could not be reported, so that the Secret shows an earlier one.
    is_untold: AtomicBool,
    annotations: Mutex<BTreeMap<String, String>>,
}

impl Member {
    /// Access to its releases, while it is engaged.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        lock(&self.site).clone()
    }

    pub(crate) fn standing(&self) -> Standing {
        lock(&self.standing).clone()
    }

    /// Sets the state of the cluster, and reports it if it is new. A server may give ever different reasons for not
    /// answering: new reasons for the same state are reported only once in a while.
    async fn stand(&self, state: ClusterState, message: &str, ctx: &Context) {
        let Some((next, is_other)) = self.note(state, message) else {
            return self.tell_again(ctx).await;
        };
        tracing::info!(cluster = self.name, state = state.as_str(), message, "cluster");
        if is_other {
            ctx.metrics.state(&self.name, Some(state));
            // The receiver is gone once the process ends.
            let _ = ctx.news.send(self.id.clone());
        }
        // The other states last only for a moment.
        if matches!(
            state,
            ClusterState::Engaged | ClusterState::Unreachable | ClusterState::Disengaged
        ) {
            self.tell(&next, message, ctx).await;
        }
    }

    /// The state to report, and whether it differs from the previous one; none if there is nothing new.
    fn note(&self, state: ClusterState, message: &str) -> Option<(Standing, bool)> {
        let mut standing = lock(&self.standing);
        let is_other = standing.state != state;
        if !is_other && lock(&self.told_at).elapsed() < SAME_STATE_AGAIN {
            return None;
        }
        let next = standing.seen(state, message, Timestamp::now())?;
        *standing = next.clone();
        *lock(&self.told_at) = Instant::now();
        Some((next, is_other))
    }

    /// Reports on the Secret, once, what is wrong with a cluster that is nevertheless served.
    async fn complain(&self, why: &str, ctx: &Context) {
        let standing = {
            let mut standing = lock(&self.standing);
            if standing.message == why {
                return;
            }
            why.clone_into(&mut standing.message);
            standing.clone()
        };
        tracing::warn!(cluster = self.name, why, "cluster");
        self.tell(&standing, why, ctx).await;
    }

    /// Records on the Secret what an object left behind when it was removed without its release.
    pub(crate) async fn left_behind(&self, what: &str, ctx: &Context) {
        let what = told(&what.chars().take(LONGEST_ENTRY).collect::<String>());
        let standing = {
            let mut standing = lock(&self.standing);
            standing.leave(&what);
            standing.clone()
        };
        self.tell(&standing, &format!("left behind: {what}"), ctx).await;
    }

    /// Reports again what could not be reported.
    async fn tell_again(&self, ctx: &Context) {
        if self.is_untold.load(Ordering::Relaxed) {
            let standing = self.standing();
            self.tell(&standing, &standing.message, ctx).await;
        }
    }

    /// Writes it to the Secret, where users see it. It gives up after a time limit, because the caller serves the
    /// cluster and waits for this.
    async fn tell(&self, standing: &Standing, news: &str, ctx: &Context) {
        let secret = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            namespace: Some(self.id.namespace.clone()),
            name: Some(self.id.name.clone()),
            ..ObjectReference::default()
        };
        let note = format!("{}: {news}", standing.state.as_str());
        let event = Event {
            severity: match standing.state {
                ClusterState::Unreachable => Severity::Warning,
                ClusterState::Discovered
                | ClusterState::Connecting
                | ClusterState::Engaged
                | ClusterState::Disengaged => Severity::Normal,
            },
            reason: events::CLUSTER_STATE,
            action: standing.state.as_str(),
            note: &note,
        };
        let noting = async {
            let id = ObjectId::of::<Secret>(Some(&self.id.namespace), &self.id.name)?;
            let text = serde_json::to_string(standing).unwrap_or_default();
            let annotation = [(CLUSTER_STATE, Some(text.as_str()))];
            ctx.home.annotate(&id, annotation, FIELD_MANAGER).await
        };
        // If this future is dropped at the time limit, the state counts as not reported.
        self.is_untold.store(true, Ordering::Relaxed);
        // Boxed, because otherwise every future that awaits this would be as large.
        let telling = Box::pin(async {
            let noted = noting.await;
            ctx.recorder.publish(&secret, &event).await;
            noted
        });
        let why = match tokio::time::timeout(TOLD_WITHIN, telling).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) if error.is_not_found() => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(format!("no answer within {} s", TOLD_WITHIN.as_secs())),
        };
        self.is_untold.store(why.is_some(), Ordering::Relaxed);
        if let Some(error) = why {
            tracing::warn!(
                cluster = self.name,
                error,
                "could not note the state of a cluster"
            );
        }
    }
}

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
        let source = if secrets::is_self(id, &self.ctx) {
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

    /// Makes the next pass over every object on every cluster a full one.
    pub(crate) fn look_again(&self) {
        let clusters = lock(&self.clusters);
        let sites: Vec<Arc<Site>> = clusters
            .values()
            .filter_map(|entry| entry.member.site())
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
            site: Mutex::default(),
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
        let serving = engagement::run(member.clone(), source, self.ctx.clone(), until.clone());
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
