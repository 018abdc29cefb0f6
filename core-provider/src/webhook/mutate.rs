//! Sets the label that names the controller of a composition, if the API server's policy has not.

use std::collections::BTreeMap;

use api::labels::COMPOSITION_VERSION;
use serde_json::{Value, json};

use super::review::{AdmissionRequest, Operation, Verdict};

/// A new composition belongs to the version it was written through, whatever its label says: an exported manifest has
/// the label from the time of the export. A composition that loses its label keeps its old version, since an update may
/// come through any version and must not move it.
pub(super) fn mutate(request: &AdmissionRequest) -> Verdict {
    let labels = request.labels();
    let label = |labels: Option<BTreeMap<String, String>>| labels?.remove(COMPOSITION_VERSION);
    let has_labels = labels.is_some();
    let is_new = request.operation == Operation::Create;
    let labelled = label(labels);
    if labelled.is_some() && !is_new {
        return Verdict::default();
    }
    let through = request.request_kind.as_ref().unwrap_or(&request.kind);
    let version = if is_new {
        Some(through.version.clone()).filter(|version| labelled.as_ref() != Some(version))
    } else {
        label(request.old_labels())
    };
    let patch = version.map(|version| add(has_labels, &version));
    Verdict {
        patch,
        ..Verdict::default()
    }
}

fn add(has_labels: bool, version: &str) -> Value {
    if has_labels {
        let path = format!("/metadata/labels/{}", COMPOSITION_VERSION.replace('/', "~1"));
        json!([{"op": "add", "path": path, "value": version}])
    } else {
        json!([{"op": "add", "path": "/metadata/labels", "value": {COMPOSITION_VERSION: version}}])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operation: &str, new: &Value, old: &Value, patch: Option<&Value>) {
        let request = json!({
            "uid": "u", "operation": operation, "kind": {"version": "v1-0-0", "kind": "Web"},
            "requestKind": {"version": "v2-0-0", "kind": "Web"},
            "object": {"metadata": {"labels": new}}, "oldObject": {"metadata": {"labels": old}},
        });
        let request: AdmissionRequest = serde_json::from_value(request).unwrap();
        assert_eq!(mutate(&request).patch.as_ref(), patch);
    }

    #[test]
    fn a_composition_gets_the_version_it_was_written_through_and_keeps_it() {
        let (none, empty, other) = (Value::Null, json!({}), json!({"a": "b"}));
        let labelled = json!({COMPOSITION_VERSION: "v1-0-0"});
        let into_labels = |version: &str| json!([{"op": "add", "path": "/metadata/labels/krateo.io~1composition-version", "value": version}]);
        let whole =
            json!([{"op": "add", "path": "/metadata/labels", "value": {COMPOSITION_VERSION: "v2-0-0"}}]);
        check("CREATE", &none, &none, Some(&whole));
        check("CREATE", &other, &none, Some(&into_labels("v2-0-0")));
        check("CREATE", &labelled, &none, Some(&into_labels("v2-0-0")));
        check("CREATE", &json!({COMPOSITION_VERSION: "v2-0-0"}), &none, None);
        check("UPDATE", &labelled, &labelled, None);
        check("UPDATE", &empty, &labelled, Some(&into_labels("v1-0-0")));
        check("UPDATE", &empty, &empty, None);
    }
}
