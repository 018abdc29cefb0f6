//! Provisioned machines: with a container runtime, kubeadm and the kubelet, images, and the bootstrapper's metadata.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use local_cluster::image::System;
use local_cluster::parts::{self, Cache, Part};
use local_cluster::state::StateFolder;
use local_cluster::{Machines, output, packages, wait};
use serde_json::{Value, json};

use crate::image;

/// The parts that run on a machine.
const PROGRAMS: [&Part; 7] = [
    &parts::KUBEADM,
    &parts::KUBELET,
    &parts::KUBECTL,
    &parts::CONTAINERD,
    &parts::CONTAINERD_SHIM,
    &parts::CTR,
    &parts::ETCDCTL,
];

/// The programs of static pods. kubeadm expects them under its own image names.
struct Image {
    /// Empty, because kubeadm does not ask for it.
    name: &'static str,
    parts: &'static [&'static Part],
    tools: &'static [&'static str],
    /// Workers need it, too.
    is_everywhere: bool,
}

const IMAGES: [Image; 8] = [
    Image {
        name: "kube-apiserver",
        parts: &[&parts::KUBE_APISERVER],
        tools: &[],
        is_everywhere: false,
    },
    Image {
        name: "kube-controller-manager",
        parts: &[&parts::KUBE_CONTROLLER_MANAGER],
        tools: &[],
        is_everywhere: false,
    },
    Image {
        name: "kube-scheduler",
        parts: &[&parts::KUBE_SCHEDULER],
        tools: &[],
        is_everywhere: false,
    },
    Image {
        name: "etcd",
        parts: &[&parts::ETCD, &parts::ETCDCTL],
        tools: &[],
        is_everywhere: false,
    },
    Image {
        name: "pause",
        parts: &[&parts::PAUSE],
        tools: &[],
        is_everywhere: true,
    },
    Image {
        name: "coredns/coredns",
        parts: &[&parts::COREDNS],
        tools: &[],
        is_everywhere: true,
    },
    Image {
        name: "kube-proxy",
        parts: &[&parts::KUBE_PROXY],
        // It writes its rules with nft.
        tools: &["nft"],
        is_everywhere: true,
    },
    Image {
        name: "",
        parts: &[&parts::KUBE_ROUTER],
        tools: &ROUTER_TOOLS,
        is_everywhere: true,
    },
];

/// Programs that kube-router calls, and that its container calls at the start.
const ROUTER_TOOLS: [&str; 11] = [
    "sh",
    "cp",
    "mv",
    "ip",
    "ipset",
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// The init secret, whose hash is in the metadata.
const INIT_SECRET: &str = "a secret of the trial";

/// How long a program that exits by itself may take. The slowest is the bootstrapper of a control plane.
const PATIENCE: Duration = Duration::from_mins(5);

/// The role of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Runs an API server and a member of etcd.
    ControlPlane,
    /// Runs pods.
    Worker,
}

impl Role {
    /// As the metadata has it.
    fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "controlPlane",
            Self::Worker => "worker",
        }
    }
}

/// The machines, and the endorser whose platforms they trust.
pub struct Rig {
    /// The machines.
    pub machines: Machines,
    /// The endorser's public key.
    pub endorser: String,
    /// Certificates of kubelets are valid for minutes, so that one is renewed soon.
    are_short_lived: bool,
    /// Archives of images, and whether workers need them.
    images: Vec<(PathBuf, bool)>,
}

impl Rig {
    /// Creates the machines' switch and registry, and everything that machines need. None is switched on.
    ///
    /// # Errors
    /// When a package is missing, or a part cannot be built.
    pub fn start(name: Option<&str>, are_short_lived: bool) -> Result<Self> {
        packages::require(&packages::NETWORK_POLICIES)?;
        let cache = Cache::of_user()?;
        let machines = Machines::start(name, StateFolder::of_user()?)?;
        for part in PROGRAMS {
            machines.provide(part.name, &cache.path(part)?)?;
        }
        for program in ["bootstrapper", "kco"] {
            machines.provide(program, &image::binary(program)?)?;
        }
        let folder = machines.folder();
        let mut endorser = Command::new(image::binary("bootstrapper")?);
        endorser.arg("endorser").arg(folder.join("endorser.key"));
        let endorser = output(&mut endorser)?.trim().to_owned();
        fs::write(folder.join("secret"), INIT_SECRET)?;
        fs::write(folder.join("kubelet.sh"), include_str!("kubelet.sh"))?;
        fs::write(folder.join("kubeadm.json"), proxy_settings().to_string())?;
        // Nobody answers there: names that the cluster's DNS does not know are unknown.
        let nameserver = format!("nameserver {}\n", machines.switch_address());
        fs::write(folder.join("resolv.conf"), nameserver)?;
        let images = write_images(&cache, folder)?;
        Ok(Self {
            machines,
            endorser,
            are_short_lived,
            images,
        })
    }

