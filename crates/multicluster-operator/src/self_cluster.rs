//! The watch cluster as one that is served. In a pod that takes no kubeconfig; elsewhere the one of this process is kept in a
//! Secret, as the reference does, so that others find the cluster under its name.

use std::path::PathBuf;

use cluster::kubeconfig::{self, Form, SelfContained, Sources};
use cluster::{Apply, ObjectId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::context::Context;
use crate::engine::FIELD_MANAGER;
use crate::registry::{ClusterId, SELF};

/// The kubeconfig of this process could not be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("could not read the kubeconfig of this process")]
    Read(#[source] kubeconfig::Error),
    #[error("could not keep it in Secret {SELF}")]
    Keep(#[source] cluster::Error),
}

/// The watch cluster.
pub(crate) fn id(ctx: &Context) -> ClusterId {
    ClusterId {
        namespace: ctx.discovery_namespace.clone(),
        name: SELF.to_owned(),
    }
}

/// Writes the Secret, where there is a kubeconfig and the Secret says something else. `file` comes before the usual places,
/// and `context` before the current one: what is kept leads where this process goes.
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
        client.apiserver_version().await.map(drop)
    };
    let SelfContained { text, form } = kubeconfig::self_contained(&sources, validate)
        .await
        .map_err(Error::Read)?;
    match form {
        // The kubelet renews the token in its file: a copy would be a credential that nobody uses.
        Form::InCluster => return Ok(()),
        Form::Reduced => {}
        Form::Full { why } => tracing::debug!(error = %why, "the kubeconfig is copied unchanged"),
    }
    write(ctx, label, text).await.map_err(Error::Keep)
}

async fn write(ctx: &Context, label: &str, text: String) -> Result<(), cluster::Error> {
    let (namespace, key) = (&ctx.discovery_namespace, &ctx.kubeconfig_key);
    let id = ObjectId::of::<Secret>(Some(namespace), SELF)?;
    let secret: Option<Secret> = ctx.home.get(&id).await?;
    let known = secret.and_then(|secret| secret.data?.remove(key));
    let text = ByteString(text.into_bytes());
    if known.as_ref() == Some(&text) {
        return Ok(());
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SELF, "namespace": namespace, "labels": {label: "true"}},
        "data": {key: text},
    });
    let how = Apply::by(FIELD_MANAGER).force();
    ctx.home.apply(&id, &secret, &how).await.map(drop)
}
