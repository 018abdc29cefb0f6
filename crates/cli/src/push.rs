//! `kco push`: pushes a chart's archive to a registry like `helm push`: with the same manifest to the byte (Helm's
//! `pkg/pusher/ocipusher.go` and `pkg/registry/client.go`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use charts::source::Limits;
use charts::source::push::{self, Artifact, Host};
use clap::Args;
use helm::chart::{Chart, ChartOptions, Metadata};
use helm::digest::sha256;
use helm::line::HelmLine;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use oci_client::Reference;
use oci_client::annotations::{
    ORG_OPENCONTAINERS_IMAGE_AUTHORS, ORG_OPENCONTAINERS_IMAGE_CREATED, ORG_OPENCONTAINERS_IMAGE_DESCRIPTION,
    ORG_OPENCONTAINERS_IMAGE_SOURCE, ORG_OPENCONTAINERS_IMAGE_TITLE, ORG_OPENCONTAINERS_IMAGE_URL,
    ORG_OPENCONTAINERS_IMAGE_VERSION,
};
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};

use crate::access::access_by;
use crate::release::output;
use crate::wait::wait_for;
use crate::{args, pull, report};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// Time limit for a push. It is long because a slow connection is no failure: Helm has no limit at all.
const LONGEST: Duration = Duration::from_hours(1);

/// The flags of `helm push`.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The chart's archive. The provenance beside it, with .prov at the end of the name, is pushed with it.
    chart: PathBuf,
    /// Where to, as `oci://host/path`. The chart's name and version are appended.
    remote: String,
    #[command(flatten)]
    access: args::Remote,
}

/// Pushes a chart.
pub(crate) fn run(args: &Push) -> Result<()> {
    let Some((scheme, place)) = args.remote.split_once("://") else {
        bail!("scheme prefix missing from remote (e.g. \"oci://\")");
    };
    if scheme != "oci" {
        bail!("scheme {scheme:?} not supported: charts are pushed to oci://host/path");
    }
    let packed = Packed::read(&args.chart)?;
    let metadata = packed.chart.metadata();
    let target = Target::of(place, &metadata.name, &metadata.version)?;
    let artifact = packed.artifact()?;
    let host = Host::parse(&target.host)?
        .with_plain_http(args.access.plain_http)
        .with_insecure_skip_verify(args.access.insecure_skip_tls_verify);
    let limits = Limits {
        time: LONGEST,
        ..Limits::default()
    };
    let access = access_by(&args.access)?;
    let pushed = push::push(&host, &target.repository, &target.tag, &artifact, &access, limits);
    wait_for(pushed)?.with_context(|| format!("could not push {}", args.chart.display()))?;
    let place = format!("{}/{}:{}", target.host, target.repository, target.tag);
    let note = if target.tag.contains('_') {
        pull::underscore(&place)
    } else {
        String::new()
    };
    report::out(&format!(
        "Pushed: {place}\nDigest: {}\n{note}",
        sha256(&artifact.manifest)
    ))
}

/// The destination of a chart.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    repository: String,
    tag: String,
}

impl Target {
    /// Appends the chart's name to the path, with its version as the tag.
    fn of(place: &str, name: &str, version: &str) -> Result<Self> {
        let mut parts = place.split('/').filter(|part| !part.is_empty() && *part != ".");
        let host = parts
            .next()
            .context("the remote names no registry: write oci://host/path")?;
        let repository = parts.chain([name]).collect::<Vec<_>>().join("/");
        let tag = version.replace('+', "_");
        // The host is checked separately, because references do not support IPv6.
        let reference = format!("localhost/{repository}:{tag}");
        let is_reference = reference.is_ascii() && Reference::try_from(reference.as_str()).is_ok();
        if !is_reference {
            bail!(
                "invalid reference: {repository}:{tag} is no name and tag of a registry: names are lower-case letters and \
                 digits, joined by one of . _ -, and separated by /"
            );
        }
        Ok(Self {
            host: host.to_owned(),
            repository,
            tag,
        })
    }
}

/// An archive on disk.
struct Packed {
    chart: Chart,
    bytes: Vec<u8>,
    /// The provenance file next to it.
    provenance: Option<Vec<u8>>,
    /// When the archive was written.
    written: SystemTime,
}

impl Packed {
    fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let found = match fs::metadata(path) {
            Err(absent) if absent.kind() == std::io::ErrorKind::NotFound => bail!("{shown}: no such file"),
            found => found.with_context(|| format!("could not read {shown}"))?,
        };
        if found.is_dir() {
            bail!("cannot push directory, must provide chart archive (.tgz)");
        }
        let bytes = fs::read(path).with_context(|| format!("could not read {shown}"))?;
        let chart = Chart::from_archive(&bytes, ChartOptions::from(HelmLine::Four))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".prov");
        let provenance = match fs::read(&beside) {
            Err(absent) if absent.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read.with_context(|| format!("could not read {shown}.prov"))?),
        };
        Ok(Self {
            chart,
            bytes,
            provenance,
            written: found.modified()?,
        })
    }

    /// The artifact that Helm makes of it.
    fn artifact(self) -> Result<Artifact> {
        let metadata = self.chart.metadata();
        let config = go_json(metadata)?.into_bytes();
        let mut layers = vec![(CHART, self.bytes)];
        layers.extend(self.provenance.map(|text| (PROVENANCE, text)));
        let mut described: Vec<_> = layers
            .iter()
            .map(|(media_type, bytes)| descriptor(media_type, bytes))
            .collect();
        described.sort_by(|one, other| one.digest.cmp(&other.digest));
        let manifest = OciImageManifest {
            config: descriptor(CONFIG, &config),
            layers: described,
            annotations: Some(annotations(
                metadata,
                &timestamp(self.written, TimeZone::system())?,
            )),
            ..OciImageManifest::default()
        };
        let blobs = layers.into_iter().map(|(_, bytes)| bytes);
        Ok(Artifact {
            blobs: blobs.chain([config]).map(Arc::from).collect(),
            manifest: go_json(&manifest)?.into_bytes().into(),
            media_type: OCI_IMAGE_MEDIA_TYPE,
        })
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: sha256(bytes),
        size: bytes.len() as i64,
        urls: None,
        annotations: None,
        artifact_type: None,
    }
}

