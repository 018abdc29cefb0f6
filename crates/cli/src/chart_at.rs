//! Finds the chart that a command line names: on disk, in a repository, in a registry (Helm's `LocateChart`).

use std::fs;
use std::path::Path;

use anyhow::Result;
use charts::source::folder;
use helm::digest::sha256;
use helm::{
    chart::{Chart, ChartOptions, File},
    line::HelmLine,
};

use crate::{args, dependency, fetch};

/// A chart and where it was found.
pub(crate) struct Located {
    pub(crate) chart: Chart,
    /// `sha256:` and the digest of the archive, or of the files of a folder.
    pub(crate) digest: String,
}

/// Loads the chart. Without `--repo` a path that exists wins over everything else.
pub(crate) fn load(reference: &str, args: &args::Source) -> Result<Chart> {
    Ok(locate(reference, args)?.chart)
}

/// Loads the chart, with its digest.
pub(crate) fn locate(reference: &str, args: &args::Source) -> Result<Located> {
    locate_as(reference, args, HelmLine::Four)
}

/// [`locate`] by the rules of a given line of Helm.
pub(crate) fn locate_as(reference: &str, args: &args::Source, helm: HelmLine) -> Result<Located> {
    let options = ChartOptions::from(helm);
    if let Some(path) = fetch::on_disk(reference, args)? {
        return on_disk(path, options);
    }
    let archive = fetch::archive(reference, args)?;
    Ok(Located {
        chart: Chart::from_archive(&archive.bytes, options)?,
        digest: archive.digest,
    })
}

/// [`locate_as`], after charts that one in a folder needs were fetched into it, if they are missing.
pub(crate) fn complete(reference: &str, args: &args::Source, helm: HelmLine) -> Result<Located> {
    let located = locate_as(reference, args, helm)?;
    let folder = fetch::on_disk(reference, args)?.filter(|path| path.is_dir());
    match folder {
        Some(folder) if !located.chart.missing_dependencies().is_empty() => {
            dependency::update(folder, &args.access.remote)?;
            locate_as(reference, args, helm)
        }
        _ => Ok(located),
    }
}

/// Like Helm's, the error describes the fault without the path, which the user has just typed.
fn on_disk(path: &Path, options: ChartOptions) -> Result<Located> {
    let (chart, digest) = if path.is_dir() {
        let files = folder::files_as(path, options)?;
        let digest = digest_of(&files);
        (Chart::from_files(files, options)?, digest)
    } else {
        let archive = fs::read(path).map_err(|source| folder::Error::Read {
            path: path.to_owned(),
            source,
        })?;
        (Chart::from_archive(&archive, options)?, sha256(&archive))
    };
    Ok(Located { chart, digest })
}

/// The same files give the same digest, wherever their folder is.
fn digest_of(files: &[File]) -> String {
    let mut all = Vec::new();
    for file in files {
        for part in [file.name.as_bytes(), &file.data] {
            all.extend_from_slice(&(part.len() as u64).to_be_bytes());
            all.extend_from_slice(part);
        }
    }
    sha256(&all)
}
