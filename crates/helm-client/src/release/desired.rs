//! What a release should be.

use std::collections::BTreeMap;

use helm::hook::Hook;
use helm::release::RecordedChart;
use serde_json::{Map, Value};

use super::{Error, labels};

/// A rendered chart, ready to be installed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// The release's name.
    pub name: String,
    /// The namespace of the release, of its records, and of its objects that name none.
    pub namespace: String,
    /// The chart as records keep it.
    pub chart: RecordedChart,
    /// The digest of the chart archive.
    pub chart_digest: String,
    /// A digest of what else the render drew on (capabilities, answers to lookups), if the caller tells renders apart
    /// by it.
    pub environment_digest: Option<String>,
    /// The user's values, without the chart's defaults.
    pub config: Map<String, Value>,
    /// The rendered documents in install order, framed as Helm stores them.
    pub manifest: String,
    /// The rendered hooks.
    pub hooks: Vec<Hook>,
    /// The texts of the files below `crds/`, those of subcharts included, in their order.
    pub crds: Vec<String>,
    /// The rendered `NOTES.txt`.
    pub notes: String,
    /// Labels of the records; Helm copies them to the revisions that it makes itself.
    pub labels: BTreeMap<String, String>,
    /// What the record says once it is done; Helm's words when it is none. Helm's `--description`.
    pub description: Option<String>,
    /// Takes objects that exist and belong to no release or another one, and fields of theirs that others set.
    pub take_ownership: bool,
}

impl Desired {
    /// The same with these labels on every object and hook, as part of manifest and hooks, and on the records.
    /// Selectors and pod templates stay as the chart has them.
    ///
    /// # Errors
    /// [`Error::Parse`] when a rendered document is not YAML.
    pub fn with_labels(mut self, labels: &BTreeMap<String, String>) -> Result<Self, Error> {
        self.manifest = labels::on_manifest(&self.manifest, labels)?;
        for hook in &mut self.hooks {
            hook.manifest = labels::on_document(&hook.manifest, &hook.path, labels)?;
        }
        self.labels.extend(labels.clone());
        Ok(self)
    }

    pub(super) fn described(&self, usual: &str) -> String {
        self.description.clone().unwrap_or_else(|| usual.to_owned())
    }
}
