//! Drives many releases through the library as a controller does, for measurements and to check that nothing is written
//! when nothing changes.
#![allow(clippy::print_stdout, reason = "figures are what it is run for")]

mod bare;
mod charts;
mod compare;
mod composition;
mod objects;
mod reconcile;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use cluster::{ClientOptions, Cluster, Overrides};

/// Drives many releases through the library as a controller does.
#[derive(Debug, Parser)]
struct Driver {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reconcile releases with their charts, pass after pass.
    Reconcile(Reconcile),
    /// Install releases through the library, and make the same writes with a bare client; print both times.
    Compare(Compare),
    /// Make the same writes as a controller for as many compositions that are installed, changed, given another version
    /// of their chart, and removed; print for each of these phases how many, and the seconds. Each phase begins when a
    /// line is read from standard input.
    Bare(Bare),
    /// Apply the objects of a list on standard input.
    Apply(Objects),
    /// Delete the objects of a list on standard input, without waiting until they are gone.
    Delete(Objects),
}

#[derive(Debug, Args)]
struct Where {
    /// The kubeconfig file.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// How many releases.
    #[arg(long)]
    releases: usize,
    /// How many of them at a time.
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

#[derive(Debug, Args)]
struct Reconcile {
    #[command(flatten)]
    place: Where,
    /// Namespace of the releases.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// How many passes over all of them.
    #[arg(long)]
    passes: usize,
    /// Values as a YAML file.
    #[arg(long)]
    values: Option<PathBuf>,
    /// The charts, used in turn.
    #[arg(required = true)]
    charts: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct Compare {
    #[command(flatten)]
    place: Where,
    /// How often the two sides take turns, so that other load on the machine affects both.
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Namespace of the library's releases.
    #[arg(long)]
    library: String,
    /// Namespace of the bare client's objects.
    #[arg(long)]
    bare: String,
    /// The chart.
    chart: PathBuf,
}

#[derive(Debug, Args)]
struct Bare {
    #[command(flatten)]
    place: Where,
    /// Namespaces of the objects, used in turn.
    #[arg(long, required = true, value_delimiter = ',')]
    namespace: Vec<String>,
    /// The account of a controller, which makes all writes but those of the user who changes compositions:
    /// `<namespace>/<name>`. Without it, the user of the kubeconfig makes all.
    #[arg(long)]
    account: Option<Account>,
    /// The type of the compositions: group and version.
    #[arg(long)]
    api_version: String,
    /// The type of the compositions: kind.
    #[arg(long)]
    kind: String,
    /// The chart.
    chart: PathBuf,
}

/// A ServiceAccount.
#[derive(Debug, Clone)]
struct Account {
    namespace: String,
    name: String,
}

impl FromStr for Account {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (namespace, name) = text.split_once('/').context("it is not <namespace>/<name>")?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

#[derive(Debug, Args)]
struct Objects {
    /// The kubeconfig file.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// How many of them at a time.
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

fn main() -> Result<()> {
    // Another provider may be installed already; both are ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start")?;
    match Driver::parse().command {
        Command::Reconcile(args) => runtime.block_on(reconcile::run(&args)),
        Command::Compare(args) => runtime.block_on(compare::run(&args)),
        Command::Bare(args) => runtime.block_on(composition::run(&args)),
        Command::Apply(args) => runtime.block_on(objects::apply(&args)),
        Command::Delete(args) => runtime.block_on(objects::delete(&args)),
    }
}

/// Connects, under a name of its own in the audit log.
async fn connect(kubeconfig: &Path, name: &str) -> Result<Cluster> {
    Ok(Cluster::new(cluster::client(&options(kubeconfig, name)).await?))
}

/// The same, to act as `account`.
async fn connect_as(account: &Account, kubeconfig: &Path, name: &str) -> Result<Cluster> {
    let Account {
        namespace,
        name: account,
    } = account;
    let overrides = Overrides {
        user: Some(format!("system:serviceaccount:{namespace}:{account}")),
        ..Overrides::default()
    };
    Ok(Cluster::new(
        cluster::client_with(&options(kubeconfig, name), &overrides).await?,
    ))
}

fn options(kubeconfig: &Path, name: &str) -> ClientOptions {
    ClientOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        context: None,
        user_agent: name.to_owned(),
    }
}
