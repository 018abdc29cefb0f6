//! Command line arguments and environment variables. Where Krateo's core-provider has the same setting, the name is the
//! same; those that say where the platform runs are set by `charts/core-provider`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Parser;
use runtime::args::{ChartArgs, ClientArgs, boolean};
use runtime::{GoDuration, PushArgs};

use crate::bundle::{METRICS_PORT, METRICS_PORT_VARIABLE, Placement};
use crate::webhook::{Terms, Times};

/// Turns charts into types and runs their controllers.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) charts: ChartArgs,
    #[command(flatten)]
    pub(crate) push: PushArgs,
    /// Log more.
    #[arg(
        short,
        long,
        env = "CORE_PROVIDER_DEBUG",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub(crate) debug: bool,
    /// Interval at which the source of a definition's chart is asked for newer versions.
    #[arg(long = "poll", env = "CORE_PROVIDER_POLL_INTERVAL", default_value = "5m")]
    pub(crate) poll_interval: GoDuration,
    /// Number of definitions reconciled at the same time.
    #[arg(long, env = "CORE_PROVIDER_MAX_RECONCILE_RATE", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_reconcile_rate: u16,
    /// Reconcile only while this replica holds the leader Lease.
    #[arg(
        short,
        long,
        env = "CORE_PROVIDER_LEADER_ELECTION",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub(crate) leader_election: bool,
    /// Shortest pause after a failed pass.
    #[arg(long, env = "CORE_PROVIDER_MIN_ERROR_RETRY_INTERVAL", default_value = "1s")]
    pub(crate) min_error_retry_interval: GoDuration,
    /// Longest pause after a failed pass.
    #[arg(long, env = "CORE_PROVIDER_MAX_ERROR_RETRY_INTERVAL", default_value = "1m")]
    pub(crate) max_error_retry_interval: GoDuration,
    /// Time during which the same event about the same definition is not repeated.
    #[arg(long, env = "EVENTRECORDER_MAX_SILENCE", default_value = "5m")]
    pub(crate) event_silence: GoDuration,
    /// Port for probes and metrics; 0 disables it.
    #[arg(long, env = "CORE_PROVIDER_METRICS_SERVER_PORT", default_value_t = 8080)]
    pub(crate) metrics_server_port: u16,
    /// Interval after which a definition is reconciled in full although nothing changed.
    #[arg(short, long, env = "CORE_PROVIDER_SYNC", default_value = "1h")]
    pub(crate) sync: GoDuration,
    #[command(flatten)]
    pub(crate) webhooks: WebhookArgs,
    /// Namespace of the platform.
    #[arg(long, env = "KRATEO_NAMESPACE", default_value = "krateo-system")]
    pub(crate) krateo_namespace: String,
    /// ServiceAccount of this program.
    #[arg(long, env = "CORE_PROVIDER_SERVICE_ACCOUNT", default_value = "core-provider")]
    pub(crate) service_account: String,
    /// Where controllers run: in the platform's namespace, or in the namespace of their definition, where everybody who
    /// may run pods can act as the controller.
    #[arg(long, env = "CDC_NAMESPACE", value_enum, default_value_t = Placement::Platform)]
    pub(crate) cdc_namespace: Placement,
    /// Namespaces, separated by commas, that are closed to compositions: none there is reconciled, and no annotation or
    /// chart gives access.
    #[arg(
        long,
        env = "CORE_PROVIDER_CLOSED_NAMESPACES",
        default_value = "",
        value_parser = namespaces
    )]
    pub(crate) closed_namespaces: ClosedNamespaces,
    /// Image of composition-dynamic-controller, with its tag.
    #[arg(long, env = "CDC_IMAGE", default_value = concat!("ghcr.io/krateo/composition-dynamic-controller:", env!("CARGO_PKG_VERSION")))]
    pub(crate) cdc_image: String,
    /// Tag that replaces the one in that image's name.
    #[arg(long, env = "CDC_IMAGE_TAG")]
    pub(crate) cdc_image_tag: Option<String>,
    /// imagePullPolicy of that image.
    #[arg(long, env = "CDC_IMAGE_PULL_POLICY", default_value = "IfNotPresent")]
    pub(crate) cdc_image_pull_policy: String,
    /// Number of replicas of each controller; a definition's annotation krateo.io/controller-replicas overrides it.
    #[arg(long, env = "CDC_REPLICAS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(api::MOST_SHARDS)))]
    pub(crate) cdc_replicas: u16,
    /// Let controllers read `HelmReleases` of Flux in all namespaces. To adopt a release of Flux, they have to see that
    /// its `HelmRelease` is suspended.
    #[arg(long, env = "CDC_READ_HELMRELEASES", action = clap::ArgAction::Set, default_value_t = false)]
    pub(crate) cdc_read_helm_releases: bool,
    /// Additional environment variables of every controller, as a JSON object of strings.
    #[arg(long, env = "CDC_ENV", default_value = "{}", value_parser = environment)]
    pub(crate) cdc_env: Environment,
    /// URL at which controllers reach chart-inspector.
    #[arg(
        long,
        env = "URL_CHART_INSPECTOR",
        default_value = "http://chart-inspector.krateo-system.svc.cluster.local:8081/"
    )]
    pub(crate) url_chart_inspector: String,
    /// ServiceAccount of chart-inspector, in the platform's namespace.
    #[arg(
        long,
        env = "CHART_INSPECTOR_SERVICE_ACCOUNT",
        default_value = "chart-inspector"
    )]
    pub(crate) chart_inspector_service_account: String,
}

