//! A controller runs under the restricted Pod Security standard and may do exactly what its release needs.

use anyhow::Result;
use e2e::{Scenario, platform};
use serde_json::{Value, json};

#[test]
fn a_controller_is_restricted_and_holds_exactly_what_its_release_needs() -> Result<()> {
    let scenario = Scenario::start("restrict-controller")?;
    let url = scenario.push_web_chart("modest", "1.0.0")?;
    scenario.define("modest", &url, "1.0.0")?;
    scenario.wait_for("compositiondefinitions", "modest", "Ready", "True")?;
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Modest",
        "metadata": {"name": "web", "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("modests", "web", "Ready", "True")?;

    // Both namespaces enforce the standard, so the fact that pods run is the proof.
    every_pod_runs(&scenario, scenario.namespace())?;
    every_pod_runs(&scenario, platform::NAMESPACE)?;
    no_rule_holds_a_wildcard(&scenario)?;

    let role: Value = scenario
        .get("roles", "composition:modests:restrict-controller:fixed")?
        .unwrap();
    let rules: Vec<String> = role["rules"].as_array().unwrap().iter().map(line).collect();
    let records: Vec<String> = (1..=8)
        .map(|revision| format!("sh.helm.release.v1.fixed.v{revision}"))
        .collect();
    assert_eq!(
        rules,
        [
            "/configmaps,services create,patch,delete fixed-web",
            "/configmaps,services get,list,watch ",
            &format!("/secrets get,create,patch,delete {}", records.join(",")),
            "apps/deployments create,patch,delete fixed-web",
            "apps/deployments get,list,watch ",
        ]
    );
    // What it may not do is tested by `make attacks`.
    for request in [
        ["patch", "configmaps/fixed-web"],
        ["get", "secrets/sh.helm.release.v1.fixed.v1"],
        ["watch", "configmaps"],
    ] {
        assert!(may(&scenario, &request)?, "{request:?}");
    }
    Ok(())
}

/// Waits until all run: other scenarios start controllers in the platform's namespace.
fn every_pod_runs(scenario: &Scenario, namespace: &str) -> Result<()> {
    let get = ["get", "pods", "--namespace", namespace, "--output", "json"];
    scenario.wait_until(&format!("every pod of {namespace} to run"), || {
        let pods: Value = serde_json::from_str(&scenario.kubectl(&get)?)?;
        let pods = pods["items"].as_array().unwrap();
        assert!(!pods.is_empty());
        for pod in pods {
            assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
        }
        let all_run = pods.iter().all(|pod| pod["status"]["phase"] == "Running");
        Ok(all_run.then_some(()))
    })
}

/// In every role that the platform created or that was granted since, not in those of Kubernetes itself.
fn no_rule_holds_a_wildcard(scenario: &Scenario) -> Result<()> {
    let roles: Value = serde_json::from_str(&scenario.kubectl(&[
        "get",
        "roles,clusterroles",
        "--all-namespaces",
        "--output",
        "json",
    ])?)?;
    let mut ours = 0;
    for role in roles["items"].as_array().unwrap() {
        let name = role["metadata"]["name"].as_str().unwrap();
        let is_kubernetes = role["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
            || role["metadata"]["namespace"] == "kube-system";
        if is_kubernetes {
            continue;
        }
        ours += 1;
        assert!(
            !role["rules"].to_string().contains('*'),
            "{name}: {}",
            role["rules"]
        );
    }
    assert!(ours >= 5, "only {ours} roles seen");
    Ok(())
}

fn line(rule: &Value) -> String {
    let list = |key: &str| {
        let items = rule[key].as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap())
            .collect::<Vec<_>>()
            .join(",")
    };
    format!(
        "{}/{} {} {}",
        list("apiGroups"),
        list("resources"),
        list("verbs"),
        list("resourceNames")
    )
}

/// `kubectl auth can-i`, as the controller's ServiceAccount.
fn may(scenario: &Scenario, request: &[&str; 2]) -> Result<bool> {
    let account = format!("{}:modests-v1-0-0", platform::NAMESPACE);
    scenario.may(&account, request[0], request[1])
}
