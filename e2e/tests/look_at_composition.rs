//! What `kco` shows of a composition is what its controller does: the plan before it acts, and an empty one afterwards.

use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use e2e::{Scenario, image};
use serde_json::{Value, json};

#[test]
fn kco_plans_what_the_controller_does_and_shows_the_result() -> Result<()> {
    let scenario = Scenario::start("look-at-composition")?;
    let url = scenario.push_web_chart("seen", "1.0.0")?;
    scenario.define("seen", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "seen", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Seen",
        "metadata": {
            "name": "web", "namespace": scenario.namespace(),
            "annotations": {"krateo.io/management-policy": "observe"},
        },
        "spec": {"image": scenario.web_image()},
    }))?;
    // Before anything is granted.
    let before = kco(&scenario, &["plan", "web", "--output", "json"])?;
    assert_eq!(before["standing"], "observed only");
    ensure!(of_each(&before, "granted")? == [json!(false)], "{before:#}");

    scenario.kubectl(&["annotate", "seens", "web", "krateo.io/management-policy-"])?;
    let composition = scenario.wait_for("seens", "web", "Ready", "True")?;
    let after = kco(
        &scenario,
        &["plan", "seens/web", "--exit-code", "--output", "json"],
    )?;
    assert_eq!(
        (&after["steps"], &after["standing"]),
        (&json!([]), &json!("up to date"))
    );
    // `kco` and the controller compute the same permissions, rule by rule.
    ensure!(of_each(&after, "granted")? == [json!(true)], "{after:#}");

    let touched = kco(&scenario, &["inspect", "composition", "web", "--output", "json"])?;
    let kinds = |objects: &Value| -> Result<Vec<Value>> {
        let objects = objects.as_array().context("no list")?;
        let mut kinds: Vec<Value> = objects
            .iter()
            .map(|object| json!([object["resource"], object["name"]]))
            .collect();
        kinds.sort_by_key(Value::to_string);
        Ok(kinds)
    };
    assert_eq!(kinds(&touched)?, kinds(&composition["status"]["managed"])?);

    let tree = kco(&scenario, &["tree", "web", "--output", "json"])?;
    assert_eq!(tree["ready"], "True");
    assert_eq!(tree["release"]["chart"], "seen-1.0.0");
    let objects = tree["release"]["objects"].as_array().context("no objects")?;
    assert_eq!(objects.len(), 3, "{tree:#}");
    assert!(
        objects
            .iter()
            .all(|object| object["health"] == objects[0]["health"])
    );

    let listed = kco(&scenario, &["get", "compositions", "seens", "--output", "json"])?;
    assert_eq!(listed[0]["name"], "web");
    assert_eq!(
        (&listed[0]["ready"], &listed[0]["revision"]),
        (&json!("True"), &json!(1))
    );
    Ok(())
}

/// The different values of a field of the plan's permissions.
fn of_each(plan: &Value, field: &str) -> Result<Vec<Value>> {
    let rights = plan["permissions"].as_array().context("no permissions")?;
    let mut values: Vec<Value> = rights.iter().map(|right| right[field].clone()).collect();
    values.dedup();
    Ok(values)
}

/// The output of `kco`, as admin.
fn kco(scenario: &Scenario, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(image::binary("kco")?);
    if let Some(kubeconfig) = scenario.site().kubeconfig() {
        command.env("KUBECONFIG", kubeconfig);
    }
    let mut arguments = arguments.to_vec();
    arguments.extend(["--namespace", scenario.namespace()]);
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(&arguments).output()?;
    ensure!(
        status.success(),
        "kco {}: {}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&stderr),
        String::from_utf8_lossy(&stdout)
    );
    Ok(serde_json::from_slice(&stdout)?)
}
