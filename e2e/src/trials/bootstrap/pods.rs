//! Pods on all nodes, each of which calls every other.

use anyhow::{Context as _, Result};
use local_cluster::wait;
use serde_json::{Value, json};

use super::trial::{PATIENCE, Trial};
use crate::{image, platform};

const NAMESPACE: &str = "trial";

/// A web server on each node, and a Service in front of them.
pub(super) struct Pods {
    service: String,
    count: usize,
}

/// One of them.
struct Pod {
    name: String,
    node: usize,
    address: String,
    /// The node that it runs on.
    process: String,
}

impl Pods {
    /// Starts them, and waits until each gets answers from every other.
    pub(super) fn deploy(trial: &Trial) -> Result<Self> {
        let image = image::reference(&trial.site, "web-server");
        let meta = json!({"name": "web", "namespace": NAMESPACE});
        let pod = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                // Run on control planes, too.
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "web", "image": image}],
            },
        });
        for manifest in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta,
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod},
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": meta,
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
            }),
        ] {
            platform::apply(&trial.site, &manifest.to_string())?;
        }
        let service = trial.json(&["get", "service", "web", "--namespace", NAMESPACE])?;
        let service = service["spec"]["clusterIP"].as_str().context("no address")?;
        let nodes = trial.json(&["get", "nodes"])?;
        let pods = Self {
            service: service.to_owned(),
            count: nodes["items"].as_array().map_or(0, Vec::len),
        };
        pods.await_answers(trial)?;
        Ok(pods)
    }

    /// Waits until each pod gets an answer from every other, and from the Service.
    pub(super) fn await_answers(&self, trial: &Trial) -> Result<()> {
        let mut last = String::new();
        let answered = wait::until("the pods to talk to each other", PATIENCE, || {
            let talk = self.talk(trial);
            Ok(talk.map_err(|error| last = format!("{error:#}")).ok())
        });
        answered.with_context(|| last)
    }

    fn talk(&self, trial: &Trial) -> Result<()> {
        let pods = find(trial)?;
        anyhow::ensure!(pods.len() == self.count, "{} pods run", pods.len());
        for from in &pods {
            for to in &pods {
                let answer = ask(trial, from, &format!("{}:8080", to.address))?;
                anyhow::ensure!(answer.contains(&to.name), "{} answered {answer}", to.name);
            }
            ask(trial, from, &self.service)?;
        }
        Ok(())
    }
}

/// The running ones.
fn find(trial: &Trial) -> Result<Vec<Pod>> {
    let listed = trial.json(&["get", "pods", "--namespace", NAMESPACE])?;
    let listed = listed["items"].as_array().context("no pods")?;
    let mut pods = Vec::new();
    for pod in listed {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let status = &pod["status"];
        let container = &status["containerStatuses"][0];
        let (Some(address), Some(id)) = (text(&status["podIP"]), text(&container["containerID"])) else {
            continue;
        };
        if container["state"]["running"].is_null() || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let node = node.trim_start_matches("node-").parse()?;
        let id = id.trim_start_matches("containerd://");
        pods.push(Pod {
            name: text(&pod["metadata"]["name"]).context("no name")?,
            node,
            address,
            process: process(trial, node, id)?,
        });
    }
    Ok(pods)
}

/// The first process of a container, on its node.
fn process(trial: &Trial, node: usize, container: &str) -> Result<String> {
    let list = ["ctr", "--namespace", "k8s.io", "tasks", "list"];
    let tasks = trial.rig.machines.output(node, &list)?;
    let line = tasks.lines().find(|line| line.starts_with(container));
    let process = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(process.context("the container does not run")?.to_owned())
}

/// The answer of this address, requested from a pod's network.
fn ask(trial: &Trial, from: &Pod, address: &str) -> Result<String> {
    let url = format!("http://{address}/");
    let curl = [
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "3",
        &url,
    ];
    let enter = ["nsenter", "--target", &from.process, "--net"];
    trial
        .rig
        .machines
        .output(from.node, &[&enter[..], &curl].concat())
}
