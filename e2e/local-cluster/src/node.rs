//! One machine of a cluster: namespaces of its own, and in them a container runtime, the kubelet and kube-proxy.
//!
//! The first process of a node's process namespace is the pause program. When it ends, the kernel ends everything on
//! the node: programs, shims and containers, and then the node's mounts and network.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    certificates::{Authority, Identity as User},
    control_plane::{ControlPlane, PATIENCE},
    dns,
    network::Addresses,
    packages, parts,
    process::{Identity, Location, Process, Program, output},
    registry,
    state::NodeRecord,
    wait,
};

/// The image of the pause program, the first container of each pod.
const PAUSE_IMAGE: &str = "localhost/pause:v1";
const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// A node while it is being started.
#[derive(Debug)]
pub(crate) struct Node {
    /// Counted from 1.
    number: usize,
    init: Identity,
    folder: PathBuf,
}

impl Node {
    /// Creates the namespaces of a node, with only their first process.
    pub(crate) fn boot(plane: &ControlPlane, number: usize) -> Result<Self> {
        let name = format!("node-{number}");
        let folder = plane.home.path(&name);
        fs::create_dir_all(&folder)?;
        let mut process = Process::start(
            &plane.home.folder,
            Program {
                name: format!("{name}/init"),
                path: "unshare".into(),
                arguments: [
                    "--fork",
                    "--pid",
                    "--net",
                    "--mount",
                    "--mount-proc",
                    "--kill-child",
                    "--",
                    "sh",
                    "-c",
                    concat!(include_str!("node.sh"), include_str!("tunables.sh")),
                    "node",
                ]
                .into_iter()
                .map(str::to_owned)
                .chain([
                    path(&plane.cache.path(&parts::PAUSE)?),
                    path(plane.folder()),
                    path(plane.cache.folder()),
                ])
                .collect(),
                environment: Vec::new(),
                location: Location::Host,
            },
        )?;
        let init = wait::until("the namespaces of a node", Duration::from_secs(20), || {
            process.check()?;
            Ok(Identity::of(process.pid())
                .and_then(|wrapper| wrapper.only_child())
                .filter(|init| is_prepared(*init)))
        })?;
        plane.home.note_process(init)?;
        plane.keep(process);
        Ok(Self { number, init, folder })
    }

    pub(crate) fn init(&self) -> Identity {
        self.init
    }

    pub(crate) fn location(&self) -> Location {
        Location::Node(self.init)
    }

    pub(crate) fn record(&self, addresses: Addresses) -> NodeRecord {
        NodeRecord {
            name: self.name(),
            address: addresses.node(self.number),
            init: self.init,
        }
    }

    fn name(&self) -> String {
        format!("node-{}", self.number)
    }

    /// Starts the container runtime, with the pod network of this node.
    pub(crate) fn start_runtime(
        &self,
        plane: &ControlPlane,
        addresses: Addresses,
        registry: &str,
    ) -> Result<()> {
        let file = |below: &str, text: &str| plane.home.write(&format!("{}/{below}", self.name()), text);
        file("cni/10-pods.conflist", &pod_network(addresses, self.number))?;
        file(
            &format!("registries/{registry}/hosts.toml"),
            &registry::hosts_file(registry),
        )?;
        let config = file("containerd.toml", &containerd_config(&self.folder))?;
        let programs = format!("{}:{}", path(&plane.home.path("bin")), SYSTEM_PATH);
        plane.run(
            &parts::CONTAINERD,
            &format!("{}/containerd", self.name()),
            self.location(),
            vec!["--config".into(), path(&config)],
            // The shim and runc are found on the `PATH`.
            &[("PATH", &programs)],
        )
    }

    /// Imports the images that every node needs, once the runtime accepts them.
    pub(crate) fn import_base_images(&self, plane: &ControlPlane) -> Result<()> {
        wait::until("containerd", PATIENCE, || {
            plane.check()?;
            Ok(output(&mut ctr(plane, self.init, &["version"])).ok())
        })?;
        for (part, name) in [(&parts::PAUSE, PAUSE_IMAGE), (&parts::COREDNS, dns::IMAGE)] {
            import(plane, self.init, &plane.cache.image(part, name)?)?;
        }
        Ok(())
    }

    /// Starts kubelet and kube-proxy, which make it a node of Kubernetes.
    pub(crate) fn join(
        &self,
        plane: &ControlPlane,
        authority: &Authority,
        addresses: Addresses,
        control_group: &str,
    ) -> Result<()> {
        let name = self.name();
        let address = addresses.node(self.number);
        authority.serve(
            &format!("{name}-kubelet"),
            vec![name.clone(), address.to_string()],
        )?;
        let kubelet = authority.kubeconfig(
            &name,
            User {
                user: &format!("system:node:{name}"),
                group: Some("system:nodes"),
            },
            plane.api_server(),
        )?;
        let proxy = authority.kubeconfig(
            &format!("{name}-proxy"),
            User {
                user: "system:kube-proxy",
                group: None,
            },
            plane.api_server(),
        )?;
        let control_group = format!("{control_group}/{name}");
        make_control_group(&control_group)?;
        let config = self.kubelet_config(plane, addresses.dns(), &control_group)?;
        plane.run(
            &parts::KUBELET,
            &format!("{name}/kubelet"),
            self.location(),
            vec![
                format!("--config={}", path(&config)),
                format!("--kubeconfig={}", path(&kubelet)),
                format!("--root-dir={}", path(&self.folder.join("kubelet"))),
                format!("--hostname-override={name}"),
                format!("--node-ip={address}"),
            ],
            &[],
        )?;
        plane.run(
            &parts::KUBE_PROXY,
            &format!("{name}/kube-proxy"),
            self.location(),
            vec![
                format!("--kubeconfig={}", path(&proxy)),
                format!("--hostname-override={name}"),
                "--proxy-mode=nftables".into(),
                // Answers to connections from elsewhere, such as the host, go back the way they came.
                format!("--cluster-cidr={}", addresses.pods()),
                // These settings belong to the machine, not to the namespace.
                "--conntrack-max-per-core=0".into(),
                "--conntrack-tcp-timeout-established=0".into(),
                "--conntrack-tcp-timeout-close-wait=0".into(),
                "--oom-score-adj=0".into(),
            ],
            &[],
        )
    }

