//! `kco lint`: the checks of `helm lint` (Helm's `pkg/cmd/lint.go`).

use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use helm::capabilities::KubeVersion;

use crate::{args, report, values};

mod definition;
mod names;
mod source;
mod templates;

use source::Source;

/// The flags of `helm lint`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Lint {
    /// Charts: folders or archives.
    #[arg(required = true, value_name = "PATH")]
    charts: Vec<PathBuf>,
    /// Fail on warnings.
    #[arg(long)]
    strict: bool,
    /// Lint the charts in charts/, too.
    #[arg(long)]
    with_subcharts: bool,
    /// Print warnings and errors only.
    #[arg(long)]
    quiet: bool,
    /// Do not check values against the chart's schema.
    #[arg(long)]
    skip_schema_validation: bool,
    /// Kubernetes version for Capabilities.KubeVersion and for what is deprecated.
    #[arg(long)]
    kube_version: Option<String>,
    /// Namespace of the release.
    #[arg(
        short,
        long,
        env = "HELM_NAMESPACE",
        default_value = "default",
        hide_env = true
    )]
    namespace: String,
    #[command(flatten)]
    values: args::Values,
}

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Info,
    Warning,
    Error,
}

/// A message about one file or folder.
#[derive(Debug)]
struct Message {
    severity: Severity,
    path: String,
    text: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
        };
        write!(f, "[{severity}] {}: {}", self.path, self.text)
    }
}

/// The messages about one chart.
#[derive(Debug, Default)]
struct Messages(Vec<Message>);

impl Messages {
    fn add(&mut self, severity: Severity, path: &str, text: impl Into<String>) {
        self.0.push(Message {
            severity,
            path: path.to_owned(),
            text: text.into(),
        });
    }

    /// Adds the fault, if there is one. True if there is none.
    fn check(&mut self, severity: Severity, path: &str, outcome: Result<(), String>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(text) => {
                self.add(severity, path, text);
                false
            }
        }
    }
}

/// The options that charts are rendered with.
struct Options {
    values: serde_json::Map<String, serde_json::Value>,
    kube_version: Option<KubeVersion>,
    namespace: String,
    skip_schema_validation: bool,
}

/// Lints charts and prints what was found.
pub(crate) fn run(args: &Lint) -> Result<()> {
    let kube_version = args
        .kube_version
        .as_deref()
        .filter(|text| !text.is_empty())
        .map(|text| KubeVersion::parse(text).with_context(|| format!("invalid kube version '{text}'")));
    let options = Options {
        values: values::merged(&args.values)?,
        kube_version: kube_version.transpose()?,
        namespace: args.namespace.clone(),
        skip_schema_validation: args.skip_schema_validation,
    };
    let mut paths = args.charts.clone();
    if args.with_subcharts {
        for path in &args.charts {
            subcharts(&path.join("charts"), &mut paths);
        }
    }
    let fails = if args.strict {
        Severity::Warning
    } else {
        Severity::Error
    };
    let (mut text, mut failed, mut told) = (String::new(), 0, 0);
    for path in &paths {
        let outcome = Source::of(path).map(|source| lint(&source, &options));
        let worst = match &outcome {
            Ok(Messages(messages)) => messages.iter().map(|message| message.severity).max(),
            Err(_) => Some(Severity::Error),
        };
        told += usize::from(worst >= Some(Severity::Warning));
        if args.quiet && worst < Some(Severity::Warning) {
            continue;
        }
        failed += usize::from(worst >= Some(fails));
        let _ = writeln!(text, "==> Linting {}", path.display());
        match outcome {
            Err(fault) => {
                let _ = writeln!(text, "Error {fault}");
            }
            Ok(Messages(messages)) => {
                let is_shown = |message: &&Message| !args.quiet || message.severity > Severity::Info;
                for message in messages.iter().filter(is_shown) {
                    let _ = writeln!(text, "{message}");
                }
            }
        }
        text.push('\n');
    }
    report::out(&text)?;
    let summary = format!("{} chart(s) linted, {failed} chart(s) failed", paths.len());
    if failed > 0 {
        bail!(summary);
    }
    if !args.quiet || told > 0 {
        report::out(&format!("{summary}\n"))?;
    }
    Ok(())
}

