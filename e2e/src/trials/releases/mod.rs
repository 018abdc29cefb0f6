//! Releases on a real API server, without nodes: `kco` and Helm operating each other's, recovery from kills, drift,
//! idleness, and what all of that costs.

pub mod chart;
mod compared;
pub mod crashes;
pub mod drift;
pub mod figures;
pub mod idle;
pub mod interop;
pub mod live;
mod scripts;
pub mod verbs;

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};
use local_cluster::{ControlPlane, Options, output};
use serde_json::{Value, json};

pub use chart::{CONSENT, TrialChart};

use crate::image;

/// The group of the trial charts' own kinds.
const GROUP: &str = "releases.example.org";

/// All namespaced kinds that the trial releases contain, and those that an action could leave behind.
const NAMESPACED: &str = "configmaps,secrets,services,serviceaccounts,persistentvolumeclaims,deployments.apps,\
    statefulsets.apps,daemonsets.apps,jobs.batch,cronjobs.batch,roles.rbac.authorization.k8s.io,\
    rolebindings.rbac.authorization.k8s.io,ingresses.networking.k8s.io,networkpolicies.networking.k8s.io,\
    poddisruptionbudgets.policy,horizontalpodautoscalers.autoscaling,leases.coordination.k8s.io";
const CLUSTER_SCOPED: &str = "clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io,\
    priorityclasses.scheduling.k8s.io,validatingwebhookconfigurations.admissionregistration.k8s.io,namespaces";

/// The program that acts on a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `kco`.
    Kco,
    /// Helm 4.
    Helm4,
    /// Helm 3.
    Helm3,
}

impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kco => "kco",
            Self::Helm4 => "helm 4",
            Self::Helm3 => "helm 3",
        })
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// What it printed.
    pub printed: String,
    /// What it printed on standard error.
    pub said: String,
}

/// An API server, and the programs that act on it.
pub struct Rig {
    /// The API server.
    pub plane: ControlPlane,
    kco: PathBuf,
}

impl Rig {
    /// Starts an API server of its own.
    ///
    /// # Errors
    /// When it does not come up, or `kco` is not built.
    pub fn start() -> Result<Self> {
        Self::start_with(Options::default())
    }

