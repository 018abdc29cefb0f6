//! Fields that Helm wrote by plain update become fields that it applied (client-go's `csaupgrade`).
//!
//! Helm 3, and Helm 4 without server-side apply, leave entries of operation `Update` in `managedFields`. They would
//! own every field along with us, and a field that a chart drops would stay for ever.

use cluster::{Cluster, ObjectId};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Map, Value, json};

use super::Error;
use super::apply::AT_ONCE;
use crate::records::MANAGER;

/// Turns Helm's update entries of these objects into apply entries; objects without any are not written.
///
/// # Errors
/// [`Error::Objects`]; transient when somebody else wrote in between.
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

/// The entries with Helm's updates merged into its apply; none when there is nothing to merge.
fn migrated(entries: &[Value]) -> Option<Vec<Value>> {
    let is_helms = |entry: &Value, operation: &str| {
        entry["manager"] == MANAGER
            && entry["operation"] == operation
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    };
    let (updates, mut others): (Vec<&Value>, Vec<&Value>) =
        entries.iter().partition(|entry| is_helms(entry, "Update"));
    let first = *updates.first()?;
    let apply = others
        .iter()
        .position(|entry| is_helms(entry, "Apply"))
        .map(|at| others.remove(at));
    let mut merged = apply.unwrap_or(first).clone();
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
