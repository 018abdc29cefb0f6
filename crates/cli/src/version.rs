//! `kco version`: the version of this build, and the version of Helm that it behaves like.

use anyhow::Result;
use clap::Args;
use gotemplate::value::{Map, Value};
use helm::capabilities::HelmVersion;
use helm::line::HelmLine;

use crate::{report, template};

/// The commit of the build, if the build sets it.
const COMMIT: Option<&str> = option_env!("KCO_COMMIT");

/// The flags of `helm version`.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print the version number alone.
    #[arg(long)]
    short: bool,
    /// Print this template, which knows `.Version`, `.GitCommit` and `.HelmVersion`.
    #[arg(long)]
    template: Option<String>,
}

/// Prints the version.
pub(crate) fn run(args: &Version) -> Result<()> {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let commit = COMMIT.unwrap_or_default();
    let helm = HelmVersion::of(HelmLine::Four).version;
    if let Some(template) = args.template.as_deref().filter(|text| !text.is_empty()) {
        return report::out(&filled(template, version, commit, &helm)?);
    }
    if args.short {
        return report::out(&match commit.get(..7) {
            Some(commit) => format!("{version}+g{commit}\n"),
            None => format!("{version}\n"),
        });
    }
    report::out(&format!(
        "version.BuildInfo{{Version:{version:?}, GitCommit:{commit:?}, HelmVersion:{helm:?}}}\n"
    ))
}

fn filled(template: &str, version: &str, commit: &str, helm: &str) -> Result<String> {
    let known: Map = [
        ("Version", Value::from(version)),
        ("GitCommit", Value::from(commit)),
        ("HelmVersion", Value::from(helm)),
    ]
    .into_iter()
    .collect();
    template::filled("_", template, Value::Map(known), HelmLine::Four)
}
