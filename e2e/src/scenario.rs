//! One scenario: a namespace of its own on the cluster that all share, and words for what scenarios do.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use local_cluster::{Cluster, Options};
use serde_json::{Value, json};

use crate::{ChartFolder, Site, image, platform, progress};

/// How long anything may take until a scenario calls it lost. Far beyond what is expected: a busy machine
/// must not fail a test.
const PATIENCE: Duration = Duration::from_mins(2);

/// The cluster that all scenarios share, with the platform on it.
struct Shared {
    cluster: Cluster,
    site: Site,
}

/// A namespace of its own on the shared cluster.
pub struct Scenario {
    name: String,
    shared: &'static Shared,
}

impl Scenario {
    /// Starts the shared cluster when it is the first, and makes the namespace `name`, which enforces the
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
        Self::on(Box::leak(Box::new(set_up()?)), name)
    }

    fn on(shared: &'static Shared, name: &str) -> Result<Self> {
        let scenario = Self {
            name: name.to_owned(),
            shared,
        };
        scenario.apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }))?;
        Ok(scenario)
    }

    /// The scenario's namespace.
    pub fn namespace(&self) -> &str {
        &self.name
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.shared.site
    }

    /// The image of the web server.
    pub fn web_image(&self) -> String {
        image::reference(&self.shared.site, "web-server")
    }

    /// Pushes `e2e/charts/web` under another name, so that scenarios do not meet in one type.
    ///
    /// # Errors
    /// When Helm fails.
    pub fn push_web_chart(&self, name: &str, version: &str) -> Result<String> {
        ChartFolder::copy("web", name, version)?.push(&self.shared.site)
    }

    /// Applies an object as admin.
    ///
    /// # Errors
    /// When the API server refuses it; the message has what it said.
    pub fn apply(&self, object: &Value) -> Result<()> {
        platform::apply(&self.shared.site, &object.to_string())
    }

    /// Applies a definition of the chart at `url`, in the scenario's namespace.
    ///
    /// # Errors
    /// As [`Scenario::apply`].
    pub fn define(&self, name: &str, url: &str, version: &str) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"chart": {"url": url, "version": version, "plainHTTP": true}},
        }))
    }

    /// Runs kubectl in the scenario's namespace and gives what it printed.
    ///
    /// # Errors
    /// When it fails; the message has what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.shared.site.kubectl(["--namespace", &self.name]);
        command.args(arguments);
        self.shared.site.run(command)
    }

    /// Runs the real Helm in the scenario's namespace and gives what it printed.
    ///
    /// # Errors
    /// As [`Scenario::kubectl`].
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.shared.site.helm(["--namespace", &self.name]);
        command.args(arguments);
        self.shared.site.run(command)
    }

    /// An object of the scenario's namespace; `None` when it is not there.
    ///
    /// # Errors
    /// When the answer is no object.
    pub fn get(&self, resource: &str, name: &str) -> Result<Option<Value>> {
        let found = self.kubectl(&["get", resource, name, "--ignore-not-found", "--output", "json"]);
        match found {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            // The type itself may not be there.
            Err(error)
                if error
                    .to_string()
                    .contains("the server doesn't have a resource type") =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the object says what `is_so` wants, and gives it.
    ///
    /// # Errors
    /// After two minutes, with the object as it was seen last.
    pub fn wait(&self, resource: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut seen = None;
        self.wait_until(&format!("{resource}/{name}"), || {
            seen = self.get(resource, name)?;
            Ok(seen.clone().filter(&is_so))
        })
        .with_context(|| {
            format!(
                "seen last: {}",
                seen.map_or("nothing".to_owned(), |seen| shown(&seen))
            )
        })
    }

    /// Waits until a condition of the object has this status, and gives the object.
    ///
    /// # Errors
    /// As [`Scenario::wait`].
    pub fn wait_for(&self, resource: &str, name: &str, condition: &str, status: &str) -> Result<Value> {
        self.wait(resource, name, |object| {
            self::condition(object, condition).is_some_and(|condition| condition["status"] == status)
        })
    }

    /// Waits until the object is gone.
    ///
    /// # Errors
    /// As [`Scenario::wait`].
    pub fn wait_gone(&self, resource: &str, name: &str) -> Result<()> {
        self.wait_until(&format!("{resource}/{name} to go"), || {
            Ok(self.get(resource, name)?.is_none().then_some(()))
        })
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// After two minutes; at once when `look` fails.
    pub fn wait_until<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if started.elapsed() > PATIENCE {
                bail!("{what}: not so after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// What the web server of a release answers, asked from the node through its Service.
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

/// What went wrong is in the logs, and the cluster is gone a moment later.
impl Drop for Scenario {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let folder = logs().join(&self.name);
            match self.shared.cluster.collect_logs(&folder) {
                Ok(()) => progress(format_args!(
                    "{} failed: logs are in {}",
                    self.name,
                    folder.display()
                )),
                Err(error) => progress(format_args!(
                    "{} failed, and so did keeping its logs: {error:#}",
                    self.name
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

/// One condition of an object.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

fn shown(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    format!("{object:#}")
}

fn logs() -> PathBuf {
    std::env::var_os("E2E_LOGS").map_or_else(|| image::root().join("target/e2e-logs"), PathBuf::from)
}

fn shared() -> Result<&'static Shared> {
    static SHARED: OnceLock<std::result::Result<Shared, String>> = OnceLock::new();
    SHARED
        .get_or_init(|| set_up().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

/// A cluster with our images and the platform. It is dropped by its watchdog when this process ends.
fn set_up() -> Result<Shared> {
    let started = Instant::now();
    let phase = |what: &str| progress(format_args!("{:5.1} s  {what}", started.elapsed().as_secs_f32()));
    phase("starting a cluster");
    let cluster = Cluster::start(Options::default())?;
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
    phase("installing the platform");
    if let Err(error) = platform::install(&site) {
        let folder = logs().join("install");
        cluster.collect_logs(&folder)?;
        return Err(error.context(format!("logs are in {}", folder.display())));
    }
    phase("ready for scenarios");
    Ok(Shared { cluster, site })
}
