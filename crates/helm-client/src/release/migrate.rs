//! Turns fields that others wrote by plain update into fields that Helm applied (client-go's `csaupgrade`).
//!
//! Helm 3, and Helm 4 without server-side apply, leave entries of operation `Update` in `managedFields`. They would
//! own every field together with us, and a field that a chart drops would stay forever. In the same way, a field that
//! somebody added by hand is only removed by an apply once it is ours.

use cluster::fields::{self, Path};
use cluster::{Cluster, ObjectId};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::Error;
use super::objects::AT_ONCE;
use crate::records::MANAGER;

/// Turns Helm's update entries of these objects into apply entries; objects without any are not written.
///
/// # Errors
/// [`Error::Objects`]; transient when somebody else wrote in the meantime.
pub(super) async fn updates_to_applies(
    cluster: &Cluster,
    ids: impl Iterator<Item = &ObjectId>,
) -> Result<(), Error> {
    let migrations: Vec<_> = ids.map(|id| migrate(cluster, id).boxed()).collect();
    stream::iter(migrations)
        .buffered(AT_ONCE)
        .try_collect::<()>()
        .await
        .map_err(Error::objects("take over the fields of"))
}

async fn migrate(cluster: &Cluster, id: &ObjectId) -> Result<(), cluster::Error> {
    let Some(live) = cluster.get::<Value>(id).await? else {
        return Ok(());
    };
    let entries = live["metadata"]["managedFields"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let Some(migrated) = migrated(entries) else {
        return Ok(());
    };
    let version = &live["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version, "managedFields": migrated}});
    cluster.merge(id, &patch, MANAGER).await.map(drop)
}

/// Transfers these fields of an object from the managers that `is_from` selects to Helm's apply, so that the next
/// apply removes those that it does not set.
///
/// # Errors
/// When the server refuses; transient when somebody else wrote since the object was read.
pub(super) async fn take_over(
    cluster: &Cluster,
    id: &ObjectId,
    live: &Value,
    is_from: fn(&str) -> bool,
    paths: &[&Path],
) -> Result<(), cluster::Error> {
    let raw = live["metadata"]["managedFields"].as_array();
    let mut taken = Map::new();
    let mut entries = Vec::new();
    for (entry, raw) in fields::entries(live).zip(raw.into_iter().flatten()) {
        let mut raw = raw.clone();
        if entry.subresource.is_empty() && is_from(entry.manager) {
            let (these, others) = entry.split(paths);
            unite(&mut taken, &these);
            if others.is_empty() {
                continue;
            }
            raw["fieldsV1"] = Value::Object(others);
        }
        entries.push(raw);
    }
    if taken.is_empty() {
        return Ok(());
    }
    let mut ours = json!({"manager": MANAGER, "operation": "Apply", "apiVersion": id.resource().api_version(),
                          "fieldsType": "FieldsV1", "fieldsV1": {}});
    let place = entries.iter().position(|entry| is_helms(entry, "Apply"));
    if let Some(place) = place {
        ours = entries.remove(place);
    }
    if let Value::Object(fields) = &mut ours["fieldsV1"] {
        unite(fields, &taken);
    }
    entries.push(ours);
    let version = &live["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version, "managedFields": entries}});
    cluster.merge(id, &patch, MANAGER).await.map(drop)
}

fn is_helms(entry: &Value, operation: &str) -> bool {
    entry["manager"] == MANAGER
        && entry["operation"] == operation
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Helm's updates have the name of the program that it is part of as field manager, which is `controller` for Krateo,
/// as for others. Only Krateo's labels objects with their composition.
fn is_krateos(entry: &Value) -> bool {
    let label = "/fieldsV1/f:metadata/f:labels/f:krateo.io~1composition-id";
    entry["manager"] == "controller"
        && entry["operation"] == "Update"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
        && entry.pointer(label).is_some()
}

/// The entries with Helm's updates merged into its apply; `None` when there is nothing to merge.
fn migrated(entries: &[Value]) -> Option<Vec<Value>> {
    let is_update = |entry: &&Value| is_helms(entry, "Update") || is_krateos(entry);
    let (updates, mut others): (Vec<&Value>, Vec<&Value>) = entries.iter().partition(is_update);
    let first = *updates.first()?;
    let apply = others
        .iter()
        .position(|entry| is_helms(entry, "Apply"))
        .map(|at| others.remove(at));
    let mut merged = apply.unwrap_or(first).clone();
    merged["manager"] = Value::from(MANAGER);
    merged["operation"] = Value::from("Apply");
    let mut fields = Map::new();
    for entry in apply.into_iter().chain(updates) {
        if let Value::Object(more) = &entry["fieldsV1"] {
            unite(&mut fields, more);
        }
    }
    merged["fieldsV1"] = Value::Object(fields);
    Some(others.into_iter().cloned().chain([merged]).collect())
}

/// Adds the fields of one set to another; sets of fields are nested objects whose leaves are empty.
fn unite(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, inner) in more {
        let mine = fields.entry(key).or_insert_with(|| json!({}));
        if let (Value::Object(mine), Value::Object(inner)) = (mine, inner) {
            unite(mine, inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn updates_of_krateos_controller_become_helms_apply() {
        let labelled = json!({
            "f:metadata": {"f:labels": {".": {}, "f:krateo.io/composition-id": {}}}, "f:data": {"f:a": {}},
        });
        let krateos = entry("controller", "Update", &labelled);
        let anothers = entry("controller", "Update", &json!({"f:spec": {"f:replicas": {}}}));
        let merged = migrated(&[krateos, anothers.clone()]).unwrap();
        assert_eq!(merged, [anothers.clone(), entry("helm", "Apply", &labelled)]);
        assert_eq!(migrated(&[anothers]), None);
    }

    #[test]
    fn updates_become_one_apply() {
        let a = json!({"f:data": {"f:a": {}}});
        let b = json!({"f:data": {"f:b": {}, ".": {}}});
        let both = json!({"f:data": {"f:a": {}, "f:b": {}, ".": {}}});
        let other = entry("kubectl", "Update", &a);
        let mut status = entry("helm", "Update", &a);
        status["subresource"] = json!("status");

        let cases = [
            (
                vec![entry("helm", "Update", &a)],
                Some(vec![entry("helm", "Apply", &a)]),
            ),
            (
                vec![
                    other.clone(),
                    entry("helm", "Update", &a),
                    status.clone(),
                    entry("helm", "Apply", &b),
                ],
                Some(vec![other.clone(), status.clone(), entry("helm", "Apply", &both)]),
            ),
            (vec![other, status, entry("helm", "Apply", &a)], None),
            (vec![], None),
        ];
        for (entries, expected) in cases {
            assert_eq!(migrated(&entries), expected);
        }
    }
}
