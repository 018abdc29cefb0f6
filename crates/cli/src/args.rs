//! The command line.

use std::{ffi::OsString, path::Path, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::{
    audit, cluster, completion, composition, crd, create, dependency, environment, init, installer, lint,
    migrate, node, package, pull, push, registry, release, repo, report, schema, search, show, template,
    version,
};

/// Name of the program as a plugin of kubectl.
const PLUGIN: &str = "kubectl-kco";

/// Plans for Helm charts and compositions, shown before they run.
#[derive(Debug, Parser)]
#[command(name = "kco", version, about)]
pub(crate) struct Kco {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Render a chart locally and print the manifests, as `helm template` does.
    Template(Box<Template>),
    /// Print the custom resource definition that a chart becomes.
    Crd(Box<crd::Crd>),
    /// Fetch charts into files, as `helm pull` does.
    #[command(visible_alias = "fetch")]
    Pull(Box<pull::Pull>),
    /// Push a chart's archive to a registry, as `helm push` does.
    Push(Box<push::Push>),
    /// Log in to a registry and out.
    #[command(subcommand)]
    Registry(registry::Command),
    /// Add, list, update and remove chart repositories, and write indexes.
    #[command(subcommand)]
    Repo(repo::Command),
    /// Search for charts.
    #[command(subcommand)]
    Search(search::Command),
    /// Print parts of a chart, as `helm show` does.
    #[command(visible_alias = "inspect")]
    Show(Box<show::Show>),
    /// Manage the charts that a chart depends on.
    #[command(visible_aliases = ["dep", "dependencies"])]
    Dependency(Box<dependency::Dependency>),
    /// Create a chart with the usual files, as `helm create` does.
    Create(create::Create),
    /// Examine charts for possible issues, as `helm lint` does.
    Lint(Box<lint::Lint>),
    /// Package chart folders into archives, as `helm package` does.
    Package(Box<package::Package>),
    /// Check a chart's values.schema.json.
    #[command(subcommand)]
    Schema(schema::Schema),
    /// Install a chart.
    Install(Box<release::args::Install>),
    /// Upgrade a release to another chart or other values.
    Upgrade(Box<release::args::Upgrade>),
    /// Roll a release back to an earlier revision.
    Rollback(Box<release::args::Rollback>),
    /// Uninstall releases: delete their objects and records.
    #[command(visible_aliases = ["un", "delete", "del"])]
    Uninstall(Box<release::args::Uninstall>),
    /// Show a release and the health of its objects.
    Status(Box<release::args::Status>),
    /// Show the revisions of a release.
    #[command(visible_alias = "hist")]
    History(Box<release::args::History>),
    /// List releases.
    #[command(visible_alias = "ls")]
    List(Box<release::args::List>),
    /// Print parts of a release's stored revision.
    Get(Box<release::args::Get>),
    /// Show what an upgrade would change, without changing anything.
    Diff(Box<release::args::Diff>),
    /// Show which objects of a release were changed since they were applied, and by whom.
    Drift(Box<release::args::Drift>),
    /// Show a composition, its release, and the release's objects with their health.
    Tree(Box<composition::args::One>),
    /// Show what a composition's controller would do next, and which permissions that needs.
    Plan(Box<composition::args::Plan>),
    /// Run the tests of a release.
    Test(Box<release::args::Test>),
    /// Scan a chart's templates and print the most that its controller can ever be permitted to do.
    AuditRbac(Box<Audit>),
    /// Install, inspect and remove the whole platform.
    #[command(subcommand)]
    Installer(installer::args::Command),
    /// Turn an empty node into a cluster, and install the platform on it.
    Init(Box<init::args::Init>),
    /// List the nodes of a cluster that `kco init` made, or remove one that does not come back.
    #[command(subcommand)]
    Node(node::args::Command),
    /// Manage the clusters on which the multicluster operator works.
    #[command(subcommand)]
    Cluster(cluster::args::Command),
    /// Replace a running Krateo by this platform, or go back.
    #[command(subcommand)]
    Migrate(migrate::args::Command),
    /// Print the version of this program, and the version of Helm that it follows.
    Version(version::Version),
    /// Print Helm's environment variables.
    Env(environment::Env),
    /// Print completions for a shell.
    Completion(completion::Completion),
    /// Write manual pages.
    #[command(hide = true)]
    Docs(completion::Docs),
}

impl Kco {
    /// Reads a command line, the first of which is the name by which the program was called.
    pub(crate) fn of(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let called = arguments.first().map(Path::new).and_then(Path::file_stem);
        let mut command = Self::command();
        if called.is_some_and(|called| called == PLUGIN) {
            command = command.bin_name("kubectl kco");
        }
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }

    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Template(args) => template::run(&args),
            Command::Crd(args) => crd::run(&args),
            Command::Pull(args) => pull::run(&args),
            Command::Push(args) => push::run(&args),
            Command::Registry(command) => registry::run(&command),
            Command::Repo(command) => repo::run(&command),
            Command::Search(command) => search::run(&command),
            Command::Show(args) => show::run(&args),
            Command::Dependency(args) => dependency::run(&args),
            Command::Create(args) => create::run(&args),
            Command::Lint(args) => lint::run(&args),
            Command::Package(args) => package::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::Install(args) => release::install(&args),
            Command::Upgrade(args) => release::upgrade(&args),
            Command::Uninstall(args) => release::uninstall(&args),
            Command::Status(args) => release::status(&args),
            Command::History(args) => release::history(&args),
            Command::List(args) => release::list(&args),
            Command::Get(args) => release::get(&args),
            Command::Diff(args) => release::diff(&args),
            Command::Drift(args) => release::drift(&args),
            Command::Tree(args) => composition::tree(&args),
            Command::Plan(args) => composition::plan(&args),
            Command::Test(args) => release::test(&args),
            Command::Rollback(args) => release::rollback(&args),
            Command::AuditRbac(args) => audit::run(&args),
            Command::Installer(command) => installer::run(command),
            Command::Init(args) => init::run(&args),
            Command::Node(command) => node::run(command),
            Command::Cluster(command) => cluster::run(command),
            Command::Migrate(command) => migrate::run(command),
            Command::Version(args) => version::run(&args),
            Command::Env(args) => environment::run(&args),
            Command::Completion(args) => completion::run(&args),
            Command::Docs(args) => completion::docs(&args),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                report::print(&error);
                ExitCode::FAILURE
            }
        }
    }
}

