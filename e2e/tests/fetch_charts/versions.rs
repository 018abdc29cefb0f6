//! A range is resolved once, and stays at that version until the spec changes or the definition asks for newer charts.

use anyhow::Result;
use serde_json::{Value, json};

use super::sources::{Sources, chart, fetched};

#[test]
fn a_newer_chart_is_an_event_until_the_definition_wants_it() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("newer")?;
    let (url, first) = sources.push(&sources.open, "ranged", "1.0.0", &["--plain-http"])?;
    sources.push(&sources.open, "ranged", "2.0.0", &["--plain-http"])?;
    fetched(&namespace, "ranged", &json!({"url": url, "version": "^1"}))?;

    let (_, second) = sources.push(&sources.open, "ranged", "1.1.0", &["--plain-http"])?;
    let definition = namespace.wait("compositiondefinitions", "ranged", |definition| {
        definition["status"]["chart"]["offered"]["version"] == "1.1.0"
    })?;
    let resolved = &definition["status"]["chart"];
    assert_eq!(
        (&resolved["version"], &resolved["digest"]),
        (&json!("1.0.0"), &json!(first))
    );
    let note = "version 1.1.0 of the chart is available: 1.0.0 stays in use until the spec changes; with annotation \
                krateo.io/auto-update newer versions are used at once";
    assert_eq!(notes(&namespace, "ranged", "NewerChart")?, [note]);

    namespace.kubectl(&[
        "annotate",
        "compositiondefinition",
        "ranged",
        "krateo.io/auto-update=true",
    ])?;
    let definition = namespace.wait("compositiondefinitions", "ranged", |definition| {
        definition["status"]["chart"]["version"] == "1.1.0"
    })?;
    let resolved = &definition["status"]["chart"];
    assert_eq!(
        (&resolved["digest"], &resolved["offered"]),
        (&json!(second), &Value::Null)
    );
    Ok(())
}

#[test]
fn a_chart_that_is_published_again_is_noticed_and_not_used() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("republished")?;
    let (url, first) = sources.push(&sources.open, "republished", "1.0.0", &["--plain-http"])?;
    fetched(
        &namespace,
        "republished",
        &json!({"url": url, "version": "1.0.0"}),
    )?;

    let again = chart("republished", "1.0.0")?;
    again.write(
        "templates/more.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}",
    )?;
    let package = again.package(sources.platform.site())?;
    package.push(sources.platform.site(), &sources.open, &["--plain-http"])?;
    let second = package.digest()?;
    let definition = namespace.wait("compositiondefinitions", "republished", |definition| {
        definition["status"]["chart"]["offered"]["digest"] == json!(second)
    })?;
    assert_eq!(definition["status"]["chart"]["digest"], first);
    let note = format!(
        "version 1.0.0 of the chart was published again, with digest {second}: {first} stays in use until the spec changes"
    );
    assert_eq!(notes(&namespace, "republished", "ChartRepublished")?, [note]);
    Ok(())
}

fn notes(namespace: &e2e::Namespace, name: &str, reason: &str) -> Result<Vec<String>> {
    let regarding = format!("regarding.name={name},reason={reason}");
    let events: Value = serde_json::from_str(&namespace.kubectl(&[
        "get",
        "events.events.k8s.io",
        "--field-selector",
        &regarding,
        "--output",
        "json",
    ])?)?;
    let items = events["items"].as_array().unwrap();
    Ok(items
        .iter()
        .map(|event| event["note"].as_str().unwrap().to_owned())
        .collect())
}
