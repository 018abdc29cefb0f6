//! The operator with the rights of its chart at home, and on a target with those that `kco cluster join` gives it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::image;
use e2e::trials::multicluster::{CLUSTERS, Clusters, deployment, tenant};
use serde_json::{Value, json};

const RELEASE: &str = "multicluster-operator";
const EDGE: &str = "joined";

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn is_ready(object: &Value) -> bool {
    object["status"]["phase"] == "Ready"
}

#[test]
fn tenants_and_deployments_need_exactly_the_rights_that_joining_grants() -> Result<()> {
    Clusters::shared()?.explained(|clusters| {
        let outcome = serve(clusters);
        let _ = clusters.at_home(CLUSTERS).helm(&["uninstall", RELEASE]);
        outcome
    })
}

fn serve(clusters: &Clusters) -> Result<()> {
    let (home, teams) = (clusters.at_home(CLUSTERS), clusters.at_remote("joined-teams"));
    home.helm(&[
        "install",
        RELEASE,
        &text(&image::root().join("charts/multicluster-operator")),
    ])?;
    // The same kinds as in the chart that is released.
    let target = text(&clusters.remote.kubeconfig());
    join(clusters)?;
    let (before_home, before_remote) = (clusters.home.audit().mark()?, clusters.remote.audit().mark()?);

    let own = clusters.home.kubeconfig_for(CLUSTERS, RELEASE)?;
    let own = format!("--kubeconfig={}", text(&own));
    clusters.start_operator(&[&own, "--self-cluster=false", "--ensure-watch-crds=false"])?;
    clusters.wait_for_state(EDGE, "Engaged")?;

    // A Tenant is created, corrected, and deleted.
    teams.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joined-teams"}}))?;
    teams.apply(&tenant("joined-teams", "joined-acme", &json!({})))?;
    teams.wait("tenants", "joined-acme", is_ready)?;
    let acme = clusters.at_remote("joined-acme");
    acme.kubectl(&["delete", "service", "web"])?;
    acme.wait("services", "web", |_| true)?;

    // So is a KryptonDeployment.
    let team = clusters.at_home("joined-shop");
    team.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "joined-shop"}}))?;
    let region = json!({"name": "eu", "kubeconfig": {"secret": {"name": EDGE}}});
    team.apply(&deployment("joined-shop", "joined-web", &region, &json!({})))?;
    team.wait("kryptondeployments", "joined-web", is_ready)?;

    renew(clusters)?;
    cut_off(clusters)?;
    teams.apply(&tenant(
        "joined-teams",
        "joined-acme",
        &json!({"values": {"greeting": "again"}}),
    ))?;
    acme.wait("configmaps", "settings", |it| it["data"]["greeting"] == "again")?;

    team.kubectl(&["delete", "kryptondeployments", "joined-web", "--timeout=60s"])?;
    teams.kubectl(&["delete", "tenants", "joined-acme", "--timeout=60s"])?;
    teams.wait_gone("namespace", "joined-acme")?;

    let accounts = [
        format!("system:serviceaccount:{CLUSTERS}:{RELEASE}"),
        format!("system:serviceaccount:multicluster-operator:{EDGE}-"),
    ];
    for (plane, mark) in [(&clusters.home, before_home), (&clusters.remote, before_remote)] {
        let mut asked = 0;
        for record in plane.audit().since(mark)? {
            let record = record?;
            if accounts.iter().any(|account| record.user.starts_with(account)) {
                asked += 1;
                assert_ne!(record.code, 403, "{} {}", record.verb, record.uri);
            }
        }
        assert!(asked > 0, "the operator asked nothing as its account");
    }

    let mut leave = home
        .site()
        .kco(["cluster", "leave", EDGE, "--target-kubeconfig", &target])?;
    leave.args(["--namespace", CLUSTERS]);
    home.site().run(leave).map(drop)
}

/// Joins the remote cluster, or joins it again.
fn join(clusters: &Clusters) -> Result<()> {
    let home = clusters.at_home(CLUSTERS);
    let chart = text(&image::root().join("e2e/charts/web"));
    let target = text(&clusters.remote.kubeconfig());
    let mut join = home.site().kco(["cluster", "join", EDGE, "--chart", &chart])?;
    join.args(["--target-kubeconfig", &target, "--allow-from", "joined-shop"]);
    join.args(["--namespace", CLUSTERS]);
    home.site().run(join).map(drop)
}

/// Without its ServiceAccount no token is valid any more, which is reported, until the cluster joins again.
fn cut_off(clusters: &Clusters) -> Result<()> {
    let (home, accounts) = (
        clusters.at_home(CLUSTERS),
        clusters.at_remote("multicluster-operator"),
    );
    accounts.kubectl(&["delete", "serviceaccounts", "--all"])?;
    // Existing watches continue, and a token is accepted for some more seconds: so there must be a new request.
    let teams = clusters.at_remote("joined-teams");
    let mut touched = 0;
    home.wait_until("the token to be missed", || {
        touched += 1;
        let touch = format!("touched={touched}");
        teams.kubectl(&["annotate", "tenant", "joined-acme", &touch, "--overwrite"])?;
        Ok((clusters.state(EDGE)?.as_deref() == Some("Unreachable")).then_some(()))
    })?;
    let secret = home.get("secret", EDGE)?.context("no Secret")?;
    let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].to_string();
    ensure!(told.contains("Unauthorized"), "{told}");
    join(clusters)?;
    clusters.wait_for_state(EDGE, "Engaged")
}

/// A token that is past half of its lifetime is renewed by the operator, with the token itself.
fn renew(clusters: &Clusters) -> Result<()> {
    let home = clusters.at_home(CLUSTERS);
    let secret = || home.get("secret", EDGE)?.context("no Secret");
    let before = secret()?;
    // In two days less than half of the week is left.
    let soon = before["metadata"]["annotations"]["mesh.openkcm.io/token-expires"]
        .as_str()
        .unwrap();
    let soon: jiff::Timestamp = soon.parse()?;
    let soon = soon - jiff::SignedDuration::from_hours(120);
    let patch = json!({"metadata": {"annotations": {"mesh.openkcm.io/token-expires": soon.to_string()}}});
    home.kubectl(&[
        "patch",
        "secret",
        EDGE,
        "--type=merge",
        "--patch",
        &patch.to_string(),
    ])?;
    home.wait("secret", EDGE, |secret| secret["data"] != before["data"])?;
    let renewed = secret()?;
    let annotations = &renewed["metadata"]["annotations"];
    assert_eq!(annotations["mesh.openkcm.io/token-lifetime"], "604800");
    clusters.wait_for_state(EDGE, "Engaged")
}
