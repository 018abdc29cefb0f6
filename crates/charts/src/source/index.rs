//! Finds a chart's archive in the `index.yaml` of a repository, or reads everything that the index lists.

use std::collections::BTreeMap;
use std::fmt;

use helm::chart::Metadata;
use helm::semver::Version;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::Error;
use super::address::{host, without_query};
use super::reference::Repository;
use super::versions;

/// One version of a chart.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Entry {
    pub(super) version: String,
    #[serde(default)]
    urls: Option<Vec<String>>,
    #[serde(default)]
    digest: Option<String>,
}

/// All charts of a repository.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    /// The versions of each chart by its name, newest first, with the fields that people search for.
    pub charts: BTreeMap<String, Vec<Metadata>>,
}

/// The fields that are read of one version of a chart.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Listed {
    #[serde(deserialize_with = "null_as_default")]
    api_version: String,
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    version: String,
    #[serde(deserialize_with = "null_as_default")]
    app_version: String,
    #[serde(deserialize_with = "null_as_default")]
    description: String,
    #[serde(deserialize_with = "null_as_default")]
    keywords: Vec<String>,
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    chart_type: String,
}

impl Listed {
    /// The same without terminal control characters; `None` if it cannot be a chart.
    fn checked(self) -> Option<(Version, Metadata)> {
        let is_v1 = self.api_version.is_empty();
        let mut metadata = Metadata {
            api_version: if is_v1 { "v1".to_owned() } else { self.api_version },
            name: self.name,
            version: self.version,
            app_version: self.app_version,
            description: self.description,
            keywords: self.keywords,
            chart_type: self.chart_type,
            ..Metadata::default()
        };
        metadata.sanitize_and_validate().ok()?;
        Some((Version::parse(&metadata.version).ok()?, metadata))
    }
}

/// A text that is not a repository index.
#[derive(Debug, thiserror::Error)]
pub enum InvalidIndex {
    /// It is empty.
    #[error("empty index.yaml file")]
    Empty,
    /// It has another form.
    #[error("it is not a chart index")]
    Form(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It has no API version.
    #[error("no API version specified")]
    NoApiVersion,
}

impl Index {
    /// Reads an index. Entries that cannot be charts are left out, as in Helm, and so are names with control
    /// characters.
    ///
    /// # Errors
    /// [`InvalidIndex`]
    pub fn parse(text: &[u8]) -> Result<Self, InvalidIndex> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Read {
            #[serde(deserialize_with = "null_as_default")]
            api_version: String,
            #[serde(deserialize_with = "null_as_default")]
            entries: BTreeMap<String, Option<Vec<Option<Listed>>>>,
        }
        if text.is_empty() {
            return Err(InvalidIndex::Empty);
        }
        let read: Read = if text.trim_ascii_start().starts_with(b"{") {
            serde_json::from_slice(text).map_err(|error| InvalidIndex::Form(error.into()))?
        } else {
            serde_saphyr::from_slice_with_options(text, options(text))
                .map_err(|error| InvalidIndex::Form(error.into()))?
        };
        if read.api_version.is_empty() {
            return Err(InvalidIndex::NoApiVersion);
        }
        let named = read
            .entries
            .into_iter()
            .filter(|(name, _)| !name.contains(char::is_control));
        let charts = named.map(|(name, entries)| {
            let entries = entries.into_iter().flatten().flatten();
            let mut versions: Vec<_> = entries.filter_map(Listed::checked).collect();
            versions.sort_by(|(one, _), (other, _)| other.cmp(one));
            (name, versions.into_iter().map(|(_, entry)| entry).collect())
        });
        Ok(Self {
            charts: charts.collect(),
        })
    }
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Why no archive could be found in the index.
#[derive(Debug)]
pub(super) enum Failure {
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
    Insecure {
        archive: String,
    },
    NoSuchChart {
        chart: String,
    },
    NoSuchVersion {
        chart: String,
        version: String,
        newest: Vec<String>,
    },
}

impl Failure {
    /// The error for the index at `url`.
    pub(super) fn at(self, url: &Url) -> Error {
        let host = host(url);
        match self {
            Self::Unreadable(source) => Error::Index {
                host,
                path: url.path().to_owned(),
                source,
            },
            Self::Insecure { archive } => Error::InsecureArchive {
                host,
                path: url.path().to_owned(),
                archive,
            },
            Self::NoSuchChart { chart } => Error::NoSuchChart { host, chart },
            Self::NoSuchVersion {
                chart,
                version,
                newest,
            } => Error::NoSuchVersion {
                host,
                chart,
                version,
                newest,
            },
        }
    }
}

/// The entry of the wanted version.
pub(super) fn find(index: &[u8], wanted: &Repository) -> Result<Entry, Failure> {
    let mut entries = entries(index, &wanted.chart)?;
    let versions: Vec<&str> = entries.iter().map(|entry| entry.version.as_str()).collect();
    match wanted.version.choose(&versions) {
        Some(position) => Ok(entries.swap_remove(position)),
        None => Err(Failure::NoSuchVersion {
            chart: wanted.chart.clone(),
            version: wanted.version.shown(),
            newest: versions::newest(&versions),
        }),
    }
}

/// The versions of one chart, in the listed order. Indexes grow to tens of megabytes, so other charts are skipped.
fn entries(index: &[u8], chart: &str) -> Result<Vec<Entry>, Failure> {
    let is_json = index.trim_ascii_start().starts_with(b"{");
    let found = if is_json {
        let mut json = serde_json::Deserializer::from_slice(index);
        Only { chart }
            .deserialize(&mut json)
            .map_err(|failure| Failure::Unreadable(failure.into()))
    } else {
        yaml(index, chart).map_err(|failure| Failure::Unreadable(failure.into()))
    };
    found?.ok_or_else(|| Failure::NoSuchChart {
        chart: chart.to_owned(),
    })
}

/// The download limited the size of the text, and a text has no more events than bytes.
fn options(index: &[u8]) -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: index.len(),
            max_nodes: index.len(),
            max_total_scalar_bytes: index.len(),
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
    }
}

