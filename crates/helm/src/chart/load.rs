//! Loads a chart from its files (Helm's `pkg/chart/v2/loader/load.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Chart, File,
    archive::{self, Budget},
    decode, metadata,
};
use crate::{line::HelmLine, schema::Schema, values, yaml};

/// Why the files are not a chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive could not be unpacked.
    #[error("could not unpack the chart")]
    Unpack(#[from] archive::Error),
    /// There is no `Chart.yaml`.
    #[error("Chart.yaml file is missing")]
    NoChartYaml,
    /// A file is not YAML.
    #[error("cannot load {file}")]
    Yaml {
        /// Its name.
        file: &'static str,
        /// What is wrong with it.
        source: yaml::Error,
    },
    /// A file is YAML but has the wrong structure.
    #[error("cannot load {file}")]
    Decode {
        /// Its name.
        file: &'static str,
        /// What is wrong with it.
        source: decode::Mismatch,
    },
    /// `values.yaml` does not hold values.
    #[error("cannot load values.yaml")]
    Values(#[source] values::ReadError),
    /// The metadata violates a rule.
    #[error(transparent)]
    Invalid(#[from] metadata::Invalid),
    /// `apiVersion` is neither `v1` nor `v2`.
    #[error("unsupported chart version")]
    UnsupportedApiVersion,
    /// Charts are packed inside one another too deeply.
    #[error("charts are nested more than {limit} levels deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// An entry of `charts/` is not a chart.
    #[error("error unpacking subchart {subchart} in {chart}")]
    Subchart {
        /// The entry.
        subchart: String,
        /// The chart it is in.
        chart: String,
        /// Why it is not a chart.
        source: Box<Error>,
    },
    /// A packed subchart is not directly in `charts/`.
    #[error("error unpacking subchart tar in {chart}: expected {expected}, got {found}")]
    MisplacedArchive {
        /// The chart it is in.
        chart: String,
        /// The name it should have.
        expected: String,
        /// The path it has.
        found: String,
    },
}

impl Error {
    fn decode(file: &'static str, error: decode::Error) -> Self {
        match error {
            decode::Error::Mismatch(source) => Self::Decode { file, source },
            decode::Error::Invalid(rule) => Self::Invalid(rule),
        }
    }
}

/// A chart that is being put together from its files.
#[derive(Default)]
struct ChartBuilder {
    chart: Chart,
    has_metadata: bool,
    /// The files below `charts/`, by the first part of their path.
    subcharts: BTreeMap<String, Vec<File>>,
}

/// Sorts files into a chart and its subcharts; `depth` is the number of charts around it.
pub(super) fn chart(files: Vec<File>, budget: &mut Budget, depth: usize) -> Result<Chart, Error> {
    if depth > budget.max_nesting() {
        return Err(Error::TooDeep {
            limit: budget.max_nesting(),
        });
    }
    let mut builder = ChartBuilder::default();
    for file in files.iter().filter(|file| file.name == "Chart.yaml") {
        builder.read_metadata(file)?;
    }
    for file in files.into_iter().filter(|file| file.name != "Chart.yaml") {
        builder.sort_in(file, budget.helm())?;
    }
    let ChartBuilder {
        mut chart,
        has_metadata,
        subcharts,
    } = builder;
    if !has_metadata {
        return Err(Error::NoChartYaml);
    }
    chart.metadata.sanitize_and_validate()?;
    for (name, files) in subcharts {
        if name.starts_with(['_', '.']) {
            continue;
        }
        chart
            .dependencies
            .push(subchart(&chart, &name, files, budget, depth + 1)?);
    }
    Ok(chart)
}

/// Whether Helm's chart loader accepts this `apiVersion`; only the root chart is checked.
pub(super) fn is_supported(api_version: &str) -> bool {
    matches!(api_version, "" | "v1" | "v2")
}

fn subchart(
    parent: &Chart,
    name: &str,
    files: Vec<File>,
    budget: &mut Budget,
    depth: usize,
) -> Result<Chart, Error> {
    let outcome = if extension(name) == "tgz" {
        let [file, ..] = &files[..] else {
            return Err(Error::NoChartYaml);
        };
        if file.name != name {
            return Err(Error::MisplacedArchive {
                chart: parent.name().to_owned(),
                expected: name.to_owned(),
                found: file.name.clone(),
            });
        }
        archive::files(&file.data, archive::Shape::Any, budget)
            .map_err(Error::from)
            .and_then(|files| chart(files, budget, depth))
    } else {
        let inner = files.into_iter().filter_map(|file| {
            let (_, name) = file.name.split_once('/')?;
            Some(File {
                name: name.to_owned(),
                data: file.data,
            })
        });
        chart(inner.collect(), budget, depth)
    };
    outcome.map_err(|source| Error::Subchart {
        subchart: name.to_owned(),
        chart: parent.name().to_owned(),
        source: Box::new(source),
    })
}

/// Go's `filepath.Ext` without the dot; case-sensitive.
fn extension(name: &str) -> &str {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Parses a `Chart.yaml`.
pub(super) fn definition(text: &[u8]) -> Result<metadata::Metadata, Error> {
    const FILE: &str = "Chart.yaml";
    let mut metadata = metadata::Metadata::default();
    decode::metadata(&document(FILE, text)?, &mut metadata).map_err(|error| Error::decode(FILE, error))?;
    Ok(metadata)
}

fn document(file: &'static str, text: &[u8]) -> Result<Value, Error> {
    yaml::parse_typed(text).map_err(|source| Error::Yaml { file, source })
}

impl ChartBuilder {
    fn read_metadata(&mut self, file: &File) -> Result<(), Error> {
        self.has_metadata = true;
        let file = ("Chart.yaml", &file.data);
        let found = document(file.0, file.1)?;
        let metadata = &mut self.chart.metadata;
        decode::metadata(&found, metadata).map_err(|error| Error::decode(file.0, error))?;
        // Charts of Helm 2 may lack the version.
        if metadata.api_version.is_empty() {
            "v1".clone_into(&mut metadata.api_version);
        }
        Ok(())
    }

    fn sort_in(&mut self, file: File, helm: HelmLine) -> Result<(), Error> {
        let chart = &mut self.chart;
        match file.name.as_str() {
            "Chart.lock" => chart.lock = Some(read_lock("Chart.lock", &file)?),
            "values.yaml" => {
                chart.values = values::read_frozen(helm, &file.data).map_err(Error::Values)?;
            }
            "values.schema.json" => chart.schema = Some(Schema::new(file.data)),
            "requirements.yaml" => {
                self.has_metadata = true;
                let found = document("requirements.yaml", &file.data)?;
                decode::metadata(&found, &mut chart.metadata)
                    .map_err(|error| Error::decode("requirements.yaml", error))?;
                if chart.metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            "requirements.lock" => {
                chart.lock = Some(read_lock("requirements.lock", &file)?);
                if chart.metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            name if name.starts_with("templates/") => chart.templates.push(file),
            name if name.starts_with("charts/") && extension(name) != "prov" => {
                let name = name["charts/".len()..].to_owned();
                let (first, _) = name.split_once('/').unwrap_or((&name, ""));
                self.subcharts.entry(first.to_owned()).or_default().push(File {
                    name,
                    data: file.data,
                });
            }
            _ => chart.files.push(file),
        }
        Ok(())
    }
}

fn read_lock(file: &'static str, content: &File) -> Result<Value, Error> {
    decode::lock(&document(file, &content.data)?).map_err(|error| Error::decode(file, error))
}