    /// A file of the trial.
    pub fn file(&self, name: &str) -> PathBuf {
        self.machines.folder().join(name)
    }

    /// A file on the disk of a machine, where `/etc` is `etc` and `/var/lib` is `lib`.
    pub fn on_disk(&self, number: usize, below: &str) -> PathBuf {
        self.file(&format!("node-{number}/disk")).join(below)
    }

    /// Switches a new machine on, with a container runtime, the images of its role, and an attestation key. Returns the
    /// fingerprint of the key.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub fn switch_on_bare(&mut self, number: usize, role: Role) -> Result<String> {
        self.switch_on(number)?;
        for (archive, is_everywhere) in &self.images {
            if *is_everywhere || role == Role::ControlPlane {
                let import = [
                    "ctr",
                    "--namespace",
                    "k8s.io",
                    "images",
                    "import",
                    &archive.to_string_lossy(),
                ];
                self.machines.output(number, &import)?;
            }
        }
        let key = self.file("endorser.key");
        let make = [
            "bootstrapper",
            "attestation-key",
            "--endorser",
            &key.to_string_lossy(),
        ];
        let fingerprint = self.machines.output(number, &make)?;
        Ok(fingerprint.trim().to_owned())
    }

    /// Switches a machine on, and starts only its container runtime.
    ///
    /// # Errors
    /// When the runtime does not come up.
    pub fn switch_on(&mut self, number: usize) -> Result<()> {
        self.machines.switch_on(number)?;
        let config = self.write_files(number)?;
        let mut containerd = self.machines.command(number, "containerd")?;
        containerd.arg("--config").arg(config);
        self.run(number, "containerd", containerd)?;
        wait::until("containerd", Duration::from_secs(30), || {
            let version = ["ctr", "--namespace", "k8s.io", "version"];
            Ok(self.machines.output(number, &version).ok())
        })?;
        Ok(())
    }

    /// Writes the configuration of the machine's programs, except the bootstrapper's. Returns the one of its container
    /// runtime.
    fn write_files(&self, number: usize) -> Result<PathBuf> {
        let folder = self.file(&format!("node-{number}"));
        let registries = folder.join("registries");
        let of_registry = registries.join(self.machines.registry());
        fs::create_dir_all(&of_registry)?;
        fs::write(of_registry.join("hosts.toml"), self.machines.registry_hosts())?;
        let pause = fs::read_to_string(self.file("pause"))?;
        let config = CONTAINERD
            .replace("FOLDER", &folder.to_string_lossy())
            .replace("PAUSE", &pause);
        let path = folder.join("containerd.toml");
        fs::write(&path, config)?;
        let patches = folder.join("patches");
        fs::create_dir_all(&patches)?;
        let kubelet = kubelet(&self.machines.control_group(number), &self.file("resolv.conf"));
        fs::write(
            patches.join("kubeletconfiguration+merge.json"),
            kubelet.to_string(),
        )?;
        // Nothing here needs to survive a power cut of the real machine.
        fs::write(patches.join("etcd+json.json"), flag("--unsafe-no-fsync"))?;
        if self.are_short_lived {
            let short = flag("--cluster-signing-duration=3m");
            fs::write(patches.join("kube-controller-manager+json.json"), short)?;
        }
        Ok(path)
    }

    fn run(&self, number: usize, program: &str, mut command: Command) -> Result<Child> {
        let log = self.machines.log(number, program)?;
        let log = File::options().create(true).append(true).open(log)?;
        command.stdin(std::process::Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        command
            .spawn()
            .with_context(|| format!("could not start {program}"))
    }

    /// Starts the bootstrapper of a machine, as its unit does when the machine starts.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn bootstrap(&self, number: usize, role: Role, members: &[usize]) -> Result<Bootstrapping> {
        let addresses = members.iter().map(|member| self.machines.address(*member));
        let metadata = json!({
            "name": format!("node-{number}"),
            "role": role.name(),
            "address": self.machines.address(number),
            "controlPlanes": addresses.collect::<Vec<_>>(),
            "initSecretHash": bcrypt::hash(INIT_SECRET, 6)?,
        });
        let path = self.file(&format!("node-{number}/metadata.json"));
        fs::write(&path, metadata.to_string())?;
        let kubelet_log = self.machines.log(number, "kubelet")?;
        let mut command = self.bootstrapper(number, "run")?;
        command
            .arg("--kubeadm")
            .arg(self.file("bin/kubeadm"))
            .arg("--start-kubelet")
            .arg(format!("sh {}", self.file("kubelet.sh").display()))
            .arg("--kubeadm-patches")
            .arg(self.file(&format!("node-{number}/patches")))
            .arg("--kubeadm-documents")
            .arg(self.file("kubeadm.json"))
            // The real machine has control groups of version 1.
            .args(["--ignore-preflight-check", "SystemVerification"])
            .args(["--join-interval", "2"])
            .env("KUBELET_LOG", kubelet_log);
        Ok(Bootstrapping {
            what: format!("the bootstrapper of node-{number}"),
            log: self.machines.log(number, "bootstrapper")?,
            process: self.run(number, "bootstrapper", command)?,
        })
    }

    /// Asks the cluster for the key of the machine's state disk.
    ///
    /// # Errors
    /// When it is not given, or does not fit.
    pub fn unlock(&self, number: usize) -> Result<()> {
        output(&mut self.bootstrapper(number, "unlock")?).map(drop)
    }

    fn bootstrapper(&self, number: usize, verb: &str) -> Result<Command> {
        let mut command = self.machines.command(number, "bootstrapper")?;
        command
            .arg(verb)
            .args(["--attestation", "soft-tpm", "--endorser", &self.endorser])
            .arg("--metadata")
            .arg(self.file(&format!("node-{number}/metadata.json")));
        Ok(command)
    }
}

