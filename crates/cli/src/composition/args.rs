//! The flags of verbs on compositions.

use clap::Args;

use crate::release::flags::{Connection, Output};

/// `kco get compositions`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// A type such as `webs`, or one composition such as `webs/shop`; all by default.
    #[arg(value_name = "TYPE[/NAME]")]
    pub(crate) selection: Option<String>,
    /// Compositions of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Compositions with these labels.
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
    /// The composition: its name, or its type and name as in `webs/shop`.
    #[arg(value_name = "[TYPE/]NAME")]
    pub(crate) composition: String,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Settings of the controller that cannot be read from the cluster.
#[derive(Debug, Args)]
pub(crate) struct Controller {
    /// Namespace of the platform, which charts see as `global.krateoNamespace`.
    #[arg(
        long,
        env = "KRATEO_NAMESPACE",
        default_value = "krateo-system",
        hide_env = true
    )]
    pub(crate) krateo_namespace: String,
    /// Number of revisions that the controller keeps.
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

/// `kco approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) controller: Controller,
    /// The digest of the permissions to approve, as printed without this flag. Nothing else is approved.
    #[arg(long, value_name = "sha256:DIGEST")]
    pub(crate) digest: Option<String>,
}

/// `kco plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) one: One,
    #[command(flatten)]
    pub(crate) controller: Controller,
    /// Exit with status 2 if there is something to do.
    #[arg(long)]
    pub(crate) exit_code: bool,
}
