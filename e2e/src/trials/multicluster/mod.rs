//! Two control planes, each with its own etcd, a chart repository, and the operator that reconciles both.

pub mod demo;
pub mod kills;
pub mod latency;
pub mod names;
pub mod rotations;
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use local_cluster::certificates::Authority;
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

use self::wire::Wire;
use crate::http_server::Answer;
use crate::{ChartFolder, HttpServer, Namespace, Shared, Site, image, progress};

/// The namespace at home with the kubeconfigs of clusters.
pub const CLUSTERS: &str = "clusters";

/// The label of Secrets with kubeconfigs.
pub const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

const PROGRAM: &str = "multicluster-operator";

const CONFIG_MAP: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  {{- with .Values.elsewhere }}
  namespace: {{ . }}
  {{- end }}
data:
  version: {{ .Chart.Version | quote }}
  greeting: {{ .Values.greeting | quote }}
  {{- with .Values.looks }}
  found: {{ (lookup \"v1\" .kind .namespace .name).data | toJson | quote }}
  {{- end }}
{{- if .Values.tedious }}
{{- range until 100000 }}{{ range until 10000 }}{{ end }}{{ end }}
{{- end }}
";

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports: [{port: 80}]
";

const DEPLOYMENT: &str = "{{- if .Values.workload }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {{ .Values.replicaCount }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: {{ .Values.image | quote }}}]
{{- end }}
";

/// There are no pods on a control plane: the test plays the kubelet and decides how they end.
const HOOK: &str = "{{- if .Values.hooked }}
apiVersion: v1
kind: Pod
metadata:
  name: check
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
spec:
  restartPolicy: Never
  containers: [{name: check, image: web.invalid/check}]
{{- end }}
";

/// The API server only refuses it when it is applied.
const REFUSED: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: Not-A-Name
";

/// Home, a remote cluster, and the charts.
pub struct Clusters {
    /// The home cluster, where the operator finds clusters.
    pub home: ControlPlane,
    /// The remote cluster.
    pub remote: ControlPlane,
    home_site: Site,
    remote_site: Site,
    repository: HttpServer,
    is_away: Arc<AtomicBool>,
    started: AtomicUsize,
}

impl Clusters {
    /// Those that the scenarios of this process share, each used by one at a time.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn shared() -> Result<MutexGuard<'static, Self>> {
        static SHARED: Shared<Clusters, 2> = Shared::new();
        SHARED.get(Self::start)
    }

    /// Starts both in parallel, and a repository with charts `shop` 1.0.0, 1.1.0 and 2.0.0, the last of which cannot be
    /// installed.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start() -> Result<Self> {
        let (home, remote) = std::thread::scope(|scope| {
            let remote = scope.spawn(|| ControlPlane::start(Options::default()));
            (ControlPlane::start(Options::default()), remote.join())
        });
        let (home, remote) = (home?, remote.ok().context("a control plane did not start")??);
        let (home_site, remote_site) = (Site::host(&home)?, Site::host(&remote)?);
        progress("packaging the charts of tenants");
        let is_away = Arc::new(AtomicBool::new(false));
        let repository = serve(charts(&home_site)?, is_away.clone())?;
        Namespace::of(CLUSTERS, &home_site).apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLUSTERS},
        }))?;
        Ok(Self {
            home,
            remote,
            home_site,
            remote_site,
            repository,
            is_away,
            started: AtomicUsize::new(0),
        })
    }

    /// A namespace at home, which may not exist.
    pub fn at_home(&self, namespace: &str) -> Namespace {
        Namespace::of(namespace, &self.home_site)
    }

    /// A namespace of the remote cluster, which may not exist.
    pub fn at_remote(&self, namespace: &str) -> Namespace {
        Namespace::of(namespace, &self.remote_site)
    }

    /// Makes the repository answer, or not.
    pub fn repository_is_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// The flags of an operator at home, with additional ones.
    pub fn flags(&self, flags: &[&str]) -> Vec<String> {
        arguments(&self.repository, CLUSTERS, flags)
    }

    /// The operator at home with these additional flags, for the caller to run.
    ///
    /// # Errors
    /// When it is not built.
    pub fn operator(&self, flags: &[&str]) -> Result<Command> {
        let mut command = Command::new(image::binary(PROGRAM)?);
        command
            .args(self.flags(flags))
            .env("KUBECONFIG", self.home.kubeconfig())
            .env("NO_PROXY", "127.0.0.1");
        Ok(command)
    }

    /// Starts the operator at home with these additional flags; returns the name of the program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_operator(&self, flags: &[&str]) -> Result<String> {
        self.start_operator_with(flags, &[])
    }

    /// The same with environment variables.
    ///
    /// # Errors
    /// As [`Clusters::start_operator`].
    pub fn start_operator_with(&self, flags: &[&str], environment: &[(&str, &str)]) -> Result<String> {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let name = format!("{PROGRAM}-{number}");
        let kubeconfig = self.home.kubeconfig();
        let kubeconfig = kubeconfig.to_string_lossy();
        let mut environment = environment.to_vec();
        environment.extend([("KUBECONFIG", &*kubeconfig), ("NO_PROXY", "127.0.0.1")]);
        let arguments = self.flags(flags);
        self.home
            .start_program(&name, &image::binary(PROGRAM)?, arguments, &environment)?;
        Ok(name)
    }

    /// Runs a scenario with both; on failure the operators' logs are kept.
    ///
    /// # Errors
    /// As `scenario`.
    pub fn explained(&self, scenario: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let _operators = Operators(self);
        let outcome = scenario(self);
        if outcome.is_err() {
            let folder = image::root().join("target/e2e-logs/multicluster");
            for (plane, name) in [(&self.home, "home"), (&self.remote, "remote")] {
                plane.collect_logs(&folder.join(name))?;
            }
            progress(format_args!("logs are in {}", folder.display()));
        }
        outcome
    }

    /// Kills the operator, and releases its Lease, as it does when it ends by a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_operator(&self, name: &str) -> Result<()> {
        self.home.kill_component(name)?;
        let lease = ["delete", "lease", PROGRAM, "--ignore-not-found"];
        self.at_home(CLUSTERS).kubectl(&lease).map(drop)
    }

    /// Makes the Secret with a kubeconfig, as users do.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn join(&self, name: &str, kubeconfig: &Path, allowed_from: &str) -> Result<()> {
        let text = BASE64_STANDARD.encode(fs::read(kubeconfig)?);
        self.at_home(CLUSTERS).apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": name, "namespace": CLUSTERS, "labels": {LABEL: "true"},
                "annotations": {"krateo.io/allow-from-namespaces": allowed_from},
            },
            "data": {"kubeconfig": text},
        }))
    }

    /// The same for the remote cluster through a connection that can be cut, see [`Link::cut`].
    ///
    /// # Errors
    /// When the connection cannot be made, or the API server refuses the Secret.
    pub fn join_by_link(&self, name: &str) -> Result<Link> {
        let server = self.remote.api_server();
        let address = server.trim_start_matches("https://");
        let wire = Wire::to(address.parse().context("the API server has no address")?)?;
        let text = fs::read_to_string(self.remote.kubeconfig())?;
        let text = text.replace(address, &wire.address().to_string());
        let kubeconfig = self.remote.folder().join(format!("{name}.kubeconfig"));
        fs::write(&kubeconfig, text)?;
        self.join(name, &kubeconfig, "")?;
        Ok(Link(wire))
    }

    /// Serves the same charts by TLS, with this user name and password. Returns the server and the certificate of its
    /// CA.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn guarded_repository(&self, login: &str) -> Result<(HttpServer, String)> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::create(folder.path().to_owned())?;
        authority.serve("server", vec!["127.0.0.1".to_owned()])?;
        let (certificate, key) = (folder.path().join("server.crt"), folder.path().join("server.key"));
        let files = charts(&self.home_site)?;
        let shown = format!("Basic {}", BASE64_STANDARD.encode(login));
        let server = HttpServer::start_tls(&certificate, &key, move |asked| {
            if asked.authorization.as_ref() != Some(&shown) {
                return Answer::Status(401);
            }
            let file = files.get(&asked.path);
            file.map_or(Answer::Status(404), |bytes| Answer::Content(bytes.clone()))
        })?;
        Ok((server, fs::read_to_string(authority.certificate())?))
    }

    /// Makes a namespace at home.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn make_at_home(&self, namespace: &str) -> Result<Namespace> {
        made(self.at_home(namespace))
    }

    /// Makes a namespace on the remote cluster.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn make_at_remote(&self, namespace: &str) -> Result<Namespace> {
        made(self.at_remote(namespace))
    }

    /// Waits until the type of tenants is served at home.
    ///
    /// # Errors
    /// When it is not.
    pub fn wait_for_tenants(&self) -> Result<()> {
        let is_served = |it: &Value| it["status"]["acceptedNames"]["kind"] == "Tenant";
        let home = self.at_home(CLUSTERS);
        let served = home.wait("customresourcedefinitions", "tenants.mesh.openkcm.io", is_served);
        served.map(drop)
    }

    /// Waits until the operator reports this state of a cluster.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_state(&self, cluster: &str, state: &str) -> Result<()> {
        let what = format!("cluster {cluster} to be {state}");
        self.at_home(CLUSTERS).wait_until(&what, || {
            Ok((self.state(cluster)?.as_deref() == Some(state)).then_some(()))
        })
    }

    /// The state of a cluster, as in the Secret.
    ///
    /// # Errors
    /// When kubectl fails.
    pub fn state(&self, cluster: &str) -> Result<Option<String>> {
        let Some(secret) = self.at_home(CLUSTERS).get("secrets", cluster)? else {
            return Ok(None);
        };
        let text = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
        let standing: Value = serde_json::from_str(text.unwrap_or("null"))?;
        Ok(standing["state"].as_str().map(str::to_owned))
    }
}

