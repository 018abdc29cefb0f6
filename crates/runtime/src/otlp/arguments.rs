//! The arguments for OTLP and what they mean: whether to push, where to, and under which service name.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::client::{Delivery, Kind, MetricsPush, Push, Traces};
use super::settings::{self, Reader};
use crate::args::boolean;
use crate::process::choose_crypto;
use crate::{chain, spans};

/// Whether and where metrics and traces are pushed; flattened into a program's `Args`.
///
/// All of it stays text until something is pushed: every program reads these variables, and they may hold values that
/// only other programs understand.
#[derive(Clone, Debug, clap::Args)]
pub struct PushArgs {
    /// Whether metrics are pushed to an OpenTelemetry collector.
    #[arg(
        long,
        env = "OTEL_ENABLED",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    otel_enabled: OsString,
    /// How often metrics are pushed.
    #[arg(long, env = "OTEL_EXPORT_INTERVAL", default_value = "30s")]
    otel_export_interval: OsString,
    /// Name of this service in metrics and traces; by default the name of the program.
    #[arg(long, env = "OTEL_SERVICE_NAME")]
    otel_service_name: Option<OsString>,
    /// URL of the collector. Metrics are sent to the path v1/metrics below it, traces to v1/traces.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        default_value = "http://localhost:4318"
    )]
    otel_exporter_otlp_endpoint: OsString,
    /// URL that metrics are sent to, instead of the collector's with v1/metrics.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")]
    otel_exporter_otlp_metrics_endpoint: Option<OsString>,
    /// Whether traces are pushed to the collector: `otlp` or `none`.
    #[arg(long, env = "OTEL_TRACES_EXPORTER", default_value = "none")]
    otel_traces_exporter: OsString,
    /// URL that traces are sent to, instead of the collector's with v1/traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    otel_exporter_otlp_traces_endpoint: Option<OsString>,
    /// Protocol for talking to the collector. Only http/protobuf is supported.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", default_value = "http/protobuf")]
    otel_exporter_otlp_protocol: OsString,
    /// Which traces are recorded: `always_on`, `always_off`, `traceidratio`, `parentbased_always_on`,
    /// `parentbased_always_off` or `parentbased_traceidratio`.
    #[arg(long, env = "OTEL_TRACES_SAMPLER", default_value = "parentbased_always_on")]
    otel_traces_sampler: OsString,
    /// The share of traces that `traceidratio` and `parentbased_traceidratio` record, from 0 to 1.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value = "1")]
    otel_traces_sampler_arg: OsString,
    /// How many milliseconds a span waits for others before it is sent.
    #[arg(long, env = "OTEL_BSP_SCHEDULE_DELAY", default_value = "5000")]
    otel_bsp_schedule_delay: OsString,
    /// How many spans may wait to be sent, from 1 to 65536. Further ones are dropped and counted.
    #[arg(long, env = "OTEL_BSP_MAX_QUEUE_SIZE", default_value = "2048")]
    otel_bsp_max_queue_size: OsString,
    /// Headers that are sent to the collector: name=value,…, percent-encoded.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true, value_parser = secret())]
    otel_exporter_otlp_headers: Option<Secret>,
    /// How many milliseconds a push may take before it counts as failed.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TIMEOUT", default_value = "10000")]
    otel_exporter_otlp_timeout: OsString,
    /// PEM file with certificate authorities that may have signed the collector's certificate, besides those of the
    /// system.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    otel_exporter_otlp_certificate: Option<OsString>,
    /// Further attributes of this process in metrics and traces: name=value,…, percent-encoded.
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES")]
    otel_resource_attributes: Option<OsString>,
    /// Name of the Deployment of this process: the attribute k8s.deployment.name.
    #[arg(long, env = "DEPLOYMENT_NAME")]
    deployment_name: Option<OsString>,
}

// What is used in place of values that cannot be read: the same as the defaults above.
const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
const SCHEDULE_DELAY: Duration = Duration::from_secs(5);
const QUEUE_SIZE: usize = 2048;

