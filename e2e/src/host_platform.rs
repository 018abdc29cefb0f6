//! The platform on a control plane without nodes: installed by Helm as usual, but its programs run on the host, each
//! with a kubeconfig of its own ServiceAccount. For scenarios that do not need pods.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use local_cluster::registry::Access;
use local_cluster::{ControlPlane, Options};

use crate::platform::{NAMESPACE, RELEASE};
use crate::{Namespace, Site, image, progress};

/// The program that reconciles one generated type.
const CONTROLLER: &str = "composition-dynamic-controller";
const INSPECTOR: &str = "chart-inspector";
const PROVIDER: &str = "core-provider";

/// Several run on one host, so each needs a port of its own.
const NO_METRICS: &str = "--metrics-server-port=0";

/// Set to run control planes of the lowest version of Kubernetes that the platform supports. It has no
/// `MutatingAdmissionPolicy`, so core-provider labels compositions by its webhook.
const FLOOR: &str = "E2E_KUBERNETES_FLOOR";

const NETWORK_POLICIES: [&str; 3] = [
    "networkPolicy.enabled=true",
    "networkPolicy.apiServers[0].ipBlock.cidr=127.0.0.1/32",
    "networkPolicy.metrics[0].podSelector.matchLabels.app=prometheus",
];

/// The programs of the platform on a control plane.
pub struct HostPlatform {
    plane: ControlPlane,
    site: Site,
    inspector: String,
    /// The port on which core-provider answers webhooks.
    webhooks: u16,
    /// The folder with the programs to run, if they are not those beside this one.
    programs: Mutex<Option<PathBuf>>,
}

impl HostPlatform {
    /// The one that all scenarios of this process share; the first caller starts it.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<HostPlatform, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a control plane, installs the platform on it and runs its programs.
    ///
    /// # Errors
    /// When one of them does not come up.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// As [`HostPlatform::start`], with these further environment variables of core-provider.
    ///
    /// # Errors
    /// As [`HostPlatform::start`].
    pub fn start_with(further: &[(&str, &str)]) -> Result<Self> {
        let platform = Self::installed()?;
        platform.run_inspector()?;
        platform.run_provider(further)?;
        Ok(platform)
    }

