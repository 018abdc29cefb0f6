//! Watches on the objects that charts looked up. A composition is reconciled as soon as an answer may have changed, and
//! until then its lookups cost no requests. Only metadata is watched, with one watch per object, or per kind and
//! namespace for lookups of lists.
//!
//! Metadata tells that an object changed, not whether the answer to the lookup did: the next render finds out. Secrets
//! are never watched.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{Cluster, Item, ResourceId};
use futures::{StreamExt as _, TryStreamExt as _};
use helm_client::rendering::Lookup;
use kube::Api;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use runtime::queue::{Priority, Queue};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::compositions::Key;

/// How many objects are listed per page. Only metadata is listed, but labels have no size limit.
const PAGE: u32 = 50;

/// The most watches in this process. Each is a connection.
const WATCHES: usize = 512;

/// The most watches for the compositions of one namespace.
const WATCHES_OF_NAMESPACE: usize = 128;

/// The most watches for one composition.
const WATCHES_OF_COMPOSITION: usize = 64;

/// The most memory that all watches take, in bytes: connection buffers and TLS state.
#[cfg(test)]
pub(crate) const MEMORY: usize = WATCHES * (64 << 10);

/// The shortest interval at which changes of looked-up objects requeue the same composition.
const PACE: Duration = Duration::from_secs(2);

/// The interval is also at least this, times the number of compositions that looked up the same object. So an object
/// that changes all the time, like a Node, causes at most ten reconciliations per second.
const PACE_OF_MANY: Duration = Duration::from_millis(100);

/// How many times in a row a watch may be refused before it pauses: roles reach the API server's cache a moment after
/// they are stored.
const REFUSALS: u32 = 5;

/// How long a refused watch then pauses.
const FORBIDDEN_PAUSE: Duration = Duration::from_mins(3);

/// A logical timestamp in the order of events seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// This process's watches on looked-up objects.
pub(crate) struct Lookups(Arc<Shared>);

struct Shared {
    cluster: Cluster,
    queue: Arc<Queue<Key>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Moment,
    watches: HashMap<Scope, Watch>,
    followers: BTreeMap<Key, Follower>,
}

/// What one watch covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Scope {
    resource: ResourceId,
    /// None for all namespaces, and for cluster-scoped kinds.
    namespace: Option<String>,
    /// None for all objects in that scope.
    name: Option<String>,
}

#[derive(Default)]
struct Watch {
    followers: HashSet<Key>,
    /// When something last changed; none until the first list is complete.
    moved: Option<Moment>,
    ends: Option<DropGuard>,
}

#[derive(Default)]
struct Follower {
    scopes: BTreeSet<Scope>,
    /// When it was last put in the queue.
    woken: Option<Instant>,
    /// True while a timer is going to put it in the queue.
    is_due: bool,
}

/// Which watches a composition's lookups need, and whether they are current.
#[derive(Debug, Default, PartialEq, Eq)]
struct Followed {
    /// Scopes that were not watched before.
    begin: Vec<Scope>,
    /// True when all are watched.
    all: bool,
    /// True when something changed since they were answered.
    is_news: bool,
}

