//! A provider that has nothing to clean up: it removes its finalizer from `RestDefinition`s of its namespace that are
//! being deleted. Without it they stay.
#![allow(clippy::print_stderr, reason = "the log of a small program")]

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

/// The pause between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until the process ends. Failed requests are retried: the type may not be served yet.
pub async fn run(finalizer: String) {
    loop {
        if let Err(error) = look(&finalizer).await {
            eprintln!("could not look after RestDefinitions: {error}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(finalizer: &str) -> kube::Result<()> {
    let client = Client::try_default().await?;
    let kind = GroupVersionKind::gvk("ogen.krateo.io", "v1alpha1", "RestDefinition");
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    loop {
        for object in api.list(&ListParams::default()).await? {
            let kept: Vec<&String> = object
                .finalizers()
                .iter()
                .filter(|own| *own != finalizer)
                .collect();
            let is_done = kept.len() == object.finalizers().len();
            if object.metadata.deletion_timestamp.is_none() || is_done {
                continue;
            }
            // The write fails if the object has changed since it was read.
            let metadata = json!({"resourceVersion": object.resource_version(), "finalizers": kept});
            let patch = Patch::Merge(json!({"metadata": metadata}));
            api.patch(&object.name_any(), &PatchParams::default(), &patch)
                .await?;
            eprintln!("let RestDefinition {} go", object.name_any());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
