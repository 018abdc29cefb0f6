//! The state of an installer's components: what is Ready, what waits for what, and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crdgen::ServedVersion;
use serde::Serialize;

use super::components::{Component, List};

/// The state of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectStatus {
    /// Its condition Ready is `True`.
    pub(super) is_ready: bool,
    /// If it is not Ready: what its conditions say.
    pub(super) why: String,
    /// Its deletion was requested.
    pub(super) is_going: bool,
    /// Of a composition: the API version in its label, whose controller has it; empty without a label.
    pub(super) version: String,
    /// Of a definition: the served versions of its type.
    pub(super) served: Vec<String>,
}

/// The state of a platform at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The definitions of components, by name.
    pub(super) definitions: BTreeMap<String, ObjectStatus>,
    /// Their compositions, by name.
    pub(super) objects: BTreeMap<String, ObjectStatus>,
}

/// The state of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub(super) enum State {
    /// It exists and is Ready.
    Ready,
    /// It exists, and is not Ready yet.
    Progressing { why: String },
    /// It does not exist, because these are not Ready.
    Waiting { dependencies: Vec<String> },
    /// It does not exist, because its type is not served in its version.
    NoType { why: String },
    /// It does not exist, and nothing blocks it: the next pass creates it.
    Due,
    /// It is being removed.
    Removing { why: String },
    /// Its feature is off, and nothing of it exists.
    Off,
}

impl State {
    /// The text in the table.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Ready => "ready".to_owned(),
            Self::Progressing { why } => with("not ready yet", why),
            Self::Waiting { dependencies } => format!("waits for {}", dependencies.join(", ")),
            Self::NoType { why } => with("waits for its type", why),
            Self::Due => "is made next".to_owned(),
            Self::Removing { why } => with("is being removed", why),
            Self::Off => "off".to_owned(),
        }
    }
}

fn with(word: &str, why: &str) -> String {
    if why.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {why}")
    }
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// The wave in which it comes up; none if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wave: Option<usize>,
    pub(super) name: String,
    pub(super) version: String,
    #[serde(flatten)]
    pub(super) state: State,
}

/// All components, by wave and then in the order of the list; the ones that are off come last.
pub(super) fn rows(list: &List, snapshot: &Snapshot) -> Vec<Row> {
    let row = |wave: Option<usize>, component: &Component| Row {
        wave,
        name: component.name.clone(),
        version: component.version.clone(),
        state: state(list, component, wave.is_some(), snapshot),
    };
    let waves = list.waves();
    let enabled = waves
        .iter()
        .enumerate()
        .flat_map(|(wave, components)| components.iter().map(move |component| (Some(wave), *component)));
    let off = list
        .components
        .iter()
        .filter(|component| !list.is_enabled(component))
        .map(|component| (None, component));
    enabled
        .chain(off)
        .map(|(wave, component)| row(wave, component))
        .collect()
}

fn state(list: &List, component: &Component, is_enabled: bool, snapshot: &Snapshot) -> State {
    let wanted = ServedVersion::of_chart(&component.version).map(|version| version.to_string());
    let wanted = wanted.unwrap_or_default();
    if let Some(object) = snapshot.objects.get(&component.name) {
        return of_object(list, component, is_enabled, &wanted, object, snapshot);
    }
    let definition = snapshot.definitions.get(&component.name);
    if !is_enabled {
        return match definition {
            Some(definition) => State::Removing {
                why: with("its definition still exists", &definition.why),
            },
            None => State::Off,
        };
    }
    let Some(definition) = definition else {
        return State::NoType {
            why: "its definition does not exist".to_owned(),
        };
    };
    if definition.is_going {
        return State::Removing {
            why: with("its definition is being removed", &definition.why),
        };
    }
    if !definition.served.contains(&wanted) {
        return State::NoType {
            why: with(&format!("{wanted} is not served"), &definition.why),
        };
    }
    let is_ready = |dep: &str| snapshot.objects.get(dep).is_some_and(|object| object.is_ready);
    let dependencies: Vec<String> = component
        .deps
        .iter()
        .filter(|dep| !is_ready(dep))
        .cloned()
        .collect();
    if dependencies.is_empty() {
        State::Due
    } else {
        State::Waiting { dependencies }
    }
}

fn of_object(
    list: &List,
    component: &Component,
    is_enabled: bool,
    wanted: &str,
    object: &ObjectStatus,
    snapshot: &Snapshot,
) -> State {
    if object.is_going {
        return State::Removing {
            why: object.why.clone(),
        };
    }
    if !is_enabled {
        let needs = |other: &&Component| other.deps.contains(&component.name);
        let dependents = list.components.iter().filter(needs);
        let there: Vec<&str> = dependents
            .map(|other| other.name.as_str())
            .filter(|name| snapshot.objects.contains_key(*name))
            .collect();
        return State::Removing {
            why: if there.is_empty() {
                "its feature is off".to_owned()
            } else {
                format!(
                    "its feature is off, and {} must be removed first",
                    there.join(", ")
                )
            },
        };
    }
    if !object.version.is_empty() && object.version != wanted {
        return State::Progressing {
            why: with(&format!("at {}, moves to {wanted}", object.version), &object.why),
        };
    }
    if object.is_ready {
        State::Ready
    } else {
        State::Progressing {
            why: object.why.clone(),
        }
    }
}

