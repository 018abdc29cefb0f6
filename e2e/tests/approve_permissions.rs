//! Where a definition demands it, permissions that grow wait until somebody with the verb `approve` approves exactly
//! these, with `kco approve`; whoever may write the composition cannot switch the demand off.

use anyhow::{Context as _, Result, ensure};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "approve-permissions";
const ACCOUNT: &str = "growers-v1-0-0";

/// As many ConfigMaps as the values say.
const TEMPLATE: &str = r"
{{- range $name := .Values.maps }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ $name }}}
{{- end }}
";

#[test]
fn permissions_that_grow_wait_for_exactly_their_approval() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "grower", "1.0.0")?;
    chart.write("templates/maps.yaml", TEMPLATE)?;
    chart.write(
        "values.yaml",
        "image: x\nreplicas: 0\ngreeting: Hello\nmaps: []\n",
    )?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "grower", "namespace": HOME, "annotations": {"krateo.io/approve-permissions": "true"}},
        "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
    }))?;
    home.platform()
        .wait("deployments", &format!("{ACCOUNT}-controller"), |_| true)?;
    platform.run_controller("growers", "v1-0-0")?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Grower",
        "metadata": {
            "name": "web", "namespace": HOME, "labels": {"krateo.io/release-name": "web"},
            // The composition's own word does not count against the definition's.
            "annotations": {"krateo.io/approve-permissions": "false"},
        },
        "spec": {"image": "nginx", "maps": ["first"]},
    });
    home.wait_until("the type", || Ok(home.apply(&composition).ok()))?;

    let waiting = waiting(&home, "configmaps/web-first")?;
    let digest = waiting["digest"].as_str().context("no digest")?;
    ensure!(digest.starts_with("sha256:") && waiting["approved"] == false, "{waiting:#}");
    // Nothing but the digest of what waits approves anything.
    let wrong = format!("sha256:{}", "0".repeat(64));
    let refused = home.kco(&["approve", "growers/web", "--digest", &wrong]).unwrap_err();
    ensure!(refused.to_string().contains("is not the digest"), "{refused:#}");
    ensure!(annotation(&home)?.is_null());
    let approved = home.kco(&["approve", "growers/web", "--digest", digest])?;
    assert_eq!(approved["approved"], true);
    home.wait_for("growers", "web", "Released", "True")?;
    assert_eq!(annotation(&home)?, digest);

    // What was approved does not cover what is added.
    let patch = |maps: &[&str]| {
        let patch = json!({"spec": {"maps": maps}}).to_string();
        home.kubectl(&["patch", "grower", "web", "--type=merge", "--patch", &patch])
    };
    patch(&["first", "second"])?;
    let more = self::waiting(&home, "configmaps/web-second")?;
    ensure!(more["digest"] != digest, "{more:#}");
    ensure!(home.get("configmaps", "web-second")?.is_none());
    // The release stays, and what needs less needs nobody.
    patch(&[])?;
    home.wait_gone("configmaps", "web-first")
}

/// What `kco approve` shows once the controller holds the composition for a right.
fn waiting(home: &Namespace, right: &str) -> Result<Value> {
    let held = home.wait("growers", "web", |held| {
        condition(held, "Synced").is_some_and(|synced| {
            synced["reason"] == "Pending" && synced["message"].to_string().contains(right)
        })
    })?;
    let shown = home.kco(&["approve", "growers/web"])?;
    ensure!(shown["rights"].to_string().contains(right), "{shown:#}");
    // The controller asks for the digest that is shown.
    let said = condition(&held, "Synced").context("no condition")?["message"].to_string();
    ensure!(said.contains(shown["digest"].as_str().context("no digest")?), "{said} {shown:#}");
    Ok(shown)
}

fn annotation(home: &Namespace) -> Result<Value> {
    let composition = home.get("growers", "web")?.unwrap_or_default();
    Ok(composition["metadata"]["annotations"]["krateo.io/approved-permissions"].clone())
}
