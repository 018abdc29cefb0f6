//! Both pauses: the one that stops at once, and the graceful one, which renders the chart once more.

use anyhow::Result;
use e2e::Scenario;
use e2e::scenario::condition;
use serde_json::{Value, json};

#[test]
fn a_pause_stops_at_once_and_a_graceful_one_after_one_more_render() -> Result<()> {
    let scenario = Scenario::start("pause-composition")?;
    let url = scenario.push_web_chart("sleeper", "1.0.0")?;
    scenario.define("sleeper", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "sleeper", "Ready", "True")?;
    scenario.apply(&sleeper(&scenario, "one"))?;
    scenario.wait_for("sleepers", "web", "Ready", "True")?;

    scenario.kubectl(&["annotate", "sleepers", "web", "krateo.io/paused=true"])?;
    scenario.wait("sleepers", "web", |object| {
        reason(object, "Synced") == "ReconcilePaused"
    })?;
    scenario.apply(&sleeper(&scenario, "two"))?;
    still(&scenario, "one")?;
    scenario.kubectl(&["annotate", "sleepers", "web", "krateo.io/paused-"])?;
    greeting_becomes(&scenario, "two")?;

    // One more upgrade, in which the chart sees the pause; then nothing, whatever changes in the spec.
    scenario.kubectl(&["annotate", "sleepers", "web", "krateo.io/gracefully-paused=true"])?;
    scenario.wait("sleepers", "web", |object| {
        reason(object, "Ready") == "ReconcileGracefullyPaused"
            && object["metadata"]["annotations"]["krateo.io/gracefully-paused-time"].is_string()
    })?;
    assert!(globals(&scenario)?.contains("gracefullyPaused: true"));
    scenario.apply(&sleeper(&scenario, "three"))?;
    still(&scenario, "two")?;

    scenario.kubectl(&["annotate", "sleepers", "web", "krateo.io/gracefully-paused-"])?;
    greeting_becomes(&scenario, "three")?;
    assert!(globals(&scenario)?.contains("gracefullyPaused: false"));
    let object = scenario.get("sleepers", "web")?.unwrap();
    assert!(object["metadata"]["annotations"]["krateo.io/gracefully-paused-time"].is_null());

    // Deletion takes precedence over a graceful pause: nothing is left behind.
    scenario.kubectl(&["annotate", "sleepers", "web", "krateo.io/gracefully-paused=true"])?;
    scenario.wait("sleepers", "web", |object| {
        reason(object, "Ready") == "ReconcileGracefullyPaused"
    })?;
    scenario.kubectl(&["delete", "sleepers", "web", "--wait=false"])?;
    scenario.wait_gone("sleepers", "web")?;
    assert_eq!(scenario.helm(&["list", "--short"])?.trim(), "");
    Ok(())
}

fn sleeper(scenario: &Scenario, greeting: &str) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Sleeper",
        "metadata": {
            "name": "web", "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": "fixed"},
        },
        "spec": {"image": scenario.web_image(), "greeting": greeting},
    })
}

fn reason(object: &Value, type_: &str) -> String {
    let condition = condition(object, type_);
    condition.map_or_else(String::new, |condition| {
        condition["reason"].as_str().unwrap_or_default().to_owned()
    })
}

fn greeting_becomes(scenario: &Scenario, greeting: &str) -> Result<()> {
    scenario
        .wait("configmaps", "fixed-web", |config| {
            config["data"]["GREETING"] == greeting
        })
        .map(drop)
}

/// Longer than a controller that ignored the pause would need.
fn still(scenario: &Scenario, greeting: &str) -> Result<()> {
    std::thread::sleep(std::time::Duration::from_secs(3));
    let config = scenario.get("configmaps", "fixed-web")?.unwrap();
    assert_eq!(config["data"]["GREETING"], greeting);
    Ok(())
}

fn globals(scenario: &Scenario) -> Result<String> {
    let config = scenario.get("configmaps", "fixed-web")?.unwrap();
    Ok(config["data"]["global.yaml"].as_str().unwrap().to_owned())
}
