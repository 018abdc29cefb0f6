//! A controller moves between its definition's namespace and the platform's, without touching its releases, and
//! afterwards nothing in the old place gives any rights.

use anyhow::Result;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::proxy::Proxy;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "relocate-controller";
const TEAM: &str = "relocate-team";
const BASE: &str = "nomads-v1-0-0";

#[test]
fn a_controller_moves_without_affecting_releases_or_tenants() -> Result<()> {
    let platform = HostPlatform::installed_with(&["cdc.namespace=definition"])?;
    platform.run_inspector()?;
    let (home, team) = (platform.namespace(HOME)?, platform.namespace(TEAM)?);
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let package = ChartFolder::copy("web", "nomad", "1.0.0")?.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    let deployment = format!("{BASE}-controller");

    // As in earlier releases.
    let provider = Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?;
    provider.start(run(&platform, "definition")?, None)?;
    home.define("nomad", &url, "1.0.0")?;
    home.wait("deployments", &deployment, |_| true)?;
    platform.run_controller_in(HOME, "nomads", "v1-0-0", &[])?;
    for name in ["web", "paused"] {
        let composition = composition(name);
        team.wait_until("the type", || Ok(team.apply(&composition).ok()))?;
        team.wait_for("nomads", name, "Released", "True")?;
    }
    team.kubectl(&["annotate", "nomads", "paused", "krateo.io/paused=true"])?;
    team.wait("nomads", "paused", |paused| {
        condition(paused, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
    })?;
    assert!(
        may_act_as(&home)?,
        "whoever may edit there can act as the controller"
    );
    let before = releases(&team)?;

    stop_as_before(&provider, &home)?;
    platform.upgrade_to(&["cdc.namespace=platform"])?;
    provider.start(run(&platform, "platform")?, None)?;
    home.wait_gone("deployments", &deployment)?;
    // Its pods are gone by then.
    platform.kill_controller_in(HOME, "nomads", "v1-0-0")?;
    home.platform().wait("deployments", &deployment, |_| true)?;
    nothing_is_left(&home)?;
    platform.run_controller("nomads", "v1-0-0")?;
    works(&team, "web", "moved")?;
    assert_eq!(releases(&team)?, before, "a release was touched");
    // A tenant creates the account again: it has no rights.
    home.kubectl(&["create", "serviceaccount", BASE])?;
    nobody_names(&home, HOME)?;
    for (verb, resource) in [
        ("list", "nomads"),
        ("get", "secrets"),
        ("patch", "configmaps"),
        ("create", "roles"),
    ] {
        let account = format!("{HOME}:{BASE}");
        assert!(!team.may(&account, verb, resource)?, "{verb} {resource}");
    }
    assert!(
        !may_act_as(&home.platform())?,
        "a tenant can act as the controller"
    );
    home.kubectl(&["delete", "serviceaccount", BASE])?;

    provider.stop()?;
    platform.upgrade_to(&["cdc.namespace=definition"])?;
    provider.start(run(&platform, "definition")?, None)?;
    home.platform().wait_gone("deployments", &deployment)?;
    platform.kill_controller("nomads", "v1-0-0")?;
    home.wait("deployments", &deployment, |_| true)?;
    platform.run_controller_in(HOME, "nomads", "v1-0-0", &[])?;
    works(&team, "web", "back")?;
    assert_eq!(releases(&team)?, before, "a release was touched");
    nobody_names(&home, NAMESPACE)?;
    provider.stop()?;
    Ok(())
}

fn run(platform: &HostPlatform, placement: &str) -> Result<std::process::Command> {
    let mut provider = platform.provider()?;
    provider.env("CDC_NAMESPACE", placement);
    Ok(provider)
}

fn composition(name: &str) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Nomad",
        "metadata": {"name": name, "namespace": TEAM, "labels": {"krateo.io/release-name": name}},
        "spec": {"image": "nginx"},
    })
}

/// An account of the namespace with the role `edit`.
fn editor(namespace: &Namespace) -> String {
    format!("--as=system:serviceaccount:{}:editor", namespace.namespace())
}

