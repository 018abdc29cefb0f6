//! The certificates of the webhooks are rotated while writes are validated, without a failed write, even while the
//! definition is paused.
//!
//! core-provider runs outside of the cluster, so its webhooks are registered by URL.

use std::collections::BTreeSet;

use anyhow::Result;
use e2e::host_platform::free_port;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::proxy::Proxy;
use e2e::scenario::condition;
use e2e::trials::admission::{Pace, Traffic, failed_open, judged_chart, wait_until_judged};
use e2e::{HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;

/// How many certificates that callers trust must be seen one after the other.
const TRUSTED: usize = 3;

/// A leaf certificate is valid for ten minutes at least, and is replaced when that much is left.
pub(crate) const TIMES: [(&str, &str); 5] = [
    ("CORE_PROVIDER_TLS_CERTIFICATE_DURATION", "10m10s"),
    ("CORE_PROVIDER_TLS_CERTIFICATE_LEASE_EXPIRATION_MARGIN", "10m"),
    ("CORE_PROVIDER_CERTIFICATE_SYNC_INTERVAL", "1s"),
    ("CORE_PROVIDER_CA_CERTIFICATE_DURATION", "30s"),
    ("CORE_PROVIDER_CA_CERTIFICATE_NOTICE", "3s"),
];

#[test]
fn no_write_fails_while_certificates_are_rotated() -> Result<()> {
    let platform = HostPlatform::installed_with(&["coreProvider.certificateSource=csr"])?;
    let scenario = platform.namespace("rotate-certificates")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let package = judged_chart("rotating")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.define("rotating", &url, "1.0.0")?;
    // The second finds in the Secret what the first has left.
    for (source, paused) in [("authority", true), ("csr", false)] {
        rotate(&platform, &scenario, source, paused)?;
    }
    Ok(())
}

fn rotate(platform: &HostPlatform, scenario: &Namespace, source: &str, paused: bool) -> Result<()> {
    let port = free_port()?.to_string();
    let url = format!("https://127.0.0.1:{port}");
    let mut provider = platform.provider()?;
    provider
        .envs(TIMES)
        .env("CORE_PROVIDER_CERTIFICATE_SOURCE", source)
        .env("CORE_PROVIDER_WEBHOOK_PORT", &port)
        .env("CORE_PROVIDER_WEBHOOK_URL", &url);
    let proxy = Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?;
    proxy.start(provider, None)?;
    scenario.wait(
        "validatingwebhookconfigurations",
        "rotatings-v1-0-0",
        |webhooks| webhooks["webhooks"][0]["clientConfig"]["url"] == format!("{url}/validate"),
    )?;
    wait_until_judged(scenario, "Rotating")?;
    if paused {
        pause(scenario, "rotating")?;
    }

    let failed_before = failed_open(scenario.site())?;
    let traffic = Traffic::start(
        platform.plane(),
        scenario.namespace(),
        "Rotating",
        "rotatings",
        Pace::SLOW,
    )?;
    let mut trusted = BTreeSet::new();
    scenario.wait_until("certificates that follow each other", || {
        let secret = scenario
            .platform()
            .get("secrets", "core-provider-webhook-certificates")?;
        let authorities = secret.map(|secret| secret["data"]["ca.crt"].to_string());
        trusted.extend(authorities);
        Ok((trusted.len() > TRUSTED).then_some(()))
    })?;
    let counts = traffic.counts();
    drop(traffic);
    if paused {
        let annotation = "krateo.io/paused-";
        scenario.kubectl(&["annotate", "compositiondefinition", "rotating", annotation])?;
    }
    let failed = failed_open(scenario.site())? - failed_before;
    let said = proxy.stop()?.said;
    let leaves = said.matches("the webhooks have a new certificate").count();
    progress(format_args!(
        "{source}: {counts}; {failed} calls failed; {} trusted certificates, {leaves} shown",
        trusted.len()
    ));
    assert_eq!(
        (counts.unchecked, counts.wrong, counts.failed),
        (0, 0, 0),
        "{said}"
    );
    assert_eq!(failed, 0, "{said}");
    assert!(leaves > TRUSTED, "{said}");
    Ok(())
}

/// Pauses a definition.
pub(crate) fn pause(scenario: &Namespace, definition: &str) -> Result<()> {
    let annotation = "krateo.io/paused=true";
    scenario.kubectl(&["annotate", "compositiondefinition", definition, annotation])?;
    scenario.wait("compositiondefinitions", definition, |definition| {
        condition(definition, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
    })?;
    Ok(())
}
