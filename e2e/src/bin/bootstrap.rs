//! Three bare nodes to a cluster by the real kubeadm: `make bootstrap`. Prints the seconds of each stage, and what was reached.
//!
//! A node is a set of namespaces with its own /etc, hostname, network, container runtime and kubelet. All of them end with
//! the process.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::image;
use local_cluster::image::System;
use local_cluster::parts::{self, Cache, Part};
use serde_json::{Value, json};

/// The parts that run on a node.
const NODE: [&Part; 6] = [
    &parts::KUBEADM,
    &parts::KUBELET,
    &parts::KUBECTL,
    &parts::CONTAINERD,
    &parts::CONTAINERD_SHIM,
    &parts::CTR,
];

/// The parts that run as pods. kubeadm looks for them under these names.
const PODS: [(&Part, &str); 7] = [
    (&parts::KUBE_APISERVER, "kube-apiserver"),
    (&parts::KUBE_CONTROLLER_MANAGER, "kube-controller-manager"),
    (&parts::KUBE_SCHEDULER, "kube-scheduler"),
    (&parts::KUBE_PROXY, "kube-proxy"),
    (&parts::COREDNS, "coredns/coredns"),
    (&parts::ETCD, "etcd"),
    (&parts::PAUSE, "pause"),
];

const SCRIPTS: [(&str, &str); 4] = [
    ("prepare.sh", include_str!("../bootstrap/prepare.sh")),
    ("kubelet.sh", include_str!("../bootstrap/kubelet.sh")),
    ("join.sh", include_str!("../bootstrap/join.sh")),
    ("init.sh", include_str!("../bootstrap/init.sh")),
];

const CONTAINERD: &str = r#"version = 3
root = "FOLDER/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "FOLDER/opt"

[plugins."io.containerd.cri.v1.runtime"]
# Without the capability to lower scores every container would fail to start.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"
use_internal_loopback = true

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "PAUSE"
"#;

fn main() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("bootstrap-").tempdir()?;
    let site = folder.path();
    furnish(site)?;
    let log = fs::File::create(site.join("node-1.log"))?;
    let ran = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args([
            "--mount-proc",
            "--net",
            "--uts",
            "--propagation",
            "private",
            "bash",
        ])
        .arg(site.join("init.sh"))
        .env("SITE", site)
        .env("VERSION", parts::KUBEADM.version())
        .env("PATH", path(site)?)
        .stderr(log.try_clone()?)
        .stdout(log)
        .status()
        .context("could not start the first node")?;
    remove_control_groups(site);
    if !ran.success() {
        let kept = folder.keep();
        bail!("the trial ended with {ran}; its logs are in {}", kept.display());
    }
    report(site)
}

/// All that the nodes find.
fn furnish(site: &Path) -> Result<()> {
    let cache = Cache::of_user()?;
    for below in ["bin", "images"] {
        fs::create_dir(site.join(below))?;
    }
    for part in NODE {
        symlink(cache.path(part)?, site.join("bin").join(part.name))?;
    }
    for program in ["bootstrapper", "join-service", "kco"] {
        symlink(image::binary(program)?, site.join("bin").join(program))?;
    }
    let names = image_names(&site.join("bin/kubeadm"))?;
    for (part, name) in PODS {
        let prefix = format!("registry.k8s.io/{name}:");
        let full = names.iter().find(|full| full.starts_with(&prefix));
        let full = full.with_context(|| format!("kubeadm needs no image {name}"))?;
        let archive = site.join("images").join(part.name).with_extension("tar");
        let system = System {
            programs: &[cache.path(part)?],
            tools: &[],
            folders: &[],
        };
        system.write(full, &archive)?;
        if part.name == parts::PAUSE.name {
            fs::write(site.join("containerd.toml"), CONTAINERD.replace("PAUSE", full))?;
        }
    }
    for (name, text) in SCRIPTS {
        fs::write(site.join(name), text)?;
    }
    let crd = image::root().join("charts/join-service/crds/joiningnodes.yaml");
    fs::copy(crd, site.join("joiningnodes.yaml"))?;
    fs::write(site.join("secret"), "a secret of the trial")?;
    fs::write(site.join("hash"), bcrypt::hash("a secret of the trial", 6)?)?;
    fs::write(site.join("resolv.conf"), "nameserver 198.19.0.10\n")?;
    fs::write(site.join("kubelet.json"), kubelet().to_string())?;
    Ok(())
}

/// What kubelets of nodes on one machine are told besides; see `local_cluster`.
fn kubelet() -> Value {
    json!({
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "CONTROL_GROUP",
        "resolvConf": "RESOLV",
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "oomScoreAdj": 0,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
    })
}

fn image_names(kubeadm: &Path) -> Result<Vec<String>> {
    let mut list = Command::new(kubeadm);
    list.args([
        "config",
        "images",
        "list",
        "--kubernetes-version",
        parts::KUBEADM.version(),
    ]);
    let names = local_cluster::output(&mut list)?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn path(site: &Path) -> Result<std::ffi::OsString> {
    let mut folders = vec![site.join("bin")];
    let own = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&own));
    Ok(std::env::join_paths(folders)?)
}

/// The programs in them have ended with their namespaces.
fn remove_control_groups(site: &Path) {
    let Some(prefix) = site.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    // What is gone already is not there to be removed.
    let _ = Command::new("find")
        .args([
            "/sys/fs/cgroup",
            "-depth",
            "-type",
            "d",
            "-path",
            &format!("*/{prefix}-node-*"),
        ])
        .args(["-exec", "rmdir", "{}", "+"])
        .stderr(std::process::Stdio::null())
        .status();
}

fn report(site: &Path) -> Result<()> {
    let stages = fs::read_to_string(site.join("stages"))?;
    let mut before = None;
    for line in stages.lines() {
        let (time, stage) = line.split_once(' ').context("a stage without a time")?;
        let time: f64 = time.parse()?;
        if let Some(before) = before.replace(time) {
            println!("{:>6.1} s  {stage}", time - before);
        }
    }
    let cluster: Value = serde_json::from_slice(&fs::read(site.join("cluster/cluster-id.json"))?)?;
    let id = cluster["clusterID"].as_str().context("no cluster id")?;
    let mut registers = Vec::new();
    for number in 1..=3 {
        let record: Value = serde_json::from_slice(&fs::read(site.join(format!("record-{number}.json")))?)?;
        ensure!(record["state"] == "done", "node {number}: {record}");
        registers.push(fs::read_to_string(site.join(format!("registers-{number}")))?);
    }
    ensure!(
        registers
            .iter()
            .all(|register| register == &registers[0] && register.starts_with("15 ")),
        "the nodes measured different ids: {registers:?}"
    );
    let nodes: Value = serde_json::from_slice(&fs::read(site.join("nodes.json"))?)?;
    let nodes = nodes["items"].as_array().context("no nodes")?;
    let is_control_plane =
        |node: &&Value| node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"].is_string();
    let control_planes = nodes.iter().filter(is_control_plane).count();
    ensure!(
        fs::read_to_string(site.join("readyz"))? == "ok",
        "the API server is not ready"
    );
    ensure!(
        (nodes.len(), control_planes) == (3, 2),
        "{} nodes, {control_planes} control planes",
        nodes.len()
    );
    println!("cluster {id}: 3 nodes, 2 of them control planes, one id on all");
    Ok(())
}
