//! The flags of `kco installer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::{Access, Source, Values};
use crate::release::args::{Connection, EarlierValues, Making, Output, Waiting};

/// How long an action may wait for one hook: the drain of a whole platform is one.
const TIMEOUT: &str = "20m0s";

/// The name of the release unless it is told.
const RELEASE: &str = "installer";

/// Verbs on the umbrella.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the list of components, and print the waves in which they come up and what the admin consents to.
    Check(Box<Check>),
    /// Install the platform, or upgrade it, after a check of its components.
    Install(Box<Install>),
    /// Show what an upgrade would change, without changing it.
    Diff(Box<Diff>),
    /// Show the components by waves: what is Ready, what waits for what, and why.
    Status(Box<Status>),
    /// Remove the platform.
    #[command(visible_aliases = ["un", "delete", "del"])]
    Uninstall(Box<Uninstall>),
    /// Write what the charts of components say about their values into the installer's values.schema.json.
    Schema(Box<Schema>),
    /// What the Jobs of the chart's hooks run.
    #[command(subcommand)]
    Hook(Hook),
}

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The chart (a folder, an archive, a URL or an OCI reference), or a file of values (.yaml, .yml, .json).
    #[arg(value_name = "CHART|VALUES")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Fetch each component's chart, and hold name and version against the list.
    #[arg(long)]
    pub(crate) charts: bool,
    /// Look at no cluster.
    #[arg(long)]
    pub(crate) offline: bool,
    /// The name of the release: what it holds already is its own.
    #[arg(long, default_value = RELEASE)]
    pub(crate) release: String,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to install.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value(TIMEOUT)))]
pub(crate) struct Install {
    /// The chart: a folder, an archive, a URL or an OCI reference.
    pub(crate) chart: String,
    /// The name of the release.
    #[arg(long, default_value = RELEASE)]
    pub(crate) release: String,
    #[command(flatten)]
    pub(crate) earlier_values: EarlierValues,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The chart: a folder, an archive, a URL or an OCI reference.
    pub(crate) chart: String,
    /// The name of the release.
    #[arg(long, default_value = RELEASE)]
    pub(crate) release: String,
    /// End with status 2 when something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) earlier_values: EarlierValues,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to show.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Stay, and follow changes: redrawn on a terminal, a line for each change elsewhere.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: end once all components are Ready.
    #[arg(long, requires = "watch")]
    pub(crate) until_ready: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What to remove.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value(TIMEOUT)))]
pub(crate) struct Uninstall {
    /// The name of the release.
    #[arg(default_value = RELEASE)]
    pub(crate) release: String,
    /// A release that is not there counts as uninstalled.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Show what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Whose schema to write.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// The chart's folder.
    pub(crate) chart: PathBuf,
    /// Write nothing; end with status 1 and say what moved when the files are not what would be written.
    #[arg(long)]
    pub(crate) check: bool,
    /// Go on without the charts that cannot be fetched or have no schema: their values are not checked.
    #[arg(long)]
    pub(crate) allow_missing: bool,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// Which hook to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Hook {
    /// After the install: wait for the type of installers and make the Installer.
    SelfBootstrap(Box<SelfBootstrap>),
    /// Before an Installer's release is removed: remove its components in reverse order.
    OrderedTeardown(Box<OrderedTeardown>),
    /// Before the umbrella is removed: remove the definition of installers and wait until nothing is left of it.
    BootstrapTeardown(Box<BootstrapTeardown>),
    /// After the umbrella is removed: sweep what belongs to no release.
    PostDelete(Box<PostDelete>),
}

/// How long to look, and how far apart.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Pace {
    /// How many intervals to wait before giving up.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,
    /// The longest pause between two looks, in seconds; the first ones are shorter.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
}

/// `kco installer hook self-bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct SelfBootstrap {
    /// The manifest of the Installer.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// The longest wait for the type of installers, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    pub(crate) type_timeout: Duration,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `kco installer hook ordered-teardown`.
#[derive(Debug, Args)]
pub(crate) struct OrderedTeardown {
    /// The components, a YAML list of {name, kind, version} in the order of `values.components`.
    #[arg(long)]
    pub(crate) components: PathBuf,
    /// The longest it may take in all, in seconds: less than the Job's activeDeadlineSeconds.
    #[arg(long, value_name = "SECONDS", default_value = "570", value_parser = seconds)]
    pub(crate) deadline: Duration,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `kco installer hook bootstrap-teardown`.
#[derive(Debug, Args)]
pub(crate) struct BootstrapTeardown {
    /// The name of the umbrella's release.
    #[arg(long)]
    pub(crate) release: String,
    /// The name of the definition of installers.
    #[arg(long, default_value = super::hook::INSTALLER)]
    pub(crate) definition: String,
    /// Remove definitions that the installer did not make as well, with their compositions.
    #[arg(long)]
    pub(crate) remove_others: bool,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `kco installer hook post-delete`.
#[derive(Debug, Args)]
pub(crate) struct PostDelete {
    /// The name of the umbrella's release.
    #[arg(long)]
    pub(crate) release: String,
    /// The namespace of the controllers, where it goes with the release: wait until it is gone.
    #[arg(long)]
    pub(crate) platform_namespace: Option<String>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `5`, `0.2`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is no length of time"))
}
