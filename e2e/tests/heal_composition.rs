//! Changes by others to the objects of a release are corrected at once, without a new revision, and reported.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::trials::compositions::drift::{Times, Watcher};
use e2e::{Scenario, progress};
use serde_json::{Value, json};

#[test]
fn edited_and_deleted_objects_are_corrected_without_a_new_revision() -> Result<()> {
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

    let watcher = Watcher {
        audit: scenario.cluster().audit(),
        controller: "system:serviceaccount:krateo-system:menders-v1-0-0".to_owned(),
        namespace: &scenario,
    };
    let mut times = Times::default();
    for round in 0..3 {
        let greeting = format!(r#"{{"data":{{"GREETING":"theirs {round}"}}}}"#);
        let edits: [(&str, &[&str]); 5] = [
            (
                "configmap",
                &["patch", "configmap", "fixed-web", "--patch", &greeting],
            ),
            (
                "deployment",
                &["scale", "deployment", "fixed-web", "--replicas=0"],
            ),
            (
                "service",
                &[
                    "patch",
                    "service",
                    "fixed-web",
                    "--patch",
                    r#"{"spec":{"selector":{"app.kubernetes.io/name":"theirs"}}}"#,
                ],
            ),
            (
                "service",
                &[
                    "patch",
                    "service",
                    "fixed-web",
                    "--type=json",
                    "--patch",
                    r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#,
                ],
            ),
            ("service", &["delete", "service", "fixed-web"]),
        ];
        for (resource, edit) in edits {
            let took = watcher.put_back(resource, "fixed-web", edit)?;
            times.took.push((edit[..2].join(" "), took));
        }
    }
    progress(&times);

    let history: Vec<Value> =
        serde_json::from_str(&scenario.helm(&["history", "fixed", "--output", "json"])?)?;
    assert_eq!(history.len(), 1, "{history:?}");
    // It is reported, with the field.
    scenario.wait_until("an event that names the field", || {
        let events = scenario.kubectl(&["get", "events", "--output", "json"])?;
        Ok((events.contains("DriftCorrected") && events.contains("GREETING")).then_some(()))
    })?;
    the_condition_says_who_did_it(&scenario)
}

/// `Drifted` still shows what was corrected, and is True for drift that is to be left alone.
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
    // The controller may see an edit before it sees the annotation, and then corrects it.
    let mut edits = 0;
    let composition = scenario.wait_until("an edit that is left alone", || {
        edits += 1;
        edit(&format!("theirs for good {edits}"))?;
        let composition = scenario.get("menders", "web")?.unwrap_or_default();
        Ok(told("LeftAlone")(&composition).then_some(composition))
    })?;
    assert_eq!(condition(&composition, "Drifted").unwrap()["status"], "True");
    Ok(())
}
