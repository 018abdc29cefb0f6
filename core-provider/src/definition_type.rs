//! The definition of `CompositionDefinition` itself, which Helm makes at the first install and never changes: the core-provider
//! that leads puts a newer edition in the place of an older.

use std::time::Duration;

use api::annotations;
use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use runtime::chain;
use serde_json::json;

use crate::definition::FIELD_MANAGER;

/// How long until a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Renews the definition where it is older than that of this program, and tries until that is done.
pub(crate) async fn keep(cluster: &Cluster) {
    while let Err(error) = renew(cluster).await {
        tracing::warn!(
            error = chain(&error),
            "could not renew the definition of CompositionDefinition"
        );
        if !error.is_transient() && !error.is_conflict() && !error.is_forbidden() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The same once. One that is as new, or newer, stays as it is: an older core-provider may lead while a newer one takes over.
async fn renew(cluster: &Cluster) -> Result<(), cluster::Error> {
    let wanted = api::definition::crd();
    let id =
        ObjectId::of::<CustomResourceDefinition>(None, wanted.metadata.name.as_deref().unwrap_or_default())?;
    let live = cluster.get_metadata(&id).await?;
    if live
        .as_ref()
        .is_some_and(|live| edition(live) >= api::definition::EDITION)
    {
        return Ok(());
    }
    let mut wanted = json!(wanted);
    if let Some(version) = live.and_then(|live| live.metadata.resource_version) {
        wanted["metadata"]["resourceVersion"] = version.into();
    }
    cluster
        .apply(&id, &wanted, &Apply::by(FIELD_MANAGER).force())
        .await?;
    tracing::info!(
        edition = api::definition::EDITION,
        "renewed the definition of CompositionDefinition"
    );
    Ok(())
}

/// The edition of a live definition. The first ones had none; what is no number is not ours to judge.
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
    async fn an_older_edition_is_renewed() {
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
            renew(&script.cluster()).await.unwrap();
            script.finish();
        }
    }

    #[tokio::test]
    async fn the_same_edition_a_newer_one_and_an_unknown_one_stay() {
        for edition in [
            api::definition::EDITION.to_string(),
            "99".to_owned(),
            "mine".to_owned(),
        ] {
            let script = Script::new("not older").get(DEFINITION, live(Some(&edition)));
            renew(&script.cluster()).await.unwrap();
            script.finish();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_changed_in_between_is_looked_at_again() {
        let script = Script::new("a conflict, then a newer one")
            .get(DEFINITION, live(None))
            .refuse(Method::PATCH, DEFINITION, 409, "Conflict", "modified")
            .get(DEFINITION, live(Some("99")));
        keep(&script.cluster()).await;
        script.finish();
    }
}
