//! The whole size: nodes, pods, Services, DNS, registry. Needs root.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes the functions tests share for ordinary ones"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use local_cluster::{Cluster, ControlPlane, Options, output, state::NodeRecord, wait};

/// One cluster of two nodes for all tests of this file; it ends with the process.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start(Options {
            nodes: 2,
            ..Options::default()
        })
        .unwrap();
        report(&cluster);
        cluster
    })
}

fn report(plane: &ControlPlane) {
    for (part, version) in plane.versions() {
        println!("{part} {version}");
    }
    for (phase, after) in plane.timings() {
        println!("{:.1} s {phase}", after.as_secs_f64());
    }
}

/// containerd's client, on a node.
fn ctr(cluster: &Cluster, node: &NodeRecord, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={}", node.init.pid))
        .args(["--mount", "--"])
        .arg(cluster.folder().join("bin/ctr"))
        .arg("--namespace=k8s.io")
        .args(arguments);
    command
}

fn kubectl(arguments: &[&str]) -> String {
    output(&mut cluster().kubectl(arguments)).unwrap()
}

/// The Service of two pods, one on each node, and the log of a third pod that called it; their image contains only the
/// program.
fn probe() -> &'static str {
    static LINES: OnceLock<String> = OnceLock::new();
    LINES.get_or_init(|| {
        let image = build_probe();
        let apply = |manifests: &str| {
            cluster().apply(&manifests.replace("{image}", &image)).unwrap();
        };
        apply(include_str!("probe/service.yaml"));
        let rollout = ["rollout", "status", "deployment/probe", "--namespace=probe"];
        output(cluster().kubectl(rollout).arg("--timeout=120s")).unwrap();
        apply(include_str!("probe/caller.yaml"));
        wait::until("the caller", Duration::from_mins(2), || {
            let done = "--output=jsonpath={.status.succeeded}";
            let ask = ["get", "job", "caller", "--namespace=probe", done];
            Ok((kubectl(&ask) == "1").then_some(()))
        })
        .inspect_err(|_| println!("{}", kubectl(&["describe", "pods", "--namespace=probe"])))
        .unwrap();
        kubectl(&["logs", "job/caller", "--namespace=probe"])
    })
}

/// The address of the probe's Service.
fn probe_url() -> String {
    probe();
    let address = [
        "get",
        "service",
        "probe",
        "--namespace=probe",
        "--output=jsonpath={.spec.clusterIP}",
    ];
    format!("http://{}/", kubectl(&address))
}

/// A static program, and an image with only this program.
fn build_probe() -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probe/probe.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    output(
        Command::new(rustc)
            .args([
                "--edition=2024",
                "-Ctarget-feature=+crt-static",
                "--target",
                &target,
            ])
            .arg("-o")
            .arg(folder.path().join("probe"))
            .arg(source),
    )
    .unwrap();
    let dockerfile = folder.path().join("Dockerfile");
    fs::write(
        &dockerfile,
        "FROM scratch\nCOPY probe /\nUSER 65532\nENTRYPOINT [\"/probe\"]\n",
    )
    .unwrap();
    cluster()
        .build_image(&dockerfile, folder.path(), &[], "probe:v1")
        .unwrap()
}

#[test]
fn pods_from_a_scratch_image_find_and_reach_each_other_through_a_service() {
    let lines: Vec<&str> = probe().lines().collect();
    assert_eq!(lines.len(), 12, "{lines:?}");
    let pods: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert!(pods.iter().all(|pod| pod.starts_with("probe-")), "{pods:?}");
}

/// A node learns of a ready pod on its neighbour a moment after the rest of the cluster.
#[test]
fn a_service_leads_to_the_pods_of_both_nodes() {
    let url = probe_url();
    let mut pods = BTreeSet::new();
    wait::until("both pods to answer", Duration::from_mins(1), || {
        let node = &cluster().nodes()[0];
        let answer = output(&mut cluster().exec_in_node(node, ["curl", "--silent", "--max-time", "5", &url]));
        pods.extend(answer.ok());
        Ok((pods.len() == 2).then_some(()))
    })
    .unwrap();
}