fn yaml(index: &[u8], chart: &str) -> Result<Option<Vec<Entry>>, serde_saphyr::Error> {
    serde_saphyr::with_deserializer_from_slice_with_options(index, options(index), |yaml| {
        Only { chart }.deserialize(yaml)
    })
}

/// An index of which only the entries of one chart are read.
struct Only<'a> {
    chart: &'a str,
}

impl<'de> DeserializeSeed<'de> for Only<'_> {
    type Value = Option<Vec<Entry>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Only<'_> {
    type Value = Option<Vec<Entry>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index of a chart repository, with entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" {
                found = Some(map.next_value_seed(Entries { chart: self.chart })?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| serde::de::Error::missing_field("entries"))
    }
}

/// The entries of an index: charts by name.
struct Entries<'a> {
    chart: &'a str,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = Option<Vec<Entry>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Option<Vec<Entry>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("charts by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.chart {
                // As in Helm, an entry that is null does not count.
                let entries: Vec<Option<Entry>> = map.next_value()?;
                found = Some(entries.into_iter().flatten().collect());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

impl Entry {
    /// The first URL of the archive; one without a host is relative to the root of the repository.
    pub(super) fn url(&self, root: &Url) -> Result<Url, Failure> {
        let unreadable = |why: String| Failure::Unreadable(why.into());
        let url = self
            .urls
            .iter()
            .flatten()
            .next()
            .ok_or_else(|| unreadable(format!("version {} has no url", self.version)))?;
        let mut url = root
            .join(url)
            .map_err(|_| unreadable(format!("version {} has an invalid url", self.version)))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unreadable(format!(
                "version {} is at a {} url",
                self.version,
                url.scheme()
            )));
        }
        if root.scheme() == "https" && url.scheme() == "http" {
            return Err(Failure::Insecure {
                archive: without_query(&url),
            });
        }
        if url.origin() == root.origin() && url.query().is_none() {
            url.set_query(root.query());
        }
        Ok(url)
    }

    /// The digest of the archive, if the index has one, as `sha256:` and hex.
    pub(super) fn digest(&self) -> Option<String> {
        let digest = self.digest.as_deref().filter(|digest| !digest.is_empty())?;
        let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
        Some(format!("sha256:{}", hex.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::versions::VersionReq;
    use super::*;

    const INDEX: &str = r#"
apiVersion: v1
generated: "2024-01-01T00:00:00Z"
entries:
  other: [{version: 1.0.0, urls: {not: a list}, anything: [goes, {here: 1}]}]
  nginx:
    - null
    - {name: nginx, version: 1.9.0, urls: [nginx-1.9.0.tgz], digest: ABCD, created: "2024-01-01T00:00:00Z"}
    - {name: nginx, version: 1.10.0, urls: ["https://elsewhere/nginx-1.10.0.tgz"], digest: "sha256:ab"}
    - {name: nginx, version: 2.0.0-rc.1, urls: []}
    - {name: nginx, version: not-a-version, urls: ["file:///etc/passwd"]}
  preview:
    - {version: 0.1.0-alpha, urls: [preview.tgz]}
  plain:
    - {version: 1.0.0, urls: ["http://elsewhere/plain-1.0.0.tgz?signature=s"]}
"#;

    fn wanted(chart: &str, version: Option<&str>) -> Repository {
        Repository {
            root: Url::parse("https://host/charts/?token=t").unwrap(),
            chart: chart.to_owned(),
            version: VersionReq::parse(version.map(str::to_owned)),
        }
    }

    fn leads_to(index: &str, chart: &str, version: Option<&str>) -> String {
        let wanted = wanted(chart, version);
        let url = find(index.as_bytes(), &wanted).and_then(|entry| entry.url(&wanted.root));
        match url {
            Ok(url) => url.to_string(),
            Err(failure) => {
                let failure = failure.at(&wanted.root);
                let cause = std::error::Error::source(&failure).map(|cause| format!(": {cause}"));
                format!("{failure}{}", cause.unwrap_or_default())
            }
        }
    }

    #[test]
    fn an_index_leads_to_an_archive() {
        let cases = [
            (
                "nginx",
                Some("1.9.0"),
                "https://host/charts/nginx-1.9.0.tgz?token=t",
            ),
            ("nginx", None, "https://elsewhere/nginx-1.10.0.tgz"),
            (
                "nginx",
                Some("~1.9"),
                "https://host/charts/nginx-1.9.0.tgz?token=t",
            ),
            (
                "nginx",
                Some("3.0.0"),
                "the chart repository at host has no version 3.0.0 of chart nginx; its newest are 2.0.0-rc.1, 1.10.0, 1.9.0, not-a-version",
            ),
            (
                "nginx",
                Some(">=2"),
                "the chart repository at host has no version that fits >=2 of chart nginx; its newest are 2.0.0-rc.1, 1.10.0, 1.9.0, not-a-version",
            ),
            (
                "preview",
                None,
                "the chart repository at host has no stable version of chart preview; its newest are 0.1.0-alpha",
            ),
            (
                "redis",
                None,
                "the chart repository at host has no chart redis: check repo",
            ),
            (
                "nginx",
                Some("2.0.0-rc.1"),
                "could not read /charts/ of the chart repository at host: version 2.0.0-rc.1 has no url",
            ),
            (
                "nginx",
                Some("not-a-version"),
                "could not read /charts/ of the chart repository at host: version not-a-version is at a file url",
            ),
            (
                "plain",
                None,
                "host lists http://elsewhere/plain-1.0.0.tgz in /charts/, which does not use TLS: refused, because the archive could be replaced on the network; ask its operator to list it with https, or begin the url with http",
            ),
        ];
        for (chart, version, expected) in cases {
            assert_eq!(leads_to(INDEX, chart, version), expected);
        }
        let plain = find(INDEX.as_bytes(), &wanted("plain", None)).unwrap();
        let root = Url::parse("http://host/charts/").unwrap();
        assert!(plain.url(&root).is_ok());
    }

    #[test]
    fn all_that_an_index_lists_is_read_newest_first() {
        let index = Index::parse(INDEX.as_bytes());
        // `urls` of other charts are not checked here either, and an invalid version is left out.
        let index = index.unwrap();
        let versions = |chart: &str| -> Vec<&str> {
            let listed = index.charts[chart].iter();
            listed.map(|entry| entry.version.as_str()).collect()
        };
        assert_eq!(versions("nginx"), ["2.0.0-rc.1", "1.10.0", "1.9.0"]);
        assert!(versions("preview").is_empty(), "it has no name");
        let hostile = "apiVersion: v1\nentries:\n  web: [{name: web, version: 1.0.0, description: \"a\\e[2Jb\"}]\n  \"a\\nb\": []\n";
        let index = Index::parse(hostile.as_bytes()).unwrap();
        assert_eq!(index.charts["web"][0].description, "a[2Jb");
        assert_eq!(index.charts.len(), 1);
        let refused = |text: &str| Index::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused(""), "empty index.yaml file");
        assert_eq!(refused("entries: {}"), "no API version specified");
        assert_eq!(refused("entries: []"), "it is not a chart index");
        assert_eq!(refused("{\"entries\": {}}"), "no API version specified");
    }

    #[test]
    fn an_index_may_be_json() {
        let index = r#" {"apiVersion": "v1", "entries": {"other": [], "web": [{"version": "1.0.0", "urls": ["a/web.tgz"]}]}}"#;
        assert_eq!(
            leads_to(index, "web", None),
            "https://host/charts/a/web.tgz?token=t"
        );
        assert_eq!(
            leads_to(index, "other", None),
            "the chart repository at host has no stable version of chart other, nor any other"
        );
        assert!(leads_to("{}", "web", None).contains("missing field `entries`"));
        assert!(leads_to("apiVersion: v1", "web", None).contains("missing field `entries`"));
    }

    #[test]
    fn a_large_index_is_read_for_one_chart() {
        use std::fmt::Write as _;
        let mut index = "apiVersion: v1\nentries:\n".to_owned();
        for chart in 0..200 {
            let _ = writeln!(index, "  chart-{chart}:");
            for version in 0..20 {
                let _ = writeln!(
                    index,
                    "  - name: chart-{chart}\n    version: 1.{version}.0\n    description: {}\n    urls: [chart-{chart}-1.{version}.0.tgz]",
                    "words ".repeat(20)
                );
            }
        }
        assert_eq!(
            leads_to(&index, "chart-150", Some("<1.7")),
            "https://host/charts/chart-150-1.6.0.tgz?token=t"
        );
    }

    #[test]
    fn digests_have_one_form() {
        let digest = |version| {
            find(INDEX.as_bytes(), &wanted("nginx", Some(version)))
                .unwrap()
                .digest()
        };
        assert_eq!(digest("1.9.0").as_deref(), Some("sha256:abcd"));
        assert_eq!(digest("1.10.0").as_deref(), Some("sha256:ab"));
        assert_eq!(digest("2.0.0-rc.1"), None);
    }
}
