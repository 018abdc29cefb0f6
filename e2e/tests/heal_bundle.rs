//! Changes to a controller's objects are reverted, without restarting the controller.

use anyhow::{Context as _, Result};
use e2e::Scenario;
use serde_json::Value;

const BASE: &str = "guardians-v1-0-0";

#[test]
fn a_changed_bundle_is_restored_and_its_controller_runs_on() -> Result<()> {
    let scenario = Scenario::start("heal-bundle")?;
    let url = scenario.push_web_chart("guardian", "1.0.0")?;
    scenario.define("guardian", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "guardian", "Ready", "True")?;
    let deployment = format!("{BASE}-controller");
    let pod = pod(&scenario)?;
    let generation = generation(&scenario, &deployment)?;

    let platform = scenario.platform();
    platform.kubectl(&["delete", "role", BASE])?;
    scenario.kubectl(&[
        "delete",
        "validatingadmissionpolicybinding",
        &format!("{BASE}-grants"),
    ])?;
    platform.kubectl(&["delete", "configmap", &format!("{BASE}-bound")])?;
    scenario.kubectl(&[
        "patch",
        "clusterrole",
        BASE,
        "--type=json",
        "--patch",
        r#"[{"op": "remove", "path": "/rules/0"}]"#,
    ])?;
    platform.wait("role", BASE, |_| true)?;
    scenario.wait(
        "validatingadmissionpolicybinding",
        &format!("{BASE}-grants"),
        |_| true,
    )?;
    platform.wait("configmap", &format!("{BASE}-bound"), |bound| {
        bound["data"]["kinds"]
            .as_str()
            .is_some_and(|kinds| kinds.contains("apps/deployments"))
    })?;
    scenario.wait("clusterrole", BASE, |role| {
        role["rules"][0]["resources"][0] == "guardians"
    })?;
    assert_eq!(
        self::pod(&scenario)?,
        pod,
        "the controller was started anew for nothing"
    );
    assert_eq!(self::generation(&scenario, &deployment)?, generation);

    platform.kubectl(&["scale", "deployment", &deployment, "--replicas=0"])?;
    platform.wait("deployment", &deployment, |deployment| {
        deployment["spec"]["replicas"] == 1 && deployment["status"]["availableReplicas"] == 1
    })?;
    Ok(())
}

fn pod(scenario: &Scenario) -> Result<String> {
    let selector = format!("--selector=app.kubernetes.io/name={BASE}");
    let pods: Value =
        serde_json::from_str(
            &scenario
                .platform()
                .kubectl(&["get", "pods", &selector, "--output=json"])?,
        )?;
    let uid = pods["items"][0]["metadata"]["uid"]
        .as_str()
        .context("the controller has no pod")?;
    Ok(uid.to_owned())
}

fn generation(scenario: &Scenario, deployment: &str) -> Result<Option<i64>> {
    let deployment = scenario
        .platform()
        .get("deployment", deployment)?
        .context("the controller has no deployment")?;
    Ok(deployment["metadata"]["generation"].as_i64())
}
