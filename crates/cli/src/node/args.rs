//! The flags of `kco node`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::release::args::{Connection, Output, duration};

/// Verbs on the nodes of a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the nodes, and those that have a ticket to join and are not there yet.
    #[command(visible_alias = "ls")]
    List(Box<List>),
    /// Take a node that does not come back out of the cluster: its member of etcd, its tickets, its Node. What the machine
    /// itself has is undone there, by `bootstrapper reset`.
    Reset(Box<Reset>),
}

/// What to list.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to take out.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// Name of the node.
    pub(crate) name: String,
    /// Do it. Without this flag it is only said what would be done.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The longest wait for etcd.
    #[arg(long, default_value = "2m0s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
