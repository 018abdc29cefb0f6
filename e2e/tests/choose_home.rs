//! Where the multicluster operator finds its home cluster, and which requests it sends there while nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use e2e::trials::multicluster::{CLUSTERS, Clusters, deployment, said, tenant};
use serde_json::{Value, json};

/// Longer than it takes until an idle watch reports something for the first time.
const FIRST_BOOKMARK: Duration = Duration::from_secs(75);

fn is_ready(object: &Value) -> bool {
    object["status"]["phase"] == "Ready"
}

#[test]
fn a_watch_cluster_named_by_a_secret_is_used_or_the_operator_exits() -> Result<()> {
    Clusters::shared()?.explained(choose_by_a_secret)
}

fn choose_by_a_secret(clusters: &Clusters) -> Result<()> {
    let own = clusters.at_home(CLUSTERS);
    // A named kubeconfig that cannot be used ends the process: no other one is used instead.
    let write = |name: &str, kubeconfig: &str| {
        own.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLUSTERS},
            "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)},
        }))
    };
    write("no-kubeconfig", "nothing")?;
    let nobody = std::fs::read_to_string(clusters.remote.kubeconfig())?;
    write(
        "nobody-there",
        &nobody.replace(clusters.remote.api_server(), "https://127.0.0.1:9"),
    )?;
    for (name, why) in [
        ("missing", "does not exist"),
        ("no-kubeconfig", "clusters/no-kubeconfig"),
        ("nobody-there", "does not lead to an API server that answers"),
    ] {
        let ended = clusters
            .operator(&[&format!("--watch-kubeconfig-secret={name}")])?
            .output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains(why), "{name}: {said}");
    }

    // With one that can be used, objects and states are those of the cluster that it leads to.
    clusters.make_at_remote(CLUSTERS)?;
    write("watch", &std::fs::read_to_string(clusters.remote.kubeconfig())?)?;
    let operator = clusters.start_operator(&["--watch-kubeconfig-secret=watch"])?;
    let (there, here) = (
        clusters.make_at_remote("watched")?,
        clusters.make_at_home("watched")?,
    );
    for kind in ["Tenant", "KryptonDeployment"] {
        let name = format!("{}s.mesh.openkcm.io", kind.to_lowercase());
        there.wait("customresourcedefinitions", &name, |it| {
            it["status"]["acceptedNames"]["kind"] == kind
        })?;
    }
    there.apply(&tenant("watched", "watched-acme", &json!({})))?;
    let ready = there.wait("tenants", "watched-acme", is_ready)?;
    assert_eq!(said(&ready, "ClusterReady/self-cluster"), "True Installed");
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "watch-edge"}}});
    there.apply(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "watch-edge", "namespace": CLUSTERS,
            "annotations": {"krateo.io/allow-from-namespaces": "watched"},
        },
        "data": {"kubeconfig": BASE64_STANDARD.encode(std::fs::read(clusters.home.kubeconfig())?)},
    }))?;
    there.apply(&deployment("watched", "watched-shop", &region, &json!({})))?;
    there.wait("kryptondeployments", "watched-shop", is_ready)?;
    // If the watch cluster is given by a Secret, the operator does not store its own kubeconfig there, which leads
    // elsewhere.
    assert!(
        clusters
            .at_remote(CLUSTERS)
            .get("secrets", "self-cluster")?
            .is_none()
    );
    // The release is where the Secret leads, which is the other cluster now.
    here.wait("namespaces", "watched-shop", |_| true)?;
    assert!(there.get("namespaces", "watched-shop")?.is_none());
    assert!(here.get("namespaces", "watched-acme")?.is_none());
    there.kubectl(&["delete", "tenants,kryptondeployments", "--all", "--timeout=110s"])?;
    clusters.kill_operator(&operator)?;
    let remote = clusters.at_remote(CLUSTERS);
    remote.kubectl(&["delete", "secrets", "--all"])?;
    own.kubectl(&["delete", "secret", "watch", "no-kubeconfig", "nobody-there"])?;
    Ok(())
}

#[test]
fn an_idle_home_gets_only_lease_renewals_and_watches() -> Result<()> {
    Clusters::shared()?.explained(leave_home_alone)
}

fn leave_home_alone(clusters: &Clusters) -> Result<()> {
    // A request every second would be noticed.
    let operator = clusters.start_operator(&["--probe-interval=1s"])?;
    clusters.join("calm", &clusters.remote.kubeconfig(), "calm")?;
    clusters.wait_for_tenants()?;
    clusters.wait_for_state("calm", "Engaged")?;
    let calm = clusters.make_at_home("calm")?;
    calm.apply(&tenant("calm", "calm-acme", &json!({})))?;
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": "calm"}}});
    calm.apply(&deployment("calm", "calm-shop", &region, &json!({})))?;
    calm.wait("tenants", "calm-acme", is_ready)?;
    calm.wait("kryptondeployments", "calm-shop", is_ready)?;
    // API servers send a bookmark on each watch within a minute. Until then the operator checks a cluster where nothing
    // changes.
    std::thread::sleep(FIRST_BOOKMARK);
    let marks = [clusters.home.audit().mark()?, clusters.remote.audit().mark()?];
    std::thread::sleep(Duration::from_secs(20));
    let mut asked = BTreeMap::<String, usize>::new();
    let mut leases = 0;
    for (plane, mark) in [&clusters.home, &clusters.remote].into_iter().zip(marks) {
        for record in plane.audit().since(mark)? {
            let record = record?;
            if !record.user_agent.contains("multicluster-operator") {
                continue;
            }
            match (record.verb.as_str(), record.resource.as_str()) {
                (_, "leases") => leases += 1,
                ("watch", _) => {}
                _ => {
                    *asked
                        .entry(format!("{} {}", record.verb, record.uri))
                        .or_default() += 1;
                }
            }
        }
    }
    assert!(leases > 5, "{leases} renewals of the Lease");
    assert!(asked.is_empty(), "{asked:#?}");
    calm.kubectl(&["delete", "tenants,kryptondeployments", "--all", "--timeout=110s"])?;
    clusters.kill_operator(&operator)?;
    clusters
        .at_home(CLUSTERS)
        .kubectl(&["delete", "secret", "calm"])
        .map(drop)
}
