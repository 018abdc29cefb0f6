//! Custom resource definitions, reduced to what an installer needs: kinds and their served versions.

use cluster::{Cluster, Error, ObjectId, ResourceId, Selector};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

/// Name of the CRD that oasgen-provider installs.
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
    /// Its API group.
    pub(super) fn group(&self) -> &str {
        &self.spec.group
    }

    /// Its kind.
    pub(super) fn kind(&self) -> &str {
        &self.spec.names.kind
    }

    /// Its served versions.
    pub(super) fn served(&self) -> impl Iterator<Item = &str> {
        self.spec
            .versions
            .iter()
            .filter(|version| version.served)
            .map(|version| version.name.as_str())
    }

    /// The namespace of the release that installed the type, if the type names it: types from a chart's `crds/` do not.
    fn release_namespace(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations
            .get("meta.helm.sh/release-namespace")
            .map(String::as_str)
    }

    /// The type in `version`, or else in the first served version; none if no version is served.
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

/// All CRDs of the cluster.
///
/// # Errors
/// If they cannot be listed.
pub(super) async fn all(cluster: &Cluster) -> Result<Vec<Crd>, Error> {
    let resource = ResourceId::of::<CustomResourceDefinition>();
    cluster.list(&resource, Selector::default()).await
}

/// The CRDs of compositions.
///
/// # Errors
/// See [`all`].
pub(super) async fn of_compositions(cluster: &Cluster) -> Result<Vec<Crd>, Error> {
    let mut all = all(cluster).await?;
    all.retain(|crd| crd.group() == api::COMPOSITION_GROUP);
    Ok(all)
}

/// All `RestDefinition`s of the platform in `namespace`; empty if the type does not exist, or names a release in
/// another namespace.
///
/// # Errors
/// If they cannot be read.
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

/// The names of all objects of a type, each as `namespace/name`; empty if the type no longer exists.
///
/// # Errors
/// If they cannot be read.
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

/// `namespace/name`, or only the name of a cluster-scoped object.
pub(super) fn full_name(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    match &metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