/// Where and how the webhooks are served.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WebhookArgs {
    /// Port of the webhooks; 0 disables them.
    #[arg(
        long = "webhook-port",
        env = "CORE_PROVIDER_WEBHOOK_PORT",
        default_value_t = 9443
    )]
    pub(crate) port: u16,
    /// Service through which API servers reach the webhooks.
    #[arg(
        long = "webhook-service-name",
        env = "CORE_PROVIDER_WEBHOOK_SERVICE_NAME",
        default_value = "core-provider-webhook-service"
    )]
    pub(crate) service_name: String,
    /// Namespace of that Service.
    #[arg(
        long = "webhook-service-namespace",
        env = "CORE_PROVIDER_WEBHOOK_SERVICE_NAMESPACE",
        default_value = "krateo-system"
    )]
    pub(crate) service_namespace: String,
    /// URL at which API servers reach the webhooks, instead of the Service, for a process outside the cluster.
    #[arg(long = "webhook-url", env = "CORE_PROVIDER_WEBHOOK_URL")]
    pub(crate) url: Option<String>,
    /// Lifetime of a certificate of the webhooks.
    #[arg(long, env = "CORE_PROVIDER_TLS_CERTIFICATE_DURATION", default_value = "24h")]
    pub(crate) tls_certificate_duration: GoDuration,
    /// Remaining lifetime at which the next certificate is made.
    #[arg(
        long,
        env = "CORE_PROVIDER_TLS_CERTIFICATE_LEASE_EXPIRATION_MARGIN",
        default_value = "16h"
    )]
    pub(crate) tls_certificate_lease_expiration_margin: GoDuration,
    /// Interval at which certificates are checked.
    #[arg(long, env = "CORE_PROVIDER_CERTIFICATE_SYNC_INTERVAL", default_value = "5m")]
    pub(crate) certificate_sync_interval: GoDuration,
    /// Who signs the certificates of the webhooks.
    #[arg(
        long,
        env = "CORE_PROVIDER_CERTIFICATE_SOURCE",
        value_enum,
        default_value_t = CertificateSource::Authority
    )]
    pub(crate) certificate_source: CertificateSource,
    /// Lifetime of the certificate authority that signs them; during the last sixth of it the next authority is valid
    /// too.
    #[arg(long, env = "CORE_PROVIDER_CA_CERTIFICATE_DURATION", default_value = "8760h")]
    pub(crate) ca_certificate_duration: GoDuration,
    /// Time for which the next authority is trusted before it signs certificates.
    #[arg(long, env = "CORE_PROVIDER_CA_CERTIFICATE_NOTICE", default_value = "24h")]
    pub(crate) ca_certificate_notice: GoDuration,
}

/// Who signs the certificates of the webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CertificateSource {
    /// A certificate authority of core-provider's own, in a Secret.
    Authority,
    /// The cluster's signer for kubelets, by `CertificateSigningRequest`s that core-provider approves.
    Csr,
}

impl WebhookArgs {
    /// When certificates are rotated.
    pub(crate) fn times(&self) -> anyhow::Result<Times> {
        let [life, succession, notice] = self.terms();
        Ok(Times {
            duration: self.tls_certificate_duration.0.try_into()?,
            margin: self.tls_certificate_lease_expiration_margin.0.try_into()?,
            interval: self.certificate_sync_interval.0,
            trusted: Terms {
                life: life.try_into()?,
                succession: succession.try_into()?,
                notice: notice.try_into()?,
            },
        })
    }

