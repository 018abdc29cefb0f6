//! What the real Helm renders of the installer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::Site;

/// The namespace of components.
pub const NAMESPACE: &str = "krateo-system";

/// The group of compositions.
const GROUP: &str = "composition.krateo.io/";

/// All objects of a rendering, hooks among them.
#[derive(Debug)]
pub struct Rendered(Vec<Value>);

impl Rendered {
    /// `helm template` of a chart with these values and flags.
    ///
    /// # Errors
    /// When Helm refuses it; the message has what it said.
    pub fn of(site: &Site, chart: &Path, values: &Value, flags: &[&str]) -> Result<Self> {
        let file = tempfile::NamedTempFile::new()?;
        // JSON is YAML.
        std::fs::write(file.path(), values.to_string())?;
        let mut template = site.helm(["template", "installer"]);
        template.arg(chart).arg("--values").arg(file.path());
        template.args(["--namespace", NAMESPACE]).args(flags);
        let printed = site.run(template)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&printed).context("Helm printed what is no YAML")?;
        Ok(Self(
            documents
                .into_iter()
                .filter(|document| !document.is_null())
                .collect(),
        ))
    }

    /// `kind/name` of each object.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.0.iter().map(|object| {
            let part = |part: &Value| part.as_str().unwrap_or_default().to_owned();
            format!("{}/{}", part(&object["kind"]), part(&object["metadata"]["name"]))
        });
        names.collect()
    }

    /// The compositions by name, each with the version that it is written through.
    pub fn compositions(&self) -> BTreeMap<String, String> {
        let compositions = self.0.iter().filter_map(|object| {
            let version = object["apiVersion"].as_str()?.strip_prefix(GROUP)?;
            let name = object["metadata"]["name"].as_str()?;
            Some((name.to_owned(), version.to_owned()))
        });
        compositions.collect()
    }

    /// The names of definitions.
    pub fn definitions(&self) -> BTreeSet<String> {
        let definitions = self
            .0
            .iter()
            .filter(|object| object["kind"] == "CompositionDefinition");
        definitions
            .filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// The object of a kind and name.
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }
}