/// A text that is never printed.
#[derive(Clone)]
struct Secret(OsString);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

fn secret() -> impl TypedValueParser<Value = Secret> {
    OsStringValueParser::new().map(Secret)
}

impl PushArgs {
    /// What is pushed and where to, under the name `service` unless another one is given.
    ///
    /// A setting that cannot be read counts as not set; the process warns about it at its start. The settings of an
    /// export that is off are not read.
    pub fn push(&self, service: &str) -> Push {
        let mut reader = Reader::default();
        let metrics = reader.parsed("OTEL_ENABLED", &self.otel_enabled, boolean) == Some(true);
        let traces = reader.is_exported("OTEL_TRACES_EXPORTER", &self.otel_traces_exporter);
        let mut push = Push::default();
        if metrics || traces {
            push.attributes = self.attributes(service, &mut reader);
            if let Some(delivery) = self.delivery(&mut reader) {
                push.metrics = metrics.then(|| self.metrics(&delivery, &mut reader));
                push.traces = traces.then(|| self.traces(&delivery, &mut reader));
            }
        }
        push.ignored = reader.ignored;
        push
    }

    /// How messages get to the collector; the URL is passed to the returned function. None if no HTTP client can be
    /// created.
    fn delivery(&self, reader: &mut Reader) -> Option<impl Fn(Kind, Url) -> Delivery + use<>> {
        let protocol = "OTEL_EXPORTER_OTLP_PROTOCOL";
        reader.parsed(protocol, &self.otel_exporter_otlp_protocol, settings::protocol);
        let timeout = reader.parsed(
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            &self.otel_exporter_otlp_timeout,
            settings::timeout,
        );
        let timeout = timeout.unwrap_or(TIMEOUT);
        let client = self.client(reader)?;
        Some(move |kind, url| Delivery::new(kind, url, timeout, client.clone()))
    }

    fn metrics(&self, delivery: &impl Fn(Kind, Url) -> Delivery, reader: &mut Reader) -> MetricsPush {
        let interval = reader.parsed(
            "OTEL_EXPORT_INTERVAL",
            &self.otel_export_interval,
            settings::interval,
        );
        MetricsPush {
            delivery: delivery(Kind::Metrics, self.url_of_metrics(reader)),
            interval: interval.unwrap_or(INTERVAL),
        }
    }

    fn traces(&self, delivery: &impl Fn(Kind, Url) -> Delivery, reader: &mut Reader) -> Traces {
        let delay = reader.parsed(
            "OTEL_BSP_SCHEDULE_DELAY",
            &self.otel_bsp_schedule_delay,
            settings::milliseconds,
        );
        let longest_queue = reader.parsed(
            "OTEL_BSP_MAX_QUEUE_SIZE",
            &self.otel_bsp_max_queue_size,
            settings::queue_size,
        );
        Traces {
            delivery: delivery(Kind::Spans, self.url_of_traces(reader)),
            delay: delay.unwrap_or(SCHEDULE_DELAY),
            longest_queue: longest_queue.unwrap_or(QUEUE_SIZE),
            sampler: self.sampler(reader),
        }
    }

    fn sampler(&self, reader: &mut Reader) -> spans::Sampler {
        let variable = "OTEL_TRACES_SAMPLER";
        let named = reader.parsed(variable, &self.otel_traces_sampler, settings::sampler);
        let named = named.unwrap_or(spans::Named::ParentOrOn);
        // Each sampler has its own argument.
        let ratio = if named.has_ratio() {
            let variable = "OTEL_TRACES_SAMPLER_ARG";
            reader.parsed(variable, &self.otel_traces_sampler_arg, settings::ratio)
        } else {
            None
        };
        spans::Sampler::new(named, ratio.unwrap_or(1.0))
    }

