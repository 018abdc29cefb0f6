//! etcd, API server and controllers: the part that every cluster has, and everything there is in the small size.

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    audit::{self, Audit},
    certificates::{self, Authority, Identity},
    parts::{self, Cache, Part},
    process::{Location, Process, Program, Usage, output},
    progress, registry,
    state::{Home, Record, Size, StateFolder},
    wait,
};

/// Options of a start.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its name; if not set, a free name is used.
    pub name: Option<String>,
    /// How many nodes a cluster has: 1 to 4, 0 is 1. A control plane has none.
    pub nodes: usize,
    /// Where it is recorded; if not set, where `local-cluster status` finds it.
    pub state: Option<StateFolder>,
    /// Whether a cluster's nodes enforce `NetworkPolicies`, by kube-router. Needs [`packages::NETWORK_POLICIES`].
    ///
    /// [`packages::NETWORK_POLICIES`]: crate::packages::NETWORK_POLICIES
    pub network_policies: bool,
    /// Whether a cluster has addresses for more than ten thousand Services instead of one thousand. Only one cluster of
    /// this machine can have them.
    pub many_services: bool,
    /// Whether API server and controller manager of a control plane without nodes are of the lowest version of
    /// Kubernetes that the platform supports.
    pub floor: bool,
    /// Additional arguments of the API server, such as `--runtime-config=…`; they come last.
    pub api_server_arguments: Vec<String>,
}

/// A Kubernetes API server with etcd and the default controllers, as processes of this user, on loopback.
///
/// It ends with this value, and at the latest with the process; one that was opened by name stays.
/// Programs under test run as processes of the host, as the service accounts they would have
/// ([`ControlPlane::kubeconfig_for`]).
#[derive(Debug)]
pub struct ControlPlane {
    pub(crate) home: Home,
    pub(crate) cache: Cache,
    state: StateFolder,
    processes: Mutex<Vec<Process>>,
    phases: Vec<(String, Duration)>,
    floor: bool,
}

/// The addresses of a control plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) location: Location,
    pub(crate) address: Ipv4Addr,
    pub(crate) ports: Ports,
    /// The first address of the range is the API server's own Service.
    pub(crate) services: Subnet,
    /// Whether pods are scheduled.
    pub(crate) has_nodes: bool,
}

/// The ports a control plane listens on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) api_server: u16,
    pub(crate) etcd: u16,
    pub(crate) etcd_peers: u16,
}

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) base: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl Subnet {
    /// The address `offset` after the first.
    pub(crate) fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() + offset)
    }
}

impl std::fmt::Display for Subnet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.base, self.prefix)
    }
}

/// The users of the programs, which Kubernetes knows by these names.
const ADMIN: Identity<'_> = Identity {
    user: "local-cluster-admin",
    group: Some("system:masters"),
};
const CONTROLLER_MANAGER: Identity<'_> = Identity {
    user: "system:kube-controller-manager",
    group: None,
};
const SCHEDULER: Identity<'_> = Identity {
    user: "system:kube-scheduler",
    group: None,
};
const API_SERVER_TO_KUBELET: Identity<'_> = Identity {
    user: "local-cluster-api-server",
    group: Some("system:masters"),
};

/// Metrics of the controllers are not read here. Serving them needs one more free port on loopback, and rights that
/// RBAC does not grant yet when the programs start, so they would exit.
const NOT_SERVING: &str = "--secure-port=0";

/// Longer than any successful start takes, on a machine that is busy with builds.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

