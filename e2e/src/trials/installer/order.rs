//! The order in which components came up and were removed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::Profile;
use crate::namespace::condition;

/// When a composition was created, and when it was Ready for the first time. Kubernetes rounds both down to seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    created: Timestamp,
    ready: Option<Timestamp>,
}

/// When each component came up.
#[derive(Debug, Clone, Default)]
pub struct Rise(BTreeMap<String, Times>);

impl Rise {
    /// Records the state of a composition; true if it is Ready for the first time.
    ///
    /// # Errors
    /// When it has no name or no time of creation.
    pub fn note(&mut self, composition: &Value) -> Result<bool> {
        let metadata = &composition["metadata"];
        let name = metadata["name"].as_str().context("a composition has no name")?;
        let created = time(&metadata["creationTimestamp"])?;
        let times = self
            .0
            .entry(name.to_owned())
            .or_insert(Times { created, ready: None });
        let ready = condition(composition, "Ready").filter(|ready| ready["status"] == "True");
        match (times.ready, ready) {
            (None, Some(ready)) => {
                times.ready = Some(time(&ready["lastTransitionTime"])?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Components of a profile that were not Ready yet.
    pub fn missing(&self, profile: &Profile) -> Vec<&'static str> {
        let is_ready = |name| self.0.get(name).is_some_and(|times| times.ready.is_some());
        let names = profile.components().iter().map(|component| component.name);
        names.filter(|name| !is_ready(*name)).collect()
    }

    /// Dependencies whose dependent existed before the dependency was Ready.
    pub fn violations(&self, profile: &Profile) -> Vec<String> {
        let early = |(dependency, dependent): (&str, &str)| {
            let ready = self.0.get(dependency).and_then(|times| times.ready);
            let created = self.0.get(dependent).map(|times| times.created);
            match (ready, created) {
                (_, None) => Some(format!("{dependent} was never made")),
                (None, Some(_)) => Some(format!("{dependent} was made, {dependency} was never Ready")),
                (Some(ready), Some(created)) if created < ready => Some(format!(
                    "{dependent} was made at {created}, {dependency} was Ready at {ready}"
                )),
                _ => None,
            }
        };
        profile.edges().into_iter().filter_map(early).collect()
    }
}

fn time(value: &Value) -> Result<Timestamp> {
    let text = value.as_str().context("a time is missing")?;
    text.parse().with_context(|| format!("{text:?} is no time"))
}

/// Dependencies of which the dependency was deleted before its dependent. `deleted` lists components in the order in
/// which each was first asked to go.
pub fn removed_too_early(profile: &Profile, deleted: &[String]) -> Vec<String> {
    let place = |name: &str| deleted.iter().position(|other| other == name);
    let early = |(dependency, dependent): (&str, &str)| match (place(dependency), place(dependent)) {
        (_, None) => Some(format!("{dependent} was never removed")),
        (Some(before), Some(after)) if before < after => {
            Some(format!("{dependency} was removed before {dependent}"))
        }
        _ => None,
    };
    profile.edges().into_iter().filter_map(early).collect()
}

/// The platform's keys in etcd: compositions, definitions, types, controllers, and Jobs of hooks.
const TOLD: [&str; 6] = [
    "/registry/composition.krateo.io/",
    "/registry/core.krateo.io/compositiondefinitions/",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/",
    "/registry/deployments/krateo-platform/",
    "/registry/namespaces/krateo-platform",
    "/registry/jobs/",
];

/// What has been removed of the platform so far.
#[derive(Debug, Clone, Default)]
pub struct Fall {
    there: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl Fall {
    /// Records which keys exist, and returns which were added and removed since the last time.
    pub fn note(&mut self, keys: &BTreeSet<String>) -> Vec<String> {
        let is_told = |key: &&String| TOLD.iter().any(|prefix| key.starts_with(prefix));
        let there: BTreeSet<String> = keys.iter().filter(is_told).cloned().collect();
        let mut events = Vec::new();
        // Keys that existed from the beginning do not count.
        if !self.there.is_empty() {
            events.extend(there.difference(&self.there).map(|key| format!("{key} is there")));
        }
        for key in self.there.difference(&there) {
            events.push(format!("{key} is gone"));
            self.gone.insert(key.clone());
        }
        self.there = there;
        events
    }

    /// How many keys with this prefix were removed.
    pub fn gone(&self, prefix: &str) -> usize {
        self.gone.iter().filter(|key| key.starts_with(prefix)).count()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn composition(name: &str, created: u32, ready: Option<u32>) -> Value {
        let status = if ready.is_some() { "True" } else { "False" };
        json!({
            "metadata": {"name": name, "creationTimestamp": at(created)},
            "status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": at(ready.unwrap_or(created))},
            ]},
        })
    }

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    /// All components, each created when its dependencies became Ready.
    fn in_order() -> Rise {
        let mut rise = Rise::default();
        for (name, created, ready) in [
            ("a-crd", 0, 1),
            ("b-crd", 0, 2),
            ("a", 1, 4),
            ("b", 2, 3),
            ("c", 4, 5),
        ] {
            assert!(!rise.note(&composition(name, created, None)).unwrap());
            assert!(rise.note(&composition(name, created, Some(ready))).unwrap());
        }
        rise
    }

    #[test]
    fn the_first_time_that_something_was_ready_counts() {
        let mut rise = in_order();
        assert!(!rise.note(&composition("a", 1, None)).unwrap());
        assert!(!rise.note(&composition("a", 1, Some(9))).unwrap());
        assert_eq!(rise.missing(&Profile::small()), Vec::<&str>::new());
        assert_eq!(rise.violations(&Profile::small()), Vec::<String>::new());
    }

    #[test]
    fn what_was_made_too_early_is_told() {
        let mut rise = in_order();
        rise.0.remove("c");
        rise.note(&composition("c", 3, None)).unwrap();
        assert_eq!(rise.missing(&Profile::small()), ["c"]);
        assert_eq!(
            rise.violations(&Profile::small()),
            ["c was made at 2026-01-01T00:00:03Z, a was Ready at 2026-01-01T00:00:04Z"]
        );
        rise.0.remove("b");
        assert_eq!(rise.violations(&Profile::small()).len(), 3);
    }

    #[test]
    fn what_goes_before_its_dependents_is_told() {
        let order = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let small = Profile::small();
        let leaves_first = order(&["c", "b", "a", "b-crd", "a-crd"]);
        assert_eq!(removed_too_early(&small, &leaves_first), Vec::<String>::new());
        let root_first = order(&["a-crd", "c", "b", "a", "b-crd"]);
        assert_eq!(
            removed_too_early(&small, &root_first),
            ["a-crd was removed before a"]
        );
        assert_eq!(
            removed_too_early(&small, &order(&["b", "a", "b-crd", "a-crd"])),
            ["c was never removed", "c was never removed"]
        );
    }

    #[test]
    fn what_goes_of_the_platform_is_told_and_counted() {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
        let (a, b) = (
            "/registry/composition.krateo.io/as/krateo-system/a",
            "/registry/jobs/krateo-system/b",
        );
        let mut fall = Fall::default();
        assert_eq!(fall.note(&keys(&[a, "/registry/pods/x/y"])), [""; 0]);
        assert_eq!(fall.note(&keys(&[a, b])), [format!("{b} is there")]);
        assert_eq!(fall.note(&keys(&[b])), [format!("{a} is gone")]);
        assert_eq!(fall.gone("/registry/composition.krateo.io/"), 1);
        assert_eq!(fall.gone("/registry/jobs/"), 0);
    }
}
