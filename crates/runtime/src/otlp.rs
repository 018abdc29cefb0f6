//! Pushes the figures to a collector: OTLP over HTTP, in protobuf.
//!
//! What [`Metrics`] holds is read and written down in OpenTelemetry's terms; nothing is recorded for it, and without a
//! [`Push`] nothing of this exists.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::args::boolean;
use crate::process::choose_crypto;
use crate::{GoDuration, Metrics, chain};

/// What the end of the process waits for the last push at most.
const LAST_WITHIN: Duration = Duration::from_secs(3);

/// Of what a collector says, so many bytes are read.
const LARGEST_ANSWER: usize = 64 << 10;

/// Whether and where the figures are pushed; flattened into a program's `Args`.
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
    /// URL of the collector; v1/metrics is added to its path.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", default_value = "http://localhost:4318", value_parser = endpoint)]
    otel_exporter_otlp_endpoint: Url,
    /// URL to push to, as it is.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", value_parser = endpoint)]
    otel_exporter_otlp_metrics_endpoint: Option<Url>,
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

fn endpoint(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("write a URL that begins with http:// or https://".to_owned()),
    }
}

/// Why figures cannot be pushed as the arguments say.
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
    #[error("could not make a client for the collector of figures")]
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
        if !self.otel_enabled {
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
        Ok(Some(Push {
            url: self.url(),
            interval: self.otel_export_interval.0,
            timeout: Duration::from_millis(self.otel_exporter_otlp_timeout),
            attributes,
            client: self.client(headers)?,
        }))
    }

    fn url(&self) -> Url {
        self.otel_exporter_otlp_metrics_endpoint
            .clone()
            .unwrap_or_else(|| {
                let mut url = self.otel_exporter_otlp_endpoint.clone();
                let path = format!("{}/v1/metrics", url.path().trim_end_matches('/'));
                url.set_path(&path);
                url
            })
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

/// Figures on their way to a collector.
#[derive(Clone, Debug)]
pub struct Push {
    url: Url,
    interval: Duration,
    timeout: Duration,
    attributes: Vec<(String, String)>,
    client: reqwest::Client,
}

/// A push that did not arrive.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error("the collector could not be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the collector answered {status}: {said}")]
    Refused {
        status: reqwest::StatusCode,
        said: String,
    },
    #[error("the collector did not take {count} figures: {said}")]
    Rejected { count: i64, said: String },
}

impl Push {
    /// Pushes once in an interval until `ended`, and then once more, for which it takes no longer than a moment.
    ///
    /// It is logged once when the collector is reached, and once when it is not any more.
    pub(crate) async fn run(mut self, metrics: Metrics, instance: &str, ended: CancellationToken) {
        self.attributes.retain(|(name, _)| name != "service.instance.id");
        self.attributes
            .push(("service.instance.id".to_owned(), instance.to_owned()));
        let mut arrives = None;
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while ended.run_until_cancelled(ticks.tick()).await.is_some() {
            let sending = self.send(&metrics, self.timeout);
            // The last push has all that is in one that is given up.
            let Some(outcome) = ended.run_until_cancelled(sending).await else {
                break;
            };
            self.note(&outcome, &mut arrives);
        }
        let outcome = self.send(&metrics, self.timeout.min(LAST_WITHIN)).await;
        self.note(&outcome, &mut arrives);
    }

    async fn send(&self, metrics: &Metrics, within: Duration) -> Result<(), Undelivered> {
        let body = export(metrics, &self.attributes).encode_to_vec();
        let request = self.client.post(self.url.clone()).timeout(within).body(body);
        let unreachable = |error: reqwest::Error| Undelivered::Unreachable(error.without_url());
        let mut answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let mut said = Vec::new();
        while said.len() < LARGEST_ANSWER
            && let Some(piece) = answer.chunk().await.map_err(unreachable)?
        {
            said.extend_from_slice(&piece);
        }
        if !status.is_success() {
            let said = String::from_utf8_lossy(&said[..said.len().min(500)])
                .trim()
                .to_owned();
            return Err(Undelivered::Refused { status, said });
        }
        // What is no message of OTLP says nothing about figures that were not taken.
        let answer = ExportMetricsServiceResponse::decode(said.as_slice()).unwrap_or_default();
        match answer.partial_success {
            Some(partial) if partial.rejected_data_points > 0 => Err(Undelivered::Rejected {
                count: partial.rejected_data_points,
                said: partial.error_message,
            }),
            _ => Ok(()),
        }
    }

