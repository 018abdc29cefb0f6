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
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _, Value as Field};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::settings::Reader;
use super::*;
use crate::telemetry::{Again, Part};
use crate::{Metrics, Telemetry, logs, spans};

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

/// A push to this collector.
fn push(collector: &str, arguments: &[&str]) -> Push {
    let endpoint = format!("--otel-exporter-otlp-endpoint={collector}");
    let arguments = [&["--otel-enabled", &endpoint], arguments].concat();
    args(&arguments).unwrap().push("shop-controller")
}

type Received = (HeaderMap, ExportMetricsServiceRequest);

/// The collector's answers, in order; the last one is repeated.
type Answers = Arc<Mutex<Vec<(StatusCode, Vec<u8>)>>>;

/// A collector on loopback, which answers `200` to everything unless told otherwise.
struct Collector {
    url: String,
    received: mpsc::UnboundedReceiver<Received>,
    /// Messages of traces, as `opentelemetry-proto` defines them.
    traces: mpsc::UnboundedReceiver<DynamicMessage>,
}

impl Collector {
    async fn start(mut answers: Vec<(StatusCode, Vec<u8>)>) -> Self {
        answers.reverse();
        let (sender, received) = mpsc::unbounded_channel();
        let (trace_sender, traces) = mpsc::unbounded_channel();
        let answers = Answers::new(Mutex::new(answers));
        let app = Router::new()
            .route("/v1/metrics", post(receive))
            .with_state((sender, answers.clone()))
            .route("/v1/traces", post(receive_traces))
            .with_state((trace_sender, answers));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            received,
            traces,
        }
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
    answer(&answers)
}

async fn receive_traces(
    State((sender, answers)): State<(mpsc::UnboundedSender<DynamicMessage>, Answers)>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    assert_eq!(headers[CONTENT_TYPE], "application/x-protobuf");
    let definitions = DescriptorPool::decode(opentelemetry_proto::DESCRIPTORS).unwrap();
    let request = "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest";
    let request = definitions.get_message_by_name(request).unwrap();
    let message = DynamicMessage::decode(request, body).unwrap();
    sender.send(message).unwrap();
    answer(&answers)
}

