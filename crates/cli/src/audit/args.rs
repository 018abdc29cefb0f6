//! The arguments of `kco audit-rbac`.

use clap::Args;

use crate::args::{Source, Values};

/// The flags of `kco audit-rbac`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Audit {
    /// Charts: folders, archives, URLs or OCI references; a folder without a chart stands for all charts below it.
    #[arg(required = true, value_name = "CHART")]
    pub(crate) charts: Vec<String>,
    /// Render each chart folder with its defaults and its ci/*values.yaml, and print the kinds that the scan missed, and
    /// the rules and bindings that it missed of those that the defaults render.
    #[arg(long)]
    pub(crate) check: bool,
    /// Render each chart folder with its defaults and its ci/*values.yaml, as an install and as an upgrade, and print
    /// the lookups for which a composition would be held, and what allows them.
    #[arg(long, conflicts_with = "check")]
    pub(crate) lookups: bool,
    /// Render each chart folder with its defaults and its ci/*values.yaml, and print the documents whose kind the values
    /// chose and not the chart: outside of a composition's namespace they need consent.
    #[arg(long, conflicts_with_all = ["check", "lookups"])]
    pub(crate) origins: bool,
    /// Render each chart folder with its defaults and its ci/*values.yaml, and print what an admin has to consent to before
    /// a composition of it is released.
    #[arg(long, conflicts_with_all = ["check", "lookups", "origins"])]
    pub(crate) consents: bool,
    /// Print the grant that each chart needs, the worst entries first, each with what it lets happen: for review and
    /// for Git. Charts are rendered with their defaults, or with --values and --set, for the names that only a rendering
    /// knows.
    #[arg(long, conflicts_with_all = ["check", "lookups", "origins", "consents"])]
    pub(crate) grant: bool,
    /// With --grant: the name of the release, or a part of it. Many charts leave their own name out of names if the release
    /// has it in its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) release: Option<String>,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) source: Source,
}
