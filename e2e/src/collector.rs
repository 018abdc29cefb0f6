//! A collector of figures on loopback: it takes OTLP over HTTP and remembers what each process said last.

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
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// What a figure is, and how much by now, over all its attributes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// A count that only grows, from the start of the process.
    Count(f64),
    /// How much there is.
    Gauge(f64),
    /// How many were measured.
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
    /// Its figures by name.
    pub figures: BTreeMap<String, Figure>,
}

type All = Arc<Mutex<Vec<Pushed>>>;

/// The collector; it ends with this value.
pub struct Collector {
    address: SocketAddr,
    all: All,
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
        let (address, all) = (listener.local_addr()?, All::default());
        let app = Router::new()
            .route("/v1/metrics", post(receive))
            .with_state(all.clone());
        runtime.spawn(async move { axum::serve(listener, app).await });
        Ok(Self {
            address,
            all,
            runtime: Some(runtime),
        })
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What the process of this attribute pushed last.
    pub fn pushed(&self, attribute: &str, value: &str) -> Option<Pushed> {
        let all = locked(&self.all);
        let found = all
            .iter()
            .find(|pushed| pushed.attributes.get(attribute).is_some_and(|said| said == value));
        found.cloned()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn locked(all: &All) -> MutexGuard<'_, Vec<Pushed>> {
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
