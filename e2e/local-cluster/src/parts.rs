//! The parts of a local cluster: pinned Go modules, built into programs in a cache folder.
//!
//! Each constant below is one program. Its version is pinned by the `go.mod` beside this crate, so an upgrade is an
//! edit of that file and nothing else; a program is only built again when its pins or its build flags change. If a
//! mirror has the program with the digest that is pinned here, it is not built.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{digest::hex, forecast::Forecast, home, image, mirror::Mirror, progress};

/// One program: which package of which pinned module it is built from.
#[derive(Debug)]
pub struct Part {
    /// Name of the program in the cache and on the `PATH` of a cluster.
    pub name: &'static str,
    /// The Go package that holds its `main`.
    package: &'static str,
    /// The module whose version is the version of this part; empty for a program of our own.
    module: &'static str,
    /// The files that pin it.
    pins: &'static Pins,
    /// Linker variables that tell the program its own version.
    stamps: &'static [(&'static str, Stamp)],
    /// Go build tags that leave out unused features, which cost build time.
    tags: &'static str,
    /// How long its build takes on two cores in the order of [`ALL`], in seconds, for estimating how long is left.
    seconds: u32,
}

/// A Go module of this crate, under `parts/`: pins, and a `main` of our own if that of the module includes features
/// that we never use.
#[derive(Debug)]
struct Pins {
    go_mod: &'static str,
    go_sum: &'static str,
    main: Option<&'static str>,
}

/// The value of a linker variable.
#[derive(Debug)]
enum Stamp {
    /// The version of the part, as `v1.36.3`.
    Version,
    /// A fixed text.
    Text(&'static str),
    /// The minor version of some pinned module, as `36`.
    MinorOf(&'static str),
}

macro_rules! pins {
    ($folder:literal) => {
        Pins {
            go_mod: include_str!(concat!("../parts/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../parts/", $folder, "/go.sum")),
            main: None,
        }
    };
    ($folder:literal, main) => {
        Pins {
            go_mod: include_str!(concat!("../parts/", $folder, "/go.mod")),
            go_sum: include_str!(concat!("../parts/", $folder, "/go.sum")),
            main: Some(include_str!(concat!("../parts/", $folder, "/main.go"))),
        }
    };
}

static HELM_4_PINS: Pins = pins!("helm4");
static HELM_3_PINS: Pins = pins!("helm3");
static KUBERNETES_PINS: Pins = pins!("kubernetes");
static KUBERNETES_FLOOR_PINS: Pins = pins!("kubernetes-floor");
static KUBEADM_PINS: Pins = pins!("kubeadm");
static CONTAINERD_PINS: Pins = pins!("containerd");
static REGISTRY_PINS: Pins = pins!("registry", main);
static COREDNS_PINS: Pins = pins!("coredns", main);
static KUBE_ROUTER_PINS: Pins = pins!("kube-router");
static ETCDCTL_PINS: Pins = pins!("etcdctl");
static PAUSE_PINS: Pins = Pins {
    go_mod: include_str!("../parts/pause/go.mod"),
    go_sum: "",
    main: Some(include_str!("../parts/pause/main.go")),
};

/// Helm 4, the reference for what we render and install.
pub static HELM: Part = Part {
    name: "helm",
    package: "helm.sh/helm/v4/cmd/helm",
    module: "helm.sh/helm/v4",
    pins: &HELM_4_PINS,
    stamps: &[("helm.sh/helm/v4/internal/version.version", Stamp::Version)],
    tags: "",
    seconds: 143,
};

/// Helm 3, which must be able to read and operate our releases too.
///
/// Unlike Helm 4 it does not find its Kubernetes version in its build information: without the variable it assumes
/// Kubernetes 1.20 and refuses charts.
pub static HELM_3: Part = Part {
    name: "helm3",
    package: "helm.sh/helm/v3/cmd/helm",
    module: "helm.sh/helm/v3",
    pins: &HELM_3_PINS,
    stamps: &[
        ("helm.sh/helm/v3/internal/version.version", Stamp::Version),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", Stamp::Text("1")),
        (
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor",
            Stamp::MinorOf("k8s.io/client-go"),
        ),
        ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", Stamp::Text("1")),
        (
            "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor",
            Stamp::MinorOf("k8s.io/client-go"),
        ),
    ],
    tags: "",
    seconds: 60,
};

/// A program of Kubernetes itself; they share pins, so they are always of one release.
const fn kubernetes(name: &'static str, package: &'static str, seconds: u32) -> Part {
    pinned_kubernetes(name, package, &KUBERNETES_PINS, seconds)
}

const fn pinned_kubernetes(
    name: &'static str,
    package: &'static str,
    pins: &'static Pins,
    seconds: u32,
) -> Part {
    Part {
        name,
        package,
        module: "k8s.io/kubernetes",
        pins,
        stamps: &[
            ("k8s.io/component-base/version.gitVersion", Stamp::Version),
            ("k8s.io/component-base/version.gitMajor", Stamp::Text("1")),
            (
                "k8s.io/component-base/version.gitMinor",
                Stamp::MinorOf("k8s.io/kubernetes"),
            ),
        ],
        tags: "",
        seconds,
    }
}

/// Makes clusters of bare nodes. It has pins of its own, so that other parts are not built again because of it.
pub static KUBEADM: Part = pinned_kubernetes("kubeadm", "k8s.io/kubernetes/cmd/kubeadm", &KUBEADM_PINS, 30);

/// The client.
pub static KUBECTL: Part = kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl", 82);
/// The API server.
pub static KUBE_APISERVER: Part = kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 153);
/// The default controllers.
pub static KUBE_CONTROLLER_MANAGER: Part = kubernetes(
    "kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    59,
);
/// The scheduler.
pub static KUBE_SCHEDULER: Part = kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 5);
/// The node agent.
pub static KUBELET: Part = kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet", 17);
/// Service addresses.
pub static KUBE_PROXY: Part = kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", 9);

