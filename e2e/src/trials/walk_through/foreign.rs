//! Third-party kinds of which fireworks-app and its portal widgets create objects, each served by a definition that
//! accepts anything.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{Site, platform};

/// Group, version, kind, plural.
const KINDS: [[&str; 4]; 6] = [
    ["argoproj.io", "v1alpha1", "Application", "applications"],
    ["git.krateo.io", "v1alpha1", "Repo", "repoes"],
    ["github.krateo.io", "v1alpha1", "Repo", "repoes"],
    ["templates.krateo.io", "v1alpha1", "Collection", "collections"],
    ["templates.krateo.io", "v1alpha1", "Widget", "widgets"],
    [
        "resourcetrees.krateo.io",
        "v1",
        "CompositionReference",
        "compositionreferences",
    ],
];

/// Makes the API server serve them.
///
/// # Errors
/// When it refuses one.
pub(super) fn serve(site: &Site) -> Result<()> {
    KINDS
        .iter()
        .try_for_each(|&kind| platform::apply(site, &definition(kind).to_string()))
}

/// The CRD of a kind.
pub(super) fn definition([group, version, kind, plural]: [&str; 4]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            }],
        },
    })
}