    /// The attributes of the process: its identity, and the attributes that were given for it.
    fn attributes(&self, service: &str, reader: &mut Reader) -> Vec<(String, String)> {
        let further = self.otel_resource_attributes.as_deref().and_then(|text| {
            let variable = "OTEL_RESOURCE_ATTRIBUTES";
            reader.parsed(variable, text, |text| pairs(text).ok_or_else(malformed_pairs))
        });
        let mut attributes = further.unwrap_or_default();
        let mut set = |name: &str, value: &str| {
            attributes.retain(|(known, _)| known != name);
            attributes.push((name.to_owned(), value.to_owned()));
        };
        let named = self.otel_service_name.as_deref();
        let named = named.and_then(|name| reader.text("OTEL_SERVICE_NAME", name));
        set("service.name", named.unwrap_or(service));
        let deployment = self.deployment_name.as_deref();
        if let Some(name) = deployment.and_then(|name| reader.text("DEPLOYMENT_NAME", name)) {
            set("k8s.deployment.name", name);
        }
        attributes
    }

    pub(super) fn url_of_metrics(&self, reader: &mut Reader) -> Url {
        let variable = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
        let own = self.otel_exporter_otlp_metrics_endpoint.as_ref();
        let own = own.and_then(|url| reader.parsed(variable, url, settings::endpoint));
        own.unwrap_or_else(|| self.url_of("metrics", reader))
    }

    pub(super) fn url_of_traces(&self, reader: &mut Reader) -> Url {
        let variable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let own = self.otel_exporter_otlp_traces_endpoint.as_ref();
        let own = own.and_then(|url| reader.parsed(variable, url, settings::endpoint));
        own.unwrap_or_else(|| self.url_of("traces", reader))
    }

    fn url_of(&self, signal: &str, reader: &mut Reader) -> Url {
        let variable = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let url = reader.parsed(variable, &self.otel_exporter_otlp_endpoint, settings::endpoint);
        let mut url = url.unwrap_or_else(|| settings::OWN_COLLECTOR.clone());
        let path = format!("{}/v1/{signal}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    /// The headers of every push: those given for the collector, except those that HTTP does not allow.
    fn headers(&self, reader: &mut Reader) -> HeaderMap {
        let given = self.otel_exporter_otlp_headers.as_ref().and_then(|Secret(text)| {
            let variable = "OTEL_EXPORTER_OTLP_HEADERS";
            reader.parsed(variable, text, |text| headers(text).ok_or_else(malformed_pairs))
        });
        let mut headers = given.unwrap_or_default();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers
    }

    fn client(&self, reader: &mut Reader) -> Option<reqwest::Client> {
        // Arguments are evaluated before the start of the process, which would choose the TLS provider.
        choose_crypto();
        let variable = "OTEL_EXPORTER_OTLP_CERTIFICATE";
        let file = self.otel_exporter_otlp_certificate.as_deref();
        let authorities = file.filter(|file| !file.is_empty()).and_then(|file| {
            let read = std::fs::read(file).map_err(|error| error.to_string());
            let authorities = read
                .and_then(|pem| reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| chain(&error)));
            authorities.map_err(|why| reader.ignore(variable, why)).ok()
        });
        let mut client = reqwest::Client::builder()
            .default_headers(self.headers(reader))
            // The headers may hold a credential that is meant for this collector only.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(authorities) = authorities {
            client = client.tls_certs_merge(authorities);
        }
        let nothing_is_pushed = |error: reqwest::Error| {
            let why = format!(
                "no HTTP client can be created with it, so nothing is pushed: {}",
                chain(&error)
            );
            reader.ignore(variable, why);
        };
        client.build().map_err(nothing_is_pushed).ok()
    }
}

fn malformed_pairs() -> String {
    "write name=value,…, percent-encoded".to_owned()
}

fn headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text)? {
        let name = HeaderName::from_str(&name).ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Some(headers)
}

/// `name=value,…` with percent-encoded values, the format of OpenTelemetry's variables.
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