    /// Starts kube-router, which enforces the `NetworkPolicies` for this node's pods. The API server must know the node
    /// already.
    pub(crate) fn enforce_network_policies(
        &self,
        plane: &ControlPlane,
        authority: &Authority,
        addresses: Addresses,
    ) -> Result<()> {
        let name = self.name();
        let kubeconfig = authority.kubeconfig(
            &format!("{name}-router"),
            User {
                user: "kube-router",
                // It reads nodes, pods, namespaces and policies, for which Kubernetes has no role of its own.
                group: Some("system:masters"),
            },
            plane.api_server(),
        )?;
        plane.run(
            &parts::KUBE_ROUTER,
            &format!("{name}/kube-router"),
            self.location(),
            vec![
                format!("--kubeconfig={}", path(&kubeconfig)),
                format!("--hostname-override={name}"),
                "--run-firewall=true".into(),
                // The CNI plugin and kube-proxy do the rest.
                "--run-router=false".into(),
                "--run-service-proxy=false".into(),
                format!("--service-cluster-ip-range={}", addresses.services()),
                "--v=1".into(),
            ],
            // It calls iptables and ipset.
            &[("PATH", SYSTEM_PATH)],
        )
    }

    fn kubelet_config(&self, plane: &ControlPlane, dns: Ipv4Addr, control_group: &str) -> Result<PathBuf> {
        let name = self.name();
        let pki = |file: String| path(&plane.home.path("pki").join(file));
        let resolv_conf = plane
            .home
            .write(&format!("{name}/resolv.conf"), &format!("nameserver {dns}\n"))?;
        let pod_logs = plane.home.path("pod-logs").join(&name);
        fs::create_dir_all(&pod_logs)?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": pki("ca.crt".into())},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": pki(format!("{name}-kubelet.crt")),
            "tlsPrivateKeyFile": pki(format!("{name}-kubelet.key")),
            "clusterDNS": [dns],
            "clusterDomain": "cluster.local",
            "resolvConf": resolv_conf,
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
            "podLogsDir": pod_logs,
            "volumePluginDir": self.folder.join("volume-plugins"),
            "cgroupDriver": "cgroupfs",
            // Two kubelets that share a control group end each other's pods.
            "cgroupRoot": format!("/{control_group}"),
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            // A lower score than the default of 0 needs a capability that root in a container lacks.
            "oomScoreAdj": 0,
            // The host's disk is not this node's to manage.
            "evictionHard": {
                "memory.available": "0%",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
                "imagefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": false,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
        });
        plane
            .home
            .write(&format!("{name}/kubelet.yaml"), &config.to_string())
    }
}

/// Imports an OCI archive into the runtime of a node.
pub(crate) fn import(plane: &ControlPlane, init: Identity, archive: &Path) -> Result<()> {
    output(&mut ctr(plane, init, &["images", "import", &path(archive)])).map(drop)
}

/// containerd's own client, on the node, for the images and containers of Kubernetes.
fn ctr(plane: &ControlPlane, init: Identity, arguments: &[&str]) -> Command {
    let [wrapper, line @ ..] = &Location::Node(init).command_line(&plane.home.path("bin/ctr"))[..] else {
        unreachable!("a command line has a program");
    };
    let mut command = Command::new(wrapper);
    command
        .args(line)
        .args(["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io"])
        .args(arguments);
    command
}

pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// True once the shell that prepared the node has become the pause program.
pub(crate) fn is_prepared(init: Identity) -> bool {
    fs::read_to_string(format!("/proc/{}/comm", init.pid)).is_ok_and(|name| name.trim() == parts::PAUSE.name)
}

fn path(file: &Path) -> String {
    file.display().to_string()
}

/// Pods are linked to their node one by one, and everything between them is routed, as in kind: on a bridge, the answer
/// of a Service's pod to its neighbour would bypass the node's address translation.
fn pod_network(addresses: Addresses, number: usize) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": addresses.pods_of(number).to_string()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
    .to_string()
}

fn containerd_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"version = 3
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"

[plugins."io.containerd.cri.v1.runtime"]
# Without the capability to lower scores every container would fail to start.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{plugins}"]
conf_dir = "{folder}/cni"
use_internal_loopback = true

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "{folder}/registries"
"#,
        plugins = packages::CNI_PLUGINS,
    )
}

/// Where control groups are created: the one hierarchy of version 2, or each of version 1.
fn control_group_roots() -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.into()]);
    }
    let entries = fs::read_dir(root).context("there are no control groups in /sys/fs/cgroup")?;
    let mut roots = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Links lead from `cpu` to `cpu,cpuacct` on some systems.
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").exists() {
            roots.push(entry.path());
        }
    }
    Ok(roots)
}

pub(crate) fn make_control_group(name: &str) -> Result<()> {
    for root in control_group_roots()? {
        let group = root.join(name);
        fs::create_dir_all(&group)
            .with_context(|| format!("could not make the control group {}", group.display()))?;
    }
    Ok(())
}