/// The operators that a scenario has started end with it, also if it panics, so that the next one begins with none.
struct Operators<'c>(&'c Clusters);

impl Drop for Operators<'_> {
    fn drop(&mut self) {
        let Self(clusters) = self;
        for number in 0..clusters.started.load(Ordering::SeqCst) {
            let _ = clusters.home.kill_component(&format!("{PROGRAM}-{number}"));
        }
    }
}

fn made(namespace: Namespace) -> Result<Namespace> {
    let name = namespace.namespace();
    namespace.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))?;
    Ok(namespace)
}

/// The connection to a cluster.
pub struct Link(Wire);

impl Link {
    /// Cuts it: connections stay open, and nothing gets through any more.
    pub fn cut(&mut self) {
        self.0.cut();
    }
}

/// The flags of an operator that releases chart `shop` of a repository, with its Secrets in this namespace; additional
/// flags replace those of the same name.
pub(crate) fn arguments(charts: &HttpServer, namespace: &str, flags: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--chart-name=shop",
        "--chart-version=1.0.0",
        "--metrics-port=0",
        "--health-port=0",
        "--allow-loopback-clusters",
        "--ensure-watch-crds",
        "--probe-interval=1s",
        "--max-error-retry-interval=2s",
        "--debug",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--namespace={namespace}"));
    arguments.push(format!("--own-namespace={namespace}"));
    arguments.push(format!("--chart-repo={}", charts.url("/charts")));
    // The last of several counts.
    arguments.retain(|argument| {
        let flag = argument.split('=').next().unwrap_or_default();
        !flags.iter().any(|given| given.split('=').next() == Some(flag))
    });
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    arguments
}

