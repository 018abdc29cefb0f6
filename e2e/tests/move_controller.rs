//! A controller moves to another namespace, with pods: the old one is gone before the new one does anything, and the
//! workload of its release keeps running.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::Scenario;
use e2e::image;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::scenario::is_ready;
use serde_json::{Value, json};

const HOME: &str = "move-controller";
const BASE: &str = "movables-v1-0-0";

#[test]
fn only_one_controller_at_a_time_writes_while_it_moves() -> Result<()> {
    let scenario = Scenario::alone(HOME)?;
    let url = scenario.push_web_chart("movable", "1.0.0")?;
    scenario.define("movable", &url, "1.0.0")?;
    scenario.wait("compositiondefinitions", "movable", is_ready)?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Movable",
        "metadata": {"name": "web", "namespace": HOME, "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("movables", "web", "Ready", "True")?;
    let before = release(&scenario)?;
    for place in ["definition", "platform"] {
        let (from, to) = match place {
            "definition" => (NAMESPACE, HOME),
            _ => (HOME, NAMESPACE),
        };
        let mark = scenario.cluster().audit().mark()?;
        upgrade(&scenario, place)?;
        let deployment = format!("{BASE}-controller");
        let mut seen = BTreeSet::new();
        scenario.wait_until("the controller to move", || {
            let places = pods(&scenario)?;
            assert!(places.len() < 2, "pods of the controller in two namespaces");
            seen.extend(places);
            let there = e2e::Namespace::of(to, scenario.site()).get("deployments", &deployment)?;
            let is_up = there.is_some_and(|there| there["status"]["availableReplicas"] == 1);
            Ok(is_up.then_some(()))
        })?;
        assert!(seen.contains(to), "{seen:?}");
        // It reconciles changes.
        scenario.kubectl(&["scale", "deployment", "fixed-web", "--replicas=0"])?;
        scenario.wait("deployment", "fixed-web", |web| web["spec"]["replicas"] == 1)?;
        scenario.wait("compositiondefinitions", "movable", is_ready)?;
        one_after_the_other(&scenario, mark, from, to)?;
    }
    scenario.wait_for("movables", "web", "Ready", "True")?;
    assert_eq!(release(&scenario)?, before);
    Ok(())
}

fn upgrade(scenario: &Scenario, place: &str) -> Result<()> {
    let chart = image::root().join("charts/core-provider");
    let place = format!("cdc.namespace={place}");
    let chart = chart.to_string_lossy();
    scenario
        .site()
        .run(scenario.site().helm([
            "upgrade",
            RELEASE,
            chart.as_ref(),
            "--namespace",
            NAMESPACE,
            "--reuse-values",
            "--set",
            &place,
        ]))
        .map(drop)
}

/// The namespaces where pods of the controller run, including those that are being deleted.
fn pods(scenario: &Scenario) -> Result<BTreeSet<String>> {
    let selector = format!("--selector=app.kubernetes.io/name={BASE}");
    let found = scenario.kubectl(&["get", "pods", "--all-namespaces", &selector, "--output=json"])?;
    let found: Value = serde_json::from_str(&found)?;
    let pods = found["items"].as_array().context("no list")?.iter();
    Ok(pods
        .filter(|pod| pod["status"]["containerStatuses"][0]["state"]["running"].is_object())
        .filter_map(|pod| pod["metadata"]["namespace"].as_str().map(str::to_owned))
        .collect())
}

/// Objects of the release by UID, and its records.
fn release(scenario: &Scenario) -> Result<Vec<Value>> {
    let kinds = "configmaps,services,deployments,secrets";
    let found: Value = serde_json::from_str(&scenario.kubectl(&["get", kinds, "--output", "json"])?)?;
    let objects = found["items"].as_array().context("no list")?.iter();
    Ok(objects
        .filter(|object| object["metadata"]["name"] != "kube-root-ca.crt")
        .map(|object| {
            json!([
                object["kind"],
                object["metadata"]["name"],
                object["metadata"]["uid"],
                object["data"]
            ])
        })
        .collect())
}

/// By the audit log: an account does not write any more once the other one has begun.
fn one_after_the_other(
    scenario: &Scenario,
    mark: local_cluster::audit::Mark,
    from: &str,
    to: &str,
) -> Result<()> {
    let (from, to) = (
        format!("system:serviceaccount:{from}:{BASE}"),
        format!("system:serviceaccount:{to}:{BASE}"),
    );
    let mut begun = false;
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        let is_write = record.is_write() && record.resource != "events";
        begun |= is_write && record.user == to;
        assert!(
            !(begun && is_write && record.user == from),
            "the former controller still writes: {} {}",
            record.verb,
            record.uri
        );
    }
    assert!(begun, "the new controller wrote nothing");
    Ok(())
}
