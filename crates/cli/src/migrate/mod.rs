//! A cluster that runs Krateo goes over to this platform, and back, without a release touched.
//!
//! What is changed are the programs' own objects: Deployments, roles, webhooks, and the Helm release they came with.
//! Types, definitions, compositions and the objects of their releases stay as they are.

pub(crate) mod args;
mod backup;
mod check;
mod findings;
mod krateo;
mod run;
mod undo;

use anyhow::{Context as _, Result};
use cluster::{Cluster, ObjectId};
use k8s_openapi::api::core::v1::Namespace;

use args::Command;

/// As what objects are written.
const MANAGER: &str = "kco";

/// Runs a command of `kco migrate`.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Undo(args) => undo::run(&args),
    }
}

/// What tells one cluster from another: the UID of its first namespace.
async fn identity(cluster: &Cluster) -> Result<String> {
    let id = ObjectId::of::<Namespace>(None, "kube-system")?;
    let namespace = cluster.get_metadata(&id).await?;
    namespace
        .and_then(|namespace| namespace.metadata.uid)
        .context("the cluster has no namespace kube-system to tell it by")
}
