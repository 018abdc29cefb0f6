//! The metrics that core-provider and a controller push while a composition is installed and removed, under the names
//! of Krateo's contract.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose, until};
use crate::collector::{Figure, Pushed};
use crate::{image, progress};

/// What is common to both kinds of controllers.
const PARTS: [&str; 9] = [
    "reconcile.get",
    "external.connect",
    "external.observe",
    "external.create",
    "external.update",
    "external.delete",
    "finalizer.add",
    "finalizer.remove",
    "status.update",
];

const COUNTS: [&str; 7] = [
    "startup.success",
    "startup.failure",
    "reconcile.success",
    "reconcile.failure",
    "reconcile.requeue.after",
    "reconcile.requeue.immediate",
    "reconcile.requeue.error",
];

const HISTOGRAMS: [&str; 4] = [
    "reconcile.duration_seconds",
    "reconcile.queue.wait.duration_seconds",
    "reconcile.queue.oldest_item_age_seconds",
    "reconcile.queue.work.duration_seconds",
];

const GAUGES: [&str; 2] = ["reconcile.queue.depth", "reconcile.in_flight"];

/// What is counted about a release.
const RELEASE: [&str; 6] = [
    "chart_inspector",
    "rbac_generation",
    "rbac_apply",
    "helm_install",
    "helm_upgrade",
    "helm_uninstall",
];

/// For each part of a composition's life, the metrics that must have values by its end.
const HAPPENS: [&str; 12] = [
    "startup.success",
    "reconcile.success",
    "reconcile.duration_seconds",
    "reconcile.queue.wait.duration_seconds",
    "reconcile.queue.work.duration_seconds",
    "reconcile.queue.oldest_item_age_seconds",
    "reconcile.queue.requeues",
    "external.connect.duration_seconds",
    "external.observe.duration_seconds",
    "external.create.duration_seconds",
    "finalizer.add.duration_seconds",
    "status.update.duration_seconds",
];