/// A tenant.
pub fn tenant(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "mesh.openkcm.io/v1alpha1", "kind": "Tenant",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// A deployment to a region.
pub fn deployment(namespace: &str, name: &str, region: &Value, values: &Value) -> Value {
    json!({
        "apiVersion": "mesh.openkcm.io/v1alpha1", "kind": "KryptonDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"account": {"name": "acme"}, "region": region, "values": values},
    })
}

/// The reasons of the events about an object, unordered.
///
/// # Errors
/// When kubectl fails.
pub fn events(namespace: &Namespace, name: &str) -> Result<Vec<String>> {
    let selector = format!("--field-selector=regarding.name={name}");
    let events = namespace.kubectl(&["get", "events.events.k8s.io", &selector, "--output=json"])?;
    let events: Value = serde_json::from_str(&events)?;
    let reasons = events["items"].as_array().into_iter().flatten();
    Ok(reasons
        .filter_map(|event| event["reason"].as_str().map(str::to_owned))
        .collect())
}

/// The metrics that a program on this host serves on a port.
///
/// # Errors
/// When nobody answers.
pub fn figures(port: u16) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{port}/metrics");
    // A proxy would not reach it.
    let client = reqwest::Client::builder().no_proxy().build()?;
    runtime.block_on(async { Ok(client.get(url).send().await?.error_for_status()?.text().await?) })
}