    /// The same, with these options.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn start_with(options: Options) -> Result<Self> {
        let kco = image::binary("kco")?;
        let plane = ControlPlane::start(options)?;
        Ok(Self { plane, kco })
    }

    /// A command as admin, in a namespace.
    ///
    /// # Errors
    /// When the tool cannot be built.
    pub fn command(&self, tool: Tool, namespace: &str, arguments: &[&str]) -> Result<Command> {
        let mut command = match tool {
            Tool::Kco => {
                let mut command = Command::new(&self.kco);
                command.env("KUBECONFIG", self.plane.kubeconfig()).args(arguments);
                command
            }
            Tool::Helm4 => self.plane.helm(arguments)?,
            Tool::Helm3 => self.plane.helm3(arguments)?,
        };
        command.args(["--namespace", namespace]);
        // The machine's own settings must not affect the trial.
        for name in [
            "HELM_NAMESPACE",
            "HELM_DRIVER",
            "HELM_MAX_HISTORY",
            "NO_COLOR",
            "HELM_DEBUG",
        ] {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Runs a tool to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn end(&self, tool: Tool, namespace: &str, arguments: &[&str]) -> Result<Ended> {
        let mut command = self.command(tool, namespace, arguments)?;
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("could not start {tool}"))?;
        Ok(Ended {
            status: output.status,
            printed: String::from_utf8_lossy(&output.stdout).into_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// What a tool printed.
    ///
    /// # Errors
    /// When it failed.
    pub fn run(&self, tool: Tool, namespace: &str, arguments: &[&str]) -> Result<String> {
        let ended = self.end(tool, namespace, arguments)?;
        ensure!(
            ended.status.success(),
            "{tool} {}: {}: {}",
            arguments.join(" "),
            ended.status,
            ended.said.trim()
        );
        Ok(ended.printed)
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// When it is there.
    pub fn namespace(&self, name: &str) -> Result<()> {
        output(&mut self.plane.kubectl(["create", "namespace", name])).map(drop)
    }

    /// Runs kubectl and gives what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output(&mut self.plane.kubectl(arguments))
    }

    /// Removes the definitions of the trial charts with all their objects.
    ///
    /// # Errors
    /// When they do not go.
    pub fn forget_definitions(&self) -> Result<()> {
        forget_definitions(&self.plane)
    }

    /// As [`objects`].
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn objects(&self, namespace: &str) -> Result<Vec<Value>> {
        objects(&self.plane, namespace)
    }

    /// As [`revisions`].
    ///
    /// # Errors
    /// When Helm cannot read them.
    pub fn revisions(&self, namespace: &str, release: &str) -> Result<Vec<(i64, String)>> {
        revisions(&self.plane, namespace, release)
    }
}

/// The objects of a namespace, and cluster-scoped ones whose names begin with its name: without fields that differ
/// between equal objects, without records and without the default objects of every namespace.
///
/// # Errors
/// When they cannot be read.
pub fn objects(plane: &ControlPlane, namespace: &str) -> Result<Vec<Value>> {
    let own = definitions(plane)?;
    let kinds = format!(
        "{NAMESPACED}{}",
        own.iter().fold(String::new(), |all, kind| all + "," + kind)
    );
    let mut objects = listed(plane, &["get", &kinds, "--namespace", namespace])?;
    objects.retain(|object| !is_of_every_namespace(object));
    let mut outside = listed(plane, &["get", CLUSTER_SCOPED])?;
    outside.retain(|object| name(object).starts_with(&format!("{namespace}-")));
    // A namespace takes a while to be deleted, and Helm does not wait for that.
    outside.retain(|object| object["metadata"]["deletionTimestamp"].is_null());
    objects.extend(outside);
    let mut objects: Vec<Value> = objects
        .iter()
        .map(|object| bare(object, namespace))
        .collect::<Result<_>>()?;
    objects.sort_by_key(|object| (object["kind"].to_string(), name(object).to_owned()));
    Ok(objects)
}

/// What `kubectl get` finds.
pub(crate) fn listed(plane: &ControlPlane, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut all = arguments.to_vec();
    all.extend(["--output", "json"]);
    let list: Value = serde_json::from_str(&output(&mut plane.kubectl(all))?)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// The existing types of the trial charts' own kinds.
pub(crate) fn definitions(plane: &ControlPlane) -> Result<Vec<String>> {
    let names = output(&mut plane.kubectl(["get", "crd", "--output", "name"]))?;
    let names = names
        .lines()
        .filter_map(|line| line.split_once('/').map(|(_, name)| name.to_owned()));
    Ok(names.filter(|name| name.ends_with(GROUP)).collect())
}

/// Removes the types of the trial charts' own kinds with all their objects.
///
/// # Errors
/// When they do not go.
pub(crate) fn forget_definitions(plane: &ControlPlane) -> Result<()> {
    let definitions = definitions(plane)?;
    if definitions.is_empty() {
        return Ok(());
    }
    let mut arguments = vec!["delete", "crd", "--timeout=60s"];
    arguments.extend(definitions.iter().map(String::as_str));
    output(&mut plane.kubectl(arguments)).map(drop)
}

/// Number and status of each revision, by the real Helm.
///
/// # Errors
/// When Helm cannot read them.
pub fn revisions(plane: &ControlPlane, namespace: &str, release: &str) -> Result<Vec<(i64, String)>> {
    let mut helm = plane.helm(["history", release, "--namespace", namespace, "--output", "json"])?;
    let history = match output(&mut helm) {
        Ok(printed) => printed,
        Err(error) if error.to_string().contains("release: not found") => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let history: Vec<Value> = serde_json::from_str(&history)?;
    let revision = |entry: &Value| {
        let status = entry["status"].as_str().unwrap_or_default().to_owned();
        (entry["revision"].as_i64().unwrap_or_default(), status)
    };
    Ok(history.iter().map(revision).collect())
}

/// Revisions are consecutive, only the last one is deployed, and none is pending.
pub fn is_chain(revisions: &[(i64, String)]) -> bool {
    let numbers = revisions.iter().map(|(number, _)| *number);
    let first = revisions.first().map_or(1, |(number, _)| *number);
    let statuses = revisions.iter().rev().map(|(_, status)| status.as_str());
    numbers.eq((first..).take(revisions.len()))
        && statuses.clone().next() == Some("deployed")
        && statuses
            .skip(1)
            .all(|status| matches!(status, "superseded" | "failed"))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_of_every_namespace(object: &Value) -> bool {
    let is_record = object["type"] == "helm.sh/release.v1";
    is_record
        || matches!(
            (object["kind"].as_str(), name(object)),
            (Some("ConfigMap"), "kube-root-ca.crt") | (Some("ServiceAccount"), "default")
        )
}

/// An object without the fields in which two equal ones in different namespaces differ.
pub(crate) fn bare(object: &Value, namespace: &str) -> Result<Value> {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(key);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // Controllers add it at some later time.
            annotations.remove("deployment.kubernetes.io/revision");
            annotations.remove("deprecated.daemonset.template.generation");
        }
        if metadata.get("annotations") == Some(&json!({})) {
            metadata.remove("annotations");
        }
    }
    if object["kind"] == "Service"
        && let Some(spec) = object["spec"].as_object_mut()
        && spec.get("clusterIP") != Some(&json!("None"))
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if object["kind"] == "Job" {
        for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
            if let Some(labels) = object.pointer_mut(labels).and_then(Value::as_object_mut) {
                labels.retain(|label, _| !label.ends_with("controller-uid"));
            }
        }
    }
    Ok(serde_json::from_str(
        &object.to_string().replace(namespace, "NAMESPACE"),
    )?)
}

/// The differences of two lists of objects, for people.
pub(crate) fn difference(expected: &[Value], found: &[Value]) -> Option<String> {
    let missing = expected
        .iter()
        .filter(|object| !found.contains(object))
        .map(|object| format!("- {object}\n"));
    let additional = found
        .iter()
        .filter(|object| !expected.contains(object))
        .map(|object| format!("+ {object}\n"));
    let text: String = missing.chain(additional).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_may_begin_late_but_has_no_gap() {
        let chain = |statuses: &[(i64, &str)]| -> Vec<(i64, String)> {
            statuses
                .iter()
                .map(|(number, status)| (*number, (*status).to_owned()))
                .collect()
        };
        assert!(is_chain(&chain(&[(2, "superseded"), (3, "deployed")])));
        assert!(!is_chain(&chain(&[(1, "superseded"), (3, "deployed")])));
        assert!(!is_chain(&chain(&[(1, "deployed"), (2, "pending-upgrade")])));
        assert!(!is_chain(&chain(&[(1, "deployed"), (2, "deployed")])));
        assert!(!is_chain(&[]));
    }
}
