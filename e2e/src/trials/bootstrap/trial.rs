//! The stages of the trial, and what must be true after each.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use local_cluster::{output, parts, wait};
use serde_json::{Value, json};

use super::rig::{Rig, Role, network_image};
use crate::trials::installer::Profile;
use crate::trials::installer::umbrella::{Catalog, VERSION};
use crate::{Site, image, progress};

/// The port of every node by which the join service is reached.
const JOIN_PORT: u16 = 30090;

/// How long the cluster may take for each step, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// The machine that becomes the cluster, the worker, and the control plane that joins.
pub(super) const FIRST: usize = 1;
pub(super) const WORKER: usize = 2;
pub(super) const SECOND: usize = 3;

/// The Corefile of CoreDNS, for the names of the cluster.
const COREFILE: &str = ".:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 30
    }
}
";

/// The name of a machine's Node.
pub(super) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// The machines while a cluster is made of them.
pub(super) struct Trial {
    pub(super) rig: Rig,
    pub(super) site: Site,
    /// The output folder of `kco init`.
    pub(super) cluster: PathBuf,
    /// Whether somebody watches the output of `kco`.
    is_shown: bool,
    pub(super) stages: Vec<(Duration, &'static str)>,
    since: Instant,
}

impl Trial {
    pub(super) fn prepare(name: Option<&str>, is_shown: bool) -> Result<Self> {
        let since = Instant::now();
        // If somebody watches, the cluster is kept.
        let rig = Rig::start(name, !is_shown)?;
        let cluster = rig.file("cluster");
        let kubeconfig = cluster.join("admin.conf");
        // Where `local-cluster exec` looks for it.
        std::fs::create_dir(rig.file("pki"))?;
        std::os::unix::fs::symlink(&kubeconfig, rig.file("pki/admin.kubeconfig"))?;
        let site = Site::at(kubeconfig, rig.machines.registry(), rig.file("buildah"))?;
        image::push(&site, &["join-service", "web-server"], image::TAG)?;
        let mut trial = Self {
            rig,
            site,
            cluster,
            is_shown,
            stages: Vec::new(),
            since,
        };
        trial.done("images made, switch and registry on");
        Ok(trial)
    }

    /// After a failure, adds the state of the cluster to the logs.
    pub(super) fn keep_objects(&self, reached: &Result<String>) {
        if reached.is_ok() {
            return;
        }
        for (file, ask) in [
            ("pods.txt", ["describe", "pods", "--all-namespaces"].as_slice()),
            ("nodes.txt", &["describe", "nodes"]),
            (
                "events.txt",
                &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
            ),
            (
                "objects.txt",
                &["get", "all", "--all-namespaces", "--output", "wide"],
            ),
        ] {
            let ask = [ask, &["--request-timeout=5s"]].concat();
            let said = self.kubectl(&ask).unwrap_or_else(|error| format!("{error:#}\n"));
            // For the person who looks at the failure.
            let _ = std::fs::write(self.rig.file("logs").join(file), said);
        }
    }

    /// Ends a stage.
    pub(super) fn done(&mut self, stage: &'static str) {
        let took = self.since.elapsed();
        progress(format_args!("{:5.1} s  {stage}", took.as_secs_f32()));
        self.stages.push((took, stage));
        self.since = Instant::now();
    }

    /// A cluster of three machines, with the join service and a pod network.
    pub(super) fn make_cluster(&mut self, with_wrong_requests: bool) -> Result<()> {
        self.rig.switch_on_bare(FIRST, Role::ControlPlane)?;
        let bootstrapper = self.rig.bootstrap(FIRST, Role::ControlPlane, &[])?;
        self.done("first machine on, its bootstrapper waits");
        if with_wrong_requests {
            self.refuse_wrong_requests()?;
            self.done("wrong requests refused");
        }
        self.follow(self.init(&["--skip-platform"])?)?;
        bootstrapper.done()?;
        self.done("cluster made by kco init");
        self.shorten_corefile()?;
        self.install_network()?;
        self.done("network of pods installed");
        self.install_join_service()?;
        self.done("join service installed, and reached by its port of the node");
        self.join(WORKER, Role::Worker)?;
        self.done("worker joined and ready");
        self.join(SECOND, Role::ControlPlane)?;
        self.done("control plane joined and ready");
        let dns = ["deployment/coredns", "--namespace", "kube-system"];
        let available = ["wait", "--for=condition=Available", "--timeout=2m"];
        self.kubectl(&[&available[..], &dns].concat())?;
        self.check_members()
    }

