//! `Chart.yaml`: its fields and their checks (Helm's `metadata.go` and `dependency.go`).

use std::collections::{BTreeMap, BTreeSet};

use gostd::unicode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{empty::null_as_default, semver};

/// The contents of `Chart.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The chart's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The project's home page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub home: String,
    /// The addresses of the sources.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub sources: Vec<String>,
    /// The chart's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// A one-sentence description.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Search keywords.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub keywords: Vec<String>,
    /// The maintainers.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub maintainers: Vec<Maintainer>,
    /// The address of an icon.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// `v1` or `v2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// A relic of Helm 2.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// A relic of Helm 2.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tags: String,
    /// The version of the application inside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub app_version: String,
    /// Whether the chart should no longer be used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Arbitrary annotations.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The Kubernetes versions it runs on, as a constraint.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kube_version: String,
    /// The charts it depends on. `None` when the key is absent or null, which differs from an empty list: only with
    /// `None` are its subcharts left unchanged.
    #[serde(skip_serializing_if = "none_or_empty")]
    pub dependencies: Option<Vec<Dependency>>,
    /// `application`, `library` or empty, which means application.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub chart_type: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintainer {
    /// A person or an organisation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// An email address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// A web page.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
}

/// A chart that another one depends on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Dependency {
    /// The name in its `Chart.yaml`.
    pub name: String,
    /// A constraint on its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Where to fetch it from; irrelevant for rendering.
    pub repository: String,
    /// Paths into the values, separated by commas; the first that contains a boolean enables or disables it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Names in the `tags` table of the values that enable or disable it.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// Set by dependency processing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Tables of its values that are imported into the parent's: names below `exports`, or pairs of `child` and
    /// `parent`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub import_values: Vec<Value>,
    /// Its name within this chart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

impl Dependency {
    /// The alias if there is one, otherwise the name.
    pub fn effective_name(&self) -> &str {
        if self.alias.is_empty() {
            &self.name
        } else {
            &self.alias
        }
    }
}

/// The rule that `Chart.yaml` violates, in Helm's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("validation: {0}")]
pub struct Invalid(String);

impl Invalid {
    pub(super) fn new(rule: impl Into<String>) -> Self {
        Self(rule.into())
    }
}

impl Metadata {
    /// Whether this is a library chart, which only provides templates to others.
    pub fn is_library(&self) -> bool {
        self.chart_type.eq_ignore_ascii_case("library")
    }

    /// Replaces unusual spaces and drops unprintable characters, then checks Helm's rules in Helm's order.
    ///
    /// # Errors
    /// On the first violated rule.
    pub fn sanitize_and_validate(&mut self) -> Result<(), Invalid> {
        self.sanitize();
        self.check_names()?;
        self.check_version_and_type()?;
        for maintainer in &mut self.maintainers {
            maintainer.name = sanitize(&maintainer.name);
            maintainer.email = sanitize(&maintainer.email);
            maintainer.url = sanitize(&maintainer.url);
        }
        self.check_dependencies()
    }

    fn sanitize(&mut self) {
        for text in [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ] {
            *text = sanitize(text);
        }
        for text in self.sources.iter_mut().chain(&mut self.keywords) {
            *text = sanitize(text);
        }
    }

    fn check_names(&self) -> Result<(), Invalid> {
        if self.api_version.is_empty() {
            return Err(Invalid::new("chart.metadata.apiVersion is required"));
        }
        if self.name.is_empty() {
            return Err(Invalid::new("chart.metadata.name is required"));
        }
        if self.name == "." || self.name == ".." {
            return Err(Invalid::new(format!(
                "chart.metadata.name {:?} is not allowed",
                self.name
            )));
        }
        // Go compares with the base name of the path, which equals the name only if it has no separator.
        if self.name.contains('/') {
            return Err(Invalid::new(format!(
                "chart.metadata.name {:?} is invalid",
                self.name
            )));
        }
        Ok(())
    }

    fn check_version_and_type(&self) -> Result<(), Invalid> {
        if self.version.is_empty() {
            return Err(Invalid::new("chart.metadata.version is required"));
        }
        if semver::Version::parse(&self.version).is_err() {
            return Err(Invalid::new(format!(
                "chart.metadata.version {:?} is invalid",
                self.version
            )));
        }
        match self.chart_type.as_str() {
            "" | "application" | "library" => Ok(()),
            _ => Err(Invalid::new("chart.metadata.type must be application or library")),
        }
    }

    fn check_dependencies(&mut self) -> Result<(), Invalid> {
        let mut seen = BTreeSet::new();
        for dependency in self.dependencies.iter_mut().flatten() {
            dependency.sanitize_and_validate()?;
            let name = dependency.effective_name();
            if !seen.insert(name.to_owned()) {
                return Err(Invalid::new(format!(
                    "more than one dependency with name or alias {name:?}"
                )));
            }
        }
        Ok(())
    }
}

impl Dependency {
    fn sanitize_and_validate(&mut self) -> Result<(), Invalid> {
        for text in [
            &mut self.name,
            &mut self.version,
            &mut self.repository,
            &mut self.condition,
        ] {
            *text = sanitize(text);
        }
        for tag in &mut self.tags {
            *tag = sanitize(tag);
        }
        let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.alias.chars().all(is_legal) {
            return Ok(());
        }
        Err(Invalid::new(format!(
            "dependency {:?} has disallowed characters in the alias",
            self.name
        )))
    }
}

/// Replaces every Unicode space by a plain one and drops characters that Go considers unprintable.
fn sanitize(text: &str) -> String {
    text.chars()
        .filter_map(|c| match c {
            c if c.is_whitespace() => Some(' '),
            c if unicode::is_print(c) => Some(c),
            _ => None,
        })
        .collect()
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference")]
fn none_or_empty(dependencies: &Option<Vec<Dependency>>) -> bool {
    dependencies.as_ref().is_none_or(Vec::is_empty)
}
