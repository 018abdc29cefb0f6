//! Checks permissions with the API server, and waits until a grant takes effect.

use std::fmt;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::request::Call;
use crate::{Cluster, Error, ResourceId};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// How many access reviews run at a time, so that other requests are not crowded out.
const PARALLEL: usize = 8;

/// An action that somebody may or may not be allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// Verb, such as `patch`.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, such as `status`.
    pub subresource: Option<String>,
    /// Namespace; `None` for cluster-scoped resources and for all namespaces.
    pub namespace: Option<String>,
    /// Name of one object; `None` for all.
    pub name: Option<String>,
}

impl Access {
    /// A verb on all objects of a kind, in one namespace or in all.
    pub fn to(verb: &str, resource: &ResourceId, namespace: Option<&str>) -> Self {
        Self {
            verb: verb.to_owned(),
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            subresource: None,
            namespace: namespace.filter(|_| resource.namespaced).map(str::to_owned),
            name: None,
        }
    }

    /// The same for one object.
    pub fn named(self, name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..self
        }
    }

    fn attributes(&self) -> ResourceAttributes {
        ResourceAttributes {
            verb: Some(self.verb.clone()),
            group: Some(self.group.clone()),
            resource: Some(self.resource.clone()),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            ..ResourceAttributes::default()
        }
    }
}

/// As in RBAC messages: `patch deployments.apps/scale shop/web`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (Some(namespace), None) => write!(f, " in namespace {namespace}"),
            (None, Some(name)) => write!(f, " {name}"),
            (None, None) => Ok(()),
        }
    }
}

