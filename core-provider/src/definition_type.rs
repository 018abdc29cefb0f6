//! Updates the CRDs of our own types, which Helm creates at the first install and never changes: the leading
//! core-provider replaces an older edition by its own, and creates what an earlier chart did not have.

use std::time::Duration;

use api::annotations;
use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use runtime::chain;
use serde_json::json;

use crate::definition::FIELD_MANAGER;

/// The pause after a failed update.
const AGAIN: Duration = Duration::from_secs(5);

/// Updates the CRDs that are older than this program's, and retries until it succeeds.
pub(crate) async fn keep(cluster: &Cluster) {
    keep_one(api::grant::crd(), api::grant::EDITION, cluster).await;
    keep_one(api::definition::crd(), api::definition::EDITION, cluster).await;
}

async fn keep_one(wanted: CustomResourceDefinition, newest: u32, cluster: &Cluster) {
    while let Err(error) = renew(&wanted, newest, cluster).await {
        tracing::warn!(
            error = chain(&error),
            "could not update the CRD of {}",
            wanted.spec.names.kind
        );
        if !error.is_transient() && !error.is_conflict() && !error.is_forbidden() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The same, once. A CRD of the same or a newer edition stays: an older core-provider may lead while a newer one is
/// rolled out.
async fn renew(
    wanted: &CustomResourceDefinition,
    newest: u32,
    cluster: &Cluster,
) -> Result<(), cluster::Error> {
    let id =
        ObjectId::of::<CustomResourceDefinition>(None, wanted.metadata.name.as_deref().unwrap_or_default())?;
    let live = cluster.get_metadata(&id).await?;
    if live.as_ref().is_some_and(|live| edition(live) >= newest) {
        return Ok(());
    }
    let kind = &wanted.spec.names.kind;
    let mut wanted = json!(wanted);
    if let Some(version) = live.and_then(|live| live.metadata.resource_version) {
        wanted["metadata"]["resourceVersion"] = version.into();
    }
    cluster
        .apply(&id, &wanted, &Apply::by(FIELD_MANAGER).force())
        .await?;
    tracing::info!(edition = newest, "updated the CRD of {kind}");
    Ok(())
}

/// The edition of a live CRD. The first ones had none; an edition that is not a number counts as newer.
fn edition(live: &PartialObjectMeta) -> u32 {
    let annotations = live.metadata.annotations.as_ref();
    let edition = annotations.and_then(|annotations| annotations.get(annotations::EDITION));
    edition.map_or(0, |edition| edition.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;
    use http::Method;
    use serde_json::Value;

    use super::*;

    const DEFINITION: &str =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/compositiondefinitions.core.krateo.io";

    fn live(edition: Option<&str>) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
            "name": "compositiondefinitions.core.krateo.io", "resourceVersion": "7",
            "annotations": edition.map(|edition| json!({"krateo.io/edition": edition})),
        }})
    }

    #[tokio::test]
    async fn an_older_edition_is_updated() {
        for older in [None, Some("0")] {
            let script = Script::new("older").get(DEFINITION, live(older)).on(
                Method::PATCH,
                &format!("{DEFINITION}?fieldManager=core-provider&fieldValidation=Strict&force=true"),
                |sent| {
                    assert_eq!(sent["metadata"]["resourceVersion"], "7");
                    let edition = api::definition::EDITION.to_string();
                    assert_eq!(sent["metadata"]["annotations"]["krateo.io/edition"], edition);
                    assert!(sent["spec"]["versions"].is_array());
                },
                200,
                json!({}),
            );
            renew(
                &api::definition::crd(),
                api::definition::EDITION,
                &script.cluster(),
            )
            .await
            .unwrap();
            script.finish();
        }
    }

    #[tokio::test]
    async fn a_type_that_an_earlier_chart_did_not_have_is_created() {
        const GRANT: &str =
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/chartgrants.kco.krateo.io";
        let script = Script::new("missing").absent(GRANT).on(
            Method::PATCH,
            &format!("{GRANT}?fieldManager=core-provider&fieldValidation=Strict&force=true"),
            |sent| assert!(sent["metadata"]["resourceVersion"].is_null()),
            200,
            json!({}),
        );
        renew(&api::grant::crd(), api::grant::EDITION, &script.cluster())
            .await
            .unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn the_same_edition_a_newer_one_and_an_unknown_one_stay() {
        for edition in [
            api::definition::EDITION.to_string(),
            "99".to_owned(),
            "mine".to_owned(),
        ] {
            let script = Script::new("not older").get(DEFINITION, live(Some(&edition)));
            renew(
                &api::definition::crd(),
                api::definition::EDITION,
                &script.cluster(),
            )
            .await
            .unwrap();
            script.finish();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_causes_another_read() {
        let script = Script::new("a conflict, then a newer one")
            .get(DEFINITION, live(None))
            .refuse(Method::PATCH, DEFINITION, 409, "Conflict", "modified")
            .get(DEFINITION, live(Some("99")));
        keep_one(
            api::definition::crd(),
            api::definition::EDITION,
            &script.cluster(),
        )
        .await;
        script.finish();
    }
}
