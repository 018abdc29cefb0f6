//! Spans: a pass over an object, a request, and the parts of both.
//!
//! Every line that is logged inside a pass or a request has its fields: the object (`object.kind`, `object.namespace`,
//! `object.name`) and, as soon as they are known, `definition`, `type`, `cluster` and `release`. No log filter turns
//! them off. Parts exist for traces only; unless traces are pushed to a collector, they are not created.

mod context;
mod layer;
mod sampler;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tracing::field::{Empty, display};
use tracing::{Dispatch, Id, Instrument as _, Span, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

pub use context::{TRACEPARENT, TraceContext};
use layer::Open;
pub(crate) use layer::{Traces, nanoseconds};
pub(crate) use sampler::{Named, Sampler};

/// Target of the spans whose fields are added to every line.
pub(crate) const CONTEXT: &str = "krateo::context";

/// Target of the spans that only traces show.
pub(crate) const PART: &str = "krateo::part";

/// The field with the name of a part.
const NAME: &str = "otel.name";

/// The field with the kind of a part.
const KIND: &str = "otel.kind";

/// The kind of a part that calls another process.
const CLIENT: &str = "client";

/// The longest name of an object in Kubernetes.
const LONGEST_CLAIM: usize = 253;

/// The name of a request's span in the log's subscriber.
const REQUEST: &str = "request";

/// The methods that HTTP itself defines.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
];

/// What a pass is about, as far as known when it begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Object<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The type that it belongs to or stands for, `<plural>.<version>.<group>`.
    pub type_: Option<&'a str>,
    /// The definition that it is, `<namespace>/<name>`, or that governs it.
    pub definition: Option<&'a str>,
    /// The cluster that the pass works on, if there are several.
    pub cluster: Option<&'a str>,
}

/// A pass over an object.
pub fn pass(object: &Object<'_>) -> Span {
    tracing::info_span!(
        target: CONTEXT,
        "reconcile",
        object.kind = claim(object.kind),
        object.namespace = claim(object.namespace),
        object.name = claim(object.name),
        "type" = object.type_,
        definition = object.definition,
        cluster = object.cluster,
        release = Empty,
    )
}

/// A request from another process, as a child of the span that its headers name, if they are given and valid. That is
/// only the caller's claim: it decides which trace shows the request and, with some samplers, whether it is recorded,
/// and nothing else.
pub fn request(method: &str, route: &str, headers: Option<&HeaderMap>) -> Span {
    let span = tracing::info_span!(
        target: CONTEXT,
        "request",
        http.route = route,
        object.kind = Empty,
        object.namespace = Empty,
        object.name = Empty,
        "type" = Empty,
        definition = Empty,
        release = Empty,
    );
    // Callers choose the method and its length: unknown ones get one name, as OpenTelemetry's conventions require.
    let method = if METHODS.contains(&method) {
        method
    } else {
        "_OTHER"
    };
    span.with_subscriber(|(id, dispatch)| {
        on(dispatch, id, |open| {
            open.rename(format!("{method} {route}"));
            open.note("http.request.method", Value::StringValue(method.to_owned()));
            if let Some(caller) = headers.and_then(TraceContext::of_caller) {
                open.continues(caller);
            }
        })
    });
    span
}

/// Answers a request in a span of its own, a child of the span that its headers name.
///
/// Refused requests are left out of traces: anyone who reaches the port can send them, and they must not displace other
/// spans.
pub async fn serve(route: &str, request: Request, next: Next) -> Response {
    let span = self::request(request.method().as_str(), route, Some(request.headers()));
    async {
        let response = next.run(request).await;
        answered(response.status());
        if response.status().is_client_error() {
            leave_out();
        }
        response
    }
    .instrument(span)
    .await
}

/// A part of a pass or of a request.
pub fn part(name: &str) -> Span {
    tracing::info_span!(target: PART, "part", otel.name = name)
}

/// Does the work of a part in its span, which is marked as failed if the work fails.
pub async fn within<T, E>(part: Span, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let outcome = work.instrument(part.clone()).await;
    if outcome.is_err() {
        part.with_subscriber(|(id, dispatch)| on(dispatch, id, Open::fail));
    }
    outcome
}

/// A request to another process; inside this span, [`traceparent`] returns the header that identifies it.
pub fn outgoing(name: &str, host: &str) -> Span {
    tracing::info_span!(target: PART, "part", otel.name = name, otel.kind = CLIENT, server.address = host)
}

/// Sets a field of a pass or request that was not known when it began.
pub fn tell(span: &Span, field: &str, value: impl Display) {
    span.record(field, display(value));
}

/// Sets a field to what the caller claims, cut to the longest possible name.
pub fn tell_claim(span: &Span, field: &str, said: &str) {
    tell(span, field, claim(said));
}

fn claim(said: &str) -> &str {
    &said[..said.floor_char_boundary(LONGEST_CLAIM)]
}

/// The value of the header [`TRACEPARENT`] for the current span; none if nothing is recorded.
pub fn traceparent() -> Option<String> {
    on_current(|open| open.context.to_string())
}

/// Adds an attribute to the current span, for traces only.
pub fn note(name: &'static str, value: i64) {
    on_current(|open| open.note(name, Value::IntValue(value)));
}

/// Records the answer to the current request in its span.
pub fn answered(status: StatusCode) {
    on_current(|open| {
        let code = Value::IntValue(status.as_u16().into());
        open.note("http.response.status_code", code);
        if status.is_server_error() {
            open.fail();
        }
    });
}

/// Marks the current span as failed, with the same reason as in the log.
pub fn failed(why: &str) {
    on_current(|open| open.fail_because(why));
}

/// Leaves the current span out of its trace.
///
/// For passes that find nothing to do, of which there are many, and for callers without permission. Children of a span
/// that is left out have to be left out separately.
pub fn leave_out() {
    on_current(Open::leave_out);
}

/// Reads the object that a pass is about. If it is gone, the current part is left out of its trace: the pass is left
/// out, and a span needs a parent that exists.
pub async fn unless_gone<T, E>(read: impl Future<Output = Result<Option<T>, E>>) -> Result<Option<T>, E> {
    let found = read.await;
    if matches!(found, Ok(None)) {
        leave_out();
    }
    found
}

/// The identity of a span whose trace is recorded.
pub(crate) fn place<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>) -> Option<TraceContext> {
    let extensions = span.extensions();
    let open = extensions.get::<Open>().filter(|open| open.is_recorded());
    open.map(|open| open.context)
}

fn on_current<T>(act: impl FnOnce(&mut Open) -> T) -> Option<T> {
    let mut act = Some(act);
    dispatcher::get_default(|dispatch| {
        let current = dispatch.current_span();
        on(dispatch, current.id()?, act.take()?)
    })
}

/// Acts on the innermost span from this one outwards that traces know.
fn on<T>(dispatch: &Dispatch, id: &Id, act: impl FnOnce(&mut Open) -> T) -> Option<T> {
    let registry = dispatch.downcast_ref::<Registry>()?;
    let mut scope = registry.span(id)?.scope();
    let span = scope.find(|span| span.extensions().get::<Open>().is_some())?;
    let mut extensions = span.extensions_mut();
    extensions.get_mut::<Open>().map(act)
}