#[test]
fn the_host_a_node_and_the_api_server_reach_a_service() {
    let url = probe_url();
    for _ in 0..10 {
        let from_host = output(Command::new("curl").args(["-sSfm", "5", &url])).unwrap();
        assert!(from_host.starts_with("probe-"), "{from_host}");
    }
    for node in cluster().nodes() {
        let mut call = cluster().exec_in_node(node, ["curl", "-sSfm", "5", &url]);
        let from_node = output(&mut call).unwrap();
        assert!(from_node.starts_with("probe-"), "{from_node}");
    }
    let path = "/api/v1/namespaces/probe/services/probe:80/proxy/";
    let from_api_server = kubectl(&["get", "--raw", path]);
    assert!(from_api_server.starts_with("probe-"), "{from_api_server}");
}

#[test]
fn nothing_outside_is_reached_from_a_node() {
    // 192.0.2.0/24 is reserved for documentation: it has no hosts, and no packet must leave the machine.
    for node in cluster().nodes() {
        let mut route = cluster().exec_in_node(node, ["ip", "route", "get", "192.0.2.1"]);
        let route = output(&mut route).unwrap();
        assert!(route.contains("dev lo"), "{route}");
    }
}

#[test]
fn an_archive_is_loaded_into_every_node() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("Dockerfile"),
        "FROM scratch\nCOPY Dockerfile /\n",
    )
    .unwrap();
    let archive: PathBuf = folder.path().join("image.tar");
    let storage = ["--storage-driver=vfs", "--root", "images", "--runroot", "run"];
    let buildah = |arguments: &[&str]| {
        output(
            Command::new("buildah")
                .current_dir(folder.path())
                .args(storage)
                .args(arguments),
        )
        .unwrap()
    };
    buildah(&["build", "--isolation=chroot", "--tag=localhost/loaded:v1", "."]);
    let destination = format!("oci-archive:{}:localhost/loaded:v1", archive.display());
    buildah(&["push", "localhost/loaded:v1", &destination]);

    cluster().load_image(&archive).unwrap();
    // The kubelet reports images of a node only from time to time; the runtime knows at once.
    for node in cluster().nodes() {
        let images = output(&mut ctr(cluster(), node, &["images", "list", "--quiet"])).unwrap();
        assert!(images.contains("localhost/loaded:v1"), "{images}");
    }
}

#[test]
fn logs_of_programs_and_pods_are_collected() {
    probe();
    let folder = tempfile::tempdir().unwrap();
    cluster().collect_logs(folder.path()).unwrap();
    for file in [
        "components/kube-apiserver.log",
        "components/node-2/kubelet.log",
        "audit.log",
        "events.txt",
        "pods.txt",
        "objects.yaml",
    ] {
        let size = folder.path().join(file).metadata().unwrap().len();
        assert!(size > 0, "{file}");
    }
    let of_pods: Vec<_> = ["node-1", "node-2"]
        .iter()
        .flat_map(|node| fs::read_dir(folder.path().join("pods").join(node)).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        of_pods.iter().any(|name| name.starts_with("probe_caller")),
        "{of_pods:?}"
    );
}

#[test]
fn a_node_whose_programs_were_killed_runs_pods_again() {
    let cluster = Cluster::start(Options::default()).unwrap();
    report(&cluster);
    let node = &cluster.nodes()[0];
    cluster.kill_component("node-1/kubelet").unwrap();
    cluster.kill_component("node-1/containerd").unwrap();
    cluster.restart_component("node-1/containerd").unwrap();
    // A kubelet that finds no runtime exits.
    wait::until("containerd", Duration::from_secs(30), || {
        Ok(output(&mut ctr(&cluster, node, &["version"])).ok())
    })
    .unwrap();
    cluster.restart_component("node-1/kubelet").unwrap();

    // The image of CoreDNS is on every node, and it serves until it is ended.
    let run = ["run", "later", "--image=localhost/coredns:v1", "--port=53"];
    output(&mut cluster.kubectl(run)).unwrap();
    let ready = ["wait", "pod/later", "--for=condition=Ready", "--timeout=60s"];
    output(&mut cluster.kubectl(ready)).unwrap();
    assert!(cluster.kill_component("node-9/kubelet").is_err());
}
