//! Spans: a pass over an object, a request, and the parts of both.
//!
//! Every line that is logged inside a pass or a request carries its fields: the object (`object.kind`, `object.namespace`,
//! `object.name`) and, as soon as they are known, `definition`, `type`, `cluster` and `release`. No filter of the log turns
//! that off. Parts are there for traces alone, and without a collector of traces they do not exist.

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

/// Target of the spans whose fields are in every line.
pub(crate) const CONTEXT: &str = "krateo::context";

/// Target of the spans of which only traces tell.
pub(crate) const PART: &str = "krateo::part";

/// The field that says what a part is called.
const NAME: &str = "otel.name";

/// The field that says what kind of a part it is.
const KIND: &str = "otel.kind";

/// A part that asks another process.
const CLIENT: &str = "client";

/// As long as the name of an object in Kubernetes.
const LONGEST_CLAIM: usize = 253;

/// What the span of a request is called here.
const REQUEST: &str = "request";

/// The methods that HTTP itself defines.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
];

/// What a pass is about, as far as it is known when it begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Object<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The type that it is of or stands for, `<plural>.<version>.<group>`.
    pub type_: Option<&'a str>,
    /// The definition that it is, `<namespace>/<name>`, or that governs it.
    pub definition: Option<&'a str>,
    /// The cluster that it is carried out on, where there are several.
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

/// A request of another process, below the span that its headers name, where they are given and say so well. That is the
/// caller's claim: it decides in which trace the request is shown, and with some samplers whether it is, and nothing else.
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
    // Callers choose the method, as long as they like: unknown ones have one name, as OpenTelemetry's conventions say.
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

/// Answers a request in a span of its own, below the one that its headers name.
///
/// Refused requests are left out of traces: anybody who reaches the port can send them, and they must not displace other spans.
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

/// Does the work of a part in its span, which is marked as failed when the work is.
pub async fn within<T, E>(part: Span, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let outcome = work.instrument(part.clone()).await;
    if outcome.is_err() {
        part.with_subscriber(|(id, dispatch)| on(dispatch, id, Open::fail));
    }
    outcome
}

/// A request to another process, to which [`traceparent`] says from inside of this span where it belongs.
pub fn outgoing(name: &str, host: &str) -> Span {
    tracing::info_span!(target: PART, "part", otel.name = name, otel.kind = CLIENT, server.address = host)
}

/// Sets a field of a pass or request that was not known when it began.
pub fn tell(span: &Span, field: &str, value: impl Display) {
    span.record(field, display(value));
}

/// Sets a field by the word of whoever asks, of which no more is taken than a name can have.
pub fn tell_claim(span: &Span, field: &str, said: &str) {
    tell(span, field, claim(said));
}

fn claim(said: &str) -> &str {
    &said[..said.floor_char_boundary(LONGEST_CLAIM)]
}

/// Which trace the caller's span is of, as [`TRACEPARENT`] says it; none where nothing is recorded.
pub fn traceparent() -> Option<String> {
    on_current(|open| open.context.to_string())
}

/// Notes something of the span that the caller is in, for traces alone.
pub fn note(name: &'static str, value: i64) {
    on_current(|open| open.note(name, Value::IntValue(value)));
}

/// Notes how the request was answered whose span the caller is in.
pub fn answered(status: StatusCode) {
    on_current(|open| {
        let code = Value::IntValue(status.as_u16().into());
        open.note("http.response.status_code", code);
        if status.is_server_error() {
            open.fail();
        }
    });
}

/// Marks the span that the caller is in as failed, and says why as the log does.
pub fn failed(why: &str) {
    on_current(|open| open.fail_because(why));
}

/// Leaves the span that the caller is in out of its trace.
///
/// For passes that find nothing to look at, of which there are many, and for callers who may not ask. What is below a span that
/// is left out has to be left out by itself.
pub fn leave_out() {
    on_current(Open::leave_out);
}

/// Reads the object that a pass is about. When it is gone, the part that the caller is in is left out of its trace: the pass
/// is, and nothing is to be below what is not there.
pub async fn unless_gone<T, E>(read: impl Future<Output = Result<Option<T>, E>>) -> Result<Option<T>, E> {
    let found = read.await;
    if matches!(found, Ok(None)) {
        leave_out();
    }
    found
}

/// Where a span stands in a trace that is recorded.
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

/// Acts on the innermost span around this one that traces know of.
fn on<T>(dispatch: &Dispatch, id: &Id, act: impl FnOnce(&mut Open) -> T) -> Option<T> {
    let registry = dispatch.downcast_ref::<Registry>()?;
    let mut scope = registry.span(id)?.scope();
    let span = scope.find(|span| span.extensions().get::<Open>().is_some())?;
    let mut extensions = span.extensions_mut();
    extensions.get_mut::<Open>().map(act)
}
