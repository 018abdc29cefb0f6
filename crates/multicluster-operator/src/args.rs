//! Command line and environment. The names are the reference's, except for options that it does not have.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use helm::origin::{ChartSpec, ClientCertSpec, CredentialsSpec, SecretKey, VerifySpec};
use runtime::args::{ChartArgs, ClientArgs, boolean};
use runtime::{GoDuration, PushArgs};

/// The file in which a pod finds its own namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Releases one chart for each Tenant and `KryptonDeployment`, on many clusters.
#[derive(Debug, Clone, Parser)]
#[command(disable_version_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) charts: ChartArgs,
    #[command(flatten)]
    pub(crate) push: PushArgs,
    /// Log at level debug.
    #[arg(long, env = "OPERATOR_DEBUG", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) debug: bool,
    /// Where the chart comes from: the root of a chart repository, `oci://host/path`, or the URL of the chart's archive.
    #[arg(long, env = "CHART_REPO", default_value = "https://charts.jetstack.io")]
    pub(crate) chart_repo: String,
    /// Name of the chart in that repository.
    #[arg(long, env = "CHART_NAME", default_value = "cert-manager")]
    pub(crate) chart_name: String,
    /// Exact version of the chart; ranges are not accepted.
    #[arg(long, env = "CHART_VERSION", default_value = "1.19.1")]
    pub(crate) chart_version: String,
    /// Digest that the chart must have: of its archive, or of its manifest if it is in a registry. If empty, any digest is
    /// accepted.
    #[arg(long, env = "CHART_DIGEST", default_value = "")]
    pub(crate) chart_digest: String,
    /// Connect to the chart's registry without TLS.
    #[arg(long, env = "CHART_PLAIN_HTTP", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) chart_plain_http: bool,
    #[command(flatten)]
    pub(crate) chart_access: ChartAccess,
    /// Create the custom resource definitions in the chart's folder `crds/` on the clusters.
    #[arg(long, env = "CHART_INSTALL_CRDS", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    pub(crate) chart_install_crds: bool,
    /// Leave a Tenant that already has its release `Ready` while the chart cannot be fetched, instead of reporting an error.
    #[arg(long, env = "ALLOW_CHART_SKIP", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) allow_chart_skip: bool,
    /// Namespace of the Secrets with the kubeconfigs of clusters, the only one in which the operator lists Secrets. If not
    /// set, it is the operator's own namespace, or `default` outside a pod.
    #[arg(long, env = "WATCH_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The operator's own namespace, with its Lease and the key of release records. If not set, it is the pod's namespace, or
    /// that of `--namespace` outside a pod.
    #[arg(long, env = "POD_NAMESPACE")]
    pub(crate) own_namespace: Option<String>,
    /// Label that marks the Secrets with kubeconfigs; its value must be `true`.
    #[arg(long, env = "KUBECONFIG_SECRET_LABEL", default_value = api::mesh::KUBECONFIG_LABEL)]
    pub(crate) kubeconfig_label: String,
    /// Key of the kubeconfig in the data of those Secrets.
    #[arg(long, env = "KUBECONFIG_SECRET_KEY", default_value = "kubeconfig")]
    pub(crate) kubeconfig_key: String,
    /// Kubeconfig file of the watch cluster: the cluster with the Secrets and the `KryptonDeployments`.
    #[arg(long, env = "WATCH_KUBECONFIG", value_name = "FILE")]
    pub(crate) watch_kubeconfig: Option<PathBuf>,
    /// Former name of `WATCH_KUBECONFIG`.
    #[arg(long, env = "WATCH_CLUSTER_KUBECONFIG", value_name = "FILE", hide = true)]
    pub(crate) watch_cluster_kubeconfig: Option<PathBuf>,
    /// Context to use in that kubeconfig instead of its current one.
    #[arg(long, env = "WATCH_CONTEXT")]
    pub(crate) watch_context: Option<String>,
    /// Create the custom resource definitions of Tenant and `KryptonDeployment` on the watch cluster at startup.
    #[arg(long, env = "ENSURE_WATCH_CRDS", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) ensure_watch_crds: bool,
    /// Secret with the kubeconfig of the watch cluster. If a file is set as well, the Secret is used.
    #[arg(long, env = "WATCH_KUBECONFIG_SECRET")]
    pub(crate) watch_kubeconfig_secret: Option<String>,
    /// Namespace of that Secret. If not set, it is that of `--namespace`.
    #[arg(long, env = "WATCH_KUBECONFIG_SECRET_NAMESPACE")]
    pub(crate) watch_kubeconfig_secret_namespace: Option<String>,
    /// Key of the kubeconfig in the data of that Secret.
    #[arg(long, env = "WATCH_KUBECONFIG_SECRET_KEY", default_value = "kubeconfig")]
    pub(crate) watch_kubeconfig_secret_key: String,
    /// Namespaces, separated by commas, whose Tenants and `KryptonDeployments` are reconciled. If empty, all are.
    #[arg(long, env = "WATCH_NAMESPACES", default_value = "", value_delimiter = ',')]
    pub(crate) watch_namespaces: Vec<String>,
    /// Namespaces, separated by commas, in which any release may have objects. Without them, a release may have objects in
    /// its own namespace, and where the chart puts objects of the same kind with its default values.
    #[arg(
        long,
        env = "OPERATOR_ALLOWED_NAMESPACES",
        default_value = "",
        value_delimiter = ','
    )]
    pub(crate) allowed_namespaces: Vec<String>,
    /// Which objects are reconciled: Tenants, `KryptonDeployments`, or both.
    #[arg(long, env = "OPERATOR_MODE", value_enum, default_value_t = Mode::Both)]
    pub(crate) mode: Mode,
    /// How often a healthy `KryptonDeployment` is checked: a duration, or a number of seconds.
    #[arg(long, env = "KRYPTON_CHECK_INTERVAL", default_value = "60s", value_parser = interval)]
    pub(crate) check_interval: GoDuration,
    /// How often a release is compared with its cluster even if no watch reported a change. Changes to its Secrets, which
    /// are not watched, are noticed then.
    #[arg(long, env = "OPERATOR_RESYNC_INTERVAL", default_value = "10m")]
    pub(crate) resync_interval: GoDuration,
    /// How often a connected cluster is probed if none of its watches has reported anything for 70 s. Unreachable clusters
    /// are probed at this interval too, but at least every 5 s.
    #[arg(long, env = "OPERATOR_PROBE_INTERVAL", default_value = "30s")]
    pub(crate) probe_interval: GoDuration,
    /// How many objects are reconciled at the same time on each cluster.
    #[arg(long, env = "OPERATOR_WORKERS_PER_CLUSTER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers_per_cluster: u16,
    /// Reconcile Tenants on the watch cluster too, as the cluster `self-cluster`.
    #[arg(long, env = "OPERATOR_SELF_CLUSTER", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    pub(crate) self_cluster: bool,
    /// Accept kubeconfigs in Secrets whose server has a loopback address.
    #[arg(long, env = "OPERATOR_ALLOW_LOOPBACK_CLUSTERS", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) allow_loopback_clusters: bool,
    /// Accept kubeconfigs in Secrets whose server has a link-local address.
    #[arg(long, env = "OPERATOR_ALLOW_LINK_LOCAL_CLUSTERS", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub(crate) allow_link_local_clusters: bool,
    /// Work only while holding the Lease, so that one of several replicas is active.
    #[arg(long, env = "OPERATOR_LEADER_ELECT", value_parser = truth, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true")]
    pub(crate) leader_elect: bool,
    /// How long reconciles in progress may continue after SIGTERM. The next process resumes what is interrupted.
    #[arg(long, env = "OPERATOR_SHUTDOWN_GRACE", default_value = "4s")]
    pub(crate) shutdown_grace: GoDuration,
    /// Shortest pause before a failed reconcile is retried.
    #[arg(long, env = "OPERATOR_MIN_ERROR_RETRY_INTERVAL", default_value = "1s")]
    pub(crate) min_error_retry_interval: GoDuration,
    /// Longest pause before a failed reconcile is retried.
    #[arg(long, env = "OPERATOR_MAX_ERROR_RETRY_INTERVAL", default_value = "60s")]
    pub(crate) max_error_retry_interval: GoDuration,
    /// Number of revisions to keep of each release; 0 keeps all of them.
    #[arg(long, env = "HELM_MAX_HISTORY", default_value_t = 10, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) helm_max_history: i64,
    /// Port that serves metrics; 0 disables it.
    #[arg(long, env = "OPERATOR_METRICS_PORT", default_value_t = 8080)]
    pub(crate) metrics_port: u16,
    /// Port that serves health probes; 0 disables it.
    #[arg(long, env = "OPERATOR_HEALTH_PORT", default_value_t = 8081)]
    pub(crate) health_port: u16,
}

