//! What is known about objects since they were last applied or compared.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ObjectId;
use cluster::fields;
use serde_json::Value;

use super::drifted::DriftedPath;
use crate::json;
use crate::records::MANAGER;
use crate::release::Live;
use crate::release::managers::{counted, is_hand};
use crate::release::ownership::{Checked, Owner, Precondition};

/// What had drifted in an object as last seen.
#[derive(Debug)]
pub(super) struct CachedDrift {
    /// Fingerprint of the compared fields.
    pub(super) print: u64,
    /// The resource version of the object when it had this fingerprint.
    pub(super) version: Box<str>,
    /// The revision that it was compared with. Several releases can name an object, but only one of them owns it.
    pub(super) revision: Revision,
    /// What had drifted in it.
    pub(super) drifted: Vec<DriftedPath>,
    /// True if the apply of that revision left it like that, or would change nothing.
    pub(super) is_as_applied: bool,
}

/// A revision of a release. Objects can pass from one release to another, so a number alone is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::release) struct Revision {
    pub(in crate::release) owner: Arc<Owner>,
    pub(in crate::release) number: i64,
}

/// Objects as last seen: for each a hash, its resource version, and which release left it like that.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    cache: Mutex<HashMap<ObjectId, CachedDrift>>,
    /// Resource versions at which watches saw objects of a change that failed. The watches are not believed about these
    /// again.
    doubted: Mutex<HashMap<ObjectId, String>>,
}

impl Settled {
    /// Notes the server's answer to an apply.
    pub(in crate::release) fn note<'a>(
        &self,
        revision: &Revision,
        objects: impl IntoIterator<Item = &'a Live>,
    ) {
        tracing::trace!(release = %revision.owner.name, revision = revision.number, "settled");
        let mut cache = self.lock();
        for live in objects {
            let cached = CachedDrift {
                print: fingerprint(&live.object),
                version: json::resource_version(&live.object).into(),
                revision: revision.clone(),
                drifted: Vec::new(),
                is_as_applied: true,
            };
            cache.insert(live.id.clone(), cached);
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
        let print = fingerprint(&live.object);
        let cache = self.lock();
        let cached = cache.get(&live.id);
        cached.is_some_and(|cached| cached.is_of(revision) && cached.print == print)
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

    /// Forgets what is known about these objects.
    pub(crate) fn forget<'a>(&self, ids: impl Iterator<Item = &'a ObjectId>) {
        let (mut cache, mut doubted) = (self.lock(), lock(&self.doubted));
        for id in ids {
            cache.remove(id);
            doubted.remove(id);
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

    /// What had drifted in the object when it was compared with this revision and had this fingerprint. Notes that it
    /// still has that at this resource version.
    pub(super) fn drifted_with(
        &self,
        revision: &Revision,
        id: &ObjectId,
        print: u64,
        version: &str,
    ) -> Option<Vec<DriftedPath>> {
        let mut cache = self.lock();
        let cached = cache.get_mut(id)?;
        if cached.print != print || cached.revision != *revision {
            return None;
        }
        cached.version = version.into();
        Some(cached.drifted.clone())
    }

    pub(super) fn set(&self, id: &ObjectId, drift: CachedDrift) {
        self.lock().insert(id.clone(), drift);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectId, CachedDrift>> {
        lock(&self.cache)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedDrift {
    fn is_of(&self, revision: &Revision) -> bool {
        self.is_as_applied && self.revision == *revision
    }
}

/// Hash of the fields that we applied or somebody set by hand, and their values. Any other manager that takes a field
/// over removes it from ours, so the hash changes as well.
pub(super) fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
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
