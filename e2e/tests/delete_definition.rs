//! Deleting a definition removes its compositions, its type and its controller, in that order.

use anyhow::Result;
use e2e::Scenario;
use serde_json::{Value, json};

#[test]
fn a_deleted_definition_removes_its_compositions_then_its_type_then_its_controller() -> Result<()> {
    let scenario = Scenario::start("delete-definition")?;
    let url = scenario.push_web_chart("leaver", "1.0.0")?;
    scenario.define("leaver", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "leaver", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Leaver",
        "metadata": {"name": "web", "namespace": scenario.namespace()},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("leavers", "web", "Ready", "True")?;

    scenario.kubectl(&["delete", "compositiondefinitions", "leaver", "--timeout=90s"])?;

    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    assert_eq!(releases, Vec::<Value>::new());
    scenario.wait_gone("customresourcedefinitions", "leavers.composition.krateo.io")?;
    for resource in [
        "deployments",
        "services",
        "configmaps",
        "serviceaccounts",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
    ] {
        scenario.wait_until(&format!("no {resource} of the definition"), || {
            let names = scenario.kubectl(&[
                "get",
                resource,
                "--all-namespaces",
                "--output",
                "jsonpath={.items[*].metadata.name}",
            ])?;
            Ok((!names.contains("leavers")).then_some(()))
        })?;
    }
    Ok(())
}
