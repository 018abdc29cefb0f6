//! One controller process from start to end.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use cluster::{Answered, ClientOptions, Cluster, Election, Held, Pulse, ShardNews, Sharding, Shards};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Readiness};
use crate::connections::Connections;
use crate::otlp::{Push, Recorded};
use crate::server::{self, Server, Times};
use crate::{Metrics, Recorder, logs, shutdown, spans};

/// How long passes in flight may still take after the signal; a pod has 30 seconds before it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// The options of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the program, for logs, the user agent and events.
    pub service: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Log `debug` too.
    pub debug: bool,
    /// Kubeconfig to use instead of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, if not the current one.
    pub context: Option<String>,
    /// Where probes and metrics are served; not served if none.
    pub admin: Option<SocketAddr>,
    /// Where metrics and traces are pushed; not pushed if none.
    pub push: Option<Push>,
}

impl Options {
    /// A program with this name and version, and defaults for everything else.
    pub fn new(service: &'static str, version: &'static str) -> Self {
        Self {
            service,
            version,
            debug: false,
            kubeconfig: None,
            context: None,
            admin: None,
            push: None,
        }
    }
}

/// Why a process could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client for the API server.
    #[error("could not create a client for the API server")]
    Client(#[source] cluster::Error),
    /// The address for probes and metrics is in use or not ours.
    #[error("could not serve probes and metrics on {address}")]
    Admin {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Signals cannot be handled.
    #[error("could not listen for signals")]
    Signals(#[source] std::io::Error),
    /// The metrics could not be set up.
    #[error("could not set up the metrics")]
    Metrics(#[source] prometheus::Error),
    /// The name of the lease does not make a valid URL.
    #[error("could not acquire the lease {namespace}/{name}")]
    Stand {
        /// Namespace of the lease.
        namespace: String,
        /// Name of the lease.
        name: String,
        /// Why.
        source: cluster::Error,
    },
    /// The process was asked to shut down while it waited for the lease.
    #[error("asked to shut down while waiting for the lease")]
    Ended,
}

/// Sets up what a process has only one of: TLS provider, log, and the hook that logs panics.
///
/// A second call changes nothing.
pub fn init(service: &str, debug: bool) {
    init_traced(service, debug, None);
}

fn init_traced(service: &str, debug: bool, traces: Option<spans::Traces>) {
    choose_crypto();
    let subscriber = logs::subscriber(service, logs::filter(debug), std::io::stderr, traces);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a task panicked")));
    }
}

/// Installs the TLS provider, which every client needs.
pub(crate) fn choose_crypto() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Starts a process: log, client, metrics, signals and admin server.
///
/// # Errors
///
/// [`Error`], for `main` to print.
pub async fn start(options: Options) -> Result<Process, Error> {
    let Options {
        service,
        version,
        debug,
        kubeconfig,
        context,
        admin,
        push,
    } = options;
    // First of all: a kubelet probes a container as soon as it has started it, and again after a whole period only.
    let listener = match admin {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let (metrics, instance) = (Metrics::new().map_err(Error::Metrics)?, hostname());
    let push = push.map(|push| push.of_instance(&instance));
    let recording = push.as_ref().map(|push| push.record(&metrics)).transpose();
    let (traces, recorded) = recording.map_err(Error::Metrics)?.flatten().unzip();
    init_traced(service, debug, traces);
    push.iter().for_each(Push::warn);
    let client = ClientOptions {
        kubeconfig,
        context,
        user_agent: format!("{service}/{version}"),
    };
    let counted = metrics.clone();
    let pulse = Pulse::default();
    let told = move |answer: &Answered| {
        counted.answered(&answer.code, answer.host, answer.method.as_str());
    };
    let client = cluster::client_heard(&client, told, &pulse);
    let process = Process {
        service,
        cluster: Cluster::new(client.await.map_err(Error::Client)?),
        pulse,
        pushing: push.map(|push| Pushing::start(push, recorded, &metrics)),
        instance,
        metrics,
        readiness: Readiness::default(),
        shutdown: shutdown::on_signals().map_err(Error::Signals)?,
        tasks: TaskTracker::new(),
        ended: CancellationToken::new(),
    };
    if let Some(listener) = listener {
        let server = Server::new(process.metrics.clone())
            .with_connections(Connections::few())
            .with_times(Times::short());
        tokio::spawn(server.serve(listener, process.admin(), process.ended.clone()));
    }
    tracing::info!(version, instance = process.instance, "started");
    Ok(process)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let listening = server::listen(address).await;
    listening.map_err(|source| Error::Admin { address, source })
}

/// A running process, and what its parts share.
pub struct Process {
    service: &'static str,
    instance: String,
    cluster: Cluster,
    pulse: Pulse,
    metrics: Metrics,
    readiness: Readiness,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    pushing: Option<Pushing>,
    /// Cancelled when everything else has ended: probes are answered until then.
    ended: CancellationToken,
}

/// The tasks that push metrics and spans until the end.
struct Pushing {
    until: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Pushing {
    fn start(push: Push, recorded: Option<Recorded>, metrics: &Metrics) -> Self {
        let until = CancellationToken::new();
        let mut tasks = vec![tokio::spawn(push.run(metrics.clone(), until.clone()))];
        tasks.extend(recorded.map(|recorded| tokio::spawn(recorded.run(until.clone()))));
        Self { until, tasks }
    }

    /// Pushes what is left, which takes at most a few seconds.
    async fn finish(self) {
        self.until.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::warn!(%error, "could not make the last push");
            }
        }
    }
}

impl Process {
    /// The API server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// When a watch of the API server last received something.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The readiness that `/readyz` reports.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Cancelled when the process should end.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Name of the pod, or of the machine.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Publishes events as this process.
    pub fn recorder(&self) -> Recorder {
        Recorder::new(self.cluster.clone(), self.service, &self.instance)
    }

    /// The routes of the admin server, for programs that serve them on their own server.
    pub fn admin(&self) -> Router {
        admin::router(self.readiness.clone(), self.metrics.clone())
    }

    /// Runs a task that [`Process::finish`] waits for. The task has to watch [`Process::shutdown`].
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Serves plain HTTP in the background until the process has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Admin`] if the address is in use or not ours.
    pub async fn serve(&self, address: SocketAddr, router: Router) -> Result<SocketAddr, Error> {
        let listener = listen(address).await?;
        let bound = listener.local_addr();
        let bound = bound.map_err(|source| Error::Admin { address, source })?;
        let server = Server::new(self.metrics.clone());
        tokio::spawn(server.serve(listener, router, self.ended.clone()));
        Ok(bound)
    }

    /// Serves with TLS on the given listener, in the background until `until` is cancelled.
    ///
    /// Then connections are closed in an orderly way, requests in flight are still answered, and [`Process::finish`]
    /// waits for them.
    pub fn serve_tls(
        &self,
        listener: TcpListener,
        config: ServerConfig,
        router: Router,
        until: CancellationToken,
    ) {
        let server = Server::new(self.metrics.clone()).with_tls(config);
        self.tasks.spawn(server.serve(listener, router, until));
    }

    /// Waits for the lease that makes this process the leader.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if the process should end before; [`Error::Stand`].
    pub async fn lead(&self, namespace: &str, name: &str) -> Result<Held, Error> {
        let identity = self.identity(name);
        let election = Election::new(self.cluster.clone(), namespace, name, &identity).map_err(|source| {
            Error::Stand {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                source,
            }
        })?;
        self.metrics.set_leading(name, false);
        tracing::info!(lease = name, identity, "waiting for the lease");
        let held = self
            .shutdown
            .run_until_cancelled(election.acquire())
            .await
            .ok_or(Error::Ended)?;
        tracing::info!(lease = name, "leading");
        self.metrics.set_leading(name, true);
        let (metrics, lost, name) = (self.metrics.clone(), held.lost(), name.to_owned());
        tokio::spawn(async move {
            lost.cancelled().await;
            tracing::error!(lease = name, "lost the lease");
            metrics.set_leading(&name, false);
        });
        Ok(held)
    }

    /// Waits for a shard of the work that the replicas of this process share. Ready as soon as the shards have been
    /// read once.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if the process should end before; [`Error::Stand`].
    pub async fn share(
        &self,
        sharding: Sharding,
    ) -> Result<(Shards, mpsc::UnboundedReceiver<ShardNews>), Error> {
        let (namespace, name) = (sharding.namespace.clone(), sharding.name.clone());
        let identity = self.identity(&name);
        self.metrics.set_leading(&name, false);
        tracing::info!(
            leases = name,
            shards = sharding.count,
            identity,
            "waiting for a shard"
        );
        let seen = || self.readiness.set(true);
        let joining = Shards::join(self.cluster.clone(), sharding, &identity, seen);
        let joined = self.shutdown.run_until_cancelled(joining);
        let joined = joined.await.ok_or(Error::Ended)?;
        let (shards, news) = joined.map_err(|source| Error::Stand {
            namespace,
            name: name.clone(),
            source,
        })?;
        self.metrics.set_leading(&name, true);
        let (metrics, lost) = (self.metrics.clone(), shards.lost());
        tokio::spawn(async move {
            lost.cancelled().await;
            metrics.set_leading(&name, false);
        });
        Ok((shards, news))
    }

    /// An identity that no other process has.
    fn identity(&self, name: &str) -> String {
        format!("{}_{:016x}", self.instance, RandomState::new().hash_one(name))
    }

    /// Ends the process: cancels the tasks, waits for them for a while, then releases the lease.
    ///
    /// It stops being ready at once, so that no new work is sent here, and stays alive until the last task has ended.
    pub async fn finish(self, leading: Option<Held>) {
        self.finish_and(async {
            if let Some(held) = leading {
                held.release().await;
            }
        })
        .await;
    }

    /// Ends the process in the same way; `release` releases what it held.
    pub async fn finish_and(self, release: impl Future<Output = ()>) {
        self.readiness.set(false);
        self.shutdown.cancel();
        self.tasks.close();
        let drained = tokio::time::timeout(GRACE, self.tasks.wait()).await.is_ok();
        // While a task may still write, no other process may begin: the lease expires instead of being released.
        if drained {
            release.await;
            tracing::info!("ended");
        } else {
            tracing::warn!(tasks = self.tasks.len(), "shut down with tasks in flight");
        }
        if let Some(pushing) = self.pushing {
            pushing.finish().await;
        }
        self.ended.cancel();
    }
}

/// The name of the pod, which is its hostname.
fn hostname() -> String {
    let named = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = named.or_else(kernel).map(|name| name.trim().to_owned());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use cluster::scripted::Script;
    use http::Method;
    use serde_json::json;

    use super::*;

    fn process(script: &Script) -> Process {
        Process {
            service: "test",
            instance: "pod-1".to_owned(),
            cluster: script.cluster(),
            pulse: Pulse::default(),
            metrics: Metrics::new().unwrap(),
            readiness: Readiness::default(),
            shutdown: CancellationToken::new(),
            tasks: TaskTracker::new(),
            pushing: None,
            ended: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn a_leader_finishes_its_tasks_before_it_frees_the_lease() {
        let path = "/apis/coordination.k8s.io/v1/namespaces/krateo/leases/leader";
        let through = Arc::new(AtomicBool::new(false));
        let before_release = through.clone();
        let script = Script::new("lead, then end")
            .absent(path)
            .on(
                Method::POST,
                "/apis/coordination.k8s.io/v1/namespaces/krateo/leases",
                |sent| {
                    assert!(
                        sent["spec"]["holderIdentity"]
                            .as_str()
                            .unwrap()
                            .starts_with("pod-1_")
                    );
                },
                201,
                json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": "pod-1_x"}}),
            )
            .on(
                Method::PUT,
                path,
                move |sent| {
                    assert_eq!(sent["spec"]["holderIdentity"], "");
                    assert!(
                        before_release.load(Ordering::Relaxed),
                        "a task is still under way"
                    );
                },
                200,
                json!({}),
            );
        let process = process(&script);
        let held = process.lead("krateo", "leader").await.unwrap();
        let shutdown = process.shutdown();
        process.spawn(async move {
            shutdown.cancelled().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            through.store(true, Ordering::Relaxed);
        });
        let ended = process.ended.clone();
        process.finish(Some(held)).await;
        assert!(ended.is_cancelled());
        script.finish();
    }

    #[tokio::test]
    async fn waiting_for_the_lease_ends_with_the_process() {
        let held = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}});
        let script = Script::new("led by another").from_then_on(move |_, _, _| (200, held.clone()));
        let process = process(&script);
        let shutdown = process.shutdown();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            shutdown.cancel();
        });
        assert!(matches!(
            process.lead("krateo", "leader").await,
            Err(Error::Ended)
        ));
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let process = process(&Script::new("no request"));
        let first = process
            .serve(([127, 0, 0, 1], 0).into(), process.admin())
            .await
            .unwrap();
        let error = process.serve(first, process.admin()).await.unwrap_err();
        assert!(error.to_string().contains(&first.to_string()), "{error}");
    }
}
