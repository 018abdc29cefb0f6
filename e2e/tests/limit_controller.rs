//! What a controller's policies refuse, whatever rights it has: here it has every right that RBAC knows.

use anyhow::{Result, ensure};
use e2e::platform::NAMESPACE;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "limit-controller";

/// Adds one more value with a default to the chart.
const NEXT_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "image": {"type": "string"},
        "replicas": {"type": "integer", "default": 1},
        "greeting": {"type": "string", "default": "Hello"},
        "farewell": {"type": "string", "default": "Bye"}
    }
}"#;

/// Compositions, each by the resource of a version and its name.
const OWN: [&str; 2] = ["limiteds.v1-0-0.composition.krateo.io", "web"];
const MOVED: [&str; 2] = ["limiteds.v2-0-0.composition.krateo.io", "moved"];
const MOVED_BEFORE: [&str; 2] = ["limiteds.v1-0-0.composition.krateo.io", "moved"];

#[test]
fn a_controller_writes_nothing_that_its_policies_forbid() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let push = |chart: &ChartFolder| -> Result<String> {
        let package = chart.package(scenario.site())?;
        package.push(scenario.site(), &registry.to_string(), &["--plain-http"])
    };
    let url = push(&ChartFolder::copy("web", "limited", "1.0.0")?)?;
    let next = ChartFolder::copy("web", "limited", "2.0.0")?;
    next.write("values.schema.json", NEXT_SCHEMA)?;
    push(&next)?;
    for (name, version) in [("one", "1.0.0"), ("two", "2.0.0")] {
        scenario.define(name, &url, version)?;
        // Granted once the policies are in force.
        let binding = format!("limiteds-v{}", version.replace('.', "-"));
        scenario.platform().wait("rolebindings", &binding, |_| true)?;
    }
    may_do_everything(&scenario)?;
    scenario.wait_until("the type", || Ok(scenario.apply(&composition("web", 1, 1)).ok()))?;
    // Written through the previous version, and so without the defaults of its own.
    // A new composition gets the label of the version that it is created through, whatever it says; so move it
    // afterwards.
    for _ in 0..2 {
        scenario.apply(&composition("moved", 1, 2))?;
    }

    let mut wrong = Vec::new();
    for (what, as_version, allowed, arguments) in attempts() {
        let said = as_controller(&scenario, as_version, &arguments);
        progress(format_args!("{what}: {said:?}"));
        if let Some(said) = &said {
            ensure!(
                said.contains("ValidatingAdmissionPolicy 'limiteds-v"),
                "{what}: {said}"
            );
        }
        if said.is_some() == allowed {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");

    // The controller itself can handle that: it labels such a composition, releases it and removes its finalizer.
    platform.run_controller("limiteds", "v2-0-0")?;
    scenario.wait_for("limiteds", "moved", "Released", "True")?;
    let moved = scenario.get("limiteds", "moved")?.unwrap();
    assert_eq!(moved["spec"]["farewell"], Value::Null, "a value was filled in");
    scenario.kubectl(&["delete", MOVED[0], MOVED[1], "--timeout=90s"])?;

    for (what, object, policy) in forbidden() {
        let said = create_as_controller(&scenario, &object)?;
        progress(format_args!("{what}: {said:?}"));
        let said = said.unwrap_or_default();
        let policy = format!("ValidatingAdmissionPolicy 'limiteds-v1-0-0-{policy}'");
        assert!(said.contains(&policy), "{what}: {said:?}");
    }
    keeps_key(&scenario)?;
    keeps_bundles(&scenario)
}

/// What a controller tries with compositions: the attempt, the version whose controller it is, and whether that is
/// allowed.
fn attempts() -> Vec<(&'static str, u8, bool, Vec<&'static str>)> {
    let of = |what, as_version, allowed, place: [&'static str; 2], text| {
        let arguments = vec!["patch", place[0], place[1], "--type=merge", "--patch", text];
        (what, as_version, allowed, arguments)
    };
    let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    let owner = r#"{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}]}}"#;
    let mut status = of("its status", 1, true, OWN, r#"{"status": {"digest": "x"}}"#);
    status.3.push("--subresource=status");
    vec![
        of("a label", 1, true, OWN, label),
        of(
            "an annotation",
            1,
            true,
            OWN,
            r#"{"metadata": {"annotations": {"a": "b"}}}"#,
        ),
        of(
            "a finalizer",
            1,
            true,
            OWN,
            r#"{"metadata": {"finalizers": ["a/b"]}}"#,
        ),
        of(
            "no finalizer",
            1,
            true,
            OWN,
            r#"{"metadata": {"finalizers": null}}"#,
        ),
        status,
        of("a value", 1, false, OWN, r#"{"spec": {"greeting": "Gotcha"}}"#),
        of(
            "a value that is not set",
            1,
            false,
            OWN,
            r#"{"spec": {"extra": "Gotcha"}}"#,
        ),
        of(
            "a value less",
            1,
            false,
            OWN,
            r#"{"spec": {"greeting": null, "image": null}}"#,
        ),
        of("an owner that is not there", 1, false, OWN, owner),
        (
            "deletion",
            1,
            false,
            vec!["delete", OWN[0], OWN[1], "--wait=false"],
        ),
        // A write through a version fills in that version's defaults, which changes values like any other write.
        of("a label that fills in defaults", 2, false, MOVED, label),
        of(
            "the same through the version before",
            2,
            true,
            MOVED_BEFORE,
            label,
        ),
    ]
}

/// Objects that no controller may create.
fn forbidden() -> [(&'static str, Value, &'static str); 5] {
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "forged", "labels": {"krateo.io/controller-resource": "limiteds"}}, "webhooks": [],
    });
    let key = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "others.composition.krateo.io-release-key", "namespace": NAMESPACE},
        "data": {"key": "Zm9yZ2Vk"},
    });
    let mut as_record = key.clone();
    as_record["type"] = json!("helm.sh/release.v1");
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            // Labelled like a release record, which makes no difference.
            "name": "token", "namespace": HOME, "labels": {"owner": "helm"},
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
    });
    [
        ("a composition", composition("made", 1, 1), "own"),
        ("a webhook of a bundle", webhook, "bundles"),
        ("the key of a type that is to come", key, "own"),
        ("the same with the type of a release record", as_record, "own"),
        ("the token of an account", token, "own"),
    ]
}