impl ControlPlane {
    /// Starts one and waits until it can be used: the API server is ready and the default ServiceAccount exists. Needs
    /// no root.
    ///
    /// # Errors
    /// When a part cannot be built or a program does not come up; the message has its last words.
    pub fn start(options: Options) -> Result<Self> {
        let mut this = Self::prepare(&options, Size::ControlPlane)?;
        // The API server does not check this range: without nodes nobody uses it.
        let services = Subnet {
            base: Ipv4Addr::new(198, 19, 252, 0),
            prefix: 22,
        };
        let started = Instant::now();
        let (ports, reserved) = free_ports()?;
        let site = Site {
            location: Location::Host,
            address: Ipv4Addr::LOCALHOST,
            ports,
            services,
            has_nodes: false,
        };
        this.certify(&site)?;
        drop(reserved);
        this.launch(&site, options.api_server_arguments)?;
        this.await_api_server()?;
        this.phase("API server ready", started);
        this.launch_controllers(site.location, site.has_nodes)?;
        this.await_default_service_account()?;
        this.phase("default ServiceAccount", started);
        this.declare_ready()?;
        Ok(this)
    }

    /// An existing one, by name; dropping the value does not end it.
    ///
    /// # Errors
    /// When there is none of that name, or it is not ready.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_in(&StateFolder::of_user()?, name)
    }

    pub(crate) fn open_in(state: &StateFolder, name: &str) -> Result<Self> {
        Ok(Self {
            home: state.open(name)?,
            state: state.clone(),
            cache: Cache::of_user()?,
            processes: Mutex::default(),
            phases: Vec::new(),
            floor: false,
        })
    }

    /// The folder, the name and the programs; nothing runs yet.
    pub(crate) fn prepare(options: &Options, size: Size) -> Result<Self> {
        let cache = Cache::of_user()?;
        let floor = options.floor && matches!(size, Size::ControlPlane);
        let mut programs: Vec<(&Part, PathBuf)> = match size {
            Size::ControlPlane => [
                &parts::KUBECTL,
                &parts::ETCD,
                &parts::KUBE_APISERVER,
                &parts::KUBE_CONTROLLER_MANAGER,
            ]
            .into_iter()
            .map(|part| if floor { part.at_floor() } else { part })
            .map(|part| Ok((part, cache.path(part)?)))
            .collect::<Result<_>>()?,
            Size::Cluster => {
                let helm_3 = cache.ready(&parts::HELM_3).map(|path| (&parts::HELM_3, path));
                cache.all()?.into_iter().chain(helm_3).collect()
            }
        };
        if options.network_policies {
            programs.push((&parts::KUBE_ROUTER, cache.path(&parts::KUBE_ROUTER)?));
        }
        let state = match &options.state {
            Some(state) => state.clone(),
            None => StateFolder::of_user()?,
        };
        let home = state.create(options.name.as_deref(), size)?;
        fs::create_dir(home.path("bin"))?;
        for (part, program) in programs {
            std::os::unix::fs::symlink(program, home.path("bin").join(part.name))?;
        }
        Ok(Self {
            home,
            state,
            cache,
            processes: Mutex::default(),
            phases: Vec::new(),
            floor,
        })
    }

    /// Creates the certificates and kubeconfigs of the control plane.
    pub(crate) fn certify(&mut self, site: &Site) -> Result<Authority> {
        let authority = Authority::create(self.home.path("pki"))?;
        let mut subjects: Vec<String> = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(str::to_owned)
        .into();
        let mut addresses = vec![site.address, Ipv4Addr::LOCALHOST, site.services.address(1)];
        addresses.dedup();
        subjects.extend(addresses.iter().map(Ipv4Addr::to_string));
        authority.serve("api-server", subjects)?;
        authority.identify("api-server-to-kubelet", API_SERVER_TO_KUBELET)?;
        self.home.record.api_server = format!("https://{}:{}", site.address, site.ports.api_server);
        for (name, who) in [
            ("admin", ADMIN),
            ("controller-manager", CONTROLLER_MANAGER),
            ("scheduler", SCHEDULER),
        ] {
            authority.kubeconfig(name, who, self.api_server())?;
        }
        Ok(authority)
    }

    /// The part in the version of this control plane.
    fn chosen(&self, part: &'static Part) -> &'static Part {
        if self.floor { part.at_floor() } else { part }
    }

    /// Starts etcd and the API server, which waits for it.
    pub(crate) fn launch(&self, site: &Site, api_server_arguments: Vec<String>) -> Result<()> {
        self.run(&parts::ETCD, "etcd", site.location, self.etcd(site), &[])?;
        let mut arguments = self.api_server_flags(site)?;
        arguments.extend(api_server_arguments);
        self.run(
            self.chosen(&parts::KUBE_APISERVER),
            "kube-apiserver",
            site.location,
            arguments,
            &[],
        )?;
        Ok(())
    }

    /// Starts the programs that need a ready API server. They wait for one themselves, but not for long: the controller
    /// manager exits if its roles do not exist after ten seconds.
    pub(crate) fn launch_controllers(&self, location: Location, has_nodes: bool) -> Result<()> {
        self.run(
            self.chosen(&parts::KUBE_CONTROLLER_MANAGER),
            "kube-controller-manager",
            location,
            self.controller_manager(has_nodes),
            &[],
        )?;
        if has_nodes {
            self.run(
                &parts::KUBE_SCHEDULER,
                "kube-scheduler",
                location,
                vec![
                    self.flag("kubeconfig", "pki/scheduler.kubeconfig"),
                    "--leader-elect=false".into(),
                    NOT_SERVING.into(),
                ],
                &[],
            )?;
        }
        Ok(())
    }

    fn etcd(&self, site: &Site) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", site.ports.etcd);
        let peers = format!("http://127.0.0.1:{}", site.ports.etcd_peers);
        vec![
            self.flag("data-dir", "etcd"),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--log-level=warn".into(),
            // The default is 2 GiB, which hundreds of large objects fill before their old versions are compacted.
            format!("--quota-backend-bytes={}", 8_u64 << 30),
            // Nothing here needs to survive a power cut.
            "--unsafe-no-fsync".into(),
        ]
    }

    fn api_server_flags(&self, site: &Site) -> Result<Vec<String>> {
        self.home.write("audit-policy.yaml", audit::POLICY)?;
        let mut flags = vec![
            format!("--bind-address={}", site.address),
            format!("--advertise-address={}", site.address),
            format!("--secure-port={}", site.ports.api_server),
            format!("--etcd-servers=http://127.0.0.1:{}", site.ports.etcd),
            format!("--service-cluster-ip-range={}", site.services),
            self.flag("tls-cert-file", "pki/api-server.crt"),
            self.flag("tls-private-key-file", "pki/api-server.key"),
            self.flag("client-ca-file", "pki/ca.crt"),
            self.flag("service-account-key-file", "pki/tokens.pub"),
            self.flag("service-account-signing-key-file", "pki/tokens.key"),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            self.flag("kubelet-client-certificate", "pki/api-server-to-kubelet.crt"),
            self.flag("kubelet-client-key", "pki/api-server-to-kubelet.key"),
            self.flag("kubelet-certificate-authority", "pki/ca.crt"),
            "--kubelet-preferred-address-types=InternalIP".into(),
            self.flag("audit-policy-file", "audit-policy.yaml"),
            self.flag("audit-log-path", "audit.log"),
            // Megabytes after which the log is rotated: never, because readers keep positions in it.
            "--audit-log-maxsize=1000000".into(),
        ];
        if !site.has_nodes {
            // Loopback is not a valid address for the Endpoints of a Service; without nodes nobody uses them.
            flags.push("--endpoint-reconciler-type=none".into());
        }
        Ok(flags)
    }

    fn controller_manager(&self, has_nodes: bool) -> Vec<String> {
        let mut flags = vec![
            self.flag("kubeconfig", "pki/controller-manager.kubeconfig"),
            self.flag("root-ca-file", "pki/ca.crt"),
            self.flag("service-account-private-key-file", "pki/tokens.key"),
            self.flag("cluster-signing-cert-file", "pki/ca.crt"),
            self.flag("cluster-signing-key-file", "pki/ca.key"),
            "--use-service-account-credentials=true".into(),
            "--leader-elect=false".into(),
            // Each node has its range from the start.
            "--allocate-node-cidrs=false".into(),
            // The defaults (20, 30) are meant for shared clusters.
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
            NOT_SERVING.into(),
        ];
        if !has_nodes {
            // This controller type-checks policies, requests all schemas of the API server for that, and used more
            // processor time than the API server itself. Clusters with nodes run it.
            flags.push("--controllers=*,-validatingadmissionpolicy-status-controller".into());
        }
        flags
    }

    fn flag(&self, name: &str, file: &str) -> String {
        format!("--{name}={}", self.home.path(file).display())
    }

    /// Starts a part under a name and keeps it.
    pub(crate) fn run(
        &self,
        part: &Part,
        name: &str,
        location: Location,
        arguments: Vec<String>,
        environment: &[(&str, &str)],
    ) -> Result<()> {
        let program = Program {
            name: name.into(),
            path: self.cache.path(part)?,
            arguments,
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            location,
        };
        let process = Process::start(&self.home.folder, program)?;
        self.keep(process);
        Ok(())
    }

    /// Starts a program of the caller along with the cluster. Its output goes to the cluster's logs, it can be killed
    /// and started again by its name, and it ends with the cluster at the latest.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_program(
        &self,
        name: &str,
        path: &Path,
        arguments: Vec<String>,
        environment: &[(&str, &str)],
    ) -> Result<()> {
        let program = Program {
            name: name.into(),
            path: path.to_owned(),
            arguments,
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            location: Location::Host,
        };
        self.keep(Process::start(&self.home.folder, program)?);
        Ok(())
    }

    /// Starts a registry on a port of loopback, as a program of that name, and waits until it listens; returns its
    /// address.
    ///
    /// # Errors
    /// When it cannot be built or does not come up.
    pub fn start_registry(&self, name: &str, settings: &registry::Settings) -> Result<SocketAddr> {
        self.start_registry_at(Ipv4Addr::LOCALHOST, name, settings)
    }

    /// The same on an address of this host.
    ///
    /// # Errors
    /// As [`ControlPlane::start_registry`].
    pub fn start_registry_at(
        &self,
        host: Ipv4Addr,
        name: &str,
        settings: &registry::Settings,
    ) -> Result<SocketAddr> {
        let reserved = TcpListener::bind((host, 0)).context("no port is free")?;
        let address = reserved.local_addr()?;
        let storage = self.home.path(&format!("{name}.storage"));
        let config = registry::config_with(address, &storage, settings);
        let config = self.home.write(&format!("{name}.yaml"), &config)?;
        drop(reserved);
        let arguments = vec!["serve".into(), config.display().to_string()];
        self.run(
            &parts::REGISTRY,
            name,
            Location::Host,
            arguments,
            &registry::ENVIRONMENT,
        )?;
        wait::until(&format!("registry {name}"), PATIENCE, || {
            self.component(name, Process::check)?;
            Ok(TcpStream::connect(address).ok().map(drop))
        })?;
        Ok(address)
    }

    pub(crate) fn keep(&self, process: Process) {
        self.processes().push(process);
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if one of the programs has exited.
    pub(crate) fn check(&self) -> Result<()> {
        self.processes().iter_mut().try_for_each(Process::check)
    }

    pub(crate) fn await_api_server(&self) -> Result<()> {
        let address = self.api_server().trim_start_matches("https://");
        wait::until("the API server", PATIENCE, || {
            self.check()?;
            // kubectl takes longer to start than a refused connection.
            if TcpStream::connect(address).is_err() {
                return Ok(None);
            }
            Ok(output(&mut self.kubectl(["get", "--raw=/readyz"])).ok())
        })?;
        Ok(())
    }

    pub(crate) fn await_default_service_account(&self) -> Result<()> {
        wait::until("the default ServiceAccount", PATIENCE, || {
            self.check()?;
            let mut ask = self.kubectl(["get", "serviceaccount", "default", "--namespace=default"]);
            Ok(output(&mut ask).ok())
        })?;
        Ok(())
    }

    pub(crate) fn phase(&mut self, name: &str, since: Instant) {
        self.phases.push((name.into(), since.elapsed()));
    }

    pub(crate) fn declare_ready(&mut self) -> Result<()> {
        self.home.record.ready = true;
        self.home.save()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.home.record.name
    }

    /// Its record.
    pub fn record(&self) -> &Record {
        &self.home.record
    }

    /// Address of the API server, as `https://127.0.0.1:40123`.
    pub fn api_server(&self) -> &str {
        &self.home.record.api_server
    }

    /// Its folder: logs, certificates and data, removed when it ends.
    pub fn folder(&self) -> &Path {
        &self.home.folder
    }

    /// The admin's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path("pki/admin.kubeconfig")
    }

    /// A kubeconfig for an existing ServiceAccount, with a token for a day by TokenRequest: its holder has exactly the
    /// rights that RBAC grants that account.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn kubeconfig_for(&self, namespace: &str, service_account: &str) -> Result<PathBuf> {
        let token = output(&mut self.kubectl([
            "create",
            "token",
            service_account,
            "--namespace",
            namespace,
            "--duration=24h",
        ]))?;
        let authority = fs::read_to_string(self.home.path("pki/ca.crt"))?;
        let text = certificates::kubeconfig(self.api_server(), &authority, &json!({"token": token.trim()}));
        let folder = self.home.path("service-accounts");
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{namespace}.{service_account}.kubeconfig"));
        certificates::write_private(&file, &text)?;
        Ok(file)
    }

    /// `kubectl` of the same release, as admin.
    pub fn kubectl<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(self.home.path("bin/kubectl"));
        command
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.home.path("kubectl-cache"))
            // It ends before a second thread would help.
            .env("GOMAXPROCS", "1");
        command
    }

    /// Applies manifests as admin, with server-side apply.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        let mut apply = self.kubectl(["apply", "--server-side", "--filename=-"]);
        crate::process::feed(&mut apply, manifests).map(drop)
    }

    /// Helm 4, as admin, with folders of its own.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn helm<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Command> {
        self.helm_of(&parts::HELM, arguments)
    }

    /// Helm 3, in the same way.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn helm3<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Command> {
        self.helm_of(&parts::HELM_3, arguments)
    }

    fn helm_of<A: AsRef<OsStr>>(
        &self,
        part: &Part,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Command> {
        let mut command = Command::new(self.cache.path(part)?);
        let folder = self.home.path(part.name);
        command
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HELM_CACHE_HOME", folder.join("cache"))
            .env("HELM_CONFIG_HOME", folder.join("config"))
            .env("HELM_DATA_HOME", folder.join("data"));
        Ok(command)
    }

    /// The environment for a person or program that works with the cluster: `KUBECONFIG`, and the parts first on the
    /// `PATH`.
    pub fn environment(&self, command: &mut Command) -> Result<()> {
        let mut folders = vec![self.home.path("bin")];
        let path = std::env::var_os("PATH").unwrap_or_default();
        folders.extend(std::env::split_paths(&path));
        command
            .env("PATH", std::env::join_paths(folders)?)
            .env("KUBECONFIG", self.kubeconfig());
        Ok(())
    }

    /// The audit log.
    pub fn audit(&self) -> Audit {
        Audit::of(&self.home.path("audit.log"))
    }

    /// The version of each part that runs or is available, by name.
    pub fn versions(&self) -> Vec<(&'static str, String)> {
        let used = |part: &Part| self.home.path("bin").join(part.name).exists();
        parts::ALL
            .into_iter()
            .chain(parts::ON_REQUEST)
            .filter(|part| used(part))
            .map(|part| self.chosen(part))
            .map(|part| (part.name, part.version().to_owned()))
            .collect()
    }

    /// How long after the beginning of the start each phase was reached; empty for one that was opened.
    pub fn timings(&self) -> &[(String, Duration)] {
        &self.phases
    }

    /// Kills a program as a power cut would: `etcd`, `kube-apiserver`, `node-1/kubelet`, ….
    ///
    /// # Errors
    /// When this process did not start a program of that name.
    pub fn kill_component(&self, name: &str) -> Result<()> {
        self.component(name, Process::kill)
    }

    /// Starts a program that was killed, or another instance of one, with the same arguments.
    ///
    /// # Errors
    /// As [`ControlPlane::kill_component`].
    pub fn restart_component(&self, name: &str) -> Result<()> {
        self.component(name, |process| process.restart(&self.home.folder))
    }

    /// Memory, threads and files of a program.
    ///
    /// # Errors
    /// As [`ControlPlane::kill_component`], and when it has ended; the message has the end of what it said.
    pub fn usage(&self, name: &str) -> Result<Usage> {
        self.component(name, Process::usage)
    }

    fn component<T>(&self, name: &str, act: impl FnOnce(&mut Process) -> Result<T>) -> Result<T> {
        let mut processes = self.processes();
        let names: Vec<&str> = processes.iter().map(Process::name).collect();
        // The process that was killed is still listed after it was started again.
        let place = names.iter().rposition(|each| *each == name);
        let place = place.with_context(|| format!("no program is called {name}; there are {names:?}"))?;
        act(&mut processes[place])
    }

    /// Copies the logs of programs and pods, the audit log and the state of all objects into a folder.
    ///
    /// # Errors
    /// When the folder cannot be written; what cannot be had of a broken cluster is left out.
    pub fn collect_logs(&self, destination: &Path) -> Result<()> {
        fs::create_dir_all(destination)
            .with_context(|| format!("could not create {}", destination.display()))?;
        let wanted = [
            ("logs", "components"),
            ("pod-logs", "pods"),
            ("audit.log", "audit.log"),
        ];
        for (from, to) in wanted {
            let from = self.home.path(from);
            if from.exists() {
                output(
                    Command::new("cp")
                        .args(["--recursive", "--no-target-directory"])
                        .args([&from, &destination.join(to)]),
                )?;
            }
        }
        for (file, arguments) in [
            (
                "events.txt",
                ["get", "events", "-A", "--sort-by=.lastTimestamp"].as_slice(),
            ),
            ("pods.txt", &["describe", "pods", "-A"]),
            ("objects.yaml", &["get", "all", "-A", "-o=yaml"]),
        ] {
            let mut ask = self.kubectl(arguments);
            let answer = output(ask.arg("--request-timeout=5s"));
            let text = answer.unwrap_or_else(|error| format!("{error:#}\n"));
            fs::write(destination.join(file), text)?;
        }
        Ok(())
    }

    /// Lets it outlive this process, until `local-cluster down`.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn detach(mut self) -> Result<()> {
        self.home.disown()
    }
}

impl ControlPlane {
    fn keep_logs(&self) -> Result<PathBuf> {
        let folder = self.state.kept_logs(self.name())?;
        self.collect_logs(&folder)?;
        Ok(folder)
    }
}

impl Drop for ControlPlane {
    /// Ends and removes it. After a failure, of its start or of the test that used it, its logs are kept and their path
    /// is printed.
    fn drop(&mut self) {
        if !self.home.is_owned() {
            return;
        }
        if thread::panicking() || !self.home.record.ready {
            match self.keep_logs() {
                Ok(folder) => progress::line(format_args!("logs are kept in {}", folder.display())),
                Err(error) => progress::line(format_args!("logs could not be kept: {error:#}")),
            }
        }
        self.home.remove();
        self.processes().iter_mut().for_each(Process::reap);
    }
}

/// Three ports of loopback, each held by its listener until it is needed.
fn free_ports() -> Result<(Ports, [TcpListener; 3])> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free");
    let listeners = [listen()?, listen()?, listen()?];
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let ports = Ports {
        api_server: port(&listeners[0])?,
        etcd: port(&listeners[1])?,
        etcd_peers: port(&listeners[2])?,
    };
    ensure!(ports.api_server != 0, "no port is free");
    Ok((ports, listeners))
}
