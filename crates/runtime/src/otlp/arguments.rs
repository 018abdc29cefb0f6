//! What is typed of OTLP, and what it means: whether, where and in whose name is pushed.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::client::{Delivery, Figures, Kind, Push, Traces};
use crate::args::boolean;
use crate::process::choose_crypto;
use crate::{GoDuration, spans};

/// Whether and where figures and traces are pushed; flattened into a program's `Args`.
#[derive(Clone, Debug, clap::Args)]
pub struct PushArgs {
    /// Push the figures by OTLP.
    #[arg(
        long,
        env = "OTEL_ENABLED",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    otel_enabled: bool,
    /// How often they are pushed.
    #[arg(long, env = "OTEL_EXPORT_INTERVAL", default_value = "30s", value_parser = interval)]
    otel_export_interval: GoDuration,
    /// What the process is called in them; its program's name by default.
    #[arg(long, env = "OTEL_SERVICE_NAME")]
    otel_service_name: Option<String>,
    /// URL of the collector; v1/metrics and v1/traces are added to its path.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", default_value = "http://localhost:4318", value_parser = endpoint)]
    otel_exporter_otlp_endpoint: Url,
    /// URL to push figures to, as it is.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", value_parser = endpoint)]
    otel_exporter_otlp_metrics_endpoint: Option<Url>,
    /// Where traces go: to the collector, or nowhere.
    #[arg(long, env = "OTEL_TRACES_EXPORTER", value_enum, default_value = "none")]
    otel_traces_exporter: Exporter,
    /// URL to push traces to, as it is.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_parser = endpoint)]
    otel_exporter_otlp_traces_endpoint: Option<Url>,
    /// Which traces are recorded.
    #[arg(
        long,
        env = "OTEL_TRACES_SAMPLER",
        value_enum,
        default_value = "parentbased_always_on"
    )]
    otel_traces_sampler: spans::Named,
    /// Which part of them a sampler by ratio takes, from 0 to 1.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value = "1", value_parser = ratio)]
    otel_traces_sampler_arg: f64,
    /// How long spans wait for more before they are pushed, in milliseconds.
    #[arg(long, env = "OTEL_BSP_SCHEDULE_DELAY", default_value_t = 5000)]
    otel_bsp_schedule_delay: u64,
    /// How many spans wait at most; what comes beyond is dropped and counted.
    #[arg(long, env = "OTEL_BSP_MAX_QUEUE_SIZE", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    otel_bsp_max_queue_size: u32,
    /// Headers of each push, name=value,…, percent-encoded.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true)]
    otel_exporter_otlp_headers: Option<Secret>,
    /// How long a push may take, in milliseconds.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TIMEOUT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    otel_exporter_otlp_timeout: u64,
    /// File of the authorities, as PEM, that the collector's certificate may be signed by, beside the system's.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    otel_exporter_otlp_certificate: Option<PathBuf>,
    /// Further attributes of the process, name=value,…, percent-encoded.
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES")]
    otel_resource_attributes: Option<String>,
    /// The Deployment of the process, an attribute of it.
    #[arg(long, env = "DEPLOYMENT_NAME")]
    deployment_name: Option<String>,
}

/// Where traces go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Exporter {
    /// Nowhere; nothing is recorded for them.
    None,
    /// To the collector.
    Otlp,
}

/// A text that is never shown.
#[derive(Clone)]
struct Secret(String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

fn interval(text: &str) -> Result<GoDuration, String> {
    let interval: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    if interval.0.is_zero() {
        return Err("write a duration longer than 0".to_owned());
    }
    Ok(interval)
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok();
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "write a number from 0 to 1".to_owned())
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("write a URL that begins with http:// or https://".to_owned()),
    }
}