/// Login and trust for the chart's source. All Secrets are in the operator's own namespace.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::struct_field_names, reason = "they are named as their flags")]
pub(crate) struct ChartAccess {
    /// User name for the chart's repository or registry.
    #[arg(
        long,
        env = "CHART_USERNAME",
        requires = "chart_password_secret",
        conflicts_with = "chart_docker_config_secret"
    )]
    pub(crate) chart_username: Option<String>,
    /// Secret with the password for that user. The default key is `password`.
    #[arg(
        long,
        env = "CHART_PASSWORD_SECRET",
        value_name = "NAME[/KEY]",
        requires = "chart_username"
    )]
    pub(crate) chart_password_secret: Option<SecretName>,
    /// Secret with a Docker configuration that contains the login for the registry. The default key is `.dockerconfigjson`.
    #[arg(long, env = "CHART_DOCKER_CONFIG_SECRET", value_name = "NAME[/KEY]")]
    pub(crate) chart_docker_config_secret: Option<SecretName>,
    /// Secret with PEM certificates of authorities to trust in addition to the system's. The default key is `ca.crt`.
    #[arg(long, env = "CHART_CA_SECRET", value_name = "NAME[/KEY]")]
    pub(crate) chart_ca_secret: Option<SecretName>,
    /// Secret with the operator's client certificate, under `tls.crt`, and its key, under `tls.key`.
    #[arg(long, env = "CHART_CLIENT_CERT_SECRET", value_name = "NAME")]
    pub(crate) chart_client_cert_secret: Option<String>,
    /// Secret with `OpenPGP` public keys; one of them must have signed the chart. The default key is `keyring.gpg`.
    #[arg(
        long,
        env = "CHART_KEYRING_SECRET",
        value_name = "NAME[/KEY]",
        conflicts_with = "chart_cosign_key_secret"
    )]
    pub(crate) chart_keyring_secret: Option<SecretName>,
    /// Secret with the public key of cosign that must have signed the chart in its registry. The default key is
    /// `cosign.pub`.
    #[arg(long, env = "CHART_COSIGN_KEY_SECRET", value_name = "NAME[/KEY]")]
    pub(crate) chart_cosign_key_secret: Option<SecretName>,
}

