//! What the trial and the demo do, stage by stage.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::pods::Pods;
use super::trial::Trial;
use crate::trials::installer::Profile;

/// Name of the demo's machines.
pub const DEMO: &str = "demo-bootstrap";

/// The results.
#[derive(Debug)]
pub struct Outcome {
    stages: Vec<(Duration, &'static str)>,
    reached: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (took, stage) in &self.stages {
            writeln!(f, "{:>6.1} s  {stage}", took.as_secs_f32())?;
        }
        f.write_str(&self.reached)
    }
}

/// Goes through all stages. The machines are gone afterwards.
///
/// # Errors
/// When one of them fails. The logs are kept in this case.
pub fn run() -> Result<Outcome> {
    let mut trial = Trial::prepare(None, false)?;
    let reached = try_all(&mut trial);
    trial.keep_objects(&reached);
    let reached = reached?;
    trial.rig.machines.declare_ready()?;
    Ok(Outcome {
        stages: trial.stages,
        reached,
    })
}

fn try_all(trial: &mut Trial) -> Result<String> {
    trial.make_cluster(true)?;
    let pods = Pods::deploy(trial)?;
    trial.done("pods on all nodes talk to each other");
    trial.reboot_worker(&pods)?;
    trial.done("worker rebooted: its kubelet and its pods are back");
    trial.renew_certificates()?;
    trial.done("certificates of the first control plane renewed");
    let platform = trial.install_platform(&Profile::small())?;
    trial.done("platform installed by kco init, its pods spread over the nodes");
    trial.site.run(trial.site.kco(["installer", "uninstall"])?)?;
    trial.done("platform removed");
    trial.remove_control_plane()?;
    trial.done("second control plane reset: its member of etcd and its Node are gone");
    let rotations = trial.await_rotation()?;
    trial.done("certificate of the worker's kubelet rotated");
    Ok(format!(
        "cluster {}: 3 nodes, 2 of them control planes with a member of etcd each, one id on all; pods of the platform: {platform}; \
         the worker's kubelet got {rotations} further certificates; 2 nodes are left",
        trial.cluster_id()?
    ))
}

/// Makes a cluster with the platform of three machines, which stays.
///
/// # Errors
/// When a stage fails. The machines are removed in this case.
pub fn demo() -> Result<Outcome> {
    let mut trial = Trial::prepare(Some(DEMO), true)?;
    let reached = show(&mut trial);
    trial.keep_objects(&reached);
    let reached = reached?;
    trial.rig.machines.declare_ready()?;
    trial.rig.machines.detach()?;
    Ok(Outcome {
        stages: trial.stages,
        reached,
    })
}

fn show(trial: &mut Trial) -> Result<String> {
    trial.make_cluster(false)?;
    let platform = trial.install_platform(&Profile::platform())?;
    trial.done("platform installed by kco init");
    let nodes = trial.kubectl(&["get", "nodes", "--output", "wide"])?;
    Ok(format!(
        "\n{nodes}\ncluster {}: 3 nodes; pods of the platform: {platform}\n\
         Look around:   cargo run -qp local-cluster -- exec --name {DEMO} -- bash\n\
         Remove it all: make demo-down",
        trial.cluster_id()?
    ))
}
