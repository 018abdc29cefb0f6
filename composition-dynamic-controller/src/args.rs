//! Command line arguments and environment variables. Where Krateo's controller has the same setting, the name is the
//! same.

use std::path::PathBuf;

use charts::source::ChartRef;
use clap::{Parser, ValueEnum};
use helm::origin::ChartSpec;
use helm_client::release::{Options, Retries, Wait};
use runtime::args::{ChartArgs, ClientArgs, boolean};
use runtime::{GoDuration, PushArgs};
use url::Url;

/// Serves one generated type: each of its objects becomes a Helm release.
#[derive(Debug, Clone, Parser)]
#[command(disable_version_flag = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) charts: ChartArgs,
    #[command(flatten)]
    pub(crate) push: PushArgs,
    /// Log more.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_DEBUG",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub(crate) debug: bool,
    /// Number of compositions reconciled at the same time.
    #[arg(long, env = "COMPOSITION_CONTROLLER_WORKERS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// Number of shards into which replicas divide the compositions: the same for all replicas, and at least as many as
    /// there are replicas.
    #[arg(long, env = "COMPOSITION_CONTROLLER_SHARDS", default_value_t = api::SHARDS, value_parser = clap::value_parser!(u16).range(1..=i64::from(api::MOST_SHARDS)))]
    pub(crate) shards: u16,
    /// Interval after which a composition in its desired state is reconciled again.
    #[arg(long, env = "COMPOSITION_CONTROLLER_RESYNC_INTERVAL", default_value = "3m")]
    pub(crate) resync_interval: GoDuration,
    /// Group of the type.
    #[arg(long, env = "COMPOSITION_CONTROLLER_GROUP")]
    pub(crate) group: String,
    /// Version of the type; objects with this version in their label are reconciled.
    #[arg(long = "version", id = "api-version", env = "COMPOSITION_CONTROLLER_VERSION")]
    pub(crate) version: String,
    /// Plural resource name of the type.
    #[arg(long, env = "COMPOSITION_CONTROLLER_RESOURCE")]
    pub(crate) resource: String,
    /// Namespace to watch; empty means all.
    #[arg(long, env = "COMPOSITION_CONTROLLER_NAMESPACE", default_value = "")]
    pub(crate) namespace: String,
    /// Chart of all compositions, instead of the chart of each one's definition: `oci://host/path`, with `:version` or
    /// without it for the newest version, or the URL of an archive.
    #[arg(long, env = "COMPOSITION_CONTROLLER_CHART", default_value = "", value_parser = chart)]
    pub(crate) chart: String,
    /// URL of chart-inspector.
    #[arg(
        long = "urlChartInspector",
        env = "URL_CHART_INSPECTOR",
        default_value = "http://chart-inspector.krateo-system.svc.cluster.local:8081/"
    )]
    pub(crate) url_chart_inspector: Url,
    /// File with the token to present to chart-inspector.
    #[arg(
        long,
        env = "CHART_INSPECTOR_TOKEN_FILE",
        default_value = "/var/run/secrets/chart-inspector/token"
    )]
    pub(crate) chart_inspector_token_file: PathBuf,
    /// This controller's ServiceAccount, to which the permissions of releases are granted.
    #[arg(long = "saName", env = "COMPOSITION_CONTROLLER_SA_NAME")]
    pub(crate) sa_name: String,
    /// Namespace of that ServiceAccount.
    #[arg(long = "saNamespace", env = "COMPOSITION_CONTROLLER_SA_NAMESPACE")]
    pub(crate) sa_namespace: String,
    /// Secret with the key that authenticates release records, as `<namespace>/<name>`. By default the one that
    /// core-provider creates for the type; if `--chart` is set, the default is none, and records are trusted whoever
    /// wrote them.
    #[arg(long = "releaseKeySecret", env = api::release_key::VARIABLE, default_value = "")]
    pub(crate) release_key_secret: String,
    /// Namespace of the definition. With another setting of `cdc.namespace`, an earlier controller ran there; this one
    /// waits until that one is gone, and continues what it left unfinished.
    #[arg(long, env = "COMPOSITION_CONTROLLER_DEFINITION_NAMESPACE")]
    pub(crate) definition_namespace: Option<String>,
    /// Shortest pause after a failed pass.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_MIN_ERROR_RETRY_INTERVAL",
        default_value = "1s"
    )]
    pub(crate) min_error_retry_interval: GoDuration,
    /// Longest pause after a failed pass.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_MAX_ERROR_RETRY_INTERVAL",
        default_value = "60s"
    )]
    pub(crate) max_error_retry_interval: GoDuration,
    /// Hold additional permissions of all compositions until somebody approves them, by the annotation
    /// `krateo.io/approved-permissions`; a definition asks for it by `krateo.io/approve-permissions`.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_APPROVE_PERMISSIONS",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub(crate) approve_permissions: bool,
    /// What `Ready` means for a composition.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_READY_MEANS",
        value_enum,
        default_value_t = ReadyMeans::Healthy
    )]
    pub(crate) ready_means: ReadyMeans,
    /// What an install or upgrade waits for before it counts as deployed. If that takes longer than the timeout, it is
    /// undone.
    #[arg(long, env = "COMPOSITION_CONTROLLER_WAIT", value_enum, default_value_t = WaitFor::Nothing)]
    pub(crate) wait: WaitFor,
    /// Timeout of each hook, of that wait, and of each deletion.
    #[arg(long, env = "COMPOSITION_CONTROLLER_TIMEOUT", default_value = "5m")]
    pub(crate) timeout: GoDuration,
    /// Number of attempts for an install or upgrade with the same inputs, the first included.
    #[arg(long, env = "COMPOSITION_CONTROLLER_RELEASE_ATTEMPTS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) release_attempts: u32,
    /// Pause after the first failed attempt; it doubles after every further one.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_MIN_RELEASE_RETRY_INTERVAL",
        default_value = "10s"
    )]
    pub(crate) min_release_retry_interval: GoDuration,
    /// Longest pause between attempts.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_MAX_RELEASE_RETRY_INTERVAL",
        default_value = "5m"
    )]
    pub(crate) max_release_retry_interval: GoDuration,
    /// Number of retries of a failed pass; after that it waits for the next resync.
    #[arg(long, env = "COMPOSITION_CONTROLLER_MAX_ERROR_RETRIES", default_value_t = 5)]
    pub(crate) max_error_retries: u32,
    /// Interval after which a composition is compared with the cluster in full although no event arrived. Its Secrets,
    /// which are not watched, are compared only then.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_COMPARISON_INTERVAL",
        default_value = "30m"
    )]
    pub(crate) comparison_interval: GoDuration,
    /// Time during which the same event about the same composition is not repeated.
    #[arg(long, env = "EVENTRECORDER_MAX_SILENCE", default_value = "5m")]
    pub(crate) event_silence: GoDuration,
    /// Port for probes and metrics; 0 disables it.
    #[arg(long, env = "COMPOSITION_CONTROLLER_METRICS_SERVER_PORT", default_value_t = 0)]
    pub(crate) metrics_server_port: u16,
    /// Append eight characters of the composition's UID to the name of its release.
    #[arg(
        long,
        env = "COMPOSITION_CONTROLLER_SAFE_RELEASE_NAME",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub(crate) safe_release_name: bool,
    /// Number of revisions to keep of each release; 0 keeps all.
    #[arg(long, env = "HELM_MAX_HISTORY", default_value_t = 3, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) helm_max_history: i64,
    /// Storage of release records; only Secrets are supported.
    #[arg(long, env = "HELM_DRIVER", default_value = "secrets", value_parser = driver)]
    helm_driver: String,
    /// Namespace of the platform, which charts see as `global.krateoNamespace`.
    #[arg(long, env = "KRATEO_NAMESPACE", default_value = "krateo-system")]
    pub(crate) krateo_namespace: String,
}

