//! One scenario: its own namespace on the shared cluster, with our programs in pods.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, Result};
use local_cluster::{Cluster, Options};

pub use crate::namespace::{condition, is_ready};
use crate::{ChartFolder, Namespace, Site, image, platform, progress};

/// The cluster that all scenarios share, with the platform on it.
struct Shared {
    cluster: Cluster,
    site: Site,
}

/// A namespace of its own on the shared cluster.
pub struct Scenario {
    namespace: Namespace,
    shared: &'static Shared,
}

impl Deref for Scenario {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Scenario {
    /// Starts the shared cluster if it does not run yet, and creates the namespace `name`, which enforces the
    /// restricted Pod Security standard.
    ///
    /// # Errors
    /// When cluster or platform do not come up.
    pub fn start(name: &str) -> Result<Self> {
        Self::on(shared()?, name)
    }

    /// As [`Scenario::start`], on a cluster of its own: for what others must not feel.
    ///
    /// # Errors
    /// When cluster or platform do not come up.
    pub fn alone(name: &str) -> Result<Self> {
        Self::alone_on(name, Options::default(), |_| Ok(()))
    }

    /// Like [`Scenario::alone`], on a cluster with these options, which `prepare` changes before the platform is
    /// installed.
    ///
    /// # Errors
    /// As [`Scenario::alone`], or what `prepare` says.
    pub fn alone_on(
        name: &str,
        options: Options,
        prepare: impl FnOnce(&Cluster) -> Result<()>,
    ) -> Result<Self> {
        Self::on(Box::leak(Box::new(set_up(options, prepare)?)), name)
    }

    fn on(shared: &'static Shared, name: &str) -> Result<Self> {
        Ok(Self {
            namespace: Namespace::make(name, &shared.site)?,
            shared,
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// The image of the web server.
    pub fn web_image(&self) -> String {
        image::reference(&self.shared.site, "web-server")
    }

    /// Pushes `e2e/charts/web` under another name, so that scenarios do not share a type.
    ///
    /// # Errors
    /// When Helm fails.
    pub fn push_web_chart(&self, name: &str, version: &str) -> Result<String> {
        ChartFolder::copy("web", name, version)?.push(&self.shared.site)
    }

    /// The answer of a release's web server, requested from the node through its Service.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn ask_web_server(&self, service: &str) -> Result<String> {
        let address = self.kubectl(&[
            "get",
            "service",
            service,
            "--output",
            "jsonpath={.spec.clusterIP}",
        ])?;
        let url = format!("http://{address}/");
        self.shared.site.run(on_node(
            &self.shared.cluster,
            &["curl", "--silent", "--fail", "--max-time", "5", &url],
        )?)
    }
}

/// The logs show what went wrong, and the cluster will be gone in a moment.
impl Drop for Scenario {
    fn drop(&mut self) {
        if std::thread::panicking() || self.gave_up() {
            let folder = logs().join(self.namespace());
            match self.shared.cluster.collect_logs(&folder) {
                Ok(()) => progress(format_args!(
                    "{} failed: logs are in {}",
                    self.namespace(),
                    folder.display()
                )),
                Err(error) => progress(format_args!(
                    "{} failed, and so did keeping its logs: {error:#}",
                    self.namespace()
                )),
            }
        }
    }
}

/// A command on the first node, which reaches pods and Services.
///
/// # Errors
/// When the cluster has no node.
pub fn on_node(cluster: &Cluster, command_line: &[&str]) -> Result<Command> {
    let node = cluster.nodes().first().context("the cluster has no node")?;
    Ok(cluster.exec_in_node(node, command_line))
}

/// The folder for logs of failures: `$E2E_LOGS`, or a folder of the project's `target`.
pub fn logs() -> PathBuf {
    std::env::var_os("E2E_LOGS").map_or_else(|| image::root().join("target/e2e-logs"), PathBuf::from)
}

fn shared() -> Result<&'static Shared> {
    static SHARED: OnceLock<std::result::Result<Shared, String>> = OnceLock::new();
    SHARED
        .get_or_init(|| set_up(Options::default(), |_| Ok(())).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

/// A cluster with our images and the platform. Its watchdog removes it when this process ends.
fn set_up(options: Options, prepare: impl FnOnce(&Cluster) -> Result<()>) -> Result<Shared> {
    let (cluster, site) = cluster_with_images(options, prepare)?;
    let started = Instant::now();
    if let Err(error) = platform::install(&site) {
        let folder = logs().join("install");
        cluster.collect_logs(&folder)?;
        return Err(error.context(format!("logs are in {}", folder.display())));
    }
    progress(format_args!(
        "{:5.1} s  ready for scenarios",
        started.elapsed().as_secs_f32()
    ));
    Ok(Shared { cluster, site })
}

/// A cluster with these options, changed by `prepare`, whose registry has our images. Its watchdog removes it when this
/// process ends.
///
/// # Errors
/// When the cluster does not come up, an image cannot be built, or what `prepare` says.
pub fn cluster_with_images(
    options: Options,
    prepare: impl FnOnce(&Cluster) -> Result<()>,
) -> Result<(Cluster, Site)> {
    let started = Instant::now();
    let phase = |what: &str| progress(format_args!("{:5.1} s  {what}", started.elapsed().as_secs_f32()));
    phase("starting a cluster");
    let cluster = Cluster::start(options)?;
    prepare(&cluster)?;
    let versions: Vec<_> = cluster
        .versions()
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    progress(versions.join(", "));
    for (reached, after) in cluster.timings() {
        progress(format_args!("  {:5.1} s  {reached}", after.as_secs_f32()));
    }
    let site = Site::local(&cluster)?;
    phase("building and pushing images");
    image::push_all(&site)?;
    phase("images are there");
    Ok((cluster, site))
}
