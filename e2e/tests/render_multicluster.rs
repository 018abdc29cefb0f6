//! The chart of the multicluster operator rendered by the real Helm, and the rights of its account on a real API
//! server.

use anyhow::{Context as _, Result};
use e2e::{HostPlatform, Namespace, Site, image};
use serde_json::{Value, json};

const RELEASE: &str = "multicluster-operator";
const NAMESPACE: &str = "mesh";

/// Every part of the chart.
fn everything() -> Value {
    json!({
        "selfCluster": {
            "enabled": true, "clusterRoles": ["view"],
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch", "patch"]}],
        },
        "foreignKubeconfigs": [{"namespace": "team-a", "secrets": ["edge"]}],
        "chart": {
            "registrySecret": "login", "username": "robot", "passwordSecret": "login/secret", "caSecret": "authority",
            "cosignKeySecret": "signer",
        },
        "allowedNamespaces": ["kube-system"],
        "ensureWatchCRDs": true,
        "networkPolicy": {"enabled": true, "metrics": [{"podSelector": {}}]},
        "otel": {"enabled": true, "traces": true, "endpoint": "http://collector:4318"},
        "env": {"KRYPTON_CHECK_INTERVAL": 30},
    })
}

fn chart() -> String {
    image::root()
        .join("charts/multicluster-operator")
        .to_string_lossy()
        .into_owned()
}

/// Runs Helm on the chart with these values.
fn helm(site: &Site, arguments: &[&str], values: &Value) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    // JSON is YAML.
    std::fs::write(file.path(), values.to_string())?;
    let mut command = site.helm(arguments);
    command.arg(chart()).arg("--values").arg(file.path());
    command.args(["--namespace", NAMESPACE]);
    site.run(command)
}

fn rendered(site: &Site, values: &Value) -> Result<Vec<Value>> {
    let printed = helm(site, &["template", RELEASE], values)?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&printed).context("Helm printed what is no YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

fn deployment(objects: &[Value]) -> &Value {
    objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .unwrap()
}

/// Waits until the account may do this, or may not: the API server applies roles a moment after they are written.
fn expect(
    namespace: &Namespace,
    account: &str,
    (verb, resource, expected): (&str, &str, bool),
) -> Result<()> {
    let place = namespace.namespace();
    namespace.wait_until(&format!("{verb} {resource} in {place} to be {expected}"), || {
        Ok((namespace.may(account, verb, resource)? == expected).then_some(()))
    })
}

fn has(list: &Value, wanted: &str) -> bool {
    list.as_array()
        .is_some_and(|items| items.iter().any(|item| item == wanted))
}

#[test]
fn secrets_are_listed_only_in_the_operators_namespace_and_no_rule_has_a_star() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    for values in [json!({}), json!({"mode": "tenant"}), everything()] {
        helm(site, &["lint", "--strict"], &values)?;
        let mut listing = Vec::new();
        for object in rendered(site, &values)? {
            for rule in object["rules"].as_array().into_iter().flatten() {
                assert!(!rule.to_string().contains('*'), "{rule}");
                let lists = has(&rule["verbs"], "list") || has(&rule["verbs"], "watch");
                if has(&rule["resources"], "secrets") && lists {
                    listing.push((object["kind"].clone(), object["metadata"]["namespace"].clone()));
                }
            }
        }
        assert_eq!(listing, [(json!("Role"), Value::Null)], "{values}");
    }
    Ok(())
}

#[test]
fn values_that_open_too_much_or_are_misspelt_are_refused() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    let rule = |group: &str, resource: &str, verb: &str| {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
        json!({"selfCluster": {"enabled": true, "rules": [rule]}})
    };
    for (values, words) in [
        (rule("*", "deployments", "get"), "apiGroups"),
        (rule("apps", "*", "get"), "resources"),
        (rule("apps", "deployments", "*"), "verbs"),
        (
            rule("", "secrets", "list"),
            "Secrets are listed in the operator's namespace alone",
        ),
        (json!({"replicas": 3}), "replicas"),
        (json!({"mode": "all"}), "mode"),
        (json!({"chart": {"version": "^1.0.0"}}), "version"),
        (json!({"otel": {"enabled": true}}), "otel.endpoint"),
        (json!({"otel": {"traces": true}}), "otel.endpoint"),
    ] {
        let said = format!("{:#}", helm(site, &["template", RELEASE], &values).unwrap_err());
        assert!(said.contains(words), "{values}: {said}");
    }
    Ok(())
}

#[test]
fn the_operator_runs_twice_under_the_restricted_standard_with_exact_rights() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    let home = Namespace::make(NAMESPACE, site)?;
    Namespace::make("team-a", site)?;
    let objects = rendered(site, &everything())?;
    let deployment = deployment(&objects);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let template = &deployment["spec"]["template"];
    let variables = template["spec"]["containers"][0]["env"].as_array().unwrap();
    let elects = json!({"name": "OPERATOR_LEADER_ELECT", "value": "true"});
    assert!(variables.contains(&elects), "{variables:?}");

    helm(site, &["install", RELEASE], &everything())?;
    // The namespace enforces the standard: a pod that violates it is refused.
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("trial");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), pod.to_string())?;
    let path = file.path().to_string_lossy();
    home.kubectl(&["apply", "--dry-run=server", "--filename", &path])?;

    let account = format!("{NAMESPACE}:{RELEASE}");
    let elsewhere = Namespace::of("team-a", site);
    for (namespace, verb, resource, expected) in [
        (&home, "watch", "secrets", true),
        (&home, "patch", "secrets/edge", true),
        (&home, "create", "secrets/multicluster-operator-release-key", true),
        (&elsewhere, "get", "secrets/edge", true),
        (&elsewhere, "list", "secrets", false),
        (&elsewhere, "watch", "kryptondeployments.mesh.openkcm.io", true),
        (&elsewhere, "delete", "kryptondeployments.mesh.openkcm.io", false),
        (&elsewhere, "patch", "deployments.apps", true),
        (&elsewhere, "create", "deployments.apps", false),
        (
            &elsewhere,
            "create",
            "clusterroles.rbac.authorization.k8s.io",
            false,
        ),
        (&elsewhere, "create", "serviceaccounts", false),
    ] {
        expect(namespace, &account, (verb, resource, expected))?;
    }

    // If home is not a target, it only writes status, its key and the contents of the Secrets.
    helm(site, &["upgrade", RELEASE, "--reset-values"], &json!({}))?;
    for (namespace, verb, resource, expected) in [
        (&home, "create", "secrets/other", false),
        (&elsewhere, "get", "secrets/edge", false),
        (&elsewhere, "create", "namespaces", false),
        (&elsewhere, "patch", "deployments.apps", false),
        (&elsewhere, "patch", "kryptondeployments.mesh.openkcm.io", true),
    ] {
        expect(namespace, &account, (verb, resource, expected))?;
    }
    site.run(site.helm(["uninstall", RELEASE, "--namespace", NAMESPACE]))
        .map(drop)
}