/// The condition of a tenant about a cluster, as `True Installed`.
pub fn said(tenant: &Value, type_: &str) -> String {
    let condition = crate::namespace::condition(tenant, type_);
    condition.map_or_else(String::new, |condition| {
        let word = |field: &str| condition[field].as_str().unwrap_or_default();
        format!("{} {}", word("status"), word("reason"))
    })
}

/// A repository with charts `shop`, as in [`Clusters::start`].
pub(crate) fn charts_of(site: &Site) -> Result<HttpServer> {
    serve(charts(site)?, Arc::default())
}

/// Chart `shop` in a version: a `ConfigMap`, with the result of a lookup if values ask for one, a Service, and a
/// Deployment if values ask for it. Tedious values use up all the time that rendering may take.
fn chart(version: &str) -> Result<ChartFolder> {
    let chart = ChartFolder::copy("web", "shop", version)?;
    fs::remove_dir_all(chart.folder().join("templates"))?;
    fs::create_dir(chart.folder().join("templates"))?;
    chart.remove("values.schema.json")?;
    chart.write(
        "values.yaml",
        "greeting: hello\nworkload: false\nimage: web.invalid/web\nreplicaCount: 1\nhooked: false\nelsewhere: \"\"\n\
         looks: {}\ntedious: false\n",
    )?;
    chart.write("templates/config-map.yaml", CONFIG_MAP)?;
    chart.write("templates/service.yaml", SERVICE)?;
    chart.write("templates/deployment.yaml", DEPLOYMENT)?;
    chart.write("templates/hook.yaml", HOOK)?;
    if version == "2.0.0" {
        chart.write("templates/refused.yaml", REFUSED)?;
    }
    Ok(chart)
}

fn charts(site: &Site) -> Result<BTreeMap<String, Vec<u8>>> {
    let folder = tempfile::tempdir()?;
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        let package = chart(version)?.package(site)?;
        let name = package.file().file_name().unwrap_or_default();
        fs::copy(package.file(), folder.path().join(name))?;
    }
    site.run(site.helm(["repo", "index", &folder.path().to_string_lossy()]))?;
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        let path = format!("/charts/{}", entry.file_name().to_string_lossy());
        files.insert(path, fs::read(entry.path())?);
    }
    Ok(files)
}

fn serve(files: BTreeMap<String, Vec<u8>>, is_away: Arc<AtomicBool>) -> Result<HttpServer> {
    HttpServer::start(move |asked| {
        if is_away.load(Ordering::SeqCst) {
            return Answer::Status(503);
        }
        files
            .get(&asked.path)
            .map_or(Answer::Status(404), |bytes| Answer::Content(bytes.clone()))
    })
}
