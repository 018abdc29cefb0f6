//! Rules of a chart's schema that a type cannot express are checked at admission, by the full JSON Schema.

use anyhow::Result;
use e2e::Scenario;
use e2e::trials::admission::judged_chart;
use serde_json::{Value, json};

#[test]
fn the_full_schema_is_checked_at_admission_if_the_type_cannot_express_it() -> Result<()> {
    let scenario = Scenario::start("judge-composition")?;
    let chart = judged_chart("judge")?;
    let url = chart.push(scenario.site())?;
    scenario.define("judge", &url, "1.0.0")?;
    let definition = scenario.wait_for("compositiondefinitions", "judge", "Ready", "True")?;
    assert_eq!(
        definition["status"]["degraded"][0]["keyword"],
        "patternProperties"
    );
    scenario.kubectl(&["get", "validatingwebhookconfigurations", "judges-v1-0-0"])?;

    // The API server applies a new configuration within a second or so.
    let refused = scenario.wait_until("a refusal", || {
        Ok(scenario
            .apply(&judge(&scenario, "wrong", &json!({"x-a": "text"})))
            .err())
    })?;
    let said = format!("{refused:#}");
    assert!(
        said.contains("values don't meet the specifications of the schema(s)"),
        "{said}"
    );
    assert!(
        said.contains("at '/x-a': got string, want number") || said.contains("want integer"),
        "{said}"
    );

    scenario.apply(&judge(&scenario, "right", &json!({"x-a": 1})))?;
    scenario.wait_for("judges", "right", "Released", "True")?;

    let misspelt = judge(&scenario, "misspelt", &json!({"greetnig": "Hi"}));
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), misspelt.to_string())?;
    let path = file.path().to_string_lossy().into_owned();
    let warned = scenario
        .kubectl(&[
            "create",
            "--dry-run=server",
            "--warnings-as-errors",
            "--filename",
            &path,
        ])
        .unwrap_err();
    assert!(format!("{warned:#}").contains("spec.greetnig"), "{warned:#}");

    scenario.kubectl(&["delete", "compositiondefinitions", "judge", "--timeout=90s"])?;
    let left = scenario.kubectl(&["get", "validatingwebhookconfigurations", "--output", "name"])?;
    assert!(!left.contains("judges"), "{left}");
    Ok(())
}

fn judge(scenario: &Scenario, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["image"] = scenario.web_image().into();
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Judge",
        "metadata": {"name": name, "namespace": scenario.namespace()},
        "spec": spec,
    })
}
