//! What passes over a composition leave alone, and what its status says while one of them is at work.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose};
use crate::namespace::{condition, is_ready};
use crate::trials::releases::TrialChart;
use crate::{ChartFolder, Namespace};

/// The name of each composition and its release.
const NAME: &str = "web";

/// Passes follow one another quickly.
const RESYNC: (&str, &str) = ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "3s");

/// A composition with the management policy `observe` is not written, although its values and one of its objects
/// change; after that, both are applied.
///
/// # Errors
/// When something is written, or not applied afterwards.
pub fn of_observed_only(rig: &Rig) -> Result<()> {
    let chart = TrialChart::named("config-map")?;
    let url = rig.push(Path::new(&chart.path()), "seen")?;
    let (namespace, type_) = released(rig, "seen", &url, &BTreeMap::new())?;
    let policy = |value: Value| json!({"metadata": {"annotations": {"krateo.io/management-policy": value}}});

    let mark = rig.platform.plane().audit().mark()?;
    let mut observed = policy(json!("observe"));
    observed["spec"] = json!({"one": "second"});
    patch(&namespace, &type_, &observed)?;
    namespace.wait(&type_.resource(), NAME, |web| {
        let synced = condition(web, "Synced");
        synced.is_some_and(|synced| synced["observedGeneration"] == web["metadata"]["generation"])
    })?;
    namespace.kubectl(&[
        "patch",
        "configmap",
        NAME,
        r#"--patch={"data": {"one": "edited"}}"#,
    ])?;
    // Two further passes, at the resync interval.
    std::thread::sleep(Duration::from_secs(7));
    for record in rig.platform.plane().audit().since(mark)? {
        let record = record?;
        let is_report = ["leases", "events"].contains(&record.resource.as_str())
            || (record.resource == type_.plural && record.subresource == "status");
        ensure!(
            record.user != type_.user() || is_report || !record.is_write(),
            "it was written: {record:?}"
        );
    }
    let seen = namespace.get("configmap", NAME)?.unwrap_or_default();
    ensure!(seen["data"]["one"] == "edited", "{seen:#}");

    patch(&namespace, &type_, &policy(Value::Null))?;
    namespace.wait("configmaps", NAME, |map| map["data"]["one"] == "second")?;
    rig.platform.kill_controller(&type_.plural, &type_.version)
}

/// Until an upgrade is done, `Ready` is not true for the new generation.
///
/// # Errors
/// When it is.
pub fn of_older_generations(rig: &Rig) -> Result<()> {
    let trial = TrialChart::named("config-map")?;
    let chart = ChartFolder::copy_of(Path::new(&trial.path()), "slow", "1.0.0")?;
    chart.write_held_hook("pre-upgrade")?;
    let url = rig.push(chart.folder(), "slow")?;
    let (namespace, type_) = released(rig, "slow", &url, &BTreeMap::new())?;
    let first = namespace.wait(&type_.resource(), NAME, is_ready)?;

    change(&namespace, &type_, "second")?;
    let hook = format!("{NAME}-held");
    // The rig has each new pod run.
    namespace.wait("pods", &hook, |pod| pod["status"]["phase"] == "Running")?;
    let during = namespace.get(&type_.resource(), NAME)?.unwrap_or_default();
    let ready = condition(&during, "Ready").cloned().unwrap_or_default();
    let is_newer = during["metadata"]["generation"].as_i64() > first["metadata"]["generation"].as_i64();
    let is_of_older =
        ready["observedGeneration"] == first["metadata"]["generation"] || ready["status"] == "False";
    ensure!(is_newer && is_of_older && !is_ready(&during), "{during:#}");

    let succeeded = r#"--patch={"status": {"phase": "Succeeded"}}"#;
    namespace.kubectl(&[
        "patch",
        "pod",
        &hook,
        "--subresource=status",
        "--type=merge",
        succeeded,
    ])?;
    namespace.wait(&type_.resource(), NAME, |web| {
        is_ready(web) && web["metadata"]["generation"] == during["metadata"]["generation"]
    })?;
    let map = namespace.get("configmap", NAME)?.unwrap_or_default();
    ensure!(
        map["data"]["one"] == "second",
        "ready before it was applied: {map:#}"
    );
    rig.platform.kill_controller(&type_.plural, &type_.version)
}

/// Labels and annotations that others gave to a namespace of the chart survive drift corrections and upgrades.
///
/// # Errors
/// When one is gone.
pub fn of_foreign_marks(rig: &Rig) -> Result<()> {
    let chart = TrialChart::named("namespace")?;
    let url = rig.push(Path::new(&chart.path()), "housed")?;
    let own = format!("passes-housed-{NAME}-own");
    let annotations = BTreeMap::from([
        ("krateo.io/allowed-namespaces", own.as_str()),
        ("krateo.io/allowed-kinds", "namespaces"),
    ]);
    let (namespace, type_) = released(rig, "housed", &url, &annotations)?;
    let (label, annotation) = ("pod-security.kubernetes.io/enforce", "quota.example.com/team");
    namespace.kubectl(&["label", "namespace", &own, &format!("{label}=baseline")])?;
    namespace.kubectl(&["annotate", "namespace", &own, &format!("{annotation}=seven")])?;

    // A correction in the namespace, and then a new revision of all objects.
    let inside = Namespace::of(&own, rig.platform.site());
    inside.kubectl(&[
        "patch",
        "configmap",
        NAME,
        r#"--patch={"data": {"one": "edited"}}"#,
    ])?;
    inside.wait("configmaps", NAME, |map| map["data"]["one"] == "first")?;
    change(&namespace, &type_, "second")?;
    inside.wait("configmaps", NAME, |map| map["data"]["one"] == "second")?;
    namespace.wait(&type_.resource(), NAME, is_ready)?;
    let found = namespace.get("namespace", &own)?.unwrap_or_default();
    let metadata = &found["metadata"];
    ensure!(
        metadata["labels"][label] == "baseline" && metadata["annotations"][annotation] == "seven",
        "{found:#}"
    );
    rig.platform.kill_controller(&type_.plural, &type_.version)
}

/// A composition of the chart at `url` that is released, in a namespace of its own. The definition has these
/// annotations.
fn released(
    rig: &Rig,
    name: &str,
    url: &str,
    annotations: &BTreeMap<&str, &str>,
) -> Result<(Namespace, Type)> {
    let namespace = rig.platform.namespace(&format!("passes-{name}"))?;
    let type_ = rig.define(&namespace, name, url, annotations, &[RESYNC])?;
    let composition: Value = type_.composition(namespace.namespace(), NAME, &json!({}));
    compose(&namespace, &[composition])?;
    await_released(&namespace, &type_, 1)?;
    Ok((namespace, type_))
}

/// Changes the composition's value.
fn change(namespace: &Namespace, type_: &Type, value: &str) -> Result<()> {
    patch(namespace, type_, &json!({"spec": {"one": value}}))
}

fn patch(namespace: &Namespace, type_: &Type, patch: &Value) -> Result<()> {
    let patch = format!("--patch={patch}");
    namespace
        .kubectl(&["patch", &type_.resource(), NAME, "--type=merge", &patch])
        .map(drop)
}
