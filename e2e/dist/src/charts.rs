//! Charts as they are published: with the version and the digests of its images, as an archive and as an OCI artifact.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::assembly::Facts;
use crate::oci::{Layout, MANIFEST, digest_of};

/// A published chart.
#[derive(Debug)]
struct Published {
    name: &'static str,
    /// Its folder among the sources.
    folder: &'static str,
    what: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It installs programs.
    Plain,
    /// It has subcharts: one of ours, and others.
    Umbrella,
    /// The sample for a first composition. Its image is a value.
    Sample,
}

const CHARTS: [Published; 5] = [
    Published {
        name: "core-provider",
        folder: "charts/core-provider",
        what: Kind::Plain,
    },
    Published {
        name: "join-service",
        folder: "charts/join-service",
        what: Kind::Plain,
    },
    Published {
        name: "multicluster-operator",
        folder: "charts/multicluster-operator",
        what: Kind::Plain,
    },
    Published {
        name: "installer",
        folder: "charts/installer",
        what: Kind::Umbrella,
    },
    Published {
        name: "web",
        folder: "e2e/charts/web",
        what: Kind::Sample,
    },
];

/// Our own subchart of the umbrella.
const ENGINE: &str = "core-provider";
/// The program whose image the sample names.
const SAMPLE_PROGRAM: &str = "web-server";
/// Where templates find the digests of images.
const DIGESTS: &str = "digests.json";

const HELM_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const HELM_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// A chart, made.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    /// The digest of its manifest in a registry.
    pub(crate) digest: String,
    /// The archive for Helm.
    pub(crate) archive: Vec<u8>,
    /// The archive of an OCI layout.
    pub(crate) layout: Vec<u8>,
}

/// The inputs of charts.
#[derive(Debug)]
pub(crate) struct Packer<'a> {
    pub(crate) facts: &'a Facts,
    /// The sources of the version.
    pub(crate) source: &'a Path,
    /// The program that packs charts.
    pub(crate) kco: &'a Path,
    /// Digest of the image of each program.
    pub(crate) digests: &'a BTreeMap<&'static str, String>,
    /// A folder with each third-party subchart under its name; without it they are left out.
    pub(crate) subcharts: Option<&'a Path>,
    /// A folder for temporary files.
    pub(crate) scratch: &'a Path,
}

impl Packer<'_> {
    /// All charts.
    pub(crate) fn charts(&self) -> Result<Vec<Chart>> {
        CHARTS
            .iter()
            .map(|chart| {
                self.chart(chart)
                    .with_context(|| format!("could not package the chart {}", chart.name))
            })
            .collect()
    }

    fn chart(&self, chart: &Published) -> Result<Chart> {
        let folder = self.prepare(chart)?;
        let archive = self.pack(&folder, chart.name)?;
        let mut metadata = metadata(&folder)?;
        self.set_version(&mut metadata);
        let mut layout = Layout::default();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": layout.add_json(HELM_CONFIG, &metadata),
            "layers": [layout.add(HELM_CONTENT, archive.clone())],
            "annotations": {
                "org.opencontainers.image.title": chart.name,
                "org.opencontainers.image.version": self.facts.version.as_str(),
                "org.opencontainers.image.description": metadata["description"],
                "org.opencontainers.image.revision": self.facts.commit,
                "org.opencontainers.image.created": self.facts.created(),
            },
        });
        let root = layout.add_json(MANIFEST, &manifest);
        let reference = self.facts.reference(&format!("charts/{}", chart.name));
        Ok(Chart {
            name: chart.name,
            digest: digest_of(&root).to_owned(),
            archive,
            layout: layout.finish(&root, &reference, self.facts.version.as_str())?,
        })
    }

    /// The chart's folder, as it is packed.
    fn prepare(&self, chart: &Published) -> Result<PathBuf> {
        let folder = self.scratch.join(chart.name);
        copy(&self.source.join(chart.folder), &folder)?;
        ensure!(
            folder.join("values.schema.json").is_file(),
            "it has no values.schema.json"
        );
        match chart.what {
            Kind::Plain => self.pin(&folder)?,
            Kind::Umbrella => {
                self.pin(&folder)?;
                self.add_subcharts(&folder)?;
            }
            Kind::Sample => self.name_image(&folder)?,
        }
        Ok(folder)
    }

    fn pin(&self, folder: &Path) -> Result<()> {
        let digests = serde_json::to_string_pretty(self.digests)?;
        Ok(fs::write(folder.join(DIGESTS), digests + "\n")?)
    }

    /// Puts subcharts in place, and removes from Chart.yaml those that are left out.
    fn add_subcharts(&self, folder: &Path) -> Result<()> {
        let mut metadata = metadata(folder)?;
        let dependencies = metadata["dependencies"]
            .as_array_mut()
            .context("Chart.yaml of the umbrella has no dependencies")?;
        if self.subcharts.is_none() {
            dependencies.retain(|dependency| dependency["name"] == ENGINE);
        }
        for dependency in dependencies {
            let name = dependency["name"].as_str().unwrap_or_default().to_owned();
            let into = folder.join("charts").join(&name);
            if name == ENGINE {
                dependency["version"] = self.facts.version.as_str().into();
                copy(&self.source.join("charts").join(ENGINE), &into)?;
                self.pin(&into)?;
                let mut own = self::metadata(&into)?;
                self.set_version(&mut own);
                write_metadata(&into, &own)?;
            } else if let Some(subcharts) = self.subcharts {
                copy(&subcharts.join(&name), &into)?;
            }
        }
        write_metadata(folder, &metadata)
    }

    /// The sample uses the image of this version.
    fn name_image(&self, folder: &Path) -> Result<()> {
        let image = format!(
            "{}:{}@{}",
            self.facts.reference(SAMPLE_PROGRAM),
            self.facts.version,
            self.digests
                .get(SAMPLE_PROGRAM)
                .with_context(|| format!("there is no image of {SAMPLE_PROGRAM}"))?
        );
        let values = folder.join("values.yaml");
        let text = fs::read_to_string(&values)?;
        let lines = text.lines().map(|line| {
            if line.starts_with("image:") {
                format!("image: {image}")
            } else {
                line.to_owned()
            }
        });
        Ok(fs::write(&values, lines.collect::<Vec<_>>().join("\n") + "\n")?)
    }

    fn set_version(&self, metadata: &mut Value) {
        for key in ["version", "appVersion"] {
            metadata[key] = self.facts.version.as_str().into();
        }
    }

    /// The archive of a folder, as `helm package` makes it, with one time for all files.
    fn pack(&self, folder: &Path, name: &str) -> Result<Vec<u8>> {
        let version = self.facts.version.as_str();
        let destination = self.scratch.join("packed");
        let output = Command::new(self.kco)
            .arg("package")
            .arg(folder)
            .args(["--version", version, "--app-version", version, "--destination"])
            .arg(&destination)
            .env("SOURCE_DATE_EPOCH", self.facts.time.to_string())
            .output()
            .with_context(|| format!("could not start {}", self.kco.display()))?;
        ensure!(
            output.status.success(),
            "kco package: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(fs::read(destination.join(format!("{name}-{version}.tgz")))?)
    }
}

/// Chart.yaml.
fn metadata(folder: &Path) -> Result<Value> {
    let text = fs::read_to_string(folder.join("Chart.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// JSON is YAML, and the program that packs the chart writes the file as Helm does.
fn write_metadata(folder: &Path, metadata: &Value) -> Result<()> {
    Ok(fs::write(folder.join("Chart.yaml"), metadata.to_string())?)
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("could not read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
