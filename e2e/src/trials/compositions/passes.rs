//! What passes over a composition leave alone, and what its status says while one of them is at work.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose, until};
use crate::namespace::{condition, is_ready};
use crate::trials::releases::TrialChart;
use crate::{ChartFolder, Namespace};

/// The name of each composition and its release.
const NAME: &str = "web";

/// Passes follow one another quickly.
const RESYNC: (&str, &str) = ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "3s");

/// A hook that runs until somebody says that it has succeeded.
const HELD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-held
  annotations:
    helm.sh/hook: pre-upgrade
spec:
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  nodeSelector: {nowhere: "true"}
  containers:
    - name: main
      image: registry.invalid/none:1
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}
"#;

/// A composition with the management policy `observe` is not written, although its values and one of its objects
/// change; after that, both are applied.
///
/// # Errors
/// When something is written, or not applied afterwards.
pub fn of_observed_only(rig: &Rig) -> Result<()> {
    let chart = TrialChart::named("config-map")?;
    let url = rig.push(Path::new(&chart.path()), "seen")?;
    let (namespace, type_) = released(rig, "seen", &url)?;
    let policy = "krateo.io/management-policy";
    let annotate =
        |value: &str| namespace.kubectl(&["annotate", &type_.resource(), NAME, &format!("{policy}{value}")]);
    annotate("=observe")?;

    let mark = rig.platform.plane().audit().mark()?;
    namespace.kubectl(&[
        "patch",
        "configmap",
        NAME,
        r#"--patch={"data": {"one": "edited"}}"#,
    ])?;
    change(&namespace, &type_, "second")?;
    let records = || {
        let records = rig.platform.plane().audit().since(mark)?;
        let ours = records.filter(|record| {
            let ours = record.as_ref().map(|record| record.user == type_.user());
            ours.unwrap_or(true)
        });
        ours.collect::<Result<Vec<_>>>()
    };
    until("passes over what is only observed", || {
        let records = records()?;
        let reads = records
            .iter()
            .filter(|record| record.resource == "configmaps" && !record.is_write());
        Ok((reads.count() > 2).then_some(()))
    })?;
    for record in records()? {
        let is_report = ["leases", "events"].contains(&record.resource.as_str())
            || (record.resource == type_.plural && record.subresource == "status");
        ensure!(is_report || !record.is_write(), "it was written: {record:?}");
    }
    let seen = namespace.get("configmap", NAME)?.unwrap_or_default();
    ensure!(seen["data"]["one"] == "edited", "{seen:#}");

    annotate("-")?;
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
    chart.write("templates/held.yaml", HELD)?;
    let url = rig.push(chart.folder(), "slow")?;
    let (namespace, type_) = released(rig, "slow", &url)?;
    let first = namespace.wait(&type_.resource(), NAME, is_ready)?;

    change(&namespace, &type_, "second")?;
    let hook = format!("{NAME}-held");
    namespace.wait("pods", &hook, |_| true)?;
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
    let (namespace, type_) = released(rig, "housed", &url)?;
    let own = format!("{}-{NAME}-own", namespace.namespace());
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

/// A composition of the chart at `url` that is released, in a namespace of its own.
fn released(rig: &Rig, name: &str, url: &str) -> Result<(Namespace, Type)> {
    let namespace = rig.platform.namespace(&format!("passes-{name}"))?;
    let type_ = rig.define(&namespace, name, url, &BTreeMap::new(), &[RESYNC])?;
    let composition: Value = type_.composition(namespace.namespace(), NAME, &json!({}));
    compose(&namespace, &[composition])?;
    await_released(&namespace, &type_, 1)?;
    Ok((namespace, type_))
}

/// Changes the composition's value.
fn change(namespace: &Namespace, type_: &Type, value: &str) -> Result<()> {
    let patch = format!("--patch={}", json!({"spec": {"one": value}}));
    namespace
        .kubectl(&["patch", &type_.resource(), NAME, "--type=merge", &patch])
        .map(drop)
}
