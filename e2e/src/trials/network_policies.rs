//! The `NetworkPolicies` of `charts/core-provider`, enforced by kube-router on a cluster of its own: which connections
//! they allow and which they refuse. Each connection is first tried without them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::{Options, output};
use serde_json::{Value, json};

use crate::trials::admission::{composition, failed_open, judged_chart, wait_until_judged};
use crate::{Namespace, Scenario, namespace, platform, progress};

/// The node of the API server, and the only one through which the host reaches it.
const API_SERVER_NODE: &str = "node-1";

/// The node of the programs: another one than the API server's, because kube-router lets a node reach its own pods, for
/// probes.
const PROGRAMS_NODE: &str = "node-2";

/// The namespace that `networkPolicy.metrics` names.
const MONITORING: &str = "monitoring";

/// Kind and plural of the types that are defined, the second with the policies in force.
const DEFINITIONS: [(&str, &str); 2] = [("Judge", "judges"), ("Ruler", "rulers")];

/// Long enough for rules to be written on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The results.
#[derive(Debug)]
pub struct Outcome {
    /// Each connection as found without policies, which must be open.
    pub without: Vec<Attempt>,
    /// Each as found with them.
    pub with: Vec<Attempt>,
    /// Connections that show the effect of setting `networkPolicy.apiServers` to another machine's address.
    pub misnamed: Vec<Attempt>,
    /// Connections that show the effect of running controllers beside their definitions.
    pub moved: Vec<Attempt>,
}

impl Outcome {
    /// True if each was found as expected.
    pub fn is_good(&self) -> bool {
        self.otherwise() == 0
    }

    /// How many were not found as expected, with policies or without.
    fn otherwise(&self) -> usize {
        let all = [&self.without, &self.with, &self.misnamed, &self.moved];
        let attempts = all.into_iter().flatten();
        attempts.filter(|attempt| !attempt.is_as_expected()).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = |is_open| {
            let of_these = |attempt: &&Attempt| attempt.is_as_expected() && attempt.is_open == is_open;
            self.with.iter().filter(of_these).count()
        };
        write!(
            f,
            "{} connections: {} allowed, {} refused, {} otherwise",
            self.with.len(),
            found(true),
            found(false),
            self.otherwise(),
        )
    }
}

/// A connection that was tried.
#[derive(Debug)]
pub struct Attempt {
    what: String,
    is_open: bool,
    expected: bool,
}

impl Attempt {
    /// True if it was found as expected.
    pub fn is_as_expected(&self) -> bool {
        self.is_open == self.expected
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |is_open| if is_open { "open" } else { "refused" };
        write!(f, "{}: {}", self.what, word(self.is_open))?;
        if !self.is_as_expected() {
            write!(f, ", and should be {}", word(self.expected))?;
        }
        Ok(())
    }
}

/// Runs the whole trial.
///
/// # Errors
/// When cluster or platform do not come up, or the platform does not work with its policies.
pub fn run() -> Result<Outcome> {
    let options = Options {
        nodes: 2,
        network_policies: true,
        ..Options::default()
    };
    let scenario = Scenario::alone_on("network-policies", options, |cluster| {
        output(&mut cluster.kubectl(["cordon", API_SERVER_NODE])).map(drop)
    })?;
    let versions = scenario.cluster().versions();
    let enforcer = versions.iter().find(|(name, _)| *name == "kube-router");
    let (name, version) = enforcer.context("kube-router does not run")?;
    progress(format_args!("{name} {version} enforces NetworkPolicies"));

    define(&scenario, "judge")?;
    let trial = Trial::prepare(scenario)?;
    let without = trial.attempts(|_| true)?;

    trial.install(&trial.api_server, None)?;
    let with = trial.attempts(|connection| connection.is_admitted)?;
    trial.platform_works()?;

    trial.install(&trial.stranger, None)?;
    let misnamed = trial.attempts_with_another_api_server()?;

    trial.install(&trial.api_server, Some("cdc.namespace=definition"))?;
    let moved = trial.attempts_with_moved_controllers()?;
    Ok(Outcome {
        without,
        with,
        misnamed,
        moved,
    })
}

