//! The first composition of a namespace waits only for core-provider, which allows the controller to grant permissions
//! there.

use anyhow::Result;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

#[test]
fn the_first_composition_of_a_namespace_waits_for_core_provider() -> Result<()> {
    let platform = HostPlatform::start()?;
    let scenario = platform.namespace("open-namespace")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let package = ChartFolder::copy("web", "guest", "1.0.0")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.define("guest", &url, "1.0.0")?;
    scenario
        .platform()
        .wait("deployments", "guests-v1-0-0-controller", |_| true)?;
    platform.run_controller("guests", "v1-0-0")?;
    let composition = composition(&scenario);
    scenario.wait_until("the type", || Ok(scenario.apply(&composition).ok()))?;
    scenario.wait_for("guests", "web", "Released", "True")?;

    platform.wait_for_policy("v1-0-0")?;
    let provider = format!("core-provider.{NAMESPACE}.{RELEASE}");
    platform.plane().kill_component(&provider)?;
    let first = platform.namespace("open-namespace-first")?;
    first.apply(&self::composition(&first))?;
    let held = first.wait("guests", "web", |held| {
        condition(held, "Synced").is_some_and(|synced| synced["status"] == "False")
    })?;
    let why = condition(&held, "Synced").unwrap()["message"].as_str().unwrap();
    assert!(why.contains("waiting for core-provider to open it"), "{why}");
    assert!(!why.contains("krateo.io/allowed-namespaces"), "{why}");

    platform.plane().restart_component(&provider)?;
    first.wait_for("guests", "web", "Released", "True")?;
    Ok(())
}

fn composition(namespace: &Namespace) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Guest",
        "metadata": {"name": "web", "namespace": namespace.namespace()}, "spec": {"image": "nginx"},
    })
}
