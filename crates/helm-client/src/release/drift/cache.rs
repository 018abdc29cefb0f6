//! A cache of what is known about objects since they were last applied or compared.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use cluster::{ObjectId, content, fields};
use serde_json::Value;

use super::differences::added_by_hand;
use super::drifted::DriftedPath;
use crate::json;
use crate::records::MANAGER;
use crate::release::Live;
use crate::release::managers::{counted, is_hand};
use crate::release::ownership::{Checked, Owner, Precondition};

/// What had drifted in an object as last seen.
#[derive(Debug)]
pub(super) struct CachedDrift {
    /// Fingerprint of the object that was compared.
    pub(super) print: Print,
    /// The resource version of the object when it had this fingerprint.
    pub(super) version: Box<str>,
    /// The revision that it was compared with. Several releases can name an object, but only one of them owns it.
    pub(super) revision: Revision,
    /// What had drifted in it.
    pub(super) drifted: Vec<DriftedPath>,
    /// True if the apply of that revision left it like that, or would change nothing.
    pub(super) is_as_applied: bool,
}

/// How many bytes of drift are kept of the objects of a release. An object with more is compared again at each look:
/// otherwise a tenant could fill the memory with its drift.
const MOST_DRIFT: usize = 128 << 10;

/// A revision of a release. Objects can pass from one release to another, so a number alone is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::release) struct Revision {
    pub(in crate::release) owner: Arc<Owner>,
    pub(in crate::release) number: i64,
}

/// What is known about the objects of releases since they were last applied or compared: for each a hash, its resource
/// version, and which release left it like that.
#[derive(Debug, Default)]
pub struct ObjectCache {
    compared: Mutex<HashMap<ObjectId, CachedDrift>>,
    /// Resource versions at which watches saw objects of a change that failed. The watches are not believed about these
    /// again.
    doubted: Mutex<HashMap<ObjectId, String>>,
}

