//! `kco repo index`: writes the index of a folder of archives (Helm's `pkg/cmd/repo_index.go` and
//! `pkg/repo/v1/index.go`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use helm::chart::{Chart, ChartOptions, Metadata};
use helm::digest::sha256;
use helm::line::HelmLine;
use helm::semver::{Constraint, Version};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::release::output;

/// The characters that Go does not escape in the path of a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// The flags of `helm repo index`.
#[derive(Debug, Args)]
pub(crate) struct Make {
    /// The folder with the archives.
    dir: PathBuf,
    /// The address of the repository, which is put before the names of the archives.
    #[arg(long)]
    url: Option<String>,
    /// An index whose charts are kept; those of the folder go before them.
    #[arg(long)]
    merge: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// An index, with its fields in Go's order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    generated: String,
    entries: BTreeMap<String, Vec<Entry>>,
}

/// One version of a chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    metadata: Metadata,
    #[serde(default)]
    urls: Vec<String>,
    #[serde(default)]
    created: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    digest: String,
}

/// Writes the index.
pub(super) fn make(args: &Make) -> Result<()> {
    let mut index = Index::of(&args.dir, args.url.as_deref().unwrap_or_default())?;
    if let Some(path) = args.merge.as_ref().filter(|path| !path.as_os_str().is_empty()) {
        if path.exists() {
            index.merge(Index::load(path).context("merge failed")?);
        } else {
            Index::empty().save(path, args.json)?;
        }
    }
    index.sort();
    index.save(&args.dir.join("index.yaml"), args.json)
}

impl Index {
    fn empty() -> Self {
        Self {
            api_version: "v1".to_owned(),
            generated: Timestamp::now().to_string(),
            entries: BTreeMap::new(),
        }
    }

    /// The archives in a folder and in its direct subfolders. Files that are not charts are ignored.
    fn of(folder: &Path, url: &str) -> Result<Self> {
        let mut index = Self::empty();
        for (below, path) in archives(folder) {
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(chart) = Chart::from_archive(&bytes, ChartOptions::from(HelmLine::Four)) else {
                continue;
            };
            let mut metadata = chart.metadata().clone();
            if metadata.api_version.is_empty() {
                "v1".clone_into(&mut metadata.api_version);
            }
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            metadata
                .sanitize_and_validate()
                .with_context(|| format!("failed adding to {name} to index: validate failed for {name}"))?;
            let parent = joined(url, &below);
            let archive = if parent.is_empty() {
                name
            } else {
                joined(&parent, &name)
            };
            index
                .entries
                .entry(metadata.name.clone())
                .or_default()
                .push(Entry {
                    metadata,
                    urls: vec![archive],
                    created: Timestamp::now().to_string(),
                    removed: false,
                    digest: sha256(&bytes).trim_start_matches("sha256:").to_owned(),
                });
        }
        Ok(index)
    }

    /// Reads an index. Like in Helm, entries that are not charts are ignored.
    fn load(path: &Path) -> Result<Self> {
        // A file with any other field is not an index.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Read {
            #[serde(default)]
            api_version: String,
            #[serde(default, rename = "serverInfo")]
            _server_info: IgnoredAny,
            #[serde(default, rename = "generated")]
            _generated: IgnoredAny,
            #[serde(default, rename = "publicKeys")]
            _public_keys: IgnoredAny,
            #[serde(default, rename = "annotations")]
            _annotations: IgnoredAny,
            #[serde(default)]
            entries: BTreeMap<String, Option<Vec<Option<Entry>>>>,
        }
        let text = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        let shown = || format!("error loading {}", path.display());
        let read: Read = serde_json::from_value(helm::yaml::parse_typed(&text).with_context(shown)?)
            .with_context(shown)?;
        anyhow::ensure!(
            !read.api_version.is_empty(),
            "{}: no API version specified",
            shown()
        );
        let entries = read.entries.into_iter().map(|(name, entries)| {
            let valid = entries.into_iter().flatten().flatten().filter_map(|mut entry| {
                if entry.metadata.api_version.is_empty() {
                    "v1".clone_into(&mut entry.metadata.api_version);
                }
                entry.metadata.sanitize_and_validate().ok()?;
                Some(entry)
            });
            (name, valid.collect())
        });
        Ok(Self {
            entries: entries.collect(),
            ..Self::empty()
        })
    }

    /// Adds the versions that are not there yet.
    fn merge(&mut self, other: Self) {
        for entry in other.entries.into_values().flatten() {
            let known = self.entries.entry(entry.metadata.name.clone()).or_default();
            if !has(known, &entry.metadata.version) {
                known.push(entry);
            }
        }
        self.entries.retain(|_, entries| !entries.is_empty());
    }

    /// The newest version first; invalid versions are at the end.
    fn sort(&mut self) {
        for entries in self.entries.values_mut() {
            entries
                .sort_by_cached_key(|entry| std::cmp::Reverse(Version::parse(&entry.metadata.version).ok()));
        }
    }

    fn save(&self, path: &Path, json: bool) -> Result<()> {
        let text = if json {
            output::escaped(&serde_json::to_string_pretty(self)?)
        } else {
            let text = helm::yaml::to_string(&serde_json::to_value(self)?).context("could not write YAML")?;
            format!("{}\n", text.trim_end_matches('\n'))
        };
        let written = || {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            file.write_all(text.as_bytes())?;
            file.as_file()
                .set_permissions(fs::Permissions::from_mode(0o644))?;
            file.persist(path)?;
            Ok::<_, std::io::Error>(())
        };
        written().with_context(|| format!("could not write {}", path.display()))
    }
}

