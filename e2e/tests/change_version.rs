//! A definition that changes to another version of its chart moves its compositions along, once they fit the new
//! schema.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, Scenario};
use serde_json::{Value, json};

#[test]
fn a_new_version_of_a_definition_moves_its_compositions() -> Result<()> {
    let scenario = Scenario::start("change-version")?;
    let url = scenario.push_web_chart("mover", "1.0.0")?;
    scenario.push_web_chart("mover", "1.1.0")?;
    scenario.define("mover", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "mover", "Ready", "True")?;
    scenario.apply(&composition(&scenario, "Mover", "v1-0-0", "web", 1))?;
    scenario.wait_for("movers", "web", "Ready", "True")?;

    patch_version(&scenario, "mover", "1.1.0")?;
    wait_ready(&scenario, "mover")?;

    let crd = scenario
        .get("customresourcedefinitions", "movers.composition.krateo.io")?
        .unwrap();
    assert_eq!(
        versions(&crd),
        [
            ("v1-0-0", true, false),
            ("v1-1-0", true, false),
            ("vacuum", false, true)
        ]
    );
    scenario
        .platform()
        .wait_for("deployments", "movers-v1-1-0-controller", "Available", "True")?;
    scenario.wait_until("nothing of the former controller", || {
        Ok(left_of(&scenario, "movers", "v1-0-0")?.is_empty().then_some(()))
    })?;
    scenario.wait("movers", "web", |composition| {
        composition["metadata"]["labels"]["krateo.io/composition-version"] == "v1-1-0"
            && composition["status"]["helmChartVersion"] == "1.1.0"
    })?;
    assert_eq!(charts(&scenario)?, ["mover-1.1.0"]);

    // Manifests for the previous version still work, and so does the way back.
    scenario.kubectl(&["get", "movers.v1-0-0.composition.krateo.io", "web"])?;
    patch_version(&scenario, "mover", "1.0.0")?;
    wait_ready(&scenario, "mover")?;
    scenario.wait("movers", "web", |composition| {
        composition["status"]["helmChartVersion"] == "1.0.0"
    })?;
    Ok(())
}

#[test]
fn compositions_that_do_not_fit_a_new_version_are_named_and_block_it() -> Result<()> {
    let scenario = Scenario::start("hold-up-version")?;
    let url = scenario.push_web_chart("gated", "1.0.0")?;
    let stricter = ChartFolder::copy("web", "gated", "2.0.0")?;
    let schema = json!({
        "type": "object",
        "properties": {
            "image": {"type": "string"}, "greeting": {"type": "string"},
            "replicas": {"type": "integer", "maximum": 1},
        },
    });
    stricter.write("values.schema.json", &schema.to_string())?;
    stricter.push(scenario.site())?;
    scenario.define("gated", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "gated", "Ready", "True")?;
    for (name, replicas) in [("fits", 1), ("too-big", 2), ("off", 0)] {
        scenario.apply(&composition(&scenario, "Gated", "v1-0-0", name, replicas))?;
        scenario.wait_for("gateds", name, "Released", "True")?;
    }

    patch_version(&scenario, "gated", "2.0.0")?;
    let definition = scenario.wait("compositiondefinitions", "gated", |definition| {
        condition(definition, "Ready").is_some_and(|ready| ready["reason"] == "Incompatible")
    })?;
    assert_eq!(
        definition["status"]["breakers"],
        json!([{
            "namespace": scenario.namespace(), "name": "too-big", "path": "/replicas",
            "reason": "the value is greater than the maximum of 1",
        }])
    );
    for name in ["fits", "too-big", "off"] {
        let composition = scenario.get("gateds", name)?.unwrap();
        assert_eq!(
            composition["metadata"]["labels"]["krateo.io/composition-version"],
            "v1-0-0"
        );
        assert_eq!(composition["status"]["helmChartVersion"], "1.0.0");
    }
    let crd = scenario
        .get("customresourcedefinitions", "gateds.composition.krateo.io")?
        .unwrap();
    assert_eq!(versions(&crd), [("v1-0-0", true, true)], "the new version waits");

    scenario.kubectl(&[
        "patch",
        "gateds",
        "too-big",
        "--type=merge",
        "--patch",
        r#"{"spec":{"replicas":1}}"#,
    ])?;
    wait_ready(&scenario, "gated")?;
    for name in ["fits", "too-big", "off"] {
        scenario.wait("gateds", name, |composition| {
            composition["status"]["helmChartVersion"] == "2.0.0"
        })?;
    }
    let definition = scenario.get("compositiondefinitions", "gated")?.unwrap();
    assert_eq!(definition["status"]["breakers"], Value::Null);
    Ok(())
}

