//! Runs the process from its arguments: sets up the watch, the workers and what passes need.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::{CompositionDefinition, annotations, labels};
use charts::Charts;
use charts::source::Limits;
use cluster::{Access, Cluster, ResourceId, ShardNews, ShardTimes, Sharding, Shards};
use composition::plan::Growth;
use composition::{Account, Schemas, chart_of, has_served};
use helm_client::release::{self, Releases};
use helm_client::rendering::{self, Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::core::GroupVersionResource;
use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::watcher;
use runtime::queue::{Capacity, Priority, Queue};
use runtime::{Backoff, Process, Renders, Telemetry, chain};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::backlog::Backlog;
use crate::composition::{BoundCache, Context, FIELD_MANAGER, Memories, Origin};
use crate::compositions::{Compositions, Key};
use crate::controller::Controller;
use crate::definitions::Definitions;
use crate::inspector::Inspector;
use crate::lookups::Lookups;
use crate::metrics::{CutOff, PassMetrics};
use crate::release_key::ReleaseKey;
use crate::shards::{self, OwnShards};
use crate::types::AwaitedTypes;
use crate::watches::{sightings, watches};

/// How many compositions are listed per page. Each may have more than a MiB of text, and a page is in memory while it
/// is read.
const LISTED_AT_ONCE: u32 = 25;

/// How many seconds a type may take to be served after the controller has started.
const SERVED_WITHIN: u32 = 60;

/// How long the controller waits for its permissions. core-provider starts a new controller before it grants them, and
/// grants them once the policies that bound them are in force.
const ALLOWED_WITHIN: Duration = Duration::from_mins(2);

impl Args {
    /// Runs the controller until it is asked to shut down.
    pub(crate) async fn run(self) -> Result<()> {
        let admin = (self.metrics_server_port != 0)
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.metrics_server_port)));
        let mut options = runtime::Options::new("composition-dynamic-controller", env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig.clone_from(&self.client.kubeconfig);
        options.admin = admin;
        options.push = Some(self.push.push(options.service));
        let process = runtime::start(options).await?;
        let renders = Renders::new(process.metrics())?;
        rendering::tell_events(move |event| match event {
            Event::Waited(time) => renders.waited(time),
            Event::Refused(reason) => renders.refused(reason),
            Event::Exceeded(limit) => renders.exceeded(limit),
        });

        let telemetry = Telemetry::new(process.metrics(), "unstructured_runtime", &self.resource)?;
        let (resource, shards, news) = match self.join(&process, &telemetry).await {
            Ok(joined) => joined,
            Err(error) => {
                process.finish(None).await;
                return Err(error);
            }
        };
        let served = self.serve(resource, &process, &shards, news, telemetry).await;
        process.finish_and(shards.release()).await;
        served
    }

    /// Waits until the type is served and this controller may work on it, and joins the replicas that share its shards.
    async fn join(
        &self,
        process: &Process,
        telemetry: &Telemetry,
    ) -> Result<(ResourceId, Shards, UnboundedReceiver<ShardNews>)> {
        let starting = async { tokio::try_join!(self.served(process), self.allowed(process.cluster())) };
        let Some(started) = process.shutdown().run_until_cancelled(starting).await else {
            bail!("asked to shut down before it started");
        };
        telemetry.started(started.is_ok());
        let (resource, ()) = started?;
        let (shards, news) = process.share(self.sharding(process.cluster()).await).await?;
        Ok((resource, shards, news))
    }

    /// The namespaces in which this controller runs, or may have run before: core-provider can move it, and runs only
    /// one at a time.
    fn places(&self) -> impl Iterator<Item = &str> {
        let former = [
            Some(self.krateo_namespace.as_str()),
            self.definition_namespace.as_deref(),
        ];
        let former = former.into_iter().flatten();
        let former = former.filter(|former| *former != self.sa_namespace);
        std::iter::once(self.sa_namespace.as_str()).chain(former)
    }

    /// The prefix of the names of the Leases.
    fn leases(&self) -> String {
        format!("{}-{}", self.resource, self.version)
    }

    /// How the shards are shared: by the Leases that the bundle's Role names.
    async fn sharding(&self, cluster: &Cluster) -> Sharding {
        let name = self.leases();
        Sharding {
            namespace: self.sa_namespace.clone(),
            count: self.shards,
            label: (labels::SHARDS_OF.to_owned(), labels::value(&name)),
            owner: self.account(cluster).await,
            count_annotation: annotations::SHARDS.to_owned(),
            asks_annotation: annotations::SHARDS_ASKED_BY.to_owned(),
            manager: FIELD_MANAGER.to_owned(),
            times: ShardTimes::default(),
            name,
        }
    }

    /// Our ServiceAccount as the owner of the Leases, so that they are deleted with it. Under another account, as on a
    /// developer's machine, they have no owner.
    async fn account(&self, cluster: &Cluster) -> Option<OwnerReference> {
        let (user, uid) = cluster.own_identity().await.ok()?;
        let ours = format!("system:serviceaccount:{}:{}", self.sa_namespace, self.sa_name);
        (user == ours && !uid.is_empty()).then(|| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "ServiceAccount".to_owned(),
            name: self.sa_name.clone(),
            uid,
            ..OwnerReference::default()
        })
    }

    /// Waits until the API server serves the type.
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

    /// Waits until this process may use its Leases, the permission that core-provider grants last. One rule names all of
    /// them.
    async fn allowed(&self, cluster: &Cluster) -> Result<()> {
        let lease = cluster::shard_leases(&self.leases(), self.shards).swap_remove(0);
        let lease = shards::lease(&self.sa_namespace, &lease)?;
        let needed = [Access::to("patch", lease.resource(), lease.namespace()).named(lease.name())];
        let until = Instant::now() + ALLOWED_WITHIN;
        loop {
            match cluster.wait_until_allowed(&needed, ALLOWED_WITHIN).await {
                Err(error) if error.is_transient() && Instant::now() < until => {
                    tracing::debug!(error = chain(&error), "could not ask for permissions");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                allowed => return allowed.context("could not wait for the permission to use the Leases"),
            }
        }
    }

    /// Reconciles compositions until the process is asked to shut down or loses its shards.
    async fn serve(
        &self,
        resource: ResourceId,
        process: &Process,
        shards: &Shards,
        news: UnboundedReceiver<ShardNews>,
        telemetry: Telemetry,
    ) -> Result<()> {
        let until = CancellationToken::new();
        let _ends_watches = until.clone().drop_guard();
        let working = async {
            let context = self.context(resource.clone(), process, shards, &until, telemetry);
            let context = Arc::new(context.await?);
            let version = format!("{}={}", labels::COMPOSITION_VERSION, self.version);
            let controller = Controller {
                context,
                shards: OwnShards {
                    door: shards.door(),
                    anchor: shards::lease(&self.sa_namespace, shards.anchor())?,
                    metrics: shards::ShardMetrics::new(process.metrics())?,
                },
                watched: watcher::Config::default()
                    .labels(&version)
                    .page_size(LISTED_AT_ONCE),
                max_error_retries: self.max_error_retries,
                type_name: format!("{}.{}.{}", resource.plural, resource.version, resource.group),
                resource,
            };
            controller.run(until.clone(), news).await;
            anyhow::Ok(())
        };
        let (shutdown, lost) = (process.shutdown(), shards.lost());
        let ending = async {
            shutdown.cancelled().await;
            shards.leave();
            until.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            worked = working => worked,
            () = ending => Ok(()),
            // Passes in flight stop where they are, since other replicas may start theirs.
            () = lost.cancelled() => Ok(()),
        }
    }

    async fn context(
        &self,
        resource: ResourceId,
        process: &Process,
        shards: &Shards,
        until: &CancellationToken,
        telemetry: Telemetry,
    ) -> Result<Context> {
        let cluster = process.cluster().clone().fenced(shards.fence());
        let (queue, compositions) = (
            Arc::new(Queue::new(telemetry.queue(), Capacity::of(self.workers))),
            Arc::new(Compositions::default()),
        );
        let waiting = queue.clone();
        telemetry.tell_depth(move || waiting.depth())?;
        let backlog = Arc::new(Backlog::default());
        let origin = match self.fixed_chart() {
            Some(chart) => Origin::Fixed(Box::new(chart)),
            None => Origin::Definitions(
                definitions(&resource, &cluster, &queue, &compositions, &backlog, until)
                    .await
                    .context("could not watch the CompositionDefinitions")?,
            ),
        };
        let watches = Arc::new(watches(cluster.clone(), &resource, queue.clone()));
        Ok(Context {
            lookups: Lookups::new(cluster.clone(), queue.clone()),
            types: AwaitedTypes::new(cluster.clone(), queue.clone()),
            memories: Memories::default(),
            queue,
            compositions,
            backlog,
            origin,
            namespace: (!self.namespace.is_empty()).then(|| self.namespace.clone()),
            comparison_interval: self.comparison_interval.0,
            account: Account {
                namespace: self.sa_namespace.clone(),
                name: self.sa_name.clone(),
            },
            krateo_namespace: self.krateo_namespace.clone(),
            safe_release_name: self.safe_release_name,
            growth: if self.approve_permissions {
                Growth::Approved
            } else {
                Growth::Granted
            },
            ready_means: self.ready_means,
            max_history: self.helm_max_history,
            resync_interval: self.resync_interval.0,
            charts: Charts::new(cluster.clone(), Limits::default())
                .with_registry_config(self.charts.helm_registry_config_path.clone()),
            schemas: Schemas::default(),
            releases: Releases::new(cluster.clone(), self.release_options())
                .written_by(release::writer(&self.sa_namespace, shards.anchor()))
                .in_place_of(self.places().flat_map(|place| {
                    let leases = shards.leases().iter();
                    leases.map(move |lease| release::writer(place, lease))
                }))
                .seen_by(sightings(&watches)),
            watches,
            release_key: self.release_key(&resource, &cluster)?,
            inspector: Inspector::new(
                self.url_chart_inspector.clone(),
                self.chart_inspector_token_file.clone(),
            ),
            recorder: process.recorder().with_silence(self.event_silence.0),
            telemetry,
            parts: PassMetrics::new(process.metrics())?,
            cut_off: CutOff::new(process.metrics())?,
            bound: BoundCache::default(),
            resource,
            backoff: Backoff::new(self.min_error_retry_interval.0, self.max_error_retry_interval.0),
            cluster,
        })
    }
}

