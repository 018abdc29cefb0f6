//! The desired state of a release.

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
    /// The namespace of the release, of its records, and of its objects that do not name one.
    pub namespace: String,
    /// The chart in the form that records store.
    pub chart: RecordedChart,
    /// The digest of the chart archive.
    pub chart_digest: String,
    /// A digest of the other inputs of the render (capabilities, answers to lookups), if the caller distinguishes
    /// renders by it.
    pub environment_digest: Option<String>,
    /// The user's values, without the chart's defaults.
    pub config: Map<String, Value>,
    /// The rendered documents in install order, formatted as Helm stores them.
    pub manifest: String,
    /// The rendered hooks.
    pub hooks: Vec<Hook>,
    /// The texts of the files in `crds/`, including those of subcharts, in order.
    pub crds: Vec<String>,
    /// The rendered `NOTES.txt`.
    pub notes: String,
    /// Labels of the records; Helm copies them to the revisions that it makes itself.
    pub labels: BTreeMap<String, String>,
    /// The record's description after success; `None` for Helm's text. Helm's `--description`.
    pub description: Option<String>,
    /// Takes over existing objects that belong to no release or another one, and fields of theirs that others set.
    pub take_ownership: bool,
}

impl Desired {
    /// The same with these labels on every object and hook, in the manifest and the hooks, and on the records.
    /// Selectors and pod templates are not changed.
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