/// The charts below a folder, in the order of Go's walk.
fn subcharts(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            subcharts(&path, found);
        } else if path.file_name().is_some_and(|name| name == "Chart.yaml") {
            found.push(folder.to_owned());
        } else if is_archive(&name) {
            found.push(path);
        }
    }
}

fn is_archive(path: &str) -> bool {
    path.strip_suffix(".tgz").is_some() || path.ends_with(".tar.gz")
}

/// Runs all rules, in Helm's order.
fn lint(source: &Source, options: &Options) -> Messages {
    let mut messages = Messages::default();
    definition::check(source, &mut messages);
    check_values(source, options, &mut messages);
    templates::check(source, options, &mut messages);
    check_dependencies(source, &mut messages);
    check_crds(source, &mut messages);
    messages
}

fn check_values(source: &Source, options: &Options, messages: &mut Messages) {
    const FILE: &str = "values.yaml";
    let Some(text) = &source.values else {
        messages.add(Severity::Info, FILE, "file does not exist");
        return;
    };
    let outcome = match helm::values::read(text) {
        Err(error) => {
            let fault = chain(error);
            let fault = fault
                .strip_prefix("cannot unmarshal yaml document: ")
                .unwrap_or(&fault);
            Err(format!("unable to parse YAML: {fault}"))
        }
        Ok(_) if options.skip_schema_validation => Ok(()),
        Ok(_) => match &source.chart {
            Ok(chart) => templates::violations(chart, options),
            Err(_) => Ok(()),
        },
    };
    messages.check(Severity::Error, FILE, outcome);
}

fn check_dependencies(source: &Source, messages: &mut Messages) {
    let chart = match &source.chart {
        Ok(chart) => chart,
        Err(fault) => return messages.add(Severity::Error, "", format!("unable to load chart\n\t{fault}")),
    };
    let declared: Vec<_> = chart.metadata().dependencies.iter().flatten().collect();
    let undeclared: Vec<&str> = chart
        .dependencies()
        .iter()
        .map(helm::chart::Chart::name)
        .filter(|name| declared.iter().all(|dependency| dependency.name != *name))
        .collect();
    if !undeclared.is_empty() {
        let text = format!(
            "chart metadata is missing these dependencies: {}",
            undeclared.join(",")
        );
        messages.add(Severity::Error, &source.root, text);
    }
    let missing = chart.missing_dependencies();
    if !missing.is_empty() {
        let text = format!(
            "chart directory is missing these dependencies: {}",
            missing.join(",")
        );
        messages.add(Severity::Warning, &source.root, text);
    }
}

fn check_crds(source: &Source, messages: &mut Messages) {
    const FOLDER: &str = "crds/";
    match source.crds {
        source::Entry::Absent => return,
        source::Entry::File => return messages.add(Severity::Error, FOLDER, "not a directory"),
        source::Entry::Folder => {}
    }
    let chart = match &source.chart {
        Ok(chart) => chart,
        Err(fault) => return messages.add(Severity::Error, FOLDER, fault),
    };
    for file in chart.crds() {
        for document in templates::documents(&String::from_utf8_lossy(&file.data)) {
            let object = match templates::object(document) {
                Ok(Some(object)) => object,
                Ok(None) => continue,
                Err(fault) => return messages.add(Severity::Error, &file.name, fault),
            };
            if !object.api_version.starts_with("apiextensions.k8s.io") {
                let text = "apiVersion is not in 'apiextensions.k8s.io'";
                messages.add(Severity::Error, &file.name, text);
            }
            if object.kind != "CustomResourceDefinition" {
                let text = "object kind is not 'CustomResourceDefinition'";
                messages.add(Severity::Error, &file.name, text);
            }
        }
    }
}

/// An error with its causes, as it is printed.
fn chain(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
