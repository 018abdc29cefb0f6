//! The CRDs of our own types, created where they are needed.

use std::time::Duration;

use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::field_manager::FIELD_MANAGER;

/// How many times a write is attempted if there is no answer.
const ATTEMPTS: u32 = 5;

/// How long a type may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(20);

/// Creates a CRD, or updates it to this program's version, and waits until its type is served. One that is up to date
/// is not written.
///
/// # Errors
/// If the API server refuses it, or gives no answer five times.
pub(crate) async fn ensure(cluster: &Cluster, crd: &CustomResourceDefinition) -> Result<(), cluster::Error> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let id = ObjectId::of::<CustomResourceDefinition>(None, &name)?;
    let mut object = json!(crd);
    object["apiVersion"] = json!("apiextensions.k8s.io/v1");
    object["kind"] = json!("CustomResourceDefinition");
    let mut attempt = 1;
    loop {
        let how = Apply::by(FIELD_MANAGER).force();
        match cluster.apply(&id, &object, &how).await {
            Ok(_) => break,
            Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(200) * attempt).await;
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
    let version = crd.spec.versions.first().map(|version| version.name.clone());
    let gvk = kube::core::GroupVersionKind::gvk(
        &crd.spec.group,
        &version.unwrap_or_default(),
        &crd.spec.names.kind,
    );
    cluster
        .discovery()
        .wait_until_served(&gvk, SERVED_WITHIN)
        .await
        .map(drop)
}
