//! A release with objects of types that are not served yet waits for them, and its objects move from version to version.

use std::time::Instant;

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "await-types";

/// So long that no resync happens during the test.
const RARELY: (&str, &str) = ("COMPOSITION_CONTROLLER_RESYNC_INTERVAL", "1h");

/// One object whose type is always served, and one whose type may not be.
const TEMPLATE: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-beside}
---
apiVersion: await.example.org/{{ .Values.shop }}
kind: Shop
metadata: {name: {{ .Release.Name }}}
spec: {size: 1}
";

#[test]
fn a_release_waits_for_its_types_and_its_objects_move_from_version_to_version() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "waiter", "1.0.0")?;
    chart.write("templates/shop.yaml", TEMPLATE)?;
    chart.write(
        "values.yaml",
        "image: x\nreplicas: 1\ngreeting: Hello\nshop: v1\n",
    )?;
    let url = chart
        .package(home.site())?
        .push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("waiter", &url, "1.0.0")?;
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "waiter",
        "krateo.io/allowed-kinds=await.example.org/shops",
    ])?;
    home.platform()
        .wait("deployments", "waiters-v1-0-0-controller", |_| true)?;
    platform.run_controller_with("waiters", "v1-0-0", &[RARELY])?;
    home.wait_until("the type", || Ok(home.apply(&composition("v1")).ok()))?;

    waits(&home, "kind Shop in await.example.org/v1")?;
    assert!(
        home.get("configmaps", "web-beside")?.is_none(),
        "half of it was written"
    );
    assert_eq!(records(&home)?, 0);
    let since = Instant::now();
    home.apply(&definition(("v1", true), &[]))?;
    let released = home.wait_for("waiters", "web", "Released", "True")?;
    progress(format_args!(
        "released {:.1} s after its type",
        since.elapsed().as_secs_f64()
    ));
    assert_eq!(released["status"]["releaseRevision"], 1, "no attempt was counted");
    let shop = home.wait("shops", "web", |_| true)?;

    edited(&home, "v1")?;
    home.apply(&definition(("v1", true), &["v2"]))?;
    edited(&home, "v2")?;

    // An upgrade waits as well, and the deployed revision keeps running.
    home.apply(&composition("v3"))?;
    waits(&home, "kind Shop in await.example.org/v3")?;
    let waiting = home.get("waiters", "web")?.unwrap_or_default();
    assert_eq!(condition(&waiting, "Released").unwrap()["status"], "True");
    assert_eq!(records(&home)?, 1);
    home.apply(&definition(("v1", false), &["v2", "v3"]))?;
    let moved = home.wait("waiters", "web", |waiter| {
        waiter["status"]["releaseRevision"] == 2
            && condition(waiter, "Synced").is_some_and(|synced| synced["status"] == "True")
    })?;
    assert!(
        moved["status"]["managed"]
            .to_string()
            .contains("/apis/await.example.org/v3/")
    );
    let after = home.wait("shops", "web", |_| true)?;
    assert_eq!(after["metadata"]["uid"], shop["metadata"]["uid"]);
    assert_eq!(after["metadata"].get("deletionTimestamp"), None);
    assert_eq!(after["spec"]["size"], 1);

    home.kubectl(&["delete", "waiter", "web"])?;
    home.wait_gone("shops", "web")
}

fn composition(version: &str) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Waiter",
        "metadata": {"name": "web", "namespace": HOME, "labels": {"krateo.io/release-name": "web"}},
        "spec": {"image": "nginx", "shop": version},
    })
}

/// The composition says which type it waits for.
fn waits(home: &Namespace, missing: &str) -> Result<()> {
    let waiting = home.wait("waiters", "web", |waiter| {
        condition(waiter, "Synced").is_some_and(|synced| synced["reason"] == "TypeNotServed")
    })?;
    let said = condition(&waiting, "Synced").unwrap()["message"]
        .as_str()
        .unwrap();
    progress(said);
    assert!(said.contains(missing), "{said}");
    Ok(())
}

fn records(home: &Namespace) -> Result<usize> {
    let found = home.kubectl(&["get", "secrets", "--selector", "owner=helm", "--output", "name"])?;
    Ok(found.lines().count())
}

/// An edit through a version is reverted.
fn edited(home: &Namespace, version: &str) -> Result<()> {
    let shops = format!("shops.{version}.await.example.org");
    let patch = r#"{"spec":{"size":9}}"#;
    home.kubectl(&["patch", &shops, "web", "--type=merge", "--patch", patch])?;
    home.wait("waiters", "web", |waiter| {
        condition(waiter, "Drifted").is_some_and(|drifted| drifted["reason"] == "Corrected")
    })?;
    home.wait("shops", "web", |shop| shop["spec"]["size"] == 1)
        .map(drop)
}

/// The type: its first version, served or not, and others, which are served.
fn definition(first: (&str, bool), others: &[&str]) -> Value {
    let others = others.iter().map(|name| (*name, true));
    let versions: Vec<(&str, bool)> = std::iter::once(first).chain(others).collect();
    let last = versions.len() - 1;
    let version = |(place, (name, served)): (usize, &(&str, bool))| {
        json!({
            "name": name, "served": served, "storage": place == last,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}},
        })
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.await.example.org"},
        "spec": {
            "group": "await.example.org", "scope": "Namespaced", "versions": versions,
            "names": {"kind": "Shop", "plural": "shops", "singular": "shop"},
        },
    })
}