impl Args {
    /// The key that authenticates release records; none for a fixed chart without a key setting.
    fn release_key(&self, resource: &ResourceId, cluster: &Cluster) -> Result<Option<ReleaseKey>> {
        let usual = api::release_key::secret_name(&resource.plural, &resource.group);
        let (namespace, name) = match self.release_key_secret.split_once('/') {
            Some(said) => said,
            None if !self.release_key_secret.is_empty() => bail!(
                "{} is {:?}, but has to be <namespace>/<name> of a Secret",
                api::release_key::VARIABLE,
                self.release_key_secret
            ),
            None if self.fixed_chart().is_some() => {
                tracing::warn!(
                    "release records are trusted whoever wrote them: set {} to the Secret with their key",
                    api::release_key::VARIABLE
                );
                return Ok(None);
            }
            None => (self.krateo_namespace.as_str(), usual.as_str()),
        };
        Ok(Some(ReleaseKey::new(cluster.clone(), namespace, name)?))
    }
}

/// Watches the definitions. When one changes, the compositions that it governs are requeued; those that wait for their
/// first comparison only if their chart changes.
async fn definitions(
    resource: &ResourceId,
    cluster: &Cluster,
    queue: &Arc<Queue<Key>>,
    compositions: &Arc<Compositions>,
    backlog: &Arc<Backlog>,
    until: &CancellationToken,
) -> Result<Definitions, WriterDropped> {
    let (queue, compositions, backlog) = (queue.clone(), compositions.clone(), backlog.clone());
    let (api_version, kind) = (resource.api_version(), resource.kind.clone());
    let mut charts = HashMap::new();
    let look = move |definition: &CompositionDefinition| {
        let is_of_type = has_served(definition, &api_version, &kind);
        let governed = compositions.governed_by(definition, is_of_type);
        let name = (definition.namespace(), definition.name_any());
        let chart = (definition.uid(), chart_of(definition, &api_version, &kind));
        let former = charts.remove(&name);
        let has_moved = former.as_ref() != Some(&chart);
        if is_of_type || !governed.is_empty() {
            charts.insert(name, chart);
        }
        for key in governed {
            if has_moved || !backlog.contains(&key) {
                queue.add(key, Priority::Normal);
            }
        }
    };
    Definitions::watched(cluster, until.clone(), look).await
}

#[cfg(test)]
mod tests {
    use runtime::queue::Capacity;

    /// What the program itself takes, including small caches.
    const PROGRAM: usize = 40 << 20;

    #[test]
    fn the_most_memory_that_tenants_can_cause_fits_into_the_pod() {
        const DEPLOYMENT: &str =
            include_str!("../../charts/core-provider/assets/cdc-deployment/deployment.yaml");
        let (_, own) = DEPLOYMENT.split_once("limits:").unwrap();
        let (_, limit) = own.split_once("memory: ").unwrap();
        let (limit, _) = limit.split_once("Mi").unwrap();
        let limit = limit.parse::<usize>().unwrap() << 20;
        let workers = 10;
        let under_way = Capacity::of(workers).under_way();
        let most = helm_client::rendering::most_memory(under_way)
            + under_way * crate::composition::MEMORY_OF_HELD
            + crate::lookups::MEMORY
            + runtime::connections::Connections::few().most_memory()
            + charts::KEPT_BYTES;
        assert!(most + PROGRAM <= limit, "{} MiB", (most + PROGRAM) >> 20);
    }
}
