//! Many releases, reconciled again and again: does anybody write?

use std::process::Command;

use anyhow::{Result, ensure};
use local_cluster::output;

use super::{Rig, TrialChart};
use crate::image;

/// The charts, in turn. Their render differs every time, or the API server writes it in another way, or they have kinds
/// of their own.
const CHARTS: [&str; 8] = [
    "random",
    "string-data",
    "quantities",
    "several-kinds",
    "custom-resource",
    "lookup",
    "stateful-set",
    "capabilities",
];

/// What was observed while there was nothing to do.
#[derive(Debug)]
pub struct Idle {
    /// How many releases.
    pub releases: usize,
    /// How many passes over all of them.
    pub passes: usize,
    /// Requests that could change something.
    pub writes: Vec<String>,
    /// All requests.
    pub requests: usize,
}

impl std::fmt::Display for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            releases,
            passes,
            writes,
            requests,
        } = self;
        write!(
            f,
            "{releases} releases reconciled {passes} times: {} writes, {requests} requests",
            writes.len()
        )
    }
}

/// Installs the releases, then lets a second process reconcile them.
///
/// # Errors
/// When one cannot be installed.
pub fn run(rig: &Rig, releases: usize, passes: usize) -> Result<Idle> {
    let namespace = "idle";
    rig.forget_definitions()?;
    rig.namespace(namespace)?;
    let charts: Vec<TrialChart> = CHARTS
        .iter()
        .map(|name| TrialChart::named(name))
        .collect::<Result<_>>()?;
    let drive = |passes: usize| -> Result<Command> {
        let mut driver = Command::new(image::binary("release-driver")?);
        driver
            .arg("reconcile")
            .arg("--kubeconfig")
            .arg(rig.plane.kubeconfig());
        driver.args([
            "--namespace",
            namespace,
            "--releases",
            &releases.to_string(),
            "--passes",
            &passes.to_string(),
        ]);
        driver.args(charts.iter().map(TrialChart::path));
        Ok(driver)
    };
    // One pass installs. The next ones, of a process that discovers types again, find the kinds that are new since.
    output(&mut drive(1)?)?;
    output(&mut drive(2)?)?;
    let mark = rig.plane.audit().mark()?;
    let printed = output(&mut drive(passes)?)?;
    ensure!(
        printed.lines().count() == passes,
        "not all passes were made: {printed}"
    );
    let mut idle = Idle {
        releases,
        passes,
        writes: Vec::new(),
        requests: 0,
    };
    for record in rig.plane.audit().since(mark)? {
        let record = record?;
        if !record.user_agent.starts_with("release-driver/") {
            continue;
        }
        idle.requests += 1;
        if record.is_write() && record.resource != "leases" {
            idle.writes.push(format!("{} {}", record.verb, record.uri));
        }
    }
    Ok(idle)
}
