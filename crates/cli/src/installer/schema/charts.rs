//! Fetches the charts of all components concurrently.

use anyhow::{Context as _, Result, ensure};
use charts::source::{self, Access, ChartRef, Limits};
use futures::StreamExt as _;
use helm::chart::{Chart, ChartOptions};
use helm::line::HelmLine;

use crate::args;
use crate::installer::components::{Component, List};
use crate::wait::wait_for;
use crate::{access, progress};

/// How many charts are fetched at a time.
const AT_ONCE: usize = 6;

/// The chart of a component, or the error.
pub(in crate::installer) struct Fetched {
    /// Name of the component.
    pub(in crate::installer) name: String,
    pub(in crate::installer) chart: Result<FetchedChart>,
}

/// A fetched chart.
pub(in crate::installer) struct FetchedChart {
    pub(in crate::installer) chart: Chart,
    /// Digest of its archive.
    pub(in crate::installer) digest: String,
}

/// Fetches the charts of all components, including the ones that are off, in the order of the list. Shows progress on a
/// terminal.
///
/// # Errors
/// If the files for access cannot be read.
pub(in crate::installer) fn fetch_all(list: &List, access: &args::Access) -> Result<Vec<Fetched>> {
    fetch(list, list.components.iter().collect(), access, Limits::default())
}

/// The same for some components, within other limits.
///
/// # Errors
/// If the files for access cannot be read.
pub(in crate::installer) fn fetch(
    list: &List,
    components: Vec<&Component>,
    access: &args::Access,
    limits: Limits,
) -> Result<Vec<Fetched>> {
    let connection = access::access(access)?;
    let total = components.len();
    let fetched = wait_for(async {
        let mut done = 0;
        futures::stream::iter(components)
            .map(|component| fetch_one(list, component, access, &connection, limits))
            .buffered(AT_ONCE)
            .inspect(|fetched| {
                done += 1;
                told(done, total, fetched);
            })
            .collect::<Vec<_>>()
            .await
    })?;
    Ok(fetched)
}

async fn fetch_one(
    list: &List,
    component: &Component,
    given: &args::Access,
    access: &Access,
    limits: Limits,
) -> Fetched {
    let fetched = async {
        let url = list.url(component);
        let chart = ChartRef::parse(&url, Some(&component.chart_repo), Some(&component.version))?
            .with_plain_http(given.remote.plain_http || list.plain_http)
            .with_insecure_skip_verify(
                given.remote.insecure_skip_tls_verify || list.insecure_skip_tls_verify,
            );
        let archive = source::fetch(&chart, access, limits).await?;
        let chart = Chart::from_archive(&archive.bytes, ChartOptions::from(HelmLine::Four))
            .with_context(|| format!("{} is not a chart", archive.resolved.found_at))?;
        let version = &chart.metadata().version;
        ensure!(
            *version == component.version,
            "{} is version {version}, the list has {}",
            archive.resolved.found_at,
            component.version
        );
        Ok(FetchedChart {
            chart,
            digest: archive.digest,
        })
    };
    Fetched {
        name: component.name.clone(),
        chart: fetched.await,
    }
}

fn told(done: usize, total: usize, fetched: &Fetched) {
    let word = if fetched.chart.is_ok() {
        "fetched"
    } else {
        "failed"
    };
    progress::step(&format!("{} {word}", fetched.name));
    progress::count("charts fetched", done, total);
}
