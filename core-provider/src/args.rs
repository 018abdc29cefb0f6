//! What is typed on the command line or set in the environment. The names are the contract's; those that
//! say where the platform runs are set by `charts/core-provider`.

use std::collections::BTreeMap;

use clap::Parser;
use runtime::GoDuration;
use runtime::args::{ClientArgs, boolean};

/// Turns charts into types and runs their controllers.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
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
    /// After how long a definition that is as it should be is looked at again.
    #[arg(long = "poll", env = "CORE_PROVIDER_POLL_INTERVAL", default_value = "5m")]
    pub(crate) poll_interval: GoDuration,
    /// How many definitions are worked on at once.
    #[arg(long, env = "CORE_PROVIDER_MAX_RECONCILE_RATE", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_reconcile_rate: u16,
    /// Work only while this replica leads.
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
    /// Port of probes and figures; 0 is none.
    #[arg(long, env = "CORE_PROVIDER_METRICS_SERVER_PORT", default_value_t = 8080)]
    pub(crate) metrics_server_port: u16,
    /// The platform's own namespace.
    #[arg(long, env = "KRATEO_NAMESPACE", default_value = "krateo-system")]
    pub(crate) krateo_namespace: String,
    /// This program's own ServiceAccount.
    #[arg(long, env = "CORE_PROVIDER_SERVICE_ACCOUNT", default_value = "core-provider")]
    pub(crate) service_account: String,
    /// Image of composition-dynamic-controller, with its tag.
    #[arg(long, env = "CDC_IMAGE", default_value = concat!("ghcr.io/krateo/composition-dynamic-controller:", env!("CARGO_PKG_VERSION")))]
    pub(crate) cdc_image: String,
    /// Tag of that image, in place of the one it names.
    #[arg(long, env = "CDC_IMAGE_TAG")]
    pub(crate) cdc_image_tag: Option<String>,
    /// imagePullPolicy of that image.
    #[arg(long, env = "CDC_IMAGE_PULL_POLICY", default_value = "IfNotPresent")]
    pub(crate) cdc_image_pull_policy: String,
    /// Further environment variables of every controller, as a JSON object of strings.
    #[arg(long, env = "CDC_ENV", default_value = "{}", value_parser = environment)]
    pub(crate) cdc_env: Environment,
    /// Where controllers find chart-inspector.
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

/// Environment variables by name.
pub(crate) type Environment = BTreeMap<String, String>;

fn environment(text: &str) -> Result<Environment, String> {
    serde_json::from_str(text).map_err(|error| format!("write a JSON object of strings: {error}"))
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
    fn the_defaults_are_the_references() {
        let args = parse(&[]).unwrap();
        assert_eq!(
            (args.poll_interval.0.as_secs(), args.max_reconcile_rate),
            (300, 3)
        );
        assert_eq!((args.leader_election, args.debug), (false, false));
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
}
