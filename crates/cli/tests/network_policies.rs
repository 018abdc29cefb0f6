//! Which peers the `NetworkPolicies` of `charts/core-provider` let reach which program, taken from the rendered chart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value, json};

const PLATFORM: &str = "krateo-system";

/// As `kubectl` would print the addresses of control plane nodes.
const API_SERVER: &str = "networkPolicy.apiServers[0].ipBlock.cidr=192.0.2.10/32";
const MONITORING: &str =
    "networkPolicy.metrics[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=monitoring";
const ENABLED: &str = "networkPolicy.enabled=true";

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/core-provider")
}

fn template(values: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kco"));
    command
        .args(["template", "core-provider"])
        .arg(chart())
        .args(["--namespace", PLATFORM]);
    for value in values {
        command.args(["--set", value]);
    }
    command.output().unwrap()
}

fn rendered(values: &[&str]) -> Vec<Value> {
    let output = template(values);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    helm::yaml::parse_all(&output.stdout).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Either end of a connection.
#[derive(Debug)]
struct Peer {
    labels: Value,
    namespace: &'static str,
    /// The address, if it is not a pod.
    address: Option<&'static str>,
}

fn pod(labels: Value, namespace: &'static str) -> Peer {
    Peer {
        labels,
        namespace,
        address: None,
    }
}

fn address(address: &'static str) -> Peer {
    Peer {
        labels: json!({}),
        namespace: "",
        address: Some(address),
    }
}

/// The pods of a Deployment of the chart.
fn pods_of(objects: &[Value], name: &str) -> Peer {
    let deployments = of_kind(objects, "Deployment");
    let deployment = deployments
        .iter()
        .find(|object| object["metadata"]["name"] == name)
        .unwrap();
    pod(
        deployment["spec"]["template"]["metadata"]["labels"].clone(),
        PLATFORM,
    )
}

/// The pods of a controller as core-provider deploys it, in a namespace.
fn controller(namespace: &'static str) -> Peer {
    let asset = std::fs::read_to_string(chart().join("assets/cdc-deployment/deployment.yaml")).unwrap();
    let template = asset.split("  template:\n").nth(1).unwrap();
    let labels: Map<String, Value> = template
        .lines()
        .skip_while(|line| line.trim() != "labels:")
        .skip(1)
        .take_while(|line| line.trim().starts_with("app.kubernetes.io/"))
        .map(|line| {
            let (name, value) = line.trim().split_once(": ").unwrap();
            (name.to_owned(), json!(value))
        })
        .collect();
    assert!(labels.len() > 1, "{labels:?}");
    pod(Value::Object(labels), namespace)
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object();
    assert!(selector["matchExpressions"].is_null(), "not read here");
    wanted
        .into_iter()
        .flatten()
        .all(|(name, value)| labels[name] == *value)
}

/// Decides like a network plugin. Addresses are compared as text.
fn is_admitted(policies: &[&Value], from: &Peer, to: &Peer, port: &str) -> bool {
    let mut of_target = policies
        .iter()
        .filter(|policy| policy["metadata"]["namespace"].as_str().unwrap_or(PLATFORM) == to.namespace)
        .filter(|policy| selects(&policy["spec"]["podSelector"], &to.labels))
        .peekable();
    if of_target.peek().is_none() {
        return true;
    }
    let rules = of_target.flat_map(|policy| policy["spec"]["ingress"].as_array().into_iter().flatten());
    let of_port = rules.filter(|rule| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|open| open["port"] == port)
    });
    let mut peers = of_port.flat_map(|rule| rule["from"].as_array().unwrap());
    peers.any(|peer| {
        if let Some(address) = from.address {
            return peer["ipBlock"]["cidr"] == format!("{address}/32");
        }
        let namespace = &peer["namespaceSelector"];
        let in_namespace = if namespace.is_null() {
            from.namespace == to.namespace
        } else {
            selects(namespace, &json!({"kubernetes.io/metadata.name": from.namespace}))
        };
        peer["ipBlock"].is_null() && in_namespace && selects(&peer["podSelector"], &from.labels)
    })
}

#[test]
fn each_program_is_reached_by_those_who_need_it_and_nobody_else() {
    let objects = rendered(&[ENABLED, API_SERVER, MONITORING]);
    let policies = of_kind(&objects, "NetworkPolicy");
    let provider = pods_of(&objects, "core-provider");
    let inspector = pods_of(&objects, "core-provider-chart-inspector");
    let controller_of = controller(PLATFORM);
    let tenant = pod(json!({"app": "web"}), "shop");
    // Whoever starts pods can label them at will.
    let forged = controller("shop");
    let scraper = pod(json!({"app": "prometheus"}), "monitoring");
    let api_server = address("192.0.2.10");
    let stranger = address("192.0.2.11");
    let check = |from: &Peer, to: &Peer, port: &str, expected: bool| {
        let found = is_admitted(&policies, from, to, port);
        assert_eq!(found, expected, "{from:?} to port {port} of {to:?}");
    };
    check(&api_server, &provider, "webhooks", true);
    check(&scraper, &provider, "metrics", true);
    check(&scraper, &inspector, "http", true);
    check(&scraper, &controller_of, "metrics", true);
    check(&controller_of, &inspector, "http", true);
    for peer in [&tenant, &forged, &stranger] {
        check(peer, &provider, "webhooks", false);
        check(peer, &provider, "metrics", false);
        check(peer, &inspector, "http", false);
        check(peer, &controller_of, "metrics", false);
    }
    check(&scraper, &provider, "webhooks", false);
    check(&api_server, &inspector, "http", false);
    check(&controller_of, &provider, "webhooks", false);
    // Pods that are not ours are not affected.
    check(&tenant, &pod(json!({"app": "db"}), PLATFORM), "db", true);
}

#[test]
fn the_ports_of_policies_are_ports_of_the_programs() {
    let objects = rendered(&[ENABLED, API_SERVER, MONITORING]);
    let asset = std::fs::read_to_string(chart().join("assets/cdc-deployment/deployment.yaml")).unwrap();
    for policy in of_kind(&objects, "NetworkPolicy") {
        let selector = &policy["spec"]["podSelector"];
        let deployment = of_kind(&objects, "Deployment")
            .into_iter()
            .find(|object| selects(selector, &object["spec"]["template"]["metadata"]["labels"]));
        for rule in policy["spec"]["ingress"].as_array().unwrap() {
            let port = rule["ports"][0]["port"].as_str().unwrap();
            let is_there = match deployment {
                Some(deployment) => deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|open| open["name"] == port),
                None => asset.contains(&format!("- name: {port}\n              containerPort:")),
            };
            assert!(is_there, "{port} of {selector}");
        }
    }
}

#[test]
fn controllers_beside_their_definitions_reach_chart_inspector_from_there() {
    let objects = rendered(&[ENABLED, API_SERVER, "cdc.namespace=definition"]);
    let policies = of_kind(&objects, "NetworkPolicy");
    let inspector = pods_of(&objects, "core-provider-chart-inspector");
    assert!(is_admitted(&policies, &controller("shop"), &inspector, "http"));
    assert!(!is_admitted(
        &policies,
        &pod(json!({"app": "web"}), "shop"),
        &inspector,
        "http"
    ));
}

#[test]
fn there_are_none_unless_they_are_asked_for_and_they_take_the_api_servers() {
    assert!(of_kind(&rendered(&[]), "NetworkPolicy").is_empty());
    let output = template(&[ENABLED]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("networkPolicy.apiServers"), "{said}");
}
