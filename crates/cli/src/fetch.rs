//! Fetches a chart from the source that the command line describes.

use std::path::Path;

use anyhow::{Result, bail};
use charts::source::{self, Archive, ChartRef, Limits, folder};
use helm::chart::{self, File};

use crate::access::access;
use crate::input::read;
use crate::repo::Named;
use crate::wait::wait_for;
use crate::{args, verify};

/// Any version, pre-releases included.
const DEVELOPMENT: &str = ">0.0.0-0";

/// Fetches the archive of a chart: by its URL, by its name in the repository of `--repo`, or as `repository/chart`.
pub(crate) fn archive(reference: &str, args: &args::Source) -> Result<Archive> {
    let version = args.version.as_deref().or(args.devel.then_some(DEVELOPMENT));
    let is_remote = ["oci://", "http://", "https://"]
        .iter()
        .any(|scheme| reference.starts_with(scheme));
    if args.repo.is_none() && !is_remote {
        if Path::new(reference).is_absolute() || reference.starts_with('.') {
            bail!("path {reference:?} not found");
        }
        return Named::find(reference)?.fetch(version, &args.access);
    }
    let (url, name) = match &args.repo {
        Some(repository) => (repository.as_str(), Some(reference)),
        None => (reference, None),
    };
    let chart = ChartRef::parse(url, name, version)?
        .with_plain_http(args.access.remote.plain_http)
        .with_insecure_skip_verify(args.access.remote.insecure_skip_tls_verify);
    Ok(wait_for(source::fetch(
        &chart,
        &access(&args.access)?,
        Limits::default(),
    ))??)
}

/// The files of a chart, by their paths from its root. Without `--repo`, an existing path on disk is used.
pub(crate) fn files(reference: &str, args: &args::Source) -> Result<Vec<File>> {
    let bytes = if let Some(path) = on_disk(reference, args)? {
        if path.is_dir() {
            return Ok(folder::files(path)?);
        }
        read(path)?
    } else {
        archive(reference, args)?.bytes
    };
    Ok(chart::unpack(&bytes, &chart::Limits::default())?)
}

/// The path that a chart's reference is. An archive is verified by the provenance file beside it.
pub(crate) fn on_disk<'a>(reference: &'a str, args: &args::Source) -> Result<Option<&'a Path>> {
    let path = Path::new(reference);
    if args.repo.is_some() || !path.exists() {
        return Ok(None);
    }
    if args.access.verify {
        verify::check(path, args.access.keyring.as_deref())?;
    }
    Ok(Some(path))
}
