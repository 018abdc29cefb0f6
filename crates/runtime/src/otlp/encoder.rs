//! Turns metrics and spans into OpenTelemetry's messages.

use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

use super::messages::{ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span};
use crate::Metrics;
use crate::spans::nanoseconds;

/// All metrics as one message.
pub(super) fn metrics(registry: &Metrics, of_process: &[(String, String)]) -> ExportMetricsServiceRequest {
    let times = Times {
        start: nanoseconds(registry.since()),
        now: nanoseconds(SystemTime::now()),
    };
    let families = registry.gather();
    let metrics = families
        .iter()
        .filter_map(|family| times.metric(registry.name_of(family.name()), family))
        .collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(process(of_process)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

/// Spans of any number of traces as one message.
pub(super) fn spans(spans: Vec<Span>, of_process: &[(String, String)]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(process(of_process)),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans,
            }],
        }],
    }
}

fn process(attributes: &[(String, String)]) -> Resource {
    Resource {
        attributes: attributes
            .iter()
            .map(|(name, value)| attribute(name, value))
            .collect(),
        ..Resource::default()
    }
}

/// The library that recorded it.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// The period that counts cover.
struct Times {
    start: u64,
    now: u64,
}

impl Times {
    /// None for summaries, which we do not have.
    fn metric(&self, name: String, family: &MetricFamily) -> Option<Metric> {
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

    /// Prometheus buckets count all values up to a bound, OpenTelemetry's the values between two bounds.
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
