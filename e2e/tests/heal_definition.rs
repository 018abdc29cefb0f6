//! Changes by others to the objects of a definition are reverted, but left alone while the definition is paused.

use anyhow::Result;
use e2e::Scenario;
use e2e::scenario::condition;

#[test]
fn changed_and_removed_objects_of_a_controller_are_restored_unless_the_definition_is_paused() -> Result<()> {
    let scenario = Scenario::start("heal-definition")?;
    let url = scenario.push_web_chart("healer", "1.0.0")?;
    scenario.define("healer", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "healer", "Ready", "True")?;
    let (base, platform) = ("healers-v1-0-0", scenario.platform());
    let controller = format!("{base}-controller");
    let role = scenario.get("clusterroles", base)?.unwrap();
    let started = pods(&scenario, &controller)?;

    damage(&scenario, base, &controller)?;
    scenario.wait("clusterroles", base, |live| live["rules"] == role["rules"])?;
    platform.wait("roles", base, |_| true)?;
    platform.wait("deployments", &controller, |live| live["spec"]["replicas"] == 1)?;
    scenario.wait_for("compositiondefinitions", "healer", "Ready", "True")?;

    annotate(&scenario, "krateo.io/paused=true")?;
    let paused = scenario.wait_for("compositiondefinitions", "healer", "Synced", "False")?;
    assert_eq!(condition(&paused, "Synced").unwrap()["reason"], "ReconcilePaused");
    scenario.platform().kubectl(&["delete", "roles", base])?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(platform.get("roles", base)?, None);

    annotate(&scenario, "krateo.io/paused-")?;
    platform.wait("roles", base, |_| true)?;
    // The pods were scaled down and came back; nothing else is a reason to restart them.
    assert!(!pods(&scenario, &controller)?.is_empty() && !started.is_empty());
    Ok(())
}

fn damage(scenario: &Scenario, base: &str, controller: &str) -> Result<()> {
    scenario.platform().kubectl(&["delete", "roles", base])?;
    scenario
        .platform()
        .kubectl(&["scale", "deployments", controller, "--replicas=0"])?;
    let nothing = r#"{"rules":[]}"#;
    scenario.kubectl(&["patch", "clusterroles", base, "--type=merge", "--patch", nothing])?;
    Ok(())
}

fn annotate(scenario: &Scenario, annotation: &str) -> Result<()> {
    scenario
        .kubectl(&[
            "annotate",
            "compositiondefinitions",
            "healer",
            "--overwrite",
            annotation,
        ])
        .map(drop)
}

fn pods(scenario: &Scenario, controller: &str) -> Result<String> {
    let name = controller.trim_end_matches("-controller");
    let labels = format!("app.kubernetes.io/name={name}");
    scenario
        .platform()
        .kubectl(&["get", "pods", "--selector", &labels, "--output", "name"])
}
