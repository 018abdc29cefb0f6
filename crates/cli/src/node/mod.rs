//! `kco node`: lists the nodes of a cluster that `kco init` created, and cleans up after one that does not come back.

pub(crate) mod args;
mod etcd;
mod list;
mod plan;
mod reset;

use anyhow::Result;

/// The label by which kubeadm marks nodes that run an API server.
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// The namespace in which kubeadm runs etcd.
const KUBE_SYSTEM: &str = "kube-system";

/// Runs a command of `kco node`.
pub(crate) fn run(command: args::Command) -> Result<()> {
    match command {
        args::Command::List(args) => list::run(&args),
        args::Command::Reset(args) => reset::run(&args),
    }
}
