//! Runs after the umbrella is removed: deletes what belongs to no release and is no longer served.

use std::time::Duration;

use anyhow::{Result, bail};
use cluster::{Cluster, Delete, Deleted, Error, ObjectId, ResourceId, Selector};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::time::sleep;

use super::{Told, listed, tell};
use crate::installer::args::PostDelete;
use crate::installer::crds;
use crate::release::session;

/// 100 s, of the 120 s that the Job has.
const ATTEMPTS: u32 = 50;
const INTERVAL: Duration = Duration::from_secs(2);

/// The group suffix of the CRDs generated from hyperdx-provider's `RestDefinition`.
const GENERATED: &str = ".hyperdx.krateo.io";

/// Deletes the webhook configurations of this release's core-provider, which would block all writes once nothing
/// answers them, and the types that oasgen-provider generated for hyperdx-provider. Waits until they are gone, and with
/// them the controllers' namespace if it was deleted with the release: then a release of the same name can be
/// installed. A namespace that takes longer is reported without an error: Helm has already forgotten the release, so
/// nobody could repeat this.
///
/// Requests, as the hook's own ServiceAccount: `mutatingwebhookconfigurations` and `validatingwebhookconfigurations`
/// (`admissionregistration.k8s.io`) list and delete; `customresourcedefinitions.apiextensions.k8s.io` list and delete;
/// `namespaces` get (only that of the controllers).
///
/// # Errors
/// If a webhook configuration or a type is not gone; it is named.
pub(super) fn run(args: &PostDelete) -> Result<()> {
    session::run(&args.connection, async |session| {
        let sweep = Sweep {
            cluster: &session.cluster,
            release: &args.release,
            namespace: args.platform_namespace.as_deref(),
        };
        let mut pauses = args.pace.or(ATTEMPTS, INTERVAL).pauses();
        let mut told = Told::default();
        let mut only_namespace = false;
        loop {
            let last = match sweep.once().await {
                Ok(left) if left.is_empty() => {
                    tell("nothing is left");
                    return Ok(());
                }
                Ok(left) => {
                    only_namespace = left.objects.is_empty();
                    left.told()
                }
                Err(error) if error.is_transient() => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            told.tell(last.clone());
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None if only_namespace => {
                    tell(&format!(
                        "{last}. Install again once it is gone; its conditions say what keeps it"
                    ));
                    return Ok(());
                }
                None => bail!("not everything is gone: {last}. Delete it by hand, then install again"),
            }
        }
    })
}

struct Sweep<'a> {
    cluster: &'a Cluster,
    release: &'a str,
    namespace: Option<&'a str>,
}

/// What still exists.
#[derive(Debug, Default)]
struct Left {
    /// Webhook configurations and types.
    objects: Vec<String>,
    namespace: Option<String>,
}

impl Left {
    fn is_empty(&self) -> bool {
        let Self { objects, namespace } = self;
        objects.is_empty() && namespace.is_none()
    }

    fn told(&self) -> String {
        let all: Vec<String> = self.objects.iter().chain(&self.namespace).cloned().collect();
        format!("still going: {}", listed(&all))
    }
}

impl Sweep<'_> {
    /// Deletes what exists, and returns its names.
    async fn once(&self) -> Result<Left, Error> {
        let selector = format!(
            "app.kubernetes.io/name=core-provider,app.kubernetes.io/instance={}",
            self.release
        );
        let labelled = Selector {
            namespace: None,
            labels: Some(&selector),
        };
        let mut left = Left::default();
        for resource in [
            ResourceId::of::<MutatingWebhookConfiguration>(),
            ResourceId::of::<ValidatingWebhookConfiguration>(),
        ] {
            for object in self.cluster.list_metadata(&resource, labelled).await? {
                let name = object.metadata.name.unwrap_or_default();
                self.delete(&resource, &name, &mut left.objects).await?;
            }
        }
        let crds = ResourceId::of::<CustomResourceDefinition>();
        for name in crds::names(self.cluster, &crds, None).await? {
            if name.ends_with(GENERATED) {
                self.delete(&crds, &name, &mut left.objects).await?;
            }
        }
        if let Some(namespace) = self.namespace {
            let id = ObjectId::of::<Namespace>(None, namespace)?;
            if self.cluster.get_metadata(&id).await?.is_some() {
                left.namespace = Some(id.to_string());
            }
        }
        Ok(left)
    }

    async fn delete(&self, resource: &ResourceId, name: &str, left: &mut Vec<String>) -> Result<(), Error> {
        let id = ObjectId::new(resource.clone(), None, name)?;
        tell(&format!("removing {id}"));
        match self.cluster.delete(&id, &Delete::default()).await? {
            Deleted::Gone => {}
            Deleted::Going { .. } => left.push(id.to_string()),
        }
        Ok(())
    }
}
