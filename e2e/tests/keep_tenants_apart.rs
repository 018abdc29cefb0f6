//! What tenants can see of each other, how they take turns, and what is reported about them.

use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use e2e::host_platform::free_port;
use e2e::namespace::condition;
use e2e::trials::multicluster::{CLUSTERS, Clusters, deployment, events, figures, said, tenant};
use serde_json::{Value, json};

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn is_ready(object: &Value) -> bool {
    phase(object) == "Ready"
}

/// The message of a condition.
fn message(object: &Value, type_: &str) -> String {
    let condition = condition(object, type_);
    condition.map_or_else(String::new, |condition| condition["message"].to_string())
}

#[test]
fn values_look_up_only_objects_in_their_own_namespace() -> Result<()> {
    Clusters::shared()?.explained(look_up)
}

fn look_up(clusters: &Clusters) -> Result<()> {
    const ERROR: &str = "ClusterError/self-cluster";
    let operator = clusters.start_operator(&[])?;
    clusters.wait_for_tenants()?;
    let (teams, others) = (
        clusters.make_at_home("lookers")?,
        clusters.make_at_home("looked-at")?,
    );
    let seer = clusters.at_home("seer");
    others.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plans", "namespace": "looked-at"},
        "data": {"plan": "tell-tale"},
    }))?;
    others.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": "looked-at"},
        "stringData": {"password": "tell-tale"},
    }))?;
    let look_at = |kind: &str, namespace: &str, name: &str| {
        let values = json!({"looks": {"kind": kind, "namespace": namespace, "name": name}});
        teams.apply(&tenant("lookers", "seer", &json!({"values": values})))
    };
    let refused = |reason: &str, why: &str| -> Result<Value> {
        teams.wait("tenants", "seer", |it| {
            said(it, ERROR) == format!("True {reason}") && message(it, ERROR).contains(why)
        })
    };
    let found = |data: Value| {
        let data = data.to_string();
        seer.wait("configmaps", "settings", |it| {
            it["data"]["found"] == data.as_str()
        })?;
        teams.wait("tenants", "seer", is_ready)
    };

    // Objects of others are refused before they are read, and nothing is created.
    look_at("ConfigMap", "looked-at", "plans")?;
    refused("InstallFailed", "ConfigMap plans in looked-at")?;
    look_at("Secret", "looked-at", "password")?;
    refused("InstallFailed", "only Secrets in namespace seer may be looked up")?;
    look_at("ConfigMap", "", "")?;
    refused("InstallFailed", "in all namespaces")?;
    assert!(seer.get("namespaces", "seer")?.is_none());

    // Lookups in the tenant's own namespace are answered.
    look_at("ConfigMap", "seer", "own")?;
    found(Value::Null)?;
    seer.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "seer"},
        "stringData": {"password": "own"},
    }))?;
    look_at("Secret", "seer", "own")?;
    found(json!({"password": BASE64_STANDARD.encode("own")}))?;

    // The admin allows other namespaces, but no Secrets in them. Existing objects stay as they were.
    clusters.kill_operator(&operator)?;
    let operator = clusters.start_operator(&["--allowed-namespaces=looked-at"])?;
    look_at("Secret", "looked-at", "password")?;
    let held = refused("UpgradeFailed", "only Secrets in namespace seer may be looked up")?;
    assert!(!held.to_string().contains("tell-tale"), "{held}");
    look_at("ConfigMap", "looked-at", "plans")?;
    found(json!({"plan": "tell-tale"}))?;
    teams.kubectl(&["delete", "tenant", "seer", "--timeout=60s"])?;
    clusters.kill_operator(&operator)
}

#[test]
fn slow_templates_of_one_cluster_do_not_delay_another() -> Result<()> {
    Clusters::shared()?.explained(be_tedious)
}

