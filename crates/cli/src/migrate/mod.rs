//! Migrates a cluster that runs Krateo to this platform, and back, without touching any release.
//!
//! Only the programs' own objects change: Deployments, roles, webhooks, and the Helm release they were installed by.
//! Types, definitions, compositions and the objects of their releases stay as they are.

pub(crate) mod args;
mod backup;
mod check;
mod findings;
mod grants;
mod installed;
mod krateo;
mod run;
mod undo;

use anyhow::{Context as _, Result};
use cluster::{Cluster, ObjectId};
use k8s_openapi::api::core::v1::Namespace;

use args::Command;

/// The field manager.
const MANAGER: &str = "kco";

/// Runs a command of `kco migrate`.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Undo(args) => undo::run(&args),
    }
}

/// Identifies a cluster: the UID of its namespace kube-system.
async fn identity(cluster: &Cluster) -> Result<String> {
    let id = ObjectId::of::<Namespace>(None, "kube-system")?;
    let namespace = cluster.get_metadata(&id).await?;
    namespace
        .and_then(|namespace| namespace.metadata.uid)
        .context("the cluster has no namespace kube-system to tell it by")
}
