//! A definition becomes a type and a controller; an object of the type becomes a release with running pods.

use anyhow::Result;
use e2e::Scenario;
use e2e::scenario::condition;
use serde_json::{Value, json};

#[test]
fn a_definition_becomes_a_type_and_its_objects_become_releases() -> Result<()> {
    let scenario = Scenario::start("install-composition")?;
    let url = scenario.push_web_chart("greeter", "1.0.0")?;
    scenario.define("greeter", &url, "1.0.0")?;

    let definition = scenario.wait_for("compositiondefinitions", "greeter", "Ready", "True")?;
    assert_eq!(definition["status"]["apiVersion"], "composition.krateo.io/v1-0-0");
    assert_eq!(definition["status"]["kind"], "Greeter");
    assert_eq!(definition["status"]["resource"], "greeters");
    assert_eq!(condition(&definition, "Synced").unwrap()["status"], "True");
    assert_eq!(condition(&definition, "Ready").unwrap()["observedGeneration"], 1);

    the_type_refuses_what_the_schema_refuses(&scenario);
    scenario.apply(&greeter(
        &scenario,
        &json!({"image": scenario.web_image(), "greeting": "Good morning"}),
    ))?;
    let composition = scenario.wait_for("greeters", "hello", "Ready", "True")?;
    assert_eq!(
        composition["metadata"]["labels"]["krateo.io/composition-version"],
        "v1-0-0"
    );
    assert_eq!(
        composition["spec"]["replicas"], 1,
        "defaults of the schema are filled in"
    );
    assert_eq!(condition(&composition, "Released").unwrap()["status"], "True");
    assert_eq!(composition["status"]["helmChartVersion"], "1.0.0");
    let managed: Vec<&str> = composition["status"]["managed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["resource"].as_str().unwrap())
        .collect();
    assert_eq!(managed, ["configmaps", "deployments", "services"]);

    let release = only_release(&scenario)?;
    assert_eq!(
        (&release["status"], &release["chart"]),
        (&json!("deployed"), &json!("greeter-1.0.0"))
    );
    let name = release["name"].as_str().unwrap();
    the_chart_was_told_who_asks(&scenario, name, &composition)?;
    let answer = scenario.ask_web_server(&format!("{name}-web"))?;
    assert!(answer.starts_with("Good morning from"), "{answer}");
    Ok(())
}

fn the_type_refuses_what_the_schema_refuses(scenario: &Scenario) {
    let refused = scenario
        .apply(&greeter(scenario, &json!({"image": "x", "replicas": 11})))
        .unwrap_err();
    assert!(refused.to_string().contains("spec.replicas"), "{refused:#}");
}

fn greeter(scenario: &Scenario, spec: &Value) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Greeter",
        "metadata": {"name": "hello", "namespace": scenario.namespace()},
        "spec": spec,
    })
}

fn only_release(scenario: &Scenario) -> Result<Value> {
    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    assert_eq!(releases.len(), 1, "{releases:?}");
    Ok(releases[0].clone())
}

/// Labels of every object of the release, and keys under `global` in the values.
fn the_chart_was_told_who_asks(scenario: &Scenario, release: &str, composition: &Value) -> Result<()> {
    let config = scenario.get("configmaps", &format!("{release}-web"))?.unwrap();
    let labels = &config["metadata"]["labels"];
    assert_eq!(labels["krateo.io/composition-id"], composition["metadata"]["uid"]);
    assert_eq!(labels["krateo.io/composition-kind"], "Greeter");
    assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm");
    let global = config["data"]["global.yaml"].as_str().unwrap();
    assert!(global.contains("compositionName: hello"), "{global}");
    assert!(global.contains("gracefullyPaused: false"), "{global}");
    let deployment = scenario.get("deployments", &format!("{release}-web"))?.unwrap();
    assert!(
        deployment["spec"]["selector"]["matchLabels"]
            .get("krateo.io/composition-id")
            .is_none()
    );
    Ok(())
}