/// The name of a Secret, and a key in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretName {
    name: String,
    key: Option<String>,
}

impl std::str::FromStr for SecretName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, key) = match text.split_once('/') {
            Some((name, key)) => (name, Some(key)),
            None => (text, None),
        };
        if name.is_empty() || key.is_some_and(|key| key.is_empty() || key.contains('/')) {
            return Err("write the name of a Secret, or <name>/<key>".to_owned());
        }
        Ok(Self {
            name: name.to_owned(),
            key: key.map(str::to_owned),
        })
    }
}

impl SecretName {
    fn in_namespace(&self, namespace: &str, usual_key: &str) -> SecretKey {
        SecretKey {
            namespace: namespace.to_owned(),
            name: self.name.clone(),
            key: self.key.clone().unwrap_or_else(|| usual_key.to_owned()),
        }
    }
}

impl ChartAccess {
    /// The same as fields of a chart's origin, with Secrets of this namespace.
    pub(crate) fn origin(&self, namespace: &str) -> ChartSpec {
        let Self {
            chart_username,
            chart_password_secret,
            chart_docker_config_secret,
            chart_ca_secret,
            chart_client_cert_secret,
            chart_keyring_secret,
            chart_cosign_key_secret,
        } = self;
        let key = |secret: &Option<SecretName>, usual: &str| {
            secret
                .as_ref()
                .map(|secret| secret.in_namespace(namespace, usual))
        };
        let password = key(chart_password_secret, "password");
        let keyring = key(chart_keyring_secret, "keyring.gpg").map(VerifySpec::Keyring);
        let cosign = key(chart_cosign_key_secret, "cosign.pub").map(VerifySpec::CosignKey);
        ChartSpec {
            namespace: Some(namespace.to_owned()),
            credentials: chart_username
                .clone()
                .zip(password)
                .map(|(username, password)| CredentialsSpec { username, password }),
            docker_config: key(chart_docker_config_secret, ".dockerconfigjson"),
            ca_bundle: key(chart_ca_secret, "ca.crt"),
            client_cert: chart_client_cert_secret.as_ref().map(|name| ClientCertSpec {
                namespace: namespace.to_owned(),
                name: name.clone(),
            }),
            verify: keyring.or(cosign),
            ..ChartSpec::default()
        }
    }
}

