//! The `index.yaml` of a chart repository: a chart and a version in, the URL of its archive out.

use std::collections::BTreeMap;

use serde::Deserialize;
use url::Url;

use super::Error;
use super::http::host;
use super::reference::Repository;

/// What is read of an index. Everything else in it describes charts for people.
#[derive(Debug, Deserialize)]
struct Index {
    entries: BTreeMap<String, Vec<Entry>>,
}

/// One version of a chart.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Entry {
    version: String,
    #[serde(default)]
    urls: Vec<String>,
    #[serde(default)]
    digest: Option<String>,
}

/// Why the index leads nowhere.
#[derive(Debug)]
pub(super) enum Failure {
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
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
    /// The same, said of the index at `url`.
    pub(super) fn at(self, url: &Url) -> Error {
        let host = host(url);
        match self {
            Self::Unreadable(source) => Error::Index {
                host,
                path: url.path().to_owned(),
                source,
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

/// The entry of the wanted version: the one with exactly that text, or the newest stable one.
pub(super) fn find(index: &[u8], wanted: &Repository) -> Result<Entry, Failure> {
    let mut entries = entries(index, &wanted.chart)?;
    let position = match &wanted.version {
        Some(version) => entries.iter().position(|(_, entry)| entry.version == *version),
        None => entries
            .iter()
            .position(|(version, _)| version.as_ref().is_some_and(|v| v.pre.is_empty())),
    };
    match position {
        Some(position) => Ok(entries.swap_remove(position).1),
        None => Err(Failure::NoSuchVersion {
            chart: wanted.chart.clone(),
            version: wanted
                .version
                .as_ref()
                .map_or("stable version".to_owned(), |v| format!("version {v}")),
            newest: entries
                .into_iter()
                .take(5)
                .map(|(_, entry)| entry.version)
                .collect(),
        }),
    }
}

/// The versions of one chart, newest first; those that are no versions last.
fn entries(index: &[u8], chart: &str) -> Result<Vec<(Option<semver::Version>, Entry)>, Failure> {
    // The download bounded the text, and no text has more events than bytes.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: index.len(),
            max_nodes: index.len(),
            max_total_scalar_bytes: index.len(),
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
    };
    let index: Index = serde_saphyr::from_slice_with_options(index, options)
        .map_err(|failure| Failure::Unreadable(failure.into()))?;
    let found = index.entries.into_iter().find(|(name, _)| name == chart);
    let (_, entries) = found.ok_or_else(|| Failure::NoSuchChart {
        chart: chart.to_owned(),
    })?;
    let mut entries: Vec<_> = entries
        .into_iter()
        .map(|entry| (parse(&entry.version), entry))
        .collect();
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    Ok(entries)
}

/// A version as charts write it: with or without `v`, minor and patch optional, leading zeros allowed.
fn parse(version: &str) -> Option<semver::Version> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let end = version.find(['-', '+']).unwrap_or(version.len());
    let (numbers, rest) = version.split_at(end);
    let numbers: Vec<u64> = numbers
        .split('.')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let (major, minor, patch) = match numbers[..] {
        [major] => (major, 0, 0),
        [major, minor] => (major, minor, 0),
        [major, minor, patch] => (major, minor, patch),
        _ => return None,
    };
    semver::Version::parse(&format!("{major}.{minor}.{patch}{rest}")).ok()
}

impl Entry {
    /// The first URL of the archive; one without a host is relative to the root of the repository.
    pub(super) fn url(&self, root: &Url) -> Result<Url, Failure> {
        let unreadable = |why: String| Failure::Unreadable(why.into());
        let url = self
            .urls
            .first()
            .ok_or_else(|| unreadable(format!("version {} has no url", self.version)))?;
        let mut url = root
            .join(url)
            .map_err(|_| unreadable(format!("{url} is no url")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unreadable(format!(
                "version {} is at a {} url",
                self.version,
                url.scheme()
            )));
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
    use super::*;

    const INDEX: &str = r#"
apiVersion: v1
generated: "2024-01-01T00:00:00Z"
entries:
  nginx:
    - {name: nginx, version: 1.9.0, urls: [nginx-1.9.0.tgz], digest: ABCD, created: "2024-01-01T00:00:00Z"}
    - {name: nginx, version: 1.10.0, urls: ["https://elsewhere/nginx-1.10.0.tgz"], digest: "sha256:ab"}
    - {name: nginx, version: 2.0.0-rc.1, urls: []}
    - {name: nginx, version: not-a-version, urls: ["file:///etc/passwd"]}
  preview:
    - {version: 0.1.0-alpha, urls: [preview.tgz]}
"#;

    fn wanted(chart: &str, version: Option<&str>) -> Repository {
        Repository {
            root: Url::parse("https://host/charts/?token=t").unwrap(),
            chart: chart.to_owned(),
            version: version.map(str::to_owned),
        }
    }

    fn leads_to(chart: &str, version: Option<&str>) -> String {
        let wanted = wanted(chart, version);
        let url = find(INDEX.as_bytes(), &wanted).and_then(|entry| entry.url(&wanted.root));
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
                Some("3.0.0"),
                "the chart repository at host has no version 3.0.0 of chart nginx; its newest are 2.0.0-rc.1, 1.10.0, 1.9.0, not-a-version",
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
        ];
        for (chart, version, expected) in cases {
            assert_eq!(leads_to(chart, version), expected);
        }
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

    #[test]
    fn versions_are_read_as_charts_write_them() {
        for (text, expected) in [
            ("1.2.3", Some("1.2.3")),
            ("v1.2", Some("1.2.0")),
            ("1", Some("1.0.0")),
            ("01.2.3-rc.1+b", Some("1.2.3-rc.1+b")),
            ("1.2.3.4", None),
            ("latest", None),
        ] {
            assert_eq!(
                parse(text).map(|version| version.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
    }
}