    fn note(&self, outcome: &Result<(), Undelivered>, arrives: &mut Option<bool>) {
        if *arrives == Some(outcome.is_ok()) {
            return;
        }
        *arrives = Some(outcome.is_ok());
        // Without a user and a password, which a URL may have.
        let (collector, path) = (self.url.origin().ascii_serialization(), self.url.path());
        match outcome {
            Ok(()) => tracing::info!(collector, path, "figures are pushed"),
            Err(error) => tracing::warn!(collector, path, error = chain(error), "could not push figures"),
        }
    }
}

/// All figures in OpenTelemetry's terms.
fn export(metrics: &Metrics, attributes: &[(String, String)]) -> ExportMetricsServiceRequest {
    let times = Times {
        start: nanoseconds(metrics.since()),
        now: nanoseconds(SystemTime::now()),
    };
    let families = metrics.gather();
    let figures = families
        .iter()
        .filter_map(|family| times.figure(metrics.name_of(family.name()), family))
        .collect();
    let attributes = attributes
        .iter()
        .map(|(name, value)| attribute(name, value))
        .collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: env!("CARGO_PKG_NAME").to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics: figures,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Between which a count was counted.
struct Times {
    start: u64,
    now: u64,
}

impl Times {
    /// None for what we have none of: summaries.
    fn figure(&self, name: String, family: &MetricFamily) -> Option<Metric> {
        let points = family.get_metric().iter();
        let temporality = AggregationTemporality::Cumulative.into();
        let data = match family.get_field_type() {
            MetricType::COUNTER => metric::Data::Sum(Sum {
                data_points: points
                    .map(|point| self.number(point, point.get_counter().get_value()))
                    .collect(),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            MetricType::GAUGE => metric::Data::Gauge(Gauge {
                data_points: points
                    .map(|point| self.number(point, point.get_gauge().get_value()))
                    .collect(),
            }),
            MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
                data_points: points.map(|point| self.histogram(point)).collect(),
                aggregation_temporality: temporality,
            }),
            MetricType::SUMMARY | MetricType::UNTYPED => return None,
        };
        Some(Metric {
            unit: unit(&name).to_owned(),
            name,
            description: family.help().to_owned(),
            data: Some(data),
            ..Metric::default()
        })
    }

    fn number(&self, point: &proto::Metric, value: f64) -> NumberDataPoint {
        NumberDataPoint {
            attributes: attributes(point.get_label()),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            value: Some(number_data_point::Value::AsDouble(value)),
            ..NumberDataPoint::default()
        }
    }

    /// Prometheus counts what is at most a bound, OpenTelemetry what is between one and the next.
    fn histogram(&self, point: &proto::Metric) -> HistogramDataPoint {
        let histogram = point.get_histogram();
        let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
        for bucket in histogram.get_bucket() {
            bounds.push(bucket.upper_bound());
            counts.push(bucket.cumulative_count().saturating_sub(below));
            below = bucket.cumulative_count();
        }
        counts.push(histogram.get_sample_count().saturating_sub(below));
        HistogramDataPoint {
            attributes: attributes(point.get_label()),
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: histogram.get_sample_count(),
            sum: Some(histogram.get_sample_sum()),
            bucket_counts: counts,
            explicit_bounds: bounds,
            ..HistogramDataPoint::default()
        }
    }
}

fn unit(name: &str) -> &'static str {
    if name.ends_with("_seconds") || name.ends_with("_seconds_total") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        ""
    }
}

fn attributes(labels: &[LabelPair]) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|label| attribute(label.name(), label.value()))
        .collect()
}

