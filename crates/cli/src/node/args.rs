//! The flags of `kco node`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::release::args::{Connection, Output, duration};

/// The subcommands of `kco node`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the nodes, and machines that have a ticket but have not joined yet.
    #[command(visible_alias = "ls")]
    List(Box<List>),
    /// Remove a node that does not come back from the cluster: its etcd member, its tickets, its Node. The machine
    /// itself is reset by `bootstrapper reset`.
    Reset(Box<Reset>),
}

/// The arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `reset`.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// Name of the node.
    pub(crate) name: String,
    /// Remove the node. Without this flag the command only prints what it would do.
    #[arg(long)]
    pub(crate) yes: bool,
    /// The longest wait for etcd.
    #[arg(long, default_value = "2m0s", value_parser = duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