/// Applies a definition of a chart with that name and waits until compositions of it are validated.
fn define(scenario: &Scenario, name: &str) -> Result<()> {
    let url = judged_chart(name)?.push(scenario.site())?;
    scenario.define(name, &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", name, "Ready", "True")?;
    Ok(())
}

/// Who opens a connection.
#[derive(Debug, Clone)]
struct Peer {
    name: &'static str,
    network: Network,
}

/// Whose network a connection is opened from.
#[derive(Debug, Clone)]
enum Network {
    /// This machine's, which is not part of the cluster.
    Host,
    /// A node's, by its name.
    Node(&'static str),
    /// A pod's, by its address.
    Pod(String),
}

/// The target.
#[derive(Debug, Clone)]
struct Target {
    name: &'static str,
    /// `host:port`.
    address: String,
}

/// A connection that is tried.
#[derive(Debug)]
struct Connection {
    from: Peer,
    to: Target,
    /// Whether it should be open with the policies.
    is_admitted: bool,
}

/// The cluster, and all peers that connect.
struct Trial {
    scenario: Scenario,
    /// As `kubectl get endpointslices` names it.
    api_server: String,
    /// The address of this machine.
    stranger: String,
    near: Peer,
    far: Peer,
    forged: Peer,
    scraper: Peer,
}

impl Trial {
    /// Starts the pods that connect. Their programs do nothing: connections are opened from the pods' network.
    fn prepare(scenario: Scenario) -> Result<Self> {
        let site = scenario.site();
        let monitoring = Namespace::make(MONITORING, site)?;
        let web = json!({"app": "web"});
        // Whoever starts pods can give them any labels.
        let controller = json!({
            "app.kubernetes.io/component": "controller",
            "app.kubernetes.io/part-of": "krateoplatformops",
        });
        let image = scenario.web_image();
        let peer = |name, namespace: &Namespace, pod, node, labels: &Value| -> Result<Peer> {
            namespace.apply(&web_pod(namespace, pod, node, labels, &image))?;
            let pod = namespace.wait_for("pods", pod, "Ready", "True")?;
            let address = text(&pod["status"]["podIP"])?;
            Ok(Peer {
                name,
                network: Network::Pod(address),
            })
        };
        let near = peer(
            "a tenant's pod on their node",
            &scenario,
            "near",
            PROGRAMS_NODE,
            &web,
        )?;
        let far = peer(
            "a tenant's pod on another node",
            &scenario,
            "far",
            API_SERVER_NODE,
            &web,
        )?;
        let forged = peer(
            "a tenant's pod with a controller's labels",
            &scenario,
            "forged",
            API_SERVER_NODE,
            &controller,
        )?;
        let scraper = peer(
            "a pod of monitoring",
            &monitoring,
            "scraper",
            API_SERVER_NODE,
            &web,
        )?;
        let api_servers = site.run(site.kubectl([
            "get",
            "endpointslices",
            "--namespace=default",
            "--selector=kubernetes.io/service-name=kubernetes",
            "--output=jsonpath={.items[*].endpoints[*].addresses[*]}",
        ]))?;
        let stranger = scenario.cluster().host_address()?.to_string();
        Ok(Self {
            scenario,
            api_server: api_servers.trim().to_owned(),
            stranger,
            near,
            far,
            forged,
            scraper,
        })
    }

    /// Installs the platform with its policies, and restarts the programs that are called, because open connections
    /// stay open whatever the policies say.
    fn install(&self, api_server: &str, value: Option<&str>) -> Result<()> {
        let site = self.scenario.site();
        let mut values = vec![
            "networkPolicy.enabled=true".to_owned(),
            format!("networkPolicy.apiServers[0].ipBlock.cidr={api_server}/32"),
            format!(
                "networkPolicy.metrics[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name={MONITORING}"
            ),
        ];
        values.extend(value.map(str::to_owned));
        platform::install_with(site, &values)?;
        let platform = self.scenario.platform();
        let provider = format!("deployment/{}", platform::RELEASE);
        let inspector = format!("{provider}-chart-inspector");
        for deployment in [provider, inspector] {
            platform.kubectl(&["rollout", "restart", &deployment])?;
            platform.kubectl(&["rollout", "status", &deployment, "--timeout=2m"])?;
        }
        // A pod that is being deleted is still listed.
        platform.wait_until("pods of before to go", || {
            let pods = platform.kubectl(&["get", "pods", "--output=json"])?;
            let pods: Value = serde_json::from_str(&pods)?;
            let pods = pods["items"].as_array().context("no list of pods")?;
            let is_here = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
            Ok(pods.iter().all(is_here).then_some(()))
        })
    }

    /// All connections, once each is as expected, or as they are after a while.
    fn attempts(&self, expected: impl Fn(&Connection) -> bool) -> Result<Vec<Attempt>> {
        self.settled(&self.connections()?, expected)
    }

    /// The machine named as API server gets through, but the real API server does not, so the webhook is not called.
    fn attempts_with_another_api_server(&self) -> Result<Vec<Attempt>> {
        let to = self.provider("the webhooks", 9443)?;
        let connection = |from: Peer, is_admitted| Connection {
            from,
            to: to.clone(),
            is_admitted,
        };
        let connections = [
            connection(Self::api_server_peer(), false),
            connection(Self::stranger_peer(), true),
        ];
        let attempts = self.settled(&connections, |connection| connection.is_admitted)?;
        let site = self.scenario.site();
        let before = failed_open(site)?;
        let wrong = composition(
            "Judge",
            self.scenario.namespace(),
            "unjudged",
            &json!({"x-a": "text"}),
        );
        platform::apply_dry(site, &wrong.to_string())
            .context("a write that only the webhook refuses was refused")?;
        let failed = failed_open(site)? - before;
        ensure!(
            failed > 0,
            "a write went through, and no call of the webhook failed"
        );
        progress(format_args!(
            "with another machine as networkPolicy.apiServers: {failed} calls of the webhook failed"
        ));
        Ok(attempts)
    }

    /// With `cdc.namespace: definition` chart-inspector cannot distinguish a controller from a tenant's pod with its
    /// labels, and the controllers have no policy. They must keep working.
    fn attempts_with_moved_controllers(&self) -> Result<Vec<Attempt>> {
        let scenario = &self.scenario;
        // The pod that a tenant has labelled does not have such a name.
        let labels = "app.kubernetes.io/component=controller,app.kubernetes.io/name";
        let controller = scenario.wait_until("controllers beside their definitions", || {
            let list = |namespace: &Namespace| -> Result<Vec<Value>> {
                let pods = namespace.kubectl(&["get", "pods", "--selector", labels, "--output=json"])?;
                let mut pods: Value = serde_json::from_str(&pods)?;
                Ok(pods["items"]
                    .as_array_mut()
                    .map(std::mem::take)
                    .unwrap_or_default())
            };
            let is_ready = |pod: &Value| {
                namespace::condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
            };
            let pods = list(scenario)?;
            let have_moved = pods.len() == DEFINITIONS.len() && pods.iter().all(is_ready);
            let have_left = list(&scenario.platform())?.is_empty();
            Ok((have_moved && have_left).then(|| text(&pods[0]["status"]["podIP"])))
        })??;
        for (kind, plural) in DEFINITIONS {
            self.release(kind, plural, "moved")?;
        }
        progress("with cdc.namespace: definition: compositions are released");
        let inspector = Target {
            name: "chart-inspector",
            address: format!(
                "{}:8081",
                self.pod("app.kubernetes.io/component=chart-inspector")?
            ),
        };
        let figures = Target {
            name: "the controller's figures",
            address: format!("{controller}:8080"),
        };
        let controller = Peer {
            name: "the controller",
            network: Network::Pod(controller),
        };
        let stranger = Self::stranger_peer();
        let mut connections = paired(
            &[
                (&controller, &[&inspector]),
                (&self.forged, &[&inspector]),
                (&self.near, &[&figures]),
            ],
            true,
        );
        connections.extend(paired(
            &[
                (&self.near, &[&inspector]),
                (&self.far, &[&inspector]),
                (&stranger, &[&inspector]),
            ],
            false,
        ));
        self.settled(&connections, |connection| connection.is_admitted)
    }

    /// Applies a composition and waits until it is released and its objects are up.
    fn release(&self, kind: &str, plural: &str, name: &str) -> Result<()> {
        let scenario = &self.scenario;
        let spec = json!({"image": scenario.web_image()});
        scenario.apply(&composition(kind, scenario.namespace(), name, &spec))?;
        for condition in ["Released", "Ready"] {
            scenario.wait_for(plural, name, condition, "True")?;
        }
        Ok(())
    }

    /// What users see of the platform, with its policies.
    fn platform_works(&self) -> Result<()> {
        let scenario = &self.scenario;
        define(scenario, "ruler")?;
        for (kind, plural) in DEFINITIONS {
            wait_until_judged(scenario, kind).with_context(|| format!("the webhook of {kind}"))?;
            self.release(kind, plural, "web")?;
        }
        progress("with policies: a definition is Ready, writes are judged, compositions are released");
        let pods = self
            .scenario
            .platform()
            .kubectl(&["get", "pods", "--output=json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        for pod in pods["items"].as_array().context("no list of pods")? {
            let name = &pod["metadata"]["name"];
            let is_ready = namespace::condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True");
            ensure!(is_ready, "pod {name} is not Ready");
            let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
            ensure!(*restarts == 0, "pod {name} was restarted {restarts} times");
        }
        progress(
            "with policies: probes are answered: all pods of the platform are Ready, none was restarted",
        );
        Ok(())
    }

    fn api_server_peer() -> Peer {
        Peer {
            name: "the API server's address",
            network: Network::Node(API_SERVER_NODE),
        }
    }

    fn stranger_peer() -> Peer {
        Peer {
            name: "a machine outside of the cluster",
            network: Network::Host,
        }
    }

    /// A port of core-provider.
    fn provider(&self, name: &'static str, port: u16) -> Result<Target> {
        let address = self.pod("app.kubernetes.io/component=core-provider")?;
        Ok(Target {
            name,
            address: format!("{address}:{port}"),
        })
    }

    /// The address of a pod of the platform, which must be on the expected node.
    fn pod(&self, labels: &str) -> Result<String> {
        let pods =
            self.scenario
                .platform()
                .kubectl(&["get", "pods", "--selector", labels, "--output=json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        let pod = &pods["items"][0];
        let node = &pod["spec"]["nodeName"];
        ensure!(*node == PROGRAMS_NODE, "a pod with {labels} is on {node}");
        text(&pod["status"]["podIP"])
    }

    /// The address of a Service.
    fn service(namespace: &Namespace, name: &str) -> Result<String> {
        let service = namespace
            .get("services", name)?
            .with_context(|| format!("there is no Service {name}"))?;
        text(&service["spec"]["clusterIP"])
    }

    /// All connections that are tried. Names say who owns the port.
    fn connections(&self) -> Result<Vec<Connection>> {
        let site = self.scenario.site();
        let of_component = |component: &str| format!("app.kubernetes.io/component={component}");
        let inspector_pod = self.pod(&of_component("chart-inspector"))?;
        let controller_pod = self.pod(&of_component("controller"))?;
        let target = |name, address: &str, port: u16| Target {
            name,
            address: format!("{address}:{port}"),
        };
        let webhooks = self.provider("core-provider's webhooks", 9443)?;
        let webhooks_name = format!("{}-webhook-service", platform::RELEASE);
        let webhooks_service = target(
            "the webhooks' Service",
            &Self::service(&self.scenario.platform(), &webhooks_name)?,
            9443,
        );
        let figures = self.provider("core-provider's figures", 8080)?;
        let inspector = target("chart-inspector", &inspector_pod, 8081);
        let inspector_name = format!("{}-chart-inspector", platform::RELEASE);
        let inspector_service = target(
            "chart-inspector's Service",
            &Self::service(&self.scenario.platform(), &inspector_name)?,
            8081,
        );
        let controller_figures = target("the controller's figures", &controller_pod, 8080);
        let Network::Pod(web) = &self.far.network else {
            bail!("a tenant's pod has no address");
        };
        let web = target("a tenant's web server", web, 8080);
        let kubernetes = target(
            "the API server's Service",
            &Self::service(&Namespace::of("default", site), "kubernetes")?,
            443,
        );
        let registry = Target {
            name: "the registry",
            address: site.registry().to_owned(),
        };

        let provider = Peer {
            name: "core-provider",
            network: Network::Pod(self.pod(&of_component("core-provider"))?),
        };
        let controller = Peer {
            name: "the controller",
            network: Network::Pod(controller_pod),
        };
        let inspector_peer = Peer {
            name: "chart-inspector",
            network: Network::Pod(inspector_pod),
        };
        let node = Peer {
            name: "the node of the programs",
            network: Network::Node(PROGRAMS_NODE),
        };
        let (api_server, stranger) = (Self::api_server_peer(), Self::stranger_peer());

        let open: [(&Peer, &[&Target]); 9] = [
            (&api_server, &[&webhooks, &webhooks_service]),
            (
                &controller,
                &[&inspector, &inspector_service, &kubernetes, &registry],
            ),
            (&self.scraper, &[&figures, &inspector, &controller_figures]),
            // Probes.
            (&node, &[&figures, &inspector, &controller_figures]),
            // Connections of the programs are not restricted.
            (&provider, &[&kubernetes, &registry]),
            (&inspector_peer, &[&kubernetes, &registry]),
            // Nor are those of other pods.
            (&self.near, &[&web]),
            (&stranger, &[&web]),
            // A limit of policies: the API server's node replaces the source address of packets from outside to a
            // Service by its own.
            (&stranger, &[&webhooks_service]),
        ];
        let ours = [
            &webhooks,
            &webhooks_service,
            &figures,
            &inspector,
            &inspector_service,
            &controller_figures,
        ];
        let refused: [(&Peer, &[&Target]); 8] = [
            (&self.near, &ours),
            (&self.far, &ours),
            (&self.forged, &ours),
            (
                &stranger,
                &[
                    &webhooks,
                    &figures,
                    &inspector,
                    &inspector_service,
                    &controller_figures,
                ],
            ),
            (&self.scraper, &[&webhooks]),
            (&controller, &[&webhooks, &figures]),
            (&inspector_peer, &[&webhooks, &figures, &controller_figures]),
            (&api_server, &[&figures, &inspector, &controller_figures]),
        ];
        Ok([paired(&open, true), paired(&refused, false)]
            .into_iter()
            .flatten()
            .collect())
    }
}

/// Each peer with all of its targets.
fn paired(groups: &[(&Peer, &[&Target])], is_admitted: bool) -> Vec<Connection> {
    let pairs = groups
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(move |to| (*from, *to)));
    pairs
        .map(|(from, to)| Connection {
            from: from.clone(),
            to: to.clone(),
            is_admitted,
        })
        .collect()
}

/// curl's exit status if a connection is refused, or nobody answers in time.
const NO_CONNECTION: [i32; 2] = [7, 28];

impl Trial {
    /// Tries all until each is as expected, or for a while, and returns the last results.
    fn settled(
        &self,
        connections: &[Connection],
        expected: impl Fn(&Connection) -> bool,
    ) -> Result<Vec<Attempt>> {
        let started = Instant::now();
        loop {
            let attempts = connections
                .iter()
                .map(|connection| {
                    Ok(Attempt {
                        what: format!("{} to {}", connection.from.name, connection.to.name),
                        is_open: self.is_open(connection)?,
                        expected: expected(connection),
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            if attempts.iter().all(Attempt::is_as_expected) || started.elapsed() > PATIENCE {
                return Ok(attempts);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Opens a connection; what is sent on it does not matter.
    fn is_open(&self, Connection { from, to, .. }: &Connection) -> Result<bool> {
        let mut curl = vec!["curl", "--silent", "--output", "/dev/null"];
        curl.extend(["--connect-timeout", "3", "--max-time", "5"]);
        let url = format!("http://{}/", to.address);
        curl.extend(["--write-out", "%{num_connects}", &url]);
        let mut command = match &from.network {
            Network::Host => {
                let mut command = Command::new(curl[0]);
                command.args(&curl[1..]);
                command
            }
            Network::Node(name) => {
                let cluster = self.scenario.cluster();
                let node = cluster.nodes().iter().find(|node| node.name == *name);
                cluster.exec_in_node(node.with_context(|| format!("there is no {name}"))?, &curl)
            }
            Network::Pod(address) => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net={}", network_of(address)?))
                    .arg("--")
                    .args(&curl);
                command
            }
        };
        let answer = command.output().context("could not start curl")?;
        let opened = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        match (opened.as_str(), answer.status.code()) {
            ("1", _) => Ok(true),
            ("0", Some(code)) if NO_CONNECTION.contains(&code) => Ok(false),
            (_, code) => bail!(
                "curl from {} to {} at {} ends with {code:?}: {}",
                from.name,
                to.name,
                to.address,
                String::from_utf8_lossy(&answer.stderr)
            ),
        }
    }
}

/// The network namespace that has this address. Nodes and pods run on this machine, so the processes of pods are
/// visible.
fn network_of(address: &str) -> Result<String> {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let network = process.join("ns/net");
        // Processes exit meanwhile, and not every entry is a process.
        let Ok(id) = fs::read_link(&network) else {
            continue;
        };
        if !seen.insert(id) {
            continue;
        }
        let addresses = fs::read_to_string(process.join("net/fib_trie")).unwrap_or_default();
        if has_address(&addresses, address) {
            return Ok(network.display().to_string());
        }
    }
    bail!("no process has the network with address {address}")
}

/// Whether a `fib_trie` of /proc lists this as one of its own addresses.
fn has_address(fib_trie: &str, address: &str) -> bool {
    let leaf = format!("|-- {address}");
    let mut lines = fib_trie.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line == leaf && lines.peek().is_some_and(|next| next.ends_with("host LOCAL")) {
            return true;
        }
    }
    false
}

/// A pod of the web server, on a node.
fn web_pod(namespace: &Namespace, name: &str, node: &str, labels: &Value, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace.namespace(), "labels": labels},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "web",
                "image": image,
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}

fn text(value: &Value) -> Result<String> {
    let text = value.as_str();
    Ok(text.with_context(|| format!("{value} is no text"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_told_by_its_own_addresses_alone() {
        let trie = "Local:\n  +-- 198.18.0.0/24 2 0 2\n     |-- 198.18.0.1\n        /32 link UNICAST\n     \
                    |-- 198.18.0.12\n        /32 host LOCAL\n";
        assert!(has_address(trie, "198.18.0.12"));
        assert!(!has_address(trie, "198.18.0.1"), "a neighbour's");
        assert!(!has_address(trie, "198.18.0.2"));
    }

    #[test]
    fn the_outcome_counts_what_is_as_it_should_be() {
        let attempt = |is_open, expected| Attempt {
            what: "somebody to something".to_owned(),
            is_open,
            expected,
        };
        let mut outcome = Outcome {
            without: vec![attempt(true, true)],
            with: vec![attempt(true, true), attempt(false, false)],
            misnamed: Vec::new(),
            moved: Vec::new(),
        };
        assert!(outcome.is_good());
        assert_eq!(
            outcome.to_string(),
            "2 connections: 1 allowed, 1 refused, 0 otherwise"
        );
        outcome.with.extend([attempt(true, false), attempt(false, true)]);
        assert!(!outcome.is_good());
        assert_eq!(
            outcome.to_string(),
            "4 connections: 1 allowed, 1 refused, 2 otherwise"
        );
        outcome.with.truncate(2);
        outcome.without.push(attempt(false, true));
        assert!(
            !outcome.is_good(),
            "one that is refused without policies shows nothing"
        );
    }
}