    /// The values of [`Terms`]: life, succession and notice.
    fn terms(&self) -> [Duration; 3] {
        let interval = self.certificate_sync_interval.0;
        match self.certificate_source {
            CertificateSource::Authority => {
                let life = self.ca_certificate_duration.0;
                [life, life / 6, self.ca_certificate_notice.0]
            }
            CertificateSource::Csr => [
                self.tls_certificate_duration.0,
                self.tls_certificate_lease_expiration_margin.0,
                interval * 3,
            ],
        }
    }

    /// An error if the certificates' times do not fit together.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal_of_leaf().or_else(|| {
            let [_, succession, notice] = self.terms();
            let interval = self.certificate_sync_interval.0;
            let said = "CORE_PROVIDER_CA_CERTIFICATE_NOTICE";
            if notice < interval * 3 {
                Some(format!(
                    "{said} must be at least three times CORE_PROVIDER_CERTIFICATE_SYNC_INTERVAL"
                ))
            } else if self.certificate_source == CertificateSource::Authority
                && notice + interval > succession
            {
                Some(format!(
                    "{said} must be shorter than a sixth of CORE_PROVIDER_CA_CERTIFICATE_DURATION"
                ))
            } else {
                None
            }
        })
    }

    fn refusal_of_leaf(&self) -> Option<String> {
        let margin = self.tls_certificate_lease_expiration_margin;
        let (duration, interval) = (self.tls_certificate_duration, self.certificate_sync_interval);
        let said = "CORE_PROVIDER_TLS_CERTIFICATE_LEASE_EXPIRATION_MARGIN";
        if margin.0 > duration.0 {
            Some(format!(
                "{said} must not be longer than CORE_PROVIDER_TLS_CERTIFICATE_DURATION"
            ))
        } else if margin.0 < Duration::from_mins(10) {
            Some(format!("{said} must be at least 10m"))
        } else if margin.0 < interval.0 * 3 {
            Some(format!(
                "{said} must be at least three times CORE_PROVIDER_CERTIFICATE_SYNC_INTERVAL"
            ))
        } else {
            None
        }
    }
}

impl Args {
    /// The port on which controllers serve probes and metrics, according to their environment.
    ///
    /// # Errors
    /// When it is not a port, or 0: kubelets probe the controllers there.
    pub(crate) fn metrics_port(&self) -> Result<u16, String> {
        let Some(said) = self.cdc_env.get(METRICS_PORT_VARIABLE) else {
            return Ok(METRICS_PORT);
        };
        let port = said.parse().ok().filter(|port| *port > 0);
        port.ok_or_else(|| {
            format!(
                "{METRICS_PORT_VARIABLE} in CDC_ENV is {said:?}: set it to a port from 1 to 65535, which probes need"
            )
        })
    }

    /// The environment of controllers, without the variables that the templates set themselves.
    pub(crate) fn environment(&self) -> Environment {
        let mut environment = self.cdc_env.clone();
        environment.remove(METRICS_PORT_VARIABLE);
        environment
    }

    /// The number of shards of a controller, according to its environment.
    ///
    /// # Errors
    /// When it is not a valid number of shards.
    pub(crate) fn shards(&self) -> Result<u16, String> {
        let Some(said) = self.cdc_env.get(api::SHARDS_VARIABLE) else {
            return Ok(api::SHARDS);
        };
        let number = said.parse().ok();
        number
            .filter(|number| (1..=api::MOST_SHARDS).contains(number))
            .ok_or_else(|| {
                format!(
                    "{} in CDC_ENV is {said}: set it to a number from 1 to {}",
                    api::SHARDS_VARIABLE,
                    api::MOST_SHARDS
                )
            })
    }
}

/// Environment variables by name.
pub(crate) type Environment = BTreeMap<String, String>;

/// Names of namespaces, each once.
pub(crate) type ClosedNamespaces = BTreeSet<String>;

fn namespaces(text: &str) -> Result<ClosedNamespaces, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let is_name = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    names
        .map(|name| {
            let namespace = is_name(name).then(|| name.to_owned());
            namespace.ok_or_else(|| format!("{name:?} is not a namespace name"))
        })
        .collect()
}

