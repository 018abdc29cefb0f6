//! How other programs find the bound of a composition's controller.

use std::sync::Arc;

use api::annotations;
use chart_bound::Bound;
use chart_bound::{BuiltIn, Kinds, ResourceMapping, grants_policy};
use cluster::{Cluster, ObjectId, Served};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

/// The bound in the annotation of the controller's policy; none when there is no such policy.
///
/// A policy is cluster-scoped, and only core-provider writes those of controllers, so no tenant can forge it.
///
/// # Errors
/// When the policy cannot be read.
pub async fn noted_bound(
    cluster: &Cluster,
    plural: &str,
    version: &str,
) -> Result<Option<Bound>, cluster::Error> {
    let id = ObjectId::of::<ValidatingAdmissionPolicy>(None, &grants_policy(plural, version))?;
    let policy = cluster.get_metadata(&id).await?;
    let policy = policy.and_then(|policy| policy.metadata.annotations);
    let noted = policy.as_ref().and_then(|found| found.get(annotations::BOUND));
    Ok(noted.map(|text| Bound::of_annotation(text)))
}

/// The kinds that the cluster serves, and those that every Kubernetes serves.
pub struct ServedKinds(pub Arc<Served>);

impl Kinds for ServedKinds {
    fn kind(&self, group: &str, kind: &str) -> Option<ResourceMapping> {
        let served = self.0.preferred(group, kind).map(|served| ResourceMapping {
            plural: served.id.plural.clone(),
            namespaced: served.id.namespaced,
        });
        served.or_else(|| BuiltIn.kind(group, kind))
    }

    fn is_namespaced(&self, group: &str, plural: &str) -> Option<bool> {
        let served = self
            .0
            .resources()
            .find(|served| served.id.group == group && served.id.plural == plural);
        served
            .map(|served| served.id.namespaced)
            .or_else(|| BuiltIn.is_namespaced(group, plural))
    }
}
