//! Finds the chart that a command line names: on disk, in a repository, in a registry (Helm's `LocateChart`).

use std::fs;

use anyhow::Result;
use charts::source::{Archive, folder};
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
    load_as(reference, args, HelmLine::Four)
}

/// Loads the chart, with its digest.
pub(crate) fn locate(reference: &str, args: &args::Source) -> Result<Located> {
    locate_as(reference, args, HelmLine::Four)
}

fn locate_as(reference: &str, args: &args::Source, helm: HelmLine) -> Result<Located> {
    let options = helm.into();
    let raw = RawChart::at(reference, args, options)?;
    let digest = raw.digest();
    Ok(Located {
        chart: raw.chart(options)?,
        digest,
    })
}

/// Like [`locate`], by the rules of a given line of Helm, after the missing charts that a chart in a folder needs were
/// fetched into it.
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

/// [`load`] by the rules of a given line of Helm.
pub(crate) fn load_as(reference: &str, args: &args::Source, helm: HelmLine) -> Result<Chart> {
    RawChart::at(reference, args, helm.into())?.chart(helm.into())
}

/// A chart before it is loaded.
enum RawChart {
    Folder(Vec<File>),
    File(Vec<u8>),
    Fetched(Box<Archive>),
}

impl RawChart {
    fn at(reference: &str, args: &args::Source, options: ChartOptions) -> Result<Self> {
        let Some(path) = fetch::on_disk(reference, args)? else {
            return Ok(Self::Fetched(Box::new(fetch::archive(reference, args)?)));
        };
        if path.is_dir() {
            return Ok(Self::Folder(folder::files_as(path, options)?));
        }
        let archive = fs::read(path).map_err(|source| folder::Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::File(archive))
    }

    fn digest(&self) -> String {
        match self {
            Self::Folder(files) => digest_of(files),
            Self::File(archive) => sha256(archive),
            Self::Fetched(archive) => archive.digest.clone(),
        }
    }

    /// The chart. Like Helm's, the error describes the fault without the path, which the user has just typed.
    fn chart(self, options: ChartOptions) -> Result<Chart> {
        Ok(match self {
            Self::Folder(files) => Chart::from_files(files, options)?,
            Self::File(archive) => Chart::from_archive(&archive, options)?,
            Self::Fetched(archive) => Chart::from_archive(&archive.bytes, options)?,
        })
    }
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