fn be_tedious(clusters: &Clusters) -> Result<()> {
    const TEDIOUS: usize = 3;
    let operator = clusters.start_operator(&["--mode=tenant"])?;
    clusters.join("tedious", &clusters.remote.kubeconfig(), "")?;
    clusters.wait_for_state("tedious", "Engaged")?;
    clusters.wait_for_tenants()?;
    let (bores, quick) = (clusters.make_at_remote("bores")?, clusters.make_at_home("quick")?);
    let names: Vec<String> = (0..TEDIOUS).map(|number| format!("bore-{number}")).collect();
    let spec = json!({"values": {"tedious": true}});
    let items: Vec<Value> = names.iter().map(|name| tenant("bores", name, &spec)).collect();
    bores.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?;
    let is_told = |tenant: &Value| said(tenant, "ClusterError/tedious") == "True InstallFailed";
    quick.apply(&tenant("quick", "brief", &json!({})))?;
    quick.wait("tenants", "brief", is_ready)?;
    // The cluster's renders run one after the other, each up to its time limit.
    let mut told = 0;
    for name in &names {
        told += usize::from(bores.get("tenants", name)?.as_ref().is_some_and(is_told));
    }
    ensure!(told < TEDIOUS, "the tenant had to wait for {told} tedious ones");
    for name in &names {
        let failed = bores.wait("tenants", name, is_told)?;
        assert_eq!(phase(&failed), "Error");
    }
    bores.kubectl(&["delete", "tenants", "--all", "--timeout=60s"])?;
    quick.kubectl(&["delete", "tenants", "--all", "--timeout=60s"])?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "tedious"])
        .map(drop)
}

#[test]
fn no_metric_has_a_label_that_a_cluster_chose() -> Result<()> {
    Clusters::shared()?.explained(make_up_names)
}

/// A cluster that has more and more namespaces with tenants.
fn make_up_names(clusters: &Clusters) -> Result<()> {
    let port = free_port()?;
    let operator = clusters.start_operator(&[
        "--mode=tenant",
        "--self-cluster=false",
        &format!("--metrics-port={port}"),
    ])?;
    clusters.join("inventive", &clusters.remote.kubeconfig(), "")?;
    clusters.wait_for_state("inventive", "Engaged")?;
    // Nothing is released for them.
    let spec = json!({"clusterRef": {"secretName": "another"}});
    let make_up = |numbers: std::ops::Range<usize>| {
        let named = |number: usize| format!("made-up-{number}");
        let namespaces = numbers.clone().map(
            |number| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": named(number)}}),
        );
        let tenants = numbers.map(|number| tenant(&named(number), &format!("one-{number}"), &spec));
        let lists: [Vec<Value>; 2] = [namespaces.collect(), tenants.collect()];
        lists.iter().try_for_each(|items| {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            clusters.at_remote("made-up-0").apply(&list)
        })
    };
    let passed =
        |at_least: usize| {
            clusters.at_home(CLUSTERS).wait_until("the passes to be counted", || {
            let told = figures(port)?;
            let count = |line: &str| {
                let of = "multicluster_pass_duration_seconds_count{cluster=\"inventive\",kind=\"Tenant\"} ";
                line.strip_prefix(of)?.parse::<usize>().ok()
            };
            Ok((told.lines().find_map(count) >= Some(at_least)).then_some(told))
        })
        };
    make_up(0..3)?;
    let few = passed(3)?;
    make_up(3..30)?;
    let many = passed(30)?;
    assert!(!many.contains("made-up") && !many.contains("one-"), "{many}");
    let series = |told: &str| told.lines().filter(|line| !line.starts_with('#')).count();
    // Another answer of an API server may have been counted meanwhile.
    assert!(series(&many) <= series(&few) + 3, "{few}\n\n{many}");
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "inventive"])?;
    let namespaces: Vec<String> = (0..30).map(|number| format!("made-up-{number}")).collect();
    let mut deletion = vec!["delete", "namespaces", "--wait=false"];
    deletion.extend(namespaces.iter().map(String::as_str));
    clusters.at_remote("made-up-0").kubectl(&deletion)?;
    Ok(())
}

#[test]
fn names_over_the_limits_are_shortened_and_found_again() -> Result<()> {
    Clusters::shared()?.explained(cut_names)
}

