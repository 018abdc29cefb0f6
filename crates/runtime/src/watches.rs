//! Watches on the objects of releases, so that an edit is seen at once and checking unchanged objects costs no request:
//! metadata only, one watch per kind and namespace, selected by label.
//!
//! Secrets are never watched: permission to watch some of them is permission to read all of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::{Cluster, Item, ObjectId, ResourceId};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, ResourceExt as _};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a watch reports about an object: its metadata, as far as it can be read.
pub type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// What a watch knows about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// Its kind is not watched there, or the first list has not arrived yet.
    Unknown,
    /// It does not exist, or it lost its labels. With the resource version of the watch's last event, if there was one
    /// since the list.
    Absent(Option<String>),
    /// It exists, at this resource version.
    At(String),
}

/// The watches on the objects of one API server, for owners identified by `K`.
pub struct Watches<K> {
    cluster: Cluster,
    /// Selects the objects of all releases.
    selector: String,
    reading: Reading<K>,
    /// How many scopes may be watched at once; others are `Sight::Unknown`.
    most: usize,
    scopes: Mutex<HashMap<Scope, Watch<K>>>,
}

/// What is remembered of an object, and who is notified when it changes.
#[derive(Clone)]
struct Reading<K> {
    remembered: Remembered<K>,
    told: Arc<dyn Fn(K) + Send + Sync>,
    failed: Arc<dyn Fn() + Send + Sync>,
}

/// What is remembered of an object.
#[derive(Clone)]
struct Remembered<K> {
    /// Finds its owner.
    owner: fn(&Metadata) -> Option<K>,
    /// The label whose value is remembered.
    label: Option<&'static str>,
}

/// The most objects of one kind and namespace that are remembered; further ones are `Sight::Unknown`.
const MOST_OBJECTS: usize = 50_000;

/// For how long a failure of a watch counts: longer than the longest pause before it is started again, so that one that
/// fails each time is not believed in between.
const FAILED_LATELY: Duration = Duration::from_mins(1);

/// Page size of lists: only metadata is listed, but labels and annotations have no size limit.
const PAGE: u32 = 50;

/// What one watch covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Scope {
    resource: ResourceId,
    /// None for cluster-scoped kinds.
    namespace: Option<String>,
}

struct Watch<K> {
    state: Arc<Mutex<WatchState<K>>>,
    _ends_with_this: DropGuard,
}

struct WatchState<K> {
    /// The owners that have objects there. When the last one leaves, the watch ends, because the permission to watch is
    /// removed with that owner.
    users: HashSet<K>,
    /// True once the first list is complete.
    complete: bool,
    /// True if there were more objects than are remembered.
    has_more: bool,
    objects: HashMap<Name, CachedObject<K>>,
    listing: HashMap<Name, CachedObject<K>>,
    /// The resource version of the last event since the list; `None` before the first.
    last_event: Option<String>,
    /// When the watch last failed.
    failed: Option<Instant>,
}

impl<K> Default for WatchState<K> {
    fn default() -> Self {
        Self {
            users: HashSet::new(),
            complete: false,
            has_more: false,
            objects: HashMap::new(),
            listing: HashMap::new(),
            last_event: None,
            failed: None,
        }
    }
}

type Name = String;

