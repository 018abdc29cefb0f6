//! Adds labels to every object of a rendered release, as a post-renderer would.
//!
//! They become part of the stored manifest, so that `helm rollback` and `helm upgrade --reuse-values` keep them.
//! Selectors and pod templates are not changed: labels there decide which pods belong together.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Error;
use crate::json::{self, Meta};

/// The comment in which Helm names the template of a document.
const SOURCE: &str = "# Source: ";

/// A manifest with these labels on every object. Its documents keep their order and the line that names their
/// template; they are serialised again, so comments and the chart's own layout are lost.
///
/// # Errors
/// [`Error::Parse`] when a document is not YAML.
pub(super) fn on_manifest(manifest: &str, labels: &BTreeMap<String, String>) -> Result<String, Error> {
    let mut labelled = String::with_capacity(manifest.len());
    for document in helm::manifest::split(manifest) {
        let (source, text) = match document.split_once('\n') {
            Some((line, text)) if line.starts_with(SOURCE) => (line.trim_end(), text),
            _ => ("", document),
        };
        labelled.push_str("---\n");
        if !source.is_empty() {
            labelled.push_str(source);
            labelled.push('\n');
        }
        let what = source.strip_prefix(SOURCE).unwrap_or("the manifest");
        labelled.push_str(&on_document(text, what, labels)?);
    }
    Ok(labelled)
}

/// One document with these labels on its object, or on the objects of its list.
///
/// # Errors
/// [`Error::Parse`] when it is not YAML.
pub(super) fn on_document(
    text: &str,
    what: &str,
    labels: &BTreeMap<String, String>,
) -> Result<String, Error> {
    let failed = |source: helm::yaml::Error| Error::Parse {
        what: what.to_owned(),
        source: source.into(),
    };
    let mut object = helm::yaml::parse_typed(text.as_bytes()).map_err(failed)?;
    if !object.is_object() {
        // Only comments, or nothing that could have labels; anything but an object is refused when it is applied.
        return Ok(text.to_owned());
    }
    add(&mut object, labels);
    let text = helm::yaml::to_string(&object).map_err(failed)?;
    Ok(format!("{text}\n"))
}

fn add(object: &mut Value, labels: &BTreeMap<String, String>) {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    if let Some(items) = object
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .filter(|_| is_list)
    {
        for item in items {
            add(item, labels);
        }
        return;
    }
    for (key, value) in labels {
        json::set_meta(object, Meta::Labels, key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> BTreeMap<String, String> {
        BTreeMap::from([("krateo.io/composition-id".to_owned(), "42".to_owned())])
    }

    #[test]
    fn every_object_is_labelled_and_nothing_else_is() {
        let manifest = "---\n# Source: c/templates/a.yaml\n# why\nkind: Deployment\nmetadata: {name: a, labels: {app: a}}\n\
                        spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}}}\n---\n\
                        # Source: c/templates/b.yaml\nkind: List\nitems:\n- kind: ConfigMap\n  data: {on: \"yes\"}\n\
                        - kind: Secret\n---\n# Source: c/templates/c.yaml\n# nothing here\n";
        let expected = "---\n# Source: c/templates/a.yaml\nkind: Deployment\nmetadata:\n  labels:\n    app: a\n    \
                        krateo.io/composition-id: \"42\"\n  name: a\nspec:\n  selector:\n    matchLabels:\n      app: a\n  \
                        template:\n    metadata:\n      labels:\n        app: a\n---\n# Source: c/templates/b.yaml\nitems:\n\
                        - data:\n    \"true\": \"yes\"\n  kind: ConfigMap\n  metadata:\n    labels:\n      \
                        krateo.io/composition-id: \"42\"\n- kind: Secret\n  metadata:\n    labels:\n      \
                        krateo.io/composition-id: \"42\"\nkind: List\n---\n# Source: c/templates/c.yaml\n# nothing here\n";
        let labelled = on_manifest(manifest, &labels()).unwrap();
        assert_eq!(labelled, expected);
        // Labelling twice changes nothing, so that an unchanged release stays unchanged.
        assert_eq!(on_manifest(&labelled, &labels()).unwrap(), labelled);
    }

    #[test]
    fn a_document_that_is_no_yaml_is_named() {
        let failure = on_manifest("---\n# Source: c/templates/a.yaml\na: [\n", &labels()).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "could not read a document of c/templates/a.yaml"
        );
    }
}
