//! What was typed, worked out: the process, its watch, its workers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::labels;
use cluster::ResourceId;
use composition::{Account, Schemas};
use futures::StreamExt as _;
use helm_client::charts::Charts;
use helm_client::release::{Options, Releases};
use helm_client::source::Limits;
use kube::core::{DynamicObject, GroupVersionResource};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use runtime::{Backoff, Process, chain};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::composition::{Context, Error, reconcile};
use crate::inspector::Inspector;

/// How long a type may take to be served after the controller has started.
const SERVED_WITHIN: u32 = 60;

impl Args {
    /// Runs the controller until it is told to end.
    pub(crate) async fn run(self) -> Result<()> {
        let admin = (self.metrics_server_port != 0)
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.metrics_server_port)));
        let mut options = runtime::Options::new("composition-dynamic-controller", env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        options.admin = admin;
        let process = runtime::start(options).await?;

        let resource = self.served(&process).await?;
        process.readiness().set(true);
        let leading = process.lead(&self.sa_namespace, &self.lease()).await?;
        let lost = leading.lost();
        self.serve(resource, &process, lost).await;
        process.finish(Some(leading)).await;
        Ok(())
    }

    /// The name that the bundle's Role allows a lease of.
    fn lease(&self) -> String {
        format!("{}-{}", self.resource, self.version)
    }

    /// The type, once the API server serves it.
    async fn served(&self, process: &Process) -> Result<ResourceId> {
        let gvr = GroupVersionResource::gvr(&self.group, &self.version, &self.resource);
        let mut tries = 0;
        loop {
            match process.cluster().discovery().resource_of_plural(&gvr).await {
                Err(error) if tries < SERVED_WITHIN => {
                    tracing::debug!(error = chain(&error), "the type is not served yet");
                    tries += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                served => {
                    return served.with_context(|| {
                        format!(
                            "{} of {}/{} is not served",
                            self.resource, self.group, self.version
                        )
                    });
                }
            }
        }
    }

    /// Works on compositions until the process is to end or somebody else leads.
    async fn serve(&self, resource: ResourceId, process: &Process, lost: CancellationToken) {
        let shutdown = process.shutdown();
        let until = async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = lost.cancelled() => {}
            }
        };
        let watched =
            watcher::Config::default().labels(&format!("{}={}", labels::COMPOSITION_VERSION, self.version));
        let namespace = (!self.namespace.is_empty()).then_some(self.namespace.as_str());
        let compositions = resource.api(process.cluster().client(), namespace);
        let context = Arc::new(self.context(resource.clone(), process));
        Controller::new_with(compositions, watched, resource.api_resource())
            .with_config(Config::default().concurrency(self.workers))
            .graceful_shutdown_on(until)
            .run(reconcile, retry, context)
            .for_each(|outcome| async move {
                if let Err(error) = outcome {
                    tracing::debug!(error = chain(&error), "pass ended");
                }
            })
            .await;
    }

    fn context(&self, resource: ResourceId, process: &Process) -> Context {
        let cluster = process.cluster().clone();
        let options = Options {
            max_history: self.helm_max_history,
            ..Options::default()
        };
        Context {
            resource,
            account: Account {
                namespace: self.sa_namespace.clone(),
                name: self.sa_name.clone(),
            },
            writer: format!("{}/{}", self.sa_namespace, self.lease()),
            krateo_namespace: self.krateo_namespace.clone(),
            safe_release_name: self.safe_release_name,
            max_history: self.helm_max_history,
            resync_interval: self.resync_interval.0,
            timeout: options.timeout,
            charts: Charts::new(cluster.clone(), Limits::default()),
            schemas: Schemas::default(),
            releases: Releases::new(cluster.clone(), options),
            inspector: Inspector::new(self.url_chart_inspector.clone()),
            recorder: process.recorder(),
            metrics: process.metrics().clone(),
            backoff: Backoff::new(self.min_error_retry_interval.0, self.max_error_retry_interval.0),
            cluster,
        }
    }
}

/// A failed pass is tried again: soon and ever less often when it can succeed by itself, else at the next
/// resync (a change of the object comes before that).
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that kube's Controller asks for"
)]
fn retry(object: Arc<DynamicObject>, error: &Error, ctx: Arc<Context>) -> Action {
    let object = ObjectRef::from_obj_with(object.as_ref(), ctx.resource.api_resource());
    let pause = ctx.backoff.failed(&object);
    let pause = if error.is_transient() {
        pause
    } else {
        pause.max(ctx.resync_interval)
    };
    tracing::warn!(%object, error = chain(error), retry_in = ?pause, "could not reconcile");
    Action::requeue(pause)
}