/// An object as it was last seen.
struct CachedObject<K> {
    version: String,
    /// The owner that its metadata names.
    owner: Option<K>,
    /// The value of the label that is remembered.
    label: Option<Box<str>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Watches<K> {
    /// Watches objects with these labels. When an object changes, `told` is called with its owner, which `owner` finds.
    pub fn new(
        cluster: Cluster,
        selector: String,
        owner: fn(&Metadata) -> Option<K>,
        told: impl Fn(K) + Send + Sync + 'static,
    ) -> Self {
        Self {
            cluster,
            selector,
            reading: Reading {
                remembered: Remembered { owner, label: None },
                told: Arc::new(told),
                failed: Arc::new(|| {}),
            },
            most: usize::MAX,
            scopes: Mutex::default(),
        }
    }

    /// The same, calling `failed` when a watch fails.
    #[must_use]
    pub fn when_one_fails(mut self, failed: impl Fn() + Send + Sync + 'static) -> Self {
        self.reading.failed = Arc::new(failed);
        self
    }

    /// The same, remembering the value of this label for [`Watches::version_with_label`].
    #[must_use]
    pub fn remembering(mut self, label: &'static str) -> Self {
        self.reading.remembered.label = Some(label);
        self
    }

    /// The same with at most this many watches. Each is a connection.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Starts the watches that this owner's objects need, and ends those that no owner needs any more.
    pub fn follow<'a>(&self, key: &K, objects: impl Iterator<Item = &'a ObjectId>) {
        let wanted: BTreeSet<Scope> = objects
            .filter(|id| !id.resource().is_secret())
            .map(Scope::of)
            .collect();
        let mut scopes = self.lock();
        scopes.retain(|scope, watch| {
            let mut state = lock(&watch.state);
            if !wanted.contains(scope) {
                state.users.remove(key);
            }
            !state.users.is_empty()
        });
        for scope in wanted {
            if scopes.len() >= self.most && !scopes.contains_key(&scope) {
                continue;
            }
            let watch = scopes.entry(scope).or_insert_with_key(|scope| self.begin(scope));
            lock(&watch.state).users.insert(key.clone());
        }
    }

    /// The owner is gone.
    pub fn leave(&self, key: &K) {
        self.follow(key, std::iter::empty());
    }

    /// What is known about an object.
    pub fn sight(&self, id: &ObjectId) -> Sight {
        let scopes = self.lock();
        let Some(watch) = scopes.get(&Scope::of(id)) else {
            return Sight::Unknown;
        };
        let state = lock(&watch.state);
        match state.objects.get(id.name()) {
            Some(cached) => Sight::At(cached.version.clone()),
            None if state.complete && !state.has_more => Sight::Absent(state.last_event.clone()),
            None => Sight::Unknown,
        }
    }

    /// True if the object has this resource version according to a watch that has not failed lately.
    pub fn confirms(&self, id: &ObjectId, version: &str) -> bool {
        self.believed(id, |seen| (seen.version == version).then_some(()))
            .is_some()
    }

    /// The resource version at which the object was last seen, if the remembered label ([`Watches::remembering`]) had
    /// this value then, and the watch has not failed lately.
    pub fn version_with_label(&self, id: &ObjectId, value: &str) -> Option<String> {
        self.believed(id, |seen| {
            (seen.label.as_deref() == Some(value)).then(|| seen.version.clone())
        })
    }

    /// Reads what a watch that has not failed lately saw of the object.
    fn believed<T>(&self, id: &ObjectId, read: impl FnOnce(&CachedObject<K>) -> Option<T>) -> Option<T> {
        let scopes = self.lock();
        let state = lock(&scopes.get(&Scope::of(id))?.state);
        let has_failed = state
            .failed
            .is_some_and(|failed| failed.elapsed() < FAILED_LATELY);
        let seen = state.objects.get(id.name());
        seen.filter(|seen| !has_failed && !seen.version.is_empty())
            .and_then(read)
    }

