//! The flags of `kco migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::release::args::{Connection, Upgrade};

/// Verbs on a cluster that runs Krateo.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell what will happen to each definition and composition, and what an admin has to settle first. Nothing is written.
    /// Ends with status 2 when there is something to settle.
    Check(Box<Check>),
    /// Hand over object by object. Can be interrupted at any point: run the same again.
    Run(Box<Run>),
    /// Put the programs of Krateo back, as the backup has them.
    Undo(Box<Undo>),
}

/// What is looked at.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The Helm release of Krateo's core-provider, and this platform's chart with its values.
    #[command(flatten)]
    pub(crate) upgrade: Upgrade,
}

/// What is handed over.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The Helm release of Krateo's core-provider, and this platform's chart with its values.
    #[command(flatten)]
    pub(crate) upgrade: Upgrade,
    /// Where the programs' objects are kept as they were, for `kco migrate undo`. It holds the values of the platform's
    /// release, so only you can read it. A file of an interrupted run is gone on with.
    #[arg(long, value_name = "FILE")]
    pub(crate) backup: PathBuf,
    /// Go on although `kco migrate check` has something for an admin to settle.
    #[arg(long)]
    pub(crate) unsettled: bool,
}

/// What is put back.
#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The file that `kco migrate run` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) backup: PathBuf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
