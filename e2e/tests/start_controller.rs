//! A controller starts before core-provider has granted its permissions: it waits for them, and does nothing until then.

use anyhow::{Result, ensure};
use e2e::platform::NAMESPACE;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform};
use local_cluster::registry::Settings;
use serde_json::json;

const HOME: &str = "start-controller";
const BASE: &str = "starters-v1-0-0";

/// The reviews come after 20, 40, 80 ms and so on, so the seventh comes after more than a second.
const REVIEWS: usize = 7;

#[test]
fn a_controller_waits_for_its_permissions() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let package = ChartFolder::copy("web", "starter", "1.0.0")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.define("starter", &url, "1.0.0")?;
    scenario.platform().wait("rolebindings", BASE, |_| true)?;
    // So that core-provider does not grant it again at once.
    let annotate =
        |annotation: &str| scenario.kubectl(&["annotate", "compositiondefinition", "starter", annotation]);
    annotate("krateo.io/paused=true")?;
    scenario.wait("compositiondefinitions", "starter", |definition| {
        condition(definition, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
    })?;
    scenario.platform().kubectl(&["delete", "rolebinding", BASE])?;

    let mark = platform.plane().audit().mark()?;
    platform.run_controller("starters", "v1-0-0")?;
    let account = format!("system:serviceaccount:{NAMESPACE}:{BASE}");
    scenario.wait_until("the controller to wait", || {
        let mut reviews = 0;
        for record in platform.plane().audit().since(mark)? {
            let record = record?;
            if record.user == account && !record.resource.is_empty() {
                let resource = record.resource.as_str();
                let asks = matches!(resource, "selfsubjectaccessreviews" | "selfsubjectreviews");
                ensure!(asks, "{} {} without a permission", record.verb, record.uri);
                reviews += usize::from(resource == "selfsubjectaccessreviews");
            }
        }
        Ok((reviews >= REVIEWS).then_some(()))
    })?;
    annotate("krateo.io/paused-")?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Starter",
        "metadata": {"name": "web", "namespace": HOME},
        "spec": {"image": "nginx"},
    });
    // The API server admits a new type a moment after it is served.
    scenario.wait_until("the type", || Ok(scenario.apply(&composition).ok()))?;
    scenario.wait_for("starters", "web", "Released", "True")?;
    Ok(())
}
