//! Parses a user's chart reference into a location.

use std::fmt;

use helm::semver::{Constraint, Version};
use percent_encoding::percent_decode_str;
use url::Url;

use super::address::{is_loopback, shown, without_query};
use super::versions::VersionReq;

/// A validated chart reference: the `spec.chart` of a definition or the arguments of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartRef {
    location: Location,
    digest: Option<String>,
    plain_http: bool,
    insecure_skip_verify: bool,
}

/// The location that a reference names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// An artifact in an OCI registry.
    Oci(Image),
    /// An archive at a plain URL.
    Archive(Url),
    /// A chart in a repository with an `index.yaml`.
    Repository(Repository),
}

/// An artifact in an OCI registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Host, with the port if one was given.
    pub(super) registry: String,
    pub(super) repository: String,
    pub(super) tag: Tag,
    /// Whether the host is this machine, where registries use HTTP without TLS.
    pub(super) loopback: bool,
}

/// Which artifact of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tag {
    /// The one with this tag.
    Exact(String),
    /// The one whose tag is the wanted version.
    Choice(VersionReq),
    /// The one whose manifest has this digest. A tag is only used for its name.
    Digest { digest: String, tag: Option<String> },
}

/// A chart in a repository with an `index.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// The folder with `index.yaml`; its path ends in a slash.
    pub(super) root: Url,
    pub(super) chart: String,
    pub(super) version: VersionReq,
}

/// An invalid chart reference, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRef {
    /// It is not a supported kind of URL.
    #[error("chart url {url} is neither oci://host/path, https://host/chart.tgz nor https://host/repository")]
    Url {
        /// What was given.
        url: String,
    },
    /// A password in a URL would get into logs and events.
    #[error("chart url at {host} contains a user name or password: give them in credentials instead")]
    CredentialsInUrl {
        /// The host of the URL.
        host: String,
    },
    /// It names a registry, but no artifact in it.
    #[error("chart url {url} names a registry but no chart: append the path, or set repo")]
    NoPath {
        /// What was given.
        url: String,
    },
    /// An artifact name that is not allowed in a registry.
    #[error(
        "{repository} is not a valid name in a registry: parts are lower-case letters and digits, joined by one of . _ -, and separated by /"
    )]
    Repository {
        /// URL path and `repo`, joined.
        repository: String,
    },
    /// It is not a version.
    #[error(
        "{version} is neither a version such as 1.2.3, nor a range such as ^1.2, nor a tag that a registry can hold"
    )]
    Version {
        /// What was given.
        version: String,
    },
    /// The URL has a tag and the version is another one.
    #[error("chart url {url} already names tag {tag}, the version says {version}: keep one of them")]
    TwoVersions {
        /// What was given as URL.
        url: String,
        /// The tag in it.
        tag: String,
        /// What was given as version.
        version: String,
    },
    /// It is not a digest.
    #[error("{digest} is not a digest: expected sha256: and 64 lower-case hexadecimal digits")]
    Digest {
        /// What was given.
        digest: String,
    },
    /// It is a chart or a registry, not a repository.
    #[error(
        "{url} is not a repository with an index.yaml: charts at such an address are named by it, and registries by oci://host/path/chart"
    )]
    NoRepository {
        /// What was given.
        url: String,
    },
    /// It names a repository, but no chart in it.
    #[error(
        "chart url {url} is a chart repository, but no chart is named: set repo to the name of the chart, or give the url of its .tgz"
    )]
    NoChart {
        /// What was given.
        url: String,
    },
}