/// The number of components in each state, in one line.
pub(super) fn summary(rows: &[Row]) -> String {
    let count = |is: fn(&State) -> bool| rows.iter().filter(|row| is(&row.state)).count();
    let ready = count(|state| *state == State::Ready);
    let off = count(|state| *state == State::Off);
    let removing = count(|state| matches!(state, State::Removing { .. }));
    let underway = count(|state| matches!(state, State::Progressing { .. } | State::Due));
    let waiting = count(|state| matches!(state, State::Waiting { .. } | State::NoType { .. }));
    let mut text = format!("{} of {} components ready", ready, rows.len() - off);
    for (number, word) in [
        (underway, "underway"),
        (waiting, "waiting"),
        (removing, "being removed"),
        (off, "off"),
    ] {
        if number > 0 {
            let _ = write!(text, ", {number} {word}");
        }
    }
    text
}

/// True if everything enabled is Ready, and everything that is off is gone.
pub(super) fn is_complete(rows: &[Row]) -> bool {
    rows.iter()
        .all(|row| matches!(row.state, State::Ready | State::Off))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(extra: bool) -> List {
        let values = json!({"features": {"extra": extra}, "components": [
            {"name": "a-crd", "kind": "ACrd", "version": "1.0.0", "tier": "platform"},
            {"name": "a", "kind": "A", "version": "1.0.0", "tier": "platform", "deps": ["a-crd"]},
            {"name": "b", "kind": "B", "version": "2.0.0", "tier": "platform", "deps": ["a"], "feature": "extra"},
        ]});
        List::read(values.as_object().unwrap()).0
    }

    fn definition(version: &str) -> ObjectStatus {
        ObjectStatus {
            is_ready: true,
            served: vec![version.to_owned()],
            ..ObjectStatus::default()
        }
    }

    fn object(is_ready: bool, version: &str) -> ObjectStatus {
        ObjectStatus {
            is_ready,
            version: version.to_owned(),
            why: if is_ready {
                String::new()
            } else {
                "2 of 3 pods".to_owned()
            },
            ..ObjectStatus::default()
        }
    }

    /// Checks the words for a-crd, a and b, given the served definitions and the objects.
    #[track_caller]
    fn check(
        extra: bool,
        definitions: &[(&str, ObjectStatus)],
        objects: &[(&str, ObjectStatus)],
        expected: [&str; 3],
    ) {
        let owned = |all: &[(&str, ObjectStatus)]| {
            all.iter()
                .map(|(name, status)| ((*name).to_owned(), status.clone()))
                .collect()
        };
        let snapshot = Snapshot {
            definitions: owned(definitions),
            objects: owned(objects),
        };
        let words: Vec<String> = rows(&list(extra), &snapshot)
            .iter()
            .map(|row| row.state.words())
            .collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn each_component_says_what_it_waits_for() {
        let none = "waits for its type: its definition does not exist";
        check(true, &[], &[], [none, none, none]);
        let all = [
            ("a-crd", definition("v1-0-0")),
            ("a", definition("v1-0-0")),
            ("b", definition("v2-0-0")),
        ];
        check(
            true,
            &all,
            &[],
            ["is made next", "waits for a-crd", "waits for a"],
        );
        let first = ("a-crd", object(true, "v1-0-0"));
        check(
            true,
            &all,
            std::slice::from_ref(&first),
            ["ready", "is made next", "waits for a"],
        );
        let second = ("a", object(false, ""));
        let seen = [first.clone(), second];
        check(
            true,
            &all,
            &seen,
            ["ready", "not ready yet: 2 of 3 pods", "waits for a"],
        );
        // If a dependency stops being Ready, nothing is removed.
        let seen = [("a-crd", object(false, "v1-0-0")), ("a", object(true, "v1-0-0"))];
        check(
            true,
            &all,
            &seen,
            ["not ready yet: 2 of 3 pods", "ready", "is made next"],
        );
    }

    #[test]
    fn a_version_that_is_not_served_yet_is_reported() {
        let all = [
            ("a-crd", definition("v1-0-0")),
            ("a", definition("v0-9-0")),
            ("b", definition("v2-0-0")),
        ];
        let seen = [("a-crd", object(true, "v0-9-0"))];
        check(
            true,
            &all,
            &seen,
            [
                "not ready yet: at v0-9-0, moves to v1-0-0",
                "waits for its type: v1-0-0 is not served",
                "waits for a",
            ],
        );
    }

    #[test]
    fn components_that_are_off_are_removed_from_the_leaves() {
        let seen = [("a", object(true, "")), ("b", object(true, ""))];
        let all = [("a-crd", definition("v1-0-0")), ("b", definition("v2-0-0"))];
        check(
            false,
            &all,
            &seen,
            ["is made next", "ready", "is being removed: its feature is off"],
        );
        check(
            false,
            &all,
            &seen[..1],
            [
                "is made next",
                "ready",
                "is being removed: its definition still exists",
            ],
        );
        check(false, &all[..1], &seen[..1], ["is made next", "ready", "off"]);
    }

    #[test]
    fn the_summary_counts_what_is_enabled() {
        let snapshot = Snapshot {
            objects: BTreeMap::from([("a-crd".to_owned(), object(true, ""))]),
            ..Snapshot::default()
        };
        let rows = rows(&list(false), &snapshot);
        assert_eq!(summary(&rows), "1 of 2 components ready, 1 waiting, 1 off");
        assert!(!is_complete(&rows));
    }
}
