//! What was typed about compositions.

use clap::Args;

use crate::release::args::{Connection, Output};

/// `kco get compositions`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// A type, as `webs`, or one composition, as `webs/shop`; all when left out.
    #[arg(value_name = "TYPE[/NAME]")]
    pub(crate) selection: Option<String>,
    /// Those of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Those with these labels.
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// One composition.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The composition: its name, or with its type as `webs/shop`.
    #[arg(value_name = "[TYPE/]NAME")]
    pub(crate) composition: String,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What its controller was told at its start, which a terminal cannot see.
#[derive(Debug, Args)]
pub(crate) struct Controller {
    /// The platform's namespace, as charts are told it.
    #[arg(
        long,
        env = "KRATEO_NAMESPACE",
        default_value = "krateo-system",
        hide_env = true
    )]
    pub(crate) krateo_namespace: String,
    /// Revisions that the controller keeps.
    #[arg(
        long,
        env = "HELM_MAX_HISTORY",
        default_value_t = 3,
        hide_env = true,
        value_parser = clap::value_parser!(i64).range(0..)
    )]
    pub(crate) history_max: i64,
}

/// `kco inspect composition`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) controller: Controller,
}

/// `kco plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) controller: Controller,
    /// End with status 2 when there is something to do.
    #[arg(long)]
    pub(crate) exit_code: bool,
}