impl ChartRef {
    /// Parses the three texts that name a chart.
    ///
    /// - `oci://host/path`, with `repo` appended to the path; `:tag` and `@sha256:…` may follow the path.
    /// - `http(s)://….tgz` or `.tar.gz`: that archive; `repo` and `version` are ignored.
    /// - any other `http(s)://…`: a repository with an `index.yaml`; `repo` is the name of the chart.
    ///
    /// `version` is an exact version, a range by Helm's rules (`^1.2`, `>=1.19-0 <2`), or nothing or `latest` for the
    /// newest that is not a pre-release. In a registry it may also be a tag that is not a version.
    ///
    /// # Errors
    /// [`InvalidRef`] says what to write instead.
    pub fn parse(url: &str, repo: Option<&str>, version: Option<&str>) -> Result<Self, InvalidRef> {
        let given = |text: Option<&str>| text.map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned);
        let (repo, version) = (given(repo), given(version));
        let parsed = Url::parse(url.trim()).map_err(|_| InvalidRef::Url { url: shown(url) })?;
        let host = parsed.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| InvalidRef::Url { url: shown(url) })?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(InvalidRef::CredentialsInUrl {
                host: host.to_owned(),
            });
        }
        let location = match parsed.scheme() {
            "oci" => Location::Oci(image(&parsed, host, repo.as_deref(), version)?),
            "http" | "https" if is_archive(&parsed) => Location::Archive(parsed),
            "http" | "https" => Location::Repository(repository(parsed, repo, version)?),
            _ => return Err(InvalidRef::Url { url: shown(url) }),
        };
        Ok(Self {
            location,
            digest: None,
            plain_http: false,
            insecure_skip_verify: false,
        })
    }

    /// Parses the address of a repository with an `index.yaml`.
    ///
    /// # Errors
    /// [`InvalidRef`] says what to write instead.
    pub fn repository(url: &str) -> Result<Self, InvalidRef> {
        let named = Self::parse(url, Some("index"), None)?;
        match named.location {
            Location::Repository(_) => Ok(named),
            Location::Oci(_) | Location::Archive(_) => Err(InvalidRef::NoRepository { url: shown(url) }),
        }
    }

    /// Accepts only content with this digest: the archive, or in a registry its manifest.
    ///
    /// # Errors
    /// [`InvalidRef`] when it is not a digest.
    pub fn with_digest(mut self, digest: Option<&str>) -> Result<Self, InvalidRef> {
        let Some(digest) = digest.map(str::trim).filter(|digest| !digest.is_empty()) else {
            return Ok(self);
        };
        if !is_digest(digest) {
            return Err(InvalidRef::Digest {
                digest: digest.to_owned(),
            });
        }
        self.digest = Some(digest.to_owned());
        Ok(self)
    }

    /// Uses HTTP without TLS for the registry. It has no effect on `https://` URLs, and a registry on this machine is
    /// always accessed that way.
    pub fn with_plain_http(self, plain_http: bool) -> Self {
        Self { plain_http, ..self }
    }

    /// Accepts any certificate of the host.
    pub fn with_insecure_skip_verify(self, insecure_skip_verify: bool) -> Self {
        Self {
            insecure_skip_verify,
            ..self
        }
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// The digest that the archive or its manifest must have.
    pub(super) fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    pub(super) fn plain_http(&self) -> bool {
        self.plain_http
    }

    pub(super) fn insecure_skip_verify(&self) -> bool {
        self.insecure_skip_verify
    }
}

impl fmt::Display for ChartRef {
    /// The location without query, which may contain a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Oci(image) => write!(f, "{image}"),
            Location::Archive(url) => f.write_str(&without_query(url)),
            Location::Repository(repository) => {
                write!(f, "{} in {}", repository.chart, without_query(&repository.root))
            }
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tag {
            Tag::Exact(tag) => f.write_str(&self.at(tag)),
            Tag::Digest { digest, .. } => f.write_str(&self.at(digest)),
            Tag::Choice(VersionReq::Newest) => write!(f, "oci://{}/{}", self.registry, self.repository),
            Tag::Choice(version) => {
                write!(
                    f,
                    "oci://{}/{} ({})",
                    self.registry,
                    self.repository,
                    version.shown()
                )
            }
        }
    }
}

impl Image {
    /// The address of one artifact, by tag or digest.
    pub(super) fn at(&self, reference: &str) -> String {
        let separator = if is_digest(reference) { '@' } else { ':' };
        format!(
            "oci://{}/{}{separator}{reference}",
            self.registry, self.repository
        )
    }

    /// Helm's file name for the archive of a version.
    pub(super) fn file(&self, version: &str) -> String {
        let name = self.repository.rsplit('/').next().unwrap_or_default();
        format!("{name}-{version}.tgz")
    }
}