fn cut_names(clusters: &Clusters) -> Result<()> {
    const RECORDS: [&str; 4] = ["get", "secrets", "--selector=owner=helm", "--output=name"];
    let cluster = format!("{}.edge", "c".repeat(100));
    let (name, too_long) = ("t".repeat(63), "t".repeat(64));
    let flags = ["--self-cluster=false"];
    let operator = clusters.start_operator(&flags)?;
    clusters.join(&cluster, &clusters.remote.kubeconfig(), "long")?;
    clusters.wait_for_state(&cluster, "Engaged")?;
    let (teams, owners) = (clusters.make_at_remote("long")?, clusters.make_at_home("long")?);
    let place = clusters.at_remote(&name);
    let greet = |greeting: &str| {
        teams.apply(&tenant("long", &name, &json!({"values": {"greeting": greeting}})))?;
        place.wait("configmaps", "settings", |it| it["data"]["greeting"] == greeting)?;
        teams.wait("tenants", &name, is_ready)
    };
    let ready = greet("one")?;
    assert_eq!(said(&ready, &format!("ClusterReady/{cluster}")), "True Installed");
    let release = ready["status"]["releases"][0]["name"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(release.len(), 53, "{release}");
    let annotations = ready["metadata"]["annotations"].as_object();
    let mut names = annotations.into_iter().flat_map(|all| all.keys());
    let noted = names.find_map(|name| name.strip_prefix("mesh.openkcm.io/fingerprint-"));
    assert_eq!(noted.map(|name| "fingerprint-".len() + name.len()), Some(63));

    // The next operator finds both: it skips, then upgrades the same release.
    clusters.kill_operator(&operator)?;
    let operator = clusters.start_operator(&flags)?;
    teams.wait_until("the tenant to be skipped", || {
        let told = events(&teams, &name)?;
        Ok(told.contains(&"HelmSkip".to_owned()).then_some(()))
    })?;
    assert_eq!(place.kubectl(&RECORDS)?.lines().count(), 1);
    greet("two")?;
    assert_eq!(place.kubectl(&RECORDS)?.lines().count(), 2);

    // A string that is not a valid namespace name is refused.
    teams.apply(&tenant("long", &too_long, &json!({})))?;
    let refused = teams.wait("tenants", &too_long, |it| {
        said(it, &format!("ClusterError/{cluster}")) == "True NamespaceRefused"
    })?;
    assert_eq!(phase(&refused), "Error");
    teams.kubectl(&["delete", "tenants", "--all", "--timeout=60s"])?;
    place.wait_until("the namespace to go", || {
        Ok(place.get("namespaces", &name)?.is_none().then_some(()))
    })?;

    // The name of a KryptonDeployment's release is shortened as well.
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": cluster}}});
    owners.apply(&deployment("long", &name, &region, &json!({})))?;
    let ready = owners.wait("kryptondeployments", &name, is_ready)?;
    let release = ready["status"]["release"]["name"].as_str().unwrap_or_default();
    assert!(release.len() == 53 && release.starts_with("ced-ttt"), "{release}");
    owners.kubectl(&["delete", "kryptondeployments", "--all", "--timeout=110s"])?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", &cluster])
        .map(drop)
}

#[test]
fn an_existing_namespace_must_consent_and_stays() -> Result<()> {
    Clusters::shared()?.explained(settle_in)
}

fn settle_in(clusters: &Clusters) -> Result<()> {
    const ERROR: &str = "ClusterError/self-cluster";
    let operator = clusters.start_operator(&["--mode=tenant"])?;
    clusters.wait_for_tenants()?;
    let (teams, settled) = (
        clusters.make_at_home("settlers")?,
        clusters.make_at_home("settled")?,
    );
    teams.apply(&tenant("settlers", "settled", &json!({})))?;
    let refused = teams.wait("tenants", "settled", |it| {
        said(it, ERROR) == "True NamespaceRefused"
    })?;
    assert_eq!(phase(&refused), "Error");
    let needed = "mesh.openkcm.io/tenant: settlers/settled";
    assert!(message(&refused, ERROR).contains(needed), "{refused}");
    teams.wait_until("the refusal to be told", || {
        let told = events(&teams, "settled")?;
        Ok(told.contains(&"WorkspaceCreateFailed".to_owned()).then_some(()))
    })?;
    assert!(settled.get("configmaps", "settings")?.is_none());
    settled.kubectl(&[
        "annotate",
        "namespace",
        "settled",
        "mesh.openkcm.io/tenant=settlers/settled",
    ])?;
    let ready = teams.wait("tenants", "settled", is_ready)?;
    assert_eq!(said(&ready, ERROR), "False Resolved");
    assert!(events(&teams, "settled")?.contains(&"WorkspaceExists".to_owned()));
    teams.kubectl(&["delete", "tenant", "settled", "--timeout=60s"])?;
    let stays = settled.get("namespaces", "settled")?;
    assert_eq!(stays.as_ref().map(phase), Some("Active"));
    assert!(settled.get("configmaps", "settings")?.is_none());
    clusters.kill_operator(&operator)
}
