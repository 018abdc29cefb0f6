//! OpenTelemetry's spans: begun and ended through `tracing`, and queued until a task sends them.
//!
//! If the queue is full, further spans are counted and dropped, and nothing waits.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prometheus::IntCounter;
use tokio::sync::mpsc::Sender;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::sampler::Sampler;
use super::{CLIENT, CONTEXT, KIND, NAME, PART, REQUEST, TraceContext};
use crate::otlp::messages::{HAS_IS_REMOTE, IS_REMOTE, Span, SpanKind, Status, StatusCode};

/// The longest text that a span keeps, in bytes: a queue of 2,048 spans then takes a few megabytes at most.
const LONGEST_TEXT: usize = 1 << 10;

/// Records the spans of [`super`], and no others.
pub(crate) struct Traces {
    pub(crate) sampler: Sampler,
    pub(crate) queue: Sender<Span>,
    /// Spans for which the queue had no room.
    pub(crate) dropped: IntCounter,
}

/// A span that has not ended yet.
pub(super) struct Open {
    pub(super) context: TraceContext,
    sampler: Sampler,
    since: Instant,
    /// None if the span will not be recorded in any case.
    span: Option<Box<Span>>,
    is_left_out: bool,
}

impl Open {
    /// A span below `above`, or the first of a trace. None if the system has no random numbers.
    fn begin(about: &Metadata<'_>, above: Option<TraceContext>, sampler: Sampler) -> Option<Self> {
        let mut context = TraceContext {
            trace: [0; 16],
            span: random()?,
            is_sampled: false,
        };
        if let Some(above) = above {
            (context.trace, context.is_sampled) = (above.trace, above.is_sampled);
        } else {
            context.trace = random()?;
            context.is_sampled = sampler.takes(context.trace);
        }
        let is_request = about.name() == REQUEST;
        // The caller, which is known in a moment, may decide whether a request is recorded.
        let span = (context.is_sampled || is_request).then(|| {
            Box::new(Span {
                name: about.name().to_owned(),
                kind: if is_request {
                    SpanKind::Server.into()
                } else {
                    SpanKind::Internal.into()
                },
                parent_span_id: above.map_or_else(Vec::new, |above| above.span.to_vec()),
                flags: HAS_IS_REMOTE,
                start_time_unix_nano: nanoseconds(SystemTime::now()),
                ..Span::default()
            })
        });
        Some(Self {
            context,
            sampler,
            since: Instant::now(),
            span,
            is_left_out: false,
        })
    }

    /// Makes the span a child of a span in another process.
    pub(super) fn continues(&mut self, caller: TraceContext) {
        self.context.trace = caller.trace;
        self.context.is_sampled = self.sampler.takes_from(caller);
        if let Some(span) = &mut self.span {
            span.parent_span_id = caller.span.to_vec();
            span.flags |= IS_REMOTE;
        }
    }

    pub(super) fn rename(&mut self, name: String) {
        if let Some(span) = &mut self.span {
            span.name = name;
        }
    }

    pub(super) fn note(&mut self, name: &str, value: Value) {
        if let Some(span) = &mut self.span {
            note(span, name, value);
        }
    }

    /// Marks the span as failed without a reason, unless it is marked already.
    pub(super) fn fail(&mut self) {
        if self.span.as_ref().is_some_and(|span| span.status.is_none()) {
            self.fail_because("");
        }
    }

    pub(super) fn fail_because(&mut self, why: &str) {
        if let Some(span) = &mut self.span {
            span.status = Some(Status {
                message: clipped(why),
                code: StatusCode::Error.into(),
            });
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.context.is_sampled && !self.is_left_out && self.span.is_some()
    }

    pub(super) fn leave_out(&mut self) {
        self.is_left_out = true;
    }

    /// The span as it is sent, if it is to be sent.
    fn end(self) -> Option<Span> {
        if !self.is_recorded() {
            return None;
        }
        let mut span = *self.span?;
        let took = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(took);
        span.trace_id = self.context.trace.to_vec();
        span.span_id = self.context.span.to_vec();
        span.flags |= u32::from(self.context.is_sampled);
        Some(span)
    }
}

impl<S> Layer<S> for Traces
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let about = attributes.metadata();
        if about.target() != CONTEXT && about.target() != PART {
            return;
        }
        let Some(span) = ctx.span(id) else { return };
        let above = span
            .scope()
            .skip(1)
            .find_map(|above| above.extensions().get::<Open>().map(|open| open.context));
        let Some(mut open) = Open::begin(about, above, self.sampler) else {
            return;
        };
        if let Some(span) = &mut open.span {
            attributes.record(&mut Noted(span));
        }
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(span) = span
            .extensions_mut()
            .get_mut::<Open>()
            .and_then(|open| open.span.as_mut())
        {
            values.record(&mut Noted(span));
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let open = ctx
            .span(&id)
            .and_then(|span| span.extensions_mut().remove::<Open>());
        if let Some(span) = open.and_then(Open::end)
            && self.queue.try_send(span).is_err()
        {
            self.dropped.inc();
        }
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn clipped(text: &str) -> String {
    if text.len() <= LONGEST_TEXT {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(LONGEST_TEXT)])
}

/// The last value of an attribute counts.
fn note(span: &mut Span, name: &str, value: Value) {
    let value = Some(AnyValue { value: Some(value) });
    match span.attributes.iter_mut().find(|known| known.key == name) {
        Some(known) => known.value = value,
        None => span.attributes.push(KeyValue {
            key: name.to_owned(),
            value,
            ..KeyValue::default()
        }),
    }
}

/// Turns fields into attributes, except those that set the name and the kind of the span.
struct Noted<'a>(&'a mut Span);

impl Visit for Noted<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            NAME => value.clone_into(&mut self.0.name),
            KIND if value == CLIENT => self.0.kind = SpanKind::Client.into(),
            name => note(self.0, name, Value::StringValue(clipped(value))),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        note(self.0, field.name(), Value::BoolValue(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        note(self.0, field.name(), Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        note(
            self.0,
            field.name(),
            Value::StringValue(clipped(&format!("{value:?}"))),
        );
    }
}