impl ObjectCache {
    /// Notes the server's answer to an apply.
    pub(in crate::release) fn note<'a>(
        &self,
        revision: &Revision,
        objects: impl IntoIterator<Item = &'a Live>,
    ) {
        tracing::trace!(release = %revision.owner.name, revision = revision.number, "noted its objects");
        let mut cache = self.lock();
        for live in objects {
            let cached = CachedDrift {
                print: Print::of(&live.object),
                version: json::resource_version(&live.object).into(),
                revision: revision.clone(),
                drifted: added_by_hand(&live.id, &live.object),
                is_as_applied: true,
            };
            keep(&mut cache, &live.id, cached);
        }
    }

    /// Notes that a revision applies the same manifests to these objects as the one before it, so that they are as both
    /// want them. One that was written or taken over meanwhile stays as it was noted.
    pub(in crate::release) fn note_unchanged<'a>(
        &self,
        before: &Revision,
        revision: &Revision,
        objects: impl Iterator<Item = (&'a ObjectId, &'a String)>,
    ) {
        let mut cache = self.lock();
        for (id, version) in objects {
            let cached = cache.get_mut(id);
            if let Some(cached) = cached.filter(|cached| cached.is_of(before) && *cached.version == **version)
            {
                cached.revision = revision.clone();
            }
        }
    }

    /// True if it is known what the apply of a revision makes of an object.
    pub(in crate::release) fn knows(&self, revision: &Revision, id: &ObjectId) -> bool {
        let cache = self.lock();
        cache.get(id).is_some_and(|cached| cached.is_of(revision))
    }

    /// True if applying the object of this revision again would not change it.
    pub(in crate::release) fn is_as_applied(&self, revision: &Revision, live: &Live) -> bool {
        let cache = self.lock();
        let cached = cache.get(&live.id);
        cached.is_some_and(|cached| cached.is_of(revision) && cached.print.is_as_applied(&live.object))
    }

    /// The same without reading the object, if it still has this resource version.
    pub(in crate::release) fn is_as_applied_at(
        &self,
        revision: &Revision,
        id: &ObjectId,
        version: &str,
    ) -> bool {
        let cache = self.lock();
        let cached = cache.get(id);
        cached.is_some_and(|cached| cached.is_of(revision) && *cached.version == *version)
    }

    /// True if some revision of this release left the object as it is at this resource version.
    pub(in crate::release) fn is_of_release_at(&self, owner: &Owner, id: &ObjectId, version: &str) -> bool {
        let cache = self.lock();
        let cached = cache.get(id).filter(|cached| *cached.version == *version);
        cached.is_some_and(|cached| cached.is_as_applied && *cached.revision.owner == *owner)
    }

    /// Forgets what is known about objects of a release other than these.
    pub(super) fn keep_only<'a>(&self, owner: &Owner, ids: impl Iterator<Item = &'a ObjectId>) {
        let ids: HashSet<&ObjectId> = ids.collect();
        let mut cache = self.lock();
        cache.retain(|id, cached| ids.contains(id) || *cached.revision.owner != *owner);
    }

    /// Forgets what is known about these objects.
    pub(crate) fn forget<'a>(&self, ids: impl Iterator<Item = &'a ObjectId>) {
        let mut cache = self.lock();
        for id in ids {
            cache.remove(id);
        }
    }

    /// Notes that a change failed which relied on watches for the versions of these objects.
    pub(in crate::release) fn doubt(&self, checked: &Checked) {
        let versions = checked
            .iter()
            .filter_map(|(id, precondition)| match precondition {
                Precondition::Version(version) => Some((id.clone(), version.clone())),
                Precondition::Uid(_) => None,
            });
        lock(&self.doubted).extend(versions);
    }

    /// Believes watches again, after a change that succeeded.
    pub(in crate::release) fn believe(&self) {
        lock(&self.doubted).clear();
    }

    /// True if a change failed when the object was said to be at this resource version.
    pub(in crate::release) fn doubts(&self, id: &ObjectId, version: &str) -> bool {
        let doubted = lock(&self.doubted);
        doubted.get(id).is_some_and(|doubted| doubted == version)
    }

    /// What had drifted in the object when it was compared with this revision at this resource version.
    pub(super) fn drifted_at(
        &self,
        revision: &Revision,
        id: &ObjectId,
        version: &str,
    ) -> Option<Vec<DriftedPath>> {
        let cache = self.lock();
        let cached = cache.get(id).filter(|cached| cached.revision == *revision)?;
        (*cached.version == *version).then(|| cached.drifted.clone())
    }

    /// What had drifted in the object when it was compared with this revision and was like that. Notes that it still is
    /// at this resource version.
    pub(super) fn drifted_with(
        &self,
        revision: &Revision,
        id: &ObjectId,
        print: &Print,
        version: &str,
    ) -> Option<Vec<DriftedPath>> {
        let mut cache = self.lock();
        let cached = cache.get_mut(id)?;
        let is_like_that = if cached.is_as_applied {
            cached.print.counted == print.counted
        } else {
            cached.print == *print
        };
        if !is_like_that || cached.revision != *revision {
            return None;
        }
        cached.version = version.into();
        Some(cached.drifted.clone())
    }

    pub(super) fn set(&self, id: &ObjectId, drift: CachedDrift) {
        keep(&mut self.lock(), id, drift);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, CachedDrift>> {
        lock(&self.compared)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(cache: &mut HashMap<ObjectId, CachedDrift>, id: &ObjectId, drift: CachedDrift) {
    cache.remove(id);
    let size = drift.size();
    if size == 0 || size + cache.values().map(CachedDrift::size).sum::<usize>() <= MOST_DRIFT {
        cache.insert(id.clone(), drift);
    }
}

impl CachedDrift {
    fn size(&self) -> usize {
        self.drifted.iter().map(DriftedPath::size).sum()
    }

    fn is_of(&self, revision: &Revision) -> bool {
        self.is_as_applied && self.revision == *revision
    }
}

/// What an object is like, for the question whether it has to be compared again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Print {
    /// Hash of the fields that we applied or somebody set by hand, and their values. While all fields of the manifest are
    /// ours, any manager that takes one over removes it from ours, so the hash changes.
    counted: u64,
    /// Hash of everything but the status, and of who scales it. If a field of the manifest is not ours, as after a manager
    /// took it over and put back its value, only this one changes with it.
    whole: u64,
}

impl Print {
    pub(super) fn of(object: &Value) -> Self {
        Self {
            counted: counted_fields(object),
            whole: all_but_status(object),
        }
    }

    /// True if the object of this print is like the answer to an apply.
    pub(super) fn is_as_applied(&self, applied: &Value) -> bool {
        self.counted == counted_fields(applied)
    }
}

/// A hasher with the key of this process: nobody outside can make up two states of an object with the same hash.
fn hasher() -> DefaultHasher {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.build_hasher()
}

fn counted_fields(object: &Value) -> u64 {
    let mut hasher = hasher();
    object["metadata"]["uid"].as_str().hash(&mut hasher);
    for entry in fields::entries(object) {
        let is_ours = entry.manager == MANAGER && entry.operation == "Apply";
        if !entry.subresource.is_empty() || !(is_ours || is_hand(entry.manager)) {
            continue;
        }
        entry.manager.hash(&mut hasher);
        for leaf in counted(&entry, object) {
            leaf.path.to_string().hash(&mut hasher);
            leaf.value.map(Value::to_string).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn all_but_status(object: &Value) -> u64 {
    let mut hasher = hasher();
    content(object).hash(&mut hasher);
    for entry in fields::entries(object).filter(|entry| entry.subresource == "scale") {
        entry.manager.hash(&mut hasher);
    }
    hasher.finish()
}
