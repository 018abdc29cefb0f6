//! Evaluates the arguments and runs the operator: the watch cluster, the other clusters, and the work on them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use api::mesh;
use charts::Charts;
use charts::source;
use cluster::kubeconfig::{self, Limits};
use cluster::{Answered, Cluster, Held, ObjectId, Pulse};
use helm_client::rendering::{self, Event};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use runtime::{Process, Recorder, Renders, Telemetry};
use tokio::sync::mpsc;

use crate::args::Args;
use crate::chart::ProcessChart;
use crate::claims::Claims;
use crate::cluster_id::ClusterId;
use crate::context::{Context, Engine};
use crate::metrics::OperatorMetrics;
use crate::registry::{self, Registry};
use crate::{crds, release_key, self_cluster};

/// Name of the Lease, in the operator's own namespace.
const LEASE: &str = "multicluster-operator";

impl Args {
    /// Runs the operator until it is asked to shut down.
    pub(crate) async fn run(self) -> Result<()> {
        let mut options = runtime::Options::new(LEASE, env!("CARGO_PKG_VERSION"));
        options.debug = self.debug;
        options.kubeconfig = self.file();
        options.context.clone_from(&self.watch_context);
        options.admin = address(self.health_port);
        options.push = Some(self.push.push(options.service));
        let process = runtime::start(options).await?;
        if let Some(metrics) = address(self.metrics_port).filter(|_| self.metrics_port != self.health_port) {
            process.serve(metrics, process.admin()).await?;
        }
        let renders = Renders::new(process.metrics())?;
        rendering::tell_events(move |event| match event {
            Event::Waited(time) => renders.waited(time),
            Event::Refused(reason) => renders.refused(reason),
            Event::Exceeded(limit) => renders.exceeded(limit),
        });
        // A replica that waits for the Lease is ready, because it can take over.
        process.readiness().set(true);
        let mut leading = None;
        let served = Box::pin(self.serve(&process, &mut leading)).await;
        process.finish(leading).await;
        match served {
            Err(error) if error.is::<Ended>() => Ok(()),
            served => served,
        }
    }

    async fn serve(&self, process: &Process, leading: &mut Option<Held>) -> Result<()> {
        if self.leader_elect {
            match process.lead(&self.home_namespace(), LEASE).await {
                Err(runtime::Error::Ended) => bail!(Ended),
                held => *leading = Some(held?),
            }
        }
        let (news, changes) = mpsc::unbounded_channel();
        let ctx = Arc::new(self.context(process, news).await?);
        if self.ensure_watch_crds {
            for crd in mesh::crds() {
                let name = crd.metadata.name.clone().unwrap_or_default();
                let ensuring = crds::ensure(&ctx.home, &crd).await;
                ensuring.with_context(|| format!("could not create the type {name} on the watch cluster"))?;
            }
        }
        let registry = Arc::new(Registry::new(ctx.clone()));
        if self.self_cluster {
            self.keep_own_kubeconfig(&ctx).await;
            registry.discovered(&self_cluster::id(&ctx), registry::Source::Home);
        }
        let until = process.shutdown();
        let lost = leading.as_ref().map(Held::lost).unwrap_or_default();
        let following = registry::follow(
            registry.clone(),
            &ctx,
            &self.kubeconfig_label,
            until.clone(),
            || {},
        );
        let routing = crate::deployment::route(registry.clone(), ctx.clone(), changes, until.clone());
        let home_namespace = self.home_namespace();
        let following_key = Box::pin(release_key::follow(
            &ctx.home,
            &home_namespace,
            &ctx.engine.keys,
            until.clone(),
            || registry.look_again(),
        ));
        let working = async { tokio::join!(following, routing, following_key) };
        let is_lost = tokio::select! {
            _ = working => false,
            // Another process begins: passes in flight here stop before their next write.
            () = lost.cancelled() => true,
        };
        if is_lost {
            bail!("another process holds the Lease: ending");
        }
        registry.end().await;
        Ok(())
    }

    /// The kubeconfig file that was named; if it is a list, like `$KUBECONFIG` may be, its first entry.
    fn file(&self) -> Option<PathBuf> {
        let file = self.watch_kubeconfig.clone();
        let file = file.or_else(|| self.watch_cluster_kubeconfig.clone());
        let mut listed = std::env::split_paths(self.client.kubeconfig.as_deref().unwrap_or(Path::new("")));
        file.or_else(|| listed.find(|path| !path.as_os_str().is_empty()))
    }

