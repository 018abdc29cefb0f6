//! chart-inspector answers only callers that present a token made for it, from a pod and through its Service.

use anyhow::Result;
use e2e::{Scenario, platform};
use serde_json::{Value, json};

#[test]
fn chart_inspector_answers_only_authorized_callers() -> Result<()> {
    let scenario = Scenario::start("restrict-inspector")?;
    let url = scenario.push_web_chart("shy", "1.0.0")?;
    scenario.define("shy", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "shy", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Shy",
        "metadata": {"name": "web", "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("shies", "web", "Ready", "True")?;
    // Which callers it refuses is tested by `make attacks`; this tests the way through its Service.
    assert_eq!(ask(&scenario, None)?.0, "401");
    let token =
        scenario
            .platform()
            .kubectl(&["create", "token", "shies-v1-0-0", "--audience=chart-inspector"])?;
    let (status, answer) = ask(&scenario, Some(token.trim()))?;
    assert_eq!(status, "200");
    let resources: Vec<Value> = serde_json::from_str(&answer)?;
    let named = |plural: &str| {
        resources
            .iter()
            .any(|r| r["resource"] == plural && r["name"] == "fixed-web")
    };
    assert!(
        named("deployments") && named("services") && named("configmaps"),
        "{answer}"
    );

    let (status, document) = get(&scenario, "swagger/doc.json", None)?;
    assert_eq!(status, "200");
    assert!(serde_json::from_str::<Value>(&document)?["paths"]["/resources"].is_object());
    Ok(())
}

fn ask(scenario: &Scenario, token: Option<&str>) -> Result<(String, String)> {
    let namespace = scenario.namespace();
    let query = format!(
        "resources?compositionName=web&compositionNamespace={namespace}&compositionVersion=v1-0-0\
         &compositionResource=shies&compositionDefinitionName=shy&compositionDefinitionNamespace={namespace}\
         &releaseName=fixed"
    );
    get(scenario, &query, token)
}

/// Status and body of an answer of chart-inspector, requested from the node.
fn get(scenario: &Scenario, path: &str, token: Option<&str>) -> Result<(String, String)> {
    let service = format!("{}-chart-inspector", platform::RELEASE);
    let address = scenario.kubectl(&[
        "get",
        "service",
        &service,
        "--namespace",
        platform::NAMESPACE,
        "--output",
        "jsonpath={.spec.clusterIP}",
    ])?;
    let url = format!("http://{address}:8081/{path}");
    let header = format!("Authorization: Bearer {}", token.unwrap_or_default());
    let mut command = vec![
        "curl",
        "--silent",
        "--max-time",
        "10",
        "--write-out",
        "\n%{http_code}",
        &url,
    ];
    if token.is_some() {
        command.extend(["--header", &header]);
    }
    let answer = scenario
        .site()
        .run(e2e::scenario::on_node(scenario.cluster(), &command)?)?;
    let (body, status) = answer
        .trim_end()
        .rsplit_once('\n')
        .unwrap_or(("", answer.trim_end()));
    Ok((status.to_owned(), body.to_owned()))
}
