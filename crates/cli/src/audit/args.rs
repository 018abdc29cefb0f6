//! The arguments of `kco audit-rbac`.

use clap::Args;

use crate::args::Source;

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
    /// for Git.
    #[arg(long, conflicts_with_all = ["check", "lookups", "origins", "consents"])]
    pub(crate) grant: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}
