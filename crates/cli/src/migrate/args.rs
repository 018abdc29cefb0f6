//! The flags of `kco migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::release::args::{Connection, Upgrade};

/// The subcommands of `kco migrate`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what will happen to each definition and composition, and what an admin has to settle first. Writes
    /// nothing. Exits with status 2 if there is something to settle.
    Check(Box<Check>),
    /// Migrate object by object. If it is interrupted, run the same command again.
    Run(Box<Run>),
    /// Restore Krateo's programs from the backup.
    Undo(Box<Undo>),
}

/// The arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The Helm release of Krateo's core-provider, and this platform's chart with its values.
    #[command(flatten)]
    pub(crate) upgrade: Upgrade,
    /// Print the grants that the definitions will want, for review and for Git, and nothing else.
    #[arg(long)]
    pub(crate) grant: bool,
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The Helm release of Krateo's core-provider, and this platform's chart with its values.
    #[command(flatten)]
    pub(crate) upgrade: Upgrade,
    /// File to which the programs' objects are saved for `kco migrate undo`. It contains the values of the platform's
    /// release, so only you can read it. After an interruption, name the same file again.
    #[arg(long, value_name = "FILE")]
    pub(crate) backup: PathBuf,
    /// Continue although `kco migrate check` reports something that an admin has to settle.
    #[arg(long)]
    pub(crate) unsettled: bool,
    /// Write the grants that `kco migrate check --grant` prints, for definitions whose releases already have roles, or
    /// objects that rule over others.
    #[arg(long)]
    pub(crate) grant: bool,
}

/// The arguments of `undo`.
#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The file that `kco migrate run` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) backup: PathBuf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
