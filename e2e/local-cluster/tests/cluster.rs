//! The whole size: nodes, pods, Services, DNS, registry.

use local_cluster::{Cluster, Options, output};

#[test]
fn a_cluster_starts() {
    let cluster = Cluster::start(Options::default()).unwrap();
    println!("{:?}", cluster.timings());
    println!(
        "{}",
        output(&mut cluster.kubectl(["get", "nodes,pods", "-A", "-owide"])).unwrap()
    );
}