    /// `kco init` with the right request and additional arguments.
    fn init(&self, further: &[&str]) -> Result<Command> {
        let pods = self.rig.machines.pods();
        let mut kco = self.init_of(parts::KUBEADM.version(), &pods)?;
        kco.args(further);
        Ok(kco)
    }

    /// Runs a command to its end, with its output on this terminal if somebody watches.
    fn follow(&self, mut command: Command) -> Result<()> {
        if !self.is_shown {
            return self.site.run(command).map(drop);
        }
        let status = command.status()?;
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(())
    }

    fn init_of(&self, version: &str, pods: &str) -> Result<Command> {
        let machines = &self.rig.machines;
        let node = machines.address(FIRST).to_string();
        let names = format!("{},api.trial.test", machines.address(SECOND));
        let services = machines.services();
        let mut kco = self.site.kco(["init", &node])?;
        kco.args(["--attestation", "soft-tpm", "--endorser", &self.rig.endorser])
            .arg("--init-secret")
            .arg(self.rig.file("secret"))
            .args(["--name", "trial", "--apiserver-san", &names])
            .args(["--service-cidr", &services, "--pod-cidr", pods])
            .args(["--kubernetes-version", version, "--retry-interval", "1"])
            .arg("--output")
            .arg(&self.cluster);
        Ok(kco)
    }

    /// A request that kubeadm does not accept is refused before the node is locked, so the right request can still
    /// come.
    fn refuse_wrong_requests(&self) -> Result<()> {
        let machines = &self.rig.machines;
        let (version, pods) = (parts::KUBEADM.version(), machines.pods());
        // A node needs as many addresses as it may have pods, and there are two.
        let too_few = format!("{}/31", pods.split('/').next().unwrap_or_default());
        for (version, pods) in [
            ("v1.10.0", pods.as_str()),
            ("v1.99.0", pods.as_str()),
            (version, too_few.as_str()),
        ] {
            let mut init = self.init_of(version, pods)?;
            match output(init.arg("--skip-platform")) {
                Ok(_) => bail!("kco init of {version} with pods in {pods} was taken"),
                Err(error) => {
                    let said = format!("{error:#}");
                    let is_refused = said.contains("kubeadm refuses the request");
                    ensure!(is_refused, "it was not kubeadm that refused: {said}");
                }
            }
        }
        Ok(())
    }

    fn install(&self, release: &str, chart: &str, values: &[String]) -> Result<()> {
        let chart = image::root().join(chart);
        let mut install = self.site.kco(["install", release, &chart.to_string_lossy()])?;
        install.args(["--namespace", "kube-system", "--wait", "--timeout", "3m"]);
        for value in values {
            install.args(["--set", value]);
        }
        self.site.run(install).map(drop)
    }

    /// kubeadm's settings of CoreDNS name plugins that the local cluster's build leaves out. Only the cluster's own
    /// names are needed here.
    fn shorten_corefile(&self) -> Result<()> {
        let patch = json!({"data": {"Corefile": COREFILE}}).to_string();
        let config = ["configmap", "coredns", "--namespace", "kube-system"];
        let merge = ["--type", "merge", "--patch", &patch];
        self.kubectl(&[&["patch"], &config[..], &merge].concat())
            .map(drop)
    }