    fn begin(&self, scope: &Scope) -> Watch<K> {
        let state = Arc::new(Mutex::new(WatchState::default()));
        let ends = CancellationToken::new();
        let api: Api<Metadata> = scope
            .resource
            .api(self.cluster.client(), scope.namespace.as_deref());
        let events = watch(
            api,
            watcher::Config::default().labels(&self.selector).page_size(PAGE),
        )
        .default_backoff();
        let (theirs, reading, scope, until) =
            (state.clone(), self.reading.clone(), scope.clone(), ends.clone());
        let (failed, failing) = (reading.failed.clone(), state.clone());
        tokio::spawn(async move {
            let events = events
                .inspect_err(|error| {
                    tracing::debug!(
                        place = ?scope,
                        error = error as &dyn std::error::Error,
                        "watch of objects"
                    );
                    lock(&failing).failed = Some(Instant::now());
                    failed();
                })
                .filter_map(|event| async { event.ok() })
                .take_until(until.cancelled());
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                let mut state = lock(&theirs);
                let mut moved = state.take(event, &reading.remembered);
                // Anyone who may write labels can name any owner.
                moved.retain(|key| state.users.contains(key));
                drop(state);
                for key in moved {
                    (reading.told)(key);
                }
            }
        });
        Watch {
            state,
            _ends_with_this: ends.drop_guard(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Scope, Watch<K>>> {
        lock(&self.scopes)
    }
}

impl Scope {
    fn of(id: &ObjectId) -> Self {
        Self {
            resource: id.resource().clone(),
            namespace: id.namespace().map(str::to_owned),
        }
    }
}

impl<K: Hash + Eq + Clone> WatchState<K> {
    /// Processes an event of the watch, and returns the owners whose objects changed.
    fn take(&mut self, event: Event<Metadata>, remembered: &Remembered<K>) -> Vec<K> {
        match event {
            Event::Init => {
                self.listing.clear();
                self.has_more = false;
                self.last_event = None;
                Vec::new()
            }
            Event::InitApply(object) => {
                if self.listing.len() < MOST_OBJECTS {
                    self.listing
                        .insert(object.name_any(), CachedObject::of(&object, remembered));
                } else {
                    self.has_more = true;
                }
                Vec::new()
            }
            Event::InitDone => self.relisted(),
            Event::Apply(object) => {
                self.last_event = object.resource_version();
                let now = CachedObject::of(&object, remembered);
                let version = now.version.clone();
                let owner = now.owner.clone();
                if self.objects.len() >= MOST_OBJECTS && !self.objects.contains_key(&object.name_any()) {
                    self.has_more = true;
                    return owner.into_iter().collect();
                }
                let before = self.objects.insert(object.name_any(), now);
                let moved = before.is_none_or(|before| before.version != version);
                owner.filter(|_| moved).into_iter().collect()
            }
            Event::Delete(object) => {
                self.last_event = object.resource_version();
                let before = self.objects.remove(&object.name_any());
                before.and_then(|before| before.owner).into_iter().collect()
            }
        }
    }

    /// Replaces what was known by the new list. Everything in the first list is reported as changed: some of it may
    /// have changed after a pass read it and before the watch began.
    fn relisted(&mut self) -> Vec<K> {
        let before = std::mem::replace(&mut self.objects, std::mem::take(&mut self.listing));
        self.complete = true;
        let moved = |(name, cached): &(&Name, &CachedObject<K>)| {
            let other = self.objects.get(*name);
            other.is_none_or(|other| other.version != cached.version)
        };
        let mut owners: Vec<K> = before
            .iter()
            .filter(moved)
            .filter_map(|(_, cached)| cached.owner.clone())
            .collect();
        let new = self
            .objects
            .iter()
            .filter(|(name, _)| !before.contains_key(*name));
        owners.extend(new.filter_map(|(_, cached)| cached.owner.clone()));
        owners
    }
}

impl<K> CachedObject<K> {
    fn of(object: &Metadata, remembered: &Remembered<K>) -> Self {
        let value = remembered.label.and_then(|label| object.labels().get(label));
        Self {
            version: object.resource_version().unwrap_or_default(),
            owner: (remembered.owner)(object),
            label: value.map(|value| value.as_str().into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str) -> Metadata {
        serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {
                "name": "web", "namespace": "team", "resourceVersion": version,
                "labels": {"owner": "team/shop"},
            },
        }))
        .unwrap()
    }

    fn shop() -> Vec<String> {
        vec!["team/shop".to_owned()]
    }

    fn owner(object: &Metadata) -> Option<String> {
        object.labels().get("owner").cloned()
    }

    const REMEMBERED: Remembered<String> = Remembered {
        owner,
        label: Some("owner"),
    };

    #[tokio::test]
    async fn watches_are_limited_and_one_that_ends_makes_room() {
        use k8s_openapi::api::core::v1::ConfigMap;
        let script = cluster::scripted::Script::new("nothing");
        let watches = Watches::new(script.cluster(), "owner".to_owned(), owner, |_| {}).at_most(2);
        let id = |namespace: &str| ObjectId::of::<ConfigMap>(Some(namespace), "web").unwrap();
        let is_watched = |namespace: &str| {
            let scopes = watches.lock();
            scopes.contains_key(&Scope::of(&id(namespace)))
        };
        watches.follow(&"one".to_owned(), [id("a"), id("b"), id("c")].iter());
        assert!(is_watched("a") && is_watched("b") && !is_watched("c"));
        watches.follow(&"other".to_owned(), [id("b"), id("c")].iter());
        assert!(!is_watched("c"));
        assert_eq!(watches.sight(&id("c")), Sight::Unknown);
        watches.leave(&"one".to_owned());
        watches.follow(&"other".to_owned(), [id("b"), id("c")].iter());
        assert!(!is_watched("a") && is_watched("b") && is_watched("c"));
    }

    #[tokio::test]
    async fn a_watch_confirms_the_version_that_it_has_seen_unless_it_fails() {
        use k8s_openapi::api::core::v1::ConfigMap;
        let script = cluster::scripted::Script::new("nothing");
        let watches = Watches::new(script.cluster(), "owner".to_owned(), owner, |_| {});
        let id = ObjectId::of::<ConfigMap>(Some("team"), "web").unwrap();
        assert!(!watches.confirms(&id, "1"), "it is not watched");
        watches.follow(&"team/shop".to_owned(), std::iter::once(&id));
        let state = watches.lock()[&Scope::of(&id)].state.clone();
        assert!(!watches.confirms(&id, "1"), "it is not listed yet");
        for event in [Event::Init, Event::InitApply(object("1")), Event::InitDone] {
            lock(&state).take(event, &REMEMBERED);
        }
        lock(&state).failed = None;
        assert!(watches.confirms(&id, "1"));
        assert!(!watches.confirms(&id, "2"));
        let labelled = |value| watches.version_with_label(&id, value);
        assert_eq!(labelled("team/shop").as_deref(), Some("1"));
        assert_eq!(labelled("team/other"), None);
        let now = Instant::now();
        for (failed, is_believed) in [(now, false), (now.checked_sub(FAILED_LATELY).unwrap(), true)] {
            lock(&state).failed = Some(failed);
            assert_eq!(watches.confirms(&id, "1"), is_believed);
            assert_eq!(labelled("team/shop").is_some(), is_believed);
        }
    }

    #[test]
    fn only_changes_are_reported() {
        let mut state = WatchState::default();
        assert!(state.take(Event::Init, &REMEMBERED).is_empty());
        assert!(state.take(Event::InitApply(object("1")), &REMEMBERED).is_empty());
        assert!(!state.complete);
        assert_eq!(state.take(Event::InitDone, &REMEMBERED), shop());
        assert!(state.complete);
        assert!(state.take(Event::Apply(object("1")), &REMEMBERED).is_empty());
        assert_eq!(state.take(Event::Apply(object("2")), &REMEMBERED), shop());
        assert_eq!(state.take(Event::Delete(object("3")), &REMEMBERED), shop());
        assert!(state.objects.is_empty());
    }

    #[test]
    fn only_events_tell_how_far_a_watch_has_come() {
        let mut state = WatchState::default();
        for event in [Event::Init, Event::InitApply(object("1")), Event::InitDone] {
            state.take(event, &REMEMBERED);
            assert_eq!(state.last_event, None);
        }
        state.take(Event::Apply(object("2")), &REMEMBERED);
        assert_eq!(state.last_event.as_deref(), Some("2"));
        state.take(Event::Delete(object("3")), &REMEMBERED);
        assert_eq!(state.last_event.as_deref(), Some("3"));
        // Something may have been deleted between the last event and a new list.
        state.take(Event::Init, &REMEMBERED);
        assert_eq!(state.last_event, None);
    }

    #[test]
    fn a_second_list_reports_changes_and_deletions_since_the_first() {
        let mut state = WatchState::default();
        let mut list = |objects: &[&str]| {
            let mut news = state.take(Event::Init, &REMEMBERED);
            for version in objects {
                news.extend(state.take(Event::InitApply(object(version)), &REMEMBERED));
            }
            news.extend(state.take(Event::InitDone, &REMEMBERED));
            news
        };
        assert_eq!(list(&["1"]), shop());
        assert!(list(&["1"]).is_empty());
        assert_eq!(list(&["2"]), shop());
        assert_eq!(list(&[]), shop());
        assert_eq!(list(&["2"]), shop());
    }
}
