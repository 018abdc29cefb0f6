//! Parses manifests into objects and finds their API paths.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{Cluster, ObjectId, ResourceId};
use serde_json::Value;

use super::{Desired, Error, UnservedType};
use crate::records::Record;

/// How many requests for objects of one release run at the same time.
pub(super) const AT_ONCE: usize = 8;

/// An object of a release and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) reference: ObjectRef,
    /// The object as in the manifest.
    pub(super) manifest: Value,
    /// True when only a foreign record names it.
    pub(super) is_claimed: bool,
    /// True when the manifest is for a version of its type that is no longer served, so that the served one may
    /// refuse it unchanged.
    pub(super) is_outdated: bool,
}

/// Where an object belongs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ObjectRef {
    Named(ObjectId),
    /// The server generates the name (`generateName`).
    Unnamed {
        resource: ResourceId,
        namespace: Option<String>,
    },
}

/// Identifies an object across revisions: everything except the API version.
pub(super) type Identity<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

impl Target {
    pub(super) fn id(&self) -> Option<&ObjectId> {
        match &self.reference {
            ObjectRef::Named(id) => Some(id),
            ObjectRef::Unnamed { .. } => None,
        }
    }

    pub(super) fn kind(&self) -> &str {
        match &self.reference {
            ObjectRef::Named(id) => &id.resource().kind,
            ObjectRef::Unnamed { resource, .. } => &resource.kind,
        }
    }

    pub(super) fn identity(&self) -> Option<Identity<'_>> {
        self.id().map(identity)
    }
}

/// The identity of this object.
pub(super) fn identity(id: &ObjectId) -> Identity<'_> {
    (
        &id.resource().group,
        &id.resource().kind,
        id.namespace(),
        id.name(),
    )
}

/// The objects of a manifest, with lists flattened, and without comments and empty documents.
///
/// # Errors
/// [`Error::Parse`] when a document is not YAML or not an object.
pub(super) fn parse(manifest: &str, what: &str) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for document in helm::manifest::split(manifest) {
        let object = helm::yaml::parse_typed(document.as_bytes()).map_err(|source| Error::Parse {
            what: what.to_owned(),
            source: source.into(),
        })?;
        match object {
            Value::Null => {}
            Value::Object(ref fields) if fields.is_empty() => {}
            Value::Object(_) => flatten(object, &mut objects),
            _ => {
                return Err(Error::Parse {
                    what: what.to_owned(),
                    source: "it is no object".into(),
                });
            }
        }
    }
    Ok(objects)
}

/// How many lines and items of lists and maps a manifest in a foreign record may have: far more than any chart
/// renders.
const MAX_PARTS: usize = 200_000;

/// Those of the objects that the desired release has exactly as the deployed revision, once, and in no hook, apart from the
/// release's own labels. None if somebody else wrote the revision.
pub fn same_objects<'o>(desired: &Desired, deployed: &Record, objects: &'o [ObjectId]) -> Vec<&'o ObjectId> {
    let parsed = |manifest: &str| parse(manifest, "manifest").unwrap_or_default();
    if !deployed.is_authentic() {
        return Vec::new();
    }
    let (mut wanted, found) = (parsed(&desired.manifest), parsed(&deployed.release.manifest));
    for hook in &desired.hooks {
        wanted.extend(parsed(&hook.manifest));
    }
    let of = |all: &[Value], id: &ObjectId| {
        let mut objects = all.iter().filter(|object| is_of(object, id, &desired.namespace));
        let only = objects.next().filter(|_| objects.next().is_none());
        only.cloned()
            .map(|object| without_labels(object, &desired.labels))
    };
    let is_same = |id: &&ObjectId| of(&wanted, id).is_some_and(|wanted| of(&found, id) == Some(wanted));
    objects.iter().filter(is_same).collect()
}

/// Whether a manifest is that of an object, in a release in this namespace.
fn is_of(manifest: &Value, id: &ObjectId, namespace: &str) -> bool {
    let metadata = &manifest["metadata"];
    let own = metadata["namespace"]
        .as_str()
        .filter(|own| !own.is_empty())
        .unwrap_or(namespace);
    manifest["kind"] == id.resource().kind.as_str()
        && manifest["apiVersion"].as_str().map(group) == Some(&*id.resource().group)
        && metadata["name"] == id.name()
        && id.namespace().is_none_or(|namespace| namespace == own)
}

fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

fn without_labels(mut object: Value, without: &BTreeMap<String, String>) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut()
        && let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut)
    {
        labels.retain(|label, _| !without.contains_key(label));
        // A revision that we signed and somebody else made has no labels of ours.
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    object
}

/// The same for a manifest that anybody may have written.
///
/// # Errors
/// Those of [`parse`], and when it would take more memory than any chart's manifest does.
pub(super) fn parse_claimed(manifest: &str, what: &str) -> Result<Vec<Value>, Error> {
    let is_part = |byte: &&u8| matches!(byte, b'\n' | b',' | b'[' | b'{');
    if manifest.as_bytes().iter().filter(is_part).count() > MAX_PARTS {
        return Err(Error::Parse {
            what: what.to_owned(),
            source: format!("it has more than {MAX_PARTS} lines and items").into(),
        });
    }
    parse(manifest, what)
}

/// Flattens lists that charts write as one document, as Helm does when it sends them.
fn flatten(mut object: Value, into: &mut Vec<Value>) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let (Some(item_kind), Some(Value::Array(items))) = (
        kind.strip_suffix("List"),
        object.get_mut("items").map(Value::take),
    ) else {
        into.push(object);
        return;
    };
    for mut item in items {
        if item.is_object() && !item_kind.is_empty() {
            // Items of a typed list may omit what the list says.
            if item.get("kind").is_none() {
                item["kind"] = Value::from(item_kind);
            }
            if item.get("apiVersion").is_none() {
                item["apiVersion"] = object["apiVersion"].clone();
            }
        }
        flatten(item, into);
    }
}

/// Once a type is not served, the maximum age of discovery data for the types of further objects.
const ASKED_JUST_NOW: Duration = Duration::from_secs(10);

/// Locates objects that are to be written, in order; `defined` are kinds that the release's own CRDs will add.
///
/// # Errors
/// [`Error::Unserved`] with all types that the cluster does not serve, [`Error::Locate`] when an object has no API
/// path.
pub(super) async fn locate(
    cluster: &Cluster,
    objects: Vec<Value>,
    namespace: &str,
    defined: &[ResourceId],
) -> Result<Vec<Target>, Error> {
    let mut targets = Vec::with_capacity(objects.len());
    let mut unserved: Option<(String, Vec<UnservedType>)> = None;
    for manifest in objects {
        let is_kind = |resource: &&ResourceId| {
            manifest["kind"] == resource.kind.as_str()
                && manifest["apiVersion"] == resource.api_version().as_str()
        };
        let resource = match defined.iter().find(is_kind) {
            Some(resource) => Ok(resource.clone()),
            None if unserved.is_some() => {
                cluster
                    .discovery()
                    .resource_of_within(&manifest, ASKED_JUST_NOW)
                    .await
            }
            None => cluster.discovery().resource_of(&manifest).await,
        };
        if let Err(cluster::Error::UnknownKind { api_version, kind }) = &resource
            && !api_version.is_empty()
            && !kind.is_empty()
        {
            let (_, types) = unserved.get_or_insert_with(|| (named(&manifest), Vec::new()));
            let missing = UnservedType {
                api_version: api_version.clone(),
                kind: kind.clone(),
            };
            if !types.contains(&missing) {
                types.push(missing);
            }
            continue;
        }
        let reference = resource.and_then(|resource| reference(resource, &manifest, namespace));
        let reference = reference.map_err(|source| Error::Locate {
            object: named(&manifest),
            source: Box::new(source),
        })?;
        targets.push(Target {
            reference,
            manifest,
            is_claimed: false,
            is_outdated: false,
        });
    }
    match unserved {
        Some((object, types)) => Err(Error::Unserved { object, types }),
        None => Ok(targets),
    }
}

