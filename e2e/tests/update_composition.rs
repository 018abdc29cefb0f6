//! A changed spec leads to a new revision; an unchanged one does not.

use anyhow::Result;
use e2e::Scenario;
use e2e::scenario::{condition, is_ready};
use local_cluster::audit::Mark;
use serde_json::{Value, json};

/// The controller's account.
const ACCOUNT: &str = "system:serviceaccount:krateo-system:tuners-v1-0-0";

#[test]
fn a_changed_spec_becomes_one_new_revision_and_an_unchanged_one_no_write() -> Result<()> {
    let scenario = Scenario::start("update-composition")?;
    let url = scenario.push_web_chart("tuner", "1.0.0")?;
    scenario.define("tuner", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "tuner", "Ready", "True")?;
    scenario.apply(&tuner(&scenario, "one", 1))?;
    scenario.wait_for("tuners", "web", "Ready", "True")?;

    let mark = scenario.cluster().audit().mark()?;
    scenario.apply(&tuner(&scenario, "two", 2))?;
    let name = release_name(&scenario)?;
    scenario.wait_until("the new greeting", || {
        let config = scenario.get("configmaps", &format!("{name}-web"))?;
        Ok(config.filter(|config| config["data"]["GREETING"] == "two"))
    })?;
    scenario.wait("tuners", "web", is_ready)?;
    assert_eq!(
        revisions(&scenario, &name)?,
        [(1, "superseded".to_owned()), (2, "deployed".to_owned())]
    );
    let deployment = scenario.get("deployments", &format!("{name}-web"))?.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    only_what_changed_is_written_and_nothing_that_a_watch_knows_is_read(&scenario, mark)?;

    a_pass_over_an_unchanged_composition_writes_nothing(&scenario, &name)?;
    what_cannot_be_pulled_is_never_ready(&scenario)
}

fn only_what_changed_is_written_and_nothing_that_a_watch_knows_is_read(
    scenario: &Scenario,
    mark: Mark,
) -> Result<()> {
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        if record.user == ACCOUNT && record.namespace == scenario.namespace() {
            if record.is_write() {
                written.push(record.resource);
            } else if record.verb == "get" {
                read.push(record.resource);
            }
        }
    }
    let times = |requests: &[String], resource: &str| {
        let requests = requests.iter();
        requests.filter(|requested| *requested == resource).count()
    };
    let of_chart = ["configmaps", "deployments", "services"].map(|resource| times(&written, resource));
    assert_eq!(of_chart, [1, 1, 0], "{written:?}");
    // The Deployment changes by itself.
    let of_chart = ["configmaps", "services"].map(|resource| times(&read, resource));
    assert_eq!(of_chart, [0, 0], "{read:?}");
    Ok(())
}

/// The pods of the previous revision keep running, so a Ready of the older generation stays; there must be none for the
/// new generation.
fn what_cannot_be_pulled_is_never_ready(scenario: &Scenario) -> Result<()> {
    let mut changed = tuner(scenario, "three", 2);
    changed["spec"]["image"] = format!("{}/nowhere:1", scenario.site().registry()).into();
    scenario.apply(&changed)?;
    let is_told = |tuner: &Value| {
        assert!(!is_ready(tuner), "{}", tuner["status"]["conditions"]);
        let is_of_now = |type_: &str, status: &str| {
            condition(tuner, type_).is_some_and(|said| {
                said["status"] == status && said["observedGeneration"] == tuner["metadata"]["generation"]
            })
        };
        is_of_now("Released", "True") && is_of_now("Ready", "False")
    };
    scenario.wait("tuners", "web", is_told)?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    let still = scenario.get("tuners", "web")?.unwrap();
    assert!(is_told(&still), "{}", still["status"]["conditions"]);
    Ok(())
}

/// An annotation without a meaning triggers a pass and must leave no trace.
fn a_pass_over_an_unchanged_composition_writes_nothing(scenario: &Scenario, release: &str) -> Result<()> {
    let mark = scenario.cluster().audit().mark()?;
    scenario.kubectl(&["annotate", "tuners", "web", "krateo.io/connector-verbose=true"])?;
    scenario.wait_until("a pass", || {
        let mut records = scenario.cluster().audit().since(mark)?;
        let seen = records
            .any(|record| record.is_ok_and(|record| record.user == ACCOUNT && record.resource == "secrets"));
        Ok(seen.then_some(()))
    })?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    for record in scenario.cluster().audit().since(mark)? {
        let record = record?;
        let is_lease = record.resource == "leases";
        assert!(
            record.user != ACCOUNT || !record.is_write() || is_lease,
            "an idle pass wrote: {record:?}"
        );
    }
    assert_eq!(revisions(scenario, release)?.len(), 2);
    Ok(())
}

fn tuner(scenario: &Scenario, greeting: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Tuner",
        "metadata": {"name": "web", "namespace": scenario.namespace()},
        "spec": {"image": scenario.web_image(), "greeting": greeting, "replicas": replicas},
    })
}

fn release_name(scenario: &Scenario) -> Result<String> {
    let releases: Vec<Value> = serde_json::from_str(&scenario.helm(&["list", "--output", "json"])?)?;
    Ok(releases[0]["name"].as_str().unwrap().to_owned())
}

fn revisions(scenario: &Scenario, release: &str) -> Result<Vec<(i64, String)>> {
    let history: Vec<Value> =
        serde_json::from_str(&scenario.helm(&["history", release, "--output", "json"])?)?;
    Ok(history
        .iter()
        .map(|entry| {
            (
                entry["revision"].as_i64().unwrap(),
                entry["status"].as_str().unwrap().to_owned(),
            )
        })
        .collect())
}
