//! The watch cluster as a served cluster. In a pod that needs no kubeconfig; elsewhere this process's kubeconfig is
//! stored in a Secret, as the reference does, so that others find the cluster by its name.

use std::path::PathBuf;
use std::time::Duration;

use cluster::kubeconfig::{self, Form, SelfContained, Sources};
use cluster::{Apply, Cluster, ObjectId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::cluster_id::ClusterId;
use crate::context::Context;
use crate::field_manager::FIELD_MANAGER;
use crate::registry::SELF;

/// When a server that gave no answer is asked again.
const ASKED_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// Why the kubeconfig of this process could not be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the kubeconfig of this process")]
    Read(#[source] kubeconfig::Error),
    #[error("could not store it in Secret {SELF}")]
    Keep(#[source] cluster::Error),
}

/// The watch cluster.
pub(crate) fn id(ctx: &Context) -> ClusterId {
    ClusterId {
        namespace: ctx.discovery_namespace.clone(),
        name: SELF.to_owned(),
    }
}

/// Writes the Secret, if there is a kubeconfig and the Secret differs from it. `file` takes precedence over the default
/// paths, and `context` over the current one, so that the stored kubeconfig is for the cluster that this process uses.
///
/// If a server does not answer for the moment, we do not know whether the reduced kubeconfig works: it is tried again,
/// and the content of the Secret stays. The whole file, with the credentials of all its contexts, is stored only if
/// there is nothing yet.
pub(crate) async fn keep(
    ctx: &Context,
    label: &str,
    file: Option<PathBuf>,
    context: Option<String>,
) -> Result<(), Error> {
    let mut sources = Sources::of_process();
    if file.is_none() && context.is_none() && sources.are_of_pod() {
        return Ok(());
    }
    if let Some(file) = file {
        sources.kubeconfig = Some(file.into_os_string());
    }
    sources.context = context;
    let validate = async |config: kube::Config| {
        let client = kube::Client::try_from(config)?;
        answers(&client).await
    };
    let SelfContained { text, form } = kubeconfig::self_contained(&sources, validate)
        .await
        .map_err(Error::Read)?;
    match form {
        // The kubelet renews the token in its file: a copy would be a credential that nothing uses.
        Form::InCluster => return Ok(()),
        Form::Reduced | Form::Full { .. } => {}
    }
    let destination = Destination {
        home: &ctx.home,
        namespace: &ctx.discovery_namespace,
        key: &ctx.kubeconfig_key,
        label,
    };
    write(&destination, text, &form).await.map_err(Error::Keep)
}

/// Requests the version of a server; retries if there is no answer.
async fn answers(client: &kube::Client) -> Result<(), kube::Error> {
    for pause in ASKED_AGAIN_AFTER {
        match client.apiserver_version().await {
            Err(error) if is_passing(&error) => tokio::time::sleep(pause).await,
            answered => return answered.map(drop),
        }
    }
    client.apiserver_version().await.map(drop)
}

/// True if the server may answer later without any change.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500..),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Where the kubeconfig is stored.
struct Destination<'a> {
    home: &'a Cluster,
    namespace: &'a str,
    key: &'a str,
    label: &'a str,
}

async fn write(destination: &Destination<'_>, text: String, form: &Form) -> Result<(), cluster::Error> {
    let Destination {
        home,
        namespace,
        key,
        label,
    } = *destination;
    let id = ObjectId::of::<Secret>(Some(namespace), SELF)?;
    let secret: Option<Secret> = home.get(&id).await?;
    let known = secret.and_then(|secret| secret.data?.remove(key));
    let text = ByteString(text.into_bytes());
    if known.as_ref() == Some(&text) {
        return Ok(());
    }
    if let Form::Full { why } = form {
        let is_passing = why.downcast_ref::<kube::Error>().is_some_and(is_passing);
        if is_passing && known.is_some() {
            tracing::warn!(error = %why, "Secret {SELF} is left as it is, because the kubeconfig could not be tried");
            return Ok(());
        }
        tracing::debug!(error = %why, "the kubeconfig is copied unchanged");
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SELF, "namespace": namespace, "labels": {label: "true"}},
        "data": {key: text},
    });
    let how = Apply::by(FIELD_MANAGER).force();
    home.apply(&id, &secret, &how).await.map(drop)
}

#[cfg(test)]
mod tests {
    use cluster::scripted::Script;

    use super::*;

    const SECRET: &str = "/api/v1/namespaces/clusters/secrets/self-cluster";

    fn status(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(kube::core::Status {
            code,
            ..kube::core::Status::default()
        }))
    }

    async fn kept(script: Script, form: Form) {
        let home = script.cluster();
        let destination = Destination {
            home: &home,
            namespace: "clusters",
            key: "kubeconfig",
            label: "a/label",
        };
        write(&destination, "new".to_owned(), &form).await.unwrap();
        script.finish();
    }

    #[tokio::test]
    async fn a_server_that_is_briefly_unreachable_changes_nothing_that_is_stored() {
        let full = |code| Form::Full {
            why: status(code).into(),
        };
        let kept_before = json!({"data": {"kubeconfig": ByteString(b"old".to_vec())}});
        let holds = |name: &str| Script::new(name).get(SECRET, kept_before.clone());
        let written = |script: Script| {
            let is_new = |sent: &serde_json::Value| {
                assert_eq!(sent["data"]["kubeconfig"], json!(ByteString(b"new".to_vec())));
            };
            script.on(http::Method::PATCH, SECRET, is_new, 200, json!({}))
        };
        kept(holds("away"), full(503)).await;
        // What the server says about the credentials is final, and if nothing is stored, nothing can stay.
        kept(written(holds("not allowed")), full(403)).await;
        kept(written(Script::new("nothing yet").absent(SECRET)), full(503)).await;
        kept(written(holds("reduced")), Form::Reduced).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_briefly_unreachable_is_tried_again() {
        let version = json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        let away = |script: Script| {
            script.refuse(
                http::Method::GET,
                "/version",
                503,
                "ServiceUnavailable",
                "starting",
            )
        };
        let script = away(away(Script::new("starting"))).get("/version", version);
        assert!(answers(&script.client()).await.is_ok());
        script.finish();
        let refused = Script::new("refused").refuse(http::Method::GET, "/version", 403, "Forbidden", "no");
        assert!(answers(&refused.client()).await.is_err());
        refused.finish();
    }
}