impl Lookups {
    /// Adds a composition to `queue` when something it looked up changes.
    pub(crate) fn new(cluster: Cluster, queue: Arc<Queue<Key>>) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Shared {
            cluster,
            queue,
            state,
        }))
    }

    /// The current moment. Take it before reading answers: they may miss events that are seen after it.
    pub(crate) fn now(&self) -> Moment {
        self.0.lock().now
    }

    /// Watches what a composition looked up (with answers read after `since`), and drops its other watches. Returns
    /// true when every lookup is watched; otherwise the caller has to compare the rest itself. Secrets, and anything
    /// that may not be read, are not watched.
    pub(crate) async fn follow(&self, key: &Key, lookups: &[Lookup], since: Moment) -> bool {
        let served = if lookups.is_empty() {
            None
        } else {
            self.0.cluster.discovery().served(Duration::MAX).await.ok()
        };
        let is_watchable = |lookup: &&Lookup| {
            let ResourceId {
                group, version, kind, ..
            } = &lookup.resource;
            let kind = GroupVersionKind::gvk(group, version, kind);
            let known = served.as_ref().and_then(|served| served.kind(&kind));
            !lookup.denied
                && !lookup.resource.is_secret()
                && known.is_some_and(|known| known.verbs.iter().any(|verb| verb == "watch"))
        };
        let wanted: Vec<Scope> = lookups.iter().filter(is_watchable).map(Scope::of).collect();
        let all = wanted.len() == lookups.len();
        let mut state = self.0.lock();
        let followed = state.follow(key, wanted.into_iter().collect(), since);
        for scope in followed.begin {
            let ends = self.0.begin(scope.clone());
            if let Some(watch) = state.watches.get_mut(&scope) {
                watch.ends = Some(ends);
            }
        }
        if followed.is_news {
            self.0.wake(&mut state, key, PACE);
        }
        all && followed.all
    }

    /// True while nothing that a composition looked up has changed since then.
    pub(crate) fn is_current(&self, key: &Key, since: Moment) -> bool {
        self.0.lock().is_current(key, since)
    }

    /// Drops the watches of a composition that is gone, belongs to another replica, or no longer looks anything up.
    pub(crate) fn leave(&self, key: &Key) {
        self.0.lock().leave(key);
    }
}

impl Scope {
    fn of(lookup: &Lookup) -> Self {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            resource: lookup.resource.clone(),
            namespace: some(&lookup.namespace),
            name: some(&lookup.name),
        }
    }
}

impl State {
    fn follow(&mut self, key: &Key, wanted: BTreeSet<Scope>, since: Moment) -> Followed {
        let mut follower = self.followers.remove(key).unwrap_or_default();
        for scope in follower.scopes.difference(&wanted) {
            self.leave_scope(key, scope);
        }
        let mut outcome = Followed {
            all: true,
            ..Followed::default()
        };
        let mut scopes = BTreeSet::new();
        for scope in wanted {
            if !self.watches.contains_key(&scope) {
                if !self.has_room(&key.namespace, &scopes) {
                    outcome.all = false;
                    continue;
                }
                outcome.begin.push(scope.clone());
            }
            let watch = self.watches.entry(scope.clone()).or_default();
            watch.followers.insert(key.clone());
            outcome.is_news |= watch.moved.is_some_and(|moved| moved > since);
            scopes.insert(scope);
        }
        if !scopes.is_empty() {
            follower.scopes = scopes;
            self.followers.insert(key.clone(), follower);
        }
        outcome
    }

    /// True when one more watch may start for a composition of `namespace` that already has the watches `own`.
    fn has_room(&self, namespace: &str, own: &BTreeSet<Scope>) -> bool {
        let first = Key {
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        let others = self.followers.range(first..);
        let others = others.take_while(|(key, _)| key.namespace == namespace);
        let others = others.flat_map(|(_, follower)| &follower.scopes);
        let of_namespace: BTreeSet<&Scope> = others.chain(own).collect();
        self.watches.len() < WATCHES
            && of_namespace.len() < WATCHES_OF_NAMESPACE
            && own.len() < WATCHES_OF_COMPOSITION
    }

    fn leave(&mut self, key: &Key) {
        let follower = self.followers.remove(key).unwrap_or_default();
        for scope in &follower.scopes {
            self.leave_scope(key, scope);
        }
    }

    fn leave_scope(&mut self, key: &Key, scope: &Scope) {
        let Some(watch) = self.watches.get_mut(scope) else {
            return;
        };
        watch.followers.remove(key);
        if watch.followers.is_empty() {
            self.watches.remove(scope);
        }
    }

    fn is_current(&self, key: &Key, since: Moment) -> bool {
        let is_unmoved = |scope: &Scope| {
            let moved = self.watches.get(scope).and_then(|watch| watch.moved);
            moved.is_some_and(|moved| moved <= since)
        };
        let follower = self.followers.get(key);
        follower.is_some_and(|follower| follower.scopes.iter().all(is_unmoved))
    }

    /// Records that something changed there, or that the first list is complete (objects may have changed between the
    /// answer and the start of the watch). Returns the compositions to requeue.
    fn moved(&mut self, scope: &Scope) -> Vec<Key> {
        let Some(watch) = self.watches.get_mut(scope) else {
            return Vec::new();
        };
        self.now.0 += 1;
        watch.moved = Some(self.now);
        watch.followers.iter().cloned().collect()
    }
}

impl Shared {
    fn begin(self: &Arc<Self>, scope: Scope) -> DropGuard {
        let ends = CancellationToken::new();
        let (shared, until) = (self.clone(), ends.clone());
        tokio::spawn(async move {
            until.run_until_cancelled(shared.watch(scope)).await;
        });
        ends.drop_guard()
    }

