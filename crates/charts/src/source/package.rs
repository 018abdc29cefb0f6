//! Packs a chart's folder into an archive (Helm's `pkg/action/package.go` and `pkg/chart/v2/util/save.go`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::{Compression, GzBuilder};
use helm::chart::{self, Chart, File, Limits, Metadata};
use helm::semver;
use helm::yaml;
use jiff::{Timestamp, Unit};
use serde_json::Value;

use super::folder;

/// What Helm writes into the header of its archives.
const EXTRA: &[u8] = b"rr\x28\x00aHR0cHM6Ly95b3V0dS5iZS96OVV6MWljandyTQo=";
/// Go's value for an unknown operating system.
const SYSTEM: u8 = 255;

/// Overrides for what is in the folder.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The chart's version, instead of that in `Chart.yaml`.
    pub version: Option<String>,
    /// The app version, instead of that in `Chart.yaml`.
    pub app_version: Option<String>,
    /// The time of every file, in seconds since 1970, instead of its modification time.
    pub time: Option<u64>,
}

/// An archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// `web-1.2.3.tgz`.
    pub file_name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A folder that cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error(transparent)]
    Folder(#[from] folder::Error),
    /// It is not a chart.
    #[error(transparent)]
    Chart(#[from] chart::Error),
    /// A chart in it cannot be unpacked.
    #[error("could not unpack {name}")]
    Unpack {
        /// Its path.
        name: String,
        /// Why.
        source: chart::ArchiveError,
    },
    /// The version is invalid.
    #[error(transparent)]
    Version(#[from] semver::Error),
    /// Charts that it depends on are not in it.
    #[error("found in Chart.yaml, but missing in charts/ directory: {}", names.join(", "))]
    Missing {
        /// Their names.
        names: Vec<String>,
    },
    /// The schema is not JSON.
    #[error("invalid JSON in values.schema.json")]
    Schema,
    /// The archive cannot be written.
    #[error("could not write the archive")]
    Write(#[from] io::Error),
}

/// Packs the chart in a folder.
///
/// The same folder and options give the same bytes as long as the files' modification times do not change.
///
/// # Errors
/// [`Error`]
pub fn package(folder: &Path, options: &Options) -> Result<Package, Error> {
    let files = folder::files(folder)?;
    let chart = Chart::from_files(files.clone(), &Limits::default())?;
    let mut metadata = chart.metadata().clone();
    if let Some(version) = &options.version {
        metadata.version.clone_from(version);
    }
    semver::Version::parse(&metadata.version)?;
    if let Some(version) = &options.app_version {
        metadata.app_version.clone_from(version);
    }
    metadata.sanitize_and_validate().map_err(chart::Error::from)?;
    let missing = chart.missing_dependencies();
    if !missing.is_empty() {
        let names = missing.into_iter().map(str::to_owned).collect();
        return Err(Error::Missing { names });
    }
    let times = match options.time {
        Some(seconds) => Times::Fixed(seconds),
        None => Times::OfFiles(folder.to_owned()),
    };
    let mut gathered = Gathered {
        fixed: options.time,
        entries: Vec::new(),
    };
    gathered.add_chart(files, &metadata, "", &times)?;
    Ok(Package {
        file_name: format!("{}-{}.tgz", metadata.name, metadata.version),
        bytes: written(&gathered.entries)?,
    })
}

/// The times of the files in an archive.
enum Times {
    Fixed(u64),
    /// The modification times of the files in this folder.
    OfFiles(PathBuf),
}

impl Times {
    fn of(&self, name: &str) -> u64 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::OfFiles(root) => seconds(&root.join(name)),
        }
    }

    /// The times for a chart in `charts/`: of a folder's files, or of the archive for all its files.
    fn of_subchart(&self, name: &str, is_archive: bool) -> Self {
        match self {
            Self::Fixed(seconds) => Self::Fixed(*seconds),
            Self::OfFiles(root) if is_archive => Self::Fixed(seconds(&root.join("charts").join(name))),
            Self::OfFiles(root) => Self::OfFiles(root.join("charts").join(name)),
        }
    }
}

/// The modification time of a file, in seconds since 1970.
fn seconds(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|found| found.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    // Rounded as Go does when it writes archives.
    since.map_or(0, |since| {
        since.as_secs() + u64::from(since.subsec_millis() >= 500)
    })
}

/// A file of the archive.
struct Entry {
    path: String,
    content: Vec<u8>,
    time: u64,
}

/// The files of an archive, in order.
struct Gathered {
    /// The time of all files, if fixed.
    fixed: Option<u64>,
    entries: Vec<Entry>,
}

impl Gathered {
    /// Adds the files of a chart in Helm's order, those of its subcharts last, each unpacked.
    fn add_chart(
        &mut self,
        files: Vec<File>,
        metadata: &Metadata,
        prefix: &str,
        times: &Times,
    ) -> Result<(), Error> {
        let fixed = self.fixed;
        let chart = Chart::from_files(files.clone(), &Limits::default())?;
        let base = format!("{prefix}{}/", metadata.name);
        let mut add = |name: &str, content: Vec<u8>, time: u64| {
            self.entries.push(Entry {
                path: format!("{base}{name}"),
                content,
                time,
            });
        };
        let is_v2 = metadata.api_version == "v2";
        // A chart with API version v1 has its dependencies in requirements.yaml.
        let mut definition = metadata.clone();
        if !is_v2 {
            definition.dependencies = None;
        }
        add(
            "Chart.yaml",
            text(&serde_json::to_value(&definition))?,
            times.of("Chart.yaml"),
        );
        if is_v2 && let Some(lock) = chart.lock() {
            let mut lock = lock.clone();
            let time = match fixed {
                Some(seconds) => {
                    lock["generated"] = generated(seconds).into();
                    seconds
                }
                None => made(&lock).unwrap_or_else(|| times.of("Chart.lock")),
            };
            add("Chart.lock", text(&Ok(lock))?, time);
        }
        for file in files.iter().filter(|file| file.name == "values.yaml") {
            add(&file.name, file.data.to_vec(), times.of(&file.name));
        }
        if let Some(schema) = chart.schema() {
            serde_json::from_slice::<serde::de::IgnoredAny>(schema).map_err(|_| Error::Schema)?;
            add(
                "values.schema.json",
                schema.to_vec(),
                times.of("values.schema.json"),
            );
        }
        for file in chart.templates().iter().chain(chart.files()) {
            add(&file.name, file.data.to_vec(), times.of(&file.name));
        }
        for (name, files) in subcharts(files) {
            let is_archive = name.strip_suffix(".tgz").is_some();
            let files = match files.as_slice() {
                [packed] if is_archive => {
                    chart::unpack(&packed.data, &Limits::default()).map_err(|source| Error::Unpack {
                        name: format!("charts/{name}"),
                        source,
                    })?
                }
                _ => files,
            };
            let subchart = Chart::from_files(files.clone(), &Limits::default())?;
            let times = times.of_subchart(&name, is_archive);
            self.add_chart(files, subchart.metadata(), &format!("{base}charts/"), &times)?;
        }
        Ok(())
    }
}

/// When a lock was generated, in seconds since 1970.
fn made(lock: &Value) -> Option<u64> {
    let time: Timestamp = lock["generated"].as_str()?.parse().ok()?;
    let rounded = time.round(Unit::Second).ok()?;
    u64::try_from(rounded.as_second()).ok()
}

/// The same, as written in a lock.
pub(super) fn generated(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok();
    let time = time.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

/// The files of each entry of `charts/` that is a chart, by their paths from its root.
fn subcharts(files: Vec<File>) -> BTreeMap<String, Vec<File>> {
    let mut found: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for file in files {
        let Some(rest) = file.name.strip_prefix("charts/") else {
            continue;
        };
        // A provenance file next to an archive belongs to the surrounding chart.
        if rest.strip_suffix(".prov").is_some() || rest.starts_with(['_', '.']) {
            continue;
        }
        let (first, name) = rest.split_once('/').unwrap_or((rest, rest));
        found.entry(first.to_owned()).or_default().push(File {
            name: name.to_owned(),
            data: file.data.clone(),
        });
    }
    found
}

/// YAML as Helm writes it.
fn text(value: &Result<Value, serde_json::Error>) -> Result<Vec<u8>, Error> {
    let value = value
        .as_ref()
        .map_err(|error| io::Error::other(error.to_string()))?;
    let text = yaml::to_string(value).map_err(io::Error::other)?;
    Ok(format!("{}\n", text.trim_end()).into_bytes())
}

fn written(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let gzip = GzBuilder::new()
        .extra(EXTRA)
        .comment("Helm")
        .operating_system(SYSTEM)
        .write(Vec::new(), Compression::default());
    let mut archive = tar::Builder::new(gzip);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(entry.content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(entry.time);
        archive.append_data(&mut header, &entry.path, entry.content.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}
