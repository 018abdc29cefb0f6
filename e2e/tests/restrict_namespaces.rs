//! An object of a release must be in its composition's namespace or in one that the definition allows. Another
//! namespace with compositions of the same type does not count: it belongs to another tenant.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "restrict-namespaces";
/// The namespace of controllers.
const PLATFORM: &str = "krateo-system";
const OTHER: &str = "restrict-namespaces-b";
const ACCOUNT: &str = "placers-v1-0-0";

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-placed\n  \
                        namespace: {{ .Values.namespaceOverride | default .Release.Namespace }}\n";

#[test]
fn another_tenants_namespace_is_not_open_because_it_holds_a_composition() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let (home, other) = (platform.namespace(HOME)?, platform.namespace(OTHER)?);
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "placer", "1.0.0")?;
    chart.write("templates/placed.yaml", TEMPLATE)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;
    home.define("placer", &url, "1.0.0")?;
    home.platform()
        .wait("deployments", &format!("{ACCOUNT}-controller"), |_| true)?;
    platform.run_controller("placers", "v1-0-0")?;

    for (namespace, name) in [(&home, "mine"), (&other, "yours")] {
        compose(namespace, name, &json!({}))?;
        namespace.wait_for("placers", name, "Released", "True")?;
    }
    compose(&home, "sneaky", &json!({"namespaceOverride": OTHER}))?;
    let held = home.wait_for("placers", "sneaky", "Synced", "False")?;
    let message = condition(&held, "Synced").unwrap()["message"].to_string();
    progress(format_args!("held: {message}"));
    assert!(
        message.contains("krateo.io/allowed-namespaces: restrict-namespaces-b"),
        "{message}"
    );
    assert!(other.get("configmaps", "sneaky-placed")?.is_none());
    // Both namespaces may only be used by their own releases, according to the names of the roles.
    for (role_of, place, allowed) in [
        (HOME, &home, true),
        (OTHER, &other, true),
        (HOME, &other, false),
        (OTHER, &home, false),
    ] {
        let namespace = place.namespace();
        for kind in ["Role", "RoleBinding"] {
            let refusal = place.refusal((PLATFORM, ACCOUNT), &granting(kind, role_of, namespace))?;
            progress(format_args!("{kind} of {role_of} in {namespace}: {refusal:?}"));
            let is_denied = refusal.as_ref().is_some_and(|why| why.contains("denied request"));
            assert!(
                is_denied != allowed && refusal.is_none() == allowed,
                "{kind} of {role_of} in {namespace}: {refusal:?}"
            );
        }
    }

    let annotation = format!("krateo.io/allowed-namespaces={OTHER}");
    home.kubectl(&["annotate", "compositiondefinition", "placer", &annotation])?;
    home.wait_for("placers", "sneaky", "Released", "True")?;
    assert!(other.get("configmaps", "sneaky-placed")?.is_some());
    home.kubectl(&["delete", "placer", "sneaky"])?;
    assert!(other.get("configmaps", "sneaky-placed")?.is_none());
    Ok(())
}

fn compose(namespace: &Namespace, name: &str, more: &Value) -> Result<()> {
    let mut spec = json!({"image": "nginx"});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Placer",
        "metadata": {
            "name": name, "namespace": namespace.namespace(), "labels": {"krateo.io/release-name": name},
        },
        "spec": spec,
    });
    namespace.wait_until("the type", || Ok(namespace.apply(&composition).ok()))
}

/// The roles that the controller writes for a release of a namespace.
fn granting(kind: &str, role_of: &str, namespace: &str) -> Value {
    let name = format!("composition:placers:{role_of}:tried");
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
    });
    if kind == "Role" {
        object["rules"] = json!([{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["create"],
        }]);
    } else {
        object["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        object["subjects"] = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": PLATFORM}]);
    }
    object
}
