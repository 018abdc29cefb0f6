//! Finds the differences between an object and what an apply makes of it.

use std::collections::HashSet;

use cluster::ObjectId;
use cluster::fields::{self, Leaf, Path, Paths};
use serde_json::Value;

use super::drifted::DriftedPath;
use super::policy::Mode;
use crate::records::MANAGER;
use crate::release::managers::{counted, is_bookkeeping, is_hand, is_label_of_namespace};
use crate::release::obstacle::Obstacles;

/// For at most this many drifted fields of one object the writer is reported: each is searched in the fields of all
/// managers.
const TOLD_WRITERS: usize = 256;

/// Where `live` differs from what an apply would make of it, and what was added by hand.
pub(super) fn differences(id: &ObjectId, applied: &Value, live: &Value) -> Vec<DriftedPath> {
    let Some(ours) = fields::applied_by(applied, MANAGER) else {
        return Vec::new();
    };
    // The same fields of both objects, in the same order.
    let (ours, actual) = (counted(&ours, applied), counted(&ours, live));
    let mut drifted = Vec::new();
    for (leaf, actual) in ours.iter().zip(actual) {
        let actual = actual.value;
        if actual != leaf.value && !is_autoscaled(&leaf.path, live) {
            let writer = drifted.len() < TOLD_WRITERS;
            drifted.push(path(id, leaf.path.clone(), leaf.value, actual, live, writer));
        }
    }
    add_those_by_hand(id, &ours, live, &mut drifted);
    drifted
}

/// What a correction took over and has not dropped yet, because it was interrupted: fields of ours in `live` that an apply
/// drops.
pub(super) fn taken_over(id: &ObjectId, applied: &Value, live: &Value) -> Vec<DriftedPath> {
    let (kept, had) = (
        fields::applied_by(applied, MANAGER),
        fields::applied_by(live, MANAGER),
    );
    let (Some(kept), Some(had)) = (kept, had) else {
        return Vec::new();
    };
    let kept = counted(&kept, applied);
    let kept: Paths = kept.iter().map(|leaf| &leaf.path).collect();
    let mut dropped = Vec::new();
    add_others(id, &kept, counted(&had, live), live, &mut dropped);
    dropped
}

/// Adds those of the fields that have a value and are not ours.
fn add_others<'a>(
    id: &ObjectId,
    ours: &Paths,
    leaves: impl IntoIterator<Item = Leaf<'a>>,
    live: &Value,
    drifted: &mut Vec<DriftedPath>,
) {
    for leaf in leaves {
        if leaf.value.is_some() && !ours.overlap(&leaf.path) {
            let writer = drifted.len() < TOLD_WRITERS;
            drifted.push(path(id, leaf.path, None, leaf.value, live, writer));
        }
    }
}

/// What was added by hand to an object as an apply left it: an apply does not remove it.
pub(super) fn added_by_hand(id: &ObjectId, applied: &Value) -> Vec<DriftedPath> {
    let mut added = Vec::new();
    if let Some(ours) = fields::applied_by(applied, MANAGER) {
        add_those_by_hand(id, &counted(&ours, applied), applied, &mut added);
    }
    added
}

fn add_those_by_hand(id: &ObjectId, ours: &[Leaf<'_>], live: &Value, drifted: &mut Vec<DriftedPath>) {
    let of_ours: Paths = ours.iter().map(|leaf| &leaf.path).collect();
    let by_hand =
        fields::entries(live).filter(|entry| entry.subresource.is_empty() && is_hand(entry.manager));
    let leaves = by_hand.flat_map(|entry| entry.leaves(live));
    let leaves = leaves.filter(|leaf| !is_bookkeeping(&leaf.path) && !is_label_of_namespace(id, &leaf.path));
    add_others(id, &of_ours, leaves, live, drifted);
}

/// The differences where an apply is refused because of fields that others added: those fields, the fields of the
/// manifest that they replaced, and fields of the manifest that others set to another value. The server gives no
/// result of the apply, so values are compared as written in the manifest.
pub(super) fn clashes(
    id: &ObjectId,
    refused: &cluster::Error,
    wanted: &Value,
    live: &Value,
) -> Vec<DriftedPath> {
    let added = Obstacles::of(refused, wanted, live).paths;
    if added.is_empty() {
        return Vec::new();
    }
    let mut paths: Vec<Path> = Vec::new();
    for entry in
        fields::entries(live).filter(|entry| entry.subresource.is_empty() && entry.manager != MANAGER)
    {
        let leaves = entry.leaves(live);
        let is_changed = |leaf: &&Leaf<'_>| {
            let value = leaf.path.get(wanted);
            value.is_some() && value != leaf.value
        };
        paths.extend(leaves.iter().filter(is_changed).map(|leaf| leaf.path.clone()));
    }
    for added in added {
        paths.extend(added.lost_beside(wanted, live));
        paths.push(added);
    }
    let mut drifted: Vec<DriftedPath> = Vec::new();
    let mut known: HashSet<&Path> = HashSet::new();
    for found in &paths {
        if known.insert(found) {
            let (wanted, actual) = (found.get(wanted), found.get(live));
            let writer = drifted.len() < TOLD_WRITERS;
            drifted.push(path(id, found.clone(), wanted, actual, live, writer));
        }
    }
    drifted
}

/// True when an autoscaler set the field: a correction would be undone at once, again and again.
fn is_autoscaled(path: &Path, live: &Value) -> bool {
    fields::entries(live)
        .any(|entry| entry.subresource == "scale" && !is_hand(entry.manager) && entry.touches(path))
}

fn path(
    id: &ObjectId,
    path: Path,
    wanted: Option<&Value>,
    actual: Option<&Value>,
    live: &Value,
    tells_writer: bool,
) -> DriftedPath {
    let writers = fields::entries(live)
        .filter(|_| tells_writer)
        .filter(|entry| !(entry.manager == MANAGER && entry.operation == "Apply") && entry.touches(&path));
    let writer = writers.max_by_key(|entry| entry.time);
    let resource = id.resource();
    let is_secret = resource.group.is_empty() && resource.kind == "Secret";
    let shown = |value: Option<&Value>| {
        value.map(|value| {
            if is_secret && path.to_string().starts_with(".data") {
                Value::from("(withheld)")
            } else {
                value.clone()
            }
        })
    };
    DriftedPath {
        wanted: shown(wanted),
        actual: shown(actual),
        manager: writer.map(|entry| entry.manager.to_owned()),
        time: writer.and_then(|entry| entry.time?.parse().ok()),
        mode: Mode::default(),
        path,
    }
}
