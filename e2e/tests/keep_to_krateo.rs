//! What users of Krateo have in their manifests and charts, and rely on: policies on definitions, versions of exported
//! manifests, names of releases, namespaces that charts bring.

use anyhow::{Context as _, Result, ensure};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "keep-to-krateo";

/// A namespace that the release brings, and an object in it.
const OWN_NAMESPACE: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: keep-to-krateo-own, labels: {team: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: inside, namespace: keep-to-krateo-own}
data: {a: b}
{{- if eq .Values.greeting "broken" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-broken}
data: {"no key": b}
{{- end }}
"#;

#[test]
fn manifests_and_charts_of_krateo_do_what_they_did() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "keeper", "1.0.0")?;
    chart.write("templates/own.yaml", OWN_NAMESPACE)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;

    observed_alone(&home, &url)?;
    home.platform()
        .wait("deployments", "keepers-v1-0-0-controller", |_| true)?;
    platform.run_controller("keepers", "v1-0-0")?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Keeper",
        "metadata": {"name": "web", "namespace": HOME, "labels": {"krateo.io/composition-version": "v0-9-0"}},
        "spec": {"image": "nginx"},
    });
    home.wait_until("the type", || Ok(home.apply(&composition).ok()))?;
    let released = home.wait_for("keepers", "web", "Released", "True")?;
    let labels = &released["metadata"]["labels"];
    ensure!(labels["krateo.io/composition-version"] == "v1-0-0", "{labels}");
    let name = released["status"]["releaseName"]
        .as_str()
        .context("no release name")?;
    ensure!(labels["krateo.io/release-name"] == name, "{labels}");

    let own = home
        .get("namespaces", "keep-to-krateo-own")?
        .context("no namespace")?;
    ensure!(own["metadata"]["labels"]["team"] == "web", "{own}");
    ensure!(
        own["metadata"]["labels"]["krateo.io/composition-id"] == released["metadata"]["uid"],
        "{own}"
    );

    paused(&home)?;
    labels_of_others_stay(&home)?;
    failed(&home)?;
    let own = home
        .get("namespaces", "keep-to-krateo-own")?
        .context("no namespace")?;
    has_labels_of_others(&own)?;
    orphaned(&home)
}

/// On the namespace that the release brings, labels and annotations of other controllers stay when those of the release
/// are corrected.
fn labels_of_others_stay(home: &Namespace) -> Result<()> {
    let own = "keep-to-krateo-own";
    // What kubectl adds under its own name is drift, and is removed.
    let mesh = "--field-manager=mesh-operator";
    home.kubectl(&[
        "annotate",
        mesh,
        "namespace",
        own,
        "quota.example.com/owner=finance",
    ])?;
    let enforced = "pod-security.kubernetes.io/enforce=restricted";
    home.kubectl(&["label", mesh, "namespace", own, enforced])?;
    home.kubectl(&["label", "--overwrite", "namespace", own, "team=another"])?;
    let corrected = home.wait_until("the release's own label to be corrected", || {
        let namespace = home.get("namespaces", own)?;
        Ok(namespace.filter(|namespace| namespace["metadata"]["labels"]["team"] == "web"))
    })?;
    has_labels_of_others(&corrected)
}

fn has_labels_of_others(namespace: &Value) -> Result<()> {
    let metadata = &namespace["metadata"];
    ensure!(
        metadata["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
            && metadata["annotations"]["quota.example.com/owner"] == "finance",
        "{metadata}"
    );
    Ok(())
}

/// A namespace that the release brings, and an object that belongs to somebody else by then.
const LODGING: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: keep-to-krateo-lodging}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: inside, namespace: keep-to-krateo-lodging}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken}
";