/// etcd, in the version that Kubernetes' own `go.mod` requires.
pub static ETCD: Part = Part {
    name: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    module: "go.etcd.io/etcd/server/v3",
    pins: &KUBERNETES_PINS,
    stamps: &[],
    tags: "",
    seconds: 23,
};

/// etcd's client, which is in one image with it. It has pins of its own, so that other parts are not built again
/// because of it.
pub static ETCDCTL: Part = Part {
    name: "etcdctl",
    package: "go.etcd.io/etcd/etcdctl/v3",
    module: "go.etcd.io/etcd/etcdctl/v3",
    pins: &ETCDCTL_PINS,
    stamps: &[],
    tags: "",
    seconds: 15,
};

/// A program of containerd. Its pins are separate: its CRI types clash with those of Kubernetes.
const fn containerd(name: &'static str, package: &'static str, seconds: u32) -> Part {
    Part {
        name,
        package,
        module: "github.com/containerd/containerd/v2",
        pins: &CONTAINERD_PINS,
        stamps: &[(
            "github.com/containerd/containerd/v2/version.Version",
            Stamp::Version,
        )],
        tags: "no_aufs,no_btrfs,no_devmapper,no_zfs",
        seconds,
    }
}

/// The container runtime.
pub static CONTAINERD: Part = containerd(
    "containerd",
    "github.com/containerd/containerd/v2/cmd/containerd",
    53,
);
/// The parent process of containers, found on the `PATH` by this name.
pub static CONTAINERD_SHIM: Part = containerd(
    "containerd-shim-runc-v2",
    "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    1,
);
/// Its client.
pub static CTR: Part = containerd("ctr", "github.com/containerd/containerd/v2/cmd/ctr", 4);

/// The OCI registry.
pub static REGISTRY: Part = Part {
    name: "registry",
    package: ".",
    module: "github.com/distribution/distribution/v3",
    pins: &REGISTRY_PINS,
    stamps: &[(
        "github.com/distribution/distribution/v3/version.version",
        Stamp::Version,
    )],
    tags: "",
    seconds: 80,
};

/// The cluster's DNS.
pub static COREDNS: Part = Part {
    name: "coredns",
    package: ".",
    module: "github.com/coredns/coredns",
    pins: &COREDNS_PINS,
    stamps: &[],
    tags: "",
    seconds: 108,
};

/// The first process of every pod, and of every node's process namespace.
pub static PAUSE: Part = Part {
    name: "pause",
    package: ".",
    module: "",
    pins: &PAUSE_PINS,
    stamps: &[],
    tags: "",
    seconds: 1,
};

/// Enforces `NetworkPolicies`, which neither Kubernetes nor the CNI plugins do.
///
/// Only built when a cluster needs it ([`Options::network_policies`](crate::Options::network_policies)).
pub static KUBE_ROUTER: Part = Part {
    name: "kube-router",
    package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
    module: "github.com/cloudnativelabs/kube-router/v2",
    pins: &KUBE_ROUTER_PINS,
    stamps: &[(
        "github.com/cloudnativelabs/kube-router/v2/pkg/version.Version",
        Stamp::Version,
    )],
    tags: "",
    seconds: 60,
};

