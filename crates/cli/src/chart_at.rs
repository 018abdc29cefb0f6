//! The chart that a command line names: on disk, in a repository, in a registry (Helm's `LocateChart`).

use std::path::Path;

use anyhow::{Context, Result, bail};
use helm::chart::{Chart, Limits};
use helm_client::source::{self, Access, ChartRef, Credentials, Password, folder};

use crate::args;

/// Loads the chart. Without `--repo` a path that exists wins over everything else.
pub(crate) fn load(reference: &str, args: &args::Source) -> Result<Chart> {
    let path = Path::new(reference);
    if args.repo.is_none() && path.exists() {
        return folder::load(path).map_err(|error| match error {
            // Helm names the chart's fault alone; the path was just typed.
            folder::Error::Load { source, .. } => source.into(),
            other => other.into(),
        });
    }
    let is_remote = ["oci://", "http://", "https://"]
        .iter()
        .any(|scheme| reference.starts_with(scheme));
    if args.repo.is_none() && !is_remote {
        if path.is_absolute() || reference.starts_with('.') {
            bail!("path {reference:?} not found");
        }
        bail!("chart {reference:?} is neither a path nor a URL; name its repository with --repo");
    }
    fetch(reference, args)
}

fn fetch(reference: &str, args: &args::Source) -> Result<Chart> {
    let (url, name) = match &args.repo {
        Some(repository) => (repository.as_str(), Some(reference)),
        None => (reference, None),
    };
    let chart = ChartRef::parse(url, name, args.version.as_deref())?
        .with_plain_http(args.plain_http)
        .with_insecure_skip_verify(args.insecure_skip_tls_verify);
    let access = Access {
        credentials: args.username.as_ref().map(|username| Credentials {
            username: username.clone(),
            password: Password::new(args.password.clone().unwrap_or_default()),
        }),
        ..Access::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start")?;
    let archive = runtime.block_on(source::fetch(&chart, &access, source::Limits::default()))?;
    Ok(Chart::from_archive(&archive.bytes, &Limits::default())?)
}
