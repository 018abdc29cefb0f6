//! The chart of this process: its source, its names, and the reasons why it cannot be loaded.

use std::sync::Arc;

use charts::{Charts, LoadedChart};
use helm::origin::ChartSpec;
use helm::semver::Version;
use serde_json::{Map, Value};

use crate::fingerprint;

/// The one chart that this process releases.
#[derive(Debug, Clone)]
pub(crate) struct ProcessChart {
    pub(crate) repo: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// Empty if any digest is accepted.
    pub(crate) digest: String,
    pub(crate) plain_http: bool,
    /// Credentials and trusted certificates and keys for its source.
    pub(crate) access: ChartSpec,
}

/// How the version of the chart is located.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Through the index of its repository, or the tags of a registry.
    Listed,
    /// As `<repository>/<name>-<version>.tgz`, unless the repository is itself the URL of an archive.
    Archive,
}

/// Why the chart cannot be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{version:?} is not a version of a chart: set an exact one, such as 1.2.3, with --chart-version")]
    VersionInvalid { version: String },
    #[error("the chart does not exist")]
    VersionNotFound(#[source] Arc<charts::Error>),
    #[error("could not fetch the chart")]
    NotLoaded(#[source] Arc<charts::Error>),
    #[error(
        "the archive contains chart {found}, but {wanted} is configured: correct --chart-name and --chart-version, or the URL"
    )]
    OtherChart { found: String, wanted: String },
}

impl Fault {
    /// True if the same attempt can succeed later without a restart of this process: a chart may be published at any
    /// time, and its source may be repaired.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::VersionInvalid { .. } | Self::OtherChart { .. } => false,
            Self::VersionNotFound(_) | Self::NotLoaded(_) => true,
        }
    }
}

impl ProcessChart {
    /// Its name for users: `<repository>/<name>:<version>`, or the URL of an archive. Queries and passwords are
    /// removed, because a signed URL gives access, and others can read statuses on their clusters.
    pub(crate) fn title(&self) -> String {
        let repo = charts::source::shown(&self.repo);
        if is_archive(&self.repo) {
            return repo;
        }
        format!("{}/{}:{}", repo.trim_end_matches('/'), self.name, self.version)
    }

    /// The fingerprint of an install of it with these values.
    pub(crate) fn fingerprint(&self, values: &Map<String, Value>) -> String {
        fingerprint::of(&self.repo, &self.name, &self.version, values)
    }

    /// Loads the chart. Its version is validated before any request.
    pub(crate) async fn load(&self, form: Form, charts: &Charts) -> Result<Arc<LoadedChart>, Fault> {
        if Version::parse(&self.version).is_err() {
            return Err(Fault::VersionInvalid {
                version: self.version.clone(),
            });
        }
        let loaded = charts.get(&self.spec(form)).await.map_err(|error| {
            let is_missing = error.is_missing();
            let error = Arc::new(error);
            if is_missing {
                Fault::VersionNotFound(error)
            } else {
                Fault::NotLoaded(error)
            }
        })?;
        self.compare(&loaded)?;
        Ok(loaded)
    }

    /// The URL of an archive says nothing about its chart, so the chart itself has to match the configuration.
    fn compare(&self, loaded: &LoadedChart) -> Result<(), Fault> {
        let found = loaded.chart().metadata();
        if !is_archive(&self.repo) || (found.name == self.name && found.version == self.version) {
            return Ok(());
        }
        Err(Fault::OtherChart {
            found: format!("{}:{}", found.name, found.version),
            wanted: format!("{}:{}", self.name, self.version),
        })
    }

    fn spec(&self, form: Form) -> ChartSpec {
        let spec = ChartSpec {
            url: self.repo.clone(),
            digest: Some(self.digest.clone()).filter(|digest| !digest.is_empty()),
            plain_http: self.plain_http,
            ..self.access.clone()
        };
        match form {
            Form::Archive if !self.repo.starts_with("oci://") && !is_archive(&self.repo) => ChartSpec {
                url: format!(
                    "{}/{}-{}.tgz",
                    self.repo.trim_end_matches('/'),
                    self.name,
                    self.version
                ),
                ..spec
            },
            Form::Archive | Form::Listed => ChartSpec {
                repo: Some(self.name.clone()),
                version: Some(self.version.clone()),
                ..spec
            },
        }
    }
}

/// True for the URL of an archive, which contains the chart itself.
fn is_archive(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    [".tgz", ".tar.gz"].iter().any(|ending| path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(repo: &str) -> ProcessChart {
        ProcessChart {
            repo: repo.to_owned(),
            name: "web".to_owned(),
            version: "1.2.3".to_owned(),
            digest: String::new(),
            plain_http: false,
            access: ChartSpec {
                namespace: Some("ops".to_owned()),
                ..ChartSpec::default()
            },
        }
    }

    #[test]
    fn a_deployments_chart_is_an_archive_of_the_repository() {
        let archive = chart("https://charts.example.org/").spec(Form::Archive);
        assert_eq!(
            (archive.url.as_str(), archive.repo.as_deref()),
            ("https://charts.example.org/web-1.2.3.tgz", None)
        );
        let listed = chart("https://charts.example.org").spec(Form::Listed);
        assert_eq!(
            (
                listed.url.as_str(),
                listed.repo.as_deref(),
                listed.version.as_deref()
            ),
            ("https://charts.example.org", Some("web"), Some("1.2.3"))
        );
        let registry = chart("oci://host/charts").spec(Form::Archive);
        assert_eq!(
            (registry.url.as_str(), registry.version.as_deref()),
            ("oci://host/charts", Some("1.2.3"))
        );
        let url = "https://charts.example.org/web-1.2.3.tgz?key=a";
        assert_eq!(chart(url).spec(Form::Archive).url, url);
        assert_eq!(chart("https://a/").title(), "https://a/web:1.2.3");
        assert_eq!(
            chart("https://me:secret@charts.example.org/web-1.2.3.tgz?key=a").title(),
            "https://charts.example.org/web-1.2.3.tgz"
        );
        assert!(
            [archive, listed, registry]
                .iter()
                .all(|spec| spec.namespace.as_deref() == Some("ops"))
        );
    }

    #[tokio::test]
    async fn an_invalid_version_causes_no_request() {
        // No request is made: the script is empty.
        let script = cluster::scripted::Script::new("nothing");
        let charts = Charts::new(script.cluster(), charts::source::Limits::default());
        for version in ["1.x.y", "garbage", "", "^1.2"] {
            let chart = ProcessChart {
                version: version.to_owned(),
                ..chart("https://charts.invalid")
            };
            let fault = chart.load(Form::Listed, &charts).await.err();
            assert!(
                matches!(fault, Some(Fault::VersionInvalid { .. })),
                "{version}: {fault:?}"
            );
        }
        script.finish();
    }
}