/// The last part of a path or URL, percent-decoded.
pub(super) fn archive_name(path: &str) -> String {
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn is_archive(url: &Url) -> bool {
    let path = url.path();
    // Object stores and download pages are case-sensitive; so is Helm here.
    [".tgz", ".tar.gz"].iter().any(|ending| path.ends_with(ending))
}

fn image(url: &Url, host: &str, repo: Option<&str>, version: Option<String>) -> Result<Image, InvalidRef> {
    let path = url.path().trim_matches('/');
    let (path, digest) = match path.split_once('@') {
        Some((path, digest)) if is_digest(digest) => (path, Some(digest.to_owned())),
        Some((_, digest)) => {
            return Err(InvalidRef::Digest {
                digest: digest.to_owned(),
            });
        }
        None => (path, None),
    };
    let (path, tag) = match path.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag.to_owned())),
        None => (path, None),
    };
    let parts = [path, repo.unwrap_or_default().trim_matches('/')];
    let repository = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    if repository.is_empty() {
        return Err(InvalidRef::NoPath {
            url: without_query(url),
        });
    }
    if !repository.split('/').all(is_repository_part) {
        return Err(InvalidRef::Repository { repository });
    }
    let version = match (tag, version) {
        (Some(tag), Some(version)) if tag != tag_of(&version) => {
            return Err(InvalidRef::TwoVersions {
                url: without_query(url),
                tag,
                version,
            });
        }
        (tag, version) => version.or(tag),
    };
    let tag = match digest {
        Some(digest) => Tag::Digest {
            digest,
            tag: version.as_deref().map(tag_of),
        },
        None => wanted_tag(version)?,
    };
    let registry = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Ok(Image {
        registry,
        repository,
        tag,
        loopback: is_loopback(host),
    })
}

/// As in Helm, a version is used as a tag without listing the tags; a range is matched against the list.
fn wanted_tag(version: Option<String>) -> Result<Tag, InvalidRef> {
    let req = VersionReq::parse(version);
    let VersionReq::Given(version) = &req else {
        return Ok(Tag::Choice(req));
    };
    let tag = tag_of(version);
    let is_range = Version::parse(version).is_err() && Constraint::parse(version).is_ok();
    if is_range {
        Ok(Tag::Choice(req))
    } else if is_tag(&tag) {
        Ok(Tag::Exact(tag))
    } else {
        Err(InvalidRef::Version {
            version: version.clone(),
        })
    }
}

fn repository(
    mut root: Url,
    repo: Option<String>,
    version: Option<String>,
) -> Result<Repository, InvalidRef> {
    let chart = repo.ok_or_else(|| InvalidRef::NoChart {
        url: without_query(&root),
    })?;
    // Users paste the address of the index as well as that of its folder.
    let folder = root
        .path()
        .strip_suffix("/index.yaml")
        .unwrap_or(root.path())
        .trim_end_matches('/');
    let folder = format!("{folder}/");
    root.set_path(&folder);
    root.set_fragment(None);
    Ok(Repository {
        root,
        chart,
        version: VersionReq::parse(version),
    })
}

/// One part of a repository name, according to the distribution specification.
fn is_repository_part(part: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(alphanumeric)
        && part.ends_with(alphanumeric)
        && part
            .split(alphanumeric)
            .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-'))
}

/// Tags cannot contain the plus sign of build metadata; Helm writes an underscore instead.
pub(super) fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

fn is_tag(tag: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    tag.len() <= 128 && tag.chars().all(allowed) && !tag.starts_with(['.', '-'])
}

