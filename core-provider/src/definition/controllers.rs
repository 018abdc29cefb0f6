//! The controllers that are deployed, found by the ServiceAccount that each bundle begins and ends with.
//!
//! The ServiceAccount is applied before anything else and removed after everything else, so whoever finds it has
//! found all that may be there of a controller, also after an interruption at any write.

use api::{CompositionDefinition, labels};
use cluster::{Cluster, ResourceId, Selector};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

/// One deployed controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Controller {
    /// Plural resource name of the type that it serves.
    pub(super) resource: String,
    /// Version of the type that it serves.
    pub(super) version: String,
    /// Where it runs: in its definition's namespace, or in the platform's own when that goes.
    pub(super) namespace: String,
    /// The definition that it was deployed for.
    pub(super) owner: Owner,
}

/// A definition as labels name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Owner {
    /// The labels' values for a definition.
    pub(super) fn of(definition: &CompositionDefinition) -> Self {
        Self {
            namespace: labels::value(&definition.namespace().unwrap_or_default()),
            name: labels::value(&definition.name_any()),
        }
    }
}

/// All controllers of all definitions.
pub(super) async fn all(cluster: &Cluster) -> Result<Vec<Controller>, cluster::Error> {
    let selector = Selector {
        namespace: None,
        labels: Some(labels::CONTROLLER_RESOURCE),
    };
    let markers: Vec<PartialObjectMeta> = cluster
        .list(&ResourceId::of::<ServiceAccount>(), selector)
        .await?;
    Ok(markers.iter().filter_map(read).collect())
}

fn read(marker: &PartialObjectMeta) -> Option<Controller> {
    let label = |name: &str| marker.labels().get(name).cloned();
    Some(Controller {
        resource: label(labels::CONTROLLER_RESOURCE)?,
        version: label(labels::CONTROLLER_VERSION)?,
        namespace: marker.namespace()?,
        owner: Owner {
            namespace: label(labels::DEFINITION_NAMESPACE)?,
            name: label(labels::DEFINITION_NAME)?,
        },
    })
}