    fn install_network(&self) -> Result<()> {
        let machines = &self.rig.machines;
        let values = [
            format!("image={}", network_image()),
            format!("services={}", machines.services()),
            format!("apiServer.host={}", machines.address(FIRST)),
        ];
        self.install("network", "e2e/charts/network", &values)
    }

    fn install_join_service(&self) -> Result<()> {
        let values = [
            format!("image.registry={}", self.site.registry()),
            format!("image.tag={}", image::TAG),
            "attestation.variant=soft-tpm".to_owned(),
            format!("attestation.endorsers={{{}}}", self.rig.endorser),
        ];
        self.install("join-service", "charts/join-service", &values)?;
        self.await_join_service(FIRST)
    }

    /// Waits until the join service answers on the port of this node, through its kube-proxy.
    pub(super) fn await_join_service(&self, number: usize) -> Result<()> {
        let address = SocketAddr::from((self.rig.machines.address(number), JOIN_PORT));
        wait::until(&format!("the join service at {address}"), PATIENCE, || {
            Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok())
        })?;
        Ok(())
    }

    /// A bare machine joins.
    fn join(&mut self, number: usize, role: Role) -> Result<()> {
        let fingerprint = self.rig.switch_on_bare(number, role)?;
        if role == Role::ControlPlane {
            let entry = format!(r#"{{"data": {{"node-{number}": "{fingerprint}"}}}}"#);
            let list = "join-service-control-planes";
            let patch = ["patch", "configmap", list, "--namespace", "kube-system"];
            self.kubectl(&[&patch[..], &["--type", "merge", "--patch", &entry]].concat())?;
        }
        self.rig.bootstrap(number, role, &[FIRST])?.done()?;
        self.rig.unlock(number)?;
        self.await_ready(number)
    }

    /// Waits until a node is ready, which requires the pod network.
    pub(super) fn await_ready(&self, number: usize) -> Result<()> {
        let node = format!("node/node-{number}");
        let ready = ["wait", "--for=condition=Ready", &node, "--timeout=1s"];
        wait::until(&node, PATIENCE, || Ok(self.kubectl(&ready).ok()))?;
        Ok(())
    }

    /// Installs the platform by the second run of `kco init`, which continues with the existing cluster. Its pods run
    /// on control planes, too. Returns how many run on which node.
    pub(super) fn install_platform(&self, profile: &Profile) -> Result<String> {
        let (first, second) = (node(FIRST), node(SECOND));
        let taint = "node-role.kubernetes.io/control-plane:NoSchedule-";
        self.kubectl(&["taint", "nodes", &first, &second, taint])?;
        image::push_all(&self.site)?;
        let catalog = Catalog::publish(&self.site, profile)?;
        let values = catalog.values(profile)?;
        let values = values.to_string_lossy();
        let chart = catalog.chart();
        let platform = [
            "--",
            &chart,
            "--version",
            VERSION,
            "--plain-http",
            "--values",
            &values,
        ];
        let wait = ["--wait", "--timeout", "10m"];
        self.follow(self.init(&[&platform[..], &wait].concat())?)?;
        let status = ["installer", "status", "--watch", "--until-ready"];
        self.follow(self.site.kco(status)?)?;
        let running = ["--all-namespaces", "--field-selector=status.phase=Running"];
        let pods = self.json(&[&["get", "pods"], &running[..]].concat())?;
        let mut counts = BTreeMap::new();
        for pod in pods["items"].as_array().context("no pods")? {
            let is_other = matches!(
                pod["metadata"]["namespace"].as_str(),
                Some("kube-system" | "trial")
            );
            if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|_| !is_other) {
                *counts.entry(node).or_insert(0) += 1;
            }
        }
        let counts: Vec<_> = counts
            .iter()
            .map(|(node, count)| format!("{count} on {node}"))
            .collect();
        ensure!(counts.len() > 1, "the platform's pods are not spread: {counts:?}");
        Ok(counts.join(", "))
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.site.run(self.site.kubectl(arguments))
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[arguments, &["--output", "json"]].concat())?;
        Ok(serde_json::from_str(&text)?)
    }
}
