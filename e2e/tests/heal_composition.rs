//! What somebody changes on the objects of a release is put back at once, without a new revision, and told.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{Scenario, progress};
use serde_json::{Value, json};

#[test]
fn edited_and_deleted_objects_are_put_back_without_a_new_revision() -> Result<()> {
    let scenario = Scenario::start("heal-composition")?;
    let url = scenario.push_web_chart("mender", "1.0.0")?;
    scenario.define("mender", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "mender", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Mender",
        "metadata": {"name": "web", "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": scenario.web_image(), "greeting": "mine"},
    }))?;
    scenario.wait_for("menders", "web", "Ready", "True")?;

    let mut took = Vec::new();
    for round in 0..3 {
        let greeting = format!(r#"{{"data":{{"GREETING":"theirs {round}"}}}}"#);
        let edits: [(&[&str], &str, &str, Value); 5] = [
            (
                &["patch", "configmap", "fixed-web", "--patch", &greeting],
                "configmaps",
                "/data/GREETING",
                json!("mine"),
            ),
            (
                &["scale", "deployment", "fixed-web", "--replicas=0"],
                "deployments",
                "/spec/replicas",
                json!(1),
            ),
            (
                &[
                    "patch",
                    "service",
                    "fixed-web",
                    "--patch",
                    r#"{"spec":{"selector":{"app.kubernetes.io/name":"theirs"}}}"#,
                ],
                "services",
                "/spec/selector/app.kubernetes.io~1name",
                json!("mender"),
            ),
            (
                &[
                    "patch",
                    "service",
                    "fixed-web",
                    "--type=json",
                    "--patch",
                    r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#,
                ],
                "services",
                "/spec/ports/0/port",
                json!(80),
            ),
            (
                &["delete", "service", "fixed-web"],
                "services",
                "/spec/ports/0/port",
                json!(80),
            ),
        ];
        for (edit, resource, path, wanted) in edits {
            scenario.kubectl(edit)?;
            took.push(healed(&scenario, resource, path, &wanted)?);
        }
    }
    took.sort_unstable();
    progress(format_args!(
        "{} edits put back: median {:?}, longest {:?} (kubectl's own time included)",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    ));

    let history: Vec<Value> =
        serde_json::from_str(&scenario.helm(&["history", "fixed", "--output", "json"])?)?;
    assert_eq!(history.len(), 1, "{history:?}");
    // It is told, with the field.
    scenario.wait_until("an event that names the field", || {
        let events = scenario.kubectl(&["get", "events", "--output", "json"])?;
        Ok((events.contains("DriftCorrected") && events.contains("GREETING")).then_some(()))
    })?;
    the_condition_says_who_did_it(&scenario)
}

/// What was put back stays to be read in `Drifted`; what is to be left alone is True there.
fn the_condition_says_who_did_it(scenario: &Scenario) -> Result<()> {
    let edit = |greeting: &str| {
        let patch = format!(r#"{{"data":{{"GREETING":"{greeting}"}}}}"#);
        let manager = "--field-manager=somebody";
        scenario.kubectl(&["patch", "configmap", "fixed-web", "--patch", &patch, manager])
    };
    let told = |reason: &'static str| {
        move |object: &Value| {
            condition(object, "Drifted").is_some_and(|drifted| {
                let message = drifted["message"].as_str().unwrap_or_default();
                drifted["reason"] == reason && message.contains("GREETING") && message.contains("somebody")
            })
        }
    };
    edit("theirs at last")?;
    let composition = scenario.wait("menders", "web", told("Corrected"))?;
    assert_eq!(condition(&composition, "Drifted").unwrap()["status"], "False");

    scenario.kubectl(&["annotate", "menders", "web", "krateo.io/drift=warn"])?;
    edit("theirs for good")?;
    let composition = scenario.wait("menders", "web", told("LeftAlone"))?;
    assert_eq!(condition(&composition, "Drifted").unwrap()["status"], "True");
    Ok(())
}

fn healed(scenario: &Scenario, resource: &str, path: &str, wanted: &Value) -> Result<Duration> {
    let edited = Instant::now();
    loop {
        let object = scenario.get(resource, "fixed-web")?;
        if object.is_some_and(|object| object.pointer(path) == Some(wanted)) {
            return Ok(edited.elapsed());
        }
        anyhow::ensure!(
            edited.elapsed() < Duration::from_mins(2),
            "{resource} {path} was not put back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
