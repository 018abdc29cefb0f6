//! `kco show`: the output of `helm show` (Helm's `pkg/action/show.go`), and a chart's schema, which Helm does not show.

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use helm::chart::{Chart, File, Limits};
use helm::yaml;

use crate::{args, composition, fetch, report};

const VALUES: &str = "values.yaml";
const READMES: [&str; 3] = ["readme.md", "readme.txt", "readme"];

/// Which part of a chart.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// All but the schema: definition, values, README and CRDs.
    All(Of),
    /// The chart's definition, Chart.yaml.
    Chart(Of),
    /// The chart's default values, values.yaml.
    Values(OfValues),
    /// The chart's README.
    Readme(Of),
    /// The chart's custom resource definitions.
    Crds(Of),
    /// The chart's values.schema.json.
    Schema(Of),
    /// The objects that a composition's chart would touch, with verbs, in the order of installation.
    Composition(Box<composition::args::Inspect>),
}

#[derive(Debug, Args)]
struct Of {
    /// The chart: a folder, an archive, a URL, an OCI reference, REPOSITORY/CHART, or with --repo a name.
    chart: String,
    #[command(flatten)]
    source: args::Source,
}

#[derive(Debug, Args)]
struct OfValues {
    #[arg(long, hide = true)]
    jsonpath: Option<String>,
    #[command(flatten)]
    of: Of,
}

/// Prints a part of a chart.
pub(crate) fn run(args: &Show) -> Result<()> {
    let (of, show): (&Of, fn(&Shown) -> Result<String>) = match &args.part {
        Part::All(of) => (of, Shown::all),
        Part::Chart(of) => (of, Shown::definition),
        Part::Values(OfValues {
            jsonpath: Some(_), ..
        }) => {
            bail!("--jsonpath is not supported: pipe the values into a program that filters YAML")
        }
        Part::Values(OfValues { of, .. }) => (of, |shown| Ok(shown.values().unwrap_or_default())),
        Part::Readme(of) => (of, |shown| Ok(shown.readme().unwrap_or_default())),
        Part::Crds(of) => (of, |shown| Ok(shown.crds())),
        Part::Schema(of) => (of, Shown::schema),
        Part::Composition(args) => return composition::inspect(args),
    };
    let files = fetch::files(&of.chart, &of.source)?;
    let chart = Chart::from_files(files.clone(), &Limits::default())?;
    report::out(&show(&Shown { files, chart })?)
}

struct Shown {
    files: Vec<File>,
    chart: Chart,
}

impl Shown {
    fn all(&self) -> Result<String> {
        let mut text = self.definition()?;
        for part in [self.values(), self.readme()].into_iter().flatten() {
            text.push_str("---\n");
            text.push_str(&part);
        }
        text.push_str(&self.crds());
        Ok(text)
    }

    fn definition(&self) -> Result<String> {
        let metadata = serde_json::to_value(self.chart.metadata())?;
        let text = yaml::to_string(&metadata).context("could not write Chart.yaml")?;
        Ok(format!("{}\n\n", text.trim_end()))
    }

    fn values(&self) -> Option<String> {
        self.files.iter().find(|file| file.name == VALUES).map(line)
    }

    fn readme(&self) -> Option<String> {
        let is_readme = |file: &&File| READMES.iter().any(|name| file.name.eq_ignore_ascii_case(name));
        self.chart.files().iter().find(is_readme).map(line)
    }

    fn crds(&self) -> String {
        let mut text = String::new();
        for crd in self.chart.crds() {
            if !crd.data.starts_with(b"---") {
                text.push_str("---\n");
            }
            text.push_str(&line(crd));
        }
        text
    }

    fn schema(&self) -> Result<String> {
        match self.chart.schema() {
            Some(schema) => Ok(String::from_utf8_lossy(schema).into_owned()),
            None => bail!("chart {} has no values.schema.json", self.chart.name()),
        }
    }
}

/// The content of a file followed by a line break, even if it ends in one.
fn line(file: &File) -> String {
    format!("{}\n", String::from_utf8_lossy(&file.data))
}
