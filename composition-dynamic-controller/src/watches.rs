//! Watches on the objects of releases, so that an edit is seen at once and a look at what has not moved costs
//! nothing: metadata only, one watch for each kind and namespace, by label.
//!
//! Secrets are never watched: the right to watch some is the right to read all.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::labels;
use cluster::{Cluster, Item, ObjectId, ResourceId};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, ResourceExt as _};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::compositions::Key;
use crate::queue::{Priority, Queue};

type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// What a watch knows of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Its kind is not watched there, or the first list is still to come.
    Unknown,
    /// It is not there, or it lost its labels.
    Absent,
    /// It is there, in this resource version.
    At(String),
}

/// The watches of this process.
pub(crate) struct Watches {
    cluster: Cluster,
    /// Selects the objects of all releases of the type that is served.
    selector: String,
    queue: Arc<Queue<Key>>,
    places: Mutex<HashMap<Place, Watch>>,
}

/// How many objects are listed at once: nothing but their metadata, of which labels have no bound.
const PAGE: u32 = 50;

/// What one watch covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    resource: ResourceId,
    /// None for kinds outside of namespaces.
    namespace: Option<String>,
}

struct Watch {
    seen: Arc<Mutex<Seen>>,
    _ends_with_this: DropGuard,
}

#[derive(Default)]
struct Seen {
    /// The compositions that have objects there. The last one to leave ends the watch, as it takes the right
    /// to watch with it.
    users: HashSet<Key>,
    /// True once the first list is complete.
    complete: bool,
    objects: HashMap<Name, Known>,
    listing: HashMap<Name, Known>,
}

type Name = String;

/// An object as it was seen last.
struct Known {
    version: String,
    /// The composition that its labels name.
    owner: Option<Key>,
}

impl Watches {
    /// Watches objects of the type's releases; `queue` is told which composition one belongs to when it moves.
    pub(crate) fn new(cluster: Cluster, served: &ResourceId, queue: Arc<Queue<Key>>) -> Self {
        let selector = format!(
            "{}={},{}={}",
            labels::COMPOSITION_GROUP,
            served.group,
            labels::COMPOSITION_RESOURCE,
            served.plural
        );
        Self {
            cluster,
            selector,
            queue,
            places: Mutex::default(),
        }
    }

