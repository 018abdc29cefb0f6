//! Server-side apply: sends the wanted object and returns what the server made of it.

use http::{Method, StatusCode};
use serde_json::Value;

use crate::read::METADATA_ONLY;
use crate::request::Call;
use crate::{Attempt, Cluster, Error, ObjectId};

/// JSON is YAML, and this is the content type that every supported server reads.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Who applies, and how.
///
/// Unknown and duplicate fields are errors: fields that the server would drop silently are mistakes in the chart that
/// its author should know about.
#[derive(Clone, Copy, Debug)]
pub struct Apply<'a> {
    manager: &'a str,
    force: bool,
    dry_run: bool,
    validation: &'static str,
    metadata_only: bool,
}

impl<'a> Apply<'a> {
    /// Applies as this field manager; fields of other managers are conflicts.
    pub fn by(manager: &'a str) -> Self {
        Self {
            manager,
            force: false,
            dry_run: false,
            validation: "Strict",
            metadata_only: false,
        }
    }

    /// Forces conflicting fields from other managers.
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    /// Changes nothing; the answer is the object as it would be.
    pub fn dry_run(self) -> Self {
        Self {
            dry_run: true,
            ..self
        }
    }

    /// The answer contains only the metadata of the object: for a large one, that costs the server less.
    pub fn metadata_only(self) -> Self {
        Self {
            metadata_only: true,
            ..self
        }
    }

    /// Drops unknown fields instead of refusing the object.
    pub fn lenient(self) -> Self {
        Self {
            validation: "Ignore",
            ..self
        }
    }
}

/// What the server made of an applied object.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The object as it is now, or would be after a dry run.
    pub object: Value,
    /// True when it did not exist before.
    pub created: bool,
}

impl Applied {
    /// The resource version that the server gave the object.
    pub fn resource_version(&self) -> Option<&str> {
        self.object["metadata"]["resourceVersion"].as_str()
    }

    /// The UID of the object, which a successor of the same name does not share.
    pub fn uid(&self) -> Option<&str> {
        self.object["metadata"]["uid"].as_str()
    }

    /// True when the apply wrote something, given the resource version from before.
    ///
    /// An apply that changes nothing keeps the version. A dry run never raises it: compare the objects instead. A
    /// write by somebody else in between counts as a change.
    pub fn changed_since(&self, version: Option<&str>) -> bool {
        self.created || self.resource_version() != version
    }
}

impl Cluster {
    /// Applies an object; it is created if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::Request`]; its [`causes`](Error::causes) are the fields refused by validation or owned by other
    /// managers. When the kind is no longer served, cached discovery is dropped, so that the next attempt asks again.
    pub async fn apply(&self, id: &ObjectId, object: &Value, how: &Apply<'_>) -> Result<Applied, Error> {
        let mut call = Call::new(Method::PATCH, id.path())
            .query("fieldManager", how.manager)
            .query("fieldValidation", how.validation)
            .body(APPLY_PATCH, object);
        if how.force {
            call = call.query("force", "true");
        }
        if how.dry_run {
            call = call.query("dryRun", "All");
        }
        if how.metadata_only {
            call = call.accept(METADATA_ONLY);
        }
        let attempt = if how.dry_run {
            Attempt::DryRun
        } else {
            Attempt::Apply
        };
        let answer = self.about(id, attempt, call).await;
        if answer.as_ref().is_err_and(is_kind_gone) {
            self.discovery().forget();
        }
        let (status, object) = answer?;
        Ok(Applied {
            object,
            created: status == StatusCode::CREATED,
        })
    }
}