/// Helm's annotations of a manifest: from Chart.yaml, and those of the chart, which may set all but two.
fn annotations(metadata: &Metadata, created: &str) -> BTreeMap<String, String> {
    let source = metadata.sources.first().map_or("", String::as_str);
    let own = [
        (
            ORG_OPENCONTAINERS_IMAGE_DESCRIPTION,
            metadata.description.as_str(),
        ),
        (ORG_OPENCONTAINERS_IMAGE_TITLE, &metadata.name),
        (ORG_OPENCONTAINERS_IMAGE_VERSION, &metadata.version),
        (ORG_OPENCONTAINERS_IMAGE_URL, &metadata.home),
        (ORG_OPENCONTAINERS_IMAGE_CREATED, created),
        (ORG_OPENCONTAINERS_IMAGE_SOURCE, source),
        (ORG_OPENCONTAINERS_IMAGE_AUTHORS, &authors(metadata)),
    ];
    let own = own.into_iter().filter(|(_, value)| !value.trim().is_empty());
    let mut all: BTreeMap<String, String> = own
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let fixed = [ORG_OPENCONTAINERS_IMAGE_VERSION, ORG_OPENCONTAINERS_IMAGE_TITLE];
    for (name, value) in &metadata.annotations {
        if !fixed.contains(&name.as_str()) {
            all.insert(name.clone(), value.clone());
        }
    }
    all
}

fn authors(metadata: &Metadata) -> String {
    let shown = metadata.maintainers.iter().map(|maintainer| {
        if maintainer.email.is_empty() {
            maintainer.name.clone()
        } else {
            format!("{} ({})", maintainer.name, maintainer.email)
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A time the way Go prints it (RFC 3339, in seconds, with this machine's offset).
fn timestamp(time: SystemTime, zone: TimeZone) -> Result<String> {
    let time = Timestamp::try_from(time)?.to_zoned(zone);
    let offset = if time.offset().seconds() == 0 { "Z" } else { "%:z" };
    Ok(time.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string())
}

/// JSON the way Go writes it.
fn go_json(value: &impl serde::Serialize) -> Result<String> {
    Ok(output::escaped(&serde_json::to_string(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(place: &str, name: &str, version: &str) -> Option<String> {
        let target = Target::of(place, name, version).ok()?;
        Some(format!("{} {} {}", target.host, target.repository, target.tag))
    }

    #[test]
    fn name_and_version_are_appended_to_the_remote() {
        for (place, name, version, expected) in [
            ("ghcr.io/charts", "web", "1.2.3", Some("ghcr.io charts/web 1.2.3")),
            ("host:5000", "web", "1.2.3+b", Some("host:5000 web 1.2.3_b")),
            (
                "host:5000//a/./b/",
                "web",
                "1.0.0",
                Some("host:5000 a/b/web 1.0.0"),
            ),
            ("[::1]:5000/a", "web", "1.0.0", Some("[::1]:5000 a/web 1.0.0")),
            ("host/Charts", "web", "1.0.0", None),
            ("host/..", "web", "1.0.0", None),
            ("host/a?b", "web", "1.0.0", None),
            ("host/a:1", "web", "1.0.0", None),
            ("host", "Web", "1.0.0", None),
            ("host", "web", "1.0.0 or so", None),
            ("host", "web", "1.0.0-é", None),
            ("", "web", "1.0.0", None),
        ] {
            assert_eq!(
                target(place, name, version).as_deref(),
                expected,
                "{place} {name}"
            );
        }
    }

    #[test]
    fn a_time_is_printed_as_go_prints_it() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_750);
        let at = |hours| timestamp(time, TimeZone::fixed(jiff::tz::offset(hours))).unwrap();
        assert_eq!(at(0), "2023-11-14T22:13:20Z");
        assert_eq!(at(2), "2023-11-15T00:13:20+02:00");
    }

    #[test]
    fn a_chart_annotates_all_but_its_name_and_version() {
        let metadata: Metadata = serde_json::from_value(serde_json::json!({
            "name": "web", "version": "1.0.0", "home": " ", "sources": ["https://a", "https://b"],
            "maintainers": [{"name": "A", "email": "a@example.com"}, {"name": "B"}],
            "annotations": {
                "org.opencontainers.image.title": "other",
                "org.opencontainers.image.source": "https://c",
                "team": "t",
            },
        }))
        .unwrap();
        let found = annotations(&metadata, "now");
        let shown: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{}={value}", name.trim_start_matches("org.opencontainers.image.")))
            .collect();
        assert_eq!(
            shown,
            [
                "authors=A (a@example.com), B",
                "created=now",
                "source=https://c",
                "title=web",
                "version=1.0.0",
                "team=t"
            ]
        );
    }
}
