//! Custom resource definitions, as far as an installer cares: which kind is served as what.

use cluster::{Cluster, Error, ObjectId, ResourceId, Selector};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// Name of the definition that oasgen-provider brings.
const REST_DEFINITIONS: &str = "restdefinitions.ogen.krateo.io";

/// A custom resource definition without its schemas.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Crd {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Names {
    kind: String,
    plural: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Version {
    name: String,
    #[serde(default)]
    served: bool,
}

impl Crd {
    /// Its group.
    pub(super) fn group(&self) -> &str {
        &self.spec.group
    }

    /// Its kind.
    pub(super) fn kind(&self) -> &str {
        &self.spec.names.kind
    }

    /// The versions in which its objects can be asked for.
    pub(super) fn served(&self) -> impl Iterator<Item = &str> {
        self.spec
            .versions
            .iter()
            .filter(|version| version.served)
            .map(|version| version.name.as_str())
    }

    /// The namespace of the release that brought the type, where the type says so: what a chart has in `crds/` does not.
    fn release_namespace(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations
            .get("meta.helm.sh/release-namespace")
            .map(String::as_str)
    }

    /// The type in `version`, or where that is not served in the first that is; none while none is.
    pub(super) fn resource(&self, version: Option<&str>) -> Option<ResourceId> {
        let wanted = self.served().find(|served| Some(*served) == version);
        Some(ResourceId {
            group: self.spec.group.clone(),
            version: wanted.or_else(|| self.served().next())?.to_owned(),
            kind: self.spec.names.kind.clone(),
            plural: self.spec.names.plural.clone(),
            namespaced: self.spec.scope == "Namespaced",
        })
    }
}

/// All of the cluster.
///
/// # Errors
/// When they cannot be listed.
pub(super) async fn all(cluster: &Cluster) -> Result<Vec<Crd>, Error> {
    let resource = ResourceId::of::<CustomResourceDefinition>();
    cluster.list(&resource, Selector::default()).await
}

/// Those of compositions.
///
/// # Errors
/// As [`all`].
pub(super) async fn of_compositions(cluster: &Cluster) -> Result<Vec<Crd>, Error> {
    let mut all = all(cluster).await?;
    all.retain(|crd| crd.group() == api::COMPOSITION_GROUP);
    Ok(all)
}

/// All `RestDefinition`s of the platform in `namespace`; none where the type is not there, or says that it is of a release
/// elsewhere.
///
/// # Errors
/// When they cannot be read.
pub(super) async fn rest_definitions(cluster: &Cluster, namespace: &str) -> Result<Vec<ObjectMeta>, Error> {
    let id = ObjectId::of::<CustomResourceDefinition>(None, REST_DEFINITIONS)?;
    let crd = cluster.get::<Crd>(&id).await?;
    let own = crd.filter(|crd| crd.release_namespace().is_none_or(|of| of == namespace));
    let Some(resource) = own.and_then(|crd| crd.resource(None)) else {
        return Ok(Vec::new());
    };
    let found = cluster
        .map_metadata(&resource, Selector::default(), |object| object.metadata)
        .await;
    match found {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

/// The names of all objects of a type, `namespace/name` each; none where the type is not there any more.
///
/// # Errors
/// When they cannot be read.
pub(super) async fn names(
    cluster: &Cluster,
    resource: &ResourceId,
    namespace: Option<&str>,
) -> Result<Vec<String>, Error> {
    let selector = Selector {
        namespace,
        labels: None,
    };
    let found = cluster
        .map_metadata(resource, selector, |object| full_name(&object.metadata))
        .await;
    match found {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn full_name(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    match &metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
