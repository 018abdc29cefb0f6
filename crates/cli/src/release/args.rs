//! The flags of the verbs that work on releases, named as Helm names them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use helm_client::release::CrdPolicy;

use crate::args::{Source, Values};

/// Which cluster, and which namespace of it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Connection {
    /// Namespace of the release; without it that of the kubeconfig's context.
    #[arg(short, long, env = "HELM_NAMESPACE", hide_env = true)]
    pub(crate) namespace: Option<String>,
    /// The kubeconfig file; without it $KUBECONFIG or ~/.kube/config.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, env = "HELM_KUBECONTEXT", hide_env = true)]
    pub(crate) kube_context: Option<String>,
    /// When to colour: a terminal is coloured unless $`NO_COLOR` is set.
    #[arg(
        long,
        alias = "colour",
        value_enum,
        default_value = "auto",
        env = "HELM_COLOR",
        hide_env = true
    )]
    pub(crate) color: Colour,
    /// Where records are kept: secret or configmap.
    #[arg(long, env = "HELM_DRIVER", default_value = "", hide = true)]
    pub(crate) storage_driver: String,
    /// Say more, for the search of a fault.
    #[arg(long, env = "HELM_DEBUG", hide_env = true)]
    pub(crate) debug: bool,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Hooks that are Pods or Jobs.
    Hooks,
    /// All objects of the release as well.
    Objects,
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    match text {
        "true" | "watcher" | "legacy" => Ok(WaitFor::Objects),
        "false" | "hookOnly" => Ok(WaitFor::Hooks),
        other => Err(format!(
            "invalid wait input {other:?}. Valid inputs are true, false, hookOnly, legacy, and watcher"
        )),
    }
}

/// `5m0s`, as Go prints and reads durations.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    parsed
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| format!("invalid duration {text:?}: write it as 90s or 5m0s"))
}

/// `key=value` pairs.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("{text} must be formatted as key=value")),
    }
}

/// What happens to the definitions in `crds/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Crds {
    /// They are left out.
    Skip,
    /// Those that are not there are made.
    Create,
    /// Those that are there become as the chart has them.
    CreateReplace,
}

impl From<Crds> for CrdPolicy {
    fn from(crds: Crds) -> Self {
        match crds {
            Crds::Skip => Self::Skip,
            Crds::Create => Self::Create,
            Crds::CreateReplace => Self::CreateReplace,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Waiting {
    /// Wait until all objects are ready.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "hookOnly",
          default_missing_value = "watcher", value_parser = wait_for)]
    pub(crate) wait: WaitFor,
    /// With --wait: wait also until Jobs are through.
    #[arg(long)]
    pub(crate) wait_for_jobs: bool,
    /// The longest wait for one hook, or for the objects.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// What install and upgrade have in common.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Making {
    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) output: Output,

    /// Make the namespace of the release when it is not there.
    #[arg(long)]
    pub(crate) create_namespace: bool,
    /// Show what would be done, and do nothing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "client")]
    pub(crate) dry_run: String,
    /// Leave Secrets out of what --dry-run prints.
    #[arg(long, requires = "dry_run")]
    pub(crate) hide_secret: bool,
    /// Run no hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    /// Leave the definitions in crds/ out.
    #[arg(long, conflicts_with = "crds")]
    pub(crate) skip_crds: bool,
    /// What happens to the definitions in crds/.
    #[arg(long, value_enum, default_value = "create")]
    pub(crate) crds: Crds,
    /// What the history says about the revision.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Wait, and undo what was made when something fails. What fails is undone in any case; this adds the wait.
    #[arg(long, alias = "atomic")]
    pub(crate) rollback_on_failure: bool,
    /// Take objects that exist and belong to no release or another one.
    #[arg(long)]
    pub(crate) take_ownership: bool,
    /// Labels of the release's record, key=value.
    #[arg(short, long, value_delimiter = ',', value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Do not check values against the charts' schemas.
    #[arg(long)]
    pub(crate) skip_schema_validation: bool,
    /// Print the notes of subcharts as well.
    #[arg(long)]
    pub(crate) render_subchart_notes: bool,
    /// Do not print notes.
    #[arg(long)]
    pub(crate) hide_notes: bool,

    /// How many revisions are kept; 0 keeps all.
    #[arg(long, env = "HELM_MAX_HISTORY", hide_env = true, default_value_t = 10)]
    pub(crate) history_max: i64,

    #[command(flatten)]
    without_effect: WithoutEffect,
}

/// Flags of Helm for what is always so here: objects are applied by the server, which validates them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted without effect")]
struct WithoutEffect {
    #[arg(long)]
    disable_openapi_validation: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    server_side: Option<String>,
    #[arg(long)]
    cleanup_on_fail: bool,
}

