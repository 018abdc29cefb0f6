//! Objects that tenants can write are not believed when their labels say that they belong to a controller.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "forge-marks";
const TEAM: &str = "forge-marks-team";

#[test]
fn labels_of_a_tenants_objects_change_nothing_for_definitions() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let (home, team) = (platform.namespace(HOME)?, platform.namespace(TEAM)?);
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let push = |name: &str| -> Result<String> {
        let package = ChartFolder::copy("web", name, "1.0.0")?.package(home.site())?;
        package.push(home.site(), &registry.to_string(), &["--plain-http"])
    };
    // The older one of two definitions owns a type.
    team.define("rival", &push("rival")?, "1.0.0")?;
    // The last object of the bundle of a new version.
    home.platform().wait("rolebindings", "rivals-v1-0-0", |_| true)?;
    home.define("victim", &push("victim")?, "1.0.0")?;
    home.platform().wait("rolebindings", "victims-v1-0-0", |_| true)?;

    let forged = [
        // The rival owns the victim's type, so the victim must not get it.
        ("victims-v1-0-0", TEAM, marked("victims", "v1-0-0", TEAM, "rival")),
        // The victim had another version before, all objects of which are to be deleted.
        (
            "victims-v0-9-0",
            TEAM,
            marked("victims", "v0-9-0", HOME, "victim"),
        ),
        // It had another type before.
        ("rivals-v1-0-0", TEAM, marked("rivals", "v1-0-0", HOME, "victim")),
        // The same in the victim's own namespace.
        ("rivals-v1-0-0", HOME, marked("rivals", "v1-0-0", HOME, "victim")),
        ("victims-v1-0-0", HOME, marked("victims", "v1-0-0", TEAM, "rival")),
    ];
    for (name, place, labels) in &forged {
        home.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": place, "labels": labels},
        }))?;
    }
    // A role that allows reading the victim's Secrets counts as stale, and is deleted as often as it is created.
    let id = home.get("compositiondefinition", "victim")?.unwrap()["metadata"]["uid"].clone();
    home.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "forged", "namespace": TEAM, "labels": {"krateo.io/composition-definition-id": id}},
        "rules": [],
    }))?;

    let there = bundle(&home)?;
    for name in ["victim", "rival"] {
        let place = if name == "victim" { &home } else { &team };
        place.kubectl(&[
            "annotate",
            "compositiondefinition",
            name,
            "example.org/look=again",
        ])?;
    }
    // When the forged role is gone, core-provider has had a pass.
    team.wait_gone("role", "forged")?;
    let victim = home.get("compositiondefinition", "victim")?.unwrap();
    let ready = condition(&victim, "Ready").unwrap();
    assert_ne!(ready["reason"], "Conflict", "{}", ready["message"]);
    assert_eq!(condition(&victim, "Synced").unwrap()["status"], "True");
    assert_eq!(
        bundle(&home)?,
        there,
        "something of the controllers was made anew or removed"
    );

    // A deleted definition takes its own objects with it, and nothing that others created under these names.
    home.kubectl(&["delete", "compositiondefinition", "victim", "--timeout=90s"])?;
    let rivals = |all: &[Value]| -> Vec<Value> {
        let of = |object: &&Value| object[1].as_str().is_some_and(|name| name.starts_with("rivals"));
        all.iter().filter(of).cloned().collect()
    };
    assert_eq!(rivals(&bundle(&home)?), rivals(&there));
    for (name, place, _) in &forged {
        let place = Namespace::of(place, home.site());
        assert!(place.get("serviceaccount", name)?.is_some(), "{name} was removed");
    }
    Ok(())
}

fn marked(resource: &str, version: &str, namespace: &str, name: &str) -> Value {
    json!({
        "krateo.io/controller-resource": resource, "krateo.io/controller-version": version,
        "krateo.io/composition-definition-namespace": namespace, "krateo.io/composition-definition-name": name,
    })
}

/// The objects of the two controllers, by UID.
fn bundle(home: &Namespace) -> Result<Vec<Value>> {
    let kinds = "deployments,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let found = home.platform().kubectl(&[
        "get",
        kinds,
        "--selector=krateo.io/controller-resource in (victims,rivals)",
        "--output=json",
    ])?;
    let found: Value = serde_json::from_str(&found)?;
    let objects = found["items"].as_array().unwrap().iter();
    Ok(objects
        .map(|object| {
            json!([
                object["kind"],
                object["metadata"]["name"],
                object["metadata"]["uid"]
            ])
        })
        .collect())
}