/// A 404 for a missing namespace or object names it; one for an unserved path has no details.
fn is_kind_gone(error: &Error) -> bool {
    error.is_not_found()
        && error.status().is_some_and(|status| {
            status
                .details
                .as_ref()
                .is_none_or(|details| details.kind.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;
    use crate::scripted::Script;
    use crate::{Failure, ResourceId};

    const PATH: &str = "/apis/apps/v1/namespaces/shop/deployments/web";

    fn web() -> ObjectId {
        ObjectId::of::<Deployment>(Some("shop"), "web").unwrap()
    }

    fn wanted() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}})
    }

    fn at_version(version: &str) -> Value {
        json!({"metadata": {"name": "web", "uid": "u1", "resourceVersion": version}})
    }

    #[tokio::test]
    async fn applying_tells_creation_change_and_no_change_apart() {
        let url = format!("{PATH}?fieldManager=helm&fieldValidation=Strict");
        let script = Script::new("apply three times")
            .on(
                Method::PATCH,
                &url,
                |sent| assert_eq!(*sent, wanted()),
                201,
                at_version("1"),
            )
            .on(Method::PATCH, &url, |_| {}, 200, at_version("1"))
            .on(
                Method::PATCH,
                &format!("{url}&force=true"),
                |_| {},
                200,
                at_version("2"),
            );
        let cluster = script.cluster();
        let created = cluster
            .apply(&web(), &wanted(), &Apply::by("helm"))
            .await
            .unwrap();
        assert!(created.changed_since(None) && created.created);
        let same = cluster
            .apply(&web(), &wanted(), &Apply::by("helm"))
            .await
            .unwrap();
        assert!(!same.changed_since(created.resource_version()));
        let changed = cluster
            .apply(&web(), &wanted(), &Apply::by("helm").force())
            .await
            .unwrap();
        assert!(changed.changed_since(same.resource_version()) && changed.uid() == Some("u1"));
        script.finish();
    }

    #[tokio::test]
    async fn a_dry_run_says_so_to_the_server() {
        let url = format!("{PATH}?fieldManager=helm&fieldValidation=Ignore&dryRun=All");
        let script = Script::new("dry run").refuse(Method::PATCH, &url, 422, "Invalid", "spec.replicas: no");
        let how = Apply::by("helm").lenient().dry_run();
        let error = script.cluster().apply(&web(), &wanted(), &how).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not dry-run the apply of Deployment.apps shop/web"
        );
        assert!(error.is_invalid() && !error.is_transient());
        script.finish();
    }

    #[tokio::test]
    async fn a_field_that_the_kind_does_not_have_is_a_mistake_not_a_fault() {
        let said = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): .spc: field not declared in schema";
        let script = Script::new("a typing error").refuse(Method::PATCH, PATH, 500, "", said);
        let error = script
            .cluster()
            .apply(&web(), &wanted(), &Apply::by("helm"))
            .await
            .unwrap_err();
        assert!(error.is_invalid() && !error.is_transient());
        script.finish();
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again() {
        let script = Script::new("priority and fairness")
            .refuse(Method::PATCH, PATH, 429, "TooManyRequests", "later")
            .on(
                Method::PATCH,
                PATH,
                |sent| assert_eq!(*sent, wanted()),
                200,
                at_version("1"),
            );
        script
            .cluster()
            .apply(&web(), &wanted(), &Apply::by("helm"))
            .await
            .unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn a_kind_that_is_gone_is_looked_up_anew() {
        let script = Script::new("CRD removed")
            .refuse(
                Method::PATCH,
                PATH,
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
            .refuse(Method::GET, "/api", 503, "ServiceUnavailable", "down");
        let cluster = script.cluster_serving([ResourceId::of::<Deployment>()]);
        assert_eq!(cluster.locate(&wanted(), Some("shop")).await.unwrap(), web());
        assert!(
            cluster
                .apply(&web(), &wanted(), &Apply::by("helm"))
                .await
                .unwrap_err()
                .is_not_found()
        );
        let asked = cluster.locate(&wanted(), Some("shop")).await.unwrap_err();
        assert!(
            matches!(
                &asked,
                Error::Discover {
                    source: Failure::Refused(_)
                }
            ) && asked.is_transient()
        );
        script.finish();
    }
}