    /// Watches where a composition has these objects, and no longer where it has none.
    pub(crate) fn follow<'a>(&self, key: &Key, objects: impl Iterator<Item = &'a ObjectId>) {
        let wanted: BTreeSet<Place> = objects
            .filter(|id| !id.resource().is_secret())
            .map(Place::of)
            .collect();
        let mut places = self.lock();
        places.retain(|place, watch| {
            let mut seen = lock(&watch.seen);
            if !wanted.contains(place) {
                seen.users.remove(key);
            }
            !seen.users.is_empty()
        });
        for place in wanted {
            let watch = places.entry(place).or_insert_with_key(|place| self.begin(place));
            lock(&watch.seen).users.insert(key.clone());
        }
    }

    /// A composition is gone.
    pub(crate) fn leave(&self, key: &Key) {
        self.follow(key, std::iter::empty());
    }

    /// What is known of an object.
    pub(crate) fn sight(&self, id: &ObjectId) -> Sight {
        let places = self.lock();
        let Some(watch) = places.get(&Place::of(id)) else {
            return Sight::Unknown;
        };
        let seen = lock(&watch.seen);
        match seen.objects.get(id.name()) {
            Some(known) => Sight::At(known.version.clone()),
            None if seen.complete => Sight::Absent,
            None => Sight::Unknown,
        }
    }

    fn begin(&self, place: &Place) -> Watch {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let ends = CancellationToken::new();
        let api: Api<Metadata> = place
            .resource
            .api(self.cluster.client(), place.namespace.as_deref());
        let events = watch(
            api,
            watcher::Config::default().labels(&self.selector).page_size(PAGE),
        )
        .default_backoff();
        let (theirs, queue, place, until) = (seen.clone(), self.queue.clone(), place.clone(), ends.clone());
        tokio::spawn(async move {
            let events = events
                .inspect_err(|error| {
                    tracing::debug!(
                        ?place,
                        error = error as &dyn std::error::Error,
                        "watch of objects"
                    );
                })
                .filter_map(|event| async { event.ok() })
                .take_until(until.cancelled());
            tokio::pin!(events);
            while let Some(event) = events.next().await {
                let mut seen = lock(&theirs);
                let mut moved = seen.take(event);
                // Whoever may write labels can name any composition.
                moved.retain(|key| seen.users.contains(key));
                drop(seen);
                for key in moved {
                    queue.add(key, Priority::Normal);
                }
            }
        });
        Watch {
            seen,
            _ends_with_this: ends.drop_guard(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Watch>> {
        lock(&self.places)
    }
}

impl Place {
    fn of(id: &ObjectId) -> Self {
        Self {
            resource: id.resource().clone(),
            namespace: id.namespace().map(str::to_owned),
        }
    }
}

impl Seen {
    /// Takes what the watch says, and tells whose objects moved.
    fn take(&mut self, event: Event<Metadata>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listing.insert(object.name_any(), Known::of(&object));
                Vec::new()
            }
            Event::InitDone => self.relisted(),
            Event::Apply(object) => {
                let now = Known::of(&object);
                let version = now.version.clone();
                let owner = now.owner.clone();
                let before = self.objects.insert(object.name_any(), now);
                let moved = before.is_none_or(|before| before.version != version);
                owner.filter(|_| moved).into_iter().collect()
            }
            Event::Delete(object) => {
                let before = self.objects.remove(&object.name_any());
                before.and_then(|before| before.owner).into_iter().collect()
            }
        }
    }

    /// Takes a new list in place of what was known. All of the first one is news: some of it may have moved since
    /// a pass looked, before there was a watch.
    fn relisted(&mut self) -> Vec<Key> {
        let before = std::mem::replace(&mut self.objects, std::mem::take(&mut self.listing));
        self.complete = true;
        let moved = |(name, known): &(&Name, &Known)| {
            let other = self.objects.get(*name);
            other.is_none_or(|other| other.version != known.version)
        };
        let mut owners: Vec<Key> = before
            .iter()
            .filter(moved)
            .filter_map(|(_, known)| known.owner.clone())
            .collect();
        let new = self
            .objects
            .iter()
            .filter(|(name, _)| !before.contains_key(*name));
        owners.extend(new.filter_map(|(_, known)| known.owner.clone()));
        owners
    }
}

impl Known {
    fn of(object: &Metadata) -> Self {
        let label = |name: &str| object.labels().get(name).cloned();
        let owner = label(labels::COMPOSITION_NAMESPACE).zip(label(labels::COMPOSITION_NAME));
        Self {
            version: object.resource_version().unwrap_or_default(),
            owner: owner.map(|(namespace, name)| Key { namespace, name }),
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
                "labels": {"krateo.io/composition-name": "shop", "krateo.io/composition-namespace": "team"},
            },
        }))
        .unwrap()
    }

    fn shop() -> Vec<Key> {
        vec![Key {
            namespace: "team".to_owned(),
            name: "shop".to_owned(),
        }]
    }

    #[test]
    fn only_what_moves_is_news() {
        let mut seen = Seen::default();
        assert!(seen.take(Event::Init).is_empty());
        assert!(seen.take(Event::InitApply(object("1"))).is_empty());
        assert!(!seen.complete);
        assert_eq!(seen.take(Event::InitDone), shop());
        assert!(seen.complete);
        assert!(seen.take(Event::Apply(object("1"))).is_empty());
        assert_eq!(seen.take(Event::Apply(object("2"))), shop());
        assert_eq!(seen.take(Event::Delete(object("3"))), shop());
        assert!(seen.objects.is_empty());
    }

    #[test]
    fn a_second_list_tells_what_moved_and_what_went_meanwhile() {
        let mut seen = Seen::default();
        let mut list = |objects: &[&str]| {
            let mut news = seen.take(Event::Init);
            for version in objects {
                news.extend(seen.take(Event::InitApply(object(version))));
            }
            news.extend(seen.take(Event::InitDone));
            news
        };
        assert_eq!(list(&["1"]), shop());
        assert!(list(&["1"]).is_empty());
        assert_eq!(list(&["2"]), shop());
        assert_eq!(list(&[]), shop());
        assert_eq!(list(&["2"]), shop());
    }
}
