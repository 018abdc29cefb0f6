//! What users of Krateo have in their manifests and charts, and count on: policies on definitions, versions of exported
//! manifests, names of releases, namespaces that charts bring.

use anyhow::{Context as _, Result, ensure};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "keep-to-krateo";

/// A namespace of the release's own, and an object in it.
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
    failed(&home)?;
    orphaned(&home)
}

/// With the policy observe nothing is made; without it, all is.
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

/// An upgrade that fails is not Ready, though the objects of the revision before are well.
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

/// With the policy orphan the definition goes alone.
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
