//! A home cluster and two targets, as control planes on this host: what a user sees of many clusters when one of them
//! goes away and comes back.

use std::thread;

use anyhow::{Context as _, Result};
use local_cluster::registry::Settings;
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

use super::{CLUSTERS, PROGRAM, chart, said, tenant};
use crate::{Namespace, Site, image, progress};

/// The clusters that [`up`] makes.
pub const NAMES: [&str; 3] = ["demo-home", "demo-east", "demo-west"];

/// The namespace of the tenants.
const TEAMS: &str = "teams";

/// A cluster of the demo.
struct DemoCluster {
    name: &'static str,
    plane: ControlPlane,
    site: Site,
}

impl DemoCluster {
    fn start(name: &'static str) -> Result<Self> {
        let options = Options {
            name: Some(name.to_owned()),
            ..Options::default()
        };
        let plane = ControlPlane::start(options).with_context(|| {
            format!("{name} did not start; if it is there already, `make demo-down` removes it")
        })?;
        let site = Site::host(&plane)?;
        Ok(Self { name, plane, site })
    }

    /// As the target is called at home.
    fn short(&self) -> &'static str {
        self.name.trim_start_matches("demo-")
    }

    fn teams(&self) -> Namespace {
        Namespace::of(TEAMS, &self.site)
    }
}

/// Starts everything and shows it. The clusters stay until they are removed by name, unless something fails.
///
/// # Errors
/// When something does not come up.
pub fn up(show: &dyn Fn(&str)) -> Result<()> {
    progress("starting three control planes, each with a store of its own");
    let [home, east, west] = thread::scope(|scope| {
        let starting = NAMES.map(|name| scope.spawn(move || DemoCluster::start(name)));
        starting.map(|starting| starting.join().ok().context("a control plane did not start")?)
    })
    .map(Some);
    let (home, east, west) = (
        home.context("no home")??,
        east.context("no target")??,
        west.context("no target")??,
    );
    let clusters = Namespace::make(CLUSTERS, &home.site)?;
    let registry = home
        .plane
        .start_registry("charts", &Settings::default())?
        .to_string();
    chart("1.0.0")?
        .package(&home.site)?
        .push(&home.site, &registry, &["--plain-http"])?;
    start_operator(&home, &registry)?;

    let url = format!("oci://{registry}/charts/shop");
    for target in [&east, &west] {
        let kubeconfig = target.plane.kubeconfig();
        let kubeconfig = kubeconfig.to_string_lossy();
        let words = [
            "cluster",
            "join",
            target.short(),
            "--target-kubeconfig",
            &kubeconfig,
            "--chart",
            &url,
            "--version",
            "1.0.0",
            "--plain-http",
            "--namespace",
            CLUSTERS,
        ];
        show(&format!("\n$ kco {}", words.join(" ")));
        show(&home.site.run(home.site.kco(words)?)?);
    }
    wait_for(&clusters, east.short(), "Engaged")?;
    wait_for(&clusters, west.short(), "Engaged")?;
    list(&home, show)?;

    for (target, name) in [(&east, "acme"), (&west, "zenith")] {
        let teams = Namespace::make(TEAMS, &target.site)?;
        teams.apply(&tenant(TEAMS, name, &json!({"values": {"greeting": "hello"}})))?;
        is_installed(target, name, 1)?;
        tenants(target, show)?;
    }

    progress("cutting west off: its API server is killed");
    west.plane.kill_component("kube-apiserver")?;
    wait_for(&clusters, west.short(), "Unreachable")?;
    list(&home, show)?;
    progress("meanwhile a tenant of east is changed");
    east.teams().apply(&tenant(
        TEAMS,
        "acme",
        &json!({"values": {"greeting": "still here"}}),
    ))?;
    is_installed(&east, "acme", 2)?;
    tenants(&east, show)?;

    progress("bringing west back, and changing its tenant");
    west.plane.restart_component("kube-apiserver")?;
    west.teams().wait_until("the API server to answer", || {
        let changed = tenant(TEAMS, "zenith", &json!({"values": {"greeting": "back again"}}));
        Ok(west.teams().apply(&changed).ok())
    })?;
    wait_for(&clusters, west.short(), "Engaged")?;
    is_installed(&west, "zenith", 2)?;
    list(&home, show)?;
    tenants(&west, show)?;
    show(&format!(
        "\nLook around:   export KUBECONFIG={}\n               kubectl get secrets --namespace {CLUSTERS}; kco cluster list --namespace {CLUSTERS}\n\
         The targets:   KUBECONFIG={} or {}\nRemove it all: make demo-down",
        home.plane.kubeconfig().display(),
        east.plane.kubeconfig().display(),
        west.plane.kubeconfig().display()
    ));
    [home, east, west]
        .into_iter()
        .try_for_each(|cluster| cluster.plane.detach())
}

fn start_operator(home: &DemoCluster, registry: &str) -> Result<()> {
    let arguments = vec![
        format!("--chart-repo=oci://{registry}/charts"),
        "--chart-name=shop".to_owned(),
        "--chart-version=1.0.0".to_owned(),
        "--chart-plain-http".to_owned(),
        format!("--namespace={CLUSTERS}"),
        format!("--own-namespace={CLUSTERS}"),
        "--metrics-port=0".to_owned(),
        "--health-port=0".to_owned(),
        // All three are on this machine.
        "--allow-loopback-clusters".to_owned(),
        "--ensure-watch-crds".to_owned(),
        "--self-cluster=false".to_owned(),
        "--probe-interval=2s".to_owned(),
    ];
    let kubeconfig = home.plane.kubeconfig();
    let environment = [
        ("KUBECONFIG", &*kubeconfig.to_string_lossy()),
        ("NO_PROXY", "127.0.0.1"),
    ];
    home.plane
        .start_program(PROGRAM, &image::binary(PROGRAM)?, arguments, &environment)
}

fn wait_for(clusters: &Namespace, cluster: &str, state: &str) -> Result<()> {
    let told = |secret: &Value| {
        let told = secret["metadata"]["annotations"]["mesh.openkcm.io/cluster-state"].as_str();
        told.is_some_and(|told| told.contains(state))
    };
    clusters.wait("secrets", cluster, told).map(drop)
}

fn is_installed(target: &DemoCluster, name: &str, revision: i64) -> Result<()> {
    let ready = format!("ClusterReady/{}", target.short());
    let is_so = |it: &Value| {
        it["status"]["releases"][0]["revision"] == revision && said(it, &ready).starts_with("True")
    };
    target.teams().wait("tenants", name, is_so).map(drop)
}

fn list(home: &DemoCluster, show: &dyn Fn(&str)) -> Result<()> {
    let words = ["cluster", "list", "--namespace", CLUSTERS];
    show(&format!("\n$ kco {}", words.join(" ")));
    show(&home.site.run(home.site.kco(words)?)?);
    Ok(())
}

fn tenants(target: &DemoCluster, show: &dyn Fn(&str)) -> Result<()> {
    let listed = target.teams().kubectl(&["get", "tenants"])?;
    show(&format!("\nTenants on {}:\n{listed}", target.short()));
    let releases = target.site.helm(["list", "--all-namespaces"]);
    show(&format!("Their releases:\n{}", target.site.run(releases)?));
    Ok(())
}
