//! `make demo CLUSTER=current`: on an existing cluster, with a registry that it pulls from.

use std::process::Command;

use anyhow::Result;
use local_cluster::{Cluster, Options, output};

#[test]
fn the_demo_runs_on_the_current_cluster_and_leaves_nothing_there() -> Result<()> {
    let cluster = Cluster::start(Options::default())?;
    let registry = format!("{}/team", cluster.registry());
    let demo = |arguments: &[&str]| {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
        demo.env("KUBECONFIG", cluster.kubeconfig())
            .env("REGISTRY_PLAIN_HTTP", "true");
        output(demo.args(arguments))
    };

    let shown = demo(&["up", "--cluster", "current", "--registry", &registry])?;
    assert!(
        shown.contains("deployed") && shown.contains("web-1.0.0"),
        "{shown}"
    );
    assert!(shown.contains("deployments/hello-"), "{shown}");

    demo(&["down", "--cluster", "current"])?;
    let mut left = cluster.kubectl(["get", "namespaces,crds,clusterroles", "--output", "name"]);
    let left = output(&mut left)?;
    for trace in ["krateo", "demo", "webs"] {
        assert!(!left.contains(trace), "{trace} is left: {left}");
    }
    Ok(())
}