/// Another user whose permissions are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// User name, such as `system:serviceaccount:shop:web`.
    pub user: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl Cluster {
    /// The user name and UID of this client according to the API server; for a ServiceAccount, the UID is that of the
    /// object.
    ///
    /// # Errors
    ///
    /// [`Error::ReviewToken`].
    pub async fn own_identity(&self) -> Result<(String, String), Error> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let call = Call::new(Method::POST, SELF_REVIEWS).json(&review);
        let answer = self.transport.send(call).await;
        let (_, answer) = answer.map_err(|source| Error::ReviewToken { source })?;
        let text = |field: &str| {
            answer["status"]["userInfo"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Ok((text("username"), text("uid")))
    }

    /// True when this client itself is allowed to do it.
    ///
    /// # Errors
    ///
    /// [`Error::ReviewAccess`].
    pub async fn is_allowed(&self, access: &Access) -> Result<bool, Error> {
        let spec = json!({"resourceAttributes": access.attributes()});
        self.review(
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            spec,
            access,
        )
        .await
    }

    /// True when the given user is allowed to do it. This check needs a permission of its own.
    ///
    /// # Errors
    ///
    /// [`Error::ReviewAccess`].
    pub async fn is_allowed_for(&self, subject: &Subject, access: &Access) -> Result<bool, Error> {
        let spec = json!({"resourceAttributes": access.attributes(), "user": subject.user, "groups": subject.groups});
        self.review("SubjectAccessReview", "subjectaccessreviews", spec, access)
            .await
    }

    /// The owner of a bearer token, provided that it is valid and was issued for `audience`. This check needs a
    /// permission of its own.
    ///
    /// # Errors
    ///
    /// [`Error::ReviewToken`]. No error contains the token.
    pub async fn owner_of_token(&self, token: &str, audience: &str) -> Result<Option<Subject>, Error> {
        let spec = json!({"token": token, "audiences": [audience]});
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let call = Call::new(Method::POST, TOKEN_REVIEWS.to_owned()).json(&review);
        let (_, answer) = self
            .transport
            .send(call)
            .await
            .map_err(|failure| Error::ReviewToken {
                source: failure.without_content(),
            })?;
        let status = &answer["status"];
        // A server that does not support audiences would accept any token.
        let is_for_us = status["audiences"]
            .as_array()
            .is_some_and(|audiences| audiences.iter().any(|one| one == audience));
        if status["authenticated"] != true || !is_for_us {
            return Ok(None);
        }
        let groups = status["user"]["groups"].as_array().into_iter().flatten();
        Ok(Some(Subject {
            user: status["user"]["username"].as_str().unwrap_or_default().to_owned(),
            groups: groups.filter_map(Value::as_str).map(str::to_owned).collect(),
        }))
    }

    /// Waits until this client is allowed to do all of it: a role takes a moment to take effect.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllowed`] with what is missing after `timeout`; [`Error::ReviewAccess`].
    pub async fn wait_until_allowed(&self, needed: &[Access], timeout: Duration) -> Result<(), Error> {
        let began = Instant::now();
        let deadline = began + timeout;
        let mut pause = Duration::from_millis(20);
        let mut missing: Vec<&Access> = needed.iter().collect();
        if missing.is_empty() {
            return Ok(());
        }
        // An immediate check would nearly always fail: the authoriser learns about a role from its watch.
        tokio::time::sleep(pause).await;
        loop {
            missing = self.not_allowed(missing).await?;
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() + pause >= deadline {
                let missing = missing
                    .into_iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ");
                return Err(Error::NotAllowed {
                    within: timeout,
                    missing,
                });
            }
            tokio::time::sleep(pause).await;
            // A role usually takes effect at once. If somebody else has to grant it, it may take long.
            let is_soon = began.elapsed() < Duration::from_secs(2);
            pause = (pause * 2).min(Duration::from_millis(if is_soon { 200 } else { 1000 }));
        }
    }

    async fn not_allowed<'a>(&self, asked: Vec<&'a Access>) -> Result<Vec<&'a Access>, Error> {
        let ask = |access: &'a Access| {
            async move {
                self.is_allowed(access)
                    .await
                    .map(|allowed| (!allowed).then_some(access))
            }
            .boxed()
        };
        let answers: Vec<_> = asked.into_iter().map(ask).collect();
        stream::iter(answers)
            .buffered(PARALLEL)
            .try_filter_map(async |missing| Ok(missing))
            .try_collect()
            .await
    }

    async fn review(&self, kind: &str, plural: &str, spec: Value, access: &Access) -> Result<bool, Error> {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
        let call = Call::new(Method::POST, format!("{REVIEWS}/{plural}")).json(&review);
        match self.transport.send(call).await {
            Ok((_, answer)) => Ok(answer["status"]["allowed"] == true),
            Err(source) => Err(Error::ReviewAccess {
                question: access.to_string(),
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;
    use crate::scripted::Script;

    const SELF: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    #[tokio::test]
    async fn a_client_learns_who_it_is() {
        let user = json!({"username": "system:serviceaccount:shop:web", "uid": "8f4f"});
        let script = Script::new("who am I").on(
            Method::POST,
            SELF_REVIEWS,
            |_| {},
            201,
            json!({"status": {"userInfo": user}}),
        );
        let identity = script.cluster().own_identity().await.unwrap();
        assert_eq!(
            identity,
            ("system:serviceaccount:shop:web".to_owned(), "8f4f".to_owned())
        );
        script.finish();
    }

    fn patch_web() -> Access {
        Access::to("patch", &ResourceId::of::<Deployment>(), Some("shop")).named("web")
    }

    fn answer(allowed: bool) -> Value {
        json!({"status": {"allowed": allowed}})
    }

    #[tokio::test]
    async fn a_token_for_somebody_else_is_nobodys() {
        let of = |audiences: Value| {
            json!({"status": {"authenticated": true, "audiences": audiences, "user": {
                "username": "system:serviceaccount:shop:web", "groups": ["system:authenticated"],
            }}})
        };
        let script = Script::new("three tokens")
            .on(
                Method::POST,
                TOKEN_REVIEWS,
                |sent| assert_eq!(sent["spec"], json!({"token": "t", "audiences": ["us"]})),
                201,
                of(json!(["us"])),
            )
            .on(Method::POST, TOKEN_REVIEWS, |_| {}, 201, of(json!(["them"])))
            .on(
                Method::POST,
                TOKEN_REVIEWS,
                |_| {},
                201,
                json!({"status": {"authenticated": false, "error": "expired"}}),
            );
        let cluster = script.cluster();
        let owner = cluster.owner_of_token("t", "us").await.unwrap().unwrap();
        assert_eq!(owner.user, "system:serviceaccount:shop:web");
        assert_eq!(owner.groups, ["system:authenticated"]);
        assert_eq!(cluster.owner_of_token("t", "us").await.unwrap(), None);
        assert_eq!(cluster.owner_of_token("t", "us").await.unwrap(), None);
        script.finish();
    }

    #[tokio::test]
    async fn a_question_names_verb_resource_and_place() {
        let asked = json!({"verb": "patch", "group": "apps", "resource": "deployments", "namespace": "shop", "name": "web"});
        let of_other = asked.clone();
        let script = Script::new("ask for oneself, then for another")
            .on(
                Method::POST,
                SELF,
                move |sent| assert_eq!(sent["spec"]["resourceAttributes"], asked),
                201,
                answer(true),
            )
            .on(
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                move |sent| {
                    assert_eq!(
                        sent["spec"],
                        json!({"resourceAttributes": of_other, "user": "u", "groups": ["g"]})
                    );
                },
                201,
                answer(false),
            );
        let cluster = script.cluster();
        assert!(cluster.is_allowed(&patch_web()).await.unwrap());
        let other = Subject {
            user: "u".to_owned(),
            groups: vec!["g".to_owned()],
        };
        assert!(!cluster.is_allowed_for(&other, &patch_web()).await.unwrap());
        script.finish();
    }

    #[tokio::test]
    async fn waiting_asks_again_only_for_what_is_missing() {
        let list = Access::to("list", &ResourceId::of::<Deployment>(), Some("shop"));
        let script = Script::new("the second grant takes a moment")
            .on(Method::POST, SELF, |_| {}, 201, answer(true))
            .on(Method::POST, SELF, |_| {}, 201, answer(false))
            .on(
                Method::POST,
                SELF,
                |sent| assert_eq!(sent["spec"]["resourceAttributes"]["verb"], "list"),
                201,
                answer(true),
            );
        let needed = [patch_web(), list];
        script
            .cluster()
            .wait_until_allowed(&needed, Duration::from_secs(5))
            .await
            .unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn what_stays_missing_is_named() {
        let script = Script::new("never granted").from_then_on(|_, _, _| (201, answer(false)));
        let timeout = Duration::from_millis(100);
        let error = script
            .cluster()
            .wait_until_allowed(&[patch_web()], timeout)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "still not allowed after 100ms: patch deployments.apps shop/web"
        );
    }
}
