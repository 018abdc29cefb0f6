//! The compositions of a type, and which of them a definition has to move or remove.

use std::collections::BTreeSet;

use api::{COMPOSITION_GROUP, finalizers, labels};
use cluster::{Cluster, Item, ObjectId, ResourceId, Selector};
use crdgen::CustomResourceDefinition;
use crdgen::conversion::{Conversion, KEPT};
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// A composition without its spec: hundreds of specs may not fit into memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Instance {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The version in its label, which also determines its controller.
    pub(super) version: Option<String>,
    /// The definition that its labels name, as (namespace, name).
    pub(super) definition: Option<(String, String)>,
    /// True while it has a controller's finalizer.
    pub(super) held: bool,
    pub(super) deleting: bool,
    /// The chart version of its release.
    pub(super) released: Option<String>,
}

/// The spec of a composition, while it is being checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub(super) value: Value,
    /// True when the spec could not be read.
    pub(super) is_unreadable: bool,
    /// The version that the spec is in: that of the list request.
    pub(super) shown: String,
    /// The annotation with fields that have no place in that version.
    pub(super) kept: Option<String>,
}

impl Spec {
    /// Converts the spec to another version, after calling `own` with it in the composition's own version (`labelled`).
    pub(super) fn in_version(
        self,
        version: &str,
        labelled: Option<&str>,
        conversion: Option<&Conversion>,
        own: impl Fn(&mut Value),
    ) -> Value {
        let mut object = json!({
            "apiVersion": format!("{COMPOSITION_GROUP}/{}", self.shown), "metadata": {},
        });
        object["spec"] = self.value;
        if let Some(kept) = self.kept {
            object["metadata"]["annotations"] = json!({ KEPT: kept });
        }
        // A label with an unknown version is ignored.
        let convert = |object: &mut Value, version: &str| {
            if let Some(conversion) = conversion {
                let _ = conversion.convert(object, version);
            }
        };
        if let Some(label) = labelled {
            convert(&mut object, label);
        }
        own(&mut object["spec"]);
        convert(&mut object, version);
        object["spec"].take()
    }
}

fn read(item: Item<DynamicObject>, shown: &str) -> (Instance, Spec) {
    let (mut object, is_unreadable) = match item {
        Item::Read(object) => (object, false),
        Item::Unreadable(unreadable) => {
            let object = DynamicObject {
                types: unreadable.types,
                metadata: unreadable.metadata,
                data: json!({"status": unreadable.status}),
            };
            (object, true)
        }
    };
    let spec = Spec {
        value: object.data.get_mut("spec").map(Value::take).unwrap_or_default(),
        is_unreadable,
        shown: shown.to_owned(),
        kept: object.annotations().get(KEPT).cloned(),
    };
    let label = |name: &str| object.labels().get(name).cloned();
    let instance = Instance {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        version: label(labels::COMPOSITION_VERSION),
        definition: label(labels::DEFINITION_NAMESPACE).zip(label(labels::DEFINITION_NAME)),
        held: object
            .finalizers()
            .iter()
            .any(|held| held == finalizers::COMPOSITION),
        deleting: object.metadata.deletion_timestamp.is_some(),
        released: object.data["status"]["helmChartVersion"]
            .as_str()
            .map(str::to_owned),
    };
    (instance, spec)
}

impl Instance {
    /// The object's id, through a version of its type.
    pub(super) fn id(&self, resource: &ResourceId) -> Result<ObjectId, cluster::Error> {
        ObjectId::new(resource.clone(), Some(&self.namespace), &self.name)
    }
}

/// The compositions of a type that match a label selector, including those that cannot be parsed. An empty list when
/// the type is not served; `None` while we may not read them.
pub(super) async fn list(
    resource: &ResourceId,
    labels: Option<&str>,
    cluster: &Cluster,
) -> Result<Option<Vec<Instance>>, cluster::Error> {
    let keep = |page: Page| std::future::ready(Ok((page.map(|(instance, _)| instance).collect(), ())));
    let found = list_looking(resource, labels, cluster, keep).await?;
    Ok(found.map(|found| found.into_iter().flat_map(|(instances, ())| instances).collect()))
}

/// A page of a list of compositions, with their specs. Each is parsed when the iterator reaches it: parsed, a page may
/// take many times the memory of its text.
pub(super) type Page = Box<dyn Iterator<Item = (Instance, Spec)> + Send>;

/// The same, page by page, with a function that looks at the specs, which are not kept: at most the text of one page is
/// in memory.
pub(super) async fn list_looking<T, E, F>(
    resource: &ResourceId,
    labels: Option<&str>,
    cluster: &Cluster,
    look: impl Fn(Page) -> F,
) -> Result<Option<Vec<(Vec<Instance>, T)>>, E>
where
    E: From<cluster::Error>,
    F: Future<Output = Result<(Vec<Instance>, T), E>>,
{
    let selector = Selector {
        namespace: None,
        labels,
    };
    let mut pages = cluster.pages(resource, selector);
    let mut found = Vec::new();
    loop {
        let page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(Some(found)),
            Err(error) if error.is_not_found() => return Ok(Some(Vec::new())),
            Err(error) if error.is_forbidden() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let shown = resource.version.clone();
        let page = page.map(move |item| read(item, &shown));
        found.push(look(Box::new(page)).await?);
    }
}

