//! A definition that cannot be carried out says so, and what to do; nothing is deployed for it.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, Scenario};

#[test]
fn a_definition_that_cannot_be_reconciled_says_what_to_do() -> Result<()> {
    let scenario = Scenario::start("refuse-definition")?;
    let registry = scenario.site().registry();

    check(
        &scenario,
        "wrong-scheme",
        "ftp://example.com/web",
        "could not observe the definition: could not fetch the chart: the chart's url is not usable: \
         chart url ftp://example.com/web is neither oci://host/path, https://host/chart.tgz nor https://host/repository",
    )?;
    check(
        &scenario,
        "missing-chart",
        &format!("oci://{registry}/charts/nowhere"),
        &format!("could not observe the definition: could not fetch the chart: {registry} answered 404"),
    )?;
    let without_schema = ChartFolder::copy("web", "schemaless", "1.0.0")?;
    without_schema.remove("values.schema.json")?;
    check(
        &scenario,
        "no-schema",
        &without_schema.push(scenario.site())?,
        "could not observe the definition: chart schemaless has no values.schema.json: \
         add one to the chart, the type is generated from it",
    )?;
    let digit_first = ChartFolder::copy("web", "3scale", "1.0.0")?;
    check(
        &scenario,
        "digit-first",
        &digit_first.push(scenario.site())?,
        "could not observe the definition: the chart cannot become a type: chart name \"3scale\" starts with a digit",
    )?;

    let own = format!(
        "--selector=krateo.io/composition-definition-namespace={}",
        scenario.namespace()
    );
    let get = ["get", "deployments", "--all-namespaces", &own, "--output", "name"];
    assert_eq!(scenario.kubectl(&get)?.trim(), "", "nothing is deployed for them");
    Ok(())
}

fn check(scenario: &Scenario, name: &str, url: &str, message: &str) -> Result<()> {
    scenario.define(name, url, "1.0.0")?;
    let definition = scenario.wait_for("compositiondefinitions", name, "Synced", "False")?;
    let ready = condition(&definition, "Ready").unwrap();
    let synced = condition(&definition, "Synced").unwrap();
    assert_eq!(
        (ready["status"].as_str(), synced["reason"].as_str()),
        (Some("False"), Some("ReconcileError"))
    );
    for condition in [ready, synced] {
        let said = condition["message"].as_str().unwrap();
        assert!(said.starts_with(message), "{name} says {said:?}");
    }
    Ok(())
}
