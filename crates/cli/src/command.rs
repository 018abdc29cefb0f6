//! The command line: all verbs, and which function each one calls.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::everywhere::Everywhere;
use crate::{
    audit, cluster, completion, composition, crd, create, dependency, environment, grant, init, installer,
    lint, migrate, node, package, pull, push, registry, release, repo, report, schema, search, show,
    template, verify, version,
};

/// Name of the program as a kubectl plugin.
const PLUGIN: &str = "kubectl-kco";

/// Plans for Helm charts and compositions, shown before they run.
#[derive(Debug, Parser)]
#[command(
    name = "kco",
    version,
    about,
    after_help = "Helm's global flags, such as --namespace and --kube-context, stand in front of a command or behind it."
)]
pub(crate) struct Kco {
    #[command(flatten)]
    everywhere: Everywhere,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Render a chart locally and print the manifests, as `helm template` does.
    Template(Box<template::args::Template>),
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
    /// Check the signature of a chart's archive, as `helm verify` does.
    Verify(verify::Verify),
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
    /// Show for which permissions a composition's release waits, and approve them by their digest.
    Approve(Box<composition::args::Approve>),
    /// Run the tests of a release.
    Test(Box<release::args::Test>),
    /// Scan a chart's templates and print the most that its controller can ever be permitted to do.
    AuditRbac(Box<audit::args::Audit>),
    /// Print the `ChartGrant` that allows what the annotations of a definition allow, so that they can be removed.
    Grant(Box<grant::Grant>),
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

/// `kco template` alone, because setting up clap for all other commands takes as long as rendering a small chart.
#[derive(Debug, Parser)]
#[command(name = "kco", version)]
struct Rendering {
    #[command(flatten)]
    everywhere: Everywhere,
    #[command(subcommand)]
    command: OnlyTemplate,
}

#[derive(Debug, Subcommand)]
enum OnlyTemplate {
    Template(Box<template::args::Template>),
}

impl Rendering {
    /// Parses the command line of `kco template`. `None` for any error, as only [`Kco`] knows enough to word it.
    fn of(arguments: &[OsString]) -> Option<Kco> {
        if arguments.get(1)? != "template" {
            return None;
        }
        let Self { everywhere, command } = Self::try_parse_from(arguments).ok()?;
        let OnlyTemplate::Template(args) = command;
        Some(Kco {
            everywhere,
            command: Command::Template(args),
        })
    }
}

impl Kco {
    /// Parses a command line; its first argument is the name that the program was called by.
    pub(crate) fn of(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        if let Some(kco) = Rendering::of(&arguments) {
            return Ok(kco);
        }
        let called = arguments.first().map(Path::new).and_then(Path::file_stem);
        let mut command = Self::command();
        if called.is_some_and(|called| called == PLUGIN) {
            command = command.bin_name("kubectl kco");
        }
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }

    pub(crate) fn run(self) -> ExitCode {
        self.everywhere.apply();
        let outcome = match self.command {
            Command::Template(args) => template::run(&args),
            Command::Crd(args) => crd::run(&args),
            Command::Pull(args) => pull::run(*args),
            Command::Push(args) => push::run(&args),
            Command::Registry(command) => registry::run(&command),
            Command::Repo(command) => repo::run(&command),
            Command::Search(command) => search::run(&command),
            Command::Show(args) => show::run(&args),
            Command::Dependency(args) => dependency::run(&args),
            Command::Create(args) => create::run(&args),
            Command::Lint(args) => lint::run(&args),
            Command::Package(args) => package::run(&args),
            Command::Verify(args) => verify::run(&args),
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
            Command::Approve(args) => composition::approve(&args),
            Command::Test(args) => release::test(&args),
            Command::Rollback(args) => release::rollback(&args),
            Command::AuditRbac(args) => audit::run(&args),
            Command::Grant(args) => grant::run(&args),
            Command::Installer(command) => installer::run(command),
            Command::Init(args) => init::run(&args),
            Command::Node(command) => node::run(command),
            Command::Cluster(command) => cluster::run(command),
            Command::Migrate(command) => migrate::run(command),
            Command::Version(args) => version::run(&args),
            Command::Env(args) => environment::run(&args),
            Command::Completion(args) => completion::run(&args, Self::command()),
            Command::Docs(args) => completion::docs(&args, Self::command()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_all_verbs_are_consistent() {
        Kco::command().debug_assert();
    }

    /// As in Helm; the verb's own flag and its variable count as before.
    #[test]
    fn global_flags_may_stand_in_front_of_the_verb() {
        let namespace = |line: &str| {
            let kco = Kco::of(line.split(' ').map(OsString::from)).unwrap();
            match kco.command {
                Command::List(list) => list.connection.namespace,
                Command::Template(template) => Some(template.namespace),
                _ => unreachable!("{line}"),
            }
        };
        for (line, expected) in [
            ("kco list", None),
            ("kco list -n shop", Some("shop")),
            ("kco -n shop list", Some("shop")),
            ("kco --namespace=shop list", Some("shop")),
            ("kco template a b", Some("default")),
            ("kco -n shop template a b", Some("shop")),
            ("kco template -n shop a b", Some("shop")),
        ] {
            assert_eq!(namespace(line).as_deref(), expected, "{line}");
        }
        for line in [
            "kco --repository-config file repo list",
            "kco repo list --repository-config file",
            "kco --debug lint web",
            "kco version -n shop",
        ] {
            assert!(Kco::of(line.split(' ').map(OsString::from)).is_ok(), "{line}");
        }
    }
}
