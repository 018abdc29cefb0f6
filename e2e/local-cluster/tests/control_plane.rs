//! The small size: API server, store and controllers.

use local_cluster::{ControlPlane, Options, output};

fn start() -> ControlPlane {
    let control_plane = ControlPlane::start(Options::default()).unwrap();
    println!("{:?}", control_plane.timings());
    control_plane
}

#[test]
fn a_control_plane_starts_and_answers() {
    let control_plane = start();
    let namespaces = output(&mut control_plane.kubectl(["get", "namespaces", "--output=name"])).unwrap();
    assert!(namespaces.contains("namespace/kube-system"), "{namespaces}");
}
