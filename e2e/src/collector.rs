//! A collector on loopback: it receives OTLP over HTTP, and remembers the metrics that each process pushed last, and
//! all spans.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, NumberDataPoint, metric, number_data_point,
};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The type of a metric, and its value, summed over all attributes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// A counter, which starts with the process.
    Count(f64),
    /// A gauge.
    Gauge(f64),
    /// The number of values in a histogram.
    Histogram(u64),
    /// None of these.
    Other,
}

impl Figure {
    /// True when something was counted or measured.
    pub fn is_some(self) -> bool {
        match self {
            Self::Count(value) | Self::Gauge(value) => value > 0.0,
            Self::Histogram(count) => count > 0,
            Self::Other => false,
        }
    }
}

/// What a process pushed last.
#[derive(Debug, Clone, Default)]
pub struct Pushed {
    /// Attributes of the process.
    pub attributes: BTreeMap<String, String>,
    /// Its metrics by name.
    pub figures: BTreeMap<String, Figure>,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// `service.name` of the process that it was in.
    pub service: String,
    /// The trace.
    pub trace: Vec<u8>,
    /// Its id.
    pub id: Vec<u8>,
    /// The parent span; empty for the root of a trace.
    pub parent: Vec<u8>,
    /// Its name.
    pub name: String,
    /// As the definitions number kinds.
    pub kind: i32,
    /// Its attributes that are strings or numbers.
    pub attributes: BTreeMap<String, String>,
    /// True when it is marked as an error.
    pub is_failed: bool,
    /// When it began, in nanoseconds of Unix.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
}

type All = Arc<Mutex<Vec<Pushed>>>;
type Spans = Arc<Mutex<Vec<Span>>>;

/// The collector; it ends with this value.
pub struct Collector {
    address: SocketAddr,
    all: All,
    spans: Spans,
    /// Ends all connections when it is dropped.
    runtime: Option<Runtime>,
}

impl Collector {
    /// Starts it.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("could not start the threads of a collector")?;
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .context("no port is free")?;
        let (address, all, spans) = (listener.local_addr()?, All::default(), Spans::default());
        let definitions = DescriptorPool::decode(opentelemetry_proto::DESCRIPTORS);
        let definitions = definitions.context("the definitions of OTLP cannot be read")?;
        let request = "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest";
        let request = definitions.get_message_by_name(request);
        let request = request.context("the definitions of OTLP have no traces")?;
        let app = Router::new()
            .route("/v1/metrics", post(receive))
            .with_state(all.clone())
            .route("/v1/traces", post(receive_spans))
            .with_state((spans.clone(), request));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Ok(Self {
            address,
            all,
            spans,
            runtime: Some(runtime),
        })
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What the process with this attribute pushed last.
    pub fn pushed(&self, attribute: &str, value: &str) -> Option<Pushed> {
        let all = locked(&self.all);
        let found = all
            .iter()
            .find(|pushed| pushed.attributes.get(attribute).is_some_and(|said| said == value));
        found.cloned()
    }
}

impl Collector {
    /// All spans so far, in the order of arrival.
    pub fn spans(&self) -> Vec<Span> {
        locked(&self.spans).clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn locked<T>(all: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn receive(State(all): State<All>, body: Bytes) -> StatusCode {
    let Ok(export) = ExportMetricsServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    for resource in export.resource_metrics {
        let attributes = resource.resource.unwrap_or_default().attributes;
        let metrics = resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
        let pushed = Pushed {
            attributes: attributes.iter().filter_map(text).collect(),
            figures: metrics.map(|metric| (metric.name, figure(metric.data))).collect(),
        };
        let mut all = locked(&all);
        all.retain(|earlier| earlier.attributes != pushed.attributes);
        all.push(pushed);
    }
    StatusCode::OK
}

async fn receive_spans(
    State((spans, request)): State<(Spans, MessageDescriptor)>,
    body: Bytes,
) -> StatusCode {
    let Ok(export) = DynamicMessage::decode(request, body) else {
        return StatusCode::BAD_REQUEST;
    };
    for of_process in messages(&export, "resource_spans") {
        let resource = field(&of_process, "resource");
        let of_resource = resource.as_message().map(attributes).unwrap_or_default();
        let service = of_resource.get("service.name").cloned().unwrap_or_default();
        let scopes = messages(&of_process, "scope_spans").into_iter();
        let found = scopes.flat_map(|scope| messages(&scope, "spans"));
        locked(&spans).extend(found.map(|span| read(&service, &span)));
    }
    StatusCode::OK
}

fn read(service: &str, span: &DynamicMessage) -> Span {
    let bytes = |name: &str| field(span, name).as_bytes().map(|bytes| bytes.to_vec());
    let time = |name: &str| field(span, name).as_u64().unwrap_or_default();
    let status = field(span, "status");
    let code = status.as_message().map(|status| field(status, "code"));
    Span {
        service: service.to_owned(),
        trace: bytes("trace_id").unwrap_or_default(),
        id: bytes("span_id").unwrap_or_default(),
        parent: bytes("parent_span_id").unwrap_or_default(),
        name: field(span, "name").as_str().unwrap_or_default().to_owned(),
        kind: field(span, "kind").as_enum_number().unwrap_or_default(),
        attributes: attributes(span),
        // STATUS_CODE_ERROR
        is_failed: code.and_then(|code| code.as_enum_number()) == Some(2),
        began: time("start_time_unix_nano"),
        ended: time("end_time_unix_nano"),
    }
}

/// A field by its name in the definitions; a name that they do not have is the caller's mistake.
fn field(message: &DynamicMessage, name: &str) -> Value {
    let field = message.get_field_by_name(name);
    field.map_or(Value::Bool(false), std::borrow::Cow::into_owned)
}

fn messages(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let all = field(message, name);
    let all = all.as_list().unwrap_or_default().iter();
    all.filter_map(|each| each.as_message().cloned()).collect()
}

fn attributes(message: &DynamicMessage) -> BTreeMap<String, String> {
    let attributes = messages(message, "attributes").into_iter();
    let read = |attribute: DynamicMessage| {
        let (key, value) = (field(&attribute, "key"), field(&attribute, "value"));
        let value = value.as_message()?;
        let text = field(value, "string_value").as_str().map(str::to_owned);
        let text = text.filter(|text| !text.is_empty());
        let text = text.or_else(|| Some(field(value, "int_value").as_i64()?.to_string()))?;
        Some((key.as_str()?.to_owned(), text))
    };
    attributes.filter_map(read).collect()
}

fn text(attribute: &KeyValue) -> Option<(String, String)> {
    match attribute.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some((attribute.key.clone(), text.clone())),
        _ => None,
    }
}

fn figure(data: Option<metric::Data>) -> Figure {
    let is_cumulative = |temporality: i32| temporality == AggregationTemporality::Cumulative as i32;
    match data {
        Some(metric::Data::Sum(sum)) if sum.is_monotonic && is_cumulative(sum.aggregation_temporality) => {
            Figure::Count(sum.data_points.iter().map(value).sum())
        }
        Some(metric::Data::Gauge(gauge)) => Figure::Gauge(gauge.data_points.iter().map(value).sum()),
        Some(metric::Data::Histogram(histogram)) if is_cumulative(histogram.aggregation_temporality) => {
            Figure::Histogram(histogram.data_points.iter().map(|point| point.count).sum())
        }
        _ => Figure::Other,
    }
}

fn value(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        None => 0.0,
    }
}
