use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use clap::Parser as _;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, HistogramDataPoint, NumberDataPoint, metric, number_data_point,
};
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::telemetry::{Again, Part};
use crate::{Metrics, Telemetry};

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
