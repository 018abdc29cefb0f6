//! What was typed, worked out: the process, its watch, its workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use api::CompositionDefinition;
use futures::StreamExt as _;
use helm_client::charts::Charts;
use helm_client::source::Limits;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource as _};
use runtime::{Backoff, Process, chain};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::bundle::Platform;
use crate::definition::{Context, Error, HELD_UP, Looks, Turns, reconcile};
use crate::templates::Templates;

/// Name of the lease, as the contract has it.
const LEASE: &str = "leader-election-core-provider";

impl Args {
    /// Runs until told to end.
    pub(crate) async fn run(self) -> Result<()> {
        let mut options = runtime::Options::new("core-provider", env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        options.admin = (self.metrics_server_port != 0)
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.metrics_server_port)));
        let process = runtime::start(options).await?;
        let context = Arc::new(self.context(&process)?);
        process.readiness().set(true);

        let leading = if self.leader_election {
            Some(process.lead(&self.krateo_namespace, LEASE).await?)
        } else {
            None
        };
        let lost = leading.as_ref().map(cluster::Held::lost).unwrap_or_default();
        self.serve(context, &process, lost).await;
        process.finish(leading).await;
        Ok(())
    }

    /// Works on definitions until the process is to end or somebody else leads.
    async fn serve(&self, context: Arc<Context>, process: &Process, lost: CancellationToken) {
        let shutdown = process.shutdown();
        let until = async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = lost.cancelled() => {}
            }
        };
        let definitions = Api::<CompositionDefinition>::all(process.cluster().client());
        Controller::new(definitions, watcher::Config::default())
            .with_config(Config::default().concurrency(self.max_reconcile_rate))
            .graceful_shutdown_on(until)
            .run(reconcile, retry, context)
            .for_each(|outcome| async move {
                if let Err(error) = outcome {
                    tracing::debug!(error = chain(&error), "pass ended");
                }
            })
            .await;
    }

    fn context(&self, process: &Process) -> Result<Context> {
        let cluster = process.cluster().clone();
        Ok(Context {
            charts: Charts::new(cluster.clone(), Limits::default()),
            templates: Templates::from_folder(&assets())?,
            platform: Platform {
                krateo_namespace: self.krateo_namespace.clone(),
                image: with_tag(&self.cdc_image, self.cdc_image_tag.as_deref()),
                image_pull_policy: self.cdc_image_pull_policy.clone(),
                chart_inspector_url: self.url_chart_inspector.clone(),
                inspector_service_account: self.chart_inspector_service_account.clone(),
                provider_service_account: self.service_account.clone(),
                env: self.cdc_env.clone(),
            },
            recorder: process.recorder(),
            metrics: process.metrics().clone(),
            looks: Looks::default(),
            turns: Turns::default(),
            backoff: Backoff::new(self.min_error_retry_interval.0, self.max_error_retry_interval.0),
            poll_interval: self.poll_interval.0,
            cluster,
        })
    }
}

/// Where operators put templates of their own.
fn assets() -> PathBuf {
    std::env::temp_dir().join("assets")
}

/// `image` with another tag. A colon after the last slash begins a tag; one before it is a port's.
fn with_tag(image: &str, tag: Option<&str>) -> String {
    let Some(tag) = tag.filter(|tag| !tag.is_empty()) else {
        return image.to_owned();
    };
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    let end = image[name..].find(':').map_or(image.len(), |colon| name + colon);
    format!("{}:{tag}", &image[..end])
}

/// A failed pass is tried again: soon and ever less often when it can succeed by itself, else at the next poll
/// (a change of the definition comes before that).
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that kube's Controller asks for"
)]
fn retry(definition: Arc<CompositionDefinition>, error: &Error, ctx: Arc<Context>) -> Action {
    let object = ObjectRef::from_obj(definition.as_ref());
    let pause = ctx.backoff.failed(&object);
    let pause = if error.is_transient() {
        pause
    } else if error.waits_for_compositions() {
        ctx.poll_interval.min(HELD_UP)
    } else {
        pause.max(ctx.poll_interval)
    };
    tracing::warn!(
        definition = %object,
        generation = definition.meta().generation,
        error = chain(error),
        retry_in = ?pause,
        "could not reconcile"
    );
    Action::requeue(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_tag_takes_the_place_of_the_images_own() {
        assert_eq!(with_tag("r:5000/a/cdc:1", Some("2")), "r:5000/a/cdc:2");
        assert_eq!(with_tag("r:5000/a/cdc", Some("2")), "r:5000/a/cdc:2");
        assert_eq!(with_tag("cdc:1", None), "cdc:1");
        assert_eq!(with_tag("cdc:1", Some("")), "cdc:1");
    }
}
