//! More writes than users make: measures how long the API server waits for core-provider's webhook.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use local_cluster::registry::Settings;

use super::{Counts, Pace, Traffic, judged_chart, wait_until_judged};
use crate::host_platform::free_port;
use crate::platform::{NAMESPACE, RELEASE};
use crate::proxy::Proxy;
use crate::{HostPlatform, Site, progress};

/// Five hundred a second, if the machine is fast enough.
const PACE: Pace = Pace {
    writers: 25,
    pause: Duration::from_millis(50),
};

/// The results.
#[derive(Debug)]
pub struct Load {
    counts: Counts,
    time: Duration,
    /// Calls of the webhook that took at most this many seconds, by bucket; `+Inf` is all of them.
    within: BTreeMap<String, u64>,
}

impl Load {
    /// True if every write was answered according to the chart's schema.
    pub fn is_right(&self) -> bool {
        self.counts.right == self.counts.asked()
    }

    /// The percentile of the calls' durations in milliseconds, as an upper bound: the API server counts in buckets.
    fn percentile(&self, percent: f64) -> f64 {
        let mut bounds: Vec<(f64, f64)> = self
            .within
            .iter()
            .filter_map(|(bound, count)| Some((bound.parse().ok()?, *count as f64)))
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = bounds.last().map_or(0.0, |(_, count)| *count);
        let rank = all * percent / 100.0;
        let (mut from, mut below) = (0.0, 0.0);
        for (bound, count) in bounds {
            if count >= rank {
                if bound.is_infinite() || count <= below {
                    return from * 1000.0;
                }
                return 1000.0 * (from + (bound - from) * (rank - below) / (count - below));
            }
            (from, below) = (bound, count);
        }
        f64::NAN
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.within.get("+Inf").copied().unwrap_or_default();
        let soon = self.within.get("0.005").copied().unwrap_or_default();
        write!(
            f,
            "{:.0} writes a second, {}; {all} calls of the webhook: {:.2} % within 5 ms, p50 {:.1} ms, p99 {:.1} ms",
            self.counts.asked() as f64 / self.time.as_secs_f64(),
            self.counts,
            100.0 * soon as f64 / all as f64,
            self.percentile(50.0),
            self.percentile(99.0)
        )
    }
}

/// Writes for this long.
///
/// # Errors
/// When the platform does not come up, or the API server does not tell how long it waited.
pub fn run(time: Duration) -> Result<Load> {
    let platform = HostPlatform::installed()?;
    let namespace = platform.namespace("load-admission")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let package = judged_chart("loaded")?.package(namespace.site())?;
    let url = package.push(namespace.site(), &registry.to_string(), &["--plain-http"])?;
    namespace.define("loaded", &url, "1.0.0")?;
    let port = free_port()?.to_string();
    let url = format!("https://127.0.0.1:{port}");
    let mut provider = platform.provider()?;
    provider
        .env("CORE_PROVIDER_WEBHOOK_PORT", &port)
        .env("CORE_PROVIDER_WEBHOOK_URL", &url);
    let proxy = Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?;
    proxy.start(provider, None)?;
    namespace.wait("validatingwebhookconfigurations", WEBHOOKS, |_| true)?;
    wait_until_judged(&namespace, "Loaded")?;
    // Connections are open, and everything that is compiled on first use is compiled.
    let traffic = Traffic::start(platform.plane(), namespace.namespace(), "Loaded", "loadeds", PACE)?;
    std::thread::sleep(Duration::from_secs(3));
    progress("writing");
    let (begun, counts, waited) = (Instant::now(), traffic.counts(), waited(namespace.site())?);
    std::thread::sleep(time);
    let load = Load {
        counts: traffic.counts().since(&counts),
        time: begun.elapsed(),
        within: since(self::waited(namespace.site())?, &waited),
    };
    drop(traffic);
    ensure!(
        load.within.get("+Inf").is_some_and(|all| *all > 0),
        "no call was counted"
    );
    proxy.stop()?;
    Ok(load)
}

/// Name of the type's webhook configuration.
const WEBHOOKS: &str = "loadeds-v1-0-0";

/// How many calls of the webhooks the API server has counted, by bucket of their duration.
fn waited(site: &Site) -> Result<BTreeMap<String, u64>> {
    let figures = site.run(site.kubectl(["get", "--raw", "/metrics"]))?;
    let mut within = BTreeMap::new();
    for line in figures.lines() {
        let Some(labels) =
            line.strip_prefix("apiserver_admission_webhook_admission_duration_seconds_bucket{")
        else {
            continue;
        };
        let (labels, count) = labels.rsplit_once("} ").context("a figure without a value")?;
        if !labels.contains(".krateo.io\"") && !labels.contains("core-provider") {
            continue;
        }
        let bound = labels
            .split_once("le=\"")
            .and_then(|(_, rest)| rest.split('"').next());
        let bound = bound.context("a bucket without a bound")?;
        *within.entry(bound.to_owned()).or_default() += count.parse::<f64>()? as u64;
    }
    Ok(within)
}

fn since(mut now: BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    for (bound, count) in &mut now {
        *count -= before.get(bound).copied().unwrap_or_default();
    }
    now
}