/// Why nothing can be pushed as the arguments say.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Headers that HTTP does not take. They may hold credentials, so they are not told.
    #[error("OTEL_EXPORTER_OTLP_HEADERS cannot be read: write name=value,…, percent-encoded")]
    Headers,
    /// Attributes that are no list.
    #[error("OTEL_RESOURCE_ATTRIBUTES cannot be read: write name=value,…, percent-encoded")]
    Attributes,
    /// The file of authorities cannot be read.
    #[error("could not read {file}, which OTEL_EXPORTER_OTLP_CERTIFICATE names")]
    ReadCertificate {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no client for the collector.
    #[error("could not make a client for the collector")]
    Client(#[source] reqwest::Error),
}

impl PushArgs {
    /// What is pushed where, in the name of `service` unless another is given; none when it is off.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn push(&self, service: &str) -> Result<Option<Push>, Error> {
        let headers = self.headers()?;
        let mut attributes = match &self.otel_resource_attributes {
            None => Vec::new(),
            Some(text) => pairs(text).ok_or(Error::Attributes)?,
        };
        let (figures, traces) = (self.otel_enabled, self.otel_traces_exporter == Exporter::Otlp);
        if !figures && !traces {
            return Ok(None);
        }
        let mut set = |name: &str, value: &str| {
            attributes.retain(|(known, _)| known != name);
            attributes.push((name.to_owned(), value.to_owned()));
        };
        set(
            "service.name",
            self.otel_service_name.as_deref().unwrap_or(service),
        );
        if let Some(deployment) = &self.deployment_name {
            set("k8s.deployment.name", deployment);
        }
        let client = self.client(headers)?;
        let delivery = |kind: Kind, url: Url| Delivery::new(kind, url, self.timeout(), client.clone());
        Ok(Some(Push {
            figures: figures.then(|| Figures {
                delivery: delivery(Kind::Figures, self.url_of_figures()),
                interval: self.otel_export_interval.0,
            }),
            traces: traces.then(|| Traces {
                delivery: delivery(Kind::Spans, self.url_of_traces()),
                delay: Duration::from_millis(self.otel_bsp_schedule_delay),
                longest_queue: self.otel_bsp_max_queue_size as usize,
                sampler: spans::Sampler::new(self.otel_traces_sampler, self.otel_traces_sampler_arg),
            }),
            attributes,
        }))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.otel_exporter_otlp_timeout)
    }

    pub(super) fn url_of_figures(&self) -> Url {
        let own = self.otel_exporter_otlp_metrics_endpoint.clone();
        own.unwrap_or_else(|| self.url_of("metrics"))
    }

    pub(super) fn url_of_traces(&self) -> Url {
        let own = self.otel_exporter_otlp_traces_endpoint.clone();
        own.unwrap_or_else(|| self.url_of("traces"))
    }

    fn url_of(&self, signal: &str) -> Url {
        let mut url = self.otel_exporter_otlp_endpoint.clone();
        let path = format!("{}/v1/{signal}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        let text = self
            .otel_exporter_otlp_headers
            .as_ref()
            .map_or("", |headers| &headers.0);
        for (name, value) in pairs(text).ok_or(Error::Headers)? {
            let name = HeaderName::from_str(&name).map_err(|_| Error::Headers)?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| Error::Headers)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Ok(headers)
    }

    fn client(&self, headers: HeaderMap) -> Result<reqwest::Client, Error> {
        // Arguments are understood before the process starts, which chooses it otherwise.
        choose_crypto();
        let mut client = reqwest::Client::builder()
            .default_headers(headers)
            // The headers may hold a credential of this collector alone.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(file) = &self.otel_exporter_otlp_certificate {
            let pem = std::fs::read(file).map_err(|source| Error::ReadCertificate {
                file: file.clone(),
                source,
            })?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem).map_err(Error::Client)?;
            client = client.tls_certs_merge(bundle);
        }
        client.build().map_err(Error::Client)
    }
}

/// `name=value,…` with percent-encoded values, as OpenTelemetry's variables have it.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (name, value) = entry.split_once('=')?;
            let decode = |text: &str| {
                let decoded = percent_encoding::percent_decode_str(text.trim()).decode_utf8();
                decoded.ok().map(std::borrow::Cow::into_owned)
            };
            let name = decode(name).filter(|name| !name.is_empty())?;
            Some((name, decode(value)?))
        })
        .collect()
}