/// A running bootstrapper. It ends with the machine at the latest.
pub struct Bootstrapping {
    what: String,
    log: PathBuf,
    process: Child,
}

impl Bootstrapping {
    /// Waits until it has exited successfully.
    ///
    /// # Errors
    /// When it did not; the message has its last line.
    pub fn done(mut self) -> Result<()> {
        let status = wait::until(&self.what, PATIENCE, || Ok(self.process.try_wait()?))?;
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        ensure!(status.success(), "{} ended with {status}: {last}", self.what);
        Ok(())
    }
}

/// Writes the archives of images. Those that kubeadm asks for have kubeadm's names.
fn write_images(cache: &Cache, folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let names = image_names(&cache.path(&parts::KUBEADM)?)?;
    let archives = folder.join("images");
    fs::create_dir(&archives)?;
    // iptables loads its matches and targets from there.
    let xtables = format!("/usr/lib/{}-linux-gnu/xtables", std::env::consts::ARCH);
    let extensions = [xtables.as_str()];
    let mut written = Vec::new();
    for image in &IMAGES {
        let first = image.parts[0];
        let is_router = image.name.is_empty();
        let name = if is_router {
            network_image()
        } else {
            let prefix = format!("registry.k8s.io/{}:", image.name);
            let full = names.iter().find(|full| full.starts_with(&prefix));
            full.cloned()
                .with_context(|| format!("kubeadm needs no image {}", image.name))?
        };
        let programs: Result<Vec<_>> = image.parts.iter().map(|part| cache.path(part)).collect();
        let archive = archives.join(first.name).with_extension("tar");
        let programs = programs?;
        let system = System {
            programs: &programs,
            tools: image.tools,
            folders: if is_router { &extensions } else { &[] },
        };
        system.write(&name, &archive)?;
        if first.name == parts::PAUSE.name {
            fs::write(folder.join("pause"), &name)?;
        }
        written.push((archive, image.is_everywhere));
    }
    Ok(written)
}

/// The image of `e2e/charts/network`.
pub fn network_image() -> String {
    format!("localhost/kube-router:{}", parts::KUBE_ROUTER.version())
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
    Ok(output(&mut list)?.lines().map(str::to_owned).collect())
}

/// A patch for kubeadm that adds a flag to a program of the control plane.
fn flag(flag: &str) -> String {
    json!([{"op": "add", "path": "/spec/containers/0/command/-", "value": flag}]).to_string()
}

/// Additional settings of kube-proxy, in kubeadm's format.
fn proxy_settings() -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        // These settings belong to the real machine, not to the namespace.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    })
}

/// Additional settings of kubelets of several machines on one real machine; see `local_cluster`.
fn kubelet(control_group: &str, resolv_conf: &Path) -> Value {
    json!({
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{control_group}"),
        "resolvConf": resolv_conf,
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

[plugins."io.containerd.cri.v1.images".registry]
config_path = "FOLDER/registries"
"#;