/// The flags of `kco audit-rbac`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Charts: folders, archives, URLs or OCI references; a folder without a chart stands for all charts below it.
    #[arg(required = true, value_name = "CHART")]
    pub(crate) charts: Vec<String>,
    /// Render each chart folder with its defaults and its ci/*values.yaml, and print the kinds that the scan missed.
    #[arg(long)]
    pub(crate) check: bool,
    /// Render each chart folder with its defaults and its ci/*values.yaml, as an install and as an upgrade, and print
    /// the lookups for which a composition would be held, and what allows them.
    #[arg(long, conflicts_with = "check")]
    pub(crate) lookups: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}

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

/// Where values come from; the groups are applied in the order of these fields.
#[derive(Debug, Args)]
pub(crate) struct Values {
    /// Values in a YAML file, "-" for standard input (can specify multiple).
    #[arg(short = 'f', long = "values", value_delimiter = ',')]
    pub(crate) files: Vec<String>,
    /// Set JSON values: key1=jsonval1,key2=jsonval2 or {"key1": jsonval1}.
    #[arg(long)]
    pub(crate) set_json: Vec<String>,
    /// Set values: key1=val1,key2=val2.
    #[arg(long)]
    pub(crate) set: Vec<String>,
    /// Set string values: key1=val1,key2=val2.
    #[arg(long)]
    pub(crate) set_string: Vec<String>,
    /// Set values from files: key1=path1,key2=path2.
    #[arg(long)]
    pub(crate) set_file: Vec<String>,
    /// Set a literal string: key=val.
    #[arg(long)]
    pub(crate) set_literal: Vec<String>,
}

/// Where a chart that is not on disk comes from.
#[derive(Debug, Default, Args)]
pub(crate) struct Source {
    /// Address of the chart repository in which the chart is looked up by name.
    #[arg(long)]
    pub(crate) repo: Option<String>,
    /// Version of the chart.
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// Accept pre-releases too; equivalent to --version '>0.0.0-0'.
    #[arg(long)]
    pub(crate) devel: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

/// What is shown of us to where a chart is fetched from, and whom we trust.
#[derive(Debug, Default, Args)]
pub(crate) struct Access {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Take the chart only when one of the keyring's keys has signed it.
    #[arg(long)]
    pub(crate) verify: bool,
    /// A file with public keys, by default ~/.gnupg/pubring.gpg.
    #[arg(long)]
    pub(crate) keyring: Option<PathBuf>,
    /// Accepted without effect: user name and password stay with the host they are for.
    #[arg(long)]
    pass_credentials: bool,
}

/// How a repository or registry is spoken to.
#[derive(Debug, Default, Args)]
pub(crate) struct Remote {
    /// User name for the repository or registry.
    #[arg(long)]
    pub(crate) username: Option<String>,
    /// Password for the repository or registry.
    #[arg(long)]
    pub(crate) password: Option<String>,
    /// Use HTTP without TLS for the registry.
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Accept any certificate of the server.
    #[arg(long)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// File with certificates of additional trusted certificate authorities.
    #[arg(long)]
    pub(crate) ca_file: Option<PathBuf>,
    /// File with the client certificate.
    #[arg(long)]
    pub(crate) cert_file: Option<PathBuf>,
    /// File with the private key of the client certificate.
    #[arg(long)]
    pub(crate) key_file: Option<PathBuf>,
}

/// Flags of `helm template` that change nothing about what it prints; accepted so that command lines can be kept.
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
    #[arg(long, alias = "colour")]
    color: Option<String>,
}
