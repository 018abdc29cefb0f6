//! The flags of `kco installer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::{Access, Source, Values};
use crate::release::args::{Connection, EarlierValues, Making, Output, Waiting};

/// Timeout of one hook; one of them removes all components of a platform.
const TIMEOUT: &str = "20m0s";

/// The default name of the release.
const RELEASE: &str = "installer";

/// The subcommands of `kco installer`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the list of components; print the waves in which they will be installed, and what the admin allows them.
    Check(Box<Check>),
    /// Install the platform, or upgrade it, after a check of its components.
    Install(Box<Install>),
    /// Show what an upgrade would change, without changing anything.
    Diff(Box<Diff>),
    /// Show the components by wave: what is Ready, what waits for what, and why.
    Status(Box<Status>),
    /// Remove the platform.
    #[command(visible_aliases = ["un", "delete", "del"])]
    Uninstall(Box<Uninstall>),
    /// Write the values schemas of the components' charts into the installer's values.schema.json.
    Schema(Box<Schema>),
    /// Run a hook of the chart; the chart's Jobs call this.
    #[command(subcommand)]
    Hook(Hook),
}

/// The arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The chart (a folder, an archive, a URL or an OCI reference), or a file of values (.yaml, .yml, .json).
    #[arg(value_name = "CHART|VALUES")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Fetch each component's chart, and compare its name and version with the list.
    #[arg(long)]
    pub(crate) charts: bool,
    /// Fetch the charts of the components that are on, and print the grants that they need and `allow` does not contain,
    /// for review and for Git. Nothing else is checked but the list.
    #[arg(long, conflicts_with = "charts")]
    pub(crate) grant: bool,
    /// Do not connect to a cluster, and fetch no chart of a component that --charts or --grant does not ask for.
    #[arg(long)]
    pub(crate) offline: bool,
    /// The name of the release, whose own objects are not reported as conflicts.
    #[arg(long, default_value = RELEASE)]
    pub(crate) release: String,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `install`.
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

/// The arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The chart: a folder, an archive, a URL or an OCI reference.
    pub(crate) chart: String,
    /// The name of the release.
    #[arg(long, default_value = RELEASE)]
    pub(crate) release: String,
    /// Exit with status 2 if something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) earlier_values: EarlierValues,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Keep running and follow changes: redraws the list on a terminal, prints a line for each change elsewhere.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: exit once all components are Ready.
    #[arg(long, requires = "watch")]
    pub(crate) until_ready: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `uninstall`.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value(TIMEOUT)))]
pub(crate) struct Uninstall {
    /// The name of the release.
    #[arg(default_value = RELEASE)]
    pub(crate) release: String,
    /// Do not fail if the release does not exist.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Show what would be removed, without removing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The arguments of `schema`.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// The chart's folder.
    pub(crate) chart: PathBuf,
    /// Write nothing; exit with status 1 and print the differences if the files are not up to date.
    #[arg(long)]
    pub(crate) check: bool,
    /// Continue without charts that cannot be fetched or have no schema; their values are not checked.
    #[arg(long)]
    pub(crate) allow_missing: bool,
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// The hook to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Hook {
    /// After the install: wait for the type Installer and create the Installer object.
    SelfBootstrap(Box<SelfBootstrap>),
    /// Before an Installer's release is removed: remove its components in reverse order.
    OrderedTeardown(Box<OrderedTeardown>),
    /// Before the umbrella is removed: remove the definition `installer` and wait until nothing of it is left.
    BootstrapTeardown(Box<BootstrapTeardown>),
    /// After the umbrella is removed: delete what belongs to no release.
    PostDelete(Box<PostDelete>),
}

/// How long to wait, and how often to check.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Pace {
    /// Number of intervals to wait before giving up.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempts: Option<u32>,
    /// The longest pause between two checks, in seconds; the first ones are shorter.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
}

/// `kco installer hook self-bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct SelfBootstrap {
    /// The manifest of the Installer.
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// The longest wait for the type Installer, in seconds.
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
    /// Total timeout in seconds: less than the Job's activeDeadlineSeconds.
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
    /// The name of the definition of the type Installer.
    #[arg(long, default_value = super::names::INSTALLER)]
    pub(crate) definition: String,
    /// Also remove definitions that the installer did not make, with their compositions.
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
    /// The namespace of the controllers, if it is deleted with the release: wait until it is gone.
    #[arg(long)]
    pub(crate) platform_namespace: Option<String>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// A number of seconds, such as `5` or `0.2`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is not a valid duration"))
}