/// Parts that only some clusters or tests need; they are built on demand.
pub static ON_REQUEST: [&Part; 4] = [&KUBE_ROUTER, &KUBEADM, &ETCDCTL, &HELM_3];

/// Programs of the lowest version of Kubernetes that the platform supports. They replace those of the same names
/// ([`Options::floor`](crate::Options::floor)).
static FLOOR: [&Part; 2] = [
    &pinned_kubernetes(
        "kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        &KUBERNETES_FLOOR_PINS,
        250,
    ),
    &pinned_kubernetes(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        &KUBERNETES_FLOOR_PINS,
        60,
    ),
];

/// Every part that all clusters need, in the order in which a cold cache is filled: parts that others wait for come
/// first.
pub static ALL: [&Part; 14] = [
    &HELM,
    &KUBECTL,
    &ETCD,
    &KUBE_APISERVER,
    &KUBE_CONTROLLER_MANAGER,
    &KUBE_SCHEDULER,
    &KUBELET,
    &KUBE_PROXY,
    &CONTAINERD,
    &CONTAINERD_SHIM,
    &CTR,
    &REGISTRY,
    &PAUSE,
    &COREDNS,
];

impl Part {
    /// The part of that name.
    pub fn named(name: &str) -> Option<&'static Part> {
        ALL.into_iter().chain(ON_REQUEST).find(|part| part.name == name)
    }

    /// The same program of the lowest version of Kubernetes that the platform supports, if there is one.
    pub(crate) fn at_floor(&'static self) -> &'static Self {
        FLOOR
            .into_iter()
            .find(|part| part.name == self.name)
            .unwrap_or(self)
    }

    /// Its pinned version, as `v1.36.3`.
    pub fn version(&self) -> &'static str {
        if self.module.is_empty() {
            return "v1";
        }
        pinned_version(self.pins.go_mod, self.module).unwrap_or("v0")
    }

    fn linker_flags(&self) -> String {
        let mut flags = "-s -w".to_owned();
        for (variable, stamp) in self.stamps {
            let value = match stamp {
                Stamp::Version => self.version(),
                Stamp::Text(text) => text,
                Stamp::MinorOf(module) => pinned_version(self.pins.go_mod, module)
                    .and_then(|version| version.split('.').nth(1))
                    .unwrap_or("0"),
            };
            flags.push_str(" -X ");
            flags.push_str(variable);
            flags.push('=');
            flags.push_str(value);
        }
        flags
    }

    /// A name with everything that the result depends on: `kubelet-v1.36.3-0c9f3a…`.
    fn key(&self) -> String {
        let mut digest = Sha256::new();
        for ingredient in [
            self.pins.go_mod,
            self.pins.go_sum,
            self.pins.main.unwrap_or_default(),
            self.package,
            &self.linker_flags(),
            self.tags,
        ] {
            digest.update(ingredient);
            digest.update([0]);
        }
        let digest = digest.finalize();
        format!("{}-{}-{}", self.name, self.version(), hex(&digest[..6]))
    }

    /// Its name in a mirror.
    pub fn ready_name(&self) -> String {
        format!("{}-linux-{}", self.key(), image::architecture())
    }
}

/// The version a `go.mod` requires of a module.
fn pinned_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(module))
            .then(|| words.next())
            .flatten()
            .filter(|version| version.starts_with('v'))
    })
}

/// The folder that holds built parts.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    mirror: Option<Mirror>,
}

impl Cache {
    /// The cache of this user: `LOCAL_CLUSTER_CACHE`, otherwise `kco/parts` in the XDG cache folder.
    ///
    /// # Errors
    /// When neither the variable nor a home folder is set.
    pub fn of_user() -> Result<Self> {
        let folder = match std::env::var_os("LOCAL_CLUSTER_CACHE") {
            Some(folder) => PathBuf::from(folder),
            None => home::folder("XDG_CACHE_HOME", ".cache")?.join("kco/parts"),
        };
        Ok(Self {
            folder,
            mirror: Mirror::of_user(),
        })
    }

