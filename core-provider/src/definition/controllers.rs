//! Finds the deployed controllers by their mark: the role that each bundle begins and ends with.
//!
//! The mark is applied before all other objects and removed after them, so it finds every controller of which an object
//! may exist, even after an interruption at any write. It is a `ClusterRole`: tenants can neither create nor delete
//! one, and the policy `-bundles` refuses its controller every write to one. Labels of namespaced objects are not used, because
//! tenants could have written them.

use api::{CompositionDefinition, labels};
use cluster::{Cluster, ResourceId, Selector};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

use crate::bundle::MARK_SUFFIX;

/// One deployed controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Controller {
    /// Plural resource name of the type that it serves.
    pub(super) resource: String,
    /// Version of the type that it serves.
    pub(super) version: String,
    /// The namespace it runs in. Earlier releases did not record it: then it is its definition's namespace, or the
    /// platform's.
    pub(super) namespace: Option<String>,
    /// The definition that it was deployed for.
    pub(super) owner: Owner,
}

impl Controller {
    /// True for the controller of this version of a type.
    pub(super) fn serves(&self, resource: &str, version: &str) -> bool {
        self.resource == resource && self.version == version
    }
}

/// A definition as named in labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Owner {
    /// The label values for a definition.
    pub(super) fn of(definition: &CompositionDefinition) -> Self {
        Self {
            namespace: labels::value(&definition.namespace().unwrap_or_default()),
            name: labels::value(&definition.name_any()),
        }
    }

    /// The definition that an object of a bundle was created for.
    pub(super) fn of_object(object: &PartialObjectMeta) -> Option<Self> {
        let label = |name: &str| object.labels().get(name).cloned();
        Some(Self {
            namespace: label(labels::DEFINITION_NAMESPACE)?,
            name: label(labels::DEFINITION_NAME)?,
        })
    }
}

/// All controllers of all definitions.
pub(super) async fn all(cluster: &Cluster) -> Result<Vec<Controller>, cluster::Error> {
    let selector = Selector {
        namespace: None,
        labels: Some(labels::CONTROLLER_RESOURCE),
    };
    let roles = cluster
        .list_metadata(&ResourceId::of::<ClusterRole>(), selector)
        .await?;
    Ok(roles.iter().filter_map(read).collect())
}

/// A role counts as a mark only under the name that its labels imply.
fn read(role: &PartialObjectMeta) -> Option<Controller> {
    let label = |name: &str| role.labels().get(name).cloned();
    let (resource, version) = (
        label(labels::CONTROLLER_RESOURCE)?,
        label(labels::CONTROLLER_VERSION)?,
    );
    let is_mark = role.name_any() == format!("{resource}-{version}{MARK_SUFFIX}");
    is_mark.then_some(Controller {
        resource,
        version,
        namespace: label(labels::CONTROLLER_NAMESPACE),
        owner: Owner::of_object(role)?,
    })
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use kube::core::ObjectMeta;

    use super::*;

    fn role(name: &str, labels: &[(&str, &str)]) -> PartialObjectMeta {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        };
        PartialObjectMeta {
            types: None,
            metadata,
            _phantom: PhantomData,
        }
    }

    #[test]
    fn a_role_marks_a_controller_only_under_its_expected_name() {
        let labels = [
            (labels::CONTROLLER_RESOURCE, "webs"),
            (labels::CONTROLLER_VERSION, "v1-0-0"),
            (labels::DEFINITION_NAMESPACE, "defs"),
            (labels::DEFINITION_NAME, "web"),
        ];
        let found = read(&role("webs-v1-0-0-provider", &labels)).unwrap();
        assert!(found.serves("webs", "v1-0-0"));
        assert_eq!(found.namespace, None, "made by an earlier release");
        assert_eq!(
            (found.owner.namespace.as_str(), found.owner.name.as_str()),
            ("defs", "web")
        );

        assert_eq!(
            read(&role("webs-v1-0-0", &labels)),
            None,
            "another role of the bundle"
        );
        assert_eq!(
            read(&role("shops-v1-0-0-provider", &labels)),
            None,
            "another controller's"
        );
        assert_eq!(
            read(&role("webs-v1-0-0-provider", &labels[..3])),
            None,
            "nobody's"
        );

        let placed = [&labels[..], &[(labels::CONTROLLER_NAMESPACE, "krateo")]].concat();
        let found = read(&role("webs-v1-0-0-provider", &placed)).unwrap();
        assert_eq!(found.namespace.as_deref(), Some("krateo"));
    }
}
