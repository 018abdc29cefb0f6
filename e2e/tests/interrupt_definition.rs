//! core-provider is killed while a definition is created, changed and removed; the next one finishes.

use std::time::Duration;

use anyhow::Result;
use e2e::Scenario;
use e2e::platform;
use e2e::scenario::is_ready;
use serde_json::{Value, json};

/// core-provider is killed after this long: in the middle. `make definition-kills` kills it at every write, as a
/// process on the host; here all its pods are killed at once, and Kubernetes starts the next ones.
const MOMENT: Duration = Duration::from_millis(600);

#[test]
fn the_next_core_provider_finishes_a_definition_after_a_kill() -> Result<()> {
    let scenario = Scenario::alone("interrupt-definition")?;
    let url = scenario.push_web_chart("survivor", "1.0.0")?;
    scenario.push_web_chart("survivor", "1.1.0")?;
    scenario.define("survivor", &url, "1.0.0")?;
    kill_all(&scenario)?;
    wait_ready(&scenario)?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Survivor",
        "metadata": {"name": "web", "namespace": scenario.namespace()},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("survivors", "web", "Released", "True")?;

    let patch = json!({"spec": {"chart": {"version": "1.1.0"}}}).to_string();
    scenario.kubectl(&[
        "patch",
        "compositiondefinitions",
        "survivor",
        "--type=merge",
        "--patch",
        &patch,
    ])?;
    kill_all(&scenario)?;
    wait_ready(&scenario)?;
    scenario.wait("survivors", "web", |composition| {
        composition["status"]["helmChartVersion"] == "1.1.0"
    })?;
    assert_eq!(
        left_of(&scenario, "krateo.io/controller-version=v1-0-0")?,
        Vec::<String>::new()
    );

    scenario.kubectl(&["delete", "compositiondefinitions", "survivor", "--wait=false"])?;
    kill_all(&scenario)?;
    scenario.wait_gone("compositiondefinitions", "survivor")?;
    scenario.wait_gone("customresourcedefinitions", "survivors.composition.krateo.io")?;
    assert_eq!(
        left_of(&scenario, "krateo.io/controller-resource=survivors")?,
        Vec::<String>::new()
    );
    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    assert_eq!(releases, Vec::<Value>::new());
    Ok(())
}

/// Kills every replica at once, so that none can clean up.
fn kill_all(scenario: &Scenario) -> Result<()> {
    std::thread::sleep(MOMENT);
    scenario.kubectl(&[
        "delete",
        "pods",
        "--namespace",
        platform::NAMESPACE,
        "--selector",
        "app.kubernetes.io/component=core-provider",
        "--force",
        "--grace-period=0",
    ])?;
    Ok(())
}

fn wait_ready(scenario: &Scenario) -> Result<Value> {
    scenario.wait("compositiondefinitions", "survivor", is_ready)
}

fn left_of(scenario: &Scenario, labels: &str) -> Result<Vec<String>> {
    let own = format!(
        "{labels},krateo.io/composition-definition-namespace={}",
        scenario.namespace()
    );
    let kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let found = scenario
        .platform()
        .kubectl(&["get", kinds, "--selector", &own, "--output", "name"])?;
    Ok(found.lines().map(str::to_owned).collect())
}