/// `sha256:` and 64 hex digits.
pub(super) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str, repo: &str, version: &str) -> String {
        match ChartRef::parse(url, Some(repo), Some(version)) {
            Ok(chart) => chart.to_string(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_reference_leads_to_a_place() {
        let cases = [
            (
                ["oci://ghcr.io/charts/nginx", "", "1.2.3"],
                "oci://ghcr.io/charts/nginx:1.2.3",
            ),
            (
                ["oci://ghcr.io/charts", "nginx", "1.2.3"],
                "oci://ghcr.io/charts/nginx:1.2.3",
            ),
            (
                ["oci://ghcr.io/charts/", "/nginx", "1.2.3"],
                "oci://ghcr.io/charts/nginx:1.2.3",
            ),
            (
                ["oci://host:5000", "nginx", "v1.2.3"],
                "oci://host:5000/nginx:v1.2.3",
            ),
            (["oci://host/nginx:1.2.3", "", ""], "oci://host/nginx:1.2.3"),
            (["oci://host/nginx:1.2.3", "", "1.2.3"], "oci://host/nginx:1.2.3"),
            (
                ["oci://host/nginx", "", "1.2.3+build.5"],
                "oci://host/nginx:1.2.3_build.5",
            ),
            (["oci://host/nginx", "", ""], "oci://host/nginx"),
            (["oci://host/nginx", "", "latest"], "oci://host/nginx"),
            (
                ["oci://host/nginx", "", ">=1.2 <2"],
                "oci://host/nginx (version that fits >=1.2 <2)",
            ),
            (
                ["oci://host/nginx", "", "1.x"],
                "oci://host/nginx (version that fits 1.x)",
            ),
            (["oci://host/nginx", "", "main"], "oci://host/nginx:main"),
            (
                ["oci://host/nginx:1.2.3_b", "", "1.2.3+b"],
                "oci://host/nginx:1.2.3_b",
            ),
            (
                ["oci://[::1]:5000/nginx", "", "1.0.0"],
                "oci://[::1]:5000/nginx:1.0.0",
            ),
            (
                ["https://host/a/nginx-1.2.3.tgz?sig=s3cret", "", ""],
                "https://host/a/nginx-1.2.3.tgz",
            ),
            (
                ["http://host/nginx.tar.gz", "ignored", "ignored"],
                "http://host/nginx.tar.gz",
            ),
            (
                ["https://host/charts", "nginx", "1.2.3"],
                "nginx in https://host/charts/",
            ),
            (
                ["https://host/charts/index.yaml", "nginx", "latest"],
                "nginx in https://host/charts/",
            ),
        ];
        for ([url, repo, version], expected) in cases {
            assert_eq!(place(url, repo, version), expected);
        }
    }

    #[test]
    fn a_reference_that_leads_nowhere_says_what_to_write() {
        let cases = [
            (["", "", ""], "chart url  is neither"),
            (["nginx", "", ""], "chart url nginx is neither"),
            (
                ["ftp://host/nginx.tgz", "", ""],
                "chart url ftp://host/nginx.tgz is neither",
            ),
            (["file:///charts/nginx", "", ""], "is neither"),
            (["https://", "", ""], "is neither"),
            (
                ["oci://me:s3cret@host/nginx", "", "1.0.0"],
                "give them in credentials instead",
            ),
            (
                ["https://me:s3cret@host/nginx.tgz", "", ""],
                "give them in credentials instead",
            ),
            (["oci://me:s3cret@ho st/nginx", "", "1.0.0"], "is neither"),
            (["oci://host", "", "1.0.0"], "names a registry but no chart"),
            (["oci://host/Nginx", "", "1.0.0"], "lower-case"),
            (["oci://host/a//b", "", "1.0.0"], "lower-case"),
            (["oci://host/a/../b", "%2e%2e", "1.0.0"], "lower-case"),
            (
                ["oci://host/nginx", "", "1.2.3 or so"],
                "1.2.3 or so is neither a version such as 1.2.3, nor a range such as ^1.2, nor a tag that a registry can hold",
            ),
            (["oci://host/nginx:1.0.0", "", "1.1.0"], "already names tag 1.0.0"),
            (
                ["oci://host/nginx@sha256:00", "", "1.1.0"],
                "sha256:00 is not a digest: expected sha256: and 64 lower-case hexadecimal digits",
            ),
            (
                ["https://host/charts", "", "1.1.0"],
                "set repo to the name of the chart",
            ),
        ];
        for ([url, repo, version], expected) in cases {
            let message = place(url, repo, version);
            assert!(message.contains(expected), "{url}: {message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }

    #[test]
    fn a_digest_pins_what_is_fetched() {
        let one = format!("sha256:{}", "1".repeat(64));
        let two = format!("sha256:{}", "2".repeat(64));
        let pinned = |url: &str, version: &str, digest: &str| {
            let chart = ChartRef::parse(url, None, Some(version))?.with_digest(Some(digest))?;
            Ok::<_, InvalidRef>((chart.to_string(), chart.digest))
        };
        let named = format!("oci://host/nginx@{one}");
        for url in [format!("oci://host/nginx:1.2.3@{one}"), named.clone()] {
            assert_eq!(pinned(&url, "", "").unwrap(), (named.clone(), None));
            assert_eq!(
                pinned(&url, "1.2.3", &two).unwrap(),
                (named.clone(), Some(two.clone()))
            );
        }
        assert_eq!(
            pinned("https://host/nginx.tgz", "", &one).unwrap(),
            ("https://host/nginx.tgz".to_owned(), Some(one.clone()))
        );
        assert_eq!(
            pinned("oci://host/nginx", "1.2.3", "md5:1")
                .unwrap_err()
                .to_string(),
            "md5:1 is not a digest: expected sha256: and 64 lower-case hexadecimal digits"
        );
    }
}
