//! Deleting a composition removes its release, its objects and its permissions, and nothing else.

use anyhow::Result;
use e2e::Scenario;
use local_cluster::audit::Mark;
use serde_json::{Value, json};

/// The controller's account.
const ACCOUNT: &str = "system:serviceaccount:krateo-system:vanishers-v1-0-0";

#[test]
fn a_deleted_composition_leaves_nothing_behind() -> Result<()> {
    let scenario = Scenario::start("delete-composition")?;
    let url = scenario.push_web_chart("vanisher", "1.0.0")?;
    scenario.define("vanisher", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "vanisher", "Ready", "True")?;
    for name in ["goes", "stays"] {
        scenario.apply(&json!({
            "apiVersion": "composition.krateo.io/v1-0-0",
            "kind": "Vanisher",
            "metadata": {"name": name, "namespace": scenario.namespace()},
            "spec": {"image": scenario.web_image()},
        }))?;
    }
    for name in ["goes", "stays"] {
        scenario.wait_for("vanishers", name, "Ready", "True")?;
    }

    let mark = scenario.cluster().audit().mark()?;
    scenario.kubectl(&["delete", "vanishers", "goes", "--timeout=90s"])?;
    assert_eq!(
        releases(&scenario)?
            .iter()
            .filter(|name| name.starts_with("goes"))
            .count(),
        0
    );
    for resource in [
        "deployments",
        "services",
        "configmaps",
        "secrets",
        "roles",
        "rolebindings",
    ] {
        let names = scenario.kubectl(&["get", resource, "--output", "jsonpath={.items[*].metadata.name}"])?;
        assert!(!names.contains("goes"), "{resource}: {names}");
        assert!(names.contains("stays"), "{resource}: {names}");
    }
    objects_that_a_watch_knows_are_not_read(&scenario, mark)
}

/// A Deployment changes by itself, but these do not.
fn objects_that_a_watch_knows_are_not_read(scenario: &Scenario, mark: Mark) -> Result<()> {
    let mut removed = Vec::new();
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        let is_of_chart = ["configmaps", "services"].contains(&record.resource.as_str());
        if record.user == ACCOUNT && record.namespace == scenario.namespace() && is_of_chart {
            removed.push((record.resource, record.verb));
        }
    }
    removed.retain(|(_, verb)| verb == "get" || verb == "delete");
    removed.sort();
    let deleted = |resource: &str| (resource.to_owned(), "delete".to_owned());
    assert_eq!(removed, [deleted("configmaps"), deleted("services")]);
    Ok(())
}

fn releases(scenario: &Scenario) -> Result<Vec<String>> {
    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    Ok(releases
        .iter()
        .map(|release| release["name"].as_str().unwrap().to_owned())
        .collect())
}
