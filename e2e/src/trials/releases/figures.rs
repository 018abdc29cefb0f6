//! What releases cost: requests compared with the minimum, and time compared with a client that does nothing else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use local_cluster::audit::Mark;
use local_cluster::output;
use serde_json::Value;

use super::{Rig, TrialChart};

/// The requests of one action.
#[derive(Debug)]
pub struct Requests {
    /// The action.
    pub action: &'static str,
    /// The minimum: objects that it writes or deletes, and two writes of records for each revision that changes.
    pub least: usize,
    /// Writes that were made.
    pub writes: usize,
    /// All other requests, discovery aside.
    pub reads: usize,
    /// Discovery requests, once per process.
    pub discovery: usize,
}

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            action,
            least,
            writes,
            reads,
            discovery,
        } = self;
        write!(
            f,
            "{action}: {writes} writes where {least} are the least, {reads} reads, {discovery} requests of discovery"
        )
    }
}

/// Counts the requests of an install, of an upgrade that changes as much as possible, and of a pass that finds nothing
/// to do.
///
/// # Errors
/// When the driver fails.
pub fn requests(rig: &Rig, driver: &Path) -> Result<Vec<Requests>> {
    let namespace = "figures-requests";
    rig.namespace(namespace)?;
    let chart = TrialChart::named("web")?;
    // One of each of its templates.
    let objects = 7;
    let upgrade = chart.upgrade().context("the chart has values for an upgrade")?;
    let drive = |values: Option<&str>| -> Result<Mark> {
        let mark = rig.plane.audit().mark()?;
        let mut command = Command::new(driver);
        command
            .arg("reconcile")
            .arg("--kubeconfig")
            .arg(rig.plane.kubeconfig());
        command.args(["--namespace", namespace, "--releases", "1", "--passes", "1"]);
        if let Some(values) = values {
            command.args(["--values", values]);
        }
        output(command.arg(chart.path()))?;
        Ok(mark)
    };
    let mut all = Vec::new();
    // Pending and deployed, and on an upgrade superseded as well.
    for (action, values, least) in [
        ("install", None, objects + 2),
        ("upgrade", Some(upgrade.as_str()), objects + 3),
        ("unchanged", Some(upgrade.as_str()), 0),
    ] {
        let mark = drive(values)?;
        let mut counted = Requests {
            action,
            least,
            writes: 0,
            reads: 0,
            discovery: 0,
        };
        for record in rig.plane.audit().since(mark)? {
            let record = record?;
            if !record.user_agent.starts_with("release-driver/") {
                continue;
            }
            if record.is_write() {
                counted.writes += 1;
            } else if record.resource.is_empty() {
                counted.discovery += 1;
            } else {
                counted.reads += 1;
            }
        }
        all.push(counted);
    }
    Ok(all)
}

/// The driver's report about `releases` installs compared with the same writes by a bare client.
///
/// # Errors
/// When the driver fails.
pub fn times(rig: &Rig, driver: &Path, releases: usize) -> Result<String> {
    for namespace in ["figures-library", "figures-bare"] {
        rig.namespace(namespace)?;
    }
    let chart = TrialChart::named("web")?;
    let mut command = Command::new(driver);
    command
        .arg("compare")
        .arg("--kubeconfig")
        .arg(rig.plane.kubeconfig());
    command.args([
        "--library",
        "figures-library",
        "--bare",
        "figures-bare",
        "--releases",
        &releases.to_string(),
    ]);
    output(command.arg(chart.path()))
}

/// Checks that both namespaces have the same number of objects: the bare client did the same work.
///
/// # Errors
/// When they cannot be read.
pub fn is_same_work(rig: &Rig) -> Result<bool> {
    let count = |namespace: &str| -> Result<usize> {
        let listed = rig.kubectl(&[
            "get",
            super::NAMESPACED,
            "--namespace",
            namespace,
            "--output",
            "json",
        ])?;
        let listed: Value = serde_json::from_str(&listed)?;
        Ok(listed["items"].as_array().map_or(0, Vec::len))
    };
    Ok(count("figures-library")? == count("figures-bare")?)
}
