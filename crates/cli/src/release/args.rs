//! The flags of the verbs that work on releases, named as Helm names them.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use cluster::Propagation;
use helm_client::release::CrdPolicy;

pub(crate) use super::flags::{Colour, Connection, Format, Output};
use crate::args::{Source, Values};

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

/// A duration in Go's format, such as `5m0s`.
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

/// What happens to the `CustomResourceDefinitions` in `crds/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Crds {
    /// They are omitted.
    Skip,
    /// Missing ones are created.
    Create,
    /// Existing ones are replaced by the chart's.
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

    /// Create the namespace of the release if it does not exist.
    #[arg(long)]
    pub(crate) create_namespace: bool,
    /// Show what would be done, without doing anything.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "client")]
    pub(crate) dry_run: String,
    /// Omit Secrets from the output of --dry-run.
    #[arg(long, requires = "dry_run")]
    pub(crate) hide_secret: bool,
    /// Run no hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    /// Do not install the `CustomResourceDefinitions` in crds/.
    #[arg(long, conflicts_with = "crds")]
    pub(crate) skip_crds: bool,
    /// What happens to the `CustomResourceDefinitions` in crds/.
    #[arg(long, value_enum, default_value = "create")]
    pub(crate) crds: Crds,
    /// Description of the revision, which the history shows.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Wait, and undo the action if it fails. A failed action is undone in any case; this adds the wait.
    #[arg(long, alias = "atomic")]
    pub(crate) rollback_on_failure: bool,
    /// Take over existing objects that belong to no release or to another one.
    #[arg(long)]
    pub(crate) take_ownership: bool,
    /// Take over fields that others set, where that is a conflict.
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// Fetch charts that the chart needs and that are missing in its charts/, if it is a folder.
    #[arg(long)]
    pub(crate) dependency_update: bool,
    /// Let templates resolve host names.
    #[arg(long)]
    pub(crate) enable_dns: bool,
    /// Labels of the release's record, key=value.
    #[arg(short, long, value_delimiter = ',', value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Do not validate values against the charts' schemas.
    #[arg(long)]
    pub(crate) skip_schema_validation: bool,
    /// Also print the notes of subcharts.
    #[arg(long)]
    pub(crate) render_subchart_notes: bool,
    /// Do not print notes.
    #[arg(long)]
    pub(crate) hide_notes: bool,

    /// Number of revisions to keep; 0 keeps all.
    #[arg(long, env = "HELM_MAX_HISTORY", hide_env = true, default_value_t = 10)]
    pub(crate) history_max: i64,

    #[command(flatten)]
    without_effect: WithoutEffect,
    #[command(flatten)]
    pub(crate) refused: Refused,
}

/// Flags of Helm for what is done otherwise here: refused with the reason.
#[derive(Debug, Args)]
pub(crate) struct Refused {
    #[arg(long, alias = "force", hide = true)]
    force_replace: bool,
    #[arg(long, hide = true)]
    post_renderer: Option<String>,
    #[arg(long, hide = true)]
    post_renderer_args: Vec<String>,
}

impl Refused {
    /// Says why what was asked for is not done.
    pub(crate) fn check(&self) -> Result<()> {
        if self.force_replace {
            bail!(
                "--force-replace is not supported: objects are written by server-side apply, with which Helm does not replace \
                 either. Delete an object that has to be made anew"
            );
        }
        if self.post_renderer.is_some() || !self.post_renderer_args.is_empty() {
            bail!(
                "--post-renderer is not supported: it names a plugin of Helm. Render with kco template, change that, and apply it"
            );
        }
        Ok(())
    }
}

/// Flags of Helm whose behaviour is always on here: objects are applied by the server, which validates them.
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
    /// The name of the release, then the chart: a folder, an archive, a URL, an OCI reference or REPOSITORY/CHART.
    #[arg(required = true, num_args = 1..=2, value_name = "[NAME] CHART")]
    pub(crate) name_and_chart: Vec<String>,
    /// Generate the name (and omit the NAME parameter).
    #[arg(short, long)]
    pub(crate) generate_name: bool,
    /// Template for the name of the release.
    #[arg(long)]
    pub(crate) name_template: Option<String>,
    /// Reuse the name of a release that was uninstalled with --keep-history.
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
    /// The chart: a folder, an archive, a URL, an OCI reference or REPOSITORY/CHART.
    pub(crate) chart: String,
    /// Install the release if it does not exist.
    #[arg(short, long)]
    pub(crate) install: bool,
    #[command(flatten)]
    pub(crate) earlier_values: EarlierValues,
    #[command(flatten)]
    pub(crate) making: Making,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What happens to the values of the previous revision. Without any of these flags they are kept if no values are
/// given, and dropped otherwise.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct EarlierValues {
    /// Drop the previous values.
    #[arg(long)]
    pub(crate) reset_values: bool,
    /// Keep the previous values and the previous chart's defaults.
    #[arg(long)]
    pub(crate) reuse_values: bool,
    /// Keep the previous values, with the new chart's defaults.
    #[arg(long)]
    pub(crate) reset_then_reuse_values: bool,
}