fn answer(answers: &Answers) -> (StatusCode, Vec<u8>) {
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

/// The only point of a monotonic counter, and its value.
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
async fn metrics_arrive_with_the_names_types_and_attributes_of_the_contract() {
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
    let running = tokio::spawn(push.of_instance("shops-pod-1").run(metrics, ended.clone()));

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
    // 3 ms is between 2 and 5 ms; an hour is beyond all bounds.
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
async fn the_end_of_the_process_pushes_the_latest_metrics() {
    let mut collector = Collector::start(Vec::new()).await;
    let push = push(&collector.url, &["--otel-export-interval=1h"]);
    let metrics = Metrics::new().unwrap();
    let telemetry = Telemetry::new(&metrics, "provider_runtime", "shops").unwrap();
    let ended = CancellationToken::new();
    let running = tokio::spawn(push.run(metrics, ended.clone()));
    telemetry.started(true);
    ended.cancel();
    running.await.unwrap();
    let (_, export) = collector.next().await;
    assert_eq!(count(&export, "provider_runtime.startup.success").1, 1);
    assert!(collector.received.try_recv().is_err());
}

#[tokio::test]
async fn a_collector_that_never_answers_blocks_neither_metrics_nor_shutdown() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let metrics = Metrics::new().unwrap();
    let push = push(
        &url,
        &["--otel-export-interval=1ms", "--otel-exporter-otlp-timeout=50"],
    );
    let ended = CancellationToken::new();
    let running = tokio::spawn(push.run(metrics.clone(), ended.clone()));
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

/// A field of a message by its name in the definitions.
fn field(message: &DynamicMessage, name: &str) -> Field {
    let field = message.get_field_by_name(name);
    let named = message.descriptor().full_name().to_owned();
    field
        .unwrap_or_else(|| panic!("{named} has no {name}"))
        .into_owned()
}

fn messages(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let Field::List(all) = field(message, name) else {
        panic!("{name} is no list")
    };
    let all = all.into_iter();
    all.map(|each| each.as_message().unwrap().clone()).collect()
}

/// `name=value` of all attributes.
fn attributes_of(message: &DynamicMessage) -> Vec<String> {
    let attributes = messages(message, "attributes");
    let attributes = attributes.iter().map(|attribute| {
        let (key, value) = (field(attribute, "key"), field(attribute, "value"));
        let value = value.as_message().unwrap();
        let value = ["string_value", "int_value"].map(|kind| field(value, kind));
        let text = match &value {
            [Field::String(text), _] if !text.is_empty() => text.clone(),
            [_, Field::I64(number)] => number.to_string(),
            other => panic!("{other:?}"),
        };
        format!("{}={text}", key.as_str().unwrap())
    });
    attributes.collect()
}

/// Records what happens and sends it to this collector; also returns how many spans were lost for each reason.
async fn traced(
    collector: &str,
    arguments: &[&str],
    happens: impl AsyncFnOnce(),
) -> (Metrics, tokio::task::JoinHandle<()>, CancellationToken) {
    let endpoint = format!("--otel-exporter-otlp-endpoint={collector}");
    let on = "--otel-traces-exporter=otlp";
    let push = args(&[&[on, endpoint.as_str()], arguments].concat()).unwrap();
    let push = push.push("shop-controller").of_instance("pod");
    let metrics = Metrics::new().unwrap();
    let (recording, recorded) = push.record(&metrics).unwrap().unwrap();
    let subscriber = logs::subscriber("tests", logs::filter(false), std::io::sink, Some(recording));
    let ended = CancellationToken::new();
    let running = tokio::spawn(recorded.run(ended.clone()));
    let _until = tracing::subscriber::set_default(subscriber);
    happens().await;
    (metrics, running, ended)
}

fn shop(name: &str) -> tracing::Span {
    spans::pass(&spans::Object {
        kind: "Shop",
        namespace: "team",
        name,
        ..spans::Object::default()
    })
}

#[tokio::test]
async fn spans_arrive_as_the_definitions_of_opentelemetry_have_them() {
    let mut collector = Collector::start(Vec::new()).await;
    let arguments = [
        "--otel-bsp-schedule-delay=20",
        "--otel-resource-attributes=cluster=a",
    ];
    let happens = async || {
        // The span of the request is created while the span of the pass is entered.
        let work = async {
            let request = spans::outgoing("GET /resources", "inspector");
            spans::within(request, async {
                spans::note("http.response.status_code", 503);
                Err::<(), _>("no")
            })
            .await
        };
        tracing::Instrument::instrument(work, shop("web"))
            .await
            .unwrap_err();
    };
    let (_, running, ended) = traced(&collector.url, &arguments, happens).await;
    let export = collector.traces.recv().await.unwrap();
    let of_process = messages(&export, "resource_spans").remove(0);
    let resource = field(&of_process, "resource");
    assert_eq!(
        attributes_of(resource.as_message().unwrap()),
        [
            "cluster=a",
            "service.name=shop-controller",
            "service.instance.id=pod"
        ]
    );
    let of_scope = messages(&of_process, "scope_spans").remove(0);
    let scope = field(&of_scope, "scope");
    assert_eq!(
        field(scope.as_message().unwrap(), "name").as_str(),
        Some("runtime")
    );
    let spans = messages(&of_scope, "spans");
    let bytes = |span: &DynamicMessage, name: &str| field(span, name).as_bytes().unwrap().to_vec();
    let [asked, pass] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    assert_eq!(field(pass, "name").as_str(), Some("reconcile"));
    assert_eq!(field(asked, "name").as_str(), Some("GET /resources"));
    assert_eq!(bytes(asked, "trace_id"), bytes(pass, "trace_id"));
    assert_eq!(
        (bytes(pass, "trace_id").len(), bytes(pass, "span_id").len()),
        (16, 8)
    );
    assert_eq!(bytes(asked, "parent_span_id"), bytes(pass, "span_id"));
    assert!(bytes(pass, "parent_span_id").is_empty());
    assert_eq!(
        attributes_of(pass),
        ["object.kind=Shop", "object.namespace=team", "object.name=web"]
    );
    assert_eq!(
        attributes_of(asked),
        ["server.address=inspector", "http.response.status_code=503"]
    );
    let kind = |span: &DynamicMessage| field(span, "kind").as_enum_number().unwrap();
    // SPAN_KIND_INTERNAL and SPAN_KIND_CLIENT
    assert_eq!((kind(pass), kind(asked)), (1, 3));
    let status = field(asked, "status");
    // STATUS_CODE_ERROR
    assert_eq!(
        field(status.as_message().unwrap(), "code").as_enum_number(),
        Some(2)
    );
    // Sampled, and the parent is known to be in this process.
    assert_eq!(field(pass, "flags").as_u32(), Some(0x101));
    let time = |name: &str| field(pass, name).as_u64().unwrap();
    assert!(time("start_time_unix_nano") > 0);
    assert!(time("start_time_unix_nano") <= time("end_time_unix_nano"));
    for message in [&export, &of_process, &of_scope, asked, pass] {
        assert_eq!(message.unknown_fields().count(), 0);
    }
    ended.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn remaining_spans_are_pushed_in_batches_at_the_end() {
    let mut collector = Collector::start(Vec::new()).await;
    let happens = async || (0..600).for_each(|number| drop(shop(&number.to_string())));
    let arguments = ["--otel-bsp-schedule-delay=3600000"];
    let (metrics, running, ended) = traced(&collector.url, &arguments, happens).await;
    ended.cancel();
    running.await.unwrap();
    let mut arrived = Vec::new();
    while let Ok(export) = collector.traces.try_recv() {
        let of_process = messages(&export, "resource_spans").remove(0);
        let of_scope = messages(&of_process, "scope_spans").remove(0);
        arrived.push(messages(&of_scope, "spans").len());
    }
    assert_eq!(arrived, [512, 88]);
    assert!(!metrics.text().unwrap().contains("undelivered"));
}

#[tokio::test]
async fn undelivered_spans_are_counted_and_block_nothing() {
    let lost = |metrics: &Metrics, reason: &str| {
        let text = metrics.text().unwrap();
        let line = format!("trace_spans_dropped_total{{reason=\"{reason}\"}} ");
        let count = text
            .lines()
            .find_map(|line_| line_.strip_prefix(&line).map(str::to_owned));
        count.unwrap_or_else(|| "0".to_owned())
    };
    let happens = async || (0..5).for_each(|number| drop(shop(&number.to_string())));
    let away = (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
    let partial = messages::ExportTraceServiceResponse {
        partial_success: Some(messages::ExportTracePartialSuccess {
            rejected_spans: 2,
            error_message: "old".to_owned(),
        }),
    };
    let partial = (StatusCode::OK, partial.encode_to_vec());
    for (answer, queue, undelivered, full) in [
        (away.clone(), "5", "5", "0"),
        (partial, "5", "2", "0"),
        (away, "3", "3", "2"),
    ] {
        let collector = Collector::start(vec![answer]).await;
        let queue = format!("--otel-bsp-max-queue-size={queue}");
        let (metrics, running, ended) = traced(&collector.url, &[&queue], happens).await;
        ended.cancel();
        running.await.unwrap();
        assert_eq!(lost(&metrics, "undelivered"), undelivered);
        assert_eq!(lost(&metrics, "full"), full);
    }
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (_, running, ended) = traced(&url, &["--otel-bsp-schedule-delay=1"], happens).await;
    let (_asking, _) = silent.accept().await.unwrap();
    let begun = std::time::Instant::now();
    ended.cancel();
    running.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// On one thread, so that the log captured here is only this test's.
#[tokio::test]
async fn a_collector_is_logged_when_it_goes_and_when_it_comes_back() {
    let away = || {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            [b"full\x1b[2J\n".to_vec(), vec![b'.'; 10_000]].concat(),
        )
    };
    let rejecting = ExportMetricsServiceResponse {
        partial_success: Some(
            opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess {
                rejected_data_points: 2,
                error_message: format!("old\r{}", ",".repeat(10_000)),
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
    let subscriber = logs::subscriber("tests", logs::filter(false), move || heard.clone(), None);
    let _until = tracing::subscriber::set_default(subscriber);
    let running = tokio::spawn(push.run(Metrics::new().unwrap(), ended.clone()));
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
                "could not push metrics",
                &format!(
                    r"the collector answered 503 Service Unavailable: full\u{{1b}}[2J\n{}…",
                    ".".repeat(485)
                )
            ),
            told("metrics are pushed", ""),
            told(
                "could not push metrics",
                &format!(r"the collector did not take 2 metrics: old\r{}…", ",".repeat(495))
            ),
            told("metrics are pushed", ""),
        ]
    );
    assert!(!text.contains("secret"), "{text}");
}

/// Whether metrics and traces are pushed, and which settings are warned about.
fn understood(arguments: &[&str]) -> (bool, bool, Vec<String>) {
    let push = args(arguments).unwrap().push("program");
    let ignored = push.ignored.iter().map(|ignored| ignored.variable.to_owned());
    (push.metrics.is_some(), push.traces.is_some(), ignored.collect())
}

#[test]
fn nothing_is_pushed_unless_asked_for() {
    assert_eq!(understood(&[]), (false, false, vec![]));
    assert_eq!(understood(&["--otel-enabled"]), (true, false, vec![]));
    let figures = args(&["--otel-enabled"]).unwrap().push("program");
    assert!(figures.record(&Metrics::new().unwrap()).unwrap().is_none());
}

#[test]
fn the_collector_is_found_as_opentelemetry_says() {
    let urls = |arguments: &[&str]| {
        let (args, mut reader) = (args(arguments).unwrap(), Reader::default());
        [args.url_of_metrics(&mut reader), args.url_of_traces(&mut reader)].map(String::from)
    };
    let check = |arguments: &[&str], expected: [&str; 2]| assert_eq!(urls(arguments), expected);
    let default = [
        "http://localhost:4318/v1/metrics",
        "http://localhost:4318/v1/traces",
    ];
    check(&[], default);
    check(&["--otel-exporter-otlp-endpoint=collector:4318"], default);
    let base = "--otel-exporter-otlp-endpoint=https://collector:4318/otlp/";
    let (metrics, traces) = (
        "https://collector:4318/otlp/v1/metrics",
        "https://collector:4318/otlp/v1/traces",
    );
    check(&[base], [metrics, traces]);
    let own = "--otel-exporter-otlp-metrics-endpoint=http://collector/here";
    check(&[base, own], ["http://collector/here", traces]);
    let own = "--otel-exporter-otlp-traces-endpoint=http://collector/there";
    check(&[base, own], [metrics, "http://collector/there"]);
    let none = "--otel-exporter-otlp-traces-endpoint=";
    check(&[base, none], [metrics, traces]);
}

/// As OpenTelemetry's specification of environment variables requires: other programs read these variables, too.
#[test]
fn a_setting_that_cannot_be_read_counts_as_not_set_and_is_warned_of() {
    let plain = args(&["--otel-enabled", "--otel-traces-exporter=otlp"])
        .unwrap()
        .push("program");
    for (argument, said) in [
        ("--otel-export-interval=30", "no unit"),
        ("--otel-export-interval=0s", "longer than 0"),
        ("--otel-exporter-otlp-endpoint=collector:4318", "http://"),
        (
            "--otel-exporter-otlp-endpoint=http://me:secret@collector:x",
            "port",
        ),
        ("--otel-exporter-otlp-metrics-endpoint=collector", "relative URL"),
        ("--otel-exporter-otlp-traces-endpoint=collector", "relative URL"),
        ("--otel-exporter-otlp-protocol=grpc", "grpc is not known"),
        ("--otel-exporter-otlp-timeout=0", "at least 1"),
        ("--otel-exporter-otlp-timeout=10s", "number of milliseconds"),
        ("--otel-traces-exporter=otlp,console", "console is not known"),
        (
            "--otel-traces-sampler=jaeger_remote",
            "jaeger_remote is not known",
        ),
        ("--otel-bsp-schedule-delay=-1", "number of milliseconds"),
        ("--otel-bsp-max-queue-size=0", "from 1 to 65536"),
        ("--otel-bsp-max-queue-size=many", "from 1 to 65536"),
        ("--otel-exporter-otlp-headers=secret", "name=value"),
        ("--otel-exporter-otlp-headers=a b=secret", "name=value"),
        ("--otel-exporter-otlp-certificate=/none/secret", "No such file"),
        ("--otel-resource-attributes=secret=%ff", "name=value"),
    ] {
        let export = ["--otel-enabled", "--otel-traces-exporter=otlp"];
        let name = argument.split('=').next().unwrap();
        let mut arguments = export.to_vec();
        arguments.retain(|known| !known.starts_with(name));
        arguments.push(argument);
        let args = args(&arguments).unwrap();
        let push = args.push("program");
        let [ignored] = push.ignored.as_slice() else {
            panic!("{argument}: {:?}", push.ignored)
        };
        let variable = name[2..].replace('-', "_").to_uppercase();
        assert_eq!(ignored.variable, variable);
        assert!(
            ignored.why.contains(said) && !ignored.why.contains("secret"),
            "{argument}: {ignored:?}"
        );
        let as_without = |push: &Push| format!("{:?} {:?} {:?}", push.metrics, push.traces, push.attributes);
        assert_eq!(as_without(&push), as_without(&plain), "{argument}");
        if argument.contains("headers") {
            assert!(!format!("{args:?}").contains("secret"));
        }
        // If nothing is exported, only the settings that turn exporting on are read.
        let expected = Vec::from_iter((name == "--otel-traces-exporter").then_some(variable));
        if expected.is_empty() {
            assert_eq!(understood(&[argument]), (false, false, expected));
        }
    }
    let both = vec!["OTEL_ENABLED".to_owned(), "OTEL_TRACES_EXPORTER".to_owned()];
    let others = ["--otel-enabled=perhaps", "--otel-traces-exporter=zipkin"];
    assert_eq!(understood(&others), (false, false, both));
}

#[test]
fn settings_ignore_case_and_empty_ones_count_as_not_set() {
    for argument in ["OTLP", " otlp ", "none,otlp"] {
        let argument = format!("--otel-traces-exporter={argument}");
        assert_eq!(understood(&[&argument]), (false, true, vec![]), "{argument}");
    }
    let on = "--otel-traces-exporter=otlp";
    let empty = [
        "--otel-exporter-otlp-endpoint=",
        "--otel-exporter-otlp-protocol=",
        "--otel-exporter-otlp-headers=",
        "--otel-exporter-otlp-certificate=",
        "--otel-resource-attributes=",
        "--otel-service-name=",
        "--otel-traces-sampler=",
        "--otel-bsp-max-queue-size= ",
    ];
    assert_eq!(understood(&[&[on], &empty[..]].concat()), (false, true, vec![]));
    let none = ["--otel-traces-exporter=", "--otel-enabled="];
    assert_eq!(understood(&none), (false, false, vec![]));
    // The argument of a sampler without a ratio is ignored: it is meant for another sampler.
    let of_another = "--otel-traces-sampler-arg=endpoint=http://here";
    assert_eq!(understood(&[on, of_another]), (false, true, vec![]));
    let ratio = "--otel-traces-sampler=TraceIdRatio";
    let ignored = vec!["OTEL_TRACES_SAMPLER_ARG".to_owned()];
    assert_eq!(understood(&[on, ratio, of_another]), (false, true, ignored));
}

#[cfg(unix)]
#[test]
fn a_setting_that_is_no_text_counts_as_not_set() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    let argument = OsString::from_vec(b"--otel-traces-exporter=\xff".to_vec());
    let args = Args::try_parse_from(["program".into(), argument]).unwrap().push;
    let push = args.push("program");
    assert!(push.traces.is_none());
    assert_eq!(push.ignored[0].why, "it is not UTF-8");
}