/// Also one without the label of a bundle, and of the type of a release record.
fn keeps_key(scenario: &Namespace) -> Result<()> {
    let platform = scenario.platform();
    let name = "unlabelled.composition.krateo.io-release-key";
    platform.kubectl(&["create", "secret", "generic", name, "--type=helm.sh/release.v1"])?;
    let said = as_controller(&platform, 1, &["delete", "secret", name]).unwrap_or_default();
    ensure!(
        said.contains("ValidatingAdmissionPolicy 'limiteds-v1-0-0-own'"),
        "{said:?}"
    );
    platform.kubectl(&["delete", "secret", name]).map(drop)
}

/// The label that makes an object one of a bundle counts before a write and after it.
fn keeps_bundles(scenario: &Namespace) -> Result<()> {
    let platform = scenario.platform();
    let refusal = "ValidatingAdmissionPolicy 'limiteds-v1-0-0-bundles'";
    let label = "krateo.io/controller-resource";
    scenario.kubectl(&["create", "configmap", "plain"])?;
    let [setting, removing] = [format!("{label}=limiteds"), format!("{label}-")];
    let attempts: [(&Namespace, &[&str]); 4] = [
        (scenario, &["label", "configmap", "plain", &setting]),
        (
            &platform,
            &["label", "configmap", "limiteds-v2-0-0-bound", &removing],
        ),
        (&platform, &["delete", "configmap", "limiteds-v2-0-0-bound"]),
        (&platform, &["delete", "deployment", "limiteds-v1-0-0-controller"]),
    ];
    for (place, arguments) in attempts {
        let said = as_controller(place, 1, arguments).unwrap_or_default();
        ensure!(said.contains(refusal), "{arguments:?}: {said:?}");
    }
    let plain = as_controller(scenario, 1, &["label", "configmap", "plain", "a=b"]);
    ensure!(plain.is_none(), "{plain:?}");
    Ok(())
}

fn composition(name: &str, through: u8, label: u8) -> Value {
    json!({
        "apiVersion": format!("composition.krateo.io/v{through}-0-0"), "kind": "Limited",
        "metadata": {
            "name": name, "namespace": HOME,
            "labels": {"krateo.io/composition-version": format!("v{label}-0-0")},
        },
        "spec": {"image": "nginx"},
    })
}

/// So that only the policy can refuse.
fn may_do_everything(scenario: &Namespace) -> Result<()> {
    let account = |version: u8| json!({"kind": "ServiceAccount", "name": format!("limiteds-v{version}-0-0"), "namespace": NAMESPACE});
    scenario.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "limiteds-may-do-everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [account(1), account(2)],
    }))
}

/// Why the controller may not; `None` if it may.
fn as_controller(scenario: &Namespace, version: u8, arguments: &[&str]) -> Option<String> {
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:limiteds-v{version}-0-0");
    let arguments = [arguments, &[&user]].concat();
    scenario
        .kubectl(&arguments)
        .err()
        .map(|error| format!("{error:#}"))
}

fn create_as_controller(scenario: &Namespace, object: &Value) -> Result<Option<String>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    let path = file.path().to_string_lossy();
    let place = object["metadata"]["namespace"].as_str().unwrap_or(HOME);
    let place = Namespace::of(place, scenario.site());
    Ok(as_controller(&place, 1, &["create", "--filename", &path]))
}
