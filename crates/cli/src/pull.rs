//! `kco pull`: fetches charts with the same files and output as `helm pull` (Helm's `pkg/action/pull.go`).

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use charts::source::Archive;
use clap::Args;
use helm::chart::{self, Chart, File, Limits};

use crate::{args, fetch, report, verify};

/// Helm's note about tags in which an underscore may stand for a plus sign.
const UNDERSCORE: &str = "
OCI artifact references (e.g. tags) do not support the plus sign (+). To support
storing semantic versions, Helm adopts the convention of changing plus (+) to
an underscore (_) in chart version tags when pushing to a registry and back to
a plus (+) when pulling from a registry.
";

/// The flags of `helm pull`.
#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Charts: URLs, OCI references, REPOSITORY/CHART, or with --repo names.
    #[arg(required = true)]
    charts: Vec<String>,
    /// Unpack the chart.
    #[arg(long)]
    untar: bool,
    /// With --untar: the folder into which the chart's own folder is put, below --destination.
    #[arg(long, default_value = ".")]
    untardir: PathBuf,
    /// The folder to write to.
    #[arg(short, long, default_value = ".")]
    destination: PathBuf,
    /// Fetch the provenance file as well, without checking it.
    #[arg(long)]
    prov: bool,
    #[command(flatten)]
    source: args::Source,
}

/// Fetches charts.
pub(crate) fn run(mut args: Pull) -> Result<()> {
    args.source.access.provenance = args.prov || args.source.access.verify;
    for chart in &args.charts {
        pull(chart, &args)?;
    }
    Ok(())
}

fn pull(reference: &str, args: &Pull) -> Result<()> {
    let archive = fetch::archive(reference, &args.source)?;
    report::out(&said(&archive))?;
    if args.untar {
        return untar(reference, &archive, args);
    }
    let file = args.destination.join(archive.resolved.file_name());
    fs::write(&file, &archive.bytes).with_context(|| format!("could not write {}", file.display()))?;
    match &archive.provenance {
        Some(provenance) => verify::write_provenance(&file, provenance),
        None if args.prov => report::out(&format!(
            "WARNING: Verification not found for {reference}: it has no provenance file\n"
        )),
        None => Ok(()),
    }
}

/// What Helm prints after a fetch: for a registry, where the chart is; with `--verify`, who signed it.
fn said(archive: &Archive) -> String {
    let mut said = String::new();
    if let (Some(place), Some(manifest)) = (
        archive.resolved.found_at.strip_prefix("oci://"),
        &archive.resolved.manifest_digest,
    ) {
        said = format!("Pulled: {place}\nDigest: {manifest}\n");
        if place.contains('_') {
            said.push_str(&underscore(place));
        }
    }
    if let Some(signer) = &archive.resolved.signed_by {
        // The name, and the fingerprint in brackets.
        let (name, fingerprint) = signer.rsplit_once(" (").unwrap_or((signer, ""));
        said = format!(
            "{said}Signed by: {name}\nUsing Key With Fingerprint: {}\nChart Hash Verified: {}\n",
            fingerprint.trim_end_matches(')'),
            archive.digest
        );
    }
    said
}

/// Helm's note about a reference with an underscore.
pub(crate) fn underscore(place: &str) -> String {
    format!("{place} contains an underscore.\n{UNDERSCORE}")
}

fn untar(reference: &str, archive: &Archive, args: &Pull) -> Result<()> {
    let into = args.destination.join(&args.untardir);
    // Like Helm, named after the last part of the argument, not after the chart.
    let typed = reference.rsplit('/').next().unwrap_or_default();
    let taken = into.join(typed);
    if taken.exists() {
        bail!(
            "failed to untar: a file or directory with the name {} already exists",
            taken.display()
        );
    }
    let files = chart::unpack(&archive.bytes, &Limits::default())?;
    let chart = Chart::from_files(files.clone(), &Limits::default())?;
    let folder = into.join(single(chart.name())?);
    files.iter().try_for_each(|file| write(&folder, file))
}

/// The chart's name as a folder: a single part of a path, and not `..`.
fn single(name: &str) -> Result<&Path> {
    let path = Path::new(name);
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(path),
        _ => bail!("chart name {name:?} is not allowed"),
    }
}

fn write(folder: &Path, file: &File) -> Result<()> {
    let path = folder.join(&file.name);
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, &file.data));
    written.with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_unpacked_into_a_folder_of_its_own() {
        assert!(single("web").is_ok());
        for name in ["", ".", "..", "a/b", "/a"] {
            assert!(single(name).is_err(), "{name}");
        }
    }
}
