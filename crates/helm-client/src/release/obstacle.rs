//! Fields of others that prevent an apply.
//!
//! Server-side apply merges what we set with what others set. In a list whose items have keys, or where one field
//! excludes another, the server may refuse the result although the manifest is valid: two ports of one name, a
//! variable with a value and a source, a `rollingUpdate` with the strategy `Recreate`. We take over the fields that
//! cause this, so that the next apply, which does not name them, drops them.

use std::collections::HashSet;

use cluster::fields::{self, Path};
use cluster::{Cluster, ObjectId};
use serde_json::Value;

use super::managers::{is_bookkeeping, is_hand};
use super::{conflict, migrate};
use crate::records::MANAGER;

/// Fields of others that the server refuses together with a manifest.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Obstacles {
    /// Their paths.
    pub(super) paths: Vec<Path>,
    /// True when all of them were set by hand.
    by_hand: bool,
}

impl Obstacles {
    /// Fields at or next to those that the server refused, which others own in the live object and the manifest does
    /// not set: those set by hand; if there are none and fields exclude each other, those of any manager.
    pub(super) fn of(refused: &cluster::Error, manifest: &Value, live: &Value) -> Self {
        let causes = refused.causes();
        let scopes = |is_of: fn(&str) -> bool| -> Vec<Vec<&str>> {
            let causes = causes.iter().filter(|cause| is_of(&cause.reason));
            causes.filter_map(|cause| scope(&cause.field)).collect()
        };
        let paths = held(&scopes(|_| true), is_hand, manifest, live);
        if !paths.is_empty() {
            let by_hand = true;
            return Self { paths, by_hand };
        }
        Self {
            paths: held(&scopes(excludes), is_other, manifest, live),
            by_hand: false,
        }
    }

    /// Takes them over.
    ///
    /// # Errors
    /// When the server refuses; transient when somebody else wrote since the object was read.
    pub(super) async fn take_over(
        &self,
        cluster: &Cluster,
        id: &ObjectId,
        live: &Value,
    ) -> Result<(), cluster::Error> {
        let paths: Vec<&Path> = self.paths.iter().collect();
        let is_from = if self.by_hand { is_hand } else { is_other };
        tracing::info!(object = %id, "taking over {}", told(&self.paths));
        migrate::take_over(cluster, id, live, is_from, &paths).await
    }
}

fn is_other(manager: &str) -> bool {
    manager != MANAGER
}

/// True for refusals of one field because of another.
fn excludes(reason: &str) -> bool {
    matches!(reason, "FieldValueDuplicate" | "FieldValueForbidden")
}

fn held(scopes: &[Vec<&str>], is_from: fn(&str) -> bool, manifest: &Value, live: &Value) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    let mut known: HashSet<Path> = HashSet::new();
    for entry in fields::entries(live).filter(|entry| entry.subresource.is_empty() && is_from(entry.manager))
    {
        for leaf in entry.leaves(live).into_iter().filter(|leaf| leaf.value.is_some()) {
            let names = leaf.path.names();
            let is_near = scopes.iter().any(|scope| names.starts_with(scope));
            let is_theirs =
                || !conflict::sets(manifest, &leaf.path.to_string()) && !is_bookkeeping(&leaf.path);
            if is_near && is_theirs() && known.insert(leaf.path.clone()) {
                paths.push(leaf.path);
            }
        }
    }
    paths
}

/// The names on the path to what contains a refused field (`spec.ports[1].name` to `spec`, `ports`); for a field
/// directly below the top, to the field itself, since the whole object contains it. List indices are left out: they
/// refer to the merged object, which we do not have.
fn scope(refused: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in refused.char_indices() {
        if depth == 0 && matches!(c, '.' | '[') {
            names.push(&refused[start..at]);
        }
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, '.' | ']') {
            start = at + 1;
        }
    }
    names.push(&refused[start..]);
    names.retain(|name| !name.is_empty());
    if names.len() > 2 {
        names.pop();
    }
    (names.len() > 1).then_some(names)
}

fn told(paths: &[Path]) -> String {
    paths.iter().map(Path::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_a_refused_field_is_looked_through() {
        for (refused, expected) in [
            ("spec.ports[1].name", Some(vec!["spec", "ports"])),
            ("spec.strategy.rollingUpdate", Some(vec!["spec", "strategy"])),
            (
                "spec.template.spec.containers[0].env[2].valueFrom",
                Some(vec!["spec", "template", "spec", "containers", "env"]),
            ),
            ("spec.selector", Some(vec!["spec", "selector"])),
            ("data[a.b]", None),
            ("spec", None),
            ("", None),
        ] {
            assert_eq!(scope(refused), expected, "{refused}");
        }
    }
}