fn environment(text: &str) -> Result<Environment, String> {
    serde_json::from_str(text).map_err(|error| format!("it has to be a JSON object of strings: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        let arguments = ["core-provider"]
            .iter()
            .chain(arguments)
            .map(std::ffi::OsString::from);
        runtime::args::parse_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        let args = parse(&[]).unwrap();
        assert_eq!(
            (args.poll_interval.0.as_secs(), args.max_reconcile_rate),
            (300, 3)
        );
        assert_eq!((args.leader_election, args.debug), (false, false));
        assert_eq!(args.event_silence.0, runtime::events::SILENCE);
    }

    #[test]
    fn the_controllers_environment_is_a_json_object() {
        let args = parse(&["--cdc-env", r#"{"A":"1"}"#]).unwrap();
        assert_eq!(args.cdc_env["A"], "1");
        assert!(
            parse(&["--cdc-env", "A=1"])
                .unwrap_err()
                .contains("JSON object of strings")
        );
    }

    #[test]
    fn closed_namespaces_are_a_list_of_names() {
        let closed = |text: &str| parse(&["--closed-namespaces", text]).map(|args| args.closed_namespaces);
        assert_eq!(parse(&[]).unwrap().closed_namespaces.len(), 0);
        let names = closed("krateo-platform, vault,").unwrap();
        assert_eq!(Vec::from_iter(names), ["krateo-platform", "vault"]);
        assert!(closed("krateo-*").unwrap_err().contains("krateo-*"));
    }

    #[test]
    fn the_number_of_shards_is_that_of_the_controllers_environment() {
        let shards = |env: &str| parse(&["--cdc-env", env]).unwrap().shards();
        assert_eq!(shards("{}"), Ok(8));
        assert_eq!(shards(r#"{"COMPOSITION_CONTROLLER_SHARDS":"16"}"#), Ok(16));
        for bad in ["0", "65", "many"] {
            let refused = shards(&format!(r#"{{"COMPOSITION_CONTROLLER_SHARDS":"{bad}"}}"#));
            assert!(refused.unwrap_err().contains("from 1 to 64"));
        }
        assert!(parse(&["--cdc-replicas", "0"]).is_err());
    }

    #[test]
    fn the_port_of_probes_is_that_of_the_controllers_environment() {
        let args = |env: &str| parse(&["--cdc-env", env]).unwrap();
        assert_eq!(args("{}").metrics_port(), Ok(8080));
        let moved = args(r#"{"COMPOSITION_CONTROLLER_METRICS_SERVER_PORT":"9090","A":"1"}"#);
        assert_eq!(moved.metrics_port(), Ok(9090));
        assert_eq!(
            moved.environment(),
            Environment::from([("A".to_owned(), "1".to_owned())])
        );
        for bad in ["0", "65536", "none"] {
            let env = format!(r#"{{"COMPOSITION_CONTROLLER_METRICS_SERVER_PORT":"{bad}"}}"#);
            assert!(args(&env).metrics_port().unwrap_err().contains("from 1 to 65535"));
        }
    }

    #[test]
    fn the_process_does_not_start_if_certificates_could_expire_before_rotation() {
        let refusal = |margin: &str, interval: &str| {
            let margin = format!("--tls-certificate-lease-expiration-margin={margin}");
            let interval = format!("--certificate-sync-interval={interval}");
            parse(&[&margin, &interval]).unwrap().webhooks.refusal()
        };
        assert_eq!(refusal("16h", "5m"), None);
        assert!(refusal("25h", "5m").unwrap().contains("DURATION"));
        assert!(refusal("9m", "1m").unwrap().contains("10m"));
        assert!(refusal("20m", "10m").unwrap().contains("three times"));

        let refusal = |life: &str, notice: &str| {
            let life = format!("--ca-certificate-duration={life}");
            let notice = format!("--ca-certificate-notice={notice}");
            parse(&[&life, &notice]).unwrap().webhooks.refusal()
        };
        assert_eq!(refusal("8760h", "24h"), None);
        assert!(refusal("8760h", "1m").unwrap().contains("three times"));
        assert!(refusal("48h", "24h").unwrap().contains("a sixth"));
    }

    #[test]
    fn the_reference_page_is_generated_from_the_arguments() {
        let page = runtime::args::reference::<Args>("core-provider");
        expect_test::expect_file!["../../docs/reference/core-provider.md"].assert_eq(&page);
    }
}