/// Locates objects that an earlier revision wrote and that may still exist.
///
/// An API version that is no longer served is replaced by the one that is; a kind that is not served at all has no
/// objects, and an object without a name cannot be found again.
///
/// # Errors
/// [`Error::Locate`] when discovery fails.
pub(super) async fn locate_earlier(
    cluster: &Cluster,
    objects: Vec<Value>,
    namespace: &str,
) -> Result<Vec<Target>, Error> {
    let mut targets = Vec::with_capacity(objects.len());
    for mut manifest in objects {
        let failed = |source| Error::Locate {
            object: named(&manifest),
            source: Box::new(source),
        };
        let resource = match cluster.discovery().resource_of(&manifest).await {
            Ok(resource) => resource,
            Err(cluster::Error::UnknownKind { api_version, kind }) => {
                let group = api_version.split_once('/').map_or("", |(group, _)| group);
                let served = cluster
                    .discovery()
                    .served(std::time::Duration::MAX)
                    .await
                    .map_err(failed)?;
                match served.preferred(group, &kind) {
                    Some(served) => served.id.clone(),
                    None => continue,
                }
            }
            Err(source) => return Err(failed(source)),
        };
        let is_outdated = manifest["apiVersion"] != resource.api_version().as_str();
        manifest["apiVersion"] = Value::from(resource.api_version());
        if let Ok(reference @ ObjectRef::Named(_)) = reference(resource, &manifest, namespace) {
            targets.push(Target {
                reference,
                manifest,
                is_claimed: false,
                is_outdated,
            });
        }
    }
    Ok(targets)
}

fn reference(resource: ResourceId, manifest: &Value, namespace: &str) -> Result<ObjectRef, cluster::Error> {
    let metadata = |key: &str| manifest["metadata"][key].as_str().filter(|text| !text.is_empty());
    if metadata("name").is_none() && metadata("generateName").is_some() {
        let namespace = resource
            .namespaced
            .then(|| metadata("namespace").unwrap_or(namespace).to_owned());
        return Ok(ObjectRef::Unnamed { resource, namespace });
    }
    ObjectId::in_manifest(resource, manifest, Some(namespace)).map(ObjectRef::Named)
}

/// A description of an object, before it is located.
fn named(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{} {:?} ({})",
        text(&manifest["kind"]),
        text(&manifest["metadata"]["name"]),
        text(&manifest["apiVersion"])
    )
}

/// The kinds that custom resource definitions define.
pub(super) fn defined_by(crds: &[Value]) -> Vec<ResourceId> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = |crd: &Value| crd["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let mut defined = Vec::new();
    for crd in crds {
        let spec = &crd["spec"];
        for version in versions(crd).iter().filter(|version| version["served"] != false) {
            defined.push(ResourceId {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                kind: text(&spec["names"]["kind"]),
                plural: text(&spec["names"]["plural"]),
                namespaced: spec["scope"] == "Namespaced",
            });
        }
    }
    defined
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_is_taken_apart() {
        let manifest = "---\n# Source: c/templates/a.yaml\nkind: A\n---\n# Source: c/templates/b.yaml\n# nothing\n---\n\
                        apiVersion: v1\nkind: List\nitems:\n- kind: B\n- {kind: CList, apiVersion: c/v1, items: [{metadata: {name: x}}]}\n---\n{}\n";
        let objects = parse(manifest, "the manifest").unwrap();
        assert_eq!(
            objects,
            [
                json!({"kind": "A"}),
                json!({"kind": "B"}),
                json!({"kind": "C", "apiVersion": "c/v1", "metadata": {"name": "x"}}),
            ]
        );
        let no_object = parse("- a\n", "the manifest").unwrap_err();
        assert_eq!(no_object.to_string(), "could not read a document of the manifest");
    }

    #[test]
    fn a_definition_adds_its_served_versions() {
        let crd = json!({"spec": {
            "group": "g.io", "scope": "Namespaced", "names": {"kind": "Shop", "plural": "shops"},
            "versions": [{"name": "v1", "served": true}, {"name": "v0", "served": false}],
        }});
        let defined = defined_by(&[crd]);
        let names: Vec<_> = defined
            .iter()
            .map(|kind| format!("{} {}", kind.api_version(), kind.plural))
            .collect();
        assert_eq!(names, ["g.io/v1 shops"]);
        assert!(defined[0].namespaced);
    }
}