    /// A cache in that folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            mirror: None,
        }
    }

    /// The program, if it is in the cache.
    pub fn ready(&self, part: &Part) -> Option<PathBuf> {
        Some(self.folder.join(part.key()).join(part.name)).filter(|program| program.is_file())
    }

    /// Path of the program, building it first if it is missing.
    ///
    /// Two processes that need the same part do not build it twice: the second waits for the first. An interrupted
    /// build leaves nothing that could be mistaken for the program.
    ///
    /// # Errors
    /// When Go is missing or its build fails; the message ends with what Go said.
    pub fn path(&self, part: &Part) -> Result<PathBuf> {
        if let Some(program) = self.ready(part) {
            return Ok(program);
        }
        let _lock = self.lock(part)?;
        if self.ready(part).is_none() && !self.fetch(part)? {
            self.build(part)
                .with_context(|| format!("could not build {} {}", part.name, part.version()))?;
        }
        Ok(self.folder.join(part.key()).join(part.name))
    }

    /// Every part that all clusters need, with its path, building missing ones first.
    ///
    /// # Errors
    /// As [`Cache::path`].
    pub fn all(&self) -> Result<Vec<(&'static Part, PathBuf)>> {
        self.several(&ALL, 0)
    }

    /// These parts with their paths. Before each missing one is built, a line says how long is left, including the
    /// following steps, which take `then` seconds on two cores.
    ///
    /// # Errors
    /// As [`Cache::path`].
    pub fn several(&self, parts: &[&'static Part], then: u32) -> Result<Vec<(&'static Part, PathBuf)>> {
        let missing = parts.iter().filter(|part| self.ready(part).is_none());
        let mut forecast = Forecast::of(missing.map(|part| part.seconds), then);
        let mut found = Vec::new();
        for part in parts {
            if self.ready(part).is_none() {
                progress::line(forecast.line());
                found.push((*part, self.path(part)?));
                forecast.note(part.seconds);
            } else {
                found.push((*part, self.path(part)?));
            }
        }
        Ok(found)
    }

    /// The folder of the parts.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// An OCI archive of an image with only this program, built once.
    pub(crate) fn image(&self, part: &Part, reference: &str) -> Result<PathBuf> {
        let program = self.path(part)?;
        let archive = program.with_extension("oci.tar");
        if !archive.is_file() {
            let lock = self.lock(part)?;
            if !archive.is_file() {
                let partial = program.with_extension("oci.partial");
                image::write_archive(&program, reference, &partial)
                    .and_then(|()| Ok(fs::rename(&partial, &archive)?))
                    .with_context(|| format!("could not make the image {reference}"))?;
            }
            drop(lock);
        }
        Ok(archive)
    }

    /// Held while one process builds a part and others wait for it.
    fn lock(&self, part: &Part) -> Result<File> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("could not create the cache folder {}", self.folder.display()))?;
        let file = self.folder.join(format!("{}.lock", part.name));
        let lock = File::create(&file).with_context(|| format!("could not create {}", file.display()))?;
        lock.lock()
            .with_context(|| format!("could not lock {}", file.display()))?;
        Ok(lock)
    }

    /// Takes the program from the mirror, if that has it; the caller holds the part's lock.
    fn fetch(&self, part: &Part) -> Result<bool> {
        let Some(mirror) = &self.mirror else {
            return Ok(false);
        };
        let partial = self.folder.join(format!("{}.partial", part.name));
        remove_if_present(&partial)?;
        fs::create_dir_all(&partial)?;
        let taken = mirror.take(&part.ready_name(), &partial.join(part.name));
        if let Err(error) = taken {
            progress::line(format_args!("{} is built, not fetched: {error:#}", part.name));
            remove_if_present(&partial)?;
            return Ok(false);
        }
        let place = self.folder.join(part.key());
        remove_if_present(&place)?;
        fs::rename(&partial, &place)
            .with_context(|| format!("could not move the program to {}", place.display()))?;
        Ok(true)
    }

    /// Builds in a folder of its own and renames it into place; the caller holds the part's lock.
    fn build(&self, part: &Part) -> Result<()> {
        let started = Instant::now();
        progress::line(format_args!("building {} {}", part.name, part.version()));
        let partial = self.folder.join(format!("{}.partial", part.name));
        remove_if_present(&partial)?;
        fs::create_dir_all(&partial)?;
        if let Err(error) = go_build(part, &partial) {
            remove_if_present(&partial)?;
            return Err(error);
        }
        for name in ["go.mod", "go.sum", "main.go"] {
            remove_file_if_present(&partial.join(name))?;
        }
        let place = self.folder.join(part.key());
        remove_if_present(&place)?;
        fs::rename(&partial, &place)
            .with_context(|| format!("could not move the program to {}", place.display()))?;
        progress::line(format_args!(
            "built {} {} in {} s",
            part.name,
            part.version(),
            started.elapsed().as_secs()
        ));
        Ok(())
    }
}