    async fn watch(self: Arc<Self>, scope: Scope) {
        let api: Api<Item<PartialObjectMeta<DynamicObject>>> = scope
            .resource
            .api(self.cluster.client(), scope.namespace.as_deref());
        let mut config = watcher::Config::default().page_size(PAGE);
        if let Some(name) = &scope.name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        let events = watch(api, config).default_backoff().inspect_err(|error| {
            tracing::debug!(
                place = ?scope,
                error = error as &dyn std::error::Error,
                "watch of a looked-up object failed"
            );
        });
        tokio::pin!(events);
        let mut refusals = 0_u32;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => {
                    refusals = 0;
                    self.moved(&scope);
                }
                Err(error) if is_forbidden(&error) && refusals >= REFUSALS => {
                    tokio::time::sleep(FORBIDDEN_PAUSE).await;
                }
                Err(error) => refusals += u32::from(is_forbidden(&error)),
            }
        }
    }

    fn moved(self: &Arc<Self>, scope: &Scope) {
        let mut state = self.lock();
        let told = state.moved(scope);
        let crowd = u32::try_from(told.len()).unwrap_or(u32::MAX);
        let pause = PACE.max(PACE_OF_MANY.saturating_mul(crowd));
        for key in told {
            self.wake(&mut state, &key, pause);
        }
    }

    /// Adds a composition to the queue, at the earliest `pause` after the last time.
    fn wake(self: &Arc<Self>, state: &mut State, key: &Key, pause: Duration) {
        let Some(follower) = state.followers.get_mut(key) else {
            return;
        };
        let now = Instant::now();
        let due = follower.woken.map_or(now, |last| last + pause);
        if due <= now {
            follower.woken = Some(now);
            self.queue.add(key.clone(), Priority::Normal);
        } else if !follower.is_due {
            follower.is_due = true;
            let (shared, key) = (self.clone(), key.clone());
            tokio::spawn(async move {
                tokio::time::sleep_until(due).await;
                let mut later = shared.lock();
                if let Some(follower) = later.followers.get_mut(&key) {
                    follower.is_due = false;
                    follower.woken = Some(Instant::now());
                    shared.queue.add(key, Priority::Normal);
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let refused = match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => {
            match source {
                kube::Error::Api(status) => status.code,
                _ => return false,
            }
        }
        watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    refused == 403
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use runtime::{Metrics, Telemetry};

    use super::*;
    use runtime::queue::Capacity;

    fn key(name: &str) -> Key {
        Key {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    fn map(name: &str) -> Scope {
        Scope {
            resource: ResourceId::of::<ConfigMap>(),
            namespace: Some("team".to_owned()),
            name: Some(name.to_owned()),
        }
    }

    fn nodes() -> Scope {
        Scope {
            resource: ResourceId::of::<Node>(),
            namespace: None,
            name: None,
        }
    }

    fn follow(state: &mut State, key: &Key, scopes: &[Scope]) -> Followed {
        let since = state.now;
        state.follow(key, scopes.iter().cloned().collect(), since)
    }

    #[test]
    fn an_answer_read_after_the_first_list_is_current_until_something_changes() {
        let mut state = State::default();
        let (web, other) = (key("web"), key("other"));
        let begun = state.now;
        assert_eq!(
            follow(&mut state, &web, &[map("a"), nodes()]).begin,
            [map("a"), nodes()]
        );
        assert!(!state.is_current(&web, begun), "nothing was listed yet");
        assert_eq!(state.moved(&map("a")), slice(&web));
        assert_eq!(state.moved(&nodes()), slice(&web));
        assert!(
            !state.is_current(&web, begun),
            "it may have changed before the watch began"
        );
        let seen = state.now;
        assert!(!follow(&mut state, &web, &[map("a"), nodes()]).is_news);
        assert!(state.is_current(&web, seen));
        // A composition that joins an existing watch is current at once.
        assert_eq!(follow(&mut state, &other, &[nodes()]).begin, []);
        assert!(state.is_current(&other, seen));
        state.moved(&map("a"));
        assert!(!state.is_current(&web, seen) && state.is_current(&other, seen));
        // A change between the answer and the watch is news.
        assert!(state.follow(&other, BTreeSet::from([map("a")]), seen).is_news);
        assert!(!state.is_current(&key("unknown"), state.now));
    }

    fn slice(key: &Key) -> Vec<Key> {
        vec![key.clone()]
    }

    #[test]
    fn a_watch_ends_when_its_last_follower_leaves() {
        let mut state = State::default();
        for name in ["web", "other"] {
            follow(&mut state, &key(name), &[map("a"), nodes()]);
        }
        follow(&mut state, &key("web"), &[nodes()]);
        assert_eq!(state.moved(&map("a")), slice(&key("other")));
        state.leave(&key("other"));
        assert!(!state.watches.contains_key(&map("a")) && state.watches.contains_key(&nodes()));
        follow(&mut state, &key("web"), &[]);
        assert!(state.watches.is_empty() && state.followers.is_empty());
    }

    #[test]
    fn watches_are_limited_by_composition_by_namespace_and_in_total() {
        let mut state = State::default();
        let many: Vec<Scope> = (0..WATCHES).map(|number| map(&number.to_string())).collect();
        let first = follow(&mut state, &key("a"), &many);
        assert_eq!((first.begin.len(), first.all), (WATCHES_OF_COMPOSITION, false));
        let (_, rest) = many.split_at(WATCHES_OF_COMPOSITION);
        let mut begun = WATCHES_OF_COMPOSITION;
        for (number, scopes) in rest.chunks(WATCHES_OF_COMPOSITION).enumerate() {
            begun += follow(&mut state, &key(&format!("b-{number}")), scopes)
                .begin
                .len();
        }
        assert_eq!(begun, WATCHES_OF_NAMESPACE);
        // Watches that exist already can be shared, and other namespaces have limits of their own.
        let shared = follow(&mut state, &key("c"), &many[..2]);
        assert_eq!((shared.begin.len(), shared.all), (0, true));
        let elsewhere = Key {
            namespace: "other".to_owned(),
            name: "web".to_owned(),
        };
        assert!(follow(&mut state, &elsewhere, &[nodes()]).all);
        for number in 0..WATCHES {
            let key = Key {
                namespace: format!("n-{number}"),
                name: "web".to_owned(),
            };
            follow(&mut state, &key, &[map(&format!("of-{number}"))]);
        }
        assert_eq!(state.watches.len(), WATCHES);
    }

    /// How many reconciliations of `followers` compositions an object causes in twenty seconds if it changes ten times
    /// a second.
    async fn looks(followers: usize) -> usize {
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "webs").unwrap();
        let queue = Arc::new(Queue::new(telemetry.queue(), Capacity::of(1)));
        let lookups = Lookups::new(Script::new("no request").cluster(), queue.clone());
        for number in 0..followers {
            follow(&mut lookups.0.lock(), &key(&number.to_string()), &[nodes()]);
        }
        let mut looks = 0;
        for _ in 0..200 {
            lookups.0.moved(&nodes());
            tokio::time::sleep(Duration::from_millis(100)).await;
            while let Some(key) = queue.take().now_or_never() {
                queue.done(&key);
                looks += 1;
            }
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_changes_all_the_time_requeues_compositions_at_a_limited_rate() {
        // One immediately, then one every two seconds.
        let alone = looks(1).await;
        assert!((10..=11).contains(&alone), "{alone}");
        // All hundred immediately, then each every ten seconds.
        let many = looks(100).await;
        assert!((200..=300).contains(&many), "{many}");
    }
}
