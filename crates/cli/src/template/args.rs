//! The arguments of `kco template`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{Source, Values};
use crate::release::args::Colour;

/// The flags of `helm template`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "they are the flags of helm"
)]
pub(crate) struct Template {
    /// The name of the release, then the chart: a folder, an archive, a URL, an OCI reference or REPOSITORY/CHART. Without a
    /// name the release is called "release-name".
    #[arg(required = true, value_name = "[NAME] CHART")]
    pub(crate) name_and_chart: Vec<String>,

    #[command(flatten)]
    pub(crate) values: Values,
    #[command(flatten)]
    pub(crate) source: Source,

    /// API versions for Capabilities.APIVersions, besides the built-in ones.
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) api_versions: Vec<String>,
    /// Kubernetes version for Capabilities.KubeVersion.
    #[arg(long)]
    pub(crate) kube_version: Option<String>,
    /// Namespace of the release.
    #[arg(
        short,
        long,
        env = "HELM_NAMESPACE",
        default_value = "default",
        hide_env = true
    )]
    pub(crate) namespace: String,
    /// Generate the name (and omit the NAME parameter).
    #[arg(short, long)]
    pub(crate) generate_name: bool,
    /// Template for the name of the release.
    #[arg(long)]
    pub(crate) name_template: Option<String>,
    /// Set .Release.IsUpgrade instead of .Release.IsInstall.
    #[arg(long)]
    pub(crate) is_upgrade: bool,
    /// Include CRDs in the output.
    #[arg(long)]
    pub(crate) include_crds: bool,
    /// Omit hooks.
    #[arg(long)]
    pub(crate) no_hooks: bool,
    /// Omit test hooks.
    #[arg(long)]
    pub(crate) skip_tests: bool,
    /// Show only the manifests rendered from these templates (can specify multiple).
    #[arg(short, long)]
    pub(crate) show_only: Vec<String>,
    /// Write the manifests to files below this folder instead of standard output.
    #[arg(long)]
    pub(crate) output_dir: Option<PathBuf>,
    /// Put the name of the release into the path below the output folder.
    #[arg(long)]
    pub(crate) release_name: bool,
    /// Do not validate values against the charts' schemas.
    #[arg(long)]
    pub(crate) skip_schema_validation: bool,
    /// Let templates resolve host names.
    #[arg(long)]
    pub(crate) enable_dns: bool,
    /// Fetch charts that the chart needs and that are missing in its charts/, if it is a folder.
    #[arg(long)]
    pub(crate) dependency_update: bool,
    #[arg(long, hide = true)]
    pub(crate) validate: bool,
    #[arg(long, hide = true)]
    pub(crate) post_renderer: Option<String>,
    #[arg(long, hide = true)]
    post_renderer_args: Vec<String>,
    /// Behave like Helm 3 where it differs from Helm 4.
    #[arg(long)]
    pub(crate) helm3: bool,
    /// Print the output even if it is not valid.
    #[arg(long, env = "HELM_DEBUG", hide_env = true)]
    pub(crate) debug: bool,
    /// How to simulate; only "client" is supported.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "client", default_missing_value = "client")]
    pub(crate) dry_run: String,

    #[command(flatten)]
    pub(crate) without_effect: WithoutEffect,
}

/// Flags of `helm template` that do not change its output here; accepted so that existing command lines work.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted without effect")]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct WithoutEffect {
    #[arg(long)]
    create_namespace: bool,
    #[arg(long)]
    description: Option<String>,
    #[arg(long)]
    disable_openapi_validation: bool,
    #[arg(long, alias = "force")]
    force_replace: bool,
    #[arg(long, conflicts_with = "force_replace")]
    force_conflicts: bool,
    #[arg(long, hide = true)]
    hide_notes: bool,
    #[arg(long, hide = true)]
    render_subchart_notes: bool,
    #[arg(short, long)]
    labels: Vec<String>,
    #[arg(long)]
    replace: bool,
    #[arg(long, alias = "atomic")]
    rollback_on_failure: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    server_side: Option<bool>,
    #[arg(long)]
    skip_crds: bool,
    #[arg(long)]
    take_ownership: bool,
    #[arg(long)]
    timeout: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "watcher")]
    wait: Option<String>,
    #[arg(long)]
    wait_for_jobs: bool,
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[arg(long)]
    kube_context: Option<String>,
    #[arg(long, alias = "colour", value_enum)]
    color: Option<Colour>,
}