/// The flags of `helm install`.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The name of the release, then the chart: a folder, an archive, a URL or an OCI reference.
    #[arg(required = true, num_args = 1..=2, value_name = "[NAME] CHART")]
    pub(crate) name_and_chart: Vec<String>,
    /// Generate the name (and omit the NAME parameter).
    #[arg(short, long)]
    pub(crate) generate_name: bool,
    /// Take the name of a release that was uninstalled with its history kept.
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm upgrade`.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The name of the release.
    pub(crate) release: String,
    /// The chart: a folder, an archive, a URL or an OCI reference.
    pub(crate) chart: String,
    /// Install the release when there is none.
    #[arg(short, long)]
    pub(crate) install: bool,
    #[command(flatten)]
    pub(crate) earlier_values: EarlierValues,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What becomes of the values of the revision before. Without any of these they are kept when no values are given,
/// and dropped when some are.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct EarlierValues {
    /// Drop them.
    #[arg(long)]
    pub(crate) reset_values: bool,
    /// Keep them and the defaults of the chart before.
    #[arg(long)]
    pub(crate) reuse_values: bool,
    /// Keep them over the defaults of the new chart.
    #[arg(long)]
    pub(crate) reset_then_reuse_values: bool,
}

/// The flags of `helm rollback`.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The name of the release.
    pub(crate) release: String,
    /// The revision to go back to; 0 is the one before.
    #[arg(default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    /// Show what would be done, and do nothing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "client")]
    pub(crate) dry_run: String,
    /// Run no hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    /// How many revisions are kept; 0 keeps all.
    #[arg(long, env = "HELM_MAX_HISTORY", hide_env = true, default_value_t = 10)]
    pub(crate) history_max: i64,
    #[command(flatten)]
    without_effect: WithoutEffect,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm uninstall`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Uninstall {
    /// The names of the releases.
    #[arg(required = true, value_name = "RELEASE")]
    pub(crate) releases: Vec<String>,
    /// Keep the records, marked as uninstalled.
    #[arg(long)]
    pub(crate) keep_history: bool,
    /// A release that is not there counts as uninstalled.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Show what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run no hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm status`.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The name of the release.
    pub(crate) release: String,
    /// A revision instead of the newest.
    #[arg(long, default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm history`.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The name of the release.
    pub(crate) release: String,
    /// The most revisions to show.
    #[arg(long, default_value_t = 256)]
    pub(crate) max: usize,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm list`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct List {
    /// Releases of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Names alone.
    #[arg(short = 'q', long)]
    pub(crate) short: bool,
    /// No line of headers above the table.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// By date instead of by name.
    #[arg(short, long)]
    pub(crate) date: bool,
    /// The other way round.
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Releases whose name matches this regular expression.
    #[arg(short, long)]
    pub(crate) filter: Option<String>,
    /// Releases whose record has these labels.
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<String>,
    /// The most releases to show; 0 shows all.
    #[arg(short, long, default_value_t = 256)]
    pub(crate) max: usize,
    /// How many to leave out before the first.
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
    /// Deployed ones.
    #[arg(long)]
    pub(crate) deployed: bool,
    /// Failed ones.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Those that somebody is at, or was.
    #[arg(long)]
    pub(crate) pending: bool,
    /// Those that were replaced.
    #[arg(long)]
    pub(crate) superseded: bool,
    /// Those that were uninstalled with their history kept.
    #[arg(long)]
    pub(crate) uninstalled: bool,
    /// Those that are being uninstalled.
    #[arg(long)]
    pub(crate) uninstalling: bool,
    /// Those of every status, which is what is shown without any of these.
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// `helm get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(subcommand)]
    pub(crate) what: What,
}

/// Which part of a record.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    /// All of it.
    All(GetPart),
    /// The hooks.
    Hooks(GetPart),
    /// The manifest.
    Manifest(GetPart),
    /// The notes.
    Notes(GetPart),
    /// The user's values, or all.
    Values(GetValues),
    /// Compositions, and how they are. Not of Helm.
    #[command(visible_aliases = ["composition", "comps", "comp"])]
    Compositions(crate::composition::args::List),
}

#[derive(Debug, Args)]
pub(crate) struct GetPart {
    /// The name of the release.
    pub(crate) release: String,
    /// A revision instead of the newest.
    #[arg(long, default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct GetValues {
    /// With the chart's defaults.
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) part: GetPart,
}

/// `kco diff`: as [`Upgrade`], and nothing is written.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The name of the release.
    pub(crate) release: String,
    /// The chart: a folder, an archive, a URL or an OCI reference.
    pub(crate) chart: String,
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

/// `kco drift`.
#[derive(Debug, Args)]
pub(crate) struct Drift {
    /// The name of the release.
    pub(crate) release: String,
    /// Write again what is to be corrected.
    #[arg(long)]
    pub(crate) correct: bool,
    /// What counts and what is done about it, as the annotation of compositions says it: warn,
    /// ignore=Deployment/web:.spec.replicas (can specify multiple; the last that fits counts).
    #[arg(long)]
    pub(crate) policy: Vec<String>,
    /// End with status 2 when something drifted.
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm test`.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The name of the release.
    pub(crate) release: String,
    /// The longest wait for one test.
    #[arg(long, default_value = "5m0s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Print what the tests printed.
    #[arg(long)]
    pub(crate) logs: bool,
    /// Tests by name: name=a, or !name=b to leave one out (can specify multiple).
    #[arg(long, value_delimiter = ',')]
    pub(crate) filter: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        for (text, seconds) in [
            ("5m0s", 300.0),
            ("90s", 90.0),
            ("1h30m", 5400.0),
            ("0", 0.0),
            ("1.5s", 1.5),
        ] {
            let parsed = duration(text).map(|duration| duration.as_secs_f64());
            assert_eq!(parsed, Ok(seconds), "{text}");
        }
        for text in ["", "5", "-1s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn waiting_is_spelled_as_in_helm() {
        assert_eq!(wait_for("watcher"), Ok(WaitFor::Objects));
        assert_eq!(wait_for("hookOnly"), Ok(WaitFor::Hooks));
        assert!(wait_for("yes").is_err());
    }
}