/// The environment of a program that pushes its metrics to this collector.
pub(super) fn pushed_to(collector: &str) -> [(&'static str, &str); 3] {
    [
        ("OTEL_ENABLED", "true"),
        ("OTEL_EXPORT_INTERVAL", "500ms"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
    ]
}

/// Installs and removes a composition, and returns what is wrong with the metrics that were pushed meanwhile.
///
/// # Errors
/// When the composition does not come or go, or something that happened never becomes a figure.
pub fn run(rig: &Rig) -> Result<BTreeSet<String>> {
    let namespace = rig.platform.namespace("figures")?;
    let url = rig.push(&image::root().join("e2e/charts/bench"), "counted")?;
    let deployment = ("DEPLOYMENT_NAME", "counted-v1-0-0-controller");
    let named = ("OTEL_SERVICE_NAME", "counted");
    let collector = rig.collector.url();
    let environment: Vec<_> = pushed_to(&collector)
        .into_iter()
        .chain([deployment, named])
        .collect();
    let type_ = rig.define(&namespace, "counted", &url, &BTreeMap::new(), &environment)?;
    live_and_go(&namespace, &type_)?;

    progress("reading the figures");
    let provider = await_pushed(rig, ("service.name", "core-provider"), "provider_runtime", &[])?;
    let mut released: Vec<_> = RELEASE.map(|part| format!("composition_{part}_total")).to_vec();
    released.extend(RELEASE.map(|part| format!("composition_{part}_duration_seconds")));
    released.extend(
        [
            "external.update.duration_seconds",
            "external.delete.duration_seconds",
            "finalizer.remove.duration_seconds",
            "reconcile.get.duration_seconds",
        ]
        .map(|figure| format!("unstructured_runtime.{figure}")),
    );
    let controller = await_pushed(
        rig,
        ("service.name", "counted"),
        "unstructured_runtime",
        &released,
    )?;

    let mut wrong = misnamed(&provider, "provider_runtime");
    wrong.extend(misnamed(&controller, "unstructured_runtime"));
    for part in RELEASE {
        expect(
            &controller,
            &format!("composition_{part}_errors"),
            "count",
            &mut wrong,
        );
        expect(
            &controller,
            &format!("composition_{part}_total"),
            "count",
            &mut wrong,
        );
        let durations = format!("composition_{part}_duration_seconds");
        expect(&controller, &durations, "histogram", &mut wrong);
    }
    for action in ["install", "upgrade", "uninstall"] {
        let count = |what: &str| match controller
            .figures
            .get(&format!("composition_helm_{action}_{what}"))
        {
            Some(Figure::Count(count)) => *count,
            _ => f64::NAN,
        };
        let succeeded = count("total") - count("errors");
        if !(0.5..1.5).contains(&succeeded) {
            wrong.insert(format!("{succeeded} of helm_{action} went well, not 1"));
        }
    }
    for (pushed, attribute) in [
        (&provider, "service.instance.id"),
        (&controller, "service.instance.id"),
        (&controller, "k8s.deployment.name"),
    ] {
        if pushed.attributes.get(attribute).is_none_or(String::is_empty) {
            wrong.insert(format!("no attribute {attribute}: {:?}", pushed.attributes));
        }
    }
    if controller
        .attributes
        .get("k8s.deployment.name")
        .map(String::as_str)
        != Some(deployment.1)
    {
        wrong.insert(format!("another deployment: {:?}", controller.attributes));
    }
    Ok(wrong)
}

fn live_and_go(namespace: &crate::Namespace, type_: &Type) -> Result<()> {
    let name = "counted";
    let of = |spec: &Value| type_.composition(namespace.namespace(), name, spec);
    compose(namespace, &[of(&json!({}))])?;
    await_released(namespace, type_, 1)?;
    compose(namespace, &[of(&json!({"greeting": "Good morning"}))])?;
    until("the change to be released", || {
        let object = namespace.get(&type_.resource(), name)?.context("it is gone")?;
        Ok(object["status"]["previousDigest"].is_string().then_some(()))
    })?;
    namespace.kubectl(&["delete", &type_.resource(), name])?;
    namespace.wait_gone(&type_.resource(), name)
}

/// Waits for a push that contains everything that has happened.
fn await_pushed(
    rig: &Rig,
    (attribute, value): (&str, &str),
    prefix: &str,
    further: &[String],
) -> Result<Pushed> {
    let expected: Vec<_> = HAPPENS
        .iter()
        .map(|figure| format!("{prefix}.{figure}"))
        .chain(further.iter().cloned())
        .collect();
    let mut missing = Vec::new();
    let pushed = until(&format!("figures of {value}"), || {
        let Some(pushed) = rig.collector.pushed(attribute, value) else {
            return Ok(None);
        };
        missing = expected
            .iter()
            .filter(|figure| !pushed.figures.get(*figure).is_some_and(|figure| figure.is_some()))
            .cloned()
            .collect();
        Ok(missing.is_empty().then_some(pushed))
    });
    pushed.with_context(|| format!("nothing was counted as {missing:?}"))
}

/// Metrics of the contract that are missing, or have another type.
fn misnamed(pushed: &Pushed, prefix: &str) -> BTreeSet<String> {
    let mut wrong = BTreeSet::new();
    for part in PARTS {
        let name = format!("{prefix}.{part}");
        expect(
            pushed,
            &format!("{name}.duration_seconds"),
            "histogram",
            &mut wrong,
        );
        expect(pushed, &format!("{name}.failure"), "count", &mut wrong);
    }
    for count in COUNTS {
        expect(pushed, &format!("{prefix}.{count}"), "count", &mut wrong);
    }
    for histogram in HISTOGRAMS {
        expect(pushed, &format!("{prefix}.{histogram}"), "histogram", &mut wrong);
    }
    for gauge in GAUGES {
        expect(pushed, &format!("{prefix}.{gauge}"), "gauge", &mut wrong);
    }
    wrong
}

fn expect(pushed: &Pushed, name: &str, kind: &str, wrong: &mut BTreeSet<String>) {
    let found = match pushed.figures.get(name) {
        Some(Figure::Count(_)) => "count",
        Some(Figure::Gauge(_)) => "gauge",
        Some(Figure::Histogram(_)) => "histogram",
        Some(Figure::Other) => "something else",
        None => "not there",
    };
    if found != kind {
        wrong.insert(format!("{name} is {found}, not a {kind}"));
    }
}
