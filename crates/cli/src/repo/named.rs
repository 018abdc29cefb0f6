//! A chart referred to as `repository/chart`, where the repository was named by `kco repo add` (Helm's
//! `pkg/downloader/chart_downloader.go`).

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use charts::source::dependencies::Repository;
use charts::source::{self, Access, Archive, ChartRef, Credentials, Limits, Password};

use super::{Cache, Entry, File};
use crate::wait::wait_for;
use crate::{access, args, environment, progress};

/// A chart of a repository.
#[derive(Debug)]
pub(crate) struct Named {
    entry: Entry,
    chart: String,
}

impl Named {
    /// Splits a reference, and looks up the repository.
    pub(crate) fn find(reference: &str) -> Result<Self> {
        let (repository, chart) = reference.split_once('/').with_context(|| {
            format!(
                "chart {reference:?} is neither a path nor a URL, nor in form of repo_name/path_to_chart: name its \
                 repository with --repo"
            )
        })?;
        let file = File::load_or_new(&environment::path("HELM_REPOSITORY_CONFIG"))?;
        let entry = file.get(repository).with_context(|| {
            format!("repo {repository} not found: there is no such path either; add it with kco repo add {repository} URL")
        })?;
        Ok(Self {
            entry: entry.clone(),
            chart: chart.to_owned(),
        })
    }

    /// Fetches the chart, using the cached index.
    pub(crate) fn fetch(&self, version: Option<&str>, args: &args::Access) -> Result<Archive> {
        let Self { entry, chart } = self;
        let named = ChartRef::repository(&entry.url)
            .and_then(|_| ChartRef::parse(&entry.url, Some(chart), version))?
            .with_insecure_skip_verify(
                args.remote.insecure_skip_tls_verify || entry.insecure_skip_tls_verify,
            );
        let index = Cache::of(&entry.name)?
            .text()
            .context("no cached repo found. (try 'kco repo update')")?;
        let given = access::access(args)?;
        let kept = access(entry)?;
        let access = Access {
            credentials: given.credentials.or(kept.credentials),
            trust: source::Trust {
                ca_bundle: given.trust.ca_bundle.or(kept.trust.ca_bundle),
                client_cert: given.trust.client_cert.or(kept.trust.client_cert),
            },
            ..given
        };
        let fetched = source::fetch_listed(&named, &index, &access, Limits::default());
        wait_for(fetched)?.with_context(|| {
            format!(
                "could not fetch chart {chart:?} of repository {}. (try 'kco repo update')",
                entry.name
            )
        })
    }
}

/// The credentials for a repository, and what is trusted there. Logins for registries are not used for named
/// repositories.
pub(super) fn access(entry: &Entry) -> Result<Access> {
    let path = |text: &String| (!text.is_empty()).then(|| PathBuf::from(text));
    let credentials = (!entry.username.is_empty() && !entry.password.is_empty()).then(|| Credentials {
        username: entry.username.clone(),
        password: Password::new(entry.password.clone()),
    });
    Ok(Access {
        credentials,
        trust: access::trust(
            path(&entry.ca_file).as_deref(),
            path(&entry.cert_file).as_deref(),
            path(&entry.key_file).as_deref(),
        )?,
        watcher: progress::watcher(),
        ..Access::default()
    })
}

/// All named repositories, for dependencies that refer to one by name or address.
pub(crate) fn all() -> Result<Vec<Repository>> {
    let file = File::load_or_new(&environment::path("HELM_REPOSITORY_CONFIG"))?;
    let named = file.repositories.iter().map(|entry| {
        Ok(Repository {
            name: entry.name.clone(),
            url: entry.url.clone(),
            access: access(entry)?,
            insecure_skip_verify: entry.insecure_skip_tls_verify,
        })
    });
    named.collect()
}