fn attribute(name: &str, value: &str) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::Bytes;
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::post;
    use clap::Parser as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Telemetry;
    use crate::telemetry::{Again, Part};

    #[derive(Debug, clap::Parser)]
    struct Args {
        #[command(flatten)]
        push: PushArgs,
    }

    fn args(arguments: &[&str]) -> Result<PushArgs, String> {
        let arguments = ["program"].iter().chain(arguments);
        Args::try_parse_from(arguments)
            .map(|args| args.push)
            .map_err(|error| error.to_string())
    }

    /// A push to this collector, if to any.
    fn push(collector: &str, arguments: &[&str]) -> Push {
        let endpoint = format!("--otel-exporter-otlp-endpoint={collector}");
        let arguments = [&["--otel-enabled", &endpoint], arguments].concat();
        args(&arguments)
            .unwrap()
            .push("shop-controller")
            .unwrap()
            .unwrap()
    }

    type Received = (HeaderMap, ExportMetricsServiceRequest);

    /// What a collector answers, one after the other, and the last one from then on.
    type Answers = Arc<Mutex<Vec<(StatusCode, Vec<u8>)>>>;

    /// A collector on loopback, which answers `200` to all unless told otherwise.
    struct Collector {
        url: String,
        received: mpsc::UnboundedReceiver<Received>,
    }

    impl Collector {
        async fn start(mut answers: Vec<(StatusCode, Vec<u8>)>) -> Self {
            answers.reverse();
            let (sender, received) = mpsc::unbounded_channel();
            let state = (sender, Answers::new(Mutex::new(answers)));
            let app = Router::new()
                .route("/v1/metrics", post(receive))
                .with_state(state);
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            tokio::spawn(async move { axum::serve(listener, app).await });
            Self { url, received }
        }

        async fn next(&mut self) -> Received {
            self.received.recv().await.unwrap()
        }
    }

    async fn receive(
        State((sender, answers)): State<(mpsc::UnboundedSender<Received>, Answers)>,
        headers: HeaderMap,
        body: Bytes,
    ) -> (StatusCode, Vec<u8>) {
        let figures = ExportMetricsServiceRequest::decode(body).unwrap();
        sender.send((headers, figures)).unwrap();
        let mut answers = answers.lock().unwrap();
        if answers.len() > 1 {
            answers.pop().unwrap()
        } else {
            answers.first().cloned().unwrap_or((StatusCode::OK, Vec::new()))
        }
    }

    fn figure<'e>(export: &'e ExportMetricsServiceRequest, name: &str) -> &'e metric::Data {
        let figures = &export.resource_metrics[0].scope_metrics[0].metrics;
        let figure = figures.iter().find(|figure| figure.name == name);
        let names = || figures.iter().map(|figure| &figure.name).collect::<Vec<_>>();
        figure
            .unwrap_or_else(|| panic!("no {name} in {:?}", names()))
            .data
            .as_ref()
            .unwrap()
    }

    fn value(point: &NumberDataPoint) -> i64 {
        match point.value {
            Some(number_data_point::Value::AsDouble(value)) => value as i64,
            _ => panic!("{point:?}"),
        }
    }

    /// The one point of a count that only grows, and its value.
    fn count<'e>(export: &'e ExportMetricsServiceRequest, name: &str) -> (&'e NumberDataPoint, i64) {
        let metric::Data::Sum(sum) = figure(export, name) else {
            panic!("{name} is no sum");
        };
        assert!(sum.is_monotonic, "{name}");
        assert_eq!(
            sum.aggregation_temporality(),
            AggregationTemporality::Cumulative,
            "{name}"
        );
        (&sum.data_points[0], value(&sum.data_points[0]))
    }

    fn gauge(export: &ExportMetricsServiceRequest, name: &str) -> i64 {
        let metric::Data::Gauge(gauge) = figure(export, name) else {
            panic!("{name} is no gauge");
        };
        value(&gauge.data_points[0])
    }

    fn histogram<'e>(export: &'e ExportMetricsServiceRequest, name: &str) -> &'e HistogramDataPoint {
        let metric::Data::Histogram(histogram) = figure(export, name) else {
            panic!("{name} is no histogram");
        };
        let cumulative = AggregationTemporality::Cumulative;
        assert_eq!(histogram.aggregation_temporality(), cumulative, "{name}");
        let point = &histogram.data_points[0];
        assert_eq!(
            point.bucket_counts.len(),
            point.explicit_bounds.len() + 1,
            "{name}"
        );
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count, "{name}");
        point
    }

    fn said(attributes: &[KeyValue]) -> Vec<String> {
        let mut said: Vec<_> = attributes
            .iter()
            .map(|attribute| {
                let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
                let Some(any_value::Value::StringValue(text)) = value else {
                    panic!("{attribute:?}");
                };
                format!("{}={text}", attribute.key)
            })
            .collect();
        said.sort();
        said
    }

    #[tokio::test]
    async fn figures_arrive_under_the_names_of_the_contract_with_their_types_and_attributes() {
        let mut collector = Collector::start(Vec::new()).await;
        let push = push(
            &collector.url,
            &[
                "--otel-export-interval=10ms",
                "--deployment-name=shops-v1-controller",
                "--otel-resource-attributes=cluster=a%20b,service.instance.id=none",
                "--otel-exporter-otlp-headers=authorization=Bearer%20x, Team=a",
            ],
        );
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "unstructured_runtime", "shops").unwrap();
        telemetry.tell_depth(|| 2).unwrap();
        telemetry.queue().begun(Duration::from_millis(3), Duration::ZERO);
        telemetry.queue().begun(Duration::from_hours(1), Duration::ZERO);
        let failing = telemetry.time(Part::Create, async { Err::<(), _>("no") });
        let passing = telemetry.pass("Shop", "default", failing, |()| Again::Later);
        passing.await.unwrap_err();
        let ended = CancellationToken::new();
        let running = tokio::spawn(push.run(metrics, "shops-pod-1", ended.clone()));

        let (headers, export) = collector.next().await;
        assert_eq!(headers[CONTENT_TYPE], "application/x-protobuf");
        assert_eq!(
            (&headers["authorization"], &headers["team"]),
            (
                &HeaderValue::from_static("Bearer x"),
                &HeaderValue::from_static("a")
            )
        );
        assert_eq!(
            said(&export.resource_metrics[0].resource.as_ref().unwrap().attributes),
            [
                "cluster=a b",
                "k8s.deployment.name=shops-v1-controller",
                "service.instance.id=shops-pod-1",
                "service.name=shop-controller",
            ]
        );
        assert_eq!(count(&export, "unstructured_runtime.reconcile.failure").1, 1);
        assert_eq!(
            count(&export, "unstructured_runtime.external.create.failure").1,
            1
        );
        let (requeued, times) = count(&export, "unstructured_runtime.reconcile.queue.requeues");
        assert_eq!(
            (said(&requeued.attributes), times),
            (vec!["reason=error".to_owned()], 1)
        );
        assert!(requeued.start_time_unix_nano > 0 && requeued.start_time_unix_nano < requeued.time_unix_nano);
        let (passes, _) = count(&export, "controller_reconcile_total");
        assert_eq!(
            said(&passes.attributes),
            ["kind=Shop", "namespace=default", "result=error"]
        );
        assert_eq!(gauge(&export, "unstructured_runtime.reconcile.queue.depth"), 2);
        assert_eq!(gauge(&export, "unstructured_runtime.reconcile.in_flight"), 0);
        let waited = histogram(
            &export,
            "unstructured_runtime.reconcile.queue.wait.duration_seconds",
        );
        assert_eq!((waited.count, waited.sum), (2, Some(3600.003)));
        // 3 ms lie between 2 and 5 ms; an hour lies beyond all bounds.
        assert_eq!(
            (waited.bucket_counts[1], waited.bucket_counts.last()),
            (1, Some(&1))
        );
        histogram(
            &export,
            "unstructured_runtime.reconcile.queue.oldest_item_age_seconds",
        );
        ended.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_the_process_pushes_what_there_is_by_then() {
        let mut collector = Collector::start(Vec::new()).await;
        let push = push(&collector.url, &["--otel-export-interval=1h"]);
        let metrics = Metrics::new().unwrap();
        let telemetry = Telemetry::new(&metrics, "provider_runtime", "shops").unwrap();
        let ended = CancellationToken::new();
        let running = tokio::spawn(push.run(metrics, "pod", ended.clone()));
        telemetry.started(true);
        ended.cancel();
        running.await.unwrap();
        let (_, export) = collector.next().await;
        assert_eq!(count(&export, "provider_runtime.startup.success").1, 1);
        assert!(collector.received.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_collector_that_never_answers_holds_up_neither_figures_nor_the_end() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let metrics = Metrics::new().unwrap();
        let push = push(
            &url,
            &["--otel-export-interval=1ms", "--otel-exporter-otlp-timeout=50"],
        );
        let ended = CancellationToken::new();
        let running = tokio::spawn(push.run(metrics.clone(), "pod", ended.clone()));
        let (_asking, _) = silent.accept().await.unwrap();
        metrics.answered("200", "here", "GET");
        assert!(metrics.text().unwrap().contains("rest_client_requests_total"));
        ended.cancel();
        running.await.unwrap();
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// In one thread, so that what is logged here is heard here alone.
    #[tokio::test]
    async fn a_collector_is_logged_when_it_goes_and_when_it_comes_back() {
        let away = || (StatusCode::SERVICE_UNAVAILABLE, b"full".to_vec());
        let rejecting = ExportMetricsServiceResponse {
            partial_success: Some(
                opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess {
                    rejected_data_points: 2,
                    error_message: "old".to_owned(),
                },
            ),
        };
        let rejecting = (StatusCode::OK, rejecting.encode_to_vec());
        let well = || (StatusCode::OK, Vec::new());
        let answers = vec![away(), away(), well(), well(), rejecting, well()];
        let mut collector = Collector::start(answers).await;
        let push = push(
            &collector.url.replace("//", "//me:secret@"),
            &["--otel-export-interval=1ms"],
        );
        let (lines, ended) = (Lines::default(), CancellationToken::new());
        let heard = lines.clone();
        let subscriber = crate::logs::subscriber("tests", crate::logs::filter(false), move || heard.clone());
        let _until = tracing::subscriber::set_default(subscriber);
        let running = tokio::spawn(push.run(Metrics::new().unwrap(), "pod", ended.clone()));
        for _ in 0..7 {
            collector.next().await;
        }
        ended.cancel();
        running.await.unwrap();
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let said: Vec<_> = text
            .lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let error = line["error"].as_str().unwrap_or_default().to_owned();
                (line["message"].as_str().unwrap().to_owned(), error)
            })
            .collect();
        let told = |message: &str, error: &str| (message.to_owned(), error.to_owned());
        assert_eq!(
            said,
            [
                told(
                    "could not push figures",
                    "the collector answered 503 Service Unavailable: full"
                ),
                told("figures are pushed", ""),
                told(
                    "could not push figures",
                    "the collector did not take 2 figures: old"
                ),
                told("figures are pushed", ""),
            ]
        );
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn nothing_is_pushed_unless_asked_for() {
        assert!(args(&[]).unwrap().push("program").unwrap().is_none());
    }

    #[test]
    fn the_collector_is_found_as_opentelemetry_says() {
        let url = |arguments: &[&str]| args(arguments).unwrap().url().to_string();
        assert_eq!(url(&[]), "http://localhost:4318/v1/metrics");
        let base = "--otel-exporter-otlp-endpoint=https://collector:4318/otlp/";
        assert_eq!(url(&[base]), "https://collector:4318/otlp/v1/metrics");
        let own = "--otel-exporter-otlp-metrics-endpoint=http://collector/here";
        assert_eq!(url(&[base, own]), "http://collector/here");
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_no_credential_is_told() {
        for (argument, said) in [
            ("--otel-enabled=perhaps", "true or false"),
            ("--otel-export-interval=30", "no unit"),
            ("--otel-export-interval=0s", "longer than 0"),
            ("--otel-exporter-otlp-endpoint=collector:4318", "http://"),
            ("--otel-exporter-otlp-timeout=0", "0 is not in"),
        ] {
            let refused = args(&[argument]).unwrap_err();
            assert!(refused.contains(said), "{argument}: {refused}");
        }
        for (argument, said) in [
            (
                "--otel-exporter-otlp-headers=secret",
                "OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (
                "--otel-exporter-otlp-headers=a b=secret",
                "OTEL_EXPORTER_OTLP_HEADERS",
            ),
            ("--otel-resource-attributes=%ff=1", "OTEL_RESOURCE_ATTRIBUTES"),
        ] {
            // Also while it is off: whoever turns it on is not to be surprised.
            let args = args(&[argument]).unwrap();
            let refused = args.push("program").unwrap_err().to_string();
            assert!(refused.contains(said) && !refused.contains("secret"), "{refused}");
            assert!(!format!("{args:?}").contains("secret"));
        }
    }
}
