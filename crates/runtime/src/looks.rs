//! The state of objects when they were last looked at, and whether they have changed since: unchanged ones are not
//! looked at again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

use cluster::{Health, ObjectId};
use serde_json::Value;

use crate::watches::{Sight, Watches};

/// How far a watch may be behind our own reads.
const WATCH_BEHIND: Duration = Duration::from_secs(5);

/// The objects of one release, as of the last look.
#[derive(Debug, Default)]
pub struct Looks(BTreeMap<ObjectId, Looked>);

/// An object as of the last look.
#[derive(Debug, Clone)]
pub struct Looked {
    version: String,
    /// Its health.
    pub health: Health,
    /// True if it differs from what was applied, and is left that way.
    pub drifted: bool,
    at: Instant,
}

impl Looks {
    /// The object as of the last look.
    pub fn get(&self, id: &ObjectId) -> Option<&Looked> {
        self.0.get(id)
    }

    /// What is remembered about an object, unless it has changed since.
    pub fn unmoved<K: Hash + Eq + Clone + Send + Sync + 'static>(
        &self,
        id: &ObjectId,
        watches: &Watches<K>,
    ) -> Option<&Looked> {
        let looked = self.0.get(id)?;
        let is_current = match watches.sight(id) {
            // There is nothing newer than our own look.
            Sight::Unknown => looked.at.elapsed() < WATCH_BEHIND,
            sight => looked.is_current(&sight),
        };
        is_current.then_some(looked)
    }

    /// The resource versions of those that have not changed since, according to a watch ([`Watches::confirms`]).
    /// Secrets are not watched.
    pub fn unchanged_by_watch<K: Hash + Eq + Clone + Send + Sync + 'static>(
        &self,
        watches: &Watches<K>,
    ) -> HashMap<ObjectId, String> {
        let confirmed = self
            .0
            .iter()
            .filter(|(id, looked)| watches.confirms(id, &looked.version));
        confirmed
            .map(|(id, looked)| (id.clone(), looked.version.clone()))
            .collect()
    }

    /// The resource versions of those that have not changed since ([`Looks::unmoved`]), and had not drifted.
    pub fn unchanged_and_not_drifted<K: Hash + Eq + Clone + Send + Sync + 'static>(
        &self,
        watches: &Watches<K>,
    ) -> HashMap<ObjectId, String> {
        let ids = self.0.keys();
        let unmoved = ids.filter_map(|id| Some((id, self.unmoved(id, watches)?)));
        unmoved
            .filter(|(_, looked)| !looked.drifted)
            .map(|(id, looked)| (id.clone(), looked.version.clone()))
            .collect()
    }

    /// True if none of them has changed. Secrets are not watched and do not count.
    pub fn are_current<K: Hash + Eq + Clone + Send + Sync + 'static>(&self, watches: &Watches<K>) -> bool {
        self.0
            .iter()
            .all(|(id, looked)| id.resource().is_secret() || looked.is_current(&watches.sight(id)))
    }

    /// Remembers the state of an object as the server returned it.
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

    /// Notes that an object differs from what was applied. Every pass has to report that, and what is done about it may
    /// change.
    pub fn note_drift(&mut self, id: &ObjectId) {
        if let Some(looked) = self.0.get_mut(id) {
            looked.drifted = true;
        }
    }

    /// The objects that were not up when last looked at.
    pub fn not_up(&self) -> impl Iterator<Item = &ObjectId> {
        let not_up = self
            .0
            .iter()
            .filter(|(_, looked)| looked.health != Health::Current);
        not_up.map(|(id, _)| id)
    }

    /// Forgets an object that does not exist.
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
            // The watch may still be behind our look.
            Sight::At(version) | Sight::Absent(Some(version)) => {
                let number = |version: &str| version.parse::<u64>().ok();
                number(version) < number(&self.version) && self.at.elapsed() < WATCH_BEHIND
            }
            Sight::Unknown | Sight::Absent(None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(ago: Duration) -> Looked {
        Looked {
            version: "10".to_owned(),
            health: Health::Current,
            drifted: false,
            at: Instant::now().checked_sub(ago).unwrap(),
        }
    }

    #[test]
    fn a_look_is_current_as_long_as_the_watch_has_nothing_newer() {
        let at = |version: &str| Sight::At(version.to_owned());
        let absent = |last_event: &str| Sight::Absent(Some(last_event.to_owned()));
        for (sight, is_current, is_current_later) in [
            (at("10"), true, true),
            (at("9"), true, false),
            (at("11"), false, false),
            // Made by us, and not yet seen by the watch.
            (absent("9"), true, false),
            // Deleted since.
            (absent("11"), false, false),
            (Sight::Absent(None), false, false),
            (Sight::Unknown, false, false),
        ] {
            assert_eq!(looked(Duration::ZERO).is_current(&sight), is_current, "{sight:?}");
            assert_eq!(
                looked(WATCH_BEHIND).is_current(&sight),
                is_current_later,
                "{sight:?}"
            );
        }
    }
}
