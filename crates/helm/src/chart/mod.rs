//! A chart as its author wrote it: metadata, default values, templates, other files and subcharts.
//!
//! Charts are loaded from bytes and never change; anything specific to a release (aliases, disabled subcharts, merged
//! values) is computed for each rendering.

use gotemplate::{frozen::FrozenMap, string::Str};
use serde_json::{Map, Value};

mod archive;
mod decode;
pub mod ignore;
mod load;
mod metadata;
mod resolved;

pub use self::{
    archive::{Error as ArchiveError, Limits, is_gzip},
    load::Error,
    metadata::{Dependency, Invalid, Maintainer, Metadata},
};
pub(crate) use self::{decode::scalar_text, resolved::ResolvedChart};
use crate::{line::HelmLine, schema::Schema, values};

/// A file of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct File {
    /// Its path from the root of its chart, with forward slashes.
    pub name: String,
    /// Its content, without a leading byte order mark.
    pub data: Str,
}

impl File {
    /// A file; a leading byte order mark is dropped, as Helm does on reading.
    pub fn new(name: impl Into<String>, data: impl AsRef<[u8]>) -> Self {
        const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];
        let data = data.as_ref();
        Self {
            name: name.into(),
            data: data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data).into(),
        }
    }
}

/// How a chart is loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChartOptions {
    /// Limits on its size.
    pub limits: Limits,
    /// The line of Helm whose rules apply.
    pub helm: HelmLine,
}

impl From<&Limits> for ChartOptions {
    /// These limits and the rules of Helm 4.
    fn from(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            helm: HelmLine::Four,
        }
    }
}

impl From<HelmLine> for ChartOptions {
    /// The rules of a line of Helm, with its limits.
    fn from(helm: HelmLine) -> Self {
        Self {
            limits: Limits::default(),
            helm,
        }
    }
}

/// A file below `crds/` of a chart or an enabled subchart; it is never templated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crd {
    /// The full path, as in `# Source:`.
    pub path: String,
    /// Its content: one or more documents.
    pub data: Str,
}

/// A chart with its subcharts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    metadata: Metadata,
    lock: Option<Value>,
    values: FrozenMap,
    schema: Option<Schema>,
    templates: Vec<File>,
    files: Vec<File>,
    dependencies: Vec<Chart>,
}

impl Chart {
    /// Loads a packaged chart.
    ///
    /// # Errors
    /// When the archive is damaged, unsafe or larger than the limits, or when it does not contain a chart.
    pub fn from_archive(archive: &[u8], options: impl Into<ChartOptions>) -> Result<Self, Error> {
        Self::unpacked(archive, archive::Shape::Any, options.into())
    }

    /// Loads a packaged chart from an untrusted source: like [`Chart::from_archive`], but it must consist of one
    /// folder without links.
    ///
    /// # Errors
    /// As [`Chart::from_archive`].
    pub fn from_foreign_archive(archive: &[u8], limits: &Limits) -> Result<Self, Error> {
        Self::unpacked(archive, archive::Shape::Packaged, limits.into())
    }

    fn unpacked(archive: &[u8], shape: archive::Shape, options: ChartOptions) -> Result<Self, Error> {
        let mut budget = archive::Budget::new(options);
        let files = archive::files(archive, shape, &mut budget)?;
        Self::load(files, &mut budget)
    }

    /// Loads a chart from the files of its folder, in the order in which a directory walk finds them.
    ///
    /// The caller drops what `.helmignore` excludes ([`ignore::Rules`]): it has to know that before it reads the
    /// files.
    ///
    /// # Errors
    /// When the files exceed the limits or are not a chart.
    pub fn from_files(files: Vec<File>, options: impl Into<ChartOptions>) -> Result<Self, Error> {
        let mut budget = archive::Budget::new(options.into());
        for file in &files {
            budget.take(&file.name, file.data.len() as u64)?;
        }
        Self::load(files, &mut budget)
    }

    fn load(files: Vec<File>, budget: &mut archive::Budget) -> Result<Self, Error> {
        let chart = load::chart(files, budget, 0)?;
        if budget.helm() == HelmLine::Four && !load::is_supported(&chart.metadata.api_version) {
            return Err(Error::UnsupportedApiVersion);
        }
        Ok(chart)
    }

    /// The chart's name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// `Chart.yaml`.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// `Chart.lock` as Helm stores it in release records.
    pub fn lock(&self) -> Option<&Value> {
        self.lock.as_ref()
    }

    /// `values.yaml`, with all numbers as floats.
    pub fn values(&self) -> Map<String, Value> {
        values::json_map(&self.values)
    }

    /// The same chart with other default values.
    pub fn with_values(self, values: &Map<String, Value>) -> Self {
        Self {
            values: values::freeze(values),
            ..self
        }
    }

    /// `values.schema.json`.
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_ref().map(Schema::text)
    }

    /// `values.schema.json`, compiled once.
    pub(crate) fn schema_check(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// The files below `templates/`.
    pub fn templates(&self) -> &[File] {
        &self.templates
    }

    /// All other files, including those below `crds/`.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The files below `crds/` that Helm installs, those of subcharts after the chart's own.
    pub fn crds(&self) -> Vec<&File> {
        let own = self.files.iter().filter(|file| is_crd(&file.name));
        own.chain(self.dependencies.iter().flat_map(Chart::crds))
            .collect()
    }

    /// The charts in `charts/`, declared or not, in the order of their names there.
    pub fn dependencies(&self) -> &[Chart] {
        &self.dependencies
    }

    /// The declared dependencies that `charts/` contains no chart for.
    pub fn missing_dependencies(&self) -> Vec<&str> {
        let declared = self.metadata.dependencies.iter().flatten();
        let is_missing = |name: &&str| self.dependencies.iter().all(|chart| chart.name() != *name);
        declared
            .map(|dependency| dependency.name.as_str())
            .filter(is_missing)
            .collect()
    }
}

/// The files of a packaged chart, in the order of the archive, with paths relative to the root of the chart.
///
/// # Errors
/// When the archive is damaged, unsafe or larger than the limits.
pub fn unpack(archive: &[u8], limits: &Limits) -> Result<Vec<File>, ArchiveError> {
    archive::files(
        archive,
        archive::Shape::Any,
        &mut archive::Budget::new(limits.into()),
    )
}

/// Parses a `Chart.yaml` without checking its rules.
///
/// # Errors
/// When it is not YAML, or when a field has another type.
pub fn definition(text: &[u8]) -> Result<Metadata, Error> {
    load::definition(text)
}

/// Whether Helm installs this file, because it is below `crds/`.
pub fn is_crd(name: &str) -> bool {
    let has_extension = |extension: &str| {
        let start = name.len().checked_sub(extension.len());
        start
            .and_then(|start| name.get(start..))
            .is_some_and(|end| end.eq_ignore_ascii_case(extension))
    };
    name.starts_with("crds/") && [".yaml", ".yml", ".json"].into_iter().any(has_extension)
}