/// Which types are reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Tenants.
    Tenant,
    /// `KryptonDeployments`.
    Deployment,
    /// Both.
    Both,
}

impl Mode {
    pub(crate) fn has_tenants(self) -> bool {
        matches!(self, Self::Tenant | Self::Both)
    }

    pub(crate) fn has_deployments(self) -> bool {
        matches!(self, Self::Deployment | Self::Both)
    }
}

impl Args {
    /// The namespace with the Secrets of clusters.
    pub(crate) fn discovery_namespace(&self) -> String {
        let said = given(self.namespace.as_deref()).or(given(self.own_namespace.as_deref()));
        said.map(str::to_owned)
            .or_else(pod_namespace)
            .unwrap_or_else(|| "default".to_owned())
    }

    /// The operator's own namespace.
    pub(crate) fn home_namespace(&self) -> String {
        let said = given(self.own_namespace.as_deref()).map(str::to_owned);
        said.or_else(pod_namespace)
            .unwrap_or_else(|| self.discovery_namespace())
    }

    /// The namespaces whose objects are reconciled; all if empty.
    pub(crate) fn served_namespaces(&self) -> Vec<String> {
        names(&self.watch_namespaces)
    }

    /// The namespaces, in addition to its own, in which a release may have objects.
    pub(crate) fn open_namespaces(&self) -> Vec<String> {
        names(&self.allowed_namespaces)
    }
}

fn names(listed: &[String]) -> Vec<String> {
    let names = listed.iter().map(|name| name.trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn pod_namespace() -> Option<String> {
    let text = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
    given(Some(&text)).map(str::to_owned)
}

/// A boolean as Go parses it, or `yes` and `no`, which the reference accepts, too.
fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" => Ok(true),
        "no" | "n" | "off" => Ok(false),
        _ => boolean(text),
    }
}