/// True if someone with `edit` in the definition's namespace can get a token of the controller in this one.
fn may_act_as(namespace: &Namespace) -> Result<bool> {
    let home = Namespace::of(HOME, namespace.site());
    let _ = home.kubectl(&["create", "serviceaccount", "editor"]);
    let _ = home.kubectl(&[
        "create",
        "rolebinding",
        "editor",
        "--clusterrole=edit",
        &format!("--serviceaccount={HOME}:editor"),
    ]);
    let account = namespace.get("serviceaccount", BASE)?;
    let token = namespace.kubectl(&["create", "token", BASE, &editor(&home)]);
    progress(format_args!(
        "a token of {}/{BASE}: {:?}",
        namespace.namespace(),
        token.as_ref().err()
    ));
    Ok(account.is_some() && token.is_ok())
}

/// Stops core-provider and leaves the role that marks the controller as in earlier releases: it does not say where the
/// controller runs.
fn stop_as_before(provider: &Proxy, home: &Namespace) -> Result<()> {
    home.kubectl(&[
        "annotate",
        "compositiondefinition",
        "nomad",
        "krateo.io/paused=true",
    ])?;
    home.wait("compositiondefinitions", "nomad", |definition| {
        condition(definition, "Synced").is_some_and(|synced| synced["reason"] == "ReconcilePaused")
    })?;
    let mark = format!("{BASE}-provider");
    home.kubectl(&["label", "clusterrole", &mark, "krateo.io/controller-namespace-"])?;
    provider.stop()?;
    home.kubectl(&["annotate", "compositiondefinition", "nomad", "krateo.io/paused-"])
        .map(drop)
}

/// The state of the releases: objects, records and revisions, as they were last written.
fn releases(team: &Namespace) -> Result<Vec<Value>> {
    let kinds = "configmaps,services,deployments,secrets";
    let found: Value = serde_json::from_str(&team.kubectl(&["get", kinds, "--output", "json"])?)?;
    let objects = found["items"].as_array().unwrap().iter();
    Ok(objects
        .filter(|object| object["metadata"]["name"] != "kube-root-ca.crt")
        .map(|object| {
            let metadata = &object["metadata"];
            let spec = (object["kind"] != "Secret").then(|| object["spec"].clone());
            json!([
                object["kind"],
                metadata["name"],
                metadata["uid"],
                metadata["generation"],
                spec,
                object["data"]
            ])
        })
        .collect())
}

/// The controller reconciles changes, without another revision.
fn works(team: &Namespace, name: &str, word: &str) -> Result<()> {
    let config = format!("{name}-web");
    let edit = format!(r#"{{"metadata": {{"labels": {{"app.kubernetes.io/name": "{word}"}}}}}}"#);
    team.kubectl(&["patch", "configmap", &config, "--type=merge", "--patch", &edit])?;
    team.wait("configmaps", &config, |config| {
        config["metadata"]["labels"]["app.kubernetes.io/name"] != word
    })?;
    team.wait_for("nomads", name, "Synced", "True").map(drop)
}

/// Nothing of the controller is left in its definition's namespace.
fn nothing_is_left(home: &Namespace) -> Result<()> {
    let kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings";
    home.wait_until("everything to go from the definition's namespace", || {
        let mark = "--selector=krateo.io/controller-resource";
        let left = home.kubectl(&["get", kinds, mark, "--output=name"])?;
        Ok(left.trim().is_empty().then_some(()))
    })
}

/// No binding grants anything to the controller's account in this namespace, not even one of a paused composition.
fn nobody_names(home: &Namespace, namespace: &str) -> Result<()> {
    home.wait_until("all bindings to name another account", || {
        let kinds = "rolebindings,clusterrolebindings";
        let found = home.kubectl(&["get", kinds, "--all-namespaces", "--output", "json"])?;
        let found: Value = serde_json::from_str(&found)?;
        let bindings = found["items"].as_array().unwrap().iter();
        let naming: Vec<_> = bindings
            .filter(|binding| {
                let subjects = binding["subjects"].as_array();
                let mut subjects = subjects.into_iter().flatten();
                subjects.any(|subject| subject["name"] == BASE && subject["namespace"] == namespace)
            })
            .map(|binding| binding["metadata"]["name"].clone())
            .collect();
        Ok(naming.is_empty().then_some(()))
    })
}
