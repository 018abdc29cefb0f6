//! How objects were when they were looked at last, and whether they have moved since: what has not is not looked at again.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use cluster::{Health, ObjectId};
use serde_json::Value;

use crate::watches::{Sight, Watches};

/// As long as a watch may be behind a read of ours.
const WATCH_BEHIND: Duration = Duration::from_secs(5);

/// The objects of one release, as they were looked at.
#[derive(Debug, Default)]
pub struct Looks(BTreeMap<ObjectId, Looked>);

/// An object as it was looked at.
#[derive(Debug, Clone)]
pub struct Looked {
    version: String,
    /// How it was doing.
    pub health: Health,
    /// True when it is not as it was applied, and is left so.
    pub drifted: bool,
    at: Instant,
}

impl Looks {
    /// How an object was when it was looked at last.
    pub fn get(&self, id: &ObjectId) -> Option<&Looked> {
        self.0.get(id)
    }

    /// What is remembered of an object, unless it has moved since.
    pub fn unmoved<K: Hash + Eq + Clone + Send + Sync + 'static>(
        &self,
        id: &ObjectId,
        watches: &Watches<K>,
    ) -> Option<&Looked> {
        let looked = self.0.get(id)?;
        let is_current = match watches.sight(id) {
            // Our own look is all there is.
            Sight::Unknown => looked.at.elapsed() < WATCH_BEHIND,
            sight => looked.is_current(&sight),
        };
        is_current.then_some(looked)
    }

    /// True when none of them has moved. Secrets are not watched: they do not count.
    pub fn are_current<K: Hash + Eq + Clone + Send + Sync + 'static>(&self, watches: &Watches<K>) -> bool {
        self.0
            .iter()
            .all(|(id, looked)| id.resource().is_secret() || looked.is_current(&watches.sight(id)))
    }

    /// Notes how an object is, as the server returned it.
    pub fn look(&mut self, id: ObjectId, object: &Value, health: Health) {
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        self.0.insert(
            id,
            Looked {
                version: version.to_owned(),
                health,
                drifted: false,
                at: Instant::now(),
            },
        );
    }

    /// Notes that an object is not as it was applied: every pass has to tell, and what is done about it may change.
    pub fn note_drift(&mut self, id: &ObjectId) {
        if let Some(looked) = self.0.get_mut(id) {
            looked.drifted = true;
        }
    }

    /// The objects that were not up when they were looked at.
    pub fn not_up(&self) -> impl Iterator<Item = &ObjectId> {
        let not_up = self
            .0
            .iter()
            .filter(|(_, looked)| looked.health != Health::Current);
        not_up.map(|(id, _)| id)
    }

    /// Forgets an object that is not there.
    pub fn forget(&mut self, id: &ObjectId) {
        self.0.remove(id);
    }

    /// Forgets all but these objects.
    pub fn keep(&mut self, objects: &[ObjectId]) {
        let objects: HashSet<&ObjectId> = objects.iter().collect();
        self.0.retain(|id, _| objects.contains(id));
    }
}

impl Looked {
    fn is_current(&self, sight: &Sight) -> bool {
        match sight {
            Sight::At(version) if *version == self.version => true,
            // The watch may not have come so far yet.
            Sight::At(version) => {
                let number = |version: &str| version.parse::<u64>().ok();
                number(version) < number(&self.version) && self.at.elapsed() < WATCH_BEHIND
            }
            Sight::Unknown | Sight::Absent => false,
        }
    }
}