    /// Starts a control plane and installs the platform on it, without its programs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn installed() -> Result<Self> {
        Self::installed_with(&[])
    }

    /// As [`HostPlatform::installed`], with these values of the chart, `path=value` each.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn installed_with(values: &[&str]) -> Result<Self> {
        let chart = image::root().join("charts/core-provider");
        // Nothing enforces the policies here: this only tests whether the API server accepts them.
        let values: Vec<&str> = NETWORK_POLICIES.iter().chain(values).copied().collect();
        Self::installed_from(&chart, &values)
    }

    /// Starts a control plane and installs a chart on it as the platform.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn installed_from(chart: &Path, values: &[&str]) -> Result<Self> {
        let floor = std::env::var_os(FLOOR).is_some();
        let plane = ControlPlane::start(Options {
            floor,
            ..Options::default()
        })?;
        let site = Site::host(&plane)?;
        progress("installing the platform on a control plane");
        // Do not wait for its pods: there is no node to run them.
        let mut install = site.helm(["install", RELEASE, &chart.to_string_lossy()]);
        install.args(["--namespace", NAMESPACE, "--create-namespace"]);
        for value in values {
            install.args(["--set", value]);
        }
        site.run(install)?;
        Ok(Self {
            inspector: format!("127.0.0.1:{}", free_port()?),
            webhooks: free_port()?,
            plane,
            site,
            programs: Mutex::default(),
        })
    }

    /// Runs core-provider, if only the platform was installed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_provider(&self, further: &[(&str, &str)]) -> Result<()> {
        let environment = self.provider_environment();
        let own = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let environment: Vec<_> = own.chain(further.iter().copied()).collect();
        self.run(PROVIDER, NAMESPACE, RELEASE, &[NO_METRICS], &environment)
    }

    /// Runs another core-provider, which answers webhooks on `port` of loopback and waits for a lease that it never
    /// gets. API servers still call the first one. Returns the name of the program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_webhooks(&self, port: u16) -> Result<String> {
        let namespace = Namespace::of(NAMESPACE, &self.site);
        namespace.apply(&serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "leader-election-core-provider", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 86400},
        }))?;
        let port = port.to_string();
        let kubeconfig = self.plane.kubeconfig_for(NAMESPACE, RELEASE)?;
        let own = self.provider_environment();
        let mut environment: Vec<(&str, &str)> =
            own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.retain(|(name, _)| *name != "CORE_PROVIDER_WEBHOOK_PORT");
        let kubeconfig = kubeconfig.to_string_lossy();
        environment.extend([
            ("CORE_PROVIDER_WEBHOOK_PORT", port.as_str()),
            ("CORE_PROVIDER_LEADER_ELECTION", "true"),
            ("KUBECONFIG", &*kubeconfig),
            ("NO_PROXY", "127.0.0.1"),
        ]);
        let name = format!("core-provider.webhooks-{port}");
        let arguments = vec![NO_METRICS.to_owned()];
        self.plane
            .start_program(&name, &image::binary("core-provider")?, arguments, &environment)?;
        Ok(name)
    }

    /// Waits until the API server's policy labels new compositions of this version, so that no core-provider has to run.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_policy(&self, version: &str) -> Result<()> {
        let home = Namespace::of(NAMESPACE, &self.site);
        home.wait("mutatingwebhookconfigurations", RELEASE, |registration| {
            let listed = &registration["metadata"]["annotations"]["krateo.io/labelled-by-policy"];
            listed
                .as_str()
                .is_some_and(|listed| listed.split(',').any(|listed| listed == version))
        })
        .map(drop)
    }

    /// core-provider, for the caller to run with a kubeconfig in its environment.
    ///
    /// # Errors
    /// When it is not built.
    pub fn provider(&self) -> Result<Command> {
        let mut command = Command::new(image::binary(PROVIDER)?);
        command
            .arg(NO_METRICS)
            .env("NO_PROXY", "127.0.0.1")
            .envs(self.provider_environment());
        Ok(command)
    }

    fn provider_environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("KRATEO_NAMESPACE", NAMESPACE.to_owned()),
            ("CORE_PROVIDER_SERVICE_ACCOUNT", RELEASE.to_owned()),
            ("CORE_PROVIDER_POLL_INTERVAL", "5s".to_owned()),
            ("CORE_PROVIDER_WEBHOOK_PORT", self.webhooks.to_string()),
            ("CORE_PROVIDER_MAX_RECONCILE_RATE", "16".to_owned()),
            (
                "CHART_INSPECTOR_SERVICE_ACCOUNT",
                format!("{RELEASE}-{INSPECTOR}"),
            ),
            ("URL_CHART_INSPECTOR", format!("http://{}/", self.inspector)),
            (
                "CORE_PROVIDER_WEBHOOK_URL",
                format!("https://127.0.0.1:{}", self.webhooks),
            ),
        ]
    }

    /// Upgrades the platform's release to these values of the chart. It does not restart running programs.
    ///
    /// # Errors
    /// When Helm fails.
    pub fn upgrade_to(&self, values: &[&str]) -> Result<()> {
        let chart = image::root().join("charts/core-provider");
        let mut upgrade = self.site.helm(["upgrade", RELEASE, &chart.to_string_lossy()]);
        upgrade.args(["--namespace", NAMESPACE]);
        for value in values {
            upgrade.args(["--set", value]);
        }
        self.site.run(upgrade).map(drop)
    }

    /// chart-inspector, for the caller to run with a kubeconfig in its environment.
    ///
    /// # Errors
    /// When it is not built.
    pub fn inspector(&self) -> Result<Command> {
        let mut command = Command::new(image::binary(INSPECTOR)?);
        command
            .env("NO_PROXY", "127.0.0.1")
            .envs(self.inspector_environment());
        Ok(command)
    }

    fn inspector_environment(&self) -> [(&'static str, &str); 2] {
        let port = self.inspector.rsplit(':').next().unwrap_or_default();
        [("KRATEO_NAMESPACE", NAMESPACE), ("PLUGIN_PORT", port)]
    }

    /// Runs chart-inspector, if only the platform was installed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_inspector(&self) -> Result<()> {
        self.run_inspector_with(&[])
    }

    /// The same, with these further environment variables.
    ///
    /// # Errors
    /// As [`HostPlatform::run_inspector`].
    pub fn run_inspector_with(&self, further: &[(&str, &str)]) -> Result<()> {
        let own = self.inspector_environment().into_iter();
        let environment: Vec<_> = own.chain(further.iter().copied()).collect();
        let account = format!("{RELEASE}-{INSPECTOR}");
        self.run(INSPECTOR, NAMESPACE, &account, &[], &environment)
    }

    /// Runs the controller of a generated type, which its Deployment would run if there were a node.
    ///
    /// # Errors
    /// When its ServiceAccount is not there, or it cannot be started.
    pub fn run_controller(&self, resource: &str, version: &str) -> Result<()> {
        self.run_controller_with(resource, version, &[])
    }

    /// The same, with these further environment variables.
    ///
    /// # Errors
    /// As [`HostPlatform::run_controller`].
    pub fn run_controller_with(&self, resource: &str, version: &str, further: &[(&str, &str)]) -> Result<()> {
        self.run_controller_in(NAMESPACE, resource, version, further)
    }

    /// The same in another namespace than the platform's: the definition's, if core-provider places controllers there.
    ///
    /// # Errors
    /// As [`HostPlatform::run_controller`].
    pub fn run_controller_in(
        &self,
        namespace: &str,
        resource: &str,
        version: &str,
        further: &[(&str, &str)],
    ) -> Result<()> {
        let environment = self.controller_environment(namespace, resource, version)?;
        let own = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let environment: Vec<_> = own.chain(further.iter().copied()).collect();
        let account = format!("{resource}-{version}");
        self.run(CONTROLLER, namespace, &account, &[], &environment)
    }

    /// That controller, for the caller to run with a kubeconfig in its environment.
    ///
    /// # Errors
    /// When its ServiceAccount is not there, or it is not built.
    pub fn controller(&self, resource: &str, version: &str) -> Result<Command> {
        let mut command = Command::new(image::binary(CONTROLLER)?);
        command
            .env("NO_PROXY", "127.0.0.1")
            .envs(self.controller_environment(NAMESPACE, resource, version)?);
        Ok(command)
    }

    fn controller_environment(
        &self,
        namespace: &str,
        resource: &str,
        version: &str,
    ) -> Result<[(&'static str, String); 9]> {
        let account = format!("{resource}-{version}");
        let token = self.token_file(namespace, &account)?;
        Ok([
            ("COMPOSITION_CONTROLLER_GROUP", "composition.krateo.io".to_owned()),
            ("COMPOSITION_CONTROLLER_VERSION", version.to_owned()),
            ("COMPOSITION_CONTROLLER_RESOURCE", resource.to_owned()),
            ("COMPOSITION_CONTROLLER_SA_NAME", account),
            ("COMPOSITION_CONTROLLER_SA_NAMESPACE", namespace.to_owned()),
            (
                "COMPOSITION_CONTROLLER_RELEASE_KEY_SECRET",
                format!("{NAMESPACE}/{resource}.composition.krateo.io-release-key"),
            ),
            ("KRATEO_NAMESPACE", NAMESPACE.to_owned()),
            ("URL_CHART_INSPECTOR", format!("http://{}/", self.inspector)),
            ("CHART_INSPECTOR_TOKEN_FILE", token.to_string_lossy().into_owned()),
        ])
    }

    /// Kills the controller, as the kubelet does with a deleted pod.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_controller(&self, resource: &str, version: &str) -> Result<()> {
        self.kill_controller_in(NAMESPACE, resource, version)
    }

    /// The same for one that runs in another namespace.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_controller_in(&self, namespace: &str, resource: &str, version: &str) -> Result<()> {
        self.plane.kill_component(&program_name(
            CONTROLLER,
            namespace,
            &format!("{resource}-{version}"),
        ))
    }

    /// What the kubelet would mount into the controller's pod: a token for chart-inspector.
    fn token_file(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.site.run(self.site.kubectl([
            "create",
            "token",
            account,
            "--namespace",
            namespace,
            "--audience=chart-inspector",
            "--duration=1h",
        ]))?;
        let file = self.plane.folder().join(format!("{namespace}.{account}.token"));
        std::fs::write(&file, token)?;
        Ok(file)
    }

    /// Runs a program as a ServiceAccount, with exactly its rights, and without the proxy of this machine.
    fn run(
        &self,
        program: &str,
        namespace: &str,
        account: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<()> {
        let kubeconfig = self.plane.kubeconfig_for(namespace, account)?;
        let kubeconfig = kubeconfig.to_string_lossy();
        let mut environment = environment.to_vec();
        environment.push(("KUBECONFIG", &kubeconfig));
        environment.push(("NO_PROXY", "127.0.0.1"));
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let name = program_name(program, namespace, account);
        self.plane
            .start_program(&name, &self.binary(program)?, arguments, &environment)
    }

    /// Runs the programs in a folder from now on; without one, those beside this one.
    pub fn use_programs(&self, folder: Option<&Path>) {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        *programs = folder.map(Path::to_owned);
    }

    fn binary(&self, program: &str) -> Result<PathBuf> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        match &*programs {
            Some(folder) => Ok(folder.join(program)),
            None => image::binary(program),
        }
    }

    /// The name of a type's controller among the programs of the control plane.
    pub fn controller_name(resource: &str, version: &str) -> String {
        program_name(CONTROLLER, NAMESPACE, &format!("{resource}-{version}"))
    }

    /// The same for chart-inspector.
    pub fn inspector_name() -> String {
        program_name(INSPECTOR, NAMESPACE, &format!("{RELEASE}-{INSPECTOR}"))
    }

    /// The same for core-provider.
    pub fn provider_name() -> String {
        program_name(PROVIDER, NAMESPACE, RELEASE)
    }

    /// The URL of chart-inspector, with a slash at its end.
    pub fn inspector_url(&self) -> String {
        format!("http://{}/", self.inspector)
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The tools.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// A namespace of its own.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::make(name, &self.site)
    }
}

fn program_name(program: &str, namespace: &str, account: &str) -> String {
    format!("{program}.{namespace}.{account}")
}

/// A port that is free now.
///
/// # Errors
/// When all are taken.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// A password file for a registry, in `folder`.
///
/// # Errors
/// When it cannot be written.
pub fn password(folder: &Path, username: &str, password: &str) -> Result<Access> {
    let file = folder.join("htpasswd");
    // The lowest cost there is, because this protects nothing.
    let hash = bcrypt::hash(password, 4)?;
    std::fs::write(&file, format!("{username}:{hash}\n"))?;
    Ok(Access::Password(file))
}