fn go_build(part: &Part, folder: &Path) -> Result<()> {
    File::create(folder.join("go.mod"))?.write_all(part.pins.go_mod.as_bytes())?;
    File::create(folder.join("go.sum"))?.write_all(part.pins.go_sum.as_bytes())?;
    if let Some(main) = part.pins.main {
        File::create(folder.join("main.go"))?.write_all(main.as_bytes())?;
    }
    let output = Command::new("nice")
        .args(["-n", "10", "go", "build", "-trimpath", "-buildvcs=false"])
        .args(["-tags", part.tags, "-ldflags", &part.linker_flags()])
        // The linker drops debug information anyway (`-w`), so nothing is lost, for an eighth less work.
        .arg("-gcflags=all=-dwarf=false")
        .args(["-o", part.name, part.package])
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        // Compilers live for seconds: collecting garbage takes a quarter of their time, with `GOGC=400` an eighth.
        .env("GOGC", "off")
        .env("GOMEMLIMIT", "2GiB")
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("`nice` (Debian package coreutils) is not on the PATH")
        }
        Err(error) => return Err(error).context("could not start `go build`"),
    };
    // The exit status of `nice` if it cannot find the program.
    ensure!(
        output.status.code() != Some(127),
        "Go is not on the PATH; install Go {} or newer (https://go.dev/dl)",
        required_go(part.pins.go_mod),
    );
    ensure!(
        output.status.success(),
        "go build: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn required_go(go_mod: &str) -> &str {
    go_mod
        .lines()
        .find_map(|line| line.strip_prefix("go "))
        .unwrap_or("1.26")
}

fn remove_if_present(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn remove_file_if_present(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// Copies all parts in the cache into a folder that can be used as a mirror; returns the lines of the list.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_mirror(cache: &Cache, folder: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    let mut lines = Vec::new();
    for part in ALL.into_iter().chain(ON_REQUEST) {
        let Some(program) = cache.ready(part) else {
            continue;
        };
        let name = part.ready_name();
        let (digest, _) = image::digest_of(&program)?;
        fs::copy(&program, folder.join(&name))
            .with_context(|| format!("could not write {name} to {}", folder.display()))?;
        lines.push(format!("{}  {name}", digest.trim_start_matches("sha256:")));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_pinned_version() {
        for part in ALL.into_iter().chain(ON_REQUEST).chain(FLOOR) {
            assert_ne!(part.version(), "v0", "{}", part.name);
        }
    }

    #[test]
    fn the_floor_is_the_release_that_the_chart_names() {
        let chart = include_str!("../../../charts/core-provider/Chart.yaml");
        for part in FLOOR {
            let minor = part.version().split('.').nth(1).unwrap();
            assert!(
                chart.contains(&format!("kubeVersion: \">=1.{minor}.0-0\"")),
                "{}",
                part.version()
            );
        }
    }

    #[test]
    fn stamps_follow_the_pins() {
        let flags = KUBELET.linker_flags();
        let version = KUBELET.version();
        let minor = version.split('.').nth(1).unwrap();
        assert!(
            flags.contains(&format!("version.gitVersion={version}")),
            "{flags}"
        );
        assert!(flags.contains(&format!("version.gitMinor={minor}")), "{flags}");
    }

    #[test]
    fn a_replacement_is_not_taken_for_a_pin() {
        let go_mod = "replace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\nrequire k8s.io/api v0.36.1\n";
        assert_eq!(pinned_version(go_mod, "k8s.io/api"), Some("v0.36.1"));
    }

    #[test]
    fn etcd_is_the_one_kubernetes_asks_for() {
        assert_eq!(
            pinned_version(KUBERNETES_PINS.go_mod, "go.etcd.io/etcd/server/v3"),
            pinned_version(KUBERNETES_PINS.go_mod, "go.etcd.io/etcd/client/v3"),
        );
        assert_eq!(ETCD.version(), ETCDCTL.version());
    }

    #[test]
    fn a_cold_cache_builds_a_part_once_and_leaves_only_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let program = cache.path(&PAUSE).unwrap();
        let built = fs::metadata(&program).unwrap().modified().unwrap();
        assert_eq!(cache.path(&PAUSE).unwrap(), program);
        assert_eq!(fs::metadata(&program).unwrap().modified().unwrap(), built);
        let beside: Vec<_> = fs::read_dir(program.parent().unwrap()).unwrap().collect();
        assert_eq!(beside.len(), 1, "{beside:?}");
    }
}