/// The type of compositions, in one of its versions.
pub(super) fn resource(plural: &str, kind: &str, version: &str) -> ResourceId {
    ResourceId {
        group: COMPOSITION_GROUP.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: true,
    }
}

/// The type in any served version other than `except`.
pub(super) fn served_resource(live: &CustomResourceDefinition, except: Option<&str>) -> Option<ResourceId> {
    let names = &live.spec.names;
    crdgen::served_versions(live)
        .find(|version| Some(*version) != except)
        .map(|version| resource(&names.plural, &names.kind, version))
}

/// The id of the type's `CustomResourceDefinition`.
pub(super) fn type_id(plural: &str) -> Result<ObjectId, cluster::Error> {
    ObjectId::of::<CustomResourceDefinition>(None, &format!("{plural}.{COMPOSITION_GROUP}"))
}

/// What is needed to decide which compositions a definition moves to its version.
pub(super) struct Claim {
    /// The definition, as (namespace, name).
    pub(super) definition: (String, String),
    /// Versions that it ran before.
    pub(super) former: BTreeSet<String>,
    /// Versions that other definitions run.
    pub(super) foreign: BTreeSet<String>,
}

impl Claim {
    /// True when a composition of another version has to move to the definition's version.
    ///
    /// It has to if its labels name this definition, or if they name none and the definition ran its version before. If
    /// another definition runs its version, its user has put it there, so it stays.
    pub(super) fn takes(&self, instance: &Instance) -> bool {
        let version = instance.version.as_ref();
        if version.is_some_and(|version| self.foreign.contains(version)) {
            return false;
        }
        match (&instance.definition, version) {
            (Some(definition), _) => *definition == self.definition,
            (None, Some(version)) => self.former.contains(version),
            (None, None) => self.foreign.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;

    use super::*;

    fn instance(version: Option<&str>, definition: Option<&str>) -> Instance {
        Instance {
            namespace: "shop".into(),
            name: "web".into(),
            version: version.map(str::to_owned),
            definition: definition.map(|name| ("defs".into(), name.into())),
            held: true,
            deleting: false,
            released: None,
        }
    }

    fn check(version: Option<&str>, definition: Option<&str>, taken: bool) {
        let claim = Claim {
            definition: ("defs".into(), "mine".into()),
            former: ["v1-0-0".to_owned()].into(),
            foreign: ["v2-0-0".to_owned()].into(),
        };
        assert_eq!(claim.takes(&instance(version, definition)), taken);
    }

    #[test]
    fn a_definition_moves_its_own_compositions_and_those_of_its_former_versions() {
        check(Some("v1-0-0"), Some("mine"), true);
        check(Some("v1-0-0"), None, true);
        check(Some("v0-9-0"), Some("mine"), true);
        check(Some("v0-9-0"), None, false);
        check(Some("v1-0-0"), Some("other"), false);
    }

    #[test]
    fn a_composition_of_another_definitions_version_stays_there() {
        check(Some("v2-0-0"), Some("mine"), false);
        check(Some("v2-0-0"), None, false);
        check(None, None, false);
    }

    #[tokio::test]
    async fn specs_are_read_page_by_page() {
        let webs = resource("webs", "Web", "v1-0-0");
        let url = "/apis/composition.krateo.io/v1-0-0/webs?limit=";
        let web =
            |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        let deep = (0..200).fold(json!({}), |inner, _| json!([inner]));
        let script = Script::new("two pages")
            .get(
                &format!("{url}10"),
                json!({"metadata": {"continue": "next"}, "items": [web("one", json!({"size": 1}))]}),
            )
            .get(
                &format!("{url}50&continue=next"),
                json!({"metadata": {}, "items": [web("two", json!({"size": 2})), web("deep", deep)]}),
            );
        let look = async |page: Page| {
            let look = |(instance, spec): (Instance, Spec)| {
                let looked = (instance.name.clone(), spec.value, spec.is_unreadable);
                (instance, looked)
            };
            let (instances, looked): (Vec<_>, Vec<_>) = page.map(look).unzip();
            Ok::<_, cluster::Error>((instances, looked))
        };
        let found = list_looking(&webs, None, &script.cluster(), look).await;
        let (found, looked): (Vec<_>, Vec<_>) = found.unwrap().unwrap().into_iter().unzip();
        let (found, looked) = (found.concat(), looked.concat());
        script.finish();
        let names: Vec<_> = found.iter().map(|instance| instance.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "deep"]);
        let expected = [
            ("one".to_owned(), json!({"size": 1}), false),
            ("two".to_owned(), json!({"size": 2}), false),
            ("deep".to_owned(), Value::Null, true),
        ];
        assert_eq!(looked, expected);
    }
}
