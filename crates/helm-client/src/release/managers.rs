//! Whose fields of an object count as drift: the managers that people use by hand, and the fields that are compared.

use cluster::ObjectId;
use cluster::fields::{Entry, Leaf, Path};
use serde_json::Value;

/// Field managers that people use by hand, by the beginnings of their names. What they add is drift; what controllers
/// and other declarative tools add is theirs.
const HANDS: [&str; 5] = ["kubectl", "oc", "k9s", "Mozilla", "node-fetch"];
/// `kubectl rollout restart` leaves an annotation; removing it would restart the pods once more.
const RESTART: &str = "kubectl-rollout";

pub(super) fn is_hand(manager: &str) -> bool {
    let begins = |hand: &str| {
        let rest = manager.strip_prefix(hand);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    manager != RESTART && HANDS.into_iter().any(begins)
}

/// The fields of an entry that are compared. What a Secret was given as `stringData` is stored, and compared, as
/// `data`.
pub(super) fn counted<'o>(entry: &Entry<'_>, object: &'o Value) -> Vec<Leaf<'o>> {
    let mut leaves = entry.leaves(object);
    if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
        for leaf in &mut leaves {
            if let Some(key) = leaf.path.field_below("stringData") {
                leaf.path = Path::of_fields(["data", key]);
                leaf.value = leaf.path.get(object);
            }
        }
    }
    leaves
}

/// Fields in which tools note things, and fields that must not be removed on behalf of others.
pub(super) fn is_bookkeeping(path: &Path) -> bool {
    let path = path.to_string();
    [
        ".status",
        ".metadata.finalizers",
        ".metadata.ownerReferences",
        ".metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
    ]
    .iter()
    .any(|kept| path.starts_with(kept))
}

/// Whether this is a label or an annotation of a Namespace. Cluster admins set Pod Security, quotas and service meshes
/// with them, so added ones are no drift.
pub(super) fn is_label_of_namespace(id: &ObjectId, path: &Path) -> bool {
    let resource = id.resource();
    if resource.kind != "Namespace" || !resource.group.is_empty() {
        return false;
    }
    let path = path.to_string();
    path.starts_with(".metadata.labels.") || path.starts_with(".metadata.annotations.")
}