/// Whether a version is there. As in Helm, build metadata does not make a different version.
fn has(entries: &[Entry], version: &str) -> bool {
    if entries.iter().any(|entry| entry.metadata.version == version) {
        return true;
    }
    let Ok(constraint) = Constraint::parse(version) else {
        return false;
    };
    let versions = entries
        .iter()
        .filter_map(|entry| Version::parse(&entry.metadata.version).ok());
    versions.into_iter().any(|version| constraint.check(&version))
}

/// The archives in a folder, then those in its subfolders: the name of the subfolder, and the path.
fn archives(folder: &Path) -> Vec<(String, PathBuf)> {
    let below = |folder: &Path| {
        let found = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_archive = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tgz");
    let here = below(folder);
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    found.extend(
        here.iter()
            .filter(|path| is_archive(path))
            .map(|path| (String::new(), path.clone())),
    );
    for inner in here.iter().filter(|path| path.is_dir()) {
        let name = inner
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let archives = below(inner).into_iter().filter(is_archive);
        found.extend(archives.map(|path| (name.clone(), path)));
    }
    found
}

/// Joins a path to a URL or another path the way Go does.
fn joined(base: &str, name: &str) -> String {
    let (before, rest) = match base.find("://") {
        Some(end) => base.split_at(end + 3),
        None => ("", base),
    };
    let (rest, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let (authority, path) = if before.is_empty() {
        ("", rest)
    } else {
        rest.split_at(rest.find('/').unwrap_or(rest.len()))
    };
    let mut parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let escaped = utf8_percent_encode(name, ESCAPED).to_string();
    parts.extend(escaped.split('/').filter(|part| !part.is_empty()));
    let lead = if path.starts_with('/') || (!before.is_empty() && !parts.is_empty()) {
        "/"
    } else {
        ""
    };
    format!("{before}{authority}{lead}{}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_joined_as_by_go() {
        for (base, name, expected) in [
            ("", "", ""),
            ("", "web-1.0.0.tgz", "web-1.0.0.tgz"),
            ("sub", "web-1.0.0.tgz", "sub/web-1.0.0.tgz"),
            ("https://host", "", "https://host"),
            ("https://host/", "", "https://host/"),
            ("https://host", "a.tgz", "https://host/a.tgz"),
            (
                "https://host/charts/",
                "a+b c.tgz",
                "https://host/charts/a+b%20c.tgz",
            ),
            (
                "https://host/charts?token=t",
                "a.tgz",
                "https://host/charts/a.tgz?token=t",
            ),
            ("/charts", "a.tgz", "/charts/a.tgz"),
        ] {
            assert_eq!(joined(base, name), expected, "{base} {name}");
        }
    }

    #[test]
    fn metadata_of_a_build_makes_no_other_version() {
        let entries = [Entry {
            metadata: Metadata {
                version: "1.0.0+a".to_owned(),
                ..Metadata::default()
            },
            urls: Vec::new(),
            created: String::new(),
            removed: false,
            digest: String::new(),
        }];
        assert!(has(&entries, "1.0.0+a"));
        assert!(has(&entries, "1.0.0+b"));
        assert!(!has(&entries, "1.0.1"));
        assert!(!has(&entries, "none"));
    }
}