#[test]
fn a_namespace_that_a_chart_brings_goes_with_a_composition_that_never_became_a_release() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace("keep-to-krateo-lodgers")?;
    an_apply_can_make_without_changing(&home)?;
    let registry = platform
        .plane()
        .start_registry("keep-to-krateo-lodgers", &Settings::default())?;
    let chart = ChartFolder::copy("web", "lodger", "1.0.0")?;
    chart.write("templates/lodging.yaml", LODGING)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken", "namespace": home.namespace()}}))?;
    home.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "lodger", "namespace": home.namespace(), "annotations": {
            "krateo.io/allowed-namespaces": "keep-to-krateo-lodging",
        }},
        "spec": {"chart": {"url": url, "version": "1.0.0"}},
    }))?;
    home.platform()
        .wait("deployments", "lodgers-v1-0-0-controller", |_| true)?;
    platform.run_controller("lodgers", "v1-0-0")?;
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Lodger",
        "metadata": {"name": "web", "namespace": home.namespace()}, "spec": {"image": "nginx"},
    });
    home.wait_until("the type", || Ok(home.apply(&composition).ok()))?;
    home.wait("lodgers", "web", |lodger| {
        condition(lodger, "Synced").is_some_and(|synced| {
            let message = synced["message"].as_str().unwrap_or_default();
            synced["status"] == "False" && message.contains("taken")
        })
    })?;
    let lodging = || home.get("namespaces", "keep-to-krateo-lodging");
    let made = lodging()?.context("the namespace was not made")?;
    ensure!(made["metadata"]["deletionTimestamp"].is_null(), "{made}");
    home.kubectl(&["delete", "lodger", "web", "--wait=false"])?;
    home.wait_gone("lodgers", "web")?;
    // There is no namespace controller here, so a deleted namespace stays in that state.
    let left = lodging()?.filter(|left| left["metadata"]["deletionTimestamp"].is_null());
    ensure!(left.is_none(), "{left:?}");
    ensure!(
        home.get("configmaps", "taken")?.is_some(),
        "somebody else's object was removed"
    );
    Ok(())
}

/// The controller relies on this when it creates a namespace: an apply with resourceVersion 1 creates, and never
/// changes an existing object.
fn an_apply_can_make_without_changing(home: &Namespace) -> Result<()> {
    let object = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
            "metadata": {"name": "new", "namespace": home.namespace(), "resourceVersion": "1"},
        })
    };
    home.apply(&object("first"))?;
    let refused = home.apply(&object("second"));
    let there = home.get("configmaps", "new")?.unwrap_or_default();
    ensure!(refused.is_err() && there["data"]["a"] == "first", "{there}");
    Ok(())
}

/// With the policy observe nothing is created; without it, everything is.
fn observed_alone(home: &Namespace, url: &str) -> Result<()> {
    home.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "keeper", "namespace": HOME, "annotations": {
            "krateo.io/management-policy": "observe", "krateo.io/allowed-namespaces": "keep-to-krateo-own",
        }},
        "spec": {"chart": {"url": url, "version": "1.0.0"}},
    }))?;
    home.wait("compositiondefinitions", "keeper", |definition| {
        condition(definition, "Ready").is_some_and(|ready| {
            let message = ready["message"].as_str().unwrap_or_default();
            ready["status"] == "False" && message.contains("krateo.io/management-policy")
        })
    })?;
    ensure!(
        home.get("crd", "keepers.composition.krateo.io")?.is_none(),
        "the type was made"
    );
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "keeper",
        "krateo.io/management-policy-",
    ])
    .map(drop)
}

fn paused(home: &Namespace) -> Result<()> {
    home.kubectl(&["annotate", "keeper", "web", "krateo.io/paused=true"])?;
    home.wait_until("the event of the pause", || {
        let events = home.kubectl(&["get", "events.events.k8s.io", "--output=json"])?;
        Ok(events.contains("\"ReconciliationPaused\"").then_some(()))
    })?;
    home.kubectl(&["annotate", "keeper", "web", "krateo.io/paused-"])
        .map(drop)
}

/// After a failed upgrade it is not Ready, although the objects of the previous revision are.
fn failed(home: &Namespace) -> Result<()> {
    let broken = r#"{"spec":{"greeting":"broken"}}"#;
    home.kubectl(&["patch", "keeper", "web", "--type=merge", "--patch", broken])?;
    home.wait("keepers", "web", |keeper| {
        let is = |type_: &str| condition(keeper, type_).is_some_and(|said| said["status"] == "False");
        let generation = &keeper["metadata"]["generation"];
        let ready = condition(keeper, "Ready").cloned().unwrap_or_default();
        is("Ready")
            && is("Synced")
            && ready["observedGeneration"] == *generation
            && ready["reason"] == "Unavailable"
    })
    .map(drop)
}

/// With the policy orphan only the definition is deleted.
fn orphaned(home: &Namespace) -> Result<()> {
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "keeper",
        "krateo.io/deletion-policy=orphan",
    ])?;
    home.kubectl(&["delete", "compositiondefinition", "keeper", "--wait=false"])?;
    home.wait_gone("compositiondefinitions", "keeper")?;
    let left: [(&Namespace, &str, &str); 3] = [
        (home, "crd", "keepers.composition.krateo.io"),
        (home, "keepers", "web"),
        (&home.platform(), "deployments", "keepers-v1-0-0-controller"),
    ];
    for (place, resource, name) in left {
        let object: Option<Value> = place.get(resource, name)?;
        let object = object.with_context(|| format!("{resource} {name} is gone"))?;
        ensure!(
            object["metadata"]["deletionTimestamp"].is_null(),
            "{resource} {name} goes"
        );
    }
    Ok(())
}