/// What an install or upgrade waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// Only its hooks.
    Nothing,
    /// Its objects being ready, by the rules of kstatus.
    Objects,
    /// The same, and Jobs being complete.
    Jobs,
}

/// What `Ready` means for a composition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadyMeans {
    /// Its release is deployed and the workloads are up.
    Healthy,
    /// Its release is deployed, as in Krateo.
    Released,
}

/// Checks that the chart can be fetched from this text alone.
fn chart(text: &str) -> Result<String, String> {
    let text = text.trim();
    if !text.is_empty() {
        ChartRef::parse(text, None, None).map_err(|error| error.to_string())?;
    }
    Ok(text.to_owned())
}

/// Permissions are granted for Secrets, so no other storage works.
fn driver(text: &str) -> Result<String, String> {
    match text {
        "" | "secret" | "secrets" => Ok(text.to_owned()),
        _ => Err("release records are stored in Secrets: set it to secret".to_owned()),
    }
}

impl Args {
    /// The one chart of all compositions, if it is set.
    pub(crate) fn fixed_chart(&self) -> Option<ChartSpec> {
        (!self.chart.is_empty()).then(|| ChartSpec {
            url: self.chart.clone(),
            ..ChartSpec::default()
        })
    }

    /// The options with which releases are installed and upgraded.
    pub(crate) fn release_options(&self) -> Options {
        Options {
            max_history: self.helm_max_history,
            wait: match self.wait {
                WaitFor::Nothing => Wait::No,
                WaitFor::Objects => Wait::Ready,
                WaitFor::Jobs => Wait::ReadyAndJobs,
            },
            timeout: self.timeout.0,
            retries: Retries {
                attempts: self.release_attempts,
                pause: self.min_release_retry_interval.0,
                longest: self.max_release_retry_interval.0,
            },
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        let arguments = ["cdc"].iter().chain(arguments).map(std::ffi::OsString::from);
        runtime::args::parse_from(arguments).map_err(|error| error.to_string())
    }

    const REQUIRED: [&str; 10] = [
        "-group",
        "g",
        "-version",
        "v1-0-0",
        "-resource",
        "webs",
        "-saName",
        "a",
        "-saNamespace",
        "b",
    ];

    #[test]
    fn the_flags_of_the_contract_are_understood_with_one_dash() {
        let args = parse(&REQUIRED).unwrap();
        assert_eq!(
            (args.group.as_str(), args.version.as_str(), args.resource.as_str()),
            ("g", "v1-0-0", "webs")
        );
        assert_eq!(
            (args.workers, args.helm_max_history, args.safe_release_name),
            (1, 3, true)
        );
        assert_eq!(args.resync_interval.0.as_secs(), 180);
        assert_eq!(args.shards, 8);
    }

    #[test]
    fn the_same_event_is_not_repeated_for_as_long_as_eventrecorder_max_silence_says() {
        use clap::CommandFactory as _;
        assert_eq!(
            parse(&REQUIRED).unwrap().event_silence.0,
            runtime::events::SILENCE
        );
        let asked = parse(&[&REQUIRED[..], &["-event-silence=90s"]].concat()).unwrap();
        assert_eq!(asked.event_silence.0, Duration::from_secs(90));
        let command = Args::command();
        let variables: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
        assert!(variables.contains(&"EVENTRECORDER_MAX_SILENCE".as_ref()));
    }

    #[test]
    fn no_registry_config_is_read_unless_helm_registry_config_path_names_one() {
        use clap::CommandFactory as _;
        assert_eq!(parse(&REQUIRED).unwrap().charts.helm_registry_config_path, None);
        let command = Args::command();
        let variables: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
        assert!(variables.contains(&"HELM_REGISTRY_CONFIG_PATH".as_ref()));
    }

    #[test]
    fn the_number_of_shards_has_a_lower_and_an_upper_limit() {
        let shards = |number: &str| parse(&[&REQUIRED[..], &["-shards", number]].concat());
        assert_eq!(shards("64").unwrap().shards, 64);
        assert!(shards("0").is_err() && shards("65").is_err());
    }

    #[test]
    fn release_options_follow_the_flags_and_default_to_those_of_helm() {
        let asked = [
            "-wait=objects",
            "-timeout=90s",
            "-release-attempts=2",
            "-min-release-retry-interval=1s",
        ];
        let options = parse(&[&REQUIRED[..], &asked].concat())
            .unwrap()
            .release_options();
        let expected = Options {
            max_history: 3,
            wait: Wait::Ready,
            timeout: Duration::from_secs(90),
            retries: Retries {
                attempts: 2,
                pause: Duration::from_secs(1),
                ..Retries::default()
            },
            ..Options::default()
        };
        assert_eq!(options, expected);
        let unasked = parse(&REQUIRED).unwrap().release_options();
        assert_eq!((unasked.wait, unasked.retries), (Wait::No, Retries::default()));
        assert!(
            parse(&[&REQUIRED[..], &["-wait=yes"]].concat())
                .unwrap_err()
                .contains("objects")
        );
        assert!(parse(&[&REQUIRED[..], &["-release-attempts=0"]].concat()).is_err());
    }

    #[test]
    fn every_flag_of_the_contract_is_parsed_like_a_go_flag() {
        let args = parse(&[
            "-kubeconfig=/nowhere",
            "-debug",
            "-workers",
            "4",
            "-resync-interval=1m30s",
            "-group=g",
            "-version=v1-0-0",
            "-resource=webs",
            "-namespace=team",
            "-chart=oci://host/charts/web:1.2.3",
            "-urlChartInspector=http://inspector:8081",
            "-saName=a",
            "-saNamespace=b",
            "-max-error-retry-interval=2m",
            "-min-error-retry-interval=2s",
            "-max-error-retries=7",
            "-metrics-server-port=9090",
            "-safe-release-name=false",
            "-otel-service-name=ours",
        ])
        .unwrap();
        assert_eq!(
            (args.debug, args.workers, args.namespace.as_str()),
            (true, 4, "team")
        );
        assert_eq!(args.fixed_chart().unwrap().url, "oci://host/charts/web:1.2.3");
        assert_eq!((args.max_error_retries, args.metrics_server_port), (7, 9090));
        assert!(!args.safe_release_name);
    }

    #[test]
    fn a_fixed_chart_has_to_be_one_that_can_be_fetched() {
        let with = |chart: &str| parse(&[&REQUIRED[..], &[chart]].concat());
        assert_eq!(parse(&REQUIRED).unwrap().fixed_chart(), None);
        assert_eq!(with("-chart=").unwrap().fixed_chart(), None);
        let archive = with("-chart=https://host/web-1.2.3.tgz").unwrap();
        assert_eq!(archive.fixed_chart().unwrap().url, "https://host/web-1.2.3.tgz");
        // A repository has many charts, and the image contains no folder with a chart.
        for wrong in ["-chart=https://charts.example.org", "-chart=./web", "-chart=web"] {
            assert!(with(wrong).unwrap_err().contains("--chart"), "{wrong}");
        }
    }

    #[test]
    fn records_are_kept_in_secrets_and_nowhere_else() {
        let with = |driver: &str| parse(&[&REQUIRED[..], &["-helm-driver", driver]].concat());
        assert!(with("secret").is_ok() && with("secrets").is_ok() && with("").is_ok());
        assert!(with("configmap").unwrap_err().contains("Secrets"));
    }

    #[test]
    fn a_missing_account_and_a_mistyped_duration_are_refused() {
        assert!(parse(&REQUIRED[..6]).unwrap_err().contains("saName"));
        let mut arguments = REQUIRED.to_vec();
        arguments.push("-resync-interval=3");
        assert!(parse(&arguments).unwrap_err().contains("has no unit"));
    }

    #[test]
    fn the_reference_page_is_generated_from_the_arguments() {
        let page = runtime::args::reference::<Args>("composition-dynamic-controller");
        expect_test::expect_file!["../../docs/reference/composition-dynamic-controller.md"].assert_eq(&page);
    }
}