    /// The Secret with the kubeconfig of the watch cluster.
    fn watch_secret(&self) -> Option<&str> {
        let name = self.watch_kubeconfig_secret.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Stores this process's kubeconfig in a Secret on the watch cluster, if the kubeconfig is for that cluster.
    async fn keep_own_kubeconfig(&self, ctx: &Context) {
        if self.watch_secret().is_some() {
            return;
        }
        let (label, context) = (&self.kubeconfig_label, self.watch_context.clone());
        if let Err(error) = self_cluster::keep(ctx, label, self.file(), context).await {
            tracing::warn!(
                error = crate::message::chain(&error),
                "could not store the kubeconfig of this process in a Secret"
            );
        }
    }

    async fn context(&self, process: &Process, news: mpsc::UnboundedSender<ClusterId>) -> Result<Context> {
        let (home, home_pulse) = self.watch_cluster(process).await?;
        let keys = release_key::read_or_make(&home, &self.home_namespace()).await?;
        let limits = Limits {
            loopback: self.allow_loopback_clusters,
            link_local: self.allow_link_local_clusters,
            ..Limits::default()
        };
        Ok(Context {
            engine: Engine {
                chart: ProcessChart {
                    repo: self.chart_repo.clone(),
                    name: self.chart_name.clone(),
                    version: self.chart_version.clone(),
                    digest: self.chart_digest.clone(),
                    plain_http: self.chart_plain_http,
                    access: self.chart_access.origin(&self.home_namespace()),
                },
                charts: Charts::new(home.clone(), source::Limits::default())
                    .with_registry_config(self.charts.helm_registry_config_path.clone()),
                keys,
                identity: format!("{}_{}", process.instance(), std::process::id()),
                max_history: self.helm_max_history,
                install_crds: self.chart_install_crds,
                open_namespaces: self.open_namespaces(),
            },
            recorder: Recorder::new(home.clone(), mesh::events::OPERATOR, process.instance()),
            home,
            home_pulse,
            instance: process.instance().to_owned(),
            telemetry: Telemetry::new(process.metrics(), "multicluster", LEASE)?,
            metrics: OperatorMetrics::new(process.metrics())?,
            mode: self.mode,
            serves_self: self.self_cluster,
            discovery_namespace: self.discovery_namespace(),
            kubeconfig_key: self.kubeconfig_key.clone(),
            served_namespaces: self.served_namespaces(),
            allow_chart_skip: self.allow_chart_skip,
            workers: self.workers_per_cluster,
            limits,
            check_interval: self.check_interval.0,
            resync_interval: self.resync_interval.0,
            probe_interval: self.probe_interval.0,
            grace: self.shutdown_grace.0,
            min_retry: self.min_error_retry_interval.0,
            max_retry: self.max_error_retry_interval.0,
            claims: Claims::default(),
            news,
        })
    }

    /// The watch cluster: from the Secret if one is named, else from the file, else the cluster of this pod. If the
    /// named source cannot be used, the process ends. Also returns the pulse of its watches.
    async fn watch_cluster(&self, process: &Process) -> Result<(Cluster, Pulse)> {
        let Some(name) = self.watch_secret() else {
            return Ok((process.cluster().clone(), process.pulse().clone()));
        };
        let discovery = self.discovery_namespace();
        let said = self.watch_kubeconfig_secret_namespace.as_deref();
        let namespace = said.filter(|said| !said.is_empty()).unwrap_or(&discovery);
        let what = || format!("the watch cluster's kubeconfig, Secret {namespace}/{name}");
        let id = ObjectId::of::<Secret>(Some(namespace), name)?;
        let secret: Option<Secret> = process.cluster().get(&id).await.with_context(what)?;
        let data = secret.with_context(|| format!("{} does not exist", what()))?.data;
        let key = &self.watch_kubeconfig_secret_key;
        let ByteString(text) = data
            .unwrap_or_default()
            .remove(key)
            .with_context(|| format!("{} has no key {key}", what()))?;
        // Whoever may write Secrets in the operator's namespace can choose where it works, but not which programs run
        // in it.
        let limits = Limits {
            loopback: true,
            ..Limits::default()
        };
        let config = kubeconfig::untrusted(&text, &limits).with_context(what)?;
        let agent = concat!("multicluster-operator/", env!("CARGO_PKG_VERSION"));
        let pulse = Pulse::default();
        let client = kubeconfig::client_heard(config, &limits, agent, |_: &Answered| {}, &pulse);
        let client = client.with_context(what)?;
        let cluster = Cluster::new(client);
        let version = cluster.client().apiserver_version().await;
        version.with_context(|| format!("{} does not lead to an API server that answers", what()))?;
        Ok((cluster, pulse))
    }
}

/// The process was asked to shut down before it began.
#[derive(Debug, thiserror::Error)]
#[error("asked to shut down")]
struct Ended;

fn address(port: u16) -> Option<SocketAddr> {
    (port != 0).then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
}
