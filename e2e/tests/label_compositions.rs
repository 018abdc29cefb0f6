//! The label that binds a composition to its controller is always set: by core-provider's webhook while the version is
//! new, then by the API server's policy.

use anyhow::{Context as _, Result, ensure};
use e2e::platform::RELEASE;
use e2e::{ChartFolder, HostPlatform, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const LABEL: &str = "krateo.io/composition-version";

#[test]
fn compositions_are_labelled_at_once_and_while_no_core_provider_runs() -> Result<()> {
    let platform = HostPlatform::start()?;
    let home = platform.namespace("label-compositions")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let package = ChartFolder::copy("web", "ticket", "1.0.0")?.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("ticket", &url, "1.0.0")?;
    home.wait_until("the type", || {
        Ok(home.apply(&ticket("first", &json!({LABEL: "v9-9-9"}))).ok())
    })?;
    let labelled = |name: &str| -> Result<()> {
        let found = home.get("tickets", name)?.context("it is not there")?;
        let label = &found["metadata"]["labels"][LABEL];
        ensure!(label == "v1-0-0", "{name} has the label {label}");
        Ok(())
    };
    labelled("first")?;

    progress("the version is left to the policy");
    platform.wait_for_policy("v1-0-0")?;
    platform.plane().kill_component(&HostPlatform::provider_name())?;
    home.apply(&ticket("alone", &json!({})))?;
    labelled("alone")?;
    home.apply(&ticket("relabelled", &json!({LABEL: "v9-9-9"})))?;
    labelled("relabelled")?;
    home.kubectl(&["label", "tickets", "alone", &format!("{LABEL}-")])?;
    labelled("alone")?;

    progress("the registration of the webhook is deleted");
    home.kubectl(&["delete", "mutatingwebhookconfiguration", RELEASE])?;
    let refused = home.apply(&ticket("refused", &json!({})));
    let said = refused
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(said.contains("nothing has set the label"), "it says {said:?}");
    platform
        .plane()
        .restart_component(&HostPlatform::provider_name())?;
    platform.wait_for_policy("v1-0-0")?;
    home.kubectl(&["delete", "mutatingwebhookconfiguration", RELEASE])?;
    platform.wait_for_policy("v1-0-0")?;
    home.apply(&ticket("last", &json!({})))?;
    labelled("last")
}

fn ticket(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Ticket",
        "metadata": {"name": name, "namespace": "label-compositions", "labels": labels},
        "spec": {"image": "nginx"},
    })
}