#[test]
fn two_definitions_serve_two_versions_of_one_kind_and_a_third_conflicts() -> Result<()> {
    let scenario = Scenario::start("run-two-versions")?;
    let url = scenario.push_web_chart("pair", "1.0.0")?;
    scenario.push_web_chart("pair", "2.0.0")?;
    for (name, version) in [("old", "1.0.0"), ("new", "2.0.0")] {
        scenario.define(name, &url, version)?;
        scenario.wait_for("compositiondefinitions", name, "Ready", "True")?;
    }
    scenario.apply(&composition(&scenario, "Pair", "v1-0-0", "web", 1))?;
    scenario.wait_for("pairs", "web", "Ready", "True")?;
    for version in ["v1-0-0", "v2-0-0"] {
        let resource = format!("pairs.{version}.composition.krateo.io");
        let composition = scenario.get(&resource, "web")?.unwrap();
        assert_eq!(
            composition["apiVersion"],
            format!("composition.krateo.io/{version}")
        );
        assert_eq!(composition["spec"]["replicas"], 1);
    }

    scenario.define("third", &url, "2.0.0")?;
    let third = scenario.wait_for("compositiondefinitions", "third", "Ready", "False")?;
    assert_eq!(condition(&third, "Ready").unwrap()["reason"], "Conflict");
    scenario.kubectl(&["delete", "compositiondefinitions", "third", "--timeout=60s"])?;

    // A user moves one composition by its labels.
    scenario.kubectl(&[
        "label",
        "pairs",
        "web",
        "--overwrite",
        "krateo.io/composition-version=v2-0-0",
        "krateo.io/composition-definition-name=new",
    ])?;
    scenario.wait("pairs", "web", |composition| {
        composition["status"]["helmChartVersion"] == "2.0.0"
    })?;

    scenario.kubectl(&["delete", "compositiondefinitions", "old", "--timeout=60s"])?;
    assert_eq!(left_of(&scenario, "pairs", "v1-0-0")?, Vec::<String>::new());
    let composition = scenario.get("pairs", "web")?.unwrap();
    assert_eq!(condition(&composition, "Ready").unwrap()["status"], "True");
    scenario.kubectl(&["delete", "compositiondefinitions", "new", "--timeout=90s"])?;
    scenario.wait_gone("customresourcedefinitions", "pairs.composition.krateo.io")?;
    assert_eq!(charts(&scenario)?, Vec::<String>::new());
    Ok(())
}

fn composition(scenario: &Scenario, kind: &str, version: &str, name: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": format!("composition.krateo.io/{version}"),
        "kind": kind,
        "metadata": {"name": name, "namespace": scenario.namespace()},
        "spec": {"image": scenario.web_image(), "replicas": replicas},
    })
}

fn patch_version(scenario: &Scenario, definition: &str, version: &str) -> Result<String> {
    let patch = json!({"spec": {"chart": {"version": version}}}).to_string();
    scenario.kubectl(&[
        "patch",
        "compositiondefinitions",
        definition,
        "--type=merge",
        "--patch",
        &patch,
    ])
}

/// Ready in the present generation.
fn wait_ready(scenario: &Scenario, definition: &str) -> Result<Value> {
    scenario.wait("compositiondefinitions", definition, |definition| {
        condition(definition, "Ready").is_some_and(|ready| {
            ready["status"] == "True" && ready["observedGeneration"] == definition["metadata"]["generation"]
        })
    })
}

fn versions(crd: &Value) -> Vec<(&str, bool, bool)> {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version = |version: &'_ Value| {
        (
            version["served"].as_bool().unwrap(),
            version["storage"].as_bool().unwrap(),
        )
    };
    versions
        .iter()
        .map(|of| {
            let (served, stored) = version(of);
            (of["name"].as_str().unwrap(), served, stored)
        })
        .collect()
}

/// Remaining objects of a controller, of every kind in its bundle.
fn left_of(scenario: &Scenario, resource: &str, version: &str) -> Result<Vec<String>> {
    let labels = format!("krateo.io/controller-resource={resource},krateo.io/controller-version={version}");
    let kinds =
        "deployments,services,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
    let found = scenario
        .platform()
        .kubectl(&["get", kinds, "--selector", &labels, "--output", "name"])?;
    Ok(found.lines().map(str::to_owned).collect())
}

fn charts(scenario: &Scenario) -> Result<Vec<String>> {
    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    Ok(releases
        .iter()
        .map(|release| release["chart"].as_str().unwrap().to_owned())
        .collect())
}