/// The flags of `helm rollback`.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The name of the release.
    pub(crate) release: String,
    /// The revision to go back to; 0 means the previous one.
    #[arg(default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    /// Show what would be done, without doing anything.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "client")]
    pub(crate) dry_run: String,
    /// Run no hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    /// Description of the revision, which the history shows.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Take over fields that others set, where that is a conflict.
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// Number of revisions to keep; 0 keeps all.
    #[arg(long, env = "HELM_MAX_HISTORY", hide_env = true, default_value_t = 10)]
    pub(crate) history_max: i64,
    #[command(flatten)]
    without_effect: WithoutEffect,
    #[command(flatten)]
    pub(crate) refused: Refused,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What happens to the dependents of deleted objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cascade {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

impl From<Cascade> for Propagation {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

/// The flags of `helm uninstall`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Uninstall {
    /// The names of the releases.
    #[arg(required = true, value_name = "RELEASE")]
    pub(crate) releases: Vec<String>,
    /// Keep the records and mark them as uninstalled.
    #[arg(long)]
    pub(crate) keep_history: bool,
    /// Do not fail if the release does not exist.
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// What happens to the dependents of the objects: background, foreground or orphan.
    #[arg(long, value_enum, default_value = "background")]
    pub(crate) cascade: Cascade,
    /// Description of the revision, with --keep-history.
    #[arg(long)]
    pub(crate) description: Option<String>,
    /// Show what would be removed, without removing anything.
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
    /// A revision; by default the newest.
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
    /// Maximum number of revisions to show.
    #[arg(long, default_value_t = 256)]
    pub(crate) max: usize,
    /// Also show to which revision a rollback went.
    #[arg(long)]
    pub(crate) show_rollback_revision: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The flags of `helm list`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct List {
    /// List releases of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print only names.
    #[arg(short = 'q', long)]
    pub(crate) short: bool,
    /// Print no header line.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// How to print times, as Go formats them: "2006-01-02 15:04:05".
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) time_format: String,
    /// Sort by date instead of by name.
    #[arg(short, long)]
    pub(crate) date: bool,
    /// Reverse the order.
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Only releases whose name matches this regular expression.
    #[arg(short, long)]
    pub(crate) filter: Option<String>,
    /// Only releases whose record has these labels.
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<String>,
    /// Maximum number of releases to show; 0 shows all.
    #[arg(short, long, default_value_t = 256)]
    pub(crate) max: usize,
    /// Number of releases to skip.
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
    /// Show deployed releases.
    #[arg(long)]
    pub(crate) deployed: bool,
    /// Show failed releases.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Show pending releases: an action runs, or was interrupted.
    #[arg(long)]
    pub(crate) pending: bool,
    /// Show superseded releases.
    #[arg(long)]
    pub(crate) superseded: bool,
    /// Show releases that were uninstalled with --keep-history.
    #[arg(long)]
    pub(crate) uninstalled: bool,
    /// Show releases that are being uninstalled.
    #[arg(long)]
    pub(crate) uninstalling: bool,
    /// Show releases of every status, which is the default.
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

/// The part of a record.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    /// All of it.
    All(GetAll),
    /// The hooks.
    Hooks(GetPart),
    /// The manifest.
    Manifest(GetPart),
    /// Name, chart, labels, revision, status and time.
    Metadata(GetMetadata),
    /// The notes.
    Notes(GetPart),
    /// The user's values, or all.
    Values(GetValues),
    /// Compositions and their state; an addition to Helm.
    #[command(visible_aliases = ["composition", "comps", "comp"])]
    Compositions(crate::composition::args::List),
}

#[derive(Debug, Args)]
pub(crate) struct GetPart {
    /// The name of the release.
    pub(crate) release: String,
    /// A revision; by default the newest.
    #[arg(long, default_value_t = 0)]
    pub(crate) revision: i64,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct GetAll {
    /// Print this Go template, which knows `.Release`.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) template: String,
    #[command(flatten)]
    pub(crate) part: GetPart,
}

#[derive(Debug, Args)]
pub(crate) struct GetMetadata {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) part: GetPart,
}

#[derive(Debug, Args)]
pub(crate) struct GetValues {
    /// Include the chart's defaults.
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) part: GetPart,
}

/// `kco diff`: the arguments of [`Upgrade`]; nothing is written.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The name of the release.
    pub(crate) release: String,
    /// The chart: a folder, an archive, a URL, an OCI reference or REPOSITORY/CHART.
    pub(crate) chart: String,
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

/// `kco drift`.
#[derive(Debug, Args)]
pub(crate) struct Drift {
    /// The name of the release.
    pub(crate) release: String,
    /// Correct the drift.
    #[arg(long)]
    pub(crate) correct: bool,
    /// Rules about drift, as in the annotation krateo.io/drift: warn, ignore=Deployment/web:.spec.replicas (can specify
    /// multiple; the last one that matches applies).
    #[arg(long)]
    pub(crate) policy: Vec<String>,
    /// Exit with status 2 if something drifted.
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
    /// Select tests by name: name=a, or !name=b to exclude one (can specify multiple).
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