/// A duration, or a number of seconds.
fn interval(text: &str) -> Result<GoDuration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(GoDuration(std::time::Duration::from_secs(seconds.into())));
    }
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        let arguments = ["operator"].iter().chain(arguments).map(std::ffi::OsString::from);
        runtime::args::parse_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_the_references() -> Result<(), String> {
        let args = parse(&[])?;
        assert_eq!(
            (
                args.chart_repo.as_str(),
                args.chart_name.as_str(),
                args.chart_version.as_str()
            ),
            ("https://charts.jetstack.io", "cert-manager", "1.19.1")
        );
        assert_eq!(args.discovery_namespace(), "default");
        assert_eq!(
            args.kubeconfig_label,
            "sigs.k8s.io/multicluster-runtime-kubeconfig"
        );
        assert_eq!((args.mode, args.check_interval.0.as_secs()), (Mode::Both, 60));
        assert!(args.chart_install_crds && !args.allow_chart_skip && !args.ensure_watch_crds);
        assert!(!args.allow_loopback_clusters && !args.allow_link_local_clusters);
        assert!(args.served_namespaces().is_empty());
        Ok(())
    }

    #[test]
    fn every_flag_of_the_reference_is_taken() -> Result<(), String> {
        let args = parse(&[
            "--chart-repo=oci://host/charts",
            "-chart-name",
            "web",
            "--chart-version=1.2.3",
            "--namespace=platform-system",
            "--kubeconfig-label=a/b",
            "--kubeconfig-key=config",
            "--watch-kubeconfig=/nowhere",
            "--watch-context=home",
            "--ensure-watch-crds=yes",
            "--watch-kubeconfig-secret=home",
            "--watch-kubeconfig-secret-namespace=vault",
            "--watch-kubeconfig-secret-key=k",
            "--watch-namespaces=team-a, team-b",
            "--chart-install-crds=false",
            "--check-interval=90",
            "--mode=tenant",
        ])?;
        assert!(args.ensure_watch_crds && !args.chart_install_crds);
        assert_eq!(args.discovery_namespace(), "platform-system");
        assert_eq!(args.served_namespaces(), ["team-a", "team-b"]);
        assert_eq!(args.check_interval.0.as_secs(), 90);
        assert!(args.mode.has_tenants() && !args.mode.has_deployments());
        assert!(parse(&["--check-interval=soon"]).is_err_and(|error| error.contains("check-interval")));
        Ok(())
    }

    #[test]
    fn credentials_for_charts_are_in_secrets_in_the_operators_own_namespace() -> Result<(), String> {
        let args = parse(&[
            "--chart-username=robot",
            "--chart-password-secret=login/secret",
            "--chart-ca-secret=authority",
            "--chart-client-cert-secret=operator",
            "--chart-cosign-key-secret=signer",
        ])?;
        let origin = args.chart_access.origin("ops");
        assert_eq!(
            origin.credentials.as_ref().map(|login| login.username.as_str()),
            Some("robot")
        );
        let keys: Vec<String> = origin
            .secret_keys()
            .iter()
            .map(|key| format!("{key} {}", key.key))
            .collect();
        assert_eq!(
            keys,
            [
                "ops/login secret",
                "ops/authority ca.crt",
                "ops/signer cosign.pub",
                "ops/operator tls.crt",
                "ops/operator tls.key"
            ]
        );
        assert_eq!(origin.namespace.as_deref(), Some("ops"));
        let none = parse(&[])?.chart_access.origin("ops");
        assert!(none.secret_keys().is_empty() && none.credentials.is_none());
        for wrong in [
            &["--chart-username=robot"][..],
            &["--chart-password-secret=login"],
            &["--chart-ca-secret=a/b/c"],
            &["--chart-ca-secret=/b"],
            &["--chart-keyring-secret=a", "--chart-cosign-key-secret=b"],
            &[
                "--chart-username=a",
                "--chart-password-secret=b",
                "--chart-docker-config-secret=c",
            ],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        Ok(())
    }

    #[test]
    fn the_reference_page_is_generated_from_the_arguments() {
        let page = runtime::args::reference::<Args>("multicluster-operator");
        expect_test::expect_file!["../../../docs/reference/multicluster-operator.md"].assert_eq(&page);
    }
}
