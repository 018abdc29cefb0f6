//! `kco crd CHART`: the custom resource definition that a chart becomes.

use anyhow::{Context, Result};
use clap::Args;
use composition::schema;
use crdgen::conversion::{self, Changes};
use crdgen::{BadDefaults, CustomResourceDefinition, Names, ServedVersion, Structural};
use helm::chart::Chart;
use helm::engine::Engine;

use crate::{args, chart_at};

/// The chart to generate a type from.
#[derive(Debug, Args)]
pub(crate) struct Crd {
    /// The chart: a folder, an archive, a URL, an OCI reference or REPOSITORY/CHART.
    pub(crate) chart: String,
    #[command(flatten)]
    pub(crate) source: args::Source,
    /// Leave out defaults that violate the chart's own schema, as a definition does with the annotation
    /// krateo.io/drop-bad-defaults.
    #[arg(long)]
    pub(crate) drop_bad_defaults: bool,
}

/// The type generated from a chart.
pub(crate) struct Type {
    pub(crate) names: Names,
    pub(crate) version: ServedVersion,
    pub(crate) structural: Structural,
    /// The version as the chart writes it.
    pub(crate) of_chart: String,
    /// The changes of the values' schema, and the version since which.
    pub(crate) changes: Changes,
}

impl Type {
    /// The custom resource definition with this version only.
    pub(crate) fn crd(&self) -> Result<CustomResourceDefinition, conversion::Error> {
        let crd = crdgen::crd(&self.names, &self.version, &self.structural.spec);
        conversion::remember(crd, &self.version, &self.of_chart, &self.changes)
    }
}

impl Crd {
    /// Generates the type.
    pub(crate) fn read(&self) -> Result<Type> {
        self.read_other(&self.chart)
    }

    /// Generates the type of another chart, fetched in the same way.
    pub(crate) fn read_other(&self, chart: &str) -> Result<Type> {
        let chart = chart_at::load(chart, &self.source)?;
        let bad_defaults = if self.drop_bad_defaults {
            BadDefaults::Drop
        } else {
            BadDefaults::Refuse
        };
        type_of(chart, bad_defaults)
    }
}

fn type_of(chart: Chart, bad_defaults: BadDefaults) -> Result<Type> {
    let metadata = chart.metadata();
    let names = Names::of_chart(&metadata.name)?;
    let version = ServedVersion::of_chart(&metadata.version)?;
    let (name, of_chart) = (metadata.name.clone(), metadata.version.clone());
    let changes = schema::changes(&chart)?;
    let structural = schema::structural(&Engine::new(chart), bad_defaults)?.with_context(|| {
        format!("chart {name} has no values.schema.json: add one to the chart, the type is generated from it")
    })?;
    conversion::check_own(&changes, &structural.spec, version.as_str())?;
    Ok(Type {
        names,
        version,
        structural,
        of_chart,
        changes,
    })
}

/// Prints the custom resource definition, as YAML.
#[expect(clippy::print_stdout, reason = "this is what a terminal program is for")]
pub(crate) fn run(args: &Crd) -> Result<()> {
    print!("{}", yaml(&args.read()?.crd()?)?);
    Ok(())
}

fn yaml(crd: &CustomResourceDefinition) -> Result<String> {
    let text = serde_json::to_value(crd).context("could not write the definition as JSON")?;
    helm::yaml::to_string(&text).context("could not write the definition as YAML")
}
